"""A writer that is killed at any change of its files, even in the middle of one, loses nothing that
came back, and so it is when the next one is killed right after it has opened the log.

All rounds: `SEGLOG_CRASH_ROUNDS=1000 pytest tests/crash`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.check import recover
from tests.crash.promises import FILE, Promises, promised
from tests.crash.rounds import rounds
from tests.faults.box import CHANGES, Box

_MOST_CALLS = 400


def killed_run(box: Box, root: Path, source: random.Random, most_calls: int, *, seed: int,
               promises: Promises, generation: int, count: int) -> Promises:
    """A writer's life from its opening to its death; what it was promised by then."""
    answer = box.run(
        "write", under=root, root=str(root), seed=seed, count=count, generation=generation,
        recovery_point=source.choice([0, promises.flushed]), log_start_offset=promises.start,
        close=source.random() < .2,
        faults={"calls": CHANGES, "at": source.randint(1, most_calls),
                "action": source.choice(["kill", "torn"])})
    assert answer.get("signal") == 9 or "result" in answer, answer
    return promised((root / FILE).read_bytes())


@pytest.mark.parametrize("seed", rounds())
def test_a_killed_writer_loses_nothing(box: Box, tmp_path: Path, seed: int) -> None:
    source, root = random.Random(f"kill {seed}"), tmp_path / "data"
    (root / "t-0").mkdir(parents=True)
    (root / FILE).touch()
    promises = killed_run(box, root, source, _MOST_CALLS, seed=seed, promises=Promises(),
                          generation=1, count=60)
    recover(root, seed, promises, source, everything=True)
    # The second one dies soon: while it opens the log, or after its first few appends.
    promises = killed_run(box, root, source, 40, seed=seed, promises=promises, generation=2,
                          count=60)
    recover(root, seed, promises, source, everything=True)
    recover(root, seed, promises, source, everything=True)
