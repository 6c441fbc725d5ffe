"""Index files, producer snapshots and checkpoints."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from tests.oracle.wire import OracleError, crc32c

OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY = struct.Struct(">ii"), struct.Struct(">qi"), \
    struct.Struct(">hqqqq")
SNAPSHOT_HEADER, SNAPSHOT_ENTRY = struct.Struct(">hIi"), struct.Struct(">qhiqiqiq")
assert (OFFSET_ENTRY.size, TIME_ENTRY.size, TXN_ENTRY.size) == (8, 12, 34)
assert (SNAPSHOT_HEADER.size, SNAPSHOT_ENTRY.size) == (10, 46)


def decode_offset_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(offset, position) of every whole entry, zero tail and all."""
    whole = len(data) // 8 * 8
    return [(base_offset + relative, position)
            for relative, position in OFFSET_ENTRY.iter_unpack(data[:whole])]


def encode_offset_index(entries: list[tuple[int, int]], base_offset: int) -> bytes:
    return b"".join(OFFSET_ENTRY.pack(offset - base_offset, position)
                    for offset, position in entries)


def decode_time_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(timestamp, offset) of every whole entry, zero tail and all."""
    whole = len(data) // 12 * 12
    return [(timestamp, base_offset + relative)
            for timestamp, relative in TIME_ENTRY.iter_unpack(data[:whole])]


def encode_time_index(entries: list[tuple[int, int]], base_offset: int) -> bytes:
    return b"".join(TIME_ENTRY.pack(timestamp, offset - base_offset)
                    for timestamp, offset in entries)


@dataclass(frozen=True)
class AbortedTransaction:
    """An entry of a transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def decode_txn_index(data: bytes) -> list[AbortedTransaction]:
    whole = len(data) // TXN_ENTRY.size * TXN_ENTRY.size
    return [AbortedTransaction(*entry[1:]) for entry in TXN_ENTRY.iter_unpack(data[:whole])]


def encode_txn_index(entries: list[AbortedTransaction]) -> bytes:
    return b"".join(TXN_ENTRY.pack(0, e.producer_id, e.first_offset, e.last_offset,
                                   e.last_stable_offset) for e in entries)


@dataclass(frozen=True)
class ProducerEntry:
    """An entry of a producer snapshot."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(entries: list[ProducerEntry]) -> bytes:
    body = struct.pack(">i", len(entries)) + b"".join(
        SNAPSHOT_ENTRY.pack(e.producer_id, e.producer_epoch, e.last_sequence, e.last_offset,
                            e.offset_delta, e.last_timestamp, e.coordinator_epoch,
                            e.current_txn_first_offset) for e in entries)
    return struct.pack(">hI", 1, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    if len(data) < SNAPSHOT_HEADER.size:
        raise OracleError(f"snapshot of {len(data)} bytes")
    version, crc, count = SNAPSHOT_HEADER.unpack_from(data)
    if version != 1 or crc != crc32c(data[6:]):
        raise OracleError(f"snapshot of version {version} with crc {crc:#x}")
    if count < 0 or 10 + count * SNAPSHOT_ENTRY.size > len(data):
        raise OracleError(f"snapshot of {count} entries in {len(data)} bytes")
    return [ProducerEntry(*SNAPSHOT_ENTRY.unpack_from(data, 10 + n * SNAPSHOT_ENTRY.size))
            for n in range(count)]


def encode_checkpoint(lines: list[str]) -> str:
    return "\n".join(["0", str(len(lines)), *lines]) + "\n"


def segment_path(partition: Path, base_offset: int, suffix: str = ".log") -> Path:
    return partition / f"{base_offset:020d}{suffix}"
