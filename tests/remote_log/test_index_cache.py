"""Indexes of remote segments: their files, their bound, what a start finds."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import struct
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seglog.errors import (
    CorruptIndexError, IllegalStateError, KafkaStorageError, RemoteResourceNotFoundError,
)
from seglog.log.scheduler import MockTime
from seglog.model import AbortedTxn
from seglog.remote_log.index_cache import RemoteIndexCache, RemoteIndexes
from seglog.storage.txn_entries import encode_entries
from seglog.tiered import RemoteLogSegmentMetadata
from seglog.tiered.remote_storage import IndexType
from tests.remote_log.local_tiered_storage import text
from tests.remote_log.support import NOW_MS
from tests.remote_log.tiering import Tiering
from tests.support.synced import syncs
from tests.support.users import make_reachable

TTL_MS = 900_000
AN_INDEX = struct.pack(">ii", 1, 1 << 30)


@pytest.fixture
def tiering(tmp_path: Path) -> Iterator[Tiering]:
    made = Tiering(tmp_path)
    made.append(40)
    made.copy()
    yield made
    made.close()


def cache(tiering: Tiering, path: Path, size_max: int = 1 << 20,
          ttl_ms: int = TTL_MS) -> RemoteIndexCache:
    return RemoteIndexCache(str(path), tiering.storage, size_max, ttl_ms,
                            MockTime(current_time_ms=NOW_MS))


def names(made: RemoteIndexCache) -> set[str]:
    return {path.name for path in Path(made.path).iterdir()}


def test_files_have_kafkas_names(tiering: Tiering, tmp_path: Path) -> None:
    made = cache(tiering, tmp_path / "one")
    segment = tiering.segments()[1]
    indexes = made.get(segment)
    stem = f"{segment.start_offset}_{text(segment.remote_log_segment_id.id)}"
    assert names(made) == {f"{stem}.index", f"{stem}.timeindex", f"{stem}.txnindex"}
    assert indexes.position_of(segment.start_offset) == 0
    assert indexes.position_of(segment.end_offset) > 0
    assert indexes.position_of(indexes.offset_at(NOW_MS + segment.end_offset, 0)) > 0
    assert indexes.aborted_between(0, 1 << 62) == ([], False)
    assert made.size == indexes.size > 0
    assert made.get(segment) is indexes and tiering.storage.calls["index"] == 3


def indexes_with(path: Path, transactions: bytes) -> RemoteIndexes:
    paths = {kind: path / kind.name for kind in (
        IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.TRANSACTION)}
    for each in paths.values():
        each.write_bytes(transactions if each.name == "TRANSACTION" else b"")
    return RemoteIndexes({kind: str(each) for kind, each in paths.items()}, 0)


def test_the_search_for_aborted_transactions_ends_where_no_other_can_follow(tmp_path: Path) -> None:
    aborted = [AbortedTxn(1, 0, 9, 5), AbortedTxn(2, 5, 19, 20), AbortedTxn(3, 8, 29, 30)]
    indexes = indexes_with(tmp_path, encode_entries(aborted))
    assert indexes.aborted_between(0, 40) == (aborted, False)
    assert indexes.aborted_between(10, 31) == (aborted[1:], False)
    assert indexes.aborted_between(0, 20) == (aborted[:2], True)
    assert indexes.aborted_between(0, 6) == (aborted[:2], True)
    assert indexes.aborted_between(0, 5) == (aborted[:1], True)
    of_one_append = [AbortedTxn(1, 0, 9, 26), AbortedTxn(1, 10, 19, 26)]
    indexes = indexes_with(tmp_path, encode_entries(of_one_append))
    assert indexes.aborted_between(3, 10) == (of_one_append[:1], True)
    assert indexes.aborted_between(3, 11) == (of_one_append, True)


def test_a_large_transaction_index_becomes_no_objects(tmp_path: Path) -> None:
    content = encode_entries([AbortedTxn(1 << 40, 1 << 40, 1 << 40, 1 << 40)]) * 10_000
    tracemalloc.start()
    try:
        indexes = indexes_with(tmp_path, content)
        assert tracemalloc.get_traced_memory()[0] < 2 * indexes.size
    finally:
        tracemalloc.stop()


def test_size_bounds_it(tiering: Tiering, tmp_path: Path) -> None:
    segments = tiering.segments()
    each = cache(tiering, tmp_path / "one").get(segments[0]).size
    made = cache(tiering, tmp_path / "two", 3 * each)
    kept = made.get(segments[0])
    for segment in segments[1:]:
        made.get(segment)
        made.get(segments[0])
        assert made.size <= 3 * each and len(made) <= 3
    assert segments[0].remote_log_segment_id.id in made
    assert segments[1].remote_log_segment_id.id not in made
    assert len(names(made)) == 9
    made.resize(each)
    assert len(made) <= 1
    made.resize(1)
    assert len(made) == 0 and names(made) == set()
    assert kept.position_of(segments[0].end_offset) > 0, "a reader keeps what it has"
    assert made.get(segments[0]).size > 1, "one entry may be larger than all"


def test_more_segments_than_descriptors(tmp_path: Path) -> None:
    """In a process that may have 100: reads of 300 segments, and a start that finds their files."""
    subprocess.run([sys.executable, "-c", """
import io, resource, sys
from seglog.log.scheduler import Time
from seglog.remote_log.index_cache import RemoteIndexCache
from seglog.tiered.remote_records import (
    RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition)

class Storage:
    asked = 0
    def fetch_index(self, segment, kind):
        self.asked += 1
        return io.BytesIO(bytes([0, 0, 0, 1, 0, 0, 0, 9]) if kind.value == "offset" else b"")

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
key, storage = TopicIdPartition(bytes(16), "orders", 0), Storage()
segments = [RemoteLogSegmentMetadata(RemoteLogSegmentId(key, at.to_bytes(16, "big")), at, at + 1, 0,
                                     1, 0, 1000, {0: at}) for at in range(1, 301)]
for _ in range(2):
    made = RemoteIndexCache(sys.argv[1], storage, 1 << 20, -1, Time())
    for _ in range(2):
        for one in segments:
            assert made.get(one).position_of(one.end_offset) == 9
    assert len(made) == 300 and storage.asked == 900
    made.close()
""", str(tmp_path)], check=True)


def test_files_that_another_program_took_away(tiering: Tiering, tmp_path: Path) -> None:
    made, (first, *others) = cache(tiering, tmp_path / "one"), tiering.segments()
    position = made.get(first).position_of(first.end_offset)
    for segment in others:
        made.get(segment)
    for path in Path(made.path).iterdir():
        path.unlink()
    made._open.clear()
    assert made.get(first).position_of(first.end_offset) == position
    assert len(names(made)) == 3 and made.size == sum(one.size for one in made._entries.values())


def test_a_name_is_there_when_its_content_is_durable(tiering: Tiering, tmp_path: Path) -> None:
    """A power cut left names of empty files: without the transactions, aborted records were
    committed."""
    made = cache(tiering, tmp_path / "one")
    with syncs() as synced:
        made.get(tiering.segments()[1])
    durable = [content for path, content in synced if path.suffix == ".tmp"]
    contents = [path.read_bytes() for path in Path(made.path).iterdir()]
    assert sorted(filter(None, contents)) == sorted(filter(None, durable))  # type: ignore


def test_time_bounds_it(tiering: Tiering, tmp_path: Path) -> None:
    made = cache(tiering, tmp_path / "one")
    first, second, third = tiering.segments()[:3]
    clock = made._time
    made.get(first)
    clock.sleep(TTL_MS - 1)
    made.get(second)
    clock.sleep(2)
    made.get(third)
    assert first.remote_log_segment_id.id not in made
    assert second.remote_log_segment_id.id in made


def test_a_start_takes_over_what_is_whole(tiering: Tiering, tmp_path: Path) -> None:
    made = cache(tiering, tmp_path / "one")
    segments = tiering.segments()
    for segment in segments[:4]:
        made.get(segment)
    path = Path(made.path)
    stems = [f"{one.start_offset}_{text(one.remote_log_segment_id.id)}" for one in segments[:4]]
    made.close()
    with pytest.raises(IllegalStateError, match="already closed"):
        made.get(segments[0])
    (path / f"{stems[1]}.timeindex").unlink()
    (path / f"{stems[2]}.index").write_bytes(b"1234567")
    (path / "0_x.index.tmp").write_bytes(b"")
    (path / f"{stems[3]}.index.deleted").write_bytes(b"")
    (path / "strange_file.index").write_bytes(b"")
    calls = tiering.storage.calls["index"]
    again = cache(tiering, tmp_path / "one")
    assert len(again) == 2 and len(names(again)) == 6
    again.get(segments[0])
    again.get(segments[3])
    assert tiering.storage.calls["index"] == calls
    assert again.get(segments[2]).position_of(segments[2].end_offset) > 0
    assert tiering.storage.calls["index"] == calls + 3


def test_an_index_that_is_none(tiering: Tiering, tmp_path: Path) -> None:
    made = cache(tiering, tmp_path / "one")
    segment = tiering.segments()[0]
    stored = tiering.storage.path(segment, ".timeindex")
    whole = stored.read_bytes()
    stored.write_bytes(whole[:-1])
    with pytest.raises(CorruptIndexError, match="not a multiple of 12"):
        made.get(segment)
    assert names(made) == set() and len(made) == 0
    stored.unlink()
    with pytest.raises(RemoteResourceNotFoundError):
        made.get(segment)
    assert names(made) == set()
    stored.write_bytes(whole)
    assert made.get(segment).size > 0


def test_two_threads_download_once(tiering: Tiering, tmp_path: Path) -> None:
    made = cache(tiering, tmp_path / "one")
    segment, found, barrier = tiering.segments()[0], [], threading.Barrier(8)

    def get() -> None:
        barrier.wait(60)
        found.append(made.get(segment))

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 8 and len(set(map(id, found))) == 1
    assert tiering.storage.calls["index"] == 3


def kept(tiering: Tiering, path: Path) -> tuple[RemoteLogSegmentMetadata, Path, str]:
    """A segment whose indexes a cache in `path` has left, the directory and the stem."""
    made = cache(tiering, path)
    segment = tiering.segments()[1]
    made.get(segment)
    made.close()
    return segment, Path(made.path), \
        f"{segment.start_offset}_{text(segment.remote_log_segment_id.id)}"


def filled(path: Path) -> None:
    path.mkdir()
    (path / "kept").write_bytes(b"kept")


PLANTS = pytest.mark.parametrize("plant", [
    lambda path: path.mkdir(), filled, lambda path: os.mkfifo(path),
    lambda path: path.symlink_to("nowhere"), lambda path: path.symlink_to(path),
    lambda path: path.symlink_to(path.parents[1] / "outside"),
    lambda path: path.symlink_to(path.parents[1] / "outside directory"),
], ids=["directory", "filled directory", "pipe", "broken link", "link to itself", "link to a file",
        "link to a directory"])
NAMES = pytest.mark.parametrize("name", ["{}.index", "{}.txnindex", "{}.index.tmp", "x.deleted"])


def outside(path: Path) -> tuple[Path, Path]:
    """An index, and a directory with a file, that are none of the cache's."""
    path.mkdir(exist_ok=True)
    (path / "outside").write_bytes(AN_INDEX)
    (path / "outside directory").mkdir()
    (path / "outside directory" / "kept").write_bytes(b"kept")
    return path / "outside", path / "outside directory" / "kept"


def assert_right(made: RemoteIndexCache, segment: RemoteLogSegmentMetadata) -> None:
    indexes = made.get(segment)
    assert 0 < indexes.position_of(segment.end_offset) < segment.segment_size_in_bytes
    assert indexes.aborted_between(0, 1 << 62) == ([], False)
    assert made.get(segment) is indexes and made.size == indexes.size


@NAMES
@PLANTS
def test_a_start_finds_what_is_no_file(tiering: Tiering, tmp_path: Path, name: str,
                                       plant: Callable[[Path], None]) -> None:
    """A read of a pipe waits for a writer, and a directory cannot be deleted as a file. (In Kafka a
    directory fails the start, or each read of the segment.)"""
    kept_files = outside(tmp_path / "one")
    segment, path, stem = kept(tiering, tmp_path / "one")
    planted = path / name.format(stem)
    planted.unlink(missing_ok=True)
    plant(planted)
    is_filled = planted.is_dir() and not planted.is_symlink() and any(planted.iterdir())
    for _ in range(2):
        made = cache(tiering, tmp_path / "one")
        assert_right(made, segment)
        others = {each for each in path.iterdir() if each.is_symlink() or not each.is_file()}
        assert others == ({planted} if is_filled else set())
        assert len(names(made)) == 3 + is_filled
        made.close()
    assert all(each.exists() for each in kept_files)
    assert not is_filled or (planted / "kept").read_bytes() == b"kept"


@NAMES
@PLANTS
def test_a_download_finds_what_is_no_file(tiering: Tiering, tmp_path: Path, name: str,
                                          plant: Callable[[Path], None]) -> None:
    kept_files = outside(tmp_path / "one")
    segment = tiering.segments()[1]
    stem = f"{segment.start_offset}_{text(segment.remote_log_segment_id.id)}"
    made = cache(tiering, tmp_path / "one")
    plant(Path(made.path) / name.format(stem))
    assert_right(made, segment)
    assert all(each.exists() for each in kept_files) and kept_files[0].read_bytes() == AN_INDEX
    made.remove_all([segment.remote_log_segment_id.id])
    assert made.size == 0
    assert_right(made, segment)
    made.close()
    assert_right(cache(tiering, tmp_path / "one"), segment)


@contextlib.contextmanager
def no_superuser(path: Path) -> Iterator[None]:
    """Runs as another user, who owns `path`, where this one may read everything."""
    if os.geteuid() != 0:
        yield
        return
    make_reachable(path / "one")
    for each in (path, *path.rglob("*")):
        os.chown(each, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_start_finds_a_file_that_it_may_not_read(tiering: Tiering, tmp_path: Path) -> None:
    segment, path, stem = kept(tiering, tmp_path / "one")
    (path / f"{stem}.timeindex").chmod(0)
    with no_superuser(tmp_path):
        assert not os.access(path / f"{stem}.timeindex", os.R_OK, effective_ids=True)
        made = cache(tiering, tmp_path / "one")
        assert len(made) == 0 and names(made) == set()
        assert_right(made, segment)
        made.close()


@pytest.mark.parametrize("start", ["99999999999999999999", "-5", "010", "1_0", "٥", " 10", ""])
def test_a_start_finds_names_that_no_cache_writes(tiering: Tiering, tmp_path: Path, start: str
                                                  ) -> None:
    segment, path, stem = kept(tiering, tmp_path / "one")
    for kind in (".index", ".timeindex", ".txnindex"):
        (path / f"{stem}{kind}").rename(path / f"{start}_{stem.partition('_')[2]}{kind}")
    made = cache(tiering, tmp_path / "one")
    assert len(made) == 0 and made.size == 0 and names(made) == set()
    assert made.get(segment).position_of(segment.end_offset) > 0


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_start_finds_a_segment_under_another_offset(tiering: Tiering, tmp_path: Path,
                                                      is_alone: bool) -> None:
    """The file of the other offset answered for the segment, and stayed when that was dropped."""
    segment, path, stem = kept(tiering, tmp_path / "one")
    for kind in (".index", ".timeindex", ".txnindex"):
        (path / f"1_{stem.partition('_')[2]}{kind}").write_bytes((path / f"{stem}{kind}")
                                                                 .read_bytes())
        if is_alone:
            (path / f"{stem}{kind}").unlink()
    made = cache(tiering, tmp_path / "one")
    assert len(made) == 1 and len(names(made)) == 3
    assert made.get(segment).base_offset == segment.start_offset
    assert made.size == made.get(segment).size
    assert names(made) == {f"{stem}{kind}" for kind in (".index", ".timeindex", ".txnindex")}


def test_a_disk_that_is_full(tiering: Tiering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                             ) -> None:
    made, segment = cache(tiering, tmp_path / "one"), tiering.segments()[1]

    def full(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfileobj", full)
        with pytest.raises(KafkaStorageError, match="No space left"):
            made.get(segment)
    assert names(made) == set() and made.get(segment).size > 0


def test_a_download_that_fails_while_others_wait_for_it(tiering: Tiering, tmp_path: Path) -> None:
    """The waiting thread downloaded beside a later one, into the same files."""
    made, segment = cache(tiering, tmp_path / "one"), tiering.segments()[1]
    storage, fetch = tiering.storage, tiering.storage.fetch_index
    lock, inside, most, asked = threading.Lock(), 0, 0, 0
    begun, waits = threading.Event(), threading.Event()

    def slow(*given: object) -> object:
        nonlocal inside, most, asked
        with lock:
            inside, asked, number = inside + 1, asked + 1, asked
            most = max(most, inside)
        try:
            if number == 0:
                begun.set()
                waits.wait(60)
                raise RemoteResourceNotFoundError("not yet")
            if number == 1:
                third.start()
                third.join(0.2)  # it waits for this download
            return fetch(*given)
        finally:
            with lock:
                inside -= 1

    storage.fetch_index = slow
    found: list[object] = []

    def get() -> None:
        try:
            found.append(made.get(segment))
        except RemoteResourceNotFoundError:
            found.append(None)

    first, second, third = (threading.Thread(target=get) for _ in range(3))
    first.start()
    begun.wait(60)
    second.start()
    waits.set()
    for thread in (first, second, third):
        thread.join(60)
    assert most == 1 and sum(one is not None for one in found) == 2
    assert made.size == made.get(segment).size and len(names(made)) == 3


def test_a_segment_that_is_removed_during_its_download(
        tiering: Tiering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files stayed in the cache, where no later removal names them."""
    made, segment = cache(tiering, tmp_path / "one"), tiering.segments()[1]
    fetch = tiering.storage.fetch_index

    def remove_and_fetch(*given: object) -> object:
        monkeypatch.undo()
        made.remove_all([segment.remote_log_segment_id.id])
        return fetch(*given)

    monkeypatch.setattr(tiering.storage, "fetch_index", remove_and_fetch)
    found = made.get(segment)
    assert found.position_of(segment.end_offset) > 0, "the reader keeps what it has"
    assert names(made) == set() and len(made) == 0 and made.size == 0
    assert made.get(segment) is not found and len(names(made)) == 3, "only that download ends so"
