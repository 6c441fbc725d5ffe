"""How many crashes: 50 in a suite that should be quick and those that found something, any number
by SEGLOG_CRASH_ROUNDS."""

from __future__ import annotations

import os

IN_THE_SUITE = 50
FOUND_SOMETHING = (171, 299, 317, 746, 811, 958)


def rounds() -> list[int]:
    """The seeds."""
    wanted = os.environ.get("SEGLOG_CRASH_ROUNDS")
    return [*range(IN_THE_SUITE), *FOUND_SOMETHING] if wanted is None else [*range(int(wanted))]
