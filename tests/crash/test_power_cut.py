"""A power cut at any moment leaves at least what a flush acknowledged, and so does a second one
while the log is opened again, or right after it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.crash.check import recover
from tests.crash.power import PowerDisk
from tests.crash.promises import FILE, Promises
from tests.crash.rounds import rounds
from tests.faults.box import Box, Call, read_trace

_CUTS = 1


def traced_run(box: Box, root: Path, trace: Path, **how: int) -> list[Call]:
    """What a writer did to its files, in its order."""
    trace.unlink(missing_ok=True)
    answer = box.run("write", under=root, root=str(root), faults={"trace": str(trace)}, **how)
    assert "result" in answer, answer
    return read_trace(trace)


def moved(call: Call, old: Path, new: Path) -> Call:
    """The call as if the tree had been elsewhere."""
    return Call(call.kind, call.path.replace(str(old), str(new), 1),
                call.other.replace(str(old), str(new), 1), call.offset, call.length, call.data)


def cut(before: Path, calls: list[Call], source: random.Random, image: Path, promises: Promises,
        moment: int) -> None:
    """The image of a cut after `moment` calls, and what was promised by then."""
    disk = PowerDisk(before)
    disk.replay(calls[:moment])
    for call in calls[:moment]:
        if call.kind == "write" and call.name == FILE:
            promises.hear(call.data)
    disk.cut(source, image)


@pytest.mark.parametrize("seed", rounds())
def test_a_power_cut_leaves_what_was_flushed(box: Box, memory: Path, seed: int) -> None:
    source, empty, root = random.Random(f"cut {seed}"), memory / "empty", memory / "data"
    (empty / "t-0").mkdir(parents=True)
    shutil.copytree(empty, root)
    calls = traced_run(box, root, memory / "trace", seed=seed, count=60)
    for number in range(_CUTS):
        image, promises = memory / "image" / "data", Promises(power_cuts=True)
        shutil.rmtree(image.parent, ignore_errors=True)
        cut(empty, [moved(call, root, empty) for call in calls], source, image, promises,
            source.randint(0, len(calls)))
        (image / FILE).write_bytes(b"")
        # The next writer finds the image as it is, and power goes again: soon, most of the time.
        before = memory / f"before-{number}"
        shutil.copytree(image, before)
        generation = traced_run(box, image, memory / "trace", seed=seed, count=20, generation=2,
                                recovery_point=source.choice([0, promises.flushed]),
                                log_start_offset=promises.start)
        again = memory / f"again-{number}"
        moment = source.randint(0, min(len(generation), source.choice([30, 1000])))
        cut(before, [moved(call, image, before) for call in generation], source, again, promises,
            moment)
        (again / FILE).write_bytes(b"")
        recover(again, seed, promises, source, everything=False)
        recover(again, seed, promises, source, everything=True)
