"""Aborted transactions of a tiered log: what read committed consumers get before and after the
local segments are deleted."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.log.unified_log import UnifiedLog
from seglog.model import AbortedTxn
from seglog.storage.isolation import Isolation
from seglog.storage.markers import ControlType
from tests.remote_log.tiering import KEY, Tiering

COMMITTED: Isolation = "read_committed"
PRODUCERS = range(1, 6)


@pytest.fixture
def tiering(tmp_path: Path) -> Iterator[Tiering]:
    made = Tiering(tmp_path, topic={"local.retention.bytes": 1, "retention.bytes": 10**9},
                   settings={"transaction.partition.verification.enable": "false"})
    yield made
    made.close()


def write(log: UnifiedLog, rng: random.Random, steps: int) -> None:
    """Transactions of several producers beside each other, over many segments."""
    sequences = dict.fromkeys(PRODUCERS, 0)
    opened: set[int] = set()

    def end(producer: int) -> None:
        kind = rng.choice([ControlType.COMMIT, ControlType.ABORT])
        log.append_as_leader(end_transaction_marker(
            producer, 0, kind, timestamp=log.now_ms()), 0, origin=AppendOrigin.COORDINATOR,
            transaction_version=1)
        opened.discard(producer)

    for _ in range(steps):
        producer = rng.choice(PRODUCERS)
        if producer in opened and rng.random() < 0.4:
            end(producer)
            continue
        builder = RecordBatchBuilder(is_transactional=True, producer_id=producer,
                                     producer_epoch=0, base_sequence=sequences[producer])
        builder.append(log.now_ms(), None, rng.randbytes(80))
        log.append_as_leader(builder.build(), 0)
        sequences[producer] += 1
        opened.add(producer)
    for producer in list(opened):
        end(producer)
    log.update_high_watermark(log.log_end_offset)


def aborted_data(batches: list[tuple[int, int, bool]],
                 aborted: list[AbortedTxn]) -> set[int]:
    """Offsets of the data batches that a consumer leaves out, by the list of a fetch."""
    waiting = sorted(aborted, key=lambda one: one.first_offset)
    active: set[int] = set()
    found: set[int] = set()
    for offset, producer, is_control in batches:
        while waiting and waiting[0].first_offset <= offset:
            active.add(waiting.pop(0).producer_id)
        if is_control:
            active.discard(producer)
        elif producer in active:
            found.add(offset)
    return found


def batches_of(data: bytes) -> list[tuple[int, int, bool]]:
    """(offset, producer, is control) of whole batches of one record."""
    found, at = [], 0
    while at + 61 <= len(data):
        size = int.from_bytes(data[at + 8:at + 12]) + 12
        if at + size > len(data):
            break
        found.append((int.from_bytes(data[at:at + 8]), int.from_bytes(data[at + 43:at + 51]),
                      bool(data[at + 22] & 0x20)))
        at += size
    return found


def left_out(tiering: Tiering, size: int) -> dict[int, dict[int, bool]]:
    """Of fetches from every offset: what a consumer leaves out of each."""
    found = {}
    for offset in range(tiering.log.log_end_offset):
        data = tiering.tiering.read(KEY, offset, size, COMMITTED)
        assert data.aborted_transactions is not None
        batches = batches_of(data.records)
        assert batches[0][0] == offset
        found[offset] = {batch: batch in aborted_data(batches, data.aborted_transactions)
                         for batch, _, _ in batches}
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_same_after_local_deletion(tiering: Tiering, seed: int) -> None:
    write(tiering.log, random.Random(seed), 80)
    before = left_out(tiering, 300)
    assert any(any(one.values()) for one in before.values())
    tiering.copy()
    assert {one.txn_idx_empty for one in tiering.segments()} == {True, False}
    assert len(tiering.segments()) > 8
    tiering.log.delete_old_segments()
    assert len(tiering.bases()) == 1
    after = left_out(tiering, 300)
    for offset, batches in after.items():  # a fetch ends with its segment, and may be shorter
        known = before[offset]
        shared = batches.keys() & known.keys()
        assert offset in shared
        assert {one: batches[one] for one in shared} == {one: known[one] for one in shared}


def test_an_offset_index_that_leads_too_far_hides_no_abort(tiering: Tiering) -> None:
    """It says how far a fetch reaches, and so which transactions may be in it."""
    write(tiering.log, random.Random(1), 80)
    before = left_out(tiering, 300)
    tiering.copy()
    tiering.log.delete_old_segments()
    for segment in tiering.segments():
        stored = tiering.storage.path(segment, ".index")
        stored.write_bytes(b"".join(struct.pack(">ii", offset, position + (1 << 30)) for
                                    offset, position in struct.iter_unpack(">ii",
                                                                           stored.read_bytes())))
    for offset, batches in left_out(tiering, 300).items():
        known = before[offset]
        shared = batches.keys() & known.keys()
        assert offset in shared
        assert {one: batches[one] for one in shared} == {one: known[one] for one in shared}


def test_absent_transaction_indexes_read_as_empty(tiering: Tiering) -> None:
    """As from a broker before the metadata said whether there is one: nothing fails, and what a
    segment aborted is not known."""
    write(tiering.log, random.Random(1), 80)
    tiering.copy()
    tiering.log.delete_old_segments()
    for segment in tiering.segments():
        if not segment.txn_idx_empty:
            tiering.storage.path(segment, ".txnindex").unlink()
    for offset in range(tiering.segments()[-1].start_offset):
        found = tiering.tiering.read(KEY, offset, 300, COMMITTED)
        assert batches_of(found.records)[0][0] == offset
        assert all(one.last_offset >= tiering.log.local_log_start_offset
                   for one in found.aborted_transactions or ())


def test_a_read_of_nothing_names_no_transaction(tiering: Tiering) -> None:
    """The first batch is larger than the read may be."""
    write(tiering.log, random.Random(1), 120)
    tiering.copy()
    tiering.log.delete_old_segments()
    for offset in range(tiering.log.local_log_start_offset):
        found = tiering.tiering.read(KEY, offset, 1, COMMITTED, min_one_message=False)
        assert (found.records, found.aborted_transactions) == (b"", [])
