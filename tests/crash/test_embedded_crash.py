"""Programs that embed a log with `seglog.open`, killed and without power: as for UnifiedLog, and
`durability="append"` keeps every append that came back. Of a compacted log the last value of each
key is there, and nothing twice. `SEGLOG_CRASH_ROUNDS=N` runs N of each."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from seglog.storage.paths import HIGH_WATERMARK_CHECKPOINT
from tests.crash.compacted import check_compacted
from tests.crash.embedded import check_embedded
from tests.crash.promises import FILE, Promises, promised
from tests.crash.rounds import rounds
from tests.crash.test_power_cut import cut, moved
from tests.faults.box import CHANGES, Box, read_trace


@dataclass(frozen=True)
class Program:
    """A job of tests/faults, how many things it does, what it checks afterwards, before how many
    calls its two runs are killed, and before how many the power of the second one may go."""

    name: str
    count: int
    check: Callable[..., None]
    most_calls: tuple[int, int]
    second_cuts: tuple[int, ...] = ()

    def run(self, box: Box, root: Path, seed: int, generation: int, **faults: object) -> None:
        """Runs it once, which may kill it."""
        answer = box.run(f"write_{self.name}", under=root, root=str(root), seed=seed,
                         count=self.count, durability="append" if seed % 2 else "none",
                         generation=generation, faults=faults)
        assert answer.get("signal") == 9 or "result" in answer, answer


PROGRAMS = pytest.mark.parametrize("program", [
    Program("embedded", 40, check_embedded, (400, 60), (40, 1 << 30)),
    Program("compacted", 12, check_compacted, (500, 150))], ids=lambda program: program.name)


def make_data_dir(root: Path) -> None:
    """A data directory: `seglog.open` creates none beside other files such as FILE."""
    root.mkdir()
    (root / HIGH_WATERMARK_CHECKPOINT).write_text("0\n0\n")


@PROGRAMS
@pytest.mark.parametrize("seed", rounds()[::2])
def test_a_killed_program_loses_nothing(box: Box, tmp_path: Path, seed: int, program: Program
                                        ) -> None:
    source, root = random.Random(f"{program.name} kill {seed}"), tmp_path / "data"
    make_data_dir(root)
    (root / FILE).touch()
    for generation, most_calls in enumerate(program.most_calls, 1):
        program.run(box, root, seed, generation, calls=CHANGES, at=source.randint(1, most_calls),
                    action=source.choice(["kill", "torn"]))
    program.check(root, seed, promised((root / FILE).read_bytes()), everything=True)


@PROGRAMS
@pytest.mark.parametrize("seed", rounds()[::2])
def test_a_power_cut_leaves_what_was_synced(box: Box, tmp_path: Path, seed: int, program: Program
                                            ) -> None:
    source, promises = random.Random(f"{program.name} cut {seed}"), Promises(power_cuts=True)
    root, before, image = tmp_path / "data", tmp_path / "before", tmp_path / "image"
    make_data_dir(root)
    most = 1 << 30
    later = source.choice(program.second_cuts) if program.second_cuts else most
    for generation, most_calls in ((1, most), (2, later)):
        shutil.copytree(root, before)
        trace = tmp_path / f"trace-{generation}"
        program.run(box, root, seed, generation, trace=str(trace))
        calls = [moved(call, root, before) for call in read_trace(trace)]
        cut(before, calls, source, image, promises, source.randint(0, min(len(calls), most_calls)))
        for old in (root, before):
            shutil.rmtree(old)
        image.rename(root)
    program.check(root, seed, promises, everything=False)
