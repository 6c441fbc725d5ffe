"""How many crashes: 50 in a suite that should be quick, any number by SEGLOG_CRASH_ROUNDS."""

from __future__ import annotations

import os

IN_THE_SUITE = 50


def rounds() -> range:
    """The seeds."""
    return range(int(os.environ.get("SEGLOG_CRASH_ROUNDS", IN_THE_SUITE)))
