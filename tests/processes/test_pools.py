"""Logs that are handed to the processes of a pool: by fork, by forkserver, and by spawn."""

from __future__ import annotations

import multiprocessing
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.errors import ForkedProcessError
from seglog.log.scheduler import Scheduler

METHODS = ["fork", "forkserver", "spawn"]
VALUES = [b"%d" % number for number in range(500)]

_log: Any = None


def read_all(log: seglog.PartitionLog) -> list[bytes]:
    return [value for batch in log.to_arrow(columns=["value"])
            for value in batch.to_pylists()["value"]]


def append_global(value: bytes) -> int:
    return int(_log.append(value))


def pool(method: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads, 3.12 and later
        return multiprocessing.get_context(method).Pool(2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with seglog.open(tmp_path / "t-0", config={"internal.segment.bytes": 4000},
                     batch_bytes=500) as log:
        log.append_many(VALUES)
        log.delete_before(10)
    return tmp_path / "t-0"


@pytest.mark.parametrize("method", METHODS)
def test_a_partition_log_goes_to_any_process(path: Path, method: str) -> None:
    logs = [seglog.PartitionLog.open(path), seglog.PartitionLog.open(path, max_open_segments=2),
            seglog.open_data_dir(path.parent).log("t", 0),
            seglog.PartitionLog.open(path, log_start_offset=100)]
    with pool(method) as workers:
        found = workers.map(read_all, logs)
    assert found == [VALUES[10:], VALUES[10:], VALUES[10:], VALUES[100:]]


def test_a_pickle_opens_the_directory_as_it_is_then(path: Path) -> None:
    log = seglog.PartitionLog.open(path, max_open_segments=3)
    pickled = pickle.dumps(log)
    with seglog.open(path) as writer:
        writer.append(b"later")
    copy = pickle.loads(pickled)
    assert copy.log_end_offset == log.log_end_offset + 1
    assert copy._handles.files_max == log._handles.files_max
    path.rename(path.with_name("gone-0"))
    with pytest.raises(seglog.KafkaStorageError, match="t-0"):
        pickle.loads(pickled)


def test_a_pool_that_forks_refuses_to_append(tmp_path: Path) -> None:
    global _log
    with seglog.open(tmp_path / "t-0") as _log:
        _log.append(b"1")
        with pool("fork") as workers, pytest.raises(ForkedProcessError, match="after the fork"):
            workers.map(append_global, [b"lost", b"lost too"])
        assert _log.append(b"2") == 1
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_what_cannot_be_pickled_says_so_in_one_sentence(tmp_path: Path) -> None:
    with (seglog.open(tmp_path / "d" / "t-0") as log, seglog.LogManager(tmp_path / "m") as manager,
          seglog.open_data_dir(tmp_path / "d") as data):
        log.append(b"1")
        reader = seglog.PartitionLog.open(tmp_path / "d" / "t-0")
        for one in (log, log.log, manager, Scheduler(), log.follow(0), log.follow_async(0), data,
                    reader.to_arrow(), log.to_arrow()):
            with pytest.raises(TypeError) as refused:
                pickle.dumps(one)
            assert type(one).__name__ in str(refused.value)
            assert "other process" in str(refused.value)
