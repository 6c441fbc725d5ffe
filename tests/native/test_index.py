"""Searches in index files: Kafka's answers, by an oracle written from the reference."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog._native.index import (
    COPY_MAX, IndexReader, OffsetIndexView, TimeIndexView, read_aborted, search_entries,
)
from seglog._native.window import WindowSource
from seglog.errors import CorruptDataError, CorruptIndexError, KafkaStorageError
from tests.support.effort import examples
from tests.support.waiting import PATIENCE, wait_for

BASE = 1000


def search(keys: list[int], width: int, target: int) -> tuple[int, int]:
    """(lower, upper) slots: AbstractIndex.indexSlotRangeFor, step for step."""
    count = len(keys)
    if not count:
        return -1, -1
    hot = max(0, count - 1 - 8192 // width)
    if keys[hot] < target:
        lo, hi = hot, count - 1
    elif keys[0] > target:
        return -1, 0
    else:
        lo, hi = 0, hot
    while lo < hi:
        mid = (lo + hi + 1) // 2
        if keys[mid] == target:
            return mid, mid
        lo, hi = (lo, mid - 1) if keys[mid] > target else (mid, hi)
    return lo, -1 if lo == count - 1 else lo + 1


def write_offsets(path: Path, entries: list[tuple[int, int]], padding: int = 0) -> Path:
    path.write_bytes(b"".join(struct.pack(">ii", *e) for e in entries) + bytes(padding))
    return path


def write_times(path: Path, entries: list[tuple[int, int]], padding: int = 0) -> Path:
    path.write_bytes(b"".join(struct.pack(">qi", *e) for e in entries) + bytes(padding))
    return path


@pytest.mark.parametrize("count", [1, 2, 3, 682, 683, 684, 1023, 1024, 1025, 1026, 5000, 20_000])
def test_lookup_agrees_with_the_oracle_at_every_size(tmp_path: Path, count: int) -> None:
    rng = random.Random(count)
    offsets = sorted(rng.sample(range(1, count * 7), count))
    positions = sorted(rng.sample(range(1, count * 50), count))
    times = sorted(rng.sample(range(count * 9), count))
    index = OffsetIndexView(
        write_offsets(tmp_path / "i", list(zip(offsets, positions, strict=True))), BASE)
    time_index = TimeIndexView(
        write_times(tmp_path / "t", list(zip(times, offsets, strict=True))), BASE)
    keys = [BASE + o for o in offsets]
    probes = [*rng.choices(range(BASE, keys[-1] + 5), k=200), *keys[-3:], keys[0], keys[0] - 1]
    for target in probes:
        lower, _ = search(keys, 8, target)
        assert index.lookup(target) == ((BASE, 0) if lower < 0 else (keys[lower], positions[lower]))
    for target in [*rng.choices(range(times[-1] + 5), k=200), *times[-3:], times[0] - 1]:
        lower, _ = search(times, 12, target)
        assert time_index.lookup(target) == (
            (-1, BASE) if lower < 0 else (times[lower], keys[lower]))
    for target in [*rng.choices(range(positions[-1] + 5), k=200), *positions[-3:], positions[0]]:
        _, upper = search(positions, 8, target)
        assert index.upper_bound(target) == (
            None if upper < 0 else (keys[upper], positions[upper]))
    assert index.entries == time_index.entries == count
    assert index.holds_descriptor == (count * 8 > COPY_MAX)


@settings(max_examples=examples(300))
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=40),
       st.integers(-(2**63), 2**63 - 1))
def test_damaged_entries_give_the_slot_that_kafkas_search_gives(
        tmp_path_factory: pytest.TempPathFactory, relative: list[int], target: int) -> None:
    path = tmp_path_factory.mktemp("d") / "i"
    write_offsets(path, [(o, n + 1) for n, o in enumerate(relative)])
    keys = [BASE + o for o in relative]
    lower, _ = search(keys, 8, target)
    assert OffsetIndexView(path, BASE).lookup(target) == (
        (BASE, 0) if lower < 0 else (keys[lower], lower + 1))


@pytest.mark.parametrize("padding", [8 * 1, 8 * 511, 10_485_760 - 800])
def test_zeros_of_an_index_never_trimmed_are_no_entries(tmp_path: Path, padding: int) -> None:
    entries = [(n, n * 10) for n in range(1, 101)]
    index = OffsetIndexView(write_offsets(tmp_path / "i", entries, padding), BASE)
    assert index.entries == 100
    assert index.last_entry == (BASE + 100, 1000)
    assert index.lookup(2**62) == (BASE + 100, 1000)
    assert index.file_size == 800 + padding
    assert not index.holds_descriptor
    times = TimeIndexView(
        write_times(tmp_path / "t", entries, padding // 8 * 12), BASE)
    assert times.entries == 100 and times.last_entry == (100, BASE + 1000)


def test_one_time_entry_of_zeros_is_an_entry(tmp_path: Path) -> None:
    assert TimeIndexView(write_times(tmp_path / "t", [(0, 0)]), BASE).last_entry == (0, BASE)
    assert TimeIndexView(write_times(tmp_path / "u", [(0, 0)] * 2), BASE).entries == 0
    assert OffsetIndexView(write_offsets(tmp_path / "i", [(0, 0)]), BASE).entries == 0


def test_empty_missing_and_torn_files(tmp_path: Path) -> None:
    for data in (None, b"", b"\1\2\3"):
        path = tmp_path / "i"
        path.unlink(missing_ok=True)
        if data is not None:
            path.write_bytes(data)
        index, times = OffsetIndexView(path, BASE), TimeIndexView(path, BASE)
        assert (index.entries, index.last_entry, index.lookup(5)) == (0, (BASE, 0), (BASE, 0))
        assert (times.entries, times.last_entry, times.lookup(5)) == (0, (-1, BASE), (-1, BASE))
        assert index.upper_bound(0) is None
        assert index.file_size == (None if data is None else len(data))
    torn = write_offsets(tmp_path / "torn", [(1, 10), (2, 20)])
    with torn.open("ab") as file:
        file.write(b"\0\0\0")
    assert OffsetIndexView(torn, BASE).to_numpy().tolist() == [(BASE + 1, 10), (BASE + 2, 20)]


def test_nothing_is_opened_before_the_first_question(tmp_path: Path) -> None:
    view = OffsetIndexView(tmp_path / "later", BASE)
    assert not view.is_open
    write_offsets(tmp_path / "later", [(7, 70)])
    assert view.lookup(BASE + 9) == (BASE + 7, 70) and view.is_open
    view.close()
    assert not view.is_open
    write_offsets(tmp_path / "later", [(7, 70), (8, 80)])
    assert view.lookup(BASE + 9) == (BASE + 8, 80)


def test_a_large_index_that_shrinks_is_opened_again(tmp_path: Path) -> None:
    entries = [(n, n) for n in range(1, 40_000)]
    path = write_offsets(tmp_path / "i", entries, padding=mmap.PAGESIZE * 40)
    view = OffsetIndexView(path, BASE)
    assert view.lookup(2**60) == (BASE + 39_999, 39_999) and view.holds_descriptor
    os.truncate(path, 39_999 * 8)  # what a running broker does: it trims the zeros
    assert view.lookup(2**60) == (BASE + 39_999, 39_999)
    os.truncate(path, 20_000 * 8)  # what a reset does
    assert view.lookup(2**60) == (BASE + 20_000, 20_000)
    os.truncate(path, 0)
    assert view.entries == 0


def test_an_index_that_is_cut_while_it_is_searched(tmp_path: Path) -> None:
    """A concurrent truncation crashes no reader, and every answer fits some size that the file
    had."""
    entries = [(n, n) for n in range(1, 20_001)]
    path = write_offsets(tmp_path / "i", entries)
    whole, done, seen = path.read_bytes(), threading.Event(), set()
    view = OffsetIndexView(path, BASE)

    def cut() -> None:
        while not done.is_set():
            os.truncate(path, 10_000 * 8)
            os.truncate(path, 0)
            with path.open("r+b") as file:
                file.write(whole)

    cutting = threading.Thread(target=cut)
    cutting.start()
    try:
        begun = time.monotonic()
        # For a second, and until the two threads have met.
        while (taken := time.monotonic() - begun) < 1 or len(seen) < 2 and taken < PATIENCE:
            view.close()
            with contextlib.suppress(KafkaStorageError, CorruptDataError):
                for _ in range(5):
                    seen.add(view.lookup(2**60))
                    view.upper_bound(77_777)
                    view.to_numpy()
    finally:
        done.set()
        cutting.join()
    view.close()
    assert view.lookup(2**60) == (BASE + 20_000, 20_000)
    assert all(key - BASE == value for key, value in seen) and len(seen) > 1


@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
def test_what_is_no_file_is_a_typed_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "i"
    match kind:
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to(write_offsets(tmp_path / "real", [(1, 1)]))
        case "fifo":
            os.mkfifo(path)
    for question in (OffsetIndexView(path, 0).lookup, TimeIndexView(path, 0).lookup):
        with pytest.raises(KafkaStorageError, match="not a regular file"):
            question(0)
    with pytest.raises(KafkaStorageError):
        read_aborted(path)


def test_an_index_larger_than_any_offset_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "i"
    path.touch()
    os.truncate(path, 2**31)
    with pytest.raises(CorruptDataError) as caught:
        OffsetIndexView(path, 0).lookup(0)
    assert (caught.value.code, caught.value.found) == ("limit", 2**31)


def txn(producer: int, first: int, last: int, stable: int, version: int = 0) -> bytes:
    return struct.pack(">hqqqq", version, producer, first, last, stable)


def test_aborted_transactions(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert len(read_aborted(path)) == 0
    path.write_bytes(txn(1, 2, 9, 10) + txn(2, 3, 12, 13) + b"torn")
    assert read_aborted(path).tolist() == [(1, 2, 9, 10, 0), (2, 3, 12, 13, 0)]
    path.write_bytes(txn(1, 2, 9, 10, version=255))  # Kafka checks only the first byte
    assert read_aborted(path)["version"].tolist() == [255]
    path.write_bytes(txn(1, 2, 9, 10) + txn(2, 3, 12, 13, version=256))
    with pytest.raises(CorruptIndexError) as caught:
        read_aborted(path)
    error = caught.value
    assert (error.code, error.position, error.found) == ("txn_version", 34, 256)


def test_every_golden_index(golden: Path) -> None:
    files = [*golden.glob("real/*/*/*.index"), *golden.glob("real/*/*/*.timeindex")]
    assert len(files) > 100
    for path in files:
        base, data = int(path.name[:20]), path.read_bytes()
        width, form = (8, ">ii") if path.suffix == ".index" else (12, ">qi")
        raw = [struct.unpack_from(form, data, at)
               for at in range(0, len(data) // width * width, width)]
        while raw and raw[-1] == (0, 0):
            raw.pop()
        view = (OffsetIndexView if width == 8 else TimeIndexView)(path, base)
        wanted = [(base + a, b) if width == 8 else (a, base + b) for a, b in raw]
        assert view.to_numpy().tolist() == wanted
        assert [view.lookup(key) for key, _ in wanted] == wanted
        assert np.all(np.diff([key for key, _ in wanted]) > 0)


@pytest.mark.parametrize("entries, zeros", [(0, 0), (0, 3), (1, 0), (7, 0), (7, 9), (20_000, 5)])
@pytest.mark.parametrize("view, form", [(OffsetIndexView, ">ii"), (TimeIndexView, ">qi")])
def test_an_index_in_memory_answers_as_its_file(
        tmp_path: Path, view: type[OffsetIndexView], form: str, entries: int, zeros: int) -> None:
    content = b"".join(struct.pack(form, 10 * n + 3, 100 * n + 1) for n in range(entries))
    content += bytes(zeros * struct.calcsize(form)) + b"odd"
    path = tmp_path / "index"
    path.write_bytes(content)
    on_disk, in_memory = view(path, 5), view("elsewhere", 5, fetch=lambda: content)
    assert in_memory.entries == on_disk.entries and in_memory.file_size == on_disk.file_size
    assert in_memory.last_entry == on_disk.last_entry and not in_memory.holds_descriptor
    for target in (-1, 0, 3, 7, 8, 68, 10**9):
        assert in_memory.lookup(target) == on_disk.lookup(target)
    if isinstance(in_memory, OffsetIndexView) and isinstance(on_disk, OffsetIndexView):
        for position in (0, 1, 250, 10**9):
            assert in_memory.upper_bound(position) == on_disk.upper_bound(position)
    if entries or zeros:
        assert (in_memory.to_numpy() == on_disk.to_numpy()).all()


def test_a_transaction_index_in_memory_reads_as_its_file(tmp_path: Path) -> None:
    content = struct.pack(">hqqqq", 0, 7, 10, 20, 30) * 3 + b"torn"
    path = tmp_path / "index"
    path.write_bytes(content)
    assert (read_aborted("elsewhere", content) == read_aborted(path)).all()
    with pytest.raises(CorruptIndexError, match="elsewhere"):
        read_aborted("elsewhere", b"\x01" + content)


# ---- trusted: the entries of a caller who knows how many are in use

@pytest.mark.parametrize("count", [0, 1, 2, 3, 682, 683, 1024, 1025, 1026, 5000, 20_000])
def test_a_trusted_index_agrees_with_the_oracle(tmp_path: Path, count: int) -> None:
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
def test_trusted_hostile_entries_give_kafkas_slots(tmp_path_factory: pytest.TempPathFactory,
                                           entries: list[tuple[int, int]], target: int) -> None:
    path = tmp_path_factory.mktemp("index") / "i"
    index = IndexReader(write_offsets(path, entries), 0)
    slot = search([offset for offset, _ in entries], 8, target)[0]
    assert index.lookup(target) == (entries[slot] if slot >= 0 else (0, 0))
    slot = search([position for _, position in entries], 8, target)[1]
    assert index.upper_bound(target) == (entries[slot] if slot >= 0 else None)


@settings(max_examples=examples(60))
@given(st.booleans(), st.lists(st.integers(-2**31, 2**31 - 1), max_size=3000), st.data())
def test_entries_in_memory_give_kafkas_slots(times: bool, values: list[int],
                                             data: st.DataObject) -> None:
    """By key and by value, on any entries: AbstractIndex.largestLowerBoundSlotFor."""
    form, width = (">qi", 12) if times else (">ii", 8)
    pairs = [(values[-1 - n], value) for n, value in enumerate(values)]
    stored = b"".join(struct.pack(form, *pair) for pair in pairs)
    pairs = [(key + (0 if times else BASE), value + (BASE if times else 0))
             for key, value in pairs]
    target = data.draw(st.sampled_from([one for pair in pairs for one in pair] or [0])
                       | st.integers(-2**63, 2**63 - 1))
    for by_value in (False, True):
        slot = search([pair[by_value] for pair in pairs], width, target)[0]
        nothing = (-1, BASE) if times else (BASE, 0)
        source = WindowSource(lambda position, least: (0, stored))
        assert search_entries(source, len(pairs), BASE, target, times=times,
                              by_value=by_value) == (
            slot, *(pairs[slot] if slot >= 0 else nothing))


def test_a_missing_trusted_index_has_no_entries(tmp_path: Path) -> None:
    index = IndexReader(tmp_path / "none", BASE)
    assert index.entries == 0
    assert index.lookup(BASE + 5) == (BASE, 0)
    assert index.upper_bound(0) is None


def test_a_trusted_index_that_was_cut_is_an_error(tmp_path: Path) -> None:
    index = IndexReader(write_offsets(tmp_path / "i", [(n, n) for n in range(5000)]), BASE)
    os.truncate(tmp_path / "i", 80)
    with pytest.raises(KafkaStorageError) as caught:
        index.lookup(BASE + 4000)
    assert caught.value.code == "file_shrank"


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
        right: set[int] = set()

        def search(index: IndexReader = index, wrong: list[object] = wrong,
                   ready: threading.Barrier = ready, right: set[int] = right) -> None:
            rng = random.Random(threading.get_ident())
            ready.wait(60)
            try:
                while True:
                    target = rng.randrange(count)
                    if (found := index.lookup(target, count)) != (target, target):
                        wrong.append((target, found))
                    else:
                        right.add(target)
            except KafkaStorageError:
                pass

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        ready.wait(60)
        wait_for(lambda: right or wrong)
        index.detach()
        os.truncate(path, 8)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not wrong
        write_offsets(path, [(n, n) for n in range(count)])
