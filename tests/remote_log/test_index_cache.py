"""Indexes of remote segments: their files, their bound, what a start finds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog.errors import CorruptIndexError, IllegalStateError, RemoteResourceNotFoundError
from seglog.log.scheduler import MockTime
from seglog.remote_log.index_cache import RemoteIndexCache
from tests.remote_log.local_tiered_storage import text
from tests.remote_log.support import NOW_MS
from tests.remote_log.tiering import Tiering

TTL_MS = 900_000


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
    assert indexes.position_at(NOW_MS + segment.end_offset, 0) > 0
    assert indexes.aborted == [] and made.size == indexes.size > 0
    assert made.get(segment) is indexes and tiering.storage.calls["index"] == 3


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
