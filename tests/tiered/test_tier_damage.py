"""What is wrong in a tier: one error or one finding each, and everything else is read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import CorruptDataError, KafkaStorageError, SeglogError
from seglog.model import EpochEntry
from seglog.objects.directory_store import DirectoryStore
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogGap
from seglog.tiered import (
    RemoteLogSegmentMetadata, SkippedMetadata, TierFinding, open_bucket, read_metadata_events,
    serialize,
)
from seglog.tiered.partition_catalog import _contradicts, _fits, merged_epochs
from seglog.tiered.remote_records import id_text
from seglog.tiered.remote_segment import RemoteSegment
from seglog.tiered.remote_storage import IndexType
from seglog.tiered.restore import restore
from seglog.tiered.segment_selection import Piece, select_segments
from seglog.tiered.tier_check import check_partition, find_orphans
from seglog.tiered.tiered_files import TieredFiles
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.tiered.conftest import Tiered, read

NAME = "t-gzip-0"  # segments at 0, 46, 93, 140, 187; local from 234
MIDDLE = range(46, 93)


def findings(log: PartitionLog) -> tuple[TierFinding, ...]:
    assert isinstance(log.where, TieredFiles)
    return log.where.findings


def opened(tiered: Tiered, with_metadata: bool) -> PartitionLog:
    """Disk and tier, or the tier alone by its names."""
    if with_metadata:
        return PartitionLog.open(tiered.data / NAME, remote=tiered.remote)
    return open_bucket(tiered.remote).log("t-gzip", 0)


def skipped(log: PartitionLog) -> tuple[list[int], list[LogGap]]:
    offsets: list[int] = []
    gaps: list[LogGap] = []
    for batch in log.to_arrow(on_damage="skip", on_gap=gaps.append, columns=["offset"]):
        offsets += batch.to_pylists()["offset"]
    return offsets, gaps


def middle(tiered: Tiered, suffix: str = ".log") -> Path:
    return tiered.objects(NAME, suffix)[1]


@pytest.mark.parametrize("with_metadata", [False, True])
def test_an_absent_segment_is_a_gap_with_both_sides(tiered_copy: Tiered, with_metadata: bool
                                                    ) -> None:
    gone = middle(tiered_copy)
    gone.unlink()
    log = opened(tiered_copy, with_metadata)
    expected = [row for row in tiered_copy.rows(NAME, "read_uncommitted")
                if row.offset < log.log_end_offset]
    with pytest.raises(KafkaStorageError) as caught:
        read(log)
    first, last = tiered_copy.objects(NAME)[0].name, tiered_copy.objects(NAME)[1].name
    assert caught.value.code == "remote_gap"
    assert all(name in str(caught.value) for name in (first, last, "46 to 92"))
    assert [one.code for one in findings(log)].count("remote_gap") == 1
    offsets, gaps = skipped(log)
    assert offsets == [row.offset for row in expected if row.offset not in MIDDLE]
    assert [gap.kind for gap in gaps] == ["remote_gap"]
    with pytest.raises(KafkaStorageError, match="not restored"):
        restore(log, tiered_copy.root / "restored")
    check = check_partition(log)
    assert not check.is_sound
    if with_metadata:
        assert "object_missing" in [one.code for one in findings(log)]
        assert gone.name[21:43] in str(caught.value)


def test_segments_that_vanish_at_both_ends(tiered_copy: Tiered) -> None:
    objects = tiered_copy.objects(NAME)
    objects[0].unlink()
    objects[-1].unlink()
    log = opened(tiered_copy, True)
    assert log.log_start_offset == 0
    with pytest.raises(KafkaStorageError, match="announced, and its objects are not there"):
        read(log)
    offsets, gaps = skipped(log)
    assert offsets == [row.offset for row in tiered_copy.rows(NAME, "read_uncommitted")
                       if not row.offset < 46 and not 187 <= row.offset < 234]
    assert len(gaps) == 2
    alone = opened(tiered_copy, False)
    assert (alone.log_start_offset, alone.log_end_offset) == (46, 187)


def test_all_announced_segments_are_absent(tiered_copy: Tiered) -> None:
    """The log begins with a gap up to the local segments, and not there."""
    for path in tiered_copy.objects(NAME, ""):
        path.unlink()
    log = opened(tiered_copy, True)
    assert log.log_start_offset == 0
    with pytest.raises(KafkaStorageError, match="its objects are not there") as caught:
        read(log)
    assert caught.value.code == "remote_gap"
    offsets, gaps = skipped(log)
    assert offsets == [row.offset for row in tiered_copy.rows(NAME, "read_uncommitted")
                       if row.offset >= 234]
    assert [gap.kind for gap in gaps] == ["remote_gap"]
    with pytest.raises(KafkaStorageError, match="not restored"):
        restore(log, tiered_copy.root / "restored")


@pytest.mark.parametrize("with_metadata", [False, True])
def test_a_cut_object(tiered_copy: Tiered, with_metadata: bool) -> None:
    """Inside a batch, and where one ends: then only the announced size shows it."""
    path = middle(tiered_copy)
    size = path.stat().st_size
    os.truncate(path, size - 100)
    log = opened(tiered_copy, with_metadata)
    if with_metadata:
        with pytest.raises(SeglogError, match=f"has {size - 100} bytes, {size} were announced"):
            read(log)
        assert "object_size" in [one.code for one in findings(log)]
    offsets, gaps = skipped(log)
    assert [offset for offset in offsets if offset not in MIDDLE] == [
        row.offset for row in tiered_copy.rows(NAME, "read_uncommitted")
        if row.offset not in MIDDLE and row.offset < log.log_end_offset]
    assert set(offsets) & set(MIDDLE)  # what was left of it
    assert gaps
    assert not check_partition(log).is_sound


def test_a_longer_object_is_a_finding(tiered_copy: Tiered) -> None:
    path = middle(tiered_copy)
    with path.open("ab") as out:
        out.write(bytes(100))
    log = opened(tiered_copy, True)
    assert read(log) == tiered_copy.rows(NAME, "read_uncommitted")
    found, = findings(log)
    assert (found.code, found.first_offset) == ("object_size", 46)
    assert path.name in str(found)


def test_a_longer_object_of_another_topic(tiered_copy: Tiered) -> None:
    """It begins with the same offset, so that only its size and its end tell."""
    gone, other = tiered_copy.objects(NAME)[0], tiered_copy.objects("t-none-0")[0]
    content = other.read_bytes()
    assert other.name[:20] == gone.name[:20] and len(content) > gone.stat().st_size
    gone.write_bytes(content)
    log = opened(tiered_copy, True)
    with pytest.raises(KafkaStorageError, match="were announced"):
        read(log)
    offsets, gaps = skipped(log)
    assert offsets == [row.offset for row in tiered_copy.rows(NAME, "read_uncommitted")
                       if row.offset >= 46]
    assert len(gaps) == 1
    assert [one.code for one in findings(log)].count("object_size") == 1
    assert not check_partition(log).is_sound


@pytest.mark.parametrize("with_metadata", [False, True])
def test_flipped_bytes(tiered_copy: Tiered, with_metadata: bool) -> None:
    path = middle(tiered_copy)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    log = opened(tiered_copy, with_metadata)
    with pytest.raises(CorruptDataError) as caught:
        read(log)
    assert str(path) == caught.value.file
    assert caught.value.position is not None
    offsets, gaps = skipped(log)
    assert len(gaps) == 1
    assert 0 < len(set(MIDDLE) - set(offsets)) < len(MIDDLE)
    check = check_partition(log)
    assert not check.is_sound
    assert [one.object for one in check.findings] == [str(path)]


@pytest.mark.parametrize("with_metadata", [False, True])
def test_swapped_objects(tiered_copy: Tiered, with_metadata: bool) -> None:
    one, other = tiered_copy.objects(NAME)[1:3]
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    log = opened(tiered_copy, with_metadata)
    with pytest.raises(KafkaStorageError, match="bytes of another segment") as caught:
        read(log)
    assert (caught.value.file, caught.value.position) == (str(one), 0)
    check = check_partition(log)
    assert not check.is_sound
    named = {finding.object for finding in check.findings}
    assert str(one) in named
    offsets, gaps = skipped(log)
    assert offsets == [row.offset for row in tiered_copy.rows(NAME, "read_uncommitted")
                       if not 46 <= row.offset < 140 and row.offset < log.log_end_offset]
    assert [gap.kind for gap in gaps] == ["offset_mismatch"] * 2


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".leader_epoch_checkpoint",
                                    ".snapshot"])
@pytest.mark.parametrize("content", [None, b"", b"\xff" * 1001])
def test_lost_and_damaged_indexes_change_nothing(tiered_copy: Tiered, suffix: str,
                                                 content: bytes | None) -> None:
    for path in tiered_copy.objects(NAME, suffix):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
    for with_metadata in (False, True):
        log = opened(tiered_copy, with_metadata)
        for isolation in ("read_uncommitted", "read_committed"):
            assert read(log, isolation) == [
                row for row in tiered_copy.rows(NAME, isolation)
                if row.offset < log.log_end_offset]
        assert log.offset_for_timestamp(0) is not None


@pytest.mark.parametrize(("suffix", "kind", "most"), [
    (".index", IndexType.OFFSET, 1 << 30), (".timeindex", IndexType.TIMESTAMP, 1 << 30),
    (".leader_epoch_checkpoint", IndexType.LEADER_EPOCH, 64 << 20),
    (".snapshot", IndexType.PRODUCER_SNAPSHOT, 512 << 20)])
@pytest.mark.parametrize("is_listed", [True, False])
def test_an_index_that_is_too_large_is_refused_by_its_size(
        tiered_copy: Tiered, monkeypatch: pytest.MonkeyPatch, suffix: str, kind: IndexType,
        most: int, is_listed: bool) -> None:
    path = middle(tiered_copy, suffix)
    os.truncate(path, 1 << 36)
    log = opened(tiered_copy, True)
    assert isinstance(log.where, TieredFiles)
    bucket, found = log.where.bucket, []
    for segment, _ in log.where.pieces_of(log.segments.values(0)):
        if segment.start_offset == 46:
            found.append(segment)
    read_bytes = []
    real = DirectoryStore.read

    def count(store: DirectoryStore, key: str, start: int, end: int) -> Any:
        read_bytes.append(end - start)
        return real(store, key, start, end)

    monkeypatch.setattr(DirectoryStore, "read", count)
    segment, = found
    if not is_listed:
        assert segment.announced is not None
        segment = bucket.layout.named(bucket.tree, segment.announced)
    text = f"of {1 << 36} bytes, at most {most} are read"
    with pytest.raises(KafkaStorageError, match=text) as caught:
        bucket.layout.index(bucket.tree, segment, kind)
    error = caught.value
    assert (error.file, error.code, error.expected, error.found) == (
        str(path), "file_too_large", most, 1 << 36)
    assert sum(read_bytes) <= (0 if is_listed else 1 << 20)


def test_an_absent_transaction_index_reads_as_empty(tiered_copy: Tiered) -> None:
    """The aborted records of that segment appear, as from a broker; nothing fails."""
    for path in tiered_copy.objects("t-txn-0", ".txnindex"):
        path.unlink()
    log = PartitionLog.open(tiered_copy.data / "t-txn-0", remote=tiered_copy.remote)
    rows = read(log, "read_committed")
    assert {row.offset for row in rows} >= {
        row.offset for row in tiered_copy.rows("t-txn-0", "read_committed")}


def test_orphans_are_named_and_left(tiered_copy: Tiered) -> None:
    path = middle(tiered_copy)
    stray = path.with_name(f"{path.name[:21]}{'A' * 22}.log")
    shutil.copy(path, stray)
    log = open_bucket(tiered_copy.remote, metadata=tiered_copy.data).log("t-gzip", 0)
    assert isinstance(log.where, TieredFiles)
    orphan, = find_orphans(log.where)
    assert (orphan.code, orphan.object) == ("orphan", str(stray))
    assert stray.exists()
    assert read(log) == [row for row in tiered_copy.rows(NAME, "read_uncommitted")
                         if row.offset < 234]
    names_only = opened(tiered_copy, False)
    assert "duplicate_segment" in [one.code for one in findings(names_only)]
    assert read(names_only) == read(log)


def test_metadata_records_that_do_not_decode_are_reported(tiered_copy: Tiered) -> None:
    """The metadata partition is damaged: its other records count, and the names fill in."""
    for path in tiered_copy.data.glob("__remote_log_metadata-*/*.log"):
        content = bytearray(path.read_bytes())
        if len(content) > 300:
            content[120] ^= 0xFF
            path.write_bytes(content)
    log = PartitionLog.open(tiered_copy.data / NAME, remote=tiered_copy.remote)
    assert "metadata_record" in [one.code for one in findings(log)]


def announce(tiered: Tiered, path: Path, **fields: Any) -> None:
    """The metadata topic says this of a segment."""
    for folder in tiered.data.glob("__remote_log_metadata-*"):
        with PartitionLog.open(folder) as log:
            events = [event for _, event in read_metadata_events(log)]
        data = b""
        for offset, event in enumerate(events):
            assert not isinstance(event, SkippedMetadata)
            if isinstance(event, RemoteLogSegmentMetadata) and path.name[21:43] == id_text(
                    event.remote_log_segment_id.id):
                event = RemoteLogSegmentMetadata(**{**event._asdict(), **fields})
            data += v2.encode(Batch(offset, 0, [Record(offset, 5, None, serialize(event))],
                                    base_timestamp=5, max_timestamp=5))
        for one in folder.glob("0*"):
            one.unlink()
        (folder / f"{0:020}.log").write_bytes(data)


@pytest.mark.parametrize("fields", [
    *({"segment_size_in_bytes": size} for size in (0, 1, 5000, -1, -2**31)),
    {"end_offset": 2**63 - 1}])
@pytest.mark.parametrize("has_local", [True, False])
def test_a_size_or_an_end_that_no_segment_has_is_a_gap(
        tiered_copy: Tiered, fields: dict[str, int], has_local: bool) -> None:
    announce(tiered_copy, middle(tiered_copy), **fields)
    log = opened(tiered_copy, True) if has_local else open_bucket(
        tiered_copy.remote, metadata=tiered_copy.data).log("t-gzip", 0)
    with pytest.raises(KafkaStorageError) as caught:
        read(log)
    assert caught.value.code == "remote_gap"
    offsets, gaps = skipped(log)
    assert offsets == [row.offset for row in tiered_copy.rows(NAME, "read_uncommitted")
                       if row.offset not in MIDDLE and (has_local or row.offset < 234)]
    assert [gap.kind for gap in gaps] == ["remote_gap"]
    assert not check_partition(log).is_sound
    with pytest.raises(KafkaStorageError, match="not restored"):
        restore(log, tiered_copy.root / "restored")


@pytest.mark.parametrize("epochs", [
    ((-2**31, 0), (0, 2**63 - 1), (1, 2**31 - 1)), ((-1, 0),), ((0, -1),), ((0, 0), (1, 2**63 - 1)),
    ((0, 30), (1, 20)), ((0, 2**63 - 1), (2**31 - 1, 0))])
@pytest.mark.parametrize("has_local", [True, False])
def test_announced_epochs_that_no_segment_has_hide_nothing(
        tiered_copy: Tiered, epochs: tuple[tuple[int, int], ...], has_local: bool) -> None:
    path = tiered_copy.objects(NAME)[0]
    announce(tiered_copy, path, segment_leader_epochs=epochs)
    log = opened(tiered_copy, True) if has_local else open_bucket(
        tiered_copy.remote, metadata=tiered_copy.data).log("t-gzip", 0)
    found, = findings(log)
    assert (found.code, found.first_offset, path.name in str(found)) == ("leader_epochs", 0, True)
    assert read(log) == [row for row in tiered_copy.rows(NAME, "read_uncommitted")
                         if has_local or row.offset < 234]


@pytest.mark.parametrize("further", [1, 50, 100, 10**6])
@pytest.mark.parametrize("has_local", [True, False])
def test_an_announced_end_beyond_the_next_start_hides_no_record(
        tiered_copy: Tiered, further: int, has_local: bool) -> None:
    path = middle(tiered_copy)
    announce(tiered_copy, path, end_offset=92 + further)
    log = opened(tiered_copy, True) if has_local else open_bucket(
        tiered_copy.remote, metadata=tiered_copy.data).log("t-gzip", 0)
    found, = findings(log)
    assert (found.code, found.object, found.first_offset) == ("offset_mismatch", str(path), 93)
    assert read(log) == [row for row in tiered_copy.rows(NAME, "read_uncommitted")
                         if has_local or row.offset < 234]


def test_an_announced_end_in_the_local_log_hides_no_absent_segment(tiered_copy: Tiered) -> None:
    before, absent = tiered_copy.objects(NAME)[-2:]
    absent.unlink()
    announce(tiered_copy, before, end_offset=300)
    log = opened(tiered_copy, True)
    with pytest.raises(KafkaStorageError, match="187 to 233") as caught:
        read(log)
    assert caught.value.code == "remote_gap"
    offsets, gaps = skipped(log)
    assert offsets == [row.offset for row in tiered_copy.rows(NAME, "read_uncommitted")
                       if not 187 <= row.offset < 234]
    assert [gap.kind for gap in gaps] == ["remote_gap"]


def test_an_announced_end_hides_no_announced_segment_that_is_absent(tiered_copy: Tiered) -> None:
    tiered_copy.objects(NAME)[2].unlink()
    announce(tiered_copy, middle(tiered_copy), end_offset=139)
    log = opened(tiered_copy, True)
    with pytest.raises(KafkaStorageError, match="93 to 139") as caught:
        read(log)
    assert caught.value.code == "remote_gap"
    offsets, gaps = skipped(log)
    assert offsets == [row.offset for row in tiered_copy.rows(NAME, "read_uncommitted")
                       if not 93 <= row.offset < 140]
    assert [gap.kind for gap in gaps] == ["remote_gap"]


def test_a_restored_log_is_a_plain_log(tiered: Tiered, tmp_path: Path) -> None:
    for name in ("t-txn-0", "t-epochs-0"):
        topic, _, partition = name.rpartition("-")
        log = open_bucket(tiered.remote).log(topic, int(partition))
        assert restore(log, tmp_path / name) == len(log.segments)
        local = PartitionLog.open(tmp_path / name)
        assert (local.log_end_offset, local.last_stable_offset, local.topic_id) == (
            log.log_end_offset, log.last_stable_offset, log.topic_id)
        assert local.checkpointed_epochs == log.checkpointed_epochs
        for isolation in ("read_uncommitted", "read_committed"):
            assert read(local, isolation) == read(log, isolation)
        with pytest.raises(KafkaStorageError, match="not empty"):
            restore(log, tmp_path / name)


# ---- which segments count

def segment(start: int, end: int, epochs: Sequence[tuple[int, int]] = (), name: bytes = b"",
            timestamp: int = 0) -> RemoteSegment:
    return RemoteSegment(start, name or bytes((start % 256,)), {}, end, timestamp,
                         tuple(epochs) or None, 1)


def chosen(segments: Sequence[RemoteSegment], lineage: Sequence[tuple[int, int]] = (),
           until: int | None = None) -> tuple[list[tuple[int, int, bool]], list[str]]:
    found: list[TierFinding] = []
    pieces: list[Piece] = select_segments(
        segments, [EpochEntry(*one) for one in lineage], until, found)
    return [(piece.start_offset, piece.end_offset, piece.segment is not None)
            for piece in pieces], [one.code for one in found]


CASES: list[tuple[str, Callable[[], Any], Any]] = [
    ("in a row", lambda: chosen([segment(0, 9), segment(10, 19)]),
     ([(0, 9, True), (10, 19, True)], [])),
    ("any order", lambda: chosen([segment(10, 19), segment(0, 9)]),
     ([(0, 9, True), (10, 19, True)], [])),
    ("nothing", lambda: chosen([]), ([], [])),
    ("a gap", lambda: chosen([segment(0, 9), segment(20, 29)]),
     ([(0, 9, True), (10, 19, False), (20, 29, True)], ["remote_gap"])),
    ("a gap before the local log", lambda: chosen([segment(0, 9)], until=15),
     ([(0, 9, True), (10, 14, False)], ["remote_gap"])),
    ("local from inside", lambda: chosen([segment(0, 9), segment(10, 19)], until=15),
     ([(0, 9, True), (10, 19, True)], [])),
    ("local has all", lambda: chosen([segment(0, 9)], until=0), ([], [])),
    ("overlap: the furthest", lambda: chosen([segment(0, 9), segment(5, 30), segment(10, 19)]),
     ([(0, 9, True), (5, 30, True)], [])),
    ("contained", lambda: chosen([segment(0, 50), segment(10, 19), segment(51, 60)]),
     ([(0, 50, True), (51, 60, True)], [])),
    ("the same offsets twice", lambda: chosen([
        segment(0, 9, name=b"b"), segment(0, 9, name=b"a")]),
     ([(0, 9, True)], ["duplicate_segment"])),
    ("an unclean election: the old leader's tail is not the log's",
     lambda: chosen([segment(0, 50, [(0, 0)]), segment(35, 90, [(0, 35), (1, 40)])],
                    [(0, 0), (1, 40)]),
     ([(0, 39, True), (35, 90, True)], ["outside_lineage"])),
    ("an epoch that the log never had",
     lambda: chosen([segment(0, 9, [(0, 0)]), segment(10, 19, [(1, 10)]),
                     segment(10, 29, [(2, 10)])], [(0, 0), (2, 10)]),
     ([(0, 9, True), (10, 29, True)], ["outside_lineage"])),
    ("an epoch that began elsewhere",
     lambda: chosen([segment(0, 29, [(0, 0), (1, 15)])], [(0, 0), (1, 20)]),
     ([(0, 14, True)], ["outside_lineage"])),
    ("epochs below the lineage that begin beyond the segment", lambda: chosen(
        [segment(0, 9, [(0, 0), (1, 50)]), segment(10, 19, [(3, 10)])], [(3, 10)]),
     ([(0, 9, True), (10, 19, True)], [])),
    ("the lineage's start was cut", lambda: chosen(
        [segment(0, 9, [(0, 0)]), segment(10, 19, [(0, 10), (3, 15)])], [(3, 17)]),
     ([(0, 9, True), (10, 19, True)], [])),
    ("an unclean election, after which the lineage's start was cut", lambda: chosen(
        [segment(0, 9, [(1, 0)]), segment(10, 29, [(2, 10)]), segment(20, 39, [(4, 20)])],
        [(4, 20)]),
     ([(0, 9, True), (10, 19, True), (20, 39, True)], ["outside_lineage"])),
    ("its tail alone", lambda: chosen(
        [segment(20, 39, [(4, 20)]), segment(20, 49, [(2, 20)])], [(4, 20)]),
     ([(20, 39, True)], ["outside_lineage"])),
    ("epochs of the lineage that begin beyond the segment", lambda: chosen(
        [segment(0, 9, [(0, 0), (1, 50)]), segment(20, 29, [(1, 20)])], [(0, 0), (1, 20)]),
     ([(0, 9, True), (10, 19, False), (20, 29, True)], ["remote_gap"])),
]


@pytest.mark.parametrize(("choose", "expected"), [pytest.param(choose, expected, id=name)
                                                  for name, choose, expected in CASES])
def test_selection(choose: Callable[[], Any], expected: Any) -> None:
    assert choose() == expected


def test_an_unclean_election_is_no_contradiction() -> None:
    """Epoch 2 began at 50 with a leader whose records the log lost; the log has epoch 0 there."""
    segments = [segment(0, 49, [(0, 0)]), segment(50, 90, [(2, 50)]),
                segment(50, 61, [(0, 50)], b"b"), segment(62, 99, [(3, 62)])]
    lineage = [EpochEntry(0, 0), EpochEntry(3, 62)]
    assert not _contradicts(lineage, segments) and _fits(segments[-1], lineage)
    assert merged_epochs(segments) != lineage  # segments alone cannot know it
    assert _contradicts([EpochEntry(0, 0), EpochEntry(3, 63)], segments)
    assert _contradicts([EpochEntry(0, 0), EpochEntry(3, 20)], [
        segment(0, 99, [(0, 0), (3, 62)])])
    assert not _fits(segments[-1], [EpochEntry(0, 0)])
    assert not _fits(segments[0], [EpochEntry(0, 0), EpochEntry(2, 148)])
