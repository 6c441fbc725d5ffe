"""A partition directory as Kafka's reader sees it: entries of files, rows, transactions."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.oracle import batch as v2
from tests.oracle import legacy
from tests.oracle.batch import Batch, Row
from tests.oracle.files import AbortedTransaction
from tests.oracle.wire import OracleError

PREFIX, HEADER_TO_MAGIC, MIN_LENGTH = 12, 17, 14


@dataclass
class Entry:
    """One batch, or one message of the old formats, of one file."""

    segment: int
    position: int
    size: int
    magic: int
    data: bytes

    def decode(self, *, check_crc: bool = True) -> Batch | legacy.Message:
        if self.magic >= 2:
            return v2.decode(self.data, check_crc=check_crc)
        return legacy.decode(self.data, check_crc=check_crc)

    def rows(self, *, check_crc: bool = True) -> list[Row]:
        decoded = self.decode(check_crc=check_crc)
        if isinstance(decoded, Batch):
            return v2.rows(decoded, self.position)
        return legacy.rows(decoded, self.position)


def entries(data: bytes, segment: int = 0) -> Iterator[Entry]:
    """The entries of one file, by the rules of a file (FileLogInputStream), zeros at its end apart.

    A torn tail ends quietly, and so does a tail of zeros, which Kafka refuses as a length of 0.
    """
    position = 0
    while position < len(data) - HEADER_TO_MAGIC:
        length, = struct.unpack_from(">i", data, position + 8)
        if length < MIN_LENGTH:
            if not any(data[position:]):
                return
            raise OracleError(f"length {length} at {position}")
        end = position + PREFIX + length
        if end > len(data):
            return
        magic = int.from_bytes(data[position + 16:position + 17], "big", signed=True)
        yield Entry(segment, position, PREFIX + length, magic, data[position:end])
        position = end


def base_offsets(partition: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in partition.glob("*.log"))


def read_entries(partition: Path) -> Iterator[Entry]:
    """Every entry of every segment, in order."""
    for base in base_offsets(partition):
        yield from entries((partition / f"{base:020d}.log").read_bytes(), base)


@dataclass
class Read:
    """What reading a partition gave: the rows before the first error, and that error."""

    rows: list[Row] = field(default_factory=list)
    error: OracleError | None = None
    log_end_offset: int = 0


def read(partition: Path, *, check_crc: bool = True) -> Read:
    """All records, control records too, up to the first entry that Kafka would refuse."""
    found = Read()
    try:
        for entry in read_entries(partition):
            decoded = entry.decode(check_crc=check_crc)
            found.rows += entry.rows(check_crc=check_crc)
            last = decoded.last_offset if isinstance(decoded, Batch) else decoded.offset
            found.log_end_offset = last + 1
    except OracleError as error:
        found.error = error
    return found


@dataclass
class Transactions:
    """What the log itself says of its transactions, without any index."""

    aborted: list[AbortedTransaction] = field(default_factory=list)
    #: producer id to first offset
    open: dict[int, int] = field(default_factory=dict)


def transactions(partition: Path) -> Transactions:
    """A replay of every transactional batch and marker (ProducerStateManager)."""
    found = Transactions()
    for entry in read_entries(partition):
        if entry.magic < 2:
            continue
        batch = v2.decode(entry.data)
        if not batch.is_transactional:
            continue
        kind = v2.marker_kind(batch)
        if kind is None:
            if not batch.is_control:
                found.open.setdefault(batch.producer_id, batch.base_offset)
        elif batch.producer_id in found.open:
            first = found.open.pop(batch.producer_id)
            if kind == v2.ABORT:
                stable = min(found.open.values(), default=batch.last_offset + 1)
                found.aborted.append(AbortedTransaction(
                    batch.producer_id, first, batch.last_offset, stable))
    return found


def last_stable_offset(partition: Path, log_end_offset: int) -> int:
    return min(transactions(partition).open.values(), default=log_end_offset)


def committed(rows: list[Row], found: Transactions) -> list[Row]:
    """The rows that a read_committed consumer gets: no aborted ones, none past the LSO."""
    stable = min(found.open.values(), default=None)
    spans: dict[int, list[tuple[int, int]]] = {}
    for transaction in found.aborted:
        spans.setdefault(transaction.producer_id, []).append(
            (transaction.first_offset, transaction.last_offset))
    return [row for row in rows if (stable is None or row["offset"] < stable) and not (
        row["is_transactional"] and any(
            first <= row["offset"] <= last for first, last in spans.get(row["producer_id"], [])))]


def data(rows: Iterable[Row]) -> list[Row]:
    """The rows without control records: what any consumer gets."""
    return [row for row in rows if not row["is_control"]]
