"""Every operation of a log and of a manager where files fail: Kafka's storage exception and no
other, the directory offline, the others at work, and nothing lost that was acknowledged."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from seglog.errors import DuplicatePartitionError
from seglog.log.scheduler import MockTime
from seglog.manager.manager import LogManager
from seglog.model import TopicPartition
from tests.crash.check import recover
from tests.crash.promises import FILE, promised
from tests.crash.writer import NOW, attempt
from tests.faults.box import CHANGES, FULL_DISK, IO, QUESTIONS, Box, points
from tests.faults.operations import SMALL, payload
from tests.support.effort import quick_each

KINDS = [*CHANGES.split(","), *QUESTIONS.split(",")]
ERRORS = {kind: (IO, FULL_DISK, errno.EROFS) if kind in CHANGES.split(",") else (IO,)
          for kind in KINDS}
#: What the operations of a log say that is no fault of its files.
ALWAYS = {"no segment": "IllegalArgumentException"}


@pytest.mark.parametrize("kind", quick_each(KINDS, 2))
def test_the_operations_of_a_log(box: Box, tmp_path: Path, kind: str) -> None:
    def run(name: str, **faults: object) -> tuple[Path, dict[str, object]]:
        root = tmp_path / name
        (root / "t-0").mkdir(parents=True)
        answer = box.run("operate_log", under=root / "t-0", root=str(root), seed=3,
                         faults={"calls": kind, **faults})
        return root, answer

    count = run("undisturbed")[1]["calls"]
    assert isinstance(count, int)
    for number, point in enumerate(points(count, 12)):
        what = ERRORS[kind][number % len(ERRORS[kind])]
        root, answer = run(f"{point}", at=point, sticky=1, action=what)
        result = answer["result"]
        assert isinstance(result, dict)
        where = f"{kind} refused with {what} from {point} of {count} on: {result}"
        raised = {name: told for name, told in result["told"].items()
                  if told not in ("done", ALWAYS.get(name))}
        assert set(raised.values()) <= {"KafkaStorageException"}, where
        assert result["offline"] >= bool(raised), where
        assert result["held"] == [], where
        promises = promised((root / FILE).read_bytes())
        recover(root, 3, promises, random.Random(point), everything=True)


@pytest.mark.parametrize("kind", quick_each(KINDS, 2))
def test_the_operations_of_a_manager(box: Box, tmp_path: Path, kind: str) -> None:
    def run(name: str, **faults: object) -> tuple[list[Path], dict[str, object]]:
        roots = [tmp_path / name / "first", tmp_path / name / "second"]
        answer = box.run("operate_manager", under=roots[0], roots=list(map(str, roots)),
                         faults={"calls": kind, **faults})
        return roots, answer

    roots, answer = run("undisturbed")
    count, result = answer["calls"], answer["result"]
    assert isinstance(count, int) and isinstance(result, dict)
    assert set(result["told"].values()) == {"done"} and result["offline"] == [], result
    assert result["held"] == []
    acknowledged(roots, result["flushed"])
    for number, point in enumerate(points(count, 4)):
        what = ERRORS[kind][number % len(ERRORS[kind])]
        roots, answer = run(f"{point}", at=point, sticky=1, action=what)
        result = answer["result"]
        assert isinstance(result, dict)
        where = f"{kind} refused with {what} from {point} of {count} on: {result}"
        raised = set(result["told"].values()) - {"done"}
        assert raised <= {"KafkaStorageException"}, where
        assert result["told"]["elsewhere"] == result["told"]["shutdown"] == "done", where
        assert result["offline"] in ([], [str(roots[0])]), where
        assert result["offline"] or not raised, where
        assert result["held"] == [], where
        acknowledged(roots, result["flushed"])


def acknowledged(roots: list[Path], flushed: dict[str, int]) -> None:
    """An undisturbed start has all flushed records and works."""
    time = MockTime(0, NOW)
    try:
        with LogManager(roots, scheduler=time.scheduler, time=time, log_config=SMALL) as manager:
            assert manager.offline_log_dirs == []
            for name, end in flushed.items():
                log = manager.get_log(TopicPartition(name.rpartition("-")[0], 0))
                assert log is not None and log.log_end_offset >= end, name
                if log.log_start_offset < end:
                    found = log.read(end - 1, 1, "log_end", True)
                    assert bytes(found.records[61:]), name
                assert attempt(lambda log=log: log.append_as_leader(payload(0), 0)) == "done"
    except DuplicatePartitionError as error:  # between the two renames of a move, as Kafka's
        assert "moved" in str(error)
