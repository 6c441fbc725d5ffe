"""Indexes as a loader searches and changes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog._native.index import search_entries
from seglog._native.window import WindowSource
from seglog.model import AbortedTxn, TimestampOffset
from seglog.recovery.disk import Disk, RealDisk
from seglog.recovery.index_files import (
    OFFSET_ENTRY, TIME_ENTRY, OffsetIndexFile, TimeIndexFile, TxnIndexFile,
)
from seglog.recovery.loader_failures import InvalidOffset, LoaderFailure
from seglog.recovery.open_log import load_log
from seglog.recovery.overlay import OverlayDisk
from seglog.storage.txn_entries import encode_entries
from tests.recovery.test_log_loader import at, inputs, written
from tests.support.effort import examples
from tests.support.synced import syncs

NAME = "00000000000000000000.txnindex"
OLD, NEW = AbortedTxn(7, 0, 4, 5), AbortedTxn(8, 2, 9, 10)


def test_an_index_without_room_for_an_entry_is_refilled_with_none(tmp_path: Path) -> None:
    """AbstractIndex.reset; segment.index.bytes may be 4."""
    (tmp_path / "a.index").write_bytes(bytes(16))
    index = OffsetIndexFile(RealDisk(str(tmp_path)), "a.index", 0, 4)
    index.refill(b"")
    assert (index.entries, (tmp_path / "a.index").read_bytes()) == (0, b"")


@pytest.mark.parametrize("disk_of", [RealDisk, OverlayDisk])
@pytest.mark.parametrize(("is_left_over", "added", "kept", "known"), [
    (False, [], [], 0), (False, [NEW], [NEW], 1),
    (True, [], [OLD], 0), (True, [NEW], [OLD, NEW], 2),
])
def test_what_a_recovery_leaves_in_it(
        tmp_path: Path, disk_of: Callable[[str], Disk], is_left_over: bool,
        added: list[AbortedTxn], kept: list[AbortedTxn], known: int) -> None:
    (tmp_path / NAME).write_bytes(encode_entries([OLD]))
    disk = disk_of(str(tmp_path))
    index = TxnIndexFile(disk, NAME)
    index.is_left_over = is_left_over
    index.truncate_to(0 if is_left_over else 9)
    assert index.entries == len(list(index.read())) == (0 if is_left_over else 1)
    index.replace(added, sync=True)
    assert disk.read(NAME, 0, 1000) == encode_entries(kept)
    assert index.entries == len(list(index.read())) == known
    # Once it is the segment's own, a second recovery begins it anew.
    index.replace([], sync=False)
    assert disk.size(NAME) == (len(encode_entries([OLD])) if is_left_over and not added else 0)


@pytest.mark.parametrize(("offset", "kept"), [(4, []), (5, [OLD]), (9, [OLD]), (10, [OLD, NEW])])
def test_a_truncation_removes_transactions_that_end_at_the_offset_or_later(
        tmp_path: Path, offset: int, kept: list[AbortedTxn]) -> None:
    (tmp_path / NAME).write_bytes(encode_entries([OLD, NEW]))
    TxnIndexFile(RealDisk(str(tmp_path)), NAME).truncate_to(offset)
    assert (tmp_path / NAME).read_bytes() == encode_entries(kept)


@pytest.mark.parametrize("is_left_over", [False, True])
@pytest.mark.parametrize("sync", [False, True])
def test_what_replaces_entries_is_durable_if_asked_for(tmp_path: Path, is_left_over: bool,
                                                       sync: bool) -> None:
    (tmp_path / NAME).write_bytes(encode_entries([OLD]))
    index = TxnIndexFile(RealDisk(str(tmp_path)), NAME)
    index.is_left_over = is_left_over
    with syncs() as synced:
        index.replace([NEW], sync=sync)
    written = encode_entries([OLD, NEW] if is_left_over else [NEW])
    assert (tmp_path / NAME).read_bytes() == written
    assert (written in [content for _, content in synced]) is sync


@given(st.lists(st.tuples(st.integers(-2**31, 2**31 - 1), st.integers(-2**31, 2**31 - 1)),
                max_size=2000), st.integers(-2**31, 2**31 - 1), st.sampled_from([0, 7, 2**62]),
       st.sampled_from([(OffsetIndexFile, OFFSET_ENTRY), (TimeIndexFile, TIME_ENTRY)]))
@settings(max_examples=examples(100))
def test_an_index_is_read_block_by_block(
        tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[int, int]], target: int,
        base: int, kind: Any) -> None:
    """With the same slot as of entries in memory, valid ones and others."""
    cls, entry = kind
    path = tmp_path_factory.mktemp("index")
    if target % 2:
        entries = sorted(entries)
    stored = b"".join(entry.pack(*one) for one in entries)
    (path / "i").write_bytes(stored)
    for by_value in (False, True):
        held = search_entries(WindowSource(lambda position, least: (0, stored)), len(entries), base,
                              base + target, times=entry is TIME_ENTRY, by_value=by_value)
        index = cls(RealDisk(str(path)), "i", base, 1 << 20)
        assert index._search(base + target, by_value=by_value) == held


def test_an_offset_index_takes_rising_offsets_until_it_is_full(tmp_path: Path) -> None:
    """OffsetIndex.append."""
    index = OffsetIndexFile(RealDisk(str(tmp_path)), "i", 10, 3 * OFFSET_ENTRY.size + 1)
    assert index.last_offset == 10 and index.max_entries == 3
    for offset, position in ((10, 0), (12, 50)):
        assert not index.is_full
        index.append(offset, position)
        assert index.last_offset == offset
    for offset in (11, 12):
        with pytest.raises(InvalidOffset, match=f"append an offset {offset} to position 2 no "
                                                "larger than the last offset appended .12. to"):
            index.append(offset, 99)
    index.append(13, 99)
    assert index.is_full and index.entries == 3 and index.lookup(12) == (12, 50)
    with pytest.raises(LoaderFailure, match=r"append to a full index \(size = 3\)"):
        index.append(14, 120)


@pytest.mark.parametrize(("kind", "least"), [(OffsetIndexFile, 8), (TimeIndexFile, 12)])
def test_a_new_index_has_room_for_an_entry(tmp_path: Path, kind: Any, least: int) -> None:
    """AbstractIndex.createAndAssignMmap."""
    disk = RealDisk(str(tmp_path))
    kind(disk, "i", 0, least).open()
    assert disk.size("i") == least
    with pytest.raises(LoaderFailure, match=f"Invalid max index size: {least - 1}"):
        kind(disk, "j", 0, least - 1).open()


def test_a_time_index_keeps_room_for_the_last_entry(tmp_path: Path) -> None:
    """TimeIndex.isFull."""
    index = TimeIndexFile(RealDisk(str(tmp_path)), "i", 10, 3 * TIME_ENTRY.size)
    for timestamp in (5, 6):
        assert not index.is_full
        index.maybe_append(TimestampOffset(timestamp, 10 + timestamp))
    assert index.is_full
    with pytest.raises(LoaderFailure, match=r"append to a full time index \(size = 2\)"):
        index.maybe_append(TimestampOffset(7, 17))
    index.append_last(TimestampOffset(7, 17))
    with pytest.raises(LoaderFailure) as caught:
        index.append_last(TimestampOffset(8, 18))
    assert caught.value.kafka_error == "BufferOverflowException"
    assert index.entries == 3 and index.last_entry == TimestampOffset(7, 17)
    assert (tmp_path / "i").stat().st_size == 3 * TIME_ENTRY.size


@pytest.mark.parametrize(("offset", "kept"), [(10, 0), (12, 0), (13, 1), (15, 1), (16, 2), (99, 2)])
def test_a_truncation_keeps_the_entries_below_the_offset(tmp_path: Path, offset: int, kept: int
                                                         ) -> None:
    """OffsetIndex.truncateTo, TimeIndex.truncateTo: the batch of an entry at the offset goes."""
    disk = RealDisk(str(tmp_path))
    offsets, times = OffsetIndexFile(disk, "i", 10, 1200), TimeIndexFile(disk, "t", 10, 1200)
    for number, last in enumerate((12, 15)):
        offsets.append(last, 100 * number)
        times.maybe_append(TimestampOffset(number, last))
    for index in (offsets, times):
        index.truncate_to(offset)
        assert index.entries == kept


@pytest.mark.parametrize(("base", "expected"), [(2**63 - 2, -2**63 + 3), (2**62, 2**62 + 5)])
def test_offsets_of_entries_wrap_as_a_long(tmp_path: Path, base: int, expected: int) -> None:
    """AbstractIndex adds the base offset to what an entry holds."""
    disk = RealDisk(str(tmp_path))
    for kind, entry, value in ((OffsetIndexFile, OFFSET_ENTRY, (5, 40)),
                               (TimeIndexFile, TIME_ENTRY, (40, 5))):
        (tmp_path / "i").write_bytes(entry.pack(*value))
        index = kind(disk, "i", base, 1 << 20)
        last = (index.last_offset if isinstance(index, OffsetIndexFile)
                else index.last_entry.offset)
        assert last == expected
        assert index._relative(last) == 5
        with pytest.raises(LoaderFailure, match="Integer overflow for offset"):
            index._relative(base - 1)


@pytest.mark.parametrize("disk_of", [RealDisk, OverlayDisk])
def test_an_entry_holds_31_bits_of_distance(tmp_path: Path, disk_of: Callable[[str], Disk]) -> None:
    """AbstractIndex.relativeOffset."""
    index = OffsetIndexFile(disk_of(str(tmp_path)), "i", 10, 1200)
    for offset in (10, 11, 10 + (1 << 31) - 1):
        assert index._relative(offset) == offset - 10
    for offset in (9, 0, 10 + (1 << 31), 10 + (1 << 32)):
        with pytest.raises(LoaderFailure) as caught:
            index._relative(offset)
        assert caught.value.kafka_error == "IndexOffsetOverflowException"


@pytest.mark.parametrize("clean", [False, True])
def test_a_log_knows_the_sizes_of_the_indexes_that_its_load_wrote(
        tmp_path: Path, clean: bool) -> None:
    path = written(tmp_path / "t-0", {0: at(0) + at(1) + at(2), 3: at(3)})
    (path / f"{0:020d}.timeindex").unlink()
    log = load_log(str(path), inputs(clean=clean))
    sizes = [(path / f"{0:020d}{suffix}").stat().st_size for suffix in (".index", ".timeindex")]
    if clean:
        sizes[0] = -1  # nobody has used it
    assert [log.segments.index_size[0], log.segments.time_index_size[0]] == sizes
    assert 0 not in [one.base_offset for one in log.segments.held]
    log.close()
