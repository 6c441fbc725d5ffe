"""What a read_committed reader sees of transactions, at the edges of offsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seglog.errors import CorruptRecordError, KafkaStorageError
from seglog.model import AbortedTxn, OpenTransaction
from seglog.storage.isolation import (
    ISOLATIONS, TransactionState, check_isolation, read_transactions)
from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import log_name, snapshot_name
from seglog.storage.producer_state import ProducerStateEntry, encode_snapshot
from seglog.storage.ranges import LogGap
from seglog.storage.salvage import Salvage
from seglog.storage.segment import LogSegment
from tests.oracle.batch import ABORT, COMMIT, Batch, Record, encode, marker
from tests.oracle.files import AbortedTransaction, encode_txn_index

#: producer id, first offset, last offset, last stable offset
ABORTED = [(7, 10, 19, 20), (8, 15, 29, 30)]


def state(*open_offsets: int, known_until: int | None = None) -> TransactionState:
    return TransactionState(
        tuple(OpenTransaction(number, first) for number, first in enumerate(open_offsets)),
        np.array(ABORTED, np.int64), known_until)


def test_levels() -> None:
    assert ISOLATIONS == ("read_uncommitted", "read_committed", "log_end")
    assert [check_isolation(one) for one in ISOLATIONS] == [False, True, False]
    with pytest.raises(ValueError, match="isolation 'committed' is neither read_uncommitted nor"):
        check_isolation("committed")


@pytest.mark.parametrize(("found", "start", "end", "expected"), [
    (state(), 0, 50, 50), (state(), 60, 50, 60),
    (state(40, 45), 0, 50, 40), (state(40), 41, 50, 41), (state(0), 0, 50, 0),
    (state(known_until=30), 0, 50, 30), (state(known_until=0), 0, 50, 0),
    (state(40, known_until=30), 0, 50, 30), (state(20, known_until=30), 0, 50, 20),
    (state(60, known_until=70), 0, 50, 50)])
def test_the_last_stable_offset(found: TransactionState, start: int, end: int, expected: int
                                ) -> None:
    assert found.last_stable_offset(start, end) == expected


@pytest.mark.parametrize(("start", "end", "expected"), [
    (0, 100, ABORTED), (19, 20, ABORTED), (20, 21, ABORTED[1:]), (29, 30, ABORTED[1:]),
    (30, 40, []), (0, 10, []), (0, 11, ABORTED[:1]), (0, 15, ABORTED[:1]), (0, 16, ABORTED)])
def test_aborted_transactions_between_offsets(start: int, end: int,
                                              expected: list[tuple[int, ...]]) -> None:
    assert state().aborted_between(start, end) == tuple(AbortedTxn(*one) for one in expected)
    assert state().aborted_ranges(start, end) == tuple(one[:3] for one in expected)


def test_transactions_in_doubt_are_gaps() -> None:
    assert not list(state(1).gaps("t-0"))
    found = TransactionState((), np.empty((0, 4), np.int64), in_doubt=(OpenTransaction(9, 4),))
    gap, = found.gaps("t-0")
    assert (gap.kind, gap.file, gap.position, gap.size, gap.first_offset) == (
        "transaction_in_doubt", "t-0", 0, 0, 4)
    assert isinstance(gap, LogGap) and "of producer 9 may be" in str(gap)


@pytest.mark.parametrize("sound", [1, 3])
def test_damage_bounds_what_is_known_to_be_committed(tmp_path: Path, sound: int) -> None:
    """Up to the last sound batch, whole."""
    batches = [bytearray(encode(Batch(2 * n, 1, [Record(2 * n + one, 5, b"k", b"v")
                                                 for one in range(2)],
                                      base_timestamp=5, max_timestamp=5))) for n in range(5)]
    batches[sound][-1] ^= 1
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    with PartitionLog.open(tmp_path) as log:
        assert log.last_stable_offset == 2 * sound


@pytest.mark.parametrize("producer_id", [0, 7])
def test_an_open_transaction_bounds_what_is_stable(tmp_path: Path, producer_id: int) -> None:
    """0 is the id of a producer, too."""
    batches = [encode(Batch(n, 0, [Record(n, 5, b"k", b"v")], base_timestamp=5, max_timestamp=5,
                            producer_id=producer_id if n else -1, producer_epoch=0 if n else -1,
                            base_sequence=n - 1, is_transactional=n > 0)) for n in range(3)]
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    with PartitionLog.open(tmp_path) as log:
        assert log.last_stable_offset == 1
        assert log.open_transactions == (OpenTransaction(producer_id, 1),)


def plain(offset: int, producer_id: int = -1) -> bytes:
    """A batch of one record, in a transaction if it has a producer."""
    known = producer_id >= 0
    return encode(Batch(offset, 0, [Record(offset, 5, b"k", b"v")], base_timestamp=5,
                        max_timestamp=5, producer_id=producer_id,
                        producer_epoch=0 if known else -1, base_sequence=offset if known else -1,
                        is_transactional=known))


def ended(offset: int, producer_id: int, kind: int) -> bytes:
    """The marker of a transaction."""
    return encode(marker(offset, producer_id, 0, kind, 5))


def built(path: Path, *segments: tuple[int, list[bytes]], unindexed: tuple[int, ...] = (),
          aborted: dict[int, list[tuple[int, int, int, int]]] | None = None) -> PartitionLog:
    """A log with these batches, and with these transaction indexes."""
    path.mkdir(exist_ok=True)
    for base, batches in segments:
        (path / f"{base:020d}.log").write_bytes(b"".join(batches))
        if base not in unindexed:
            (path / f"{base:020d}.index").touch()
    for base, entries in (aborted or {}).items():
        (path / f"{base:020d}.txnindex").write_bytes(
            encode_txn_index([AbortedTransaction(*one) for one in entries]))
    return PartitionLog.open(path)


def rows_of(found: TransactionState) -> list[tuple[int, ...]]:
    return [tuple(row) for row in found.aborted.tolist()]


def test_the_newest_snapshot_before_an_index_that_a_load_rebuilds_counts(tmp_path: Path) -> None:
    """Kafka rebuilds the producers from the first segment that it recovers (LogLoader)."""
    snapshots = [(4, {40: 4}), (3, {30: 3}), (2, {20: 2})]
    with built(tmp_path, (0, [plain(n) for n in range(3)]), (3, [plain(n) for n in (3, 4)]),
               (5, [plain(5)]), unindexed=(3, 5)) as log:
        found = read_transactions(log.segments, snapshots, 1 << 30)
        assert found.open_transactions == (OpenTransaction(30, 3),)
    # The transaction index of a later segment changes nothing, that of an earlier one does.
    bad = [(1, 9, 8, 9)]
    with built(tmp_path, aborted={5: bad}) as log:
        found = read_transactions(log.segments, snapshots, 1 << 30)
        assert found.open_transactions == (OpenTransaction(30, 3),) and not rows_of(found)
    with built(tmp_path, aborted={0: bad}) as log:
        assert not read_transactions(log.segments, snapshots, 1 << 30).open_transactions


def test_a_snapshot_replaces_the_batches_below_it(tmp_path: Path) -> None:
    with built(tmp_path, (0, [plain(0, 7), plain(1, 8)]), (2, [plain(2, 9), plain(3, 5)])) as log:
        found = read_transactions(log.segments, [(3, {20: 2, 10: 2})], 1 << 30)
        assert found.open_transactions == (
            OpenTransaction(20, 2), OpenTransaction(10, 2), OpenTransaction(5, 3))
        found = read_transactions(log.segments, [], 1 << 30)
        assert [one.first_offset for one in found.open_transactions] == [0, 1, 2, 3]


@pytest.mark.parametrize(("entry", "is_sound"), [
    ((7, 5, 5, 6), True), ((7, 0, 5, 6), True), ((7, 6, 7, 8), True), ((7, 7, 7, 8), True),
    ((7, -1, 5, 6), False), ((7, 3, 4, 5), False), ((7, 7, 6, 8), False), ((7, 6, 8, 9), False)])
def test_an_entry_of_a_transaction_index_ends_in_its_segment(
        tmp_path: Path, entry: tuple[int, int, int, int], is_sound: bool) -> None:
    """One that does not makes the whole index invalid."""
    segments = (5, [plain(n) for n in (5, 6, 7)]), (8, [plain(8)])
    with built(tmp_path, *segments, aborted={5: [(6, 5, 6, 7), entry], 8: [(1, 2, 90, 91)]}) as log:
        found = read_transactions(log.segments, [], 1 << 30)
    assert rows_of(found) == (
        sorted([entry, (6, 5, 6, 7)], key=lambda row: row[2]) if is_sound else []) + [
        (1, 2, 90, 91)]


def test_an_aborted_transaction_of_index_and_batches_counts_once(tmp_path: Path) -> None:
    """Two of one producer count twice. Where the entries differ in the stable offset, that of the
    index counts, which Kafka wrote."""
    batches = [plain(0, 7), ended(1, 7, ABORT), plain(2, 7), plain(3, 8), ended(4, 8, COMMIT),
               ended(5, 7, ABORT)]
    with built(tmp_path, (0, batches)) as log:
        assert rows_of(read_transactions(log.segments, [], 1 << 30)) == [
            (7, 0, 1, 2), (7, 2, 5, 6)]
    with built(tmp_path, aborted={0: [(7, 0, 1, 1)]}) as log:
        assert rows_of(read_transactions(log.segments, [], 1 << 30)) == [
            (7, 0, 1, 1), (7, 2, 5, 6)]


def test_the_stable_offset_after_an_abort_is_the_first_open_one(tmp_path: Path) -> None:
    batches = [plain(0, 8), plain(1, 7), plain(2, 9), ended(3, 7, ABORT), ended(4, 8, COMMIT),
               ended(5, 9, ABORT)]
    with built(tmp_path, (0, batches)) as log:
        assert rows_of(read_transactions(log.segments, [], 1 << 30)) == [
            (7, 1, 3, 0), (9, 2, 5, 6)]


def surveyed(log: PartitionLog, gaps: dict[int, list[LogGap]],
             spans: dict[int, list[tuple[int, int]]], lost: tuple[int, ...] = (),
             snapshots: tuple[tuple[int, dict[int, int]], ...] = ()) -> TransactionState:
    """The transactions across these gaps."""
    def survey(segment: LogSegment) -> Salvage:
        base = segment.base_offset
        if base in lost:
            raise KafkaStorageError(5, "unreadable", segment.files.log)
        return Salvage(tuple(spans.get(base, [(0, segment.size)])), tuple(gaps.get(base, ())),
                       np.zeros(1, np.int64), 0, True)

    return read_transactions(log.segments, snapshots, 0, survey)


def broken_marker(base: int, last: int, producer_id: int) -> bytes:
    """A marker of these offsets that does not decode."""
    broken = marker(base, producer_id, 0, ABORT, 5)
    broken.records[0].value = b"\0"
    broken.last_offset_delta = last - base
    return encode(broken)


def gap(position: int, first: int | None, last: int | None) -> LogGap:
    return LogGap("batch_crc", "f", position, 1, first_offset=first, last_offset=last)


def doubted(log: PartitionLog, gaps: dict[int, list[LogGap]],
            spans: dict[int, list[tuple[int, int]]], lost: tuple[int, ...] = (),
            snapshots: tuple[tuple[int, dict[int, int]], ...] = ()) -> list[int]:
    """The producers of the transactions that nobody knows the end of."""
    return [one.producer_id for one in surveyed(log, gaps, spans, lost, snapshots).in_doubt]


@pytest.mark.parametrize(("marker_at", "expected"), [(2, [7]), (3, []), (5, []), (6, [7])])
def test_an_unreadable_segment_hides_the_markers_of_its_offsets(
        tmp_path: Path, marker_at: int, expected: list[int]) -> None:
    """A transaction is in doubt unless an index knows that it ended right there."""
    base = marker_at // 3 * 3
    with built(tmp_path, (0, [plain(n) for n in (0, 1, 2)]), (3, [plain(n) for n in (3, 4, 5)]),
               (6, [plain(n) for n in (6, 7)]), aborted={base: [(7, 0, marker_at, 8)]}) as log:
        assert doubted(log, {}, {}, (3,), ((1, {7: 0}),)) == expected
        # The last segment may hold any offset.
        assert doubted(log, {}, {}, (6,), ((1, {7: 0}),)) == ([7] if marker_at < 6 else [])


@pytest.mark.parametrize(("marker_at", "expected"), [(2, [7]), (3, []), (4, []), (5, [7])])
def test_a_gap_hides_the_markers_of_its_offsets(tmp_path: Path, marker_at: int,
                                                expected: list[int]) -> None:
    batches = [plain(n) for n in range(8)]
    size = len(batches[0])
    for place in (3 * size, 8 * size):  # before sound batches, and at the end
        spans = {0: [(0, 3 * size), (5 * size, 8 * size)]}
        with built(tmp_path, (0, batches), aborted={0: [(7, 0, marker_at, 8)]}) as log:
            gaps = {0: [gap(place, 3, 4)]}
            assert doubted(log, gaps, spans, snapshots=((1, {7: 0}),)) == expected
    with built(tmp_path, aborted={0: [(7, 0, 0, 8)]}) as log:
        assert doubted(log, {0: [gap(place, None, 4)]}, spans, snapshots=((1, {7: 0}),)) == []
        assert doubted(log, {0: [gap(place, 3, None)]}, spans, snapshots=((1, {7: 0}),)) == [7]


def test_a_transaction_that_begins_after_a_gap_is_open(tmp_path: Path) -> None:
    """One that was open at the gap is in doubt, until a marker of its producer comes."""
    batches = [plain(0, 7), plain(1, 8), plain(2), plain(3, 9), ended(4, 8, COMMIT)]
    sizes = [len(one) for one in batches]
    end, hole = sum(sizes), sum(sizes[:2])
    spans = {0: [(0, hole), (hole + sizes[2], end)]}
    with built(tmp_path, (0, batches)) as log:
        found = surveyed(log, {0: [gap(hole, 2, 2)]}, spans)
    assert found.in_doubt == (OpenTransaction(7, 0),)
    assert found.open_transactions == (OpenTransaction(9, 3),)
    last = 2**63 - 1
    assert rows_of(found) == [(7, 0, last, last)]


def test_a_marker_after_a_gap_ends_the_doubt_for_the_next_transaction(tmp_path: Path) -> None:
    batches = [plain(0, 7), plain(1), ended(2, 7, COMMIT), plain(3, 7)]
    hole = len(batches[0])
    spans = {0: [(0, hole), (hole + len(batches[1]), sum(map(len, batches)))]}
    with built(tmp_path, (0, batches)) as log:
        found = surveyed(log, {0: [gap(hole, 1, 1)]}, spans)
    assert found.open_transactions == (OpenTransaction(7, 3),) and not found.in_doubt


@pytest.mark.parametrize(("last", "expected"), [(0, []), (1, [7]), (None, [7])])
def test_a_gap_below_a_snapshot_hides_nothing(tmp_path: Path, last: int | None,
                                              expected: list[int]) -> None:
    batches = [plain(n) for n in range(4)]
    with built(tmp_path, (0, batches)) as log:
        assert doubted(log, {0: [gap(0, 0, last)]}, {0: [(len(batches[0]), 4 * len(batches[0]))]},
                       snapshots=((1, {7: 0}),)) == expected


def test_a_damaged_marker_leaves_open_transactions_in_doubt(tmp_path: Path) -> None:
    """Its producer may be another one, because the header may be what is damaged."""
    batches = [plain(0, 7), plain(1, 8), broken_marker(2, 2, 7), plain(3, 9)]
    with built(tmp_path, (0, batches)) as log:
        assert doubted(log, {}, {}) == [7, 8]
        found = read_transactions(log.segments, [], log.segments.size)
        assert found.known_until == 2 and found.damage is not None


@pytest.mark.parametrize(("marker_at", "expected"), [(3, [7]), (4, []), (6, []), (7, [7])])
def test_a_damaged_marker_hides_the_markers_of_its_offsets(
        tmp_path: Path, marker_at: int, expected: list[int]) -> None:
    batches = [*(plain(n) for n in range(4)), broken_marker(4, 6, 9), plain(7)]
    with built(tmp_path, (0, batches), aborted={0: [(7, 0, marker_at, 8)]}) as log:
        assert doubted(log, {}, {}, snapshots=((1, {7: 0}),)) == expected
        assert read_transactions(log.segments, [], log.segments.size).known_until == 4


@pytest.mark.parametrize("sound", [0, 1, 3])
def test_what_is_known_ends_after_the_last_sound_batch(tmp_path: Path, sound: int) -> None:
    batches = [bytearray(encode(Batch(2 * n, 1, [Record(2 * n + one, 5, b"k", b"v")
                                                 for one in range(2)],
                                      base_timestamp=5, max_timestamp=5))) for n in range(5)]
    batches[sound][-1] ^= 1
    with built(tmp_path, (0, [bytes(one) for one in batches])) as log:
        found = read_transactions(log.segments, [], log.segments.size)
    assert found.known_until == 2 * sound and found.damage is not None


def test_gaps_take_effect_in_their_order(tmp_path: Path) -> None:
    """The second gap holds the marker of a transaction that began after the first one; what the
    producer wrote after it is a transaction of its own, which nothing puts in doubt."""
    batches = [plain(0), plain(1), plain(2, 8), plain(3), plain(4, 8)]
    ends = np.cumsum([len(one) for one in batches]).tolist()
    spans = {0: [(0, ends[0]), (ends[1], ends[2]), (ends[3], ends[4])]}
    gaps = {0: [gap(ends[0], 1, 1), gap(ends[2], 3, 3)]}
    with built(tmp_path, (0, batches), aborted={0: [(8, 2, 3, 4)]}) as log:
        found = surveyed(log, gaps, spans)
    assert found.open_transactions == (OpenTransaction(8, 4),) and not found.in_doubt


def test_aborted_transactions_are_sorted_by_their_end(tmp_path: Path) -> None:
    """Whatever the order and the stable offsets of an index; two ends are two transactions."""
    entries = [(7, 0, 2, 1), (8, 0, 1, 5), (7, 0, 1, 9)]
    with built(tmp_path, (0, [plain(n) for n in range(3)]), aborted={0: entries}) as log:
        assert rows_of(read_transactions(log.segments, [], 1 << 30)) == [
            (7, 0, 1, 9), (8, 0, 1, 5), (7, 0, 2, 1)]


def test_a_marker_behind_an_unreadable_segment_ends_the_doubt(tmp_path: Path) -> None:
    segments = (0, [plain(0, 7), plain(1, 8)]), (2, [plain(2)]), (3, [ended(3, 7, ABORT)])
    with built(tmp_path, *segments) as log:
        found = surveyed(log, {}, {}, (2,))
    assert found.in_doubt == (OpenTransaction(8, 1),) and not found.open_transactions
    assert rows_of(found)[0] == (7, 0, 3, 1)


@pytest.mark.parametrize(("first", "end", "reported"), [
    (1, 1, []), (1, 2, [1]), (1, None, [1]), (0, 0, []), (0, 1, [0])])
def test_a_read_below_a_transaction_in_doubt_reports_no_gap(
        tmp_path: Path, first: int, end: int | None, reported: list[int]) -> None:
    batches = [*(plain(n, 8 if n == first else -1) for n in (0, 1)), broken_marker(2, 2, 8),
               plain(3)]
    gaps: list[LogGap] = []
    with built(tmp_path, (0, batches)) as log:
        log.ranges(1 << 20, end_offset=end, isolation="read_committed", on_damage="skip",
                   on_gap=gaps.append)
    assert [one.first_offset for one in gaps if one.kind == "transaction_in_doubt"] == reported


def test_only_transactional_batches_of_producers_open_transactions(tmp_path: Path) -> None:
    """Neither those that are only idempotent, nor those without a producer."""
    def one(offset: int, producer_id: int, is_transactional: bool) -> bytes:
        return encode(Batch(offset, 0, [Record(offset, 5, b"k", b"v")], base_timestamp=5,
                            max_timestamp=5, producer_id=producer_id, producer_epoch=0,
                            base_sequence=0, is_transactional=is_transactional))

    batches = [one(0, 7, False), one(1, -1, True), one(2, 0, True)]
    with built(tmp_path, (0, batches)) as log:
        assert log.open_transactions == (OpenTransaction(0, 2),)


def test_damage_is_an_error_unless_the_read_ends_before_it(tmp_path: Path) -> None:
    batches = [plain(n) for n in range(4)]
    batches[2] = batches[2][:-1] + b"x"
    with built(tmp_path, (0, batches)) as log:
        assert log.last_stable_offset == 2
        assert [log._view.hidden_damage(end) is None for end in (0, 2, 3, None)] == [
            True, True, False, False]
        for read in (lambda: log.ranges(1 << 20, isolation="read_committed"),
                     lambda: log.ranges(1 << 20, 0, 3, "read_committed"),
                     lambda: log.fetch(2, 100, "read_committed")):
            with pytest.raises(CorruptRecordError):
                read()
        assert log.ranges(1 << 20, end_offset=2, isolation="read_committed")
        assert log.fetch(1, 100, "read_committed").next_offset == 2
    with built(tmp_path / "sound", (0, batches[:2])) as log:
        assert log._view.hidden_damage(None) is None and log._view.hidden_damage(9) is None
        assert log.fetch(2, 100, "read_committed").records == b""


def test_snapshots_that_cannot_be_used_are_passed_over(tmp_path: Path) -> None:
    """Those above the end, removed meanwhile, or damaged."""
    def snapshot(producer_id: int) -> bytes:
        return encode_snapshot([ProducerStateEntry(producer_id, 0, -1, 5, producer_id)])

    (tmp_path / log_name(1)).write_bytes(b"".join(
        encode(Batch(offset, 0, [Record(offset, 5)], base_timestamp=5, max_timestamp=5))
        for offset in range(1, 8)))
    contents = {9: snapshot(90), 8: snapshot(80), 7: b"x", 6: snapshot(60), 5: b"", 4: snapshot(40),
                3: b"x", 2: snapshot(20), 1: snapshot(10)}
    for offset, content in contents.items():
        (tmp_path / snapshot_name(offset)).write_bytes(content)
    with PartitionLog.open(tmp_path) as log:
        assert (log.log_start_offset, log.log_end_offset) == (1, 8)
        (tmp_path / snapshot_name(5)).unlink()
        assert list(log._view._snapshots()) == [
            (8, {80: 80}), (6, {60: 60}), (4, {40: 40}), (2, {20: 20})]
