"""Mixes of threads, drawn by a seed, for `SEGLOG_STRESS_SECONDS` (5) altogether.

`SEGLOG_STRESS_SEED=name` draws the same mixes again; the interleaving of threads still varies.
"""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.stress.compacted import CompactedWorld
from tests.stress.reading_process import ReadingProcess
from tests.stress.tiered import TieredWorld
from tests.stress.worlds import WORLDS
from tests.support.effort import IS_QUICK

SECONDS = float(os.environ.get("SEGLOG_STRESS_SECONDS", "2" if IS_QUICK else "5"))
SEED = os.environ.get("SEGLOG_STRESS_SEED") or str(time.time_ns())
ROUND_SECONDS = 2.0
ALL = {**WORLDS, "compacted": CompactedWorld, "tiered": TieredWorld}


@pytest.mark.parametrize("world", ALL)
def test_threads_that_do_anything_at_once(tmp_path: Path, world: str) -> None:
    """No error but the documented ones, no directory offline, nothing lost, twice or in another
    order, and a clean end."""
    with ReadingProcess() if world == "manager" else nullcontext() as reader:
        _run_rounds(tmp_path, world, reader)


def _run_rounds(tmp_path: Path, world: str, reader: ReadingProcess | None) -> None:
    until = time.monotonic() + SECONDS / len(ALL)
    number = 0
    while number == 0 or time.monotonic() < until:
        seed = f"{SEED} {number}"
        root = tmp_path / str(number)
        root.mkdir()
        try:
            made = ALL[world](root, seed)
            made.reader = reader
            made.run(min(ROUND_SECONDS, max(until - time.monotonic(), .5)))
        except BaseException as error:
            error.add_note(f"world {world}, SEGLOG_STRESS_SEED={SEED!r}, round {number}")
            raise
        number += 1
