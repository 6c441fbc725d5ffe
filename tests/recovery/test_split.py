"""The segments that replace one whose offsets no longer fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.config import LogConfig
from seglog.model import AbortedTxn, TopicPartition
from seglog.recovery import split
from seglog.recovery.disk import Disk, RealDisk
from seglog.recovery.loader_failures import LoaderFailure
from seglog.recovery.open_log import load_log
from seglog.recovery.overlay import OverlayDisk
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.segment_recovery import recover_extent
from seglog.recovery.split import split_segment, write_split
from seglog.storage.paths import FileKind, FileState, file_name
from seglog.storage.producer_state import ProducerState
from seglog.storage.txn_entries import encode_entries
from tests.recovery.test_disks import Ears
from tests.recovery.test_log_loader import CONFIG, FAR, at, inputs, written


@pytest.mark.parametrize("retire", [False, True])
def test_a_new_segment_does_not_know_the_transaction_index_under_its_name(
        tmp_path: Path, retire: bool) -> None:
    """It is that of another segment; Kafka goes on with the new ones, but opens all anew in pass
    four."""
    old = AbortedTxn(7, FAR, FAR + 1, FAR + 2)
    (tmp_path / file_name(0, FileKind.LOG)).write_bytes(at(0) + at(FAR))
    left_over = tmp_path / file_name(FAR, FileKind.TXN_INDEX)
    left_over.write_bytes(encode_entries([old]))
    disk, config = RealDisk(str(tmp_path)), LogConfig()
    segment = SegmentFiles(disk, 0, config)
    recovery = recover_extent(0, segment.extent, config, ProducerState(TopicPartition("t", 0), 0))
    assert recovery.overflow
    made = split_segment(disk, config, segment, recovery, retire=retire)
    assert [one.base_offset for one in made] == [0, FAR]
    assert [one.txn_index.entries for one in made] == [0, 0 if retire else 1]
    assert left_over.read_bytes() == encode_entries([old])


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_the_last_new_segment_knows_the_bytes_since_its_last_index_entry(
        tmp_path: Path, batches: int) -> None:
    """LogSegment.append, with which Kafka fills it: the log goes on with that count."""
    size = len(at(0))
    (tmp_path / file_name(0, FileKind.LOG)).write_bytes(
        at(0) + b"".join(at(FAR + number) for number in range(batches)))
    disk, config = RealDisk(str(tmp_path)), LogConfig(index_interval_bytes=size)
    segment = SegmentFiles(disk, 0, config)
    recovery = recover_extent(0, segment.extent, config, ProducerState(TopicPartition("t", 0), 0))
    last = split_segment(disk, config, segment, recovery, retire=True)[-1]
    assert last.bytes_since_index_entry == size * (batches if batches < 3 else batches - 2)


def test_two_new_segments_of_one_base_are_refused(tmp_path: Path) -> None:
    """Kafka misses the files of the first when it renames them."""
    (tmp_path / file_name(0, FileKind.LOG)).write_bytes(at(0) + at(FAR) + at(0) + at(FAR))
    disk, config = RealDisk(str(tmp_path)), LogConfig()
    with pytest.raises(LoaderFailure) as caught:
        write_split(disk, config, SegmentFiles(disk, 0, config), FAR + 1)
    missed = file_name(FAR, FileKind.LOG, FileState.CLEANED)
    assert (caught.value.kafka_error, caught.value.where) == (
        "NoSuchFileException", {"file": missed})
    assert [path.name for path in tmp_path.iterdir()] == [file_name(0, FileKind.LOG)]


@pytest.mark.parametrize("base", [0, 1 << 30])
@pytest.mark.parametrize("size", [42, 43])
def test_a_batch_without_its_timestamps_ends_a_split(
        tmp_path: Path, size: int, base: int) -> None:
    """DefaultRecordBatch.maxTimestamp reads bytes 35 to 43."""
    short = bytearray(at(base + 1)[:size])
    short[8:12] = (size - 12).to_bytes(4, "big")
    (tmp_path / file_name(base, FileKind.LOG)).write_bytes(at(base) + short + at(base + FAR))
    disk, config = RealDisk(str(tmp_path)), LogConfig()
    segment = SegmentFiles(disk, base, config)
    if size == 42:
        with pytest.raises(LoaderFailure) as caught:
            write_split(disk, config, segment, base + FAR + 1)
        assert caught.value.kafka_error == "IndexOutOfBoundsException"
    else:
        made = write_split(disk, config, segment, base + FAR + 1)
        assert [one.base_offset for one in made] == [base, base + FAR]


def test_the_first_batch_of_an_unknown_magic_ends_a_split(tmp_path: Path) -> None:
    odd = [data[:16] + b"\5" + data[17:] for data in (at(1), at(2))]
    (tmp_path / file_name(0, FileKind.LOG)).write_bytes(b"".join((at(0), *odd, at(FAR))))
    disk, config = RealDisk(str(tmp_path)), LogConfig()
    with pytest.raises(LoaderFailure, match="Invalid magic found in record: 5") as caught:
        write_split(disk, config, SegmentFiles(disk, 0, config), FAR + 1)
    assert caught.value.where["position"] == len(at(0))


def test_a_part_of_a_file_is_split_as_a_whole_one(tmp_path: Path) -> None:
    """A dry run copies nothing: a log may be some bytes of another file."""
    whole, config = file_name(7, FileKind.LOG), LogConfig()
    (tmp_path / whole).write_bytes(at(7) + at(0) + at(FAR))
    disk = OverlayDisk(str(tmp_path))
    size = (tmp_path / whole).stat().st_size
    disk.copy(whole, len(at(7)), size, file_name(0, FileKind.LOG))
    made = write_split(disk, config, SegmentFiles(disk, 0, config), FAR + 1)
    assert [disk.read(one.log_name, 0, size) for one in made] == [at(0), at(FAR)]


def of_size(data: bytes, size: int) -> bytes:
    """The first bytes of a batch, which claims to have no more."""
    return data[:8] + (size - 12).to_bytes(4, "big") + data[12:size]


@pytest.mark.parametrize(("unreadable", "error"), [
    (of_size(at(1), 42), "IndexOutOfBoundsException"),
    (at(8, size=200) + at(9, size=200) + at(5, size=200), "InvalidOffsetException")])
def test_the_end_of_a_chunk_is_found_before_its_batches_are_read(
        tmp_path: Path, unreadable: bytes, error: str) -> None:
    """LogSegment.appendFromFile: so a size that is too small comes before what a batch lacks."""
    disk, config = RealDisk(str(tmp_path)), LogConfig(index_interval_bytes=100)
    for following, expected in ((at(10), error), (of_size(at(10), 20), "CorruptRecordException")):
        (tmp_path / file_name(0, FileKind.LOG)).write_bytes(
            at(0) + unreadable + following + at(FAR))
        with pytest.raises(LoaderFailure) as caught:
            write_split(disk, config, SegmentFiles(disk, 0, config), FAR + 1)
        assert caught.value.kafka_error == expected


def test_a_batch_that_ends_before_it_begins_fits_no_segment(tmp_path: Path) -> None:
    """LogLoader.splitOverflowedSegment, which appends nothing of it."""
    backwards = bytearray(of_size(at(5), 42))
    backwards[23:27] = b"\xff" * 4  # the last offset's delta
    whole, one = file_name(7, FileKind.LOG), len(at(7))
    (tmp_path / whole).write_bytes(at(7) + at(0) + at(FAR) + backwards + at(FAR))
    disk, config = OverlayDisk(str(tmp_path)), LogConfig()
    disk.copy(whole, one, (tmp_path / whole).stat().st_size, file_name(0, FileKind.LOG))
    with pytest.raises(LoaderFailure, match=f"Failed to append records from position {2 * one} in"
                       ) as caught:
        write_split(disk, config, SegmentFiles(disk, 0, config), FAR + 1)
    assert caught.value.kafka_error == "IllegalStateException"


@pytest.mark.parametrize("disk_of", [OverlayDisk, RealDisk])
def test_a_cut_of_a_new_segment_is_at_a_byte_of_its_own_log(
        tmp_path: Path, disk_of: Callable[[str], Disk]) -> None:
    broken, ears = at(FAR + 1)[:-1] + b"?", Ears()
    path = written(tmp_path / "t-0", {0: at(0) + at(FAR) + broken})
    load_log(str(path), inputs(), disk=disk_of(str(path)), listener=ears)
    assert [one.position for one in ears.found if one.code == "log-truncated"] == [
        len(at(FAR))]


def test_a_new_segment_of_the_old_base_is_dropped_if_it_is_not_the_first(tmp_path: Path) -> None:
    """LocalLog.replaceSegments removes the old one by its base offset; the files stay."""
    bases = [10, 10 + FAR, 9, 11 + FAR]
    path = written(tmp_path / "t-0", {10: b"".join(map(at, bases))})
    log = load_log(str(path), inputs())
    assert log.segments.base_offsets.tolist() == [9, *bases[1::2]]
    assert (path / file_name(10, FileKind.LOG)).read_bytes() == at(10)
    log.close()


UNREADABLE, FOLLOWING, WRONG = of_size(at(1), 42), at(9), of_size(at(10), 20)
FULL = len(at(0)) + len(UNREADABLE)  # a chunk is shorter


@pytest.mark.parametrize(("following", "chunk", "error"), [
    (at(FAR), 1 << 20, "IndexOutOfBoundsException"),  # it begins the next segment
    (FOLLOWING, 1 << 20, "CorruptRecordException"),
    (b"", FULL, "CorruptRecordException"), (FOLLOWING, FULL + 1, "IndexOutOfBoundsException"),
    (FOLLOWING, FULL, "IndexOutOfBoundsException")])
def test_a_chunk_ends_before_the_batch_that_fills_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, following: bytes, chunk: int,
        error: str) -> None:
    """LogSegment.appendChunkFromFile: Kafka finds no wrong size behind the chunk of the batch that
    it cannot read. A batch that fills a chunk begins the next one."""
    monkeypatch.setattr(split, "_CHUNK_BYTES", chunk)
    (tmp_path / file_name(0, FileKind.LOG)).write_bytes(at(0) + UNREADABLE + following + WRONG)
    disk, config = RealDisk(str(tmp_path)), LogConfig()
    with pytest.raises(LoaderFailure) as caught:
        write_split(disk, config, SegmentFiles(disk, 0, config), FAR + 1)
    assert caught.value.kafka_error == error


def test_an_index_without_room_for_its_last_entry_ends_a_split(tmp_path: Path) -> None:
    (tmp_path / file_name(0, FileKind.LOG)).write_bytes(at(0) + at(FAR))
    disk, config = RealDisk(str(tmp_path)), LogConfig(segment_index_bytes=8)
    with pytest.raises(LoaderFailure) as caught:
        write_split(disk, config, SegmentFiles(disk, 0, config), FAR + 1)
    assert caught.value.kafka_error == "BufferOverflowException"


def test_the_new_logs_are_durable_before_they_replace_the_old_one(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / file_name(0, FileKind.LOG)).write_bytes(at(0) + at(FAR))
    disk, config, synced = RealDisk(str(tmp_path)), LogConfig(), []
    monkeypatch.setattr(disk, "sync", synced.append)
    os.utime(tmp_path / file_name(0, FileKind.LOG), (5, 5))
    write_split(disk, config, SegmentFiles(disk, 0, config), FAR + 1)
    assert synced == [file_name(base, FileKind.LOG, FileState.CLEANED) for base in (0, FAR)]
    assert [path.stat().st_mtime for path in tmp_path.iterdir()] == [5] * 7, "as old as it was"


def test_a_split_that_fails_leaves_nothing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / file_name(0, FileKind.LOG)).write_bytes(at(0) + at(FAR))
    disk, config = RealDisk(str(tmp_path)), LogConfig()
    copy = disk.copy

    def copy_first(name: str, start: int, end: int, new_name: str) -> None:
        if start:
            raise OSError("the disk is full")
        copy(name, start, end, new_name)

    monkeypatch.setattr(disk, "copy", copy_first)
    with pytest.raises(OSError, match="full"):
        write_split(disk, config, SegmentFiles(disk, 0, config), FAR + 1)
    assert [path.name for path in tmp_path.iterdir()] == [file_name(0, FileKind.LOG)]


@pytest.mark.parametrize("base", [0, 1 << 40])
def test_a_segment_whose_last_offset_fits_is_not_split(tmp_path: Path, base: int) -> None:
    (tmp_path / file_name(base, FileKind.LOG)).write_bytes(at(base) + at(base + FAR))
    disk, config = RealDisk(str(tmp_path)), LogConfig()
    segment = SegmentFiles(disk, base, config)
    most = base + (1 << 31) - 1
    with pytest.raises(LoaderFailure, match="only permitted for segments with overflow"):
        write_split(disk, config, segment, most + 1)
    assert len(write_split(disk, config, segment, most + 2)) == 2


def test_an_old_segment_stays_beside_its_parts_if_none_has_its_name(tmp_path: Path) -> None:
    """Pass four, where Kafka does not know it, and opens it again (retryOnOffsetOverflow). Its
    index is what its recovery had made by then: of full size, without an entry."""
    path = written(tmp_path / "t-0", {0: at(5) + at(FAR)})
    (path / file_name(0, FileKind.INDEX)).unlink()
    log = load_log(str(path), inputs(clean=True))
    try:
        assert log.segments.base_offsets.tolist() == [0, 5]
        index = path / file_name(0, FileKind.INDEX)
        assert index.read_bytes() == bytes(CONFIG.segment_index_bytes // 8 * 8)
    finally:
        log.close()
