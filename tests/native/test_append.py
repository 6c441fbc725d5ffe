"""`_native.append`: the writer of an active segment. tests/log/test_fast_path.py appends."""

from __future__ import annotations

import os
import resource
import signal
import struct
from pathlib import Path
from typing import Any

import pytest

from seglog._native.append import IndexRefusal, LogAppendInfo, SegmentWriter
from seglog._native.producers import ProducerTable
from seglog._native.validate import frames
from seglog.errors import KafkaStorageError
from tests.oracle import batch as v2

NOW = 1_700_000_000_000


def batch(offset: int = 0, size: int = 100) -> bytes:
    return v2.encode(v2.Batch(offset, 0, [v2.Record(offset, NOW + offset, None, b"v" * size)],
                              base_timestamp=NOW + offset, max_timestamp=NOW + offset))


def writer_of(folder: Path, **changed: Any) -> SegmentWriter:
    paths = [folder / name for name in ("0.log", "0.index", "0.timeindex")]
    for path in paths:
        path.touch()
    given = {
        "base_offset": 0, "size": 0, "index_interval_bytes": 0, "offset_entries": 0,
        "offset_slots": 10, "last_index_offset": 0, "time_entries": 0, "time_slots": 10,
        "last_time_entry": (-1, 0), "bytes_since_index_entry": 0, "max_timestamp": (-1, 0),
        **changed}
    return SegmentWriter(*paths, **given)


def put(writer: SegmentWriter, *offsets: int) -> tuple[int, int]:
    data = b"".join(map(batch, offsets))
    return writer.append(data, frames(data).batches)


def test_what_is_written_and_counted(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    assert writer.first_timestamp is None
    assert put(writer, 0, 1, 2) == (IndexRefusal.TAKES, 3)
    assert (tmp_path / "0.log").read_bytes() == batch(0) + batch(1) + batch(2)
    size = len(batch(0))
    assert struct.unpack(">4i", (tmp_path / "0.index").read_bytes()) == (1, size, 2, 2 * size)
    assert struct.unpack(">qiqi", (tmp_path / "0.timeindex").read_bytes()) == (
        NOW + 1, 1, NOW + 2, 2)
    assert (writer.size, writer.offset_entries, writer.time_entries) == (3 * size, 2, 2)
    assert (writer.max_timestamp, writer.first_timestamp) == ((NOW + 2, 2), NOW)
    assert (writer.last_index_offset, writer.last_time_entry) == (2, (NOW + 2, 2))


def test_a_full_index_when_the_bytes_are_written(tmp_path: Path) -> None:
    writer = writer_of(tmp_path, offset_slots=1)
    assert put(writer, 0, 1, 2, 3) == (IndexRefusal.OFFSET_FULL, 2)
    assert writer.size == (tmp_path / "0.log").stat().st_size == 4 * len(batch(0))
    writer = writer_of(tmp_path, time_slots=1)
    assert put(writer, 0, 1)[0] == IndexRefusal.TIME_FULL


@pytest.mark.parametrize("limit", [180, 500])
def test_a_disk_that_is_full_in_the_middle_of_a_batch(tmp_path: Path, limit: int) -> None:
    writer = writer_of(tmp_path)
    put(writer, 0)
    before = (writer.size, writer.offset_entries, writer.max_timestamp)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        with pytest.raises(KafkaStorageError):
            put(writer, 1, 2, 3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "0.log").read_bytes() == batch(0)
    assert (writer.size, writer.offset_entries, writer.max_timestamp) == before
    assert put(writer, 1, 2) == (IndexRefusal.TAKES, 2)


def test_a_writer_that_is_closed(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    assert not writer.is_closed
    writer.close()
    writer.close()
    assert writer.is_closed
    with pytest.raises(ValueError, match="closed"):
        put(writer, 0)
    assert writer.append_as_leader(batch(), ProducerTable(), 0, 0, NOW) is None


def test_nothing_is_plain_before_the_settings_are_known(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    assert writer.append_as_leader(batch(), ProducerTable(), 0, 0, NOW) is None
    writer.configure(needs_key=False, has_create_time=True, timestamp_before_max_ms=1 << 62,
                     timestamp_after_max_ms=1000, max_message_bytes=1000, segment_bytes=10_000,
                     max_segment_ms=1000, created_ms=NOW)
    size = len(batch())
    assert writer.append_as_leader(batch(), ProducerTable(), 4, 70, NOW, 60) == LogAppendInfo(
        70, 70, 0, NOW, -1, 60, 0, size, 0)
    data = v2.decode((tmp_path / "0.log").read_bytes())
    assert (data.base_offset, data.partition_leader_epoch) == (70, 4)
    assert writer.append_as_leader(batch(), ProducerTable(), 4, 71, NOW - 2000) is None


def test_files_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SegmentWriter(tmp_path / "a", tmp_path / "b", tmp_path / "c", base_offset=0, size=0,
                      index_interval_bytes=0, offset_entries=0, offset_slots=1,
                      last_index_offset=0, time_entries=0, time_slots=1, last_time_entry=(-1, 0),
                      bytes_since_index_entry=0, max_timestamp=(-1, 0))


def test_a_refused_number_closes_no_descriptor(tmp_path: Path) -> None:
    """Of a writer that opened nothing: the descriptors of other files have small numbers."""
    kept = os.dup(0)
    try:
        with pytest.raises(OverflowError):
            writer_of(tmp_path, size=2**70)
        os.fstat(0)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_an_info_has_a_list_of_errors_of_its_own() -> None:
    """It is made when somebody asks for it, and then stays."""
    one, other = LogAppendInfo(1, 2), LogAppendInfo(1, 2)
    one.record_errors.append("x")
    assert one.record_errors == ["x"] and other.record_errors == []
    assert one != other
    one.record_errors = []
    assert one == other
    made = LogAppendInfo.__new__(LogAppendInfo)
    assert made.record_errors is made.record_errors == []
