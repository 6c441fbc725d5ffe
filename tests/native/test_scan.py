"""One pass over a partition directory: every kind of name, every kind of file, every check."""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from seglog._native.scan import (
    HAS_INDEX,
    HAS_LOG,
    HAS_SNAPSHOT,
    HAS_TIME_INDEX,
    HAS_TXN_INDEX,
    CheckLevel,
    FileClass,
    SegmentChecks,
    check_segments,
    classify_name,
    list_partition,
    segment_ends,
)
from seglog._native.status import Status
from seglog.errors import KafkaStorageError
from seglog.storage.handles import HandleCache
from seglog.storage.partition_files import read_directory
from tests.support.held import open_files
from tests.support.users import without_rights

ALL = HAS_LOG | HAS_INDEX | HAS_TIME_INDEX


def name(number: int, suffix: str) -> str:
    return f"{number:020d}{suffix}"


NAMES: dict[str, tuple[FileClass, int | None]] = {
    name(0, ".log"): (FileClass.LOG, 0),
    name(7, ".index"): (FileClass.INDEX, 7),
    name(7, ".timeindex"): (FileClass.TIME_INDEX, 7),
    name(7, ".txnindex"): (FileClass.TXN_INDEX, 7),
    name(7, ".snapshot"): (FileClass.SNAPSHOT, 7),
    name(2**63 - 1, ".log"): (FileClass.LOG, 2**63 - 1),
    name(2**63, ".log"): (FileClass.NOT_A_NUMBER, None),
    name(10**20 - 1, ".log"): (FileClass.NOT_A_NUMBER, None),
    "0" + name(0, ".log"): (FileClass.OTHER_NUMBER, 0),
    "5.log": (FileClass.OTHER_NUMBER, 5),
    "+5.index": (FileClass.OTHER_NUMBER, 5),
    "-5.timeindex": (FileClass.OTHER_NUMBER, -5),
    "-9223372036854775808.log": (FileClass.OTHER_NUMBER, -(2**63)),
    "-9223372036854775809.log": (FileClass.NOT_A_NUMBER, None),
    name(3, ".x.log"): (FileClass.OTHER_NUMBER, 3),
    "foo.log": (FileClass.NOT_A_NUMBER, None),
    "foo.snapshot": (FileClass.NOT_A_NUMBER, None),
    "foo.swap": (FileClass.NOT_A_NUMBER, None),
    "-.cleaned": (FileClass.NOT_A_NUMBER, None),
    ".log": (FileClass.NOT_A_NUMBER, None),
    name(1, ".log.deleted"): (FileClass.DELETED, None),
    "foo.deleted": (FileClass.DELETED, None),
    name(1, ".snapshot.deleted"): (FileClass.DELETED, None),
    name(1, ".log.cleaned"): (FileClass.CLEANED, 1),
    name(1, ".timeindex.swap"): (FileClass.SWAP, 1),
    "1.swap": (FileClass.SWAP, 1),
    "leader-epoch-checkpoint": (FileClass.LEADER_EPOCHS, None),
    "partition.metadata": (FileClass.PARTITION_METADATA, None),
    "partition.metadata.tmp": (FileClass.TEXT_TEMPORARY, None),
    "leader-epoch-checkpoint.tmp": (FileClass.TEXT_TEMPORARY, None),
    "quorum-state": (FileClass.QUORUM_STATE, None),
    name(9, "-0000000003.checkpoint"): (FileClass.RAFT_CHECKPOINT, None),
    name(9, "-0000000003-81723.checkpoint.part"): (FileClass.RAFT_CHECKPOINT, None),
    name(9, "-0000000003.checkpoint.deleted"): (FileClass.RAFT_CHECKPOINT, None),
    name(9, ".checkpoint"): (FileClass.FOREIGN, None),
    "foo.txt": (FileClass.FOREIGN, None),
    ".hidden": (FileClass.FOREIGN, None),
    "x": (FileClass.FOREIGN, None),
    name(1, ""): (FileClass.FOREIGN, None),
    name(1, ".LOG"): (FileClass.FOREIGN, None),
    name(1, ".log "): (FileClass.FOREIGN, None),
    "０００.txt": (FileClass.FOREIGN, None),
}


@pytest.mark.parametrize("text", NAMES)
def test_names(text: str) -> None:
    assert classify_name(text) == NAMES[text]


def test_a_directory_of_every_name(tmp_path: Path) -> None:
    for text in NAMES:
        (tmp_path / text).touch()
    (tmp_path / os.fsdecode(b"not \xff utf-8")).touch()
    listing = list_partition(tmp_path)
    assert listing.base_offsets.tolist() == [0, 2**63 - 1]
    assert listing.flags.tolist() == [HAS_LOG, HAS_LOG]
    assert listing.snapshots.tolist() == [7]
    assert listing.orphans.tolist() == [7]
    assert listing.orphan_flags.tolist() == [
        HAS_INDEX | HAS_TIME_INDEX | HAS_TXN_INDEX | HAS_SNAPSHOT]
    others = {text: kind for text, (kind, _) in NAMES.items() if kind > FileClass.SNAPSHOT}
    others[os.fsdecode(b"not \xff utf-8")] = FileClass.FOREIGN
    assert listing.others == sorted(others.items())
    assert listing.other_count == len(others)


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    (tmp_path / name(0, ".log")).mkdir()
    (tmp_path / name(1, ".log")).symlink_to("/dev/zero")
    os.mkfifo(tmp_path / name(2, ".log"))
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.open(tmp_path, os.O_RDONLY)
        bound.bind(f"/proc/self/fd/{here}/{name(3, '.log')}")
        os.close(here)
    listing = list_partition(tmp_path)
    assert len(listing.base_offsets) == 0
    assert [kind for _, kind in listing.others] == [
        FileClass.DIRECTORY, FileClass.LINK, FileClass.SPECIAL, FileClass.SPECIAL]


def test_many_numbers_come_out_sorted_and_merged(tmp_path: Path) -> None:
    rng = random.Random(1)
    numbers = {rng.choice([rng.randrange(2**63), rng.randrange(1000)]) for _ in range(700)}
    wanted = {}
    for number in numbers:
        suffixes = rng.sample([".index", ".timeindex", ".txnindex", ".snapshot"], rng.randrange(5))
        for suffix in [".log", *suffixes]:
            (tmp_path / name(number, suffix)).touch()
        bits = {".index": 2, ".timeindex": 4, ".txnindex": 8, ".snapshot": 16}
        wanted[number] = 1 | sum(bits[s] for s in suffixes)
    listing = list_partition(tmp_path)
    assert listing.base_offsets.tolist() == sorted(wanted)
    assert listing.flags.tolist() == [wanted[n] for n in sorted(wanted)]
    assert listing.others == []


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.touch()])
def test_a_directory_that_is_none(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "x")
    with pytest.raises(KafkaStorageError):
        list_partition(tmp_path / "x")
    with pytest.raises(KafkaStorageError):
        check_segments(tmp_path / "x", np.array([0]), np.array([1], np.uint8))


# ---- checks -----------------------------------------------------------------------------------


def segment(directory: Path, base: int, *, log: int = 4096, index: bytes = b"",
            times: bytes = b"", txns: bytes | None = None) -> None:
    (directory / name(base, ".log")).write_bytes(b"\1" * log)
    (directory / name(base, ".index")).write_bytes(index)
    (directory / name(base, ".timeindex")).write_bytes(times)
    if txns is not None:
        (directory / name(base, ".txnindex")).write_bytes(txns)


def check(directory: Path, level: CheckLevel = CheckLevel.FULL) -> SegmentChecks:
    listing = list_partition(directory)
    return check_segments(directory, listing.base_offsets, listing.flags, level)


def problems(checks: SegmentChecks) -> list[tuple[int, FileClass, Status, int]]:
    return [(int(p["row"]), FileClass(p["file"]), Status(p["status"]), int(p["position"]))
            for p in checks.problems]


def offsets(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *e) for e in entries)


def times(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *e) for e in entries)


def txns(*last_offsets: int, version: int = 0) -> bytes:
    return b"".join(struct.pack(">hqqqq", version, 1, 0, o, o + 1) for o in last_offsets)


def test_sound_segments(tmp_path: Path) -> None:
    segment(tmp_path, 0, index=offsets((10, 100), (20, 200)),
            times=times((5, 10), (6, 10), (7, 20)))
    segment(tmp_path, 30, log=10, txns=txns(30, 35))
    for level in CheckLevel:
        checks = check(tmp_path, level)
        assert problems(checks) == [] and checks.status.tolist() == [0, 0]
        assert checks.log_size.tolist() == [4096, 10]
        assert checks.txn_index_size.tolist() == [-1, 68]
        full = level == CheckLevel.FULL
        assert checks.index_size.tolist() == ([16, 0] if full else [-1, -1])
        assert checks.time_index_size.tolist() == ([36, 0] if full else [-1, -1])
        assert checks.mtime_ms.tolist() == [
            os.stat(tmp_path / name(n, ".log")).st_mtime_ns // 1_000_000 for n in (0, 30)]


INDEX, TIME, TXN = FileClass.INDEX, FileClass.TIME_INDEX, FileClass.TXN_INDEX
BAD: dict[str, tuple[dict[str, bytes], FileClass, Status, int]] = {
    "odd size": ({"index": offsets((1, 1)) + b"xyz"}, INDEX, Status.INDEX_SIZE, 8),
    "offset equal": ({"index": offsets((1, 1), (1, 2))}, INDEX, Status.INDEX_OFFSET_ORDER, 8),
    "offset back": ({"index": offsets((9, 1), (2, 2))}, INDEX, Status.INDEX_OFFSET_ORDER, 8),
    "position equal": ({"index": offsets((1, 9), (2, 9))}, INDEX, Status.INDEX_POSITION_ORDER, 12),
    "position back": ({"index": offsets((1, 9), (2, 4))}, INDEX, Status.INDEX_POSITION_ORDER, 12),
    "offset of the next segment": (
        {"index": offsets((30, 1))}, INDEX, Status.INDEX_OFFSET_RANGE, 0),
    "negative offset": ({"index": offsets((-1, 1))}, INDEX, Status.INDEX_OFFSET_RANGE, 0),
    "position at the end": (
        {"index": offsets((1, 4096))}, INDEX, Status.INDEX_POSITION_RANGE, 4),
    "negative position": ({"index": offsets((1, -4))}, INDEX, Status.INDEX_POSITION_RANGE, 4),
    "zeros alone": ({"index": bytes(8000)}, INDEX, Status.INDEX_UNWRITTEN, 0),
    "zeros behind": ({"index": offsets((1, 1)) + bytes(80)}, INDEX, Status.INDEX_PADDED, 8),
    "zeros between": (
        {"index": offsets((1, 1)) + bytes(16) + offsets((2, 2))},
        INDEX, Status.INDEX_OFFSET_ORDER, 8),
    "zeros in front": (
        {"index": bytes(24) + offsets((2, 2))}, INDEX, Status.INDEX_OFFSET_ORDER, 8),
    "time equal": ({"times": times((5, 1), (5, 2))}, TIME, Status.INDEX_TIME_ORDER, 12),
    "time negative": ({"times": times((-1, 1))}, TIME, Status.INDEX_TIME_ORDER, 0),
    "time offset back": ({"times": times((5, 2), (6, 1))}, TIME, Status.INDEX_OFFSET_ORDER, 20),
    "time offset out": ({"times": times((5, 30))}, TIME, Status.INDEX_OFFSET_RANGE, 8),
    "time odd size": ({"times": times((5, 1)) + b"x"}, TIME, Status.INDEX_SIZE, 12),
    "time zeros alone": ({"times": bytes(24)}, TIME, Status.INDEX_UNWRITTEN, 0),
    "time zeros behind": ({"times": times((5, 1)) + bytes(12)}, TIME, Status.INDEX_PADDED, 12),
    "txn torn": ({"txns": txns(3) + b"torn"}, TXN, Status.TXN_SIZE, 34),
    "txn order": ({"txns": txns(5, 5)}, TXN, Status.TXN_OFFSET, 34 + 18),
    "txn low": ({"txns": txns(-1)}, TXN, Status.TXN_OFFSET, 18),
    "txn version": ({"txns": txns(3, version=256)}, TXN, Status.TXN_VERSION, 0),
    "txn version, low byte": ({"txns": txns(3, version=1)}, TXN, Status.TXN_VERSION, 0),
}
KAFKA_SEES = {"txn low", "txn version"}


@pytest.mark.parametrize("case", BAD)
def test_each_fault_has_its_own_status_and_position(tmp_path: Path, case: str) -> None:
    files, file, status, position = BAD[case]
    segment(tmp_path, 0, **files)  # type: ignore[arg-type]
    segment(tmp_path, 30)
    checks = check(tmp_path)
    assert problems(checks) == [(0, file, status, position)]
    assert checks.status.tolist() == [status, 0]
    kafka = problems(check(tmp_path, CheckLevel.KAFKA))
    assert kafka == ([(0, file, status, position)] if case in KAFKA_SEES else [])


def test_one_time_entry_of_zeros_is_legal(tmp_path: Path) -> None:
    segment(tmp_path, 0, times=times((0, 0)))
    segment(tmp_path, 30, times=times((0, 0), (1, 2)))
    assert problems(check(tmp_path)) == []


def test_an_index_of_many_buffers(tmp_path: Path) -> None:
    """Padding and order are seen also across the buffers that a large index is read through."""
    good = offsets(*((n, n) for n in range(1, 60_001)))
    for data, wanted in ((good, []), (good + bytes(8 * 30_000), [Status.INDEX_PADDED]),
                         (good + offsets((60_001, 60_001), (4, 4)), [Status.INDEX_OFFSET_ORDER])):
        segment(tmp_path, 0, log=100_000, index=data)
        assert [p[2] for p in problems(check(tmp_path))] == wanted


def write_sparse(path: Path, runs: list[tuple[int, bytes]], size: int, *, filled: bool) -> None:
    """Runs of bytes at positions of a file; what is between are holes, or zeros written out."""
    with open(path, "wb") as stream:
        if filled:
            stream.write(bytes(size))
        for position, data in runs:
            stream.seek(position)
            stream.write(data)
        stream.truncate(size)


@pytest.mark.parametrize("seed", range(12))
def test_holes_are_zeros(tmp_path: Path, seed: int) -> None:
    """An index says the same whether its zeros are holes or bytes, wherever they are."""
    rng = random.Random(seed)
    told = []
    size = rng.choice((rng.randrange(0, 400_000), 10 << 20, (10 << 20) - 4, 8 * 50_000))
    runs = {}
    for suffix, width in ((".index", 8), (".timeindex", 12)):
        good = (offsets(*((n, n) for n in range(1, 3001))) if width == 8 else
                times(*((n, n) for n in range(1, 3001))))
        runs[suffix] = [(0, good[:width * rng.randrange(0, 3001)])] if rng.random() < .8 else []
        for _ in range(rng.choice((0, 0, 1, 3))):
            position = rng.randrange(0, size + 1)
            runs[suffix].append((position, rng.randbytes(rng.choice((1, 8, 5000)))))
    for filled in (False, True):
        root = tmp_path / str(filled)
        root.mkdir()
        segment(root, 0, log=100_000)
        segment(root, 2_000_000)
        for suffix, written in runs.items():
            write_sparse(root / name(0, suffix), written, size, filled=filled)
        checks = check(root)
        told.append([(row, tuple(problem)) for row, problem in zip(
            checks.problems["row"].tolist(), checks.problems.tolist(), strict=True)])
    assert told[0] == told[1]


def test_sparse_indexes_are_not_read(tmp_path: Path) -> None:
    """As many as active segments of a broker: 4 GiB of zeros that no disk has."""
    for base in range(200):
        segment(tmp_path, base)
        for suffix in (".index", ".timeindex"):
            os.truncate(tmp_path / name(base, suffix), 10 << 20)
    if os.stat(tmp_path / name(0, ".index")).st_blocks:
        pytest.skip("this file system has no holes: set TMPDIR to another one")
    started = time.process_time()
    statuses = {Status(status) for status in check(tmp_path).problems["status"]}
    assert statuses == {Status.INDEX_UNWRITTEN, Status.INDEX_SIZE}
    assert time.process_time() - started < 1  # 20 s when they are read


def test_an_oversized_log_and_a_missing_index(tmp_path: Path) -> None:
    segment(tmp_path, 0)
    os.truncate(tmp_path / name(0, ".log"), 2**31)
    segment(tmp_path, 5)
    os.truncate(tmp_path / name(5, ".log"), 2**31 - 1)
    (tmp_path / name(5, ".index")).unlink()
    for level in CheckLevel:
        checks = check(tmp_path, level)
        assert [(p["row"], p["file"], p["status"]) for p in checks.problems] == [
            (0, FileClass.LOG, Status.FILE_TOO_LARGE), (1, INDEX, Status.FILE_MISSING)]
        assert checks.problems["found"][0] == 2**31


def test_files_that_vanish_or_change_kind_after_the_listing(tmp_path: Path) -> None:
    for base in range(0, 60, 10):
        segment(tmp_path, base, txns=b"")
    listing = list_partition(tmp_path)
    (tmp_path / name(0, ".log")).unlink()
    (tmp_path / name(10, ".log")).unlink()
    (tmp_path / name(10, ".log")).symlink_to(name(20, ".log"))
    (tmp_path / name(20, ".index")).unlink()
    (tmp_path / name(30, ".timeindex")).unlink()
    os.mkfifo(tmp_path / name(30, ".timeindex"))
    (tmp_path / name(40, ".txnindex")).unlink()
    (tmp_path / name(40, ".txnindex")).symlink_to("/dev/zero")
    checks = check_segments(tmp_path, listing.base_offsets, listing.flags, CheckLevel.FULL)
    assert [p[:3] for p in problems(checks)] == [
        (0, FileClass.LOG, Status.FILE_MISSING), (1, FileClass.LOG, Status.FILE_KIND),
        (2, INDEX, Status.FILE_MISSING), (3, TIME, Status.FILE_KIND), (4, TXN, Status.FILE_KIND)]


def test_an_index_that_may_not_be_read(tmp_path: Path) -> None:
    segment(tmp_path, 0)
    assert problems(check(tmp_path)) == []
    (tmp_path / name(0, ".index")).chmod(0)
    with without_rights(tmp_path):
        assert [p[:3] for p in problems(check(tmp_path))] == [(0, INDEX, Status.IO)]


def test_a_chunk_knows_where_the_next_segment_begins(tmp_path: Path) -> None:
    segment(tmp_path, 0, index=offsets((30, 1)))
    base, flags = np.array([0]), np.array([ALL], np.uint8)
    assert len(check_segments(tmp_path, base, flags, CheckLevel.FULL).problems) == 0
    for end, found in ((30, 1), (31, 0)):
        checks = check_segments(tmp_path, base, flags, CheckLevel.FULL, end_offset=end)
        assert len(checks.problems) == found


def test_more_segments_than_a_slice(tmp_path: Path) -> None:
    count = 4096 * 2 + 5
    (tmp_path / name(0, ".log")).write_bytes(b"x" * 9)
    for base in range(1, count):
        os.link(tmp_path / name(0, ".log"), tmp_path / name(base, ".log"))
    checks = check(tmp_path, CheckLevel.KAFKA)
    assert checks.log_size.tolist() == [9] * count
    assert checks.problems["row"].tolist() == list(range(count))
    assert set(checks.status.tolist()) == {Status.FILE_MISSING}


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    segment(tmp_path, 0, txns=txns(1))
    for _ in range(50):
        check(tmp_path)
        with pytest.raises(KafkaStorageError):
            list_partition(tmp_path / "none")
    assert not open_files(tmp_path)


@pytest.mark.slow
def test_an_index_that_is_appended_to_while_it_is_checked(tmp_path: Path) -> None:
    """The broker writes the log before the index: no order of reads may call that damage."""
    log, index = tmp_path / name(0, ".log"), tmp_path / name(0, ".index")
    segment(tmp_path, 0, log=0)

    def broker() -> None:
        with log.open("ab", buffering=0) as data, index.open("ab", buffering=0) as entries:
            # Every check reads the whole index, so one that grew without end would take for ever.
            for number in range(1, 30_000):
                position = data.tell()
                data.write(bytes(100))
                if position:
                    entries.write(struct.pack(">ii", number, position))

    writer = threading.Thread(target=broker)
    writer.start()
    found = []
    while writer.is_alive():
        found += problems(check(tmp_path))
    writer.join()
    assert found == []


# ---- ends

def ends_of(directory: Path) -> list[tuple[int, int]]:
    found = list_partition(directory)
    columns = segment_ends(directory, found.base_offsets, found.flags)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def ends_of_segments(directory: Path) -> list[tuple[int, int]]:
    # One file at a time: what the cache of a test holds stays open until it is found to be garbage,
    # and PySpark's server stops to answer in a process with over 1,024 open files.
    segments = read_directory(str(directory), HandleCache(1)).segments
    return [(one.size, one.read_next_offset()) for one in segments]


def test_ends_of_what_kafka_wrote(golden: Path) -> None:
    for partition in sorted((golden / "real" / "clean").glob("*-[0-9]*")):
        assert ends_of(partition) == ends_of_segments(partition), partition


def damaged(draw: random.Random, path: Path) -> bytes:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice((0, 1, 2))):
        kind = draw.choice(("flip", "cut", "zeros", "none", "entry", "shift"))
        if kind == "flip" and data:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        elif kind == "cut":
            del data[draw.randrange(len(data) + 1):]
        elif kind == "zeros":
            data += bytes(draw.choice((1, 8, 17, 4096)))
        elif kind == "none":
            data.clear()
        elif kind == "entry" and path.suffix == ".index":
            data += offsets((draw.randrange(64), draw.randrange(1 << 15)))
        elif kind == "shift":
            data[:0] = data[:draw.randrange(1, 100)]
    return bytes(data)


@pytest.mark.parametrize("seed", range(8))
def test_ends_of_damaged_segments(golden: Path, tmp_path: Path, seed: int) -> None:
    """Those that the segments say one by one: the index counts only if batches prove it."""
    draw = random.Random(seed)
    for name_of in ("plain-none-0", "txn-0", "plain-zstd-0"):
        for number in range(8):
            copy = tmp_path / f"{number}" / name_of
            copy.mkdir(parents=True)
            for path in (golden / "real" / "clean" / name_of).iterdir():
                data = damaged(draw, path) if path.suffix in (".log", ".index") \
                    else path.read_bytes()
                (copy / path.name).write_bytes(data)
            assert ends_of(copy) == ends_of_segments(copy)


def test_an_end_that_only_the_segment_can_tell(golden: Path, tmp_path: Path) -> None:
    """A log that is gone, and one whose last offset none can follow."""
    source = golden / "real" / "clean" / "plain-none-0"
    log = bytearray(min(source.glob("*.log")).read_bytes())
    log[:8] = (2**63 - 1).to_bytes(8, "big")
    log[23:27] = bytes(4)  # last offset delta
    (tmp_path / name(0, ".log")).write_bytes(log[:12 + int.from_bytes(log[8:12], "big")])
    sizes, ends = segment_ends(tmp_path, np.array([0, 5]), np.array([1, 1], np.uint8))
    assert (sizes[0] > 0, sizes[1], ends.tolist()) == (True, -1, [-1, -1])
    with pytest.raises(ValueError, match="2 base offsets but 1 flags"):
        segment_ends(tmp_path, np.array([0, 5]), np.array([1], np.uint8))


def test_ends_of_an_empty_place_and_of_none(tmp_path: Path) -> None:
    none, flags = np.empty(0, np.int64), np.empty(0, np.uint8)
    assert [column.tolist() for column in segment_ends(tmp_path / "gone", none, flags)] == [[], []]
    (tmp_path / name(3, ".log")).touch()
    assert ends_of(tmp_path) == [(0, 3)]
    assert open_files(tmp_path) == []
