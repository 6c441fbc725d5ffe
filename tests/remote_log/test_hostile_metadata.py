"""A metadata topic with damage or with records that no broker writes: its reader continues, and
says what it left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.errors import (
    OffsetOutOfRangeError, RemoteResourceNotFoundError, RemoteStorageError,
)
from seglog.model import TopicPartition
from seglog.tiered import (
    RemoteLogSegmentState, RemotePartitionDeleteMetadata, RemotePartitionDeleteState, serialize,
)
from seglog.tiered.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from tests.remote_log.support import NOW_MS, ORDERS, segment, update
from tests.remote_log.test_topic_based_manager import PARTITIONER, Stepped
from tests.remote_log.tiering import ID_KEY, Tiering

NUMBER = PARTITIONER.metadata_partition(ORDERS)
#: Of each record's batch.
BATCH_BYTES = 175


class Damaged(Stepped):
    """Thirty segments in the topic, five records a file, one of whose files `damage` changes."""

    def __init__(self, path: Path, damage: Callable[[Path], object], base: int) -> None:
        first = Stepped(path)
        first.logs.update_topic_config(REMOTE_LOG_METADATA_TOPIC, {
            "retention.ms": -1, "internal.segment.bytes": 5 * BATCH_BYTES})
        for start in range(0, 300, 10):
            first.write(ORDERS, start)
        first.logs.shutdown()
        file = path / f"{REMOTE_LOG_METADATA_TOPIC}-{NUMBER}" / f"{base:020d}.log"
        assert file.stat().st_size == 5 * BATCH_BYTES
        damage(file)
        super().__init__(path)
        self.task.add_assignments([ORDERS])
        for _ in range(20):  # one reads a file at most
            self.task.step()


def changed(position: int, content: bytes) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        found = bytearray(file.read_bytes())
        found[position:position + len(content)] = content
        file.write_bytes(found)

    return change


@pytest.mark.parametrize("base, damage, lost", [
    (10, changed(2 * BATCH_BYTES + 100, b"\xff"), [(12, 13)]),
    (10, changed(0, bytes(5 * BATCH_BYTES)), [(10, 15)]),
    (10, changed(BATCH_BYTES + 8, b"\xff\xff\xff\xff"), [(11, 12)]),
    (10, changed(BATCH_BYTES, b"\x10"), [(11, 12)]),
    (10, changed(BATCH_BYTES + 7, b"\x03"), [(11, 12)]),
    (10, changed(BATCH_BYTES + 7, b"\x0d"), [(11, 12)]),
    (10, lambda file: file.unlink(), [(10, 15)]),
    (10, lambda file: file.write_bytes(file.read_bytes()[:2 * BATCH_BYTES - 1]), [(11, 15)]),
    (25, changed(4 * BATCH_BYTES + 100, b"\xff"), [(29, 30)]),
], ids=["a value", "zeros", "a length", "an offset", "a lower offset",
        "a higher offset", "no file", "a cut file",
        "the last value"])
def test_damage_is_left_out_and_named(tmp_path: Path, base: int, damage: Callable[[Path], object],
                                      lost: list[tuple[int, int]]) -> None:
    made = Damaged(tmp_path / "data", damage, base)
    try:
        assert made.task.failure is None and made.store.is_initialized(ORDERS)
        assert [(one.offset, one.next_offset) for one in made.task.skipped] == lost
        gone = {offset for first, end in lost for offset in range(first, end)}
        assert sorted(made.starts(ORDERS)) == [
            10 * offset for offset in range(30) if offset not in gone]
        read = made.task.wait_until_consumed(NUMBER, made.write(ORDERS, 1000), 5000)
        made.task.step()
        assert read.done() and 1000 in made.starts(ORDERS)
    finally:
        made.task.close()
        made.logs.shutdown()


@pytest.mark.parametrize("size", [100, BATCH_BYTES + 100])
def test_a_write_after_a_torn_batch(tmp_path: Path, size: int) -> None:
    """A log that was closed cleanly is not checked: it continues after a torn batch. The write is
    read, and the damage is named."""
    made = Damaged(tmp_path / "data", lambda file: file.write_bytes(file.read_bytes()[:size]), 25)
    try:
        read = made.task.wait_until_consumed(NUMBER, made.write(ORDERS, 1000), 5000)
        made.task.step()
        assert read.exception(0) is None
        assert made.task.skipped and {one.offset for one in made.task.skipped} <= {25, 26, 27}
        assert made.task.failure is None and 1000 in made.starts(ORDERS)
    finally:
        made.task.close()
        made.logs.shutdown()


def test_a_write_that_cannot_be_read_back(tmp_path: Path) -> None:
    """Its batch is damaged before it is read."""
    made = Damaged(tmp_path / "data", lambda _: None, 25)
    try:
        offset, log = made.write(ORDERS, 1000), made.topic._log(NUMBER)
        path = Path(log.path, f"{log.segments.base_offsets[-1]:020d}.log")
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        read = made.task.wait_until_consumed(NUMBER, offset, 5000)
        made.task.step()
        assert isinstance(read.exception(0), RemoteStorageError)
        assert made.task.failure is None and 1000 not in made.starts(ORDERS)
    finally:
        made.task.close()
        made.logs.shutdown()


@pytest.mark.parametrize("is_known", [False, True])
def test_events_after_the_deletion_of_their_partition(tmp_path: Path, is_known: bool) -> None:
    made = Stepped(tmp_path / "data")
    try:
        if is_known:
            made.task.add_assignments([ORDERS])
            made.task.step()
        made.topic.publish(NUMBER, serialize(RemotePartitionDeleteMetadata(
            ORDERS, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED, NOW_MS, 1)))
        made.write(ORDERS, 0)
        made.task.add_assignments([ORDERS])
        for _ in range(3):
            made.task.step()
        assert made.task.failure is None
        assert [one.offset for one in made.task.skipped] == [1]
        with pytest.raises(RemoteResourceNotFoundError):
            made.starts(ORDERS)
    finally:
        made.task.close()
        made.logs.shutdown()


@pytest.mark.parametrize("is_empty", [False, True])
def test_epochs_that_begin_after_the_end_of_their_segment(tmp_path: Path, is_empty: bool) -> None:
    """By them an epoch reaches beyond the segment: a search for what follows finds it again."""
    made = Tiering(tmp_path, topic={"local.retention.bytes": 1, "retention.bytes": 10**9})
    try:
        made.append(40)
        made.copy()
        first = made.segments()[0]
        log = made.manager.get_log(TopicPartition(
            REMOTE_LOG_METADATA_TOPIC, PARTITIONER.metadata_partition(ID_KEY)))
        assert log is not None
        end = first.end_offset
        claimed = segment(first.start_offset, end, key=ID_KEY, number=7,
                          epochs={0: first.start_offset, 5: 1 << 40})._replace(
                              txn_idx_empty=is_empty, segment_size_in_bytes=10**6)
        for one in made.segments():  # so that the epoch finds the claimed one alone
            made.tiering.metadata.update_remote_log_segment_metadata(
                update(one, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)).result(60)
        made.tiering.metadata.add_remote_log_segment_metadata(claimed).result(60)
        made.tiering.metadata.update_remote_log_segment_metadata(update(claimed)).result(60)
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            source = made.storage.path(first, suffix)
            if source.exists():
                made.storage.path(claimed, suffix).write_bytes(source.read_bytes())
        reads = made.tiering._reads
        with pytest.raises(OffsetOutOfRangeError):
            reads.read(ID_KEY, made.log, end + 1, 1000)
        assert reads.read(ID_KEY, made.log, end, 1000, committed=True).aborted_transactions == []
        # A log without the offsets that were announced.
        made.storage.path(claimed, ".log").write_bytes(b"")
        assert reads.read(ID_KEY, made.log, end, 1000).records == b""
    finally:
        made.close()
