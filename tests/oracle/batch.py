"""Record batches of magic 2 and what their records are as rows (DefaultRecordBatch)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from tests.oracle import compression
from tests.oracle.wire import OracleError, Reader, crc32c, java_utf8, varint, varlong

Row = dict[str, Any]
Headers = list[tuple[bytes, bytes | None]]

HEADER = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == 61

CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
ABORT, COMMIT, LEADER_CHANGE = 0, 1, 2
MAX_SEQUENCE = 2**31 - 1


@dataclass
class Record:
    """One record of a batch, offsets and timestamps absolute."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = field(default_factory=list)


@dataclass
class Batch:
    """A batch of magic 2 as its header says it; `records` are the ones that are left."""

    base_offset: int
    last_offset_delta: int
    records: list[Record]
    codec: int = 0
    timestamp_type: int = 0
    base_timestamp: int = -1
    max_timestamp: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    partition_leader_epoch: int = 0
    is_transactional: bool = False
    is_control: bool = False
    has_delete_horizon: bool = False
    raw_snappy: bool = False

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def attributes(self) -> int:
        return (self.codec | LOG_APPEND_TIME * self.timestamp_type
                | TRANSACTIONAL * self.is_transactional | CONTROL * self.is_control
                | DELETE_HORIZON * self.has_delete_horizon)


class PartialBatch(OracleError):
    """A batch whose records do not parse to the end; `batch` holds those that did."""

    def __init__(self, message: str, batch: Batch) -> None:
        super().__init__(message)
        self.batch = batch


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """One record in the form of magic 2, its length in front."""

    def blob(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = (b"\x00" + varlong(_java_long(record.timestamp - base_timestamp))
            + varint(record.offset - base_offset) + blob(record.key) + blob(record.value)
            + varint(len(record.headers)))
    for key, value in record.headers:
        body += varint(len(key)) + key + blob(value)
    return varint(len(body)) + body


def seal(base_offset: int, leader_epoch: int, attributes: int, last_offset_delta: int,
         base_timestamp: int, max_timestamp: int, producer_id: int, producer_epoch: int,
         base_sequence: int, record_count: int, payload: bytes, magic: int = 2) -> bytes:
    """A header with the right length and CRC before `payload`, whatever the fields say."""
    rest = struct.pack(">hiqqqhii", attributes, last_offset_delta, base_timestamp, max_timestamp,
                       producer_id, producer_epoch, base_sequence, record_count) + payload
    return struct.pack(">qiibI", base_offset, 9 + len(rest), leader_epoch, magic,
                       crc32c(rest)) + rest


def encode(batch: Batch) -> bytes:
    """The bytes of a batch as they stand in a log file."""
    plain = b"".join(encode_record(record, batch.base_offset, batch.base_timestamp)
                     for record in batch.records)
    payload = compression.compress(batch.codec, plain, raw_snappy=batch.raw_snappy) \
        if batch.records else b""
    return seal(batch.base_offset, batch.partition_leader_epoch, batch.attributes,
                batch.last_offset_delta, batch.base_timestamp, batch.max_timestamp,
                batch.producer_id, batch.producer_epoch, batch.base_sequence,
                len(batch.records), payload)


def _decode_record(outer: Reader, base_offset: int, base_timestamp: int) -> Record:
    size = outer.varint()
    if size < 0 or size > outer.remaining:
        raise OracleError(f"record of {size} bytes, {outer.remaining} left")
    reader = Reader(outer.data, outer.position, outer.position + size)
    outer.take(size)
    reader.take(1)
    timestamp = _java_long(base_timestamp + reader.varlong())
    offset = _java_long(base_offset + reader.varint())

    def blob() -> bytes | None:
        length = reader.varint()
        return None if length < 0 else reader.take(length)

    key, value, headers = blob(), blob(), []
    count = reader.varint()
    if count < 0 or count > reader.remaining:
        raise OracleError(f"{count} headers in {reader.remaining} bytes")
    for _ in range(count):
        headers.append((reader.take(reader.varint()), blob()))
    if reader.remaining:
        raise OracleError(f"{reader.remaining} bytes behind the last header")
    return Record(offset, timestamp, key, value, headers)


def decode(data: bytes, *, check_crc: bool = True) -> Batch:
    """The batch whose bytes are exactly `data`; OracleError for what Kafka refuses."""
    if len(data) < HEADER.size:
        raise OracleError(f"batch of {len(data)} bytes")
    (base_offset, length, leader_epoch, _, crc, attributes, delta, base_timestamp, max_timestamp,
     producer_id, producer_epoch, base_sequence, count) = HEADER.unpack_from(data)
    if length + 12 != len(data):
        raise OracleError(f"length {length} in a batch of {len(data)} bytes")
    if check_crc and crc != crc32c(data[21:]):
        raise OracleError(f"crc {crc:#x}, not {crc32c(data[21:]):#x}")
    if count < 0:
        raise OracleError(f"record count {count}")
    batch = Batch(
        base_offset, delta, [], codec=attributes & CODEC_MASK,
        timestamp_type=int(bool(attributes & LOG_APPEND_TIME)), base_timestamp=base_timestamp,
        max_timestamp=max_timestamp, producer_id=producer_id, producer_epoch=producer_epoch,
        base_sequence=base_sequence, partition_leader_epoch=leader_epoch,
        is_transactional=bool(attributes & TRANSACTIONAL), is_control=bool(attributes & CONTROL),
        has_delete_horizon=bool(attributes & DELETE_HORIZON))
    if batch.codec > compression.ZSTD:
        raise OracleError(f"codec {batch.codec}")
    if count == 0:
        return batch
    reader = Reader(compression.decompress(batch.codec, data[HEADER.size:]))
    try:
        for _ in range(count):
            batch.records.append(_decode_record(reader, base_offset, base_timestamp))
        if reader.remaining:
            raise OracleError(f"{reader.remaining} bytes behind the last record")
    except OracleError as error:
        raise PartialBatch(str(error), batch) from error
    return batch


def add_sequence(sequence: int, delta: int) -> int:
    """Sequences live in 0 to 2**31 - 1 and wrap to 0; in the ints of Java for a negative delta."""
    if sequence > _java_int(MAX_SEQUENCE - delta):
        return _java_int(delta - (MAX_SEQUENCE - sequence) - 1)
    return sequence + delta


def _java_int(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def _java_long(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def rows(batch: Batch, position: int) -> list[Row]:
    """The batch's records with every column that seglog has."""
    found: list[Row] = []
    for record in batch.records:
        sequence = -1 if batch.base_sequence < 0 else \
            add_sequence(batch.base_sequence, record.offset - batch.base_offset)
        found.append({
            "offset": record.offset,
            "timestamp": batch.max_timestamp if batch.timestamp_type else record.timestamp,
            "timestamp_type": batch.timestamp_type,
            "key": record.key, "value": record.value,
            "headers": [{"key": java_utf8(key), "value": value} for key, value in record.headers],
            "producer_id": batch.producer_id, "producer_epoch": batch.producer_epoch,
            "sequence": sequence, "partition_leader_epoch": batch.partition_leader_epoch,
            "is_transactional": batch.is_transactional, "is_control": batch.is_control,
            "position": position,
        })
    return found


def marker(offset: int, producer_id: int, producer_epoch: int, kind: int, timestamp: int, *,
           coordinator_epoch: int = 0, leader_epoch: int = 0) -> Batch:
    """The control batch that ends a transaction (EndTransactionMarker)."""
    record = Record(offset, timestamp, struct.pack(">hh", 0, kind),
                    struct.pack(">hi", 0, coordinator_epoch))
    return Batch(offset, 0, [record], base_timestamp=timestamp, max_timestamp=timestamp,
                 producer_id=producer_id, producer_epoch=producer_epoch,
                 partition_leader_epoch=leader_epoch, is_transactional=True, is_control=True)


def marker_kind(batch: Batch) -> int | None:
    """ABORT or COMMIT when the batch ends a transaction and still holds its marker."""
    if not batch.is_control or batch.producer_id < 0 or not batch.records:
        return None
    return int(struct.unpack_from(">h", batch.records[0].key or b"\0\0\0\0", 2)[0])
