"""Descriptors, memory, threads, and the promise that reading changes nothing."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import pickle
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog._native.columns import RecordColumns, live_columns
from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.storage import handles
from seglog.storage.log_store import FileHandle
from seglog.storage.handles import HandleCache
from seglog.storage.partition_log import PartitionLog
from seglog.storage.prefetch import Ending
from seglog.storage.ranges import LogRange
from seglog.storage.stream import _Source
from tests.oracle.batch import Batch, Record, encode
from tests.oracle.builder import Shape, build_log
from tests.oracle.writer import LogConfig
from tests.support.golden import fingerprint
from tests.support.held import open_files, threads_since
from tests.support.reading import project, read_rows
from tests.support.waiting import wait_for


FILES_WANTED = handles.SEGMENTS_OPEN_MAX * handles.FILES_PER_SEGMENT


def batch(offset: int, size: int = 10, *, count: int = 3) -> bytes:
    records = [Record(offset + n, 1000 + offset + n, b"k", bytes([n]) * size) for n in range(count)]
    return encode(Batch(offset, count - 1, records, base_timestamp=1000 + offset,
                        max_timestamp=1000 + offset + count - 1))


def write_segments(path: Path, count: int) -> None:
    path.mkdir()
    for n in range(count):
        (path / f"{3 * n:020d}.log").write_bytes(batch(3 * n))
        (path / f"{3 * n:020d}.index").write_bytes(b"")
        (path / f"{3 * n:020d}.timeindex").write_bytes(b"")


@pytest.mark.judge
def test_many_segments_under_a_small_descriptor_limit(tmp_path: Path) -> None:
    """In a process that may have 64 descriptors: 2,000 segments, every reader, four threads."""
    write_segments(tmp_path / "many-0", 2000)
    code = """
import sys, resource, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from seglog import PartitionLog
log = PartitionLog.open(sys.argv[1])
def read(threads):
    rows = sum(columns.num_rows for columns in log.to_arrow(columns=["offset"], threads=threads))
    assert rows == 6000, rows
for threads in (0, 3): read(threads)
workers = [threading.Thread(target=read, args=(0,)) for _ in range(4)]
for worker in workers: worker.start()
for worker in workers: worker.join()
assert sum(1 for _ in log.batches()) == 2000
assert log.offset_for_timestamp(6500).offset == 5500
assert log.fetch(5000, 100).records
assert sum(r.size for r in log.ranges(1 << 20)) > 0
print("read")
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "many-0")],
                          capture_output=True, text=True)
    assert done.stdout == "read\n", done.stderr


def test_nothing_is_open_before_it_is_used_and_little_afterwards(tmp_path: Path) -> None:
    write_segments(tmp_path / "many-0", 200)
    log = PartitionLog.open(tmp_path / "many-0", max_open_segments=4)
    assert len(list(log.segments)) == 200 and len(open_files(tmp_path)) <= 1
    assert sum(columns.num_rows for columns in log.to_arrow()) == 600
    assert 0 < len(open_files(tmp_path)) <= 4 * handles.FILES_PER_SEGMENT
    log.close()
    assert not open_files(tmp_path)


def test_the_cache_keeps_what_is_pinned(tmp_path: Path) -> None:
    names = []
    for n in range(6):
        (tmp_path / str(n)).write_bytes(b"x" * n)
        names.append(str(tmp_path / str(n)))
    cache = HandleCache(2)
    owner = cache.new_owner()
    with cache.pin((owner, names[0]), FileHandle) as first:
        for name in names[1:]:
            with cache.pin((owner, name), FileHandle) as handle:
                assert handle.size == int(Path(name).name)
        assert len(cache) <= 3 and os.fstat(first.fd).st_size == 0
        with cache.pin((owner, names[0]), FileHandle) as again:
            assert again is first
        cache.forget(owner)
        assert os.fstat(first.fd).st_size == 0  # still in use
    assert first.fd == -1 and len(cache) == 0
    with pytest.raises(ValueError):
        HandleCache(0)
    assert HandleCache(1).files_max == 1


@pytest.mark.parametrize(("number", "held"), [
    (errno.EMFILE, [1, 0]), (errno.ENFILE, [1, 0]), (errno.EIO, [1])])
def test_an_open_without_free_descriptors_closes_idle_files(
        tmp_path: Path, number: int, held: list[int]) -> None:
    """And tries again. Any other error is the caller's."""
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(name.encode())
    cache, tried = HandleCache(10), list[int]()
    owner = cache.new_owner()
    with cache.pin((owner, str(tmp_path / "one")), FileHandle):
        pass

    def opener(path: str) -> FileHandle:
        tried.append(len(cache))
        if len(tried) == 1:
            raise KafkaStorageError(number, "refused", path)
        return FileHandle(path)

    refused = pytest.raises(KafkaStorageError, match="refused") if len(held) == 1 \
        else contextlib.nullcontext()
    with refused, cache.pin((owner, str(tmp_path / "two")), opener) as handle:
        assert handle.read(3, 0) == b"two"
    assert tried == held and len(cache) == 1
    cache.forget(owner)


@pytest.mark.parametrize(("limit", "expected"), [
    (resource.RLIM_INFINITY, FILES_WANTED), (4 * FILES_WANTED + 4, FILES_WANTED),
    (400, 100), (0, handles.FILES_PER_SEGMENT)])
def test_the_cache_leaves_descriptors_to_others(
        monkeypatch: pytest.MonkeyPatch, limit: int, expected: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, resource.RLIM_INFINITY))
    assert handles._files_max() == expected


def test_segments_take_little_memory(tmp_path: Path) -> None:
    """The columns of a listing, and no object per segment."""
    write_segments(tmp_path / "many-0", 500)
    segments = PartitionLog.open(tmp_path / "many-0").segments
    assert (segments.base_offsets.nbytes + segments.flags.nbytes) / len(segments) < 30
    assert segments.sizes().tolist() == [len(batch(0))] * 500
    assert segments[0].base_offset == 0
    assert segments.last is not None and segments.last.base_offset == 3 * 499
    assert segments.floor(-1) is None and segments.floor(3 * 499 + 10) is not None
    assert [s.base_offset for s in segments.values(4, 10)] == [3, 6, 9]
    assert list(segments.values(7, 7)) == []
    with pytest.raises(ValueError, match="Invalid log segment range"):
        segments.rows(9, 8)
    assert segments[-1].base_offset == 3 * 499 and len(segments[3:9:2]) == 3


def test_reading_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    for n, shape in enumerate([Shape(batches=60), Shape(batches=40, clean=False)]):
        built = build_log(root / f"topic-{n}", 30 + n, shape)
        for suffix in (".index", ".timeindex"):
            (built.path / f"{built.segments[0]:020d}{suffix}").unlink()
        (built.path / "leader-epoch-checkpoint").unlink()
    before = fingerprint(root)
    for path in root.iterdir():
        path.chmod(0o555)
        log = PartitionLog.open(path)
        for isolation in ("read_uncommitted", "read_committed"):
            read_rows(log, isolation=isolation, threads=2)  # type: ignore[arg-type]
        list(log.batches())
        log.offset_for_timestamp(5)
        log.offset_for_timestamp(-3)
        log.fetch(log.log_start_offset, 10)
        assert list(log.leader_epochs) == [] and log.open_transactions is not None
        log.refresh()
        log.close()
        path.chmod(0o755)
    assert fingerprint(root) == before


def test_a_stream_that_is_never_ended_closes_its_files(tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seglog.storage.partition_log.RANGE_BYTES", 5000)
    built = build_log(tmp_path / "topic-0", 31, Shape(batches=200))
    gc.collect()
    live, running = live_columns(), set(threading.enumerate())
    log = PartitionLog.open(built.path)
    stream = log.to_arrow(threads=2, batch_rows=5)
    assert not threads_since(running)  # lazy
    first = next(stream)
    assert first.num_rows == 5 and len(threads_since(running)) == 2
    stream.close()
    assert not threads_since(running)
    with pytest.raises(StopIteration):
        next(stream)
    dropped = log.to_arrow(threads=2, batch_rows=5)
    next(dropped)
    capsule = log.to_arrow(threads=2).__arrow_c_stream__()
    del first, stream, dropped, capsule
    gc.collect()
    wait_for(lambda: not threads_since(running) and live_columns() <= live)


def test_a_stream_that_outlives_its_log_leaves_no_file_open(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that are about to open a file when the log is closed close it again."""
    write_segments(tmp_path / "topic-0", 60)
    running = set(threading.enumerate())

    class SlowHandle(FileHandle):
        def __init__(self, path: str) -> None:
            time.sleep(.01)
            super().__init__(path)

    monkeypatch.setattr("seglog.storage.log_store.FileHandle", SlowHandle)
    for threads in (2, 0):
        log = PartitionLog.open(tmp_path / "topic-0")
        log.log_end_offset  # noqa: B018  (opens what only the view needs)
        log.close()
        stream = log.to_arrow(threads=threads)
        next(stream)
        if threads:
            del stream
            log.close()
        else:
            log.close()
            next(stream)
            stream.close()
        wait_for(lambda: not threads_since(running) and not open_files(tmp_path))


def test_threads_decode_ahead_in_bounded_memory(tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that stops: at most threads + 1 ranges are decoded, each to its bound."""
    monkeypatch.setattr("seglog.storage.partition_log.RANGE_BYTES", 4000)
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "topic-0" / f"{0:020d}.log").write_bytes(
        b"".join(batch(3 * n, 300) for n in range(400)))
    gc.collect()
    live = live_columns()
    with PartitionLog.open(tmp_path / "topic-0").to_arrow(
            threads=2, batch_rows=2, batch_bytes=1000) as stream:
        rows = next(stream).num_rows
        time.sleep(.3)
        # Per range: up to batch_bytes of sets of two rows, one that waits, one being filled.
        assert live_columns() - live <= 3 * (1000 // 600 + 3) + 1
        assert rows + sum(columns.num_rows for columns in stream) == 1200


@pytest.mark.parametrize("segments", [1, 8, 9])
def test_threads_divide_a_small_log_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                           segments: int) -> None:
    """Each thread gets eight ranges or more. The sizes of many segments are not asked for."""
    monkeypatch.setattr("seglog.storage.partition_log.RANGE_BYTES", 1 << 18)
    (tmp_path / "topic-0").mkdir()
    for base in range(0, 150 * segments, 150):
        (tmp_path / "topic-0" / f"{base:020d}.log").write_bytes(
            b"".join(batch(base + 3 * n, 3000) for n in range(50)))
    decoded: list[int] = []
    decode = _Source.decode

    def counted(self: _Source, planned: LogRange, ending: Ending) -> Iterator[list[RecordColumns]]:
        decoded.append(planned.size)
        return decode(self, planned, ending)

    monkeypatch.setattr(_Source, "decode", counted)
    with PartitionLog.open(tmp_path / "topic-0") as log:
        assert sum(columns.num_rows for columns in log.to_arrow(threads=4)) == 150 * segments
    if segments > 8:
        assert len(decoded) == 2 * segments
    else:
        # The last range of a segment may be half as large again.
        assert max(decoded) <= 1.5 * max(sum(decoded) // 32, 1 << 15) + 10_000


def test_a_log_whose_directory_was_renamed_is_read_from_open_files(tmp_path: Path) -> None:
    write_segments(tmp_path / "topic-0", 3)
    with PartitionLog.open(tmp_path / "topic-0") as log:
        rows = read_rows(log)
        (tmp_path / "topic-0").rename(tmp_path / "topic-1")
        assert read_rows(log) == rows and read_rows(log, threads=2) == rows


def test_a_log_that_grows_while_it_is_read(tmp_path: Path) -> None:
    """A writer appends, byte by byte and by whole batches, and rolls: readers see a prefix."""
    path = tmp_path / "topic-0"
    path.mkdir()
    stop, written = threading.Event(), [0]

    def write() -> None:
        offset, base = 0, 0
        file = open(path / f"{0:020d}.log", "ab", buffering=0)
        while not stop.is_set() and offset < 30_000:
            data = batch(offset, offset % 97)
            for part in (data[:7], data[7:40], data[40:]):
                file.write(part)
            offset += 3
            written[0] = offset
            if offset - base >= 900:
                file.close()
                base = offset
                file = open(path / f"{base:020d}.log", "ab", buffering=0)
            time.sleep(0)
        file.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while written[0] < 300:
            time.sleep(.001)
        log = PartitionLog.open(path)
        for number in range(25):
            acknowledged = written[0]
            log.refresh()
            offsets = [row["offset"] for row in read_rows(
                log, columns=["offset"], threads=number % 3)]
            assert offsets == list(range(log.log_end_offset))
            assert log.log_end_offset >= acknowledged and log.gaps == ()
            assert log.last_stable_offset == log.log_end_offset
    finally:
        stop.set()
        writer.join()


def test_a_preallocated_log_that_grows_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "topic-0"
    path.mkdir()
    name = path / f"{0:020d}.log"
    with open(name, "wb") as file:
        file.truncate(1 << 20)
    stop, written = threading.Event(), [0]

    def write() -> None:
        with open(name, "r+b", buffering=0) as file:
            while not stop.is_set() and file.tell() < 900_000:
                file.write(batch(written[0], 200))
                written[0] += 3

    writer = threading.Thread(target=write)
    writer.start()
    try:
        log = PartitionLog.open(path)
        for _ in range(40):
            acknowledged = written[0]
            log.refresh()
            assert log.log_end_offset >= acknowledged
            offsets = [row["offset"] for row in read_rows(log, columns=["offset"])]
            assert offsets == list(range(log.log_end_offset)) and log.gaps == ()
    finally:
        stop.set()
        writer.join()


def test_a_file_that_vanishes_or_shrinks_is_a_typed_error(tmp_path: Path) -> None:
    built = build_log(tmp_path / "topic-0", 33, Shape(batches=80))
    log = PartitionLog.open(built.path)
    middle = built.path / f"{built.segments[2]:020d}.log"
    content = middle.read_bytes()
    middle.unlink()
    got: list[Any] = []
    with pytest.raises(KafkaStorageError) as caught:
        for columns in log.to_arrow(columns=["offset"]):
            got += columns.to_pylists()["offset"]
    assert str(middle) in str(caught.value)
    assert got == [r["offset"] for r in built.rows(None, built.segments[2])]
    middle.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(content)
    with pytest.raises(KafkaStorageError):
        read_rows(PartitionLog.open(built.path))
    middle.unlink()
    middle.write_bytes(content)
    last = built.path / f"{built.segments[-1]:020d}.log"
    log.refresh()
    assert log.log_end_offset == built.log_end_offset
    os.truncate(last, 30)
    log.close()
    with pytest.raises((KafkaStorageError, CorruptDataError)):
        read_rows(log)
    log.refresh()
    assert log.log_end_offset == built.segments[-1]


def test_one_log_in_many_threads(tmp_path: Path) -> None:
    built = build_log(tmp_path / "topic-0", 34, Shape(
        batches=120, config=LogConfig(segment_bytes=4000)))
    log = PartitionLog.open(built.path, max_open_segments=1)
    want = {isolation: project(built.rows(isolation=isolation))
            for isolation in ("read_uncommitted", "read_committed")}
    failures: list[BaseException] = []

    def read(number: int) -> None:
        try:
            for isolation, rows in want.items():
                assert read_rows(log, isolation=isolation, threads=number % 2) == rows
                assert log.last_stable_offset == built.last_stable_offset
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    log.close()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_default_bound_fits_the_process() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = handles.SEGMENTS_OPEN_MAX * handles.FILES_PER_SEGMENT
    assert handles.shared_cache().files_max <= (
        most if limit == resource.RLIM_INFINITY else max(limit // 4, handles.FILES_PER_SEGMENT))


def test_a_pickled_cache_is_empty_or_that_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    cache = HandleCache(3)
    with cache.pin((cache.new_owner(), str(tmp_path / "one")), FileHandle):
        again = pickle.loads(pickle.dumps(cache))
    assert again is not cache and (again.files_max, len(again), len(cache)) == (3, 0, 1)
    assert pickle.loads(pickle.dumps(handles.shared_cache())) is handles.shared_cache()
    cache.forget(0)
