"""RemoteStorageManagers: what they write is read by others, and what others wrote by them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from seglog.errors import (
    ConfigError, IllegalArgumentError, IllegalStateError, RemoteResourceNotFoundError,
    RemoteStorageError,
)
from seglog.storage.partition_log import PartitionLog
from seglog.tiered import RemoteLogSegmentMetadata, open_bucket, read_metadata_topic
from seglog.tiered.aiven_writer import AivenWriter, encode_chunk_sizes
from seglog.tiered.plain_layout import LOCAL_TIERED_STORAGE
from seglog.tiered.remote_records import id_text
from seglog.tiered.remote_storage import IndexType, LogSegmentData, RemoteStorageManager
from seglog.tiered.remote_tree import RemoteTree
from seglog.tiered.storage_manager import LayoutStorageManager
from tests.tiered.conftest import Tiered, read


def announced(tiered: Tiered, name: str) -> list[RemoteLogSegmentMetadata]:
    """What the broker's metadata says of a partition."""
    store = read_metadata_topic(tiered.data).store
    partition = next(one for one in store.partitions if f"{one.topic}-{one.partition}" == name)
    return sorted((one for one in store.list_all_remote_log_segments(partition)
                   if one.state == 1), key=lambda one: one.start_offset)


def data_of(tiered: Tiered, metadata: RemoteLogSegmentMetadata) -> LogSegmentData:
    """The files of a segment, as Kafka's LocalTieredStorage holds them."""
    log, = tiered.remote.glob(
        f"*/*/{metadata.start_offset:020}-{id_text(metadata.remote_log_segment_id.id)}.log")
    txn = log.with_suffix(".txnindex")
    return LogSegmentData(
        str(log), str(log.with_suffix(".index")), str(log.with_suffix(".timeindex")),
        str(txn) if txn.exists() else None, str(log.with_suffix(".snapshot")),
        log.with_suffix(".leader_epoch_checkpoint").read_bytes())


def check(manager: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
          ) -> None:
    """Everything comes back."""
    log = Path(data.log_segment).read_bytes()
    assert manager.fetch_log_segment(metadata, 0).read() == log
    assert manager.fetch_log_segment(metadata, 100, 1999).read() == log[100:2000]
    assert manager.fetch_log_segment(metadata, len(log) - 1, 1 << 40).read() == log[-1:]
    for kind, path in ((IndexType.OFFSET, data.offset_index),
                       (IndexType.TIMESTAMP, data.time_index),
                       (IndexType.PRODUCER_SNAPSHOT, data.producer_snapshot_index)):
        assert manager.fetch_index(metadata, kind).read() == Path(path).read_bytes()
    assert manager.fetch_index(
        metadata, IndexType.LEADER_EPOCH).read() == data.leader_epoch_index
    if data.transaction_index is None:
        with pytest.raises(RemoteResourceNotFoundError, match="TRANSACTION"):
            manager.fetch_index(metadata, IndexType.TRANSACTION)
    else:
        assert manager.fetch_index(metadata, IndexType.TRANSACTION).read() == Path(
            data.transaction_index).read_bytes()


def test_local_tiered_storage_is_written_as_kafka_writes_it(tiered: Tiered, tmp_path: Path) -> None:
    manager = LayoutStorageManager(RemoteTree(tmp_path / "kafka-tiered-storage"),
                                   LOCAL_TIERED_STORAGE)
    for name in ("t-txn-0", "t-gzip-0"):
        for metadata in announced(tiered, name):
            data = data_of(tiered, metadata)
            for _ in range(2):  # a repetition is harmless
                assert manager.copy_log_segment_data(metadata, data) is None
            check(manager, metadata, data)
        written = {path.name: path.read_bytes() for path in tmp_path.glob(f"*/{name}-*/*")}
        assert written
        assert all((tiered.objects(name)[0].parent / file).read_bytes() == content
                   for file, content in written.items())
    log = PartitionLog.open(tiered.data / "t-gzip-0", remote=tmp_path)
    assert read(log) == tiered.rows("t-gzip-0", "read_uncommitted")
    for metadata in announced(tiered, "t-gzip-0"):
        manager.delete_log_segment_data(metadata)
        manager.delete_log_segment_data(metadata)
        with pytest.raises(RemoteResourceNotFoundError):
            manager.fetch_log_segment(metadata, 0)
        with pytest.raises(RemoteResourceNotFoundError):
            manager.fetch_index(metadata, IndexType.OFFSET)
    assert not list(tmp_path.glob("*/t-gzip-0-*/*"))


def test_bad_arguments_and_failed_copies(tiered: Tiered, tmp_path: Path) -> None:
    manager = LayoutStorageManager(RemoteTree(tmp_path), LOCAL_TIERED_STORAGE)
    metadata = announced(tiered, "t-gzip-0")[0]
    data = data_of(tiered, metadata)
    with pytest.raises(RemoteStorageError, match="not copied"):
        manager.copy_log_segment_data(metadata, data.__class__(
            str(tmp_path / "absent"), data.offset_index, data.time_index, None,
            data.producer_snapshot_index, b""))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    for start, end in ((-1, None), (5, 4)):
        with pytest.raises(IllegalArgumentError, match="osition"):
            manager.fetch_log_segment(metadata, start, end)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("encrypt", [False, True])
@pytest.mark.parametrize("chunk_size", [17, 4 << 20])
def test_aivens_layout_is_read_by_a_reader_made_from_the_description(
        tiered: Tiered, tmp_path: Path, compress: bool, encrypt: bool, chunk_size: int) -> None:
    pytest.importorskip("cryptography")
    pytest.importorskip("Crypto")
    pytest.importorskip("pyarrow")
    from tests.tiered import aiven_by_hand as by_hand

    key, pem = by_hand.key_pair()
    layout = AivenWriter({"k": pem}, chunk_size=chunk_size, compression=compress,
                         key_id="k" if encrypt else None)
    manager = LayoutStorageManager(RemoteTree(tmp_path), layout)
    for metadata in announced(tiered, "t-txn-0"):
        data = data_of(tiered, metadata)
        for _ in range(2):
            assert manager.copy_log_segment_data(metadata, data) is None
        check(manager, metadata, data)
        path, = tmp_path.glob(f"*/*/*-{id_text(metadata.remote_log_segment_id.id)}.rsm-manifest")
        log, indexes, manifest = by_hand.read_segment(path, {"k": key})
        assert log == Path(data.log_segment).read_bytes()
        assert indexes["offset"] == Path(data.offset_index).read_bytes()
        assert indexes["leaderEpoch"] == data.leader_epoch_index
        assert manifest["remoteLogSegmentMetadata"]["endOffset"] == metadata.end_offset
    log_of = open_bucket(tmp_path, keys={"k": pem}).log("t-txn", 0)
    assert read(log_of, "read_committed") == [
        row for row in tiered.rows("t-txn-0", "read_committed")
        if row.offset < log_of.last_stable_offset]
    for metadata in announced(tiered, "t-txn-0"):
        manager.delete_log_segment_data(metadata)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_chunk_sizes_and_an_empty_log(tiered: Tiered, tmp_path: Path) -> None:
    for sizes, text in (([7], "0000000100000007"),
                        ([100, 101, 350, 7], "00000004000000640100 01fa00000007"),
                        ([100, 1000, 5], "0000000300000064020000038400000005")):
        assert encode_chunk_sizes(sizes).hex() == text.replace(" ", "")
    with pytest.raises(IllegalArgumentError, match="chunk_size"):
        AivenWriter(chunk_size=0)
    metadata = announced(tiered, "t-gzip-0")[0]
    data = data_of(tiered, metadata)
    empty = tmp_path / "empty"
    empty.touch()
    data = LogSegmentData(str(empty), str(empty), str(empty), None, str(empty), b"")
    layout = AivenWriter(compression=True)
    manager = LayoutStorageManager(RemoteTree(tmp_path / "tier"), layout)
    manager.copy_log_segment_data(metadata, data)
    manifest, = (tmp_path / "tier").glob("*/*/*.rsm-manifest")
    assert '"originalFileSize": 0, "transformedChunkSize": 0, "finalTransformedChunkSize": 0' in \
        manifest.read_text()
    shutil.rmtree(tmp_path / "tier")


def test_settings(tiered: Tiered, tmp_path: Path) -> None:
    metadata = announced(tiered, "t-gzip-0")[0]
    manager = LayoutStorageManager()
    with pytest.raises(IllegalStateError, match="not configured"):
        manager.delete_log_segment_data(metadata)
    for wrong in ({}, {"dir": ""}, {"url": str(tmp_path), "layout": "pinterest"},
                  {"url": str(tmp_path), "layout": "aiven", "chunk.size": "x"},
                  {"url": str(tmp_path), "layout": "aiven", "chunk.size": 0}):
        with pytest.raises(ConfigError, match="rsm.config"):
            LayoutStorageManager().configure(wrong)
    for number, given in enumerate(({"dir": str(tmp_path / "0")}, {"url": str(tmp_path / "1")},
                                    {"url": str(tmp_path / "2"), "layout": "aiven",
                                     "compression.enabled": True})):
        manager = LayoutStorageManager()
        manager.configure(given)
        data = data_of(tiered, metadata)
        manager.copy_log_segment_data(metadata, data)
        check(manager, metadata, data)
        manager.close()
        assert open_bucket(tmp_path / str(number)).partitions


def test_a_configured_directory_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = set()
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    LayoutStorageManager().configure({"dir": tmp_path / "tier"})
    assert (tmp_path / "tier/kafka-tiered-storage").is_dir()
    assert {tmp_path, tmp_path / "tier"} <= synced
