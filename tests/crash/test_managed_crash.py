"""A program with a LogManager without power: a start keeps what was flushed of every log, no
deleted log comes back, no marker is beside a log that was not flushed, no temporary file stays."""

from __future__ import annotations

import copy
import random
import shutil
from pathlib import Path

import pytest

from tests.crash.managed import KEYS, ROOTS
from tests.crash.managed_check import check_managed, is_refused
from tests.crash.managed_promises import ManagedPromises
from tests.crash.promises import FILE
from tests.crash.rounds import rounds
from tests.crash.test_power_cut import cut, moved
from tests.faults.box import Box, Call, read_trace


class ManagedCuts:
    """Runs of the program from images of cuts, and cuts of these runs."""

    def __init__(self, box: Box, work: Path, seed: int) -> None:
        self.box, self.work, self.seed = box, work, seed
        self.source = random.Random(f"managed cut {seed}")

    def run(self, root: Path, generation: int, before: Path) -> list[Call] | None:
        """What a life of the program changes under `root`, as if that had been `before`; None if
        it does not start, as Kafka would not."""
        shutil.copytree(root, before)
        trace = self.work / "trace"
        trace.unlink(missing_ok=True)
        answer = self.box.run("write_managed", under=root, root=str(root), seed=self.seed,
                              count=40 if generation == 1 else 25, generation=generation,
                              faults={"trace": str(trace)})
        if "result" not in answer:
            assert is_refused(answer["error"], answer["message"]), answer
            return None
        return [moved(call, root, before) for call in read_trace(trace)]

    def cut(self, calls: list[Call], before: Path, promises: ManagedPromises, moment: int) -> Path:
        """The image of a cut, in which the program can start again."""
        image = self.work / "image"
        shutil.rmtree(image, ignore_errors=True)
        cut(before, calls, self.source, image, promises, moment)
        for name in ROOTS:
            (image / name).mkdir(exist_ok=True)
        return image

    def check(self, image: Path, promises: ManagedPromises) -> None:
        """Checks a copy of the image."""
        one = self.work / "checked"
        shutil.copytree(image, one)
        check_managed(one, self.seed, copy.deepcopy(promises))
        shutil.rmtree(one)

    def cut_twice(self, first: int, second: int) -> None:
        """`first` cuts of the program's first life, and after each of them `second` cuts of the
        next one: soon after its start, most of the time."""
        empty, root = self.work / "empty", self.work / "data"
        for name in ROOTS:
            (root / name).mkdir(parents=True)
        calls = self.run(root, 1, empty)
        assert calls is not None
        for _ in range(first):
            promises, whole = ManagedPromises(), self.source.random() < .4
            image = self.cut(calls, empty, promises,
                             len(calls) if whole else self.source.randint(0, len(calls)))
            self.check(image, promises)
            shutil.rmtree(root)
            image.rename(root)
            self._choose(root)
            (root / FILE).touch()
            before = self.work / "before"
            again = self.run(root, 2, before)
            for _ in range(second if again is not None else 0):
                assert again is not None
                most = min(len(again), self.source.choice([40, 120, 1 << 30]))
                kept = copy.deepcopy(promises)
                self.check(self.cut(again, before, kept, self.source.randint(0, most)), kept)
            shutil.rmtree(before)

    def _choose(self, root: Path) -> None:
        """Of a log that a cut left in both directories, in the middle of a move, one has to go."""
        for key in map(str, KEYS):
            homes = [root / home / key for home in ROOTS if (root / home / key).is_dir()]
            if len(homes) == 2:
                shutil.rmtree(self.source.choice(homes))


@pytest.mark.parametrize("seed", range(3))
def test_a_start_after_a_power_cut(box: Box, memory: Path, seed: int) -> None:
    ManagedCuts(box, memory, seed).cut_twice(1, 1)


@pytest.mark.judge
@pytest.mark.parametrize("seed", rounds(8))
def test_a_start_after_any_power_cut(box: Box, memory: Path, seed: int) -> None:
    ManagedCuts(box, memory, 1000 + seed).cut_twice(4, 4)
