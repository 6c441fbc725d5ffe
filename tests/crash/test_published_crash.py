"""What is announced is there after a power cut: the jobs that were published, and the segments of
which the metadata of a tier says that they are copied."""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.crash.managed_check import is_refused
from tests.crash.promises import FILE, Promises
from tests.crash.rounds import rounds
from tests.crash.test_power_cut import cut, moved
from tests.crash.tiered import check_tiered, gaps, starts
from tests.faults.box import Box, Call, read_trace
from tests.support.effort import quick_first


@dataclass
class Lives:
    """Lives of a program `job` below `work`, and their cuts."""

    box: Box
    job: str
    work: Path
    seed: int

    def __post_init__(self) -> None:
        self.source = random.Random(f"{self.job} {self.seed}")
        self.root = self.work / "root"
        self.root.mkdir()

    def live(self, before: Path, **how: int) -> list[Call] | None:
        """What it does, as if it were in `before`, a copy of how it begins; None if its start is
        refused as by Kafka."""
        shutil.rmtree(before, ignore_errors=True)
        shutil.copytree(self.root, before)
        trace = self.work / "trace"
        trace.unlink(missing_ok=True)
        answer = self.box.run(self.job, under=self.root, root=str(self.root), seed=self.seed,
                              faults={"trace": str(trace)}, **how)
        if "result" not in answer:
            assert is_refused(answer["error"], answer["message"]), answer
            return None
        return [moved(call, self.root, before) for call in read_trace(trace)]

    def cut(self, calls: list[Call], before: Path, promises: Any,
            check: Callable[[Path, Any], None]) -> Path:
        """The image of a cut, of which a copy was checked."""
        image, one = self.work / "image", self.work / "checked"
        for old in (image, one):
            shutil.rmtree(old, ignore_errors=True)
        cut(before, calls, self.source, image, promises, self.source.randint(0, len(calls)))
        shutil.copytree(image, one)
        check(one, copy.deepcopy(promises))
        (image / FILE).touch()
        return image


def tier(box: Box, work: Path, seed: int, cuts: int) -> None:
    """A tier after a cut, and after one of the next life."""
    lives = Lives(box, "write_tiered", work, seed)
    empty, before = work / "empty", work / "before"
    calls = lives.live(empty, count=25)
    assert calls is not None
    for _ in range(cuts):
        promises = Promises(power_cuts=True)
        image = lives.cut(calls, empty, promises,
                          lambda root, kept: check_tiered(root, seed, kept, set()))
        shutil.rmtree(lives.root)
        image.rename(lives.root)
        lost = gaps(lives.root)
        if not starts(lives.root, promises):
            continue
        again = lives.live(before, count=12, generation=2)
        if again is not None:
            lives.cut(again, before, promises,
                      lambda root, kept, lost=lost: check_tiered(root, seed, kept, lost))


def jobs(box: Box, work: Path, seed: int, cuts: int) -> None:
    """Jobs that were published before a cut, and before one of the next life."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'seglog[export]'")
    from tests.crash import fragments

    lives = Lives(box, "write_fragments", work, seed)

    def check(root: Path, kept: Any) -> None:
        fragments.check_fragments(root, seed, kept, lives.source)

    empty, before = work / "empty", work / "before"
    calls = lives.live(empty, count=4)
    assert calls is not None
    for _ in range(cuts):
        promises = fragments.FragmentPromises()
        image = lives.cut(calls, empty, promises, check)
        shutil.rmtree(lives.root)
        image.rename(lives.root)
        again = lives.live(before, count=promises.most + 1)
        assert again is not None
        lives.cut(again, before, promises, check)


PROGRAMS = pytest.mark.parametrize("program", [tier, jobs], ids=["tier", "jobs"])


@PROGRAMS
@pytest.mark.parametrize("seed", quick_first(range(2), 1))
def test_what_is_announced_outlives_a_cut(box: Box, memory: Path, seed: int,
                                          program: Callable[..., None]) -> None:
    program(box, memory, seed, 2)


@PROGRAMS
@pytest.mark.judge
@pytest.mark.parametrize("seed", rounds(4))
def test_what_is_announced_outlives_any_cut(box: Box, memory: Path, seed: int,
                                            program: Callable[..., None]) -> None:
    program(box, memory, 1000 + seed, 8)
