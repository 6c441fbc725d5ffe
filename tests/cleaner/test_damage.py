"""Rounds over segments that were damaged on the disk."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seglog.cleaner import Cleaner, CleanerConfig, LogCleaner, LogToClean, OffsetMap
from seglog.cleaner.dry_run import dry_run
from seglog.errors import CorruptRecordError, SeglogError
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.manager.directories import LogDirectory
from tests.cleaner.support import NOW, SLOT, append, batch, leftovers, opened, records, roll
from tests.cleaner.world import Logs
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record

_NAME = "00000000000000000000.log"


def clean(log: UnifiedLog) -> int:
    return Cleaner(offset_map=OffsetMap(1 << 16)).clean(LogToClean.of(log))[0]


def beginning_with(path: Path, raw: bytes) -> UnifiedLog:
    """A log whose first segment begins with these bytes in the place of its first batch, which a
    later one makes old."""
    log = opened(path / "t-0")
    append(log, [(b"a", b"1"), (b"b", b"1"), (b"c", None)])
    append(log, [(b"a", b"2")])
    roll(log)
    log.close()
    file = path / "t-0" / _NAME
    data = file.read_bytes()
    file.write_bytes(raw + data[12 + int.from_bytes(data[8:12], "big"):])
    log = opened(path / "t-0")
    log.update_high_watermark(log.log_end_offset)
    return log


def with_length(raw: bytes, size: int) -> bytes:
    """A batch of so many bytes, whatever its fields say."""
    return raw[:8] + struct.pack(">i", size - 12) + raw[12:size]


_DATA = batch([(b"a", b"1"), (b"b", b"1"), (b"c", None)])
_OF_TRANSACTION = batch([(b"a", b"1")], producer=7, sequence=0, transactional=True)
_MARKER = v2.encode(v2.marker(0, 7, 0, v2.COMMIT, NOW))
#: Batches of any records whose last offset is below 0, as Kafka's filter refuses them.
_NEGATIVE = {
    "kept": batch([(b"x", b"1")], base=-1),
    "with a tombstone": batch([(b"x", None)], base=-1),
    "a last offset below its base": v2.encode(Batch(
        0, -2, [Record(0, NOW, b"x", b"1")], base_timestamp=NOW, max_timestamp=NOW)),
    "a marker": v2.encode(v2.marker(-9, 7, 0, v2.COMMIT, NOW)),
}


@pytest.mark.parametrize("name", sorted(_NEGATIVE))
def test_negative_offsets_fail_the_round(tmp_path: Path, name: str) -> None:
    log = beginning_with(tmp_path, _NEGATIVE[name])
    before = (tmp_path / "t-0" / _NAME).read_bytes()
    with pytest.raises(SeglogError, match="shallowOffset undefined for maximum timestamp"
                       ) as caught:
        clean(log)
    assert caught.value.kafka_name == "IllegalArgumentException"
    assert (tmp_path / "t-0" / _NAME).read_bytes() == before and not leftovers(log)


def test_negative_offsets_without_a_time(tmp_path: Path) -> None:
    timeless = v2.encode(Batch(-1, 0, [Record(-1, -1, b"x", b"1")], base_timestamp=-1,
                               max_timestamp=-1))
    with pytest.raises(SeglogError, match="maxOffset undefined"):
        clean(beginning_with(tmp_path, timeless))


def test_a_negative_base_offset_alone_is_rewritten(tmp_path: Path) -> None:
    """Its last record has an offset that is not below 0."""
    log = beginning_with(tmp_path, batch([(b"a", b"1"), (b"b", b"1"), (b"c", None)], base=-2))
    assert clean(log) == 4
    assert [one.offset for one in records(log)] == [-1, 0, 3]


@pytest.mark.parametrize(("raw", "size", "error"), [
    (_DATA, 26, "IndexOutOfBoundsException"), (_DATA, 27, "IllegalArgumentException"),
    (_DATA, 60, "IllegalArgumentException"),
    (_OF_TRANSACTION, 50, "IndexOutOfBoundsException"),
    (_OF_TRANSACTION, 51, "IllegalArgumentException"),
    (_MARKER, 60, "IndexOutOfBoundsException")])
def test_a_batch_that_ends_inside_its_header(tmp_path: Path, raw: bytes, size: int, error: str
                                             ) -> None:
    log = beginning_with(tmp_path, with_length(raw, size))
    with pytest.raises(SeglogError) as caught:
        clean(log)
    assert caught.value.kafka_name == error
    assert not leftovers(log)


def test_an_offset_beyond_the_active_segment(tmp_path: Path) -> None:
    """The last that fits the map: the round would end there, and replace the active segment."""
    log = beginning_with(tmp_path, batch([(b"a", b"1"), (b"b", b"1")], base=100))
    append(log, [(b"new", b"1")])
    before = [path.read_bytes() for path in sorted((tmp_path / "t-0").glob("*.log"))]
    cleanable = LogToClean.of(log)
    with pytest.raises(CorruptRecordError, match="a batch has the offset 100") as caught:
        Cleaner(offset_map=OffsetMap(2 * SLOT)).clean(cleanable)
    assert (caught.value.expected, caught.value.found) == (3, 100)
    assert [path.read_bytes() for path in sorted((tmp_path / "t-0").glob("*.log"))] == before
    assert not leftovers(log)
    with pytest.raises(CorruptRecordError, match="a batch has the offset 100"):
        dry_run(cleanable, CleanerConfig(dedupe_buffer_size=2 * SLOT), NOW)


def test_more_keys_than_the_range_has_offsets(tmp_path: Path) -> None:
    """As many as fit the configured map are in it, though the range needs a smaller one."""
    rows: list[tuple[bytes | None, bytes | None]] = [(b"%d" % n, b"") for n in range(30)]
    log = beginning_with(tmp_path, batch([*rows, *rows]))
    cleanable, config = LogToClean.of(log), CleanerConfig(dedupe_buffer_size=100 * SLOT)
    found = dry_run(cleanable, config, NOW)
    channel, logs = LogDirFailureChannel(), Logs()
    logs.of[log.topic_partition] = log
    cleaner = LogCleaner(config, [LogDirectory(str(tmp_path), None, channel)], logs, channel,
                         MockTime(current_time_ms=NOW))
    stats, = cleaner.clean_now(log)
    assert stats.map_messages_read == 61 and stats.buffer_utilization == .31
    kept = [one.offset for one in records(log)]
    assert kept == [*range(4, 60), 3]  # those beyond the end of the round stay
    assert (found.keys, found.records_after, found.is_map_full) == (31, len(kept), False)
