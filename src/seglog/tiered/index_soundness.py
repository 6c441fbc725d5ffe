"""Whether an index in a tier is right for its segment, though not the one that a recovery makes.

A broker that was restarted while the segment was active, or that had another index.interval.bytes,
wrote other entries. They are as good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from seglog._native.index import STORED_OFFSET_DTYPE, STORED_TIME_DTYPE, read_aborted
from seglog.errors import CorruptIndexError, SeglogError
from seglog.model import EpochEntry, ProducerStateEntry
from seglog.storage.epochs import read_leader_epochs
from seglog.storage.producer_state import decode_snapshot, encode_snapshot
from seglog.tiered.remote_storage import IndexType

__all__ = ["Batches", "SegmentFacts", "problem_of"]

Batches = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What the batches of a segment say: every batch, the leader epochs and the producers at its
    end. `is_complete`: the producers before the segment were known."""

    start_offset: int
    end_offset: int
    batches: Batches
    epochs: Sequence[EpochEntry]
    producers: Sequence[ProducerStateEntry]
    is_complete: bool


def problem_of(kind: IndexType, content: bytes, facts: SegmentFacts) -> str | None:
    """What is wrong with an index that is not the rebuilt one; None if readers can use it."""
    try:
        return _PROBLEMS[kind](content, facts)
    except SeglogError as error:
        return str(error)


def _offset_problem(content: bytes, facts: SegmentFacts) -> str | None:
    entries = _entries(content, STORED_OFFSET_DTYPE)
    offsets = entries["offset"].astype(np.int64) + facts.start_offset
    positions = entries["position"].astype(np.int64)
    rows = np.searchsorted(facts.batches["position"], positions)
    rows = np.minimum(rows, len(facts.batches) - 1)
    wrong = (facts.batches["position"][rows] != positions) \
        | (offsets < facts.batches["base_offset"][rows]) | (offsets > facts.end_offset)
    wrong[1:] |= (np.diff(offsets) <= 0) | (np.diff(positions) <= 0)
    return None if not wrong.any() else _at(int(wrong.argmax()), "names no batch of its offset")


def _time_problem(content: bytes, facts: SegmentFacts) -> str | None:
    entries = _entries(content, STORED_TIME_DTYPE)
    offsets = entries["offset"].astype(np.int64) + facts.start_offset
    timestamps = entries["timestamp"].astype(np.int64)
    latest = np.maximum.accumulate(facts.batches["max_timestamp"])
    rows = np.searchsorted(facts.batches["last_offset"], offsets)
    wrong = rows >= len(facts.batches)
    wrong |= latest[np.minimum(rows, len(facts.batches) - 1)] != timestamps
    wrong[1:] |= (np.diff(offsets) < 0) | (np.diff(timestamps) < 0)
    return None if not wrong.any() else _at(
        int(wrong.argmax()), "is not the largest timestamp up to its offset")


def _entries(content: bytes, dtype: np.dtype[np.void]) -> Batches:
    """Raises CorruptIndexError."""
    _check_whole(content, dtype.itemsize)
    return np.frombuffer(content, dtype)


def _check_whole(content: bytes, entry_bytes: int) -> None:
    if len(content) % entry_bytes:
        raise CorruptIndexError(f"{len(content)} bytes are no whole entries of {entry_bytes}")


def _at(row: int, what: str) -> str:
    return f"entry {row} {what}"


def _aborted_problem(content: bytes, facts: SegmentFacts) -> str | None:
    aborted = read_aborted("transaction index", content)
    _check_whole(content, aborted.itemsize)
    ends = aborted["last_offset"]
    if facts.is_complete or ((ends < facts.start_offset) | (ends > facts.end_offset)).any():
        return "its entries are not the aborted transactions that end in the segment"
    return None


def _epochs_problem(content: bytes, facts: SegmentFacts) -> str | None:
    found = read_leader_epochs("leader epochs", content)
    for entry in facts.epochs:
        if found.epoch_for_offset(entry.start_offset) != entry.epoch:
            return f"offset {entry.start_offset} has epoch {entry.epoch} in the segment and " \
                f"{found.epoch_for_offset(entry.start_offset)} here"
    if found.latest is not None and found.latest.start_offset > facts.end_offset:
        return f"epoch {found.latest.epoch} begins after the segment"
    return None


def _producers_problem(content: bytes, facts: SegmentFacts) -> str | None:
    """A restart forgets producers that have expired, whose times are the records', and with them
    the epoch of their coordinator (Kafka: ProducerStateManager.isProducerExpired). It keeps those
    with an open transaction."""
    found = {one.producer_id: one for one in decode_snapshot(content)}
    for entry in found.values():
        if entry.last_data_offset > facts.end_offset:
            return f"producer {entry.producer_id} wrote offset {entry.last_data_offset}, after " \
                "the segment"
    for entry in facts.producers:
        if entry.last_data_offset < facts.start_offset:
            continue
        stored = found.get(entry.producer_id)
        if stored is None and entry.current_txn_first_offset is None:
            continue
        if stored is not None and stored.coordinator_epoch == -1:
            entry = replace(entry, coordinator_epoch=-1)
        if stored is None or encode_snapshot([stored]) != encode_snapshot([entry]):
            return f"producer {entry.producer_id} is not as the segment leaves it"
    return None


_PROBLEMS = {IndexType.OFFSET: _offset_problem, IndexType.TIMESTAMP: _time_problem,
             IndexType.TRANSACTION: _aborted_problem, IndexType.LEADER_EPOCH: _epochs_problem,
             IndexType.PRODUCER_SNAPSHOT: _producers_problem}
