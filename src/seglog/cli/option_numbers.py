"""Numbers that options take."""

from __future__ import annotations

import argparse

from seglog.arguments import shown

__all__ = ["whole_number"]


def whole_number(text: str, least: int) -> int:
    """Parses a number of at least `least`. Raises ArgumentTypeError."""
    try:
        number = int(text)
    except ValueError:  # also for more digits than Python converts
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(
            f"expected a number, at least {least}, got {shown(text)}")
    return number
