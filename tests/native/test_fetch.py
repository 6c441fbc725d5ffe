"""Reads by offset from one segment: Kafka's answers, by a model written from its sources."""

from __future__ import annotations

import os
import pickle
import random
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog._native.fetch import (
    FetchDataInfo, IndexReader, LogOffsetMetadata, SegmentReader,
)
from seglog.errors import CorruptRecordError, IllegalArgumentError, KafkaStorageError
from tests.native.test_index import search, write_offsets, write_times
from tests.support.effort import examples

BASE = 1000
HEADER = 61


def batch(base: int, last: int, size: int, *, magic: int = 2, length: int | None = None) -> bytes:
    """Only the fields that a walk over headers reads."""
    head = struct.pack(">qiibIhi", base, size - 12 if length is None else length, 0, magic, 0, 0,
                       last - base)
    return head + os.urandom(size - len(head))


def model(data: bytes, position: int, end: int, target: int) -> tuple[int, int, int] | None | str:
    """FileRecords.searchForOffsetFromPosition over FileLogInputStream, magic 2 only."""
    before = None
    while position < end - 17:
        base, length = struct.unpack_from(">qi", data, position)
        if length < 14:
            return "batch_length"
        size = length + 12
        if position > end - size:
            break
        here = base, position, size
        if base == target:
            return here
        if base > target:
            return before[0] if before and before[1] >= target else here
        if size < HEADER:
            return "batch_size"
        before = here, base + struct.unpack_from(">i", data, position + 23)[0]
        position += size
    return before[0] if before and before[1] >= target else None


def ask(reader: SegmentReader, target: int, size: int, entries: int) -> object:
    try:
        return reader.find(target, size, entries)
    except CorruptRecordError as error:
        return error.code


def make(path: Path, data: bytes, entries: list[tuple[int, int]]) -> SegmentReader:
    path.mkdir(exist_ok=True)
    (path / "log").write_bytes(data)
    write_offsets(path / "index", entries)
    return SegmentReader(path / "log", path / "index", BASE)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 682, 683, 1024, 1025, 1026, 5000, 20_000])
def test_index_searches_agree_with_the_oracle(tmp_path: Path, count: int) -> None:
    rng = random.Random(count)
    offsets = sorted(rng.sample(range(1, count * 7 + 2), count))
    positions = sorted(rng.sample(range(1, count * 50 + 2), count))
    times = sorted(rng.sample(range(count * 9 + 1), count))
    index = IndexReader(
        write_offsets(tmp_path / "i", list(zip(offsets, positions, strict=True))), BASE)
    time_index = IndexReader(
        write_times(tmp_path / "t", list(zip(times, offsets, strict=True))), BASE, times=True)
    assert index.entries == time_index.entries == count
    for used in {count, count // 2, max(0, count - 1)}:
        for target in [rng.randrange(-5, count * 50 + 5) for _ in range(100)]:
            slot = search(offsets[:used], 8, target)[0]
            wanted = (BASE + offsets[slot], positions[slot]) if slot >= 0 else (BASE, 0)
            assert index.lookup(BASE + target, used) == wanted
            slot = search(positions[:used], 8, target)[1]
            assert index.upper_bound(target, used) == (
                (BASE + offsets[slot], positions[slot]) if slot >= 0 else None)
            slot = search(times[:used], 12, target)[0]
            assert time_index.lookup(target, used) == (
                (times[slot], BASE + offsets[slot]) if slot >= 0 else (-1, BASE))


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(-2**31, 2**31 - 1), st.integers(-2**31, 2**31 - 1)),
                max_size=3000), st.integers(-2**31, 2**31 - 1))
def test_hostile_indexes_give_kafkas_slots(tmp_path_factory: pytest.TempPathFactory,
                                           entries: list[tuple[int, int]], target: int) -> None:
    path = tmp_path_factory.mktemp("index") / "i"
    index = IndexReader(write_offsets(path, entries), 0)
    slot = search([offset for offset, _ in entries], 8, target)[0]
    assert index.lookup(target) == (entries[slot] if slot >= 0 else (0, 0))
    slot = search([position for _, position in entries], 8, target)[1]
    assert index.upper_bound(target) == (entries[slot] if slot >= 0 else None)


def test_a_missing_index_is_one_without_entries(tmp_path: Path) -> None:
    index = IndexReader(tmp_path / "none", BASE)
    assert index.entries == 0
    assert index.lookup(BASE + 5) == (BASE, 0)
    assert index.upper_bound(0) is None


def test_an_index_that_was_cut_is_an_error(tmp_path: Path) -> None:
    index = IndexReader(write_offsets(tmp_path / "i", [(n, n) for n in range(5000)]), BASE)
    os.truncate(tmp_path / "i", 80)
    with pytest.raises(KafkaStorageError) as caught:
        index.lookup(BASE + 4000)
    assert caught.value.code == "file_shrank"


@pytest.mark.parametrize("seed", range(30))
def test_find_agrees_with_the_model(tmp_path: Path, seed: int) -> None:
    """Batches of all sizes with gaps between their offsets, and in the worse half damaged ones."""
    rng = random.Random(seed)
    data, entries, offset = bytearray(), [], BASE
    for _ in range(rng.randrange(60)):
        count = rng.choice([1, 1, 3, 40])
        size = rng.choice([61, 70, 500, 4096, 8192, 8191, 30_000])
        length = None
        if seed % 2:
            offset += rng.choice([0, 0, 0, -3])
            length = rng.choice([None] * 30 + [13, -1, 14, 20, 2**31 - 1])
        if rng.random() < 0.3:
            entries.append((offset + count - 1 - BASE, len(data)))
        data += batch(offset, offset + count - 1, size, length=length)
        offset += count + rng.choice([0, 0, 0, 7])
    if rng.random() < 0.4:
        del data[-rng.randrange(1, 100):]
    reader = make(tmp_path / "s", bytes(data), entries)
    for end in (len(data), rng.randrange(len(data) + 1)):
        for target in {BASE, offset, offset + 5, *(rng.randrange(BASE - 3, offset + 3)
                                                   for _ in range(100))}:
            used = rng.randrange(len(entries) + 1)
            slot = search([entry for entry, _ in entries[:used]], 8, target - BASE)[0]
            start = entries[slot][1] if slot >= 0 else 0
            assert ask(reader, target, end, used) == model(data, start, end, target)


def test_an_index_may_point_anywhere(tmp_path: Path) -> None:
    data = batch(BASE, BASE + 9, 100) + batch(BASE + 10, BASE + 19, 100)
    for position in (-5, 200, 10_000, 2**31 - 1):
        reader = make(tmp_path / str(position), data, [(1, position)])
        found = reader.find(BASE + 12, 200)
        assert found == ((BASE + 10, 100, 100) if position < 0 else None)


def test_old_messages_are_somebody_elses(tmp_path: Path) -> None:
    reader = make(tmp_path / "s", batch(BASE, BASE, 100, magic=1), [])
    with pytest.raises(CorruptRecordError) as caught:
        reader.find(BASE, 100)
    assert caught.value.code == "batch_magic"


def test_fetch_cuts_where_it_is_told_to(tmp_path: Path) -> None:
    rng, data, offset, starts = random.Random(1), bytearray(), BASE, []
    for _ in range(40):
        starts.append(len(data))
        data += batch(offset, offset + 4, rng.choice([80, 700, 9000]))
        offset += 5
    reader = make(tmp_path / "s", bytes(data), [(n * 5 + 4, starts[n]) for n in range(0, 40, 7)])
    whole = [*starts, len(data)]
    for _ in range(500):
        row = rng.randrange(40)
        first = whole[row + 1] - whole[row]
        limit, min_one = rng.choice([0, 1, 60, 5000, 50_000, 10**9]), rng.random() < 0.5
        stop = whole[rng.randrange(row, 41)]
        found = reader.fetch(BASE + row * 5 + rng.randrange(5), len(data), -1, limit, stop, min_one)
        length = min(max(limit, first) if min_one else limit, stop - whole[row])
        assert found is not None
        assert found.fetch_offset_metadata == LogOffsetMetadata(BASE + row * 5, BASE, whole[row])
        assert found.records == bytes(data[whole[row]:whole[row] + length])
        assert found.first_entry_incomplete == ((max(limit, first) if min_one else limit) < first
                                                and limit > 0)
    nothing = reader.fetch(BASE, len(data), -1, 100, -1, True)
    assert nothing is not None and nothing.records == b""
    assert reader.fetch(offset, len(data), -1, 100, len(data), True) is None
    with pytest.raises(IllegalArgumentError, match="Invalid size: -"):
        reader.fetch(BASE + 5, len(data), -1, 100, 0, True)


def test_a_log_that_was_cut_is_an_error(tmp_path: Path) -> None:
    data = batch(BASE, BASE + 9, 100_000)
    reader = make(tmp_path / "s", data, [])
    os.truncate(tmp_path / "s" / "log", 50_000)
    with pytest.raises(KafkaStorageError):
        reader.fetch(BASE, len(data), -1, 10**6, len(data), True)
    with pytest.raises(KafkaStorageError):
        reader.read(0, len(data))


def test_links_and_directories_are_refused(tmp_path: Path) -> None:
    make(tmp_path / "s", b"", [])
    (tmp_path / "link").symlink_to(tmp_path / "s" / "log")
    for wrong in ("link", "s"):
        with pytest.raises(KafkaStorageError):
            SegmentReader(tmp_path / wrong, tmp_path / "s" / "index", BASE)
    with pytest.raises(KafkaStorageError):
        SegmentReader(tmp_path / "gone", tmp_path / "s" / "index", BASE)


def test_descriptors_end_with_the_object(tmp_path: Path) -> None:
    make(tmp_path / "s", b"", [])
    before = len(os.listdir("/proc/self/fd"))
    readers = [SegmentReader(tmp_path / "s" / "log", tmp_path / "s" / "index", BASE)
               for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before + 40
    del readers
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("count", [1, 60, 1000, 8192, 100_000])
def test_a_mapped_index_gives_what_the_file_gives(tmp_path: Path, count: int) -> None:
    """While a writer adds entries, and once it is detached and the file is cut."""
    rng = random.Random(count)
    path = write_offsets(tmp_path / "index", [(n * 3 + 2, n * 100) for n in range(count // 2)])
    by_file, by_map = IndexReader(path, BASE), IndexReader(path, BASE, mapped=count * 8)
    assert (by_file.mapped_bytes, by_map.mapped_bytes) == (0, count * 8)
    write_offsets(path, [(n * 3 + 2, n * 100) for n in range(count)])

    def check(used: int) -> None:
        for target in {0, 2, used * 3, used * 3 + 5, *(rng.randrange(used * 3 + 3)
                                                       for _ in range(60))}:
            assert by_map.lookup(BASE + target, used) == by_file.lookup(BASE + target, used)
            assert by_map.upper_bound(target * 30, used) == by_file.upper_bound(target * 30, used)

    used = max(1, count // 2)
    while used <= count:
        check(used)
        used += rng.choice([1, 2, 63, 64, 65, max(1, count // 5)])
    by_map.detach()
    by_map.detach()
    assert by_map.mapped_bytes == 0
    check(count)
    os.truncate(path, count // 3 * 8)
    check(count // 3)
    with pytest.raises(KafkaStorageError):
        by_map.lookup(BASE + count * 3, count)


def test_a_map_may_be_cut_while_threads_search_it(tmp_path: Path) -> None:
    """Each answer is that of the entries before the cut, or the file is too short. No SIGBUS."""
    count = 50_000
    path = write_offsets(tmp_path / "index", [(n, n) for n in range(count)])
    for _ in range(20):
        index, wrong, ready = IndexReader(path, 0, mapped=1), [], threading.Barrier(4)

        def search(index: IndexReader = index, wrong: list[object] = wrong,
                   ready: threading.Barrier = ready) -> None:
            rng = random.Random(threading.get_ident())
            ready.wait(60)
            try:
                while True:
                    target = rng.randrange(count)
                    if (found := index.lookup(target, count)) != (target, target):
                        wrong.append((target, found))
            except KafkaStorageError:
                pass

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        ready.wait(60)
        index.detach()
        os.truncate(path, 8)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not wrong
        write_offsets(path, [(n, n) for n in range(count)])


def test_an_index_that_does_not_rise_is_searched_as_kafka_does(tmp_path: Path) -> None:
    rng = random.Random(3)
    entries = [(rng.randrange(5000), rng.choice([0, 100])) for _ in range(3000)]
    reader = make(tmp_path / "s", batch(BASE + 10**6, BASE + 10**6, 70), entries)
    for _ in range(300):
        target = rng.randrange(5000)
        slot = search([offset for offset, _ in entries], 8, target)[0]
        position = entries[slot][1] if slot >= 0 else 0
        assert (reader.find(BASE + target, 70) is None) == (position > 0)


def test_places_are_values() -> None:
    place = LogOffsetMetadata(5, 3, 100)
    assert place == LogOffsetMetadata(5, 3, 100) == pickle.loads(pickle.dumps(place))
    assert hash(place) == hash(LogOffsetMetadata(5, 3, 100))
    assert place != LogOffsetMetadata(5) and place != (5, 3, 100)
    assert str(place) == "(offset=5, segment=[3:100])"
    assert LogOffsetMetadata(5).message_offset_only and not place.message_offset_only
    assert place.on_older_segment(LogOffsetMetadata(5, 4, 0))
    assert not place.on_older_segment(LogOffsetMetadata(9))
    with pytest.raises(AttributeError):
        place.message_offset = 1  # type: ignore[misc]
    info = FetchDataInfo(place, b"abc")
    assert (info.records, info.first_entry_incomplete, info.aborted_transactions) == (
        b"abc", False, None)
