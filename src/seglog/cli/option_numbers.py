"""Numbers that options take."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from seglog.arguments import THREADS_MAX, shown

__all__ = ["number_from", "thread_count"]


def number_from(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an option that takes a number of at least `least`, and no more than `most`."""
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:  # also for more digits than Python converts
            number = least - 1
        if number < least or (most is not None and number > most):
            limits = f"at least {least}" if most is None else f"{least} to {most}"
            raise argparse.ArgumentTypeError(f"expected a number, {limits}, got {shown(text)}")
        return number

    return parse


#: The type of `--threads`.
thread_count = number_from(1, THREADS_MAX)
