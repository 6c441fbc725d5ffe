"""Tiers in an object store: the same records, and nothing left in a local file."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from seglog.storage.partition_log import PartitionLog
from seglog.tiered import AivenWriter, LayoutStorageManager, RemoteTree, open_bucket
from tests.support.verbs import run
from tests.tiered.conftest import Tiered, read
from tests.tiered.test_storage_manager import announced, check, data_of

fsspec = pytest.importorskip("fsspec", reason="needs fsspec, whose memory:// is a store here")


from seglog.objects.fsspec_store import FsspecStore  # noqa: E402


@pytest.fixture
def url(tiered: Tiered) -> Iterator[str]:
    """The golden tier in a store."""
    system = fsspec.filesystem("memory")
    root = f"tier-{uuid4().hex}"
    for path in tiered.remote.rglob("*"):
        if path.is_file():
            key = f"/{root}/{path.relative_to(tiered.remote)}"
            system.makedirs(key.rpartition("/")[0], exist_ok=True)
            system.pipe_file(key, path.read_bytes())
    yield f"memory://{root}"
    system.rm(f"/{root}", recursive=True)


@pytest.mark.parametrize("name", ["t-gzip-0", "t-txn-0", "t-start-0", "t-both-0"])
def test_the_same_records(tiered: Tiered, url: str, name: str) -> None:
    log = pickle.loads(pickle.dumps(PartitionLog.open(tiered.data / name, remote=url)))
    for isolation in ("read_uncommitted", "read_committed"):
        assert read(log, isolation) == tiered.rows(name, isolation)
    topic, _, partition = name.rpartition("-")
    alone = open_bucket(url).log(topic, int(partition))
    assert read(alone) == [row for row in read(alone) if row.offset < alone.log_end_offset]
    assert alone.segments[0].files.log.startswith(url)


def test_ls_does_not_know_how_a_copy_in_a_store_was_shut_down(
        tiered: Tiered, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("t-gzip-0", "t-txn-0"):
        for path in (tiered.data / name).iterdir():
            RemoteTree(f"{url}/copy").write(f"{name}/{path.name}", path)
    code, out, _ = run(capsys, "ls", f"{url}/copy", "--json")
    told = json.loads(out)
    assert (code, len(told["partitions"])) == (0, 2)
    assert [one["clean_shutdown"] for one in told["directories"]] == [None]


def test_segments_are_written_into_a_store(tiered: Tiered, url: str) -> None:
    manager = LayoutStorageManager(RemoteTree(f"{url}/aiven"), AivenWriter(
        compression=True, chunk_size=1000))
    for metadata in announced(tiered, "t-txn-0"):
        data = data_of(tiered, metadata)
        manager.copy_log_segment_data(metadata, data)
        check(manager, metadata, data)
    log = open_bucket(f"{url}/aiven").log("t-txn", 0)
    assert read(log, "read_committed") == [
        row for row in tiered.rows("t-txn-0", "read_committed")
        if row.offset < log.last_stable_offset]
    for metadata in announced(tiered, "t-txn-0"):
        manager.delete_log_segment_data(metadata)
        manager.delete_log_segment_data(metadata)
    assert not [one for one in RemoteTree(f"{url}/aiven").list()[0]]


def test_a_large_read_is_one_request(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a copy of a segment, and a fetch, read the log."""
    content = random.Random(1).randbytes(3 << 20)
    RemoteTree(url).write("large.log", content)
    log = RemoteTree(url).files.open_log(f"{url}/large.log", None)
    asked: list[tuple[int, int]] = []
    real = FsspecStore.read

    def count(store: FsspecStore, key: str, start: int, end: int) -> Any:
        asked.append((start, end))
        return real(store, key, start, end)

    monkeypatch.setattr(FsspecStore, "read", count)
    for size in (1 << 20, 200_000):
        asked.clear()
        assert b"".join(log.read(size, at) for at in (0, size, 2 * size)) == content[:3 * size]
        assert asked == [(at, at + size) for at in (0, size, 2 * size)]
    asked.clear()
    for at in range(2 << 20, (2 << 20) + 100_000, 61):
        assert log.read(61, at) == content[at:at + 61]
    assert len(asked) == 1  # small ones share a block


def test_objects_that_change_or_vanish_meanwhile(tiered: Tiered, url: str, tmp_path: Path) -> None:
    log = open_bucket(url).log("t-gzip", 0)
    tree = RemoteTree(f"{url}/kafka-tiered-storage")
    name = tiered.objects("t-gzip-0")[2]
    key = f"{name.parent.name}/{name.name}"
    assert log.log_end_offset == 234
    tree.delete(key)
    with pytest.raises(OSError, match="no such object") as caught:
        read(log)
    assert name.name in str(caught.value)
    tree.write(key, name.read_bytes()[:-1])
    with pytest.raises(OSError, match="the object changed"):
        read(log)
