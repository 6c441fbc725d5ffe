"""A program that does anything with a log of `seglog.open`, killed or without power after any call
of the system, and so the next one: nothing is lost that was promised, nothing is there twice, and
the files are those of a sound log. `SEGLOG_CRASH_ROUNDS=N` runs N seeds."""

from __future__ import annotations

import copy
import random
import shutil
from pathlib import Path

import pytest

from tests.crash.anything_check import LogPromises, check_anything
from tests.crash.power import PowerDisk
from tests.crash.promises import FILE
from tests.crash.rounds import rounds
from tests.crash.test_embedded_crash import make_data_dir
from tests.crash.test_power_cut import moved
from tests.faults.box import Box, Call, read_trace


class Crashes:
    """Lives of the program from the images of crashes, and crashes of these lives."""

    def __init__(self, box: Box, work: Path, seed: int) -> None:
        self.box, self.work, self.seed = box, work, seed
        self.source = random.Random(f"anything crash {seed}")

    def live(self, root: Path, generation: int, count: int, before: Path) -> list[Call]:
        """What a life changes under `root`, as if that had been `before`."""
        shutil.copytree(root, before)
        trace = self.work / "trace"
        trace.unlink(missing_ok=True)
        answer = self.box.run("write_anything", under=root, root=str(root), seed=self.seed,
                              count=count, generation=generation, faults={"trace": str(trace)})
        assert "result" in answer, answer
        return [moved(call, root, before) for call in read_trace(trace)]

    def crash(self, before: Path, calls: list[Call], promises: LogPromises, image: Path) -> bool:
        """The image of a crash after some calls. Returns whether only the process died."""
        moment, is_kill = self.source.randint(0, len(calls)), self.source.random() < .3
        disk = PowerDisk(before)
        disk.replay(calls[:moment])
        for call in calls[:moment]:
            if call.kind == "write" and call.name == FILE:
                promises.hear(call.data)
        disk.crash(image) if is_kill else disk.cut(self.source, image)
        (image / FILE).write_bytes(b"")
        return is_kill

    def check(self, image: Path, promises: LogPromises, *, everything: bool) -> None:
        one = self.work / "checked"
        shutil.copytree(image, one)
        check_anything(one, self.source, copy.deepcopy(promises), everything=everything)
        shutil.rmtree(one)

    def run(self, first: int, second: int) -> None:
        """`first` crashes of the first life, and after each of them `second` of the next one."""
        empty, root, image = self.work / "empty", self.work / "data", self.work / "image"
        make_data_dir(root)
        calls = self.live(root, 1, 50, empty)
        for _ in range(first):
            promises = LogPromises()
            is_kill = self.crash(empty, calls, promises, image)
            self.check(image, promises, everything=is_kill)
            if not is_kill:
                promises.lose_power()
            shutil.rmtree(root)
            image.rename(root)
            before = self.work / "before"
            again = self.live(root, 2, 25, before)
            for _ in range(second):
                kept = copy.deepcopy(promises)
                is_kill = self.crash(before, again, kept, image)
                self.check(image, kept, everything=is_kill)
                shutil.rmtree(image)
            shutil.rmtree(before)


@pytest.mark.parametrize("seed", rounds(24))
def test_a_program_after_any_crash(box: Box, memory: Path, seed: int) -> None:
    Crashes(box, memory, seed).run(2, 2)
