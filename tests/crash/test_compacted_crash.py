"""Compaction of an embedded log, killed and without power at any call: of each key the last value
is there, and nothing twice. `SEGLOG_CRASH_ROUNDS=N` runs N of each."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.crash.compacted import check_compacted
from tests.crash.power import PowerDisk
from tests.crash.promises import FILE, Promises, promised
from tests.crash.rounds import rounds
from tests.crash.test_embedded_crash import make_data_dir
from tests.faults.box import CHANGES, Box, Call, read_trace


def run(box: Box, root: Path, seed: int, generation: int, **faults: object) -> None:
    answer = box.run("write_compacted", under=root, root=str(root), seed=seed, count=12,
                     durability="append" if seed % 2 else "none", generation=generation,
                     faults=faults)
    assert answer.get("signal") == 9 or "result" in answer, answer


@pytest.mark.parametrize("seed", rounds()[::2])
def test_a_killed_round(box: Box, tmp_path: Path, seed: int) -> None:
    source, root = random.Random(f"compacted kill {seed}"), tmp_path / "data"
    make_data_dir(root)
    (root / FILE).touch()
    for generation, most_calls in ((1, 500), (2, 150)):
        run(box, root, seed, generation, calls=CHANGES, at=source.randint(1, most_calls),
            action=source.choice(["kill", "torn"]))
    check_compacted(root, seed, promised((root / FILE).read_bytes()), everything=True)


@pytest.mark.parametrize("seed", rounds()[::2])
def test_a_power_cut_in_a_round(box: Box, tmp_path: Path, seed: int) -> None:
    source, promises = random.Random(f"compacted cut {seed}"), Promises(power_cuts=True)
    root, before, image = tmp_path / "data", tmp_path / "before", tmp_path / "image"
    make_data_dir(root)
    for generation in (1, 2):
        shutil.copytree(root, before)
        trace = tmp_path / f"trace-{generation}"
        run(box, root, seed, generation, trace=str(trace))
        calls = [Call(call.kind, call.path.replace(str(root), str(before), 1),
                      call.other.replace(str(root), str(before), 1), call.offset, call.length,
                      call.data) for call in read_trace(trace)]
        moment = source.randint(0, len(calls))
        disk = PowerDisk(before)
        disk.replay(calls[:moment])
        for call in calls[:moment]:
            if call.kind == "write" and call.name == FILE:
                promises.hear(call.data)
        disk.cut(source, image)
        for old in (root, before):
            shutil.rmtree(old)
        image.rename(root)
    check_compacted(root, seed, promises, everything=False)
