"""Logs in HDFS: a real name node and data nodes from Maven, with hdfs-native as the client."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from seglog import PartitionLog
from seglog.errors import KafkaStorageError
from tests.objects.hdfs import LOGS, put

pytestmark = pytest.mark.judge


def rows(log: PartitionLog) -> list[dict[str, list[Any]]]:
    return [columns.to_pylists() for columns in log.to_arrow()]


@pytest.mark.parametrize("name", LOGS)
def test_logs_read_as_from_the_disk(hdfs: str, golden: Path, name: str) -> None:
    local = PartitionLog.open(golden / "real" / "clean" / name)
    log = PartitionLog.open(f"{hdfs}/data/{name}")
    assert rows(log) == rows(local)
    assert log.log_end_offset == local.log_end_offset > 0
    assert rows(pickle.loads(pickle.dumps(log))) == rows(local)
    [first] = rows(local)[0]["offset"][:1]
    assert log.offset_for_timestamp(0) == local.offset_for_timestamp(0)
    assert log.log_start_offset == local.log_start_offset == first


def test_a_file_of_many_blocks(hdfs: str, tmp_path: Path) -> None:
    import seglog

    with seglog.open(tmp_path / "data" / "big-0") as log:
        for number in range(40):
            log.append(number.to_bytes(2, "big") * 20_000)
    for file in (tmp_path / "data" / "big-0").iterdir():
        put(hdfs, f"/data/big-0/{file.name}", file.read_bytes())
    assert rows(PartitionLog.open(f"{hdfs}/data/big-0")) == rows(
        PartitionLog.open(tmp_path / "data" / "big-0"))


def test_what_is_not_there_is_said(hdfs: str) -> None:
    with pytest.raises(KafkaStorageError, match="no object below this URL"):
        PartitionLog.open(f"{hdfs}/data/none-0")


def test_a_name_node_that_does_not_answer_is_not_waited_for(hdfs: str) -> None:
    began = time.monotonic()
    with pytest.raises(KafkaStorageError) as caught:
        PartitionLog.open("hdfs://127.0.0.1:1/data/txn-0", storage_options={
            "max_retries": "1", "retry_timeout_seconds": "5"})
    assert caught.value.code == "object_read"
    assert time.monotonic() - began < 60


def test_a_file_that_is_replaced_by_one_as_large(hdfs: str, golden: Path) -> None:
    """The modification time shows the change."""
    source = golden / "real" / "clean" / "txn-0"
    for file in sorted(source.iterdir()):
        put(hdfs, f"/data/swapped-0/{file.name}", file.read_bytes())
    log = PartitionLog.open(f"{hdfs}/data/swapped-0")
    for file in sorted(source.glob("*.log")):
        put(hdfs, f"/data/swapped-0/{file.name}", file.read_bytes())
    with pytest.raises(KafkaStorageError, match="the object changed while it was read") as caught:
        rows(log)
    assert caught.value.code == "object_changed"
    log.refresh()
    assert rows(log) == rows(PartitionLog.open(source))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_is_forked_beside_a_client(hdfs: str) -> None:
    """fsspec drops its file systems in the child, and the end of a client would wait there for
    threads that only the parent has."""
    PartitionLog.open(f"{hdfs}/data/{LOGS[0]}").close()
    gc.collect()
    child = os.fork()
    if child == 0:
        os._exit(7)
    end = time.monotonic() + 120
    while (found := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child did not come out of the fork")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(found[1]) == 7
