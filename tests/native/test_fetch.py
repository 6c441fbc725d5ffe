"""Reads by offset from one segment: Kafka's answers, by a model written from its sources."""

from __future__ import annotations

import os
import pickle
import random
import struct
from pathlib import Path

import pytest

from seglog._native.fetch import FetchDataInfo, LogOffsetMetadata, SegmentReader
from seglog.errors import CorruptRecordError, IllegalArgumentError, KafkaStorageError
from tests.native.test_index import search, write_offsets
from tests.support.held import open_files

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
    files = [str(tmp_path / "s" / name) for name in ("index", "log")]
    readers = [SegmentReader(*reversed(files), BASE) for _ in range(20)]
    assert open_files(tmp_path) == sorted(20 * files)
    del readers
    assert not open_files(tmp_path)


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
