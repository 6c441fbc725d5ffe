"""The files of a partition directory as a reader takes them, and the ranges of a time in it."""

from __future__ import annotations

import errno
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest

from seglog._native.scan import HAS_INDEX, HAS_LOG, PartitionListing, list_partition
from seglog.errors import CorruptRecordError, InvalidTopicError, KafkaStorageError
from seglog.storage import log_store
from seglog.storage.handles import HandleCache
from seglog.storage.log_store import LOCAL, LocalFiles
from seglog.storage.partition_files import read_directory
from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import check_topic
from seglog.storage.salvage import SegmentExtent
from seglog.storage.segment import LogSegment
from seglog.storage.timestamps import ranges_since
from seglog.storage.view import LogView, SalvagedView
from tests.oracle.batch import Batch, Record, encode
from tests.oracle.legacy import Message
from tests.oracle.legacy import encode as encode_old


def batch(offset: int) -> bytes:
    return encode(Batch(offset, 0, [Record(offset, 1000 + offset, b"k", b"v")],
                        base_timestamp=1000 + offset, max_timestamp=1000 + offset))


BATCH_BYTES = len(batch(0))


def test_a_completed_swap_takes_the_place_of_segments_and_their_snapshots(tmp_path: Path) -> None:
    """Kafka deletes every numbered file from the swapped segment's base to its end."""
    for base in (0, 10, 20, 30):
        (tmp_path / f"{base:020d}.log").write_bytes(batch(base))
    for offset in (5, 10, 20, 21, 30, 31):
        (tmp_path / f"{offset:020d}.snapshot").touch()
    (tmp_path / f"{10:020d}.log.swap").write_bytes(batch(10) + batch(20))
    for base in (0, 10, 20):
        (tmp_path / f"{base:020d}.index").touch()
    handles = HandleCache(10)
    found = read_directory(str(tmp_path), handles)
    assert len(handles) == 0
    assert found.segments.base_offsets.tolist() == [0, 10, 30]
    # The index of the segment that was replaced is not that of the other.
    assert (found.segments.flags & (HAS_LOG | HAS_INDEX)).tolist() == [
        HAS_LOG | HAS_INDEX, HAS_LOG, HAS_LOG]
    assert found.snapshots.tolist() == [5, 21, 30, 31]
    size = len(batch(0))
    assert found.segments.sizes().tolist() == [size, 2 * size, size] and found.segments.size == (
        4 * size)
    assert found.segments.ends() == ([size, 2 * size, size], [1, 21, 31])
    (tmp_path / f"{10:020d}.log.swap").unlink()
    assert found.segments.sizes().tolist() == [size, -1, size]


def test_a_segment_that_begins_at_the_end_of_a_swap_stays(tmp_path: Path) -> None:
    """Also one that comes with the swap alone; its index is not that of another."""
    for base in (0, 10, 21):
        (tmp_path / f"{base:020d}.log").write_bytes(batch(base))
    for base in (8, 20):
        (tmp_path / f"{base:020d}.log.swap").write_bytes(batch(base))
    (tmp_path / f"{20:020d}.index.swap").touch()
    found = read_directory(str(tmp_path), HandleCache(10))
    assert found.segments.base_offsets.tolist() == [0, 8, 20, 21]
    assert found.segments.flags.tolist() == [HAS_LOG, HAS_LOG, HAS_LOG | HAS_INDEX, HAS_LOG]


@pytest.mark.parametrize("times", [(3, 5), (5, 3)])
def test_the_last_change_is_that_of_the_directory_or_of_the_file(tmp_path: Path,
                                                                 times: tuple[int, int]) -> None:
    file = tmp_path / "f"
    file.touch()
    for path, seconds in zip((tmp_path, file), times, strict=True):
        os.utime(path, (seconds, seconds))
    for name, last in ((None, times[0]), (str(file), 5)):
        assert LOCAL.stamp(str(tmp_path), name).modified_ns == last * 10**9
    with pytest.raises(KafkaStorageError):
        LOCAL.stamp(str(tmp_path), f"{file}x")


def test_the_first_segment_may_be_swapped(tmp_path: Path) -> None:
    for base in (0, 10):
        (tmp_path / f"{base:020d}.log").write_bytes(batch(base))
    (tmp_path / f"{0:020d}.log.swap").write_bytes(batch(0) + batch(10))
    found = read_directory(str(tmp_path), HandleCache(10)).segments
    assert (found.base_offsets.tolist(), found.sizes().tolist()) == ([0], [2 * BATCH_BYTES])


STRANGE = ["-0000000000000000005.log.swap", f"{7:020d}.snapshot.swap", f"{8:020d}.foo.swap",
           f"{40:020d}.index.swap", "foo.log", "5.log"]


@pytest.mark.parametrize("files", [[], STRANGE], ids=["none", "strange"])
def test_what_has_the_name_of_a_log_is_a_segment_and_nothing_else(
        tmp_path: Path, files: list[str]) -> None:
    """A link, a directory and a device in the place of a log: their reader reports them."""
    (tmp_path / f"{0:020d}.log").write_bytes(batch(0))
    for name in files:
        (tmp_path / name).touch()
    (tmp_path / f"{50:020d}.log").symlink_to(f"{0:020d}.log")
    (tmp_path / f"{60:020d}.log").mkdir()
    os.mkfifo(tmp_path / f"{70:020d}.log")
    for name in ("foo.log.swap", "bar.log", "6.log", f"{80:020d}.index", f"{90:020d}.log.swap",
                 f"{91:020d}.log.deleted"):
        (tmp_path / name).symlink_to(f"{0:020d}.log")
    (tmp_path / f"{92:020d}.snapshot").mkdir()
    segments = read_directory(str(tmp_path), HandleCache(10)).segments
    assert segments.base_offsets.tolist() == [0, 50, 60, 70]
    assert segments.flags.tolist() == [HAS_LOG] * 4
    for segment in list(segments)[1:]:
        with pytest.raises(KafkaStorageError):
            list(segment.walk())


def test_a_swapped_index_is_not_the_size_of_its_segment(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(batch(0))
    (tmp_path / f"{0:020d}.index.swap").write_bytes(bytes(8))
    found = read_directory(str(tmp_path), HandleCache(10))
    assert found.segments.sizes().tolist() == [len(batch(0))]


def test_an_empty_transaction_index_is_not_a_missing_one(tmp_path: Path) -> None:
    """No entries of a missing one would make aborted records committed."""
    path = tmp_path / f"{0:020d}.txnindex"
    with pytest.raises(KafkaStorageError) as caught:
        LocalFiles().aborted(str(path))
    assert caught.value.code == "file_missing" and caught.value.file == str(path)
    path.touch()
    assert not len(LocalFiles().aborted(str(path)))


@pytest.mark.parametrize(("failures", "number", "is_there", "listings"), [
    (0, errno.ENOENT, True, 1), (1, errno.ENOENT, True, 2), (2, errno.ENOENT, True, 3),
    (3, errno.ENOENT, True, -3), (1, errno.EIO, True, -1), (1, errno.ENOENT, False, -1)])
def test_a_file_that_is_renamed_meanwhile_is_looked_for_twice_more(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, number: int,
        is_there: bool, listings: int) -> None:
    """Unless the directory is gone itself. A negative number of listings ends with the error."""
    (tmp_path / f"{0:020d}.log").write_bytes(batch(0))
    found, listing = [0], LocalFiles.listing

    def listed(self: LocalFiles, path: str) -> tuple[Any, Any]:
        found[0] += 1
        if found[0] <= failures:
            raise KafkaStorageError(number, "not there", "f")
        return listing(self, path)

    monkeypatch.setattr(LocalFiles, "listing", listed)
    if not is_there:
        monkeypatch.setattr(LocalFiles, "entries", lambda self, path: Path(f"{path}/x").stat())
    if listings < 0:
        with pytest.raises(KafkaStorageError) as caught:
            read_directory(str(tmp_path), HandleCache(10))
        assert caught.value.errno == number
    else:
        assert read_directory(str(tmp_path), HandleCache(10)).segments.base_offsets.tolist() == [0]
    assert found[0] == abs(listings)


@pytest.mark.parametrize(("answer", "starts"), [
    (0, [0]), (100, [100]), (4 * BATCH_BYTES - 1, [4 * BATCH_BYTES - 1]), (4 * BATCH_BYTES, []),
    (None, []), (KafkaStorageError(5, "unreadable", "f"), [0]),
    (CorruptRecordError("damaged", file="f"), [0])])
def test_the_ranges_of_a_time_begin_where_its_segments_say(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int | Exception | None,
        starts: list[int]) -> None:
    """If a segment cannot say it, they are whole: their reader reports the error."""
    def locate(self: LogSegment, timestamp_ms: int) -> int | None:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(LogSegment, "locate_times", locate)
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(map(batch, range(4))))
    with PartitionLog.open(tmp_path) as log:
        ranges = log.ranges(1 << 20)
        assert [one.start for one in ranges_since(log.segments, ranges, 1002)] == starts


def test_the_longest_topic_has_249_characters() -> None:
    check_topic("t" * 249)
    with pytest.raises(InvalidTopicError, match="longer than the max allowed length 249"):
        check_topic("t" * 250)


@pytest.mark.parametrize(("timestamp", "position"), [
    (0, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, None)])
def test_a_segment_has_no_records_after_its_largest_timestamp(
        tmp_path: Path, timestamp: int, position: int | None) -> None:
    """0 if nothing is known: that of an old wrapper need not be its largest, and damage may hide
    others."""
    stamped = [encode(Batch(offset, 0, [Record(offset, at, b"k", b"v")], base_timestamp=at,
                            max_timestamp=at)) for offset, at in enumerate((3, 5, 4))]
    old = encode_old(Message(0, 1, value=b"v", timestamp=3))
    for data, known in ((b"".join(stamped), True), (old, False),
                        (stamped[0] + bytes(11) + b"\5" + stamped[1], False)):
        for base, content in ((0, data), (9, batch(9))):
            (tmp_path / f"{base:020d}.log").write_bytes(content)
        with PartitionLog.open(tmp_path) as log:
            assert log.segments[0].locate_times(timestamp) == (position if known else 0)


def test_a_failed_read_is_no_end_of_a_segment(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(batch(0))
    with PartitionLog.open(tmp_path) as log, log.segments[0].opened() as opened:
        handle: Any = opened
        directory = os.open(tmp_path, os.O_RDONLY)
        os.dup2(directory, handle.fd)  # a directory cannot be read
        os.close(directory)
        with pytest.raises(KafkaStorageError) as caught:
            log.segments[0].read_next_offset()
    assert caught.value.errno == errno.EISDIR


def test_the_offsets_of_segments_cannot_be_changed(tmp_path: Path) -> None:
    """Readers in other threads search them."""
    (tmp_path / f"{0:020d}.log").write_bytes(batch(0))
    with PartitionLog.open(tmp_path) as log, pytest.raises(ValueError, match="read-only"):
        log.segments.base_offsets[0] = 1


@pytest.mark.parametrize(("base", "upper", "limit"), [
    (0, None, 1 << 31), (5, None, 5 + (1 << 31)), (5, 9, 9), (5, 1 << 40, 5 + (1 << 31)),
    ((1 << 63) - (1 << 31) - 1, None, (1 << 63) - 1), ((1 << 63) - 3, None, (1 << 63) - 1)])
def test_offsets_of_a_segment_have_31_bits_and_end_at_the_next(
        base: int, upper: int | None, limit: int) -> None:
    assert SegmentExtent("f", base, 100, upper).offset_limit == limit


def test_an_unopenable_last_segment_ends_a_read_past_damage(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(view: LogView) -> None:
        raise KafkaStorageError(5, "unreadable", "f")

    for base in (0, 9):
        (tmp_path / f"{base:020d}.log").write_bytes(batch(base))
    with PartitionLog.open(tmp_path) as log:
        monkeypatch.setattr(LogView, "tail", property(refused))
        monkeypatch.setattr(SalvagedView, "_survey", lambda view, segment: refused(view))
        assert log.end_offset(on_damage="skip") == 9


@pytest.mark.parametrize("name", [f"{10:020d}.log", f"{10:020d}.txnindex"])
@pytest.mark.parametrize("age_seconds", [0, 60])
def test_a_listing_during_which_a_file_changes_its_name(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, age_seconds: int) -> None:
    """A large directory is read in several calls: it may be seen under neither name."""
    folder, aside = tmp_path / "t-0", tmp_path / "aside"
    folder.mkdir()
    for base in (0, 10, 20):
        for suffix in ("log", "index", "txnindex"):
            (folder / f"{base:020d}.{suffix}").write_bytes(batch(base) if suffix == "log" else b"")
    then = time.time() - age_seconds
    os.utime(folder, (then, then))

    def without_the_file(path: str) -> PartitionListing:
        monkeypatch.undo()
        (folder / name).rename(aside)
        found = list_partition(path)
        aside.rename(folder / name)
        return found

    monkeypatch.setattr(log_store, "list_partition", without_the_file)
    segments = read_directory(str(folder), HandleCache(10)).segments
    assert segments.base_offsets.tolist() == [0, 10, 20]
    assert [one.base_offset for one in segments.with_txn_index()] == [0, 10, 20]


@pytest.mark.parametrize(("tick_ns", "changes", "expected"), [
    (log_store._TICK_NS, 0, 1), (1 << 62, 0, 2), (1 << 62, 1, 3), (1 << 62, 9, 5)])
def test_a_directory_is_listed_until_nothing_changes(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tick_ns: int, changes: int, expected: int
        ) -> None:
    """One that was changed before the last tick of the clock at least twice."""
    looks: list[str] = []

    def changing(path: str) -> PartitionListing:
        looks.append(path)
        found = list_partition(path)
        if len(looks) <= changes:
            (tmp_path / f"{len(looks):020d}.log").touch()
        return found

    os.utime(tmp_path, (time.time() - 60,) * 2)
    monkeypatch.setattr(log_store, "_TICK_NS", tick_ns)
    monkeypatch.setattr(log_store, "list_partition", changing)
    found, _ = LOCAL.listing(str(tmp_path))
    assert len(looks) == expected and len(found.base_offsets) == min(changes, 4)


@pytest.mark.parametrize("aborted", [False, True])
def test_a_directory_that_takes_the_place_of_the_listed_one(tmp_path: Path, aborted: bool) -> None:
    """A topic that is created again: nothing of it is taken for the records that were listed."""
    folder = tmp_path / "t-0"
    for base in (0, 10):
        folder.mkdir(exist_ok=True)
        (folder / f"{base:020d}.log").write_bytes(batch(base))
    (folder / f"{0:020d}.txnindex").touch()
    with PartitionLog.open(folder) as log:
        folder.rename(tmp_path / "t-0.deleted")
        folder.mkdir()
        (folder / f"{0:020d}.log").write_bytes(batch(3))
        (folder / f"{0:020d}.txnindex").touch()
        with pytest.raises(KafkaStorageError, match="took the place"):
            if aborted:
                log.segments.where.aborted(str(folder / f"{0:020d}.txnindex"))
            else:
                list(log.segments[0].walk())
        log.refresh()
        assert [one.base_offset for one in log.batches()] == [3]
        assert pickle.loads(pickle.dumps(log.segments.where)) is log_store.LOCAL


def test_a_stamp_is_another_after_a_change_of_the_file_or_of_the_directory(tmp_path: Path) -> None:
    """The news of a follower are looked for by it."""
    path = tmp_path / "f"
    path.write_bytes(b"x")
    directory, both = LOCAL.stamp(str(tmp_path), None), LOCAL.stamp(str(tmp_path), str(path))
    path.write_bytes(b"xy")
    assert LOCAL.stamp(str(tmp_path), None) == directory
    assert LOCAL.stamp(str(tmp_path), str(path)) != both
    (tmp_path / "g").mkdir()
    assert LOCAL.stamp(str(tmp_path), None) != directory
