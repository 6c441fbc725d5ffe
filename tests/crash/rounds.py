"""How many crashes: a few in a quick run, else 50 and those that found something; any number by
SEGLOG_CRASH_ROUNDS."""

from __future__ import annotations

import os

from tests.support.effort import IS_QUICK

QUICK, IN_THE_SUITE = 6, 50
FOUND_SOMETHING = (171, 299, 317, 746, 811, 958)


def rounds(in_the_suite: int | None = None) -> list[int]:
    """The seeds: `in_the_suite` of them for a program whose seeds take seconds each."""
    wanted = os.environ.get("SEGLOG_CRASH_ROUNDS")
    if wanted is not None:
        return [*range(int(wanted))]
    if IS_QUICK:
        return [*range(QUICK)]
    if in_the_suite is not None:
        return [*range(in_the_suite)]
    return [*range(IN_THE_SUITE), *FOUND_SOMETHING]
