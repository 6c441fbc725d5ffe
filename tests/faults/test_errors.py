"""What a load does when the file system refuses: one typed error, nothing lost, and a later load
arrives where one that nothing disturbed does."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.box import CHANGES, DENIED, FULL_DISK, IO, QUESTIONS, Box, points, snapshot
from tests.faults.directories import Damaged, names
from tests.faults.test_kill import End, end_of
from tests.support.effort import quick_each

# A refusal of a single call, and of every call from one on: a disk that is going, one that is gone.
ONCE, FOR_GOOD = 0, 1


class Refusals:
    """Loads of one directory, which has no clean shutdown marker, with calls that fail."""

    def __init__(self, box: Box, case: Damaged, root: Path) -> None:
        self.box, self.case, self.root = box, case, root
        self.make()
        [self.partition] = [path for path in root.iterdir() if path.is_dir()]
        self.load()
        self.expected = self.load_to_end()

    def make(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.case.make(self.root)
        (self.root / ".kafka_cleanshutdown").unlink(missing_ok=True)

    def load(self, **faults: Any) -> dict[str, Any]:
        return self.box.run("load", under=self.partition, faults=faults, root=str(self.root),
                            config=self.case.config)

    def load_to_end(self) -> End:
        """A fresh load without faults, after whatever was done before."""
        return end_of(self.load(), self.root)

    def count(self, calls: str) -> int:
        """How often a load of the fresh directory makes such calls."""
        self.make()
        count: int = self.load(calls=calls)["calls"]
        return count

    def refuse(self, calls: str, point: int, number: int, sticky: int) -> dict[str, Any]:
        """A load of the fresh directory in which a call fails, and what must hold after it."""
        self.make()
        answer = self.load(calls=calls, at=point, action=number, sticky=sticky)
        where = f"{calls} refused at {point} with {number}: {answer}"
        end = end_of(answer, self.root)
        if end[:2] != self.expected[:2]:
            # Not what an undisturbed load says: then it says that the file system refused.
            assert answer.get("error") == "KafkaStorageError", where
            assert answer["errno"] == number, where
            assert str(answer["file"]).startswith(str(self.partition)), where
        else:
            # A call that the load can do without. Nothing may be otherwise for that.
            assert end[2] == self.expected[2], where
        assert self.load_to_end() == self.expected, where
        return answer


@pytest.fixture
def refusals(box: Box, damaged: dict[str, Damaged], tmp_path: Path, name: str) -> Refusals:
    return Refusals(box, damaged[name], tmp_path / "data")


@pytest.mark.parametrize("name", quick_each(names(), 8))
def test_a_read_that_fails_cuts_nothing(refusals: Refusals) -> None:
    """EIO in a read is an error that names the file and the byte; never a reason to cut."""
    errors = 0
    for point in points(refusals.count("read"), 3):
        answer = refusals.refuse("read", point, IO, FOR_GOOD)
        if "error" in answer and answer["error"] == "KafkaStorageError":
            errors += 1
            assert isinstance(answer["position"], int), answer
    assert errors or refusals.expected[0]


@pytest.mark.parametrize("name", quick_each(names()[::3], 8))
def test_a_question_that_fails_cuts_nothing(refusals: Refusals) -> None:
    """EIO where a directory is listed, a file looked for or opened: none counts as missing."""
    for calls in QUESTIONS.split(","):
        count = refusals.count(calls)
        assert count
        for point in points(count, 2):
            refusals.refuse(calls, point, IO, ONCE)


@pytest.mark.parametrize("name", quick_each(names(), 8))
def test_a_change_that_fails_loses_nothing(refusals: Refusals) -> None:
    """A full disk, a dying one, one that may not be written to."""
    count = refusals.count(CHANGES)
    assert count
    for number, point in enumerate(points(count, 3)):
        refusals.refuse(CHANGES, point, (FULL_DISK, IO, DENIED)[number % 3], number % 2)


@pytest.mark.parametrize("level", ["kafka", "full", "verify"])
@pytest.mark.parametrize("name", ["000", "3-crash_in_split_of_overflow"])
def test_a_log_that_cannot_be_read_hides_no_other(
        box: Box, damaged: dict[str, Damaged], tmp_path: Path, name: str, level: str) -> None:
    """A load that only reads reports what it could not read. (The error of an index or a producer
    snapshot ended the load of the whole directory.)"""
    root = tmp_path / "data"
    damaged[name].make(root)
    [bad] = [path for path in root.iterdir() if path.is_dir()]
    shutil.copytree(bad, root / "other-0")

    def check(**faults: Any) -> dict[str, Any]:
        return box.run("check", under=bad, faults=faults, root=str(root), level=level)

    for calls in QUESTIONS.split(","):
        sound = check(calls=calls)
        for point in points(sound["calls"], 3):
            answer = check(calls=calls, at=point, action=IO, sticky=FOR_GOOD)
            assert "result" in answer, (calls, point, answer)
            assert answer["result"]["ends"]["other-0"] == sound["result"]["ends"]["other-0"]


@pytest.mark.parametrize("name", ["000", "048", "3-crash_in_split_of_overflow"])
def test_reads_and_writes_may_be_short(refusals: Refusals) -> None:
    """Half of the bytes in each call, as a signal or a network file system may give them."""
    refusals.make()
    answer = refusals.load(calls="read,write", at=1, action="short", sticky=1)
    refusals.load()  # as the expectation: two loads
    assert end_of(answer, refusals.root)[:3] == refusals.expected[:3]
    assert refusals.load_to_end() == refusals.expected


@pytest.mark.parametrize("name", [
    "log-start-offset-checkpoint", "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint", "cleaner-offset-checkpoint", "meta.properties"])
def test_a_recovery_replaces_no_file_that_cannot_be_read(
        box: Box, golden_copy: Callable[[str], Path], name: str) -> None:
    """A checkpoint that failed to be read counted as empty and was replaced: the log starts were
    lost. (CheckpointFileWithFailureHandler.read: the directory goes offline.)"""
    root = golden_copy("real/unclean")
    (root / "log-start-offset-checkpoint").write_text("0\n1\nplain-none 0 3\n")
    (root / "cleaner-offset-checkpoint").write_text("0\n0\n")
    before = snapshot(root)

    def recover(**faults: Any) -> dict[str, Any]:
        return box.run("command", under=root, faults={"name": name, "calls": "read", **faults},
                       arguments=["load", "--recover", str(root)])

    assert recover(at=1, action=IO, sticky=FOR_GOOD)["result"] == {"status": 2}
    assert snapshot(root) == before
    for point in range(1, 8):  # a disk that fails now and then
        answer = recover(at=point, action=IO, sticky=ONCE)
        starts = (root / "log-start-offset-checkpoint").read_text()
        assert "plain-none 0 3\n" in starts, (point, answer)
        if answer["calls"] < point:
            break


def test_a_listing_shows_no_end_that_was_not_read(box: Box, golden_copy: Callable[[str], Path]
                                                  ) -> None:
    """A failed read is no end of a segment: `ls` printed the offset up to which it came."""
    root, name = golden_copy("real/clean"), "00000000000000000000.log"  # of several segments
    command = ["ls", "--segments", "-t", "txn", str(root)]
    assert box.run("command", under=root, arguments=command)["result"] == {"status": 0}
    for sticky in (ONCE, FOR_GOOD):
        answer = box.run("command", under=root, arguments=command, faults={
            "name": name, "calls": "read", "at": 1, "action": IO, "sticky": sticky})
        assert answer["calls"] and answer["result"] == {"status": int(sticky == FOR_GOOD)}


def test_a_lookup_passes_over_no_segment_that_was_not_read(
        box: Box, golden_copy: Callable[[str], Path]) -> None:
    """A failed read said that the segment has no such timestamp, and the next one was asked."""
    path = golden_copy("real/clean") / "txn-0"
    (path / "00000000000000000000.timeindex").unlink()
    command = ["cat", "-e", "-q", "-o", "s@1", str(path)]
    assert box.run("command", under=path, arguments=command)["result"] == {"status": 0}
    answer = box.run("command", under=path, arguments=command, faults={
        "name": "00000000000000000000.log", "calls": "read", "at": 1, "action": IO,
        "sticky": FOR_GOOD})
    assert answer["result"] == {"status": 2}
