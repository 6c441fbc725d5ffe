"""Refused input: Kafka's exception by name, no byte changed, and the log still works."""

from __future__ import annotations

import os
import resource
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.errors import (
    IllegalArgumentError, InvalidRecordError, KafkaStorageError, RecordValidationError, SeglogError,
)
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.unified_log import UnifiedLog
from tests.faults.box import snapshot
from tests.log.test_appends import counted
from tests.log.test_fast_path import NOW, open_log
from tests.oracle import batch as v2
from tests.oracle import legacy
from tests.oracle.compression import compress

HOUR_MS = 3_600_000
SETTINGS = {"segment_bytes": "1048576", "message_timestamp_before_max_ms": str(HOUR_MS),
            "message_timestamp_after_max_ms": str(HOUR_MS), "internal_segment_bytes": "5000",
            "max_message_bytes": "20000"}


def batch(timestamp: int = NOW, *, epoch: int = 3, sequence: int = 2, producer: int = 7,
          size: int = 10, codec: int = 0) -> bytes:
    return v2.encode(v2.Batch(
        0, 1, [v2.Record(n, timestamp, b"k", os.urandom(size)) for n in range(2)], codec=codec,
        base_timestamp=timestamp, max_timestamp=timestamp, producer_id=producer,
        producer_epoch=epoch, base_sequence=sequence))


def damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1:]


def old(timestamp: int, *, codec: int = 0, timestamp_type: int = 0) -> bytes:
    """Messages of magic 1, which a leader converts."""
    messages = [legacy.Message(n, 1, b"k", b"v", timestamp, timestamp_type=timestamp_type)
                for n in range(2)]
    return (legacy.encode(legacy.wrap(messages, codec)) if codec
            else b"".join(map(legacy.encode, messages)))


def of_sizes(key: int, value: int) -> bytes:
    """A message of magic 1 without any byte after the sizes of its key and its value."""
    body = struct.pack(">bbqi", 1, 0, NOW, key) + struct.pack(">i", value)
    return struct.pack(">qiI", 1, len(body) + 4, zlib.crc32(body)) + body


REFUSED: dict[str, tuple[str, bytes]] = {
    "larger than a segment": ("RecordBatchTooLargeException", batch(size=3000)),
    "larger than a message may be": ("RecordTooLargeException", batch(size=12000)),
    "too old": ("RecordValidationException", batch(NOW - 2 * HOUR_MS)),
    "from the future": ("RecordValidationException", batch(NOW + 2 * HOUR_MS)),
    "too old, compressed": ("RecordValidationException", batch(NOW - 2 * HOUR_MS, codec=4)),
    "too old, before one that cannot be read": (
        "IndexOutOfBoundsException", legacy.encode(legacy.Message(
            0, 1, b"k", b"v", NOW - 2 * HOUR_MS)) + of_sizes(3, 1)),
    "too old, of magic 1": ("RecordValidationException", old(NOW - 2 * HOUR_MS)),
    "from the future, of magic 1": ("RecordValidationException", old(NOW + 2 * HOUR_MS)),
    "too old, of magic 1, compressed": (
        "RecordValidationException", old(NOW - 2 * HOUR_MS, codec=1)),
    "with the time of a log, of magic 1": (
        "RecordValidationException", old(-1, timestamp_type=1)),
    "a gap in the sequences": ("OutOfOrderSequenceException", batch(sequence=5)),
    "a sequence of before": ("OutOfOrderSequenceException", batch(sequence=1)),
    "an old epoch": ("InvalidProducerEpochException", batch(epoch=2, sequence=0)),
    "a new epoch that does not begin at 0": ("OutOfOrderSequenceException", batch(epoch=4)),
    "a wrong CRC": ("CorruptRecordException", damaged(batch(), 70)),
    "a length that no batch has": ("CorruptRecordException", b"\0" * 8 + b"\0\0\0\x05" + batch()),
}


def opened(path: Path) -> UnifiedLog:
    log = open_log(path / "t-0", **SETTINGS)
    log.append_as_leader(batch(sequence=0), 0)
    return log


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_a_batch_that_is_refused_changes_nothing(tmp_path: Path, what: str) -> None:
    name, data = REFUSED[what]
    log = opened(tmp_path)
    state = log.state()
    before = snapshot(tmp_path)  # with the index that asking for the state has made
    with pytest.raises(SeglogError) as caught:
        log.append_as_leader(data, 0)
    assert caught.value.kafka_name == name
    if isinstance(caught.value, RecordValidationError):
        assert caught.value.invalid_exception.kafka_name == "InvalidTimestampException"
    assert (snapshot(tmp_path), log.state()) == (before, state)
    assert not log.context.failures.is_any_offline
    assert log.append_as_leader(batch(), 0).first_offset == 2
    log.close()
    again = open_log(tmp_path / "t-0", **SETTINGS)
    assert again.log_end_offset == 4
    again.close()


@pytest.mark.parametrize("end", ["close", "close_handlers", "delete"])
def test_nothing_is_done_with_a_log_that_has_ended(tmp_path: Path, end: str) -> None:
    log = opened(tmp_path)
    getattr(log, end)()
    assert not log.context.scheduler.pending_tasks
    assert len(log.leader_epochs) == (end != "delete")
    before = snapshot(tmp_path)
    operations: dict[str, Any] = {
        "append": lambda: log.append_as_leader(batch(), 0),
        "follow": lambda: log.append_as_follower(batch(), 0), "roll": log.roll,
        "truncate": lambda: log.truncate_to(0), "read": lambda: log.read(0, 100),
        "look up": lambda: log.offset_for_timestamp(0), "tail": lambda: log.follow(0),
        "retain": log.delete_old_segments, "delete": log.delete,
        "place": lambda: log.convert_to_offset_metadata(0), "snap": log.take_producer_snapshot,
        "epoch": lambda: log.assign_epoch_start_offset(9, 0),
        "replicate": lambda: log.update_high_watermark(0),
        "stream": lambda: log.to_arrow(isolation="log_end"),
        "replace": lambda: log.replace_segments([], []),
        "split": lambda: log.split_overflowed_segment(0),
        "empty": lambda: log.truncate_fully_and_start_at(9)}
    if end == "close":  # nothing is lost by it, and nothing is left to do
        log.flush()
    else:
        operations |= {"flush": log.flush, "flush all": lambda: log.flush(True),
                       "flush nothing": lambda: log.flush_to(0)}
    for name, operation in operations.items():
        with pytest.raises(KafkaStorageError) as caught:
            operation()
        assert caught.value.kafka_name == "KafkaStorageException", name
    log.close()
    assert snapshot(tmp_path) == before
    assert not log.context.failures.is_any_offline
    log = open_log(tmp_path / "t-0", **SETTINGS)
    log.append_as_leader(batch(sequence=2 if end != "delete" else 0), 0)
    assert log.log_end_offset == (2 if end == "delete" else 4)
    log.close()


@pytest.mark.parametrize("append", [
    UnifiedLog.append_as_leader, UnifiedLog.append_each_as_leader, UnifiedLog.append_as_follower])
def test_an_epoch_of_more_than_32_bits(tmp_path: Path, append: Callable[..., object]) -> None:
    log = opened(tmp_path)
    for epoch in (2**31, -2**31 - 1):
        with pytest.raises(ValueError, match="leader_epoch must be between"):
            append(log, batch(), epoch)
    assert log.log_end_offset == 2
    log.close()


def test_places_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    os.symlink(tmp_path / "circle-0", tmp_path / "circle-0")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "t-0").write_bytes(b"")
    for path in ("file", "file/t-0", "circle-0/u-0", "data/t-0"):
        with pytest.raises(KafkaStorageError):
            seglog.open(tmp_path / path)
    (tmp_path / "data" / "t-0").unlink()
    with seglog.open(tmp_path / "data" / "t-0") as log:
        assert log.append(b"x") == 0


@pytest.mark.parametrize(("field", "number"), [
    ("sequence", -(1 << 31) - 1), ("sequence", 1 << 31),
    ("epoch", -(1 << 15) - 1), ("epoch", 1 << 15)])
def test_numbers_of_a_verification_have_the_width_of_javas(
        tmp_path: Path, field: str, number: int) -> None:
    fields = {"producer_id": 1, "sequence": 0, "epoch": 0, field: number}
    log = opened(tmp_path)
    with pytest.raises(IllegalArgumentError, match=field):
        log.maybe_start_transaction_verification(**fields, supports_epoch_bump=True)
    fields[field] += 1 if number < 0 else -1
    log.maybe_start_transaction_verification(**fields, supports_epoch_bump=True)
    log.close()


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("timestamp", [-1, NOW - HOUR_MS, NOW + HOUR_MS])
def test_old_messages_of_these_times_are_taken(tmp_path: Path, timestamp: int, codec: int) -> None:
    """No timestamp is not too old."""
    log = opened(tmp_path)
    end = log.log_end_offset
    log.append_as_leader(old(timestamp, codec=codec), 0)
    assert log.log_end_offset == end + 2
    log.close()


def test_messages_of_magic_0_have_no_append_time(tmp_path: Path) -> None:
    """LegacyRecord.timestampType: the attribute means nothing there. In magic 1 it is refused."""
    log = opened(tmp_path)
    end = log.log_end_offset
    log.append_as_leader(legacy.encode(legacy.Message(0, 0, b"k", b"v", timestamp_type=1)), 0)
    assert log.log_end_offset == end + 1
    with pytest.raises(RecordValidationError, match="invalid timestamp"):
        log.append_as_leader(old(-1, timestamp_type=1), 0)
    log.close()


@pytest.mark.parametrize(("codec", "shown"), [
    (0, ["DefaultRecord(offset=0, timestamp=-1, key=0 bytes, value=0 bytes)",
         "DefaultRecord(offset=1, timestamp=-1, key=1 bytes, value=2 bytes)"]),
    (1, ["PartialDefaultRecord(offset=0, timestamp=-1, key=-1 bytes, value=-1 bytes)",
         "PartialDefaultRecord(offset=1, timestamp=-1, key=1 bytes, value=2 bytes)"])])
def test_records_with_the_time_of_a_log_are_refused(
        tmp_path: Path, codec: int, shown: list[str]) -> None:
    log = opened(tmp_path)
    records = [v2.Record(0, -1, None, None), v2.Record(1, -1, b"k", b"vv")]
    with pytest.raises(RecordValidationError) as caught:
        log.append_as_leader(v2.encode(v2.Batch(0, 1, records, codec=codec, timestamp_type=1)), 0)
    assert [error.message for error in caught.value.record_errors] == [
        f"Invalid timestamp type in message {one}. Producer should not set timestamp type to "
        "LogAppendTime." for one in shown]
    log.close()


def test_messages_of_another_magic_than_their_wrapper_are_refused(tmp_path: Path) -> None:
    """LogValidator.validateRecord."""
    messages = [legacy.Message(0, 1, b"k", b"v", NOW), legacy.Message(1, 0, b"k", b"v")]
    wrapper = legacy.Message(1, 1, value=compress(1, b"".join(map(legacy.encode, messages)),
                                                  magic=1), timestamp=NOW, codec=1)
    log, stats = counted(tmp_path / "t-0")
    with pytest.raises(RecordValidationError) as caught:
        log.append_as_leader(legacy.encode(wrapper), 0)
    error, = caught.value.record_errors
    assert (error.batch_index, log.log_end_offset) == (1, 0)
    assert stats.all_topics_stats.meter("InvalidMagicNumberRecordsPerSec").count == 1
    assert error.message.endswith(
        "'s magic does not match outer magic 1 in topic partition t-0")
    assert caught.value.invalid_exception.kafka_name == "InvalidRecordException"
    log.close()


@pytest.mark.parametrize("compression", ["producer", "lz4"])
def test_a_wrong_record_before_a_broken_stream_is_refused_for_itself(
        tmp_path: Path, compression: str) -> None:
    """DefaultRecord.readFrom; the end of the stream is never read."""
    wrong = bytes([12, 0, 0, 0, 1, 1, 1])  # with -1 headers
    stream = compress(1, wrong + os.urandom(5000), magic=2)[:-100]
    log = open_log(tmp_path / "t-0", compression_type=compression)
    with pytest.raises(InvalidRecordError, match="Found invalid number of record headers -1"):
        log.append_as_leader(v2.seal(0, 0, 1, 0, NOW, NOW, -1, -1, -1, 1, stream), 0)
    log.close()


@pytest.mark.parametrize(("data", "said"), [
    (old(NOW) + batch(), "Batch magic 2 is not the same as the first batch's magic byte 1 in topic "
                         "partition t-0"),
    (batch() + old(NOW), "Compressed outer record has more than one batch")])
def test_a_batch_of_another_magic_than_the_first_is_refused(
        tmp_path: Path, data: bytes, said: str) -> None:
    """LogValidator.validateBatch; only old messages may be several."""
    log = opened(tmp_path)
    with pytest.raises(InvalidRecordError) as caught:
        log.append_as_leader(data, 0)
    assert str(caught.value) == said
    log.close()


def test_old_messages_are_read_before_any_is_converted(tmp_path: Path) -> None:
    """AbstractRecords.estimateSizeInBytesUpperBound: one without its value is refused before the
    first, whose time is wrong."""
    messages = legacy.encode(legacy.Message(0, 1, b"k", b"v", -5)) + of_sizes(3, 1)
    wrapper = legacy.Message(1, 1, value=compress(1, messages, magic=1), timestamp=NOW, codec=1)
    log = open_log(tmp_path / "t-0")
    with pytest.raises(SeglogError) as caught:
        log.append_as_leader(legacy.encode(wrapper), 0)
    assert caught.value.kafka_name == "IndexOutOfBoundsException"
    log.close()


def records(*stamped: tuple[int, bytes | None]) -> bytes:
    """A batch of records with these timestamps and keys."""
    builder = RecordBatchBuilder()
    for timestamp, key in stamped:
        builder.append(timestamp, key, b"v")
    return builder.build()


def test_records_of_wrong_times_are_told_by_their_numbers(tmp_path: Path) -> None:
    log = opened(tmp_path)
    with pytest.raises(RecordValidationError) as caught:
        log.append_as_leader(records((NOW, b"k"), (NOW - 2 * HOUR_MS, b"k"), (NOW, b"k"),
                                     (NOW - 3 * HOUR_MS, b"k")), 0)
    assert [one.batch_index for one in caught.value.record_errors] == [1, 3]
    log.close()


def test_three_records_without_keys_are_shown(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", cleanup_policy="compact")
    with pytest.raises(RecordValidationError) as caught:
        log.append_as_leader(records(*[(NOW, None)] * 5), 0)
    shown = str(caught.value.invalid_exception)
    assert len(caught.value.record_errors) == 5 and shown.count("RecordError(") == 3
    assert "batchIndex=2, " in shown and "5 record errors in total" in shown
    log.close()


def test_a_first_append_that_the_file_system_refuses_takes_its_directory_offline(
        tmp_path: Path) -> None:
    """By the fast path, before that is armed."""
    log = opened(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.size + 10, before[1]))
    try:
        with pytest.raises(KafkaStorageError, match="Error while appending records to t-0"):
            log.append_as_leader(records((NOW, b"k")), 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert log.context.failures.failed and log.log_end_offset == 2
    log.close_handlers()
