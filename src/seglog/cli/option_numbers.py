"""Numbers that options take."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from seglog.arguments import shown

__all__ = ["number_from"]


def number_from(least: int) -> Callable[[str], int]:
    """The type of an option that takes a number of at least `least`."""
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:  # also for more digits than Python converts
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(
                f"expected a number, at least {least}, got {shown(text)}")
        return number

    return parse
