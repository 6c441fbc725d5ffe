"""The end of all offsets: no append is taken whose log could not be closed or opened again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from seglog._native.crc32c import crc32c
from seglog.config import LogConfig
from seglog.errors import IllegalArgumentError, OffsetsOutOfOrderError
from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.log.column_batches import encode_batches
from seglog.log.scheduler import MockTime
from seglog.model import LATEST_TIMESTAMP, MAX_TIMESTAMP
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.recovery.log_files import LogFiles
from seglog.storage.partition_log import PartitionLog
from seglog.storage.markers import ControlType
from tests.oracle import legacy

NOW = 1_700_000_000_000
TOP = 2**63 - 1


def open_log(path: Path, *, clean: bool = True, start: int = 0, **settings: str) -> UnifiedLog:
    clock = MockTime(current_time_ms=NOW)
    return UnifiedLog.create(path / "t-0", LogConfig.from_properties(
        {"retention.ms": "-1", **settings}), scheduler=clock.scheduler, time=clock,
        clean_shutdown=clean, log_start_offset=start)


def batch(count: int, base: int = 0, codec: str = "none", epoch: int = 0) -> bytes:
    builder = RecordBatchBuilder(base_offset=base, codec=codec, partition_leader_epoch=epoch)
    for n in range(count):
        builder.append(NOW + n, b"k", b"v%d" % n)
    return bytes(builder.build())


def shifted(data: bytes, base: int) -> bytes:
    """The batch with another base offset, which its CRC does not cover."""
    return base.to_bytes(8, "big", signed=True) + data[8:]


Append = Callable[[UnifiedLog, int], object]
APPENDS: dict[str, Append] = {
    "leader": lambda log, count: log.append_as_leader(batch(count), 0),
    "compressed": lambda log, count: log.append_as_leader(batch(count, codec="zstd"), 0),
    "each": lambda log, count: log.append_each_as_leader(batch(count), 0),
    "columns": lambda log, count: log.append_as_leader(
        encode_batches({"value": [b"v"] * count}, timestamp=NOW), 0),
    "old": lambda log, count: log.append_as_leader(b"".join(legacy.encode(
        legacy.Message(n, 1, b"k", b"v", NOW)) for n in range(count)), 0),
    "follower": lambda log, count: log.append_as_follower(
        shifted(batch(count), log.log_end_offset), 0),
}


def check_alive(log: UnifiedLog, path: Path) -> None:
    """It reads, cuts nothing, closes, and opens again, also without a marker."""
    start, end = log.log_start_offset, log.log_end_offset
    log.update_high_watermark(end)
    last = log.read(max(end - 1, start), 1000)
    assert last.fetch_offset_metadata.message_offset <= end
    latest = log.offset_for_timestamp(LATEST_TIMESTAMP)
    assert latest is not None and latest.offset == end
    log.offset_for_timestamp(MAX_TIMESTAMP)
    log.offset_for_timestamp(NOW)
    log.flush(True)
    log.take_producer_snapshot()
    log.close()
    for clean in (True, False):
        again = open_log(path, clean=clean, start=start)
        assert (again.log_start_offset, again.log_end_offset) == (start, end)
        again.close()
    with PartitionLog.open(path / "t-0", log_start_offset=start) as reader:
        assert reader.log_end_offset == end


@pytest.mark.parametrize("room", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("opened", [False, True], ids=["new", "appended"])
@pytest.mark.parametrize("how", APPENDS)
def test_appends_before_the_last_offset(tmp_path: Path, how: str, room: int, count: int,
                                        opened: bool) -> None:
    """`room` offsets are left. Kafka throws IllegalArgumentException at the same appends, but when
    it has written them (tests/kafka/test_last_offsets_in_kafka.py)."""
    log = open_log(tmp_path, **({"compression.type": "gzip"} if how == "compressed" else {}))
    log.truncate_fully_and_start_at(TOP - room - opened)
    if opened:
        log.append_as_leader(batch(1), 0)
    end = log.log_end_offset
    assert end == TOP - room
    if count <= room:
        APPENDS[how](log, count)
        assert log.log_end_offset == end + count
    else:
        files = {path.name: path.read_bytes() for path in (tmp_path / "t-0").glob("*.log")}
        # A follower's offsets that wrap do not rise.
        with pytest.raises((IllegalArgumentError, OffsetsOutOfOrderError), match="ffset"):
            APPENDS[how](log, count)
        assert log.log_end_offset == end
        assert files == {path.name: path.read_bytes()
                         for path in (tmp_path / "t-0").glob("*.log")}
    check_alive(log, tmp_path)


def test_markers_and_spans_before_the_last_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(TOP - 2)
    log.append_as_leader(bytes(_transactional()), 0)
    with pytest.raises(IllegalArgumentError) as caught:
        log.append_each_as_leader(batch(1) + batch(1), 0)
    appended = caught.value.appended
    assert appended is not None and (appended.first_offset, appended.last_offset) == (
        TOP - 1, TOP - 1)
    with pytest.raises(IllegalArgumentError):
        log.append_as_leader(end_transaction_marker(7, 0, ControlType.ABORT, timestamp=NOW), 0,
                             origin=AppendOrigin.COORDINATOR, transaction_version=0)
    check_alive(log, tmp_path)


def _transactional() -> bytes:
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0,
                                 is_transactional=True)
    builder.append(NOW, None, b"v")
    return bytes(builder.build())


@pytest.mark.parametrize("delta", [2, 2**31 - 1])
def test_a_followers_batch_whose_last_offset_wraps(tmp_path: Path, delta: int) -> None:
    log = open_log(tmp_path)
    for base in (TOP - 1, TOP):
        data = bytearray(shifted(batch(3), base))
        data[23:27] = delta.to_bytes(4, "big")  # last offset delta, which the CRC covers
        crc = crc32c(bytes(data[21:]))
        data[17:21] = crc.to_bytes(4, "big")
        with pytest.raises(seglog.errors.SeglogError):
            log.append_as_follower(bytes(data), 0)
    assert log.log_end_offset == 0
    log.append_as_follower(shifted(batch(1), 2**40), 0)  # far from the segment's base: it rolls
    log.close()
    again = open_log(tmp_path, clean=False)
    assert again.log_end_offset == 2**40 + 1
    again.close()


def test_an_end_without_room(tmp_path: Path) -> None:
    """Everything else works where no offset is left."""
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(TOP - 3)
    for _ in range(3):
        log.append_as_leader(batch(1), 0)
    assert log.roll() == TOP == log.roll()
    log.update_high_watermark(TOP)
    assert log.maybe_increment_log_start_offset(TOP - 1, StartOffsetReason.CLIENT_RECORD_DELETION)
    log.delete_old_segments()
    assert not log.truncate_to(TOP)
    assert log.read(TOP, 100).records == b""
    assert log.truncate_to(TOP - 1)
    log.append_as_leader(batch(1), 0)
    check_alive(log, tmp_path)


def test_a_forced_flush_keeps_the_recovery_point(tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's `offset + 1` overflows there (UnifiedLog.flush), so that a start after a crash
    recovers all. The records are synced all the same."""
    (tmp_path / "t-0").mkdir()
    for base in (0, TOP):
        (tmp_path / "t-0" / f"{base:020d}.log").touch()
    log, synced = open_log(tmp_path, clean=False), []
    monkeypatch.setattr(LogFiles, "flush_segment", lambda _, base: synced.append(base))
    assert log.log_end_offset == TOP
    log.flush(True)
    assert (log.recovery_point, synced) == (0, [0])
    log.flush()
    assert log.recovery_point == TOP
    monkeypatch.undo()
    log.close()


def test_an_embedded_log_without_room(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "e-0") as log:
        log.log.truncate_fully_and_start_at(TOP - 2)
        assert log.append(b"a") == TOP - 2
        for append in (lambda: log.append_many([b"b", b"c"]), lambda: log.append_columns(
                {"value": [b"b", b"c"]})):
            with pytest.raises(IllegalArgumentError):
                append()
        assert log.append(b"b") == TOP - 1
        with pytest.raises(IllegalArgumentError, match=f"{TOP} of .* beyond {TOP - 1}, the largest "
                                                       "that a record may have"):
            log.append(b"c")
    with seglog.open(tmp_path / "e-0") as log:
        assert [record.value for record in log.records()] == [b"a", b"b"]
        assert log.log_end_offset == TOP


def test_a_builder_without_room() -> None:
    builder = RecordBatchBuilder(base_offset=TOP)
    builder.append(NOW, None, b"v")
    for append in (builder.append, builder.try_append):
        with pytest.raises(IllegalArgumentError, match="Offsets must increase monotonically"):
            append(NOW, None, b"v")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base", [TOP, TOP - 1])
def test_a_log_that_holds_the_last_offset(tmp_path: Path, base: int, clean: bool) -> None:
    """Bytes that no append of ours leaves: Kafka's end of that log wraps, and its load puts all
    segments aside (LogLoader: logEndOffset smaller than logStartOffset)."""
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(TOP - 5)
    log.append_as_leader(batch(1), 0)
    log.append_as_leader(batch(TOP - base + 1), 0)
    log.close()
    path = tmp_path / "t-0" / f"{TOP - 5:020d}.log"
    data, first = path.read_bytes(), len(batch(1))
    path.write_bytes(data[:first] + shifted(data[first:], base))
    again = open_log(tmp_path, clean=clean, start=TOP - 5)
    assert (again.log_start_offset, again.log_end_offset) == (TOP - 5, TOP - 5)
    again.append_as_leader(batch(1), 0)
    again.close()
