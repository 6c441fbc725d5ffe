"""Programs that embed a log with `seglog.open`, killed and without power: as for UnifiedLog, and
`durability="append"` keeps every append that came back."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from seglog.storage.paths import HIGH_WATERMARK_CHECKPOINT
from tests.crash.embedded import check_embedded
from tests.crash.power import PowerDisk
from tests.crash.promises import FILE, Promises, promised
from tests.crash.rounds import rounds
from tests.faults.box import CHANGES, Box, Call, read_trace


def make_data_dir(root: Path) -> None:
    """A data directory: `seglog.open` creates none beside other files such as FILE."""
    root.mkdir()
    (root / HIGH_WATERMARK_CHECKPOINT).write_text("0\n0\n")


def run(box: Box, root: Path, seed: int, generation: int, **faults: object) -> None:
    answer = box.run("write_embedded", under=root, root=str(root), seed=seed, count=40,
                     durability="append" if seed % 2 else "none", generation=generation,
                     faults=faults)
    assert answer.get("signal") == 9 or "result" in answer, answer


@pytest.mark.parametrize("seed", rounds()[::2])
def test_a_killed_program_loses_nothing(box: Box, tmp_path: Path, seed: int) -> None:
    source, root = random.Random(f"embedded kill {seed}"), tmp_path / "data"
    make_data_dir(root)
    (root / FILE).touch()
    for generation, most_calls in ((1, 400), (2, 60)):
        run(box, root, seed, generation, calls=CHANGES, at=source.randint(1, most_calls),
            action=source.choice(["kill", "torn"]))
    check_embedded(root, seed, promised((root / FILE).read_bytes()), everything=True)


@pytest.mark.parametrize("seed", rounds()[::2])
def test_a_power_cut_leaves_what_was_synced(box: Box, tmp_path: Path, seed: int) -> None:
    source, promises = random.Random(f"embedded cut {seed}"), Promises(power_cuts=True)
    root, before, image = tmp_path / "data", tmp_path / "before", tmp_path / "image"
    make_data_dir(root)
    for generation, most_calls in ((1, 1 << 30), (2, source.choice([40, 1 << 30]))):
        shutil.copytree(root, before)
        trace = tmp_path / f"trace-{generation}"
        run(box, root, seed, generation, trace=str(trace))
        calls = [Call(call.kind, call.path.replace(str(root), str(before), 1),
                      call.other.replace(str(root), str(before), 1), call.offset, call.length,
                      call.data) for call in read_trace(trace)]
        moment = source.randint(0, min(len(calls), most_calls))
        disk = PowerDisk(before)
        disk.replay(calls[:moment])
        for call in calls[:moment]:
            if call.kind == "write" and call.name == FILE:
                promises.hear(call.data)
        disk.cut(source, image)
        for old in (root, before):
            shutil.rmtree(old)
        image.rename(root)
    check_embedded(root, seed, promises, everything=False)
