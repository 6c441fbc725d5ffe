"""Producer snapshots (`.snapshot`): the state of each producer."""

from __future__ import annotations

import os
from typing import Any

from seglog._native.crc32c import crc32c
from seglog._native.file import open_read, read_at
from seglog.dump.messages import MessageError, Reader, message
from seglog.dump.dump_output import Output
from seglog.errors import CorruptSnapshotError

__all__ = ["dump_producer_snapshot", "read_producers"]

_CRC_FROM = 6
_INT32_MAX = 2**31 - 1


def read_producers(path: str) -> list[dict[str, Any]]:
    """The entries in file order. Raises CorruptSnapshotError with Kafka's text."""
    fd, size = open_read(path, follow_links=True)
    try:
        data = read_at(fd, size, 0, file=path)
    finally:
        os.close(fd)
    schema = message("ProducerSnapshot")
    try:
        reader = Reader(data)
        version = reader.fixed(">h")
        if not schema.lowest <= version <= schema.highest:
            raise MessageError(f"Snapshot contained an unknown file version {version}")
        values = schema.read(reader, version)
    except MessageError as error:
        raise CorruptSnapshotError(f"Snapshot failed schema validation: {error}", file=path,
                                   code="snapshot_schema") from None
    computed = crc32c(data[_CRC_FROM:])
    if values["crc"] != computed:
        raise CorruptSnapshotError(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {values['crc']}. "
            f"Computed crc: {computed}", file=path, position=2, expected=values["crc"],
            found=computed, code="snapshot_crc")
    entries: list[dict[str, Any]] = values["producerEntries"]
    return entries


def dump_producer_snapshot(path: str, output: Output) -> None:
    """Prints one line per producer. Raises CorruptSnapshotError, after which the dump continues,
    as in Kafka."""
    for entry in read_producers(path):
        txn = entry["currentTxnFirstOffset"]
        txn_text = f"OptionalLong[{txn}]" if txn >= 0 else "OptionalLong.empty"
        line = (f"producerId: {entry['producerId']} producerEpoch: {entry['epoch']} "
                f"coordinatorEpoch: {entry['coordinatorEpoch']} currentTxnFirstOffset: {txn_text} "
                f"lastTimestamp: {entry['timestamp']}")
        facts = {"type": "producer", "producer_id": entry["producerId"],
                 "producer_epoch": entry["epoch"], "coordinator_epoch": entry["coordinatorEpoch"],
                 "current_txn_first_offset": txn if txn >= 0 else None,
                 "last_timestamp": entry["timestamp"]}
        if entry["lastOffset"] >= 0:
            last, delta = entry["lastSequence"], entry["offsetDelta"]
            first = _first_sequence(last, delta)
            line += (f" firstSequence: {first} lastSequence: {last} "
                     f"lastOffset: {entry['lastOffset']} offsetDelta: {delta} "
                     f"timestamp: {entry['timestamp']}")
            facts.update(first_sequence=first, last_sequence=last,
                         last_offset=entry["lastOffset"], offset_delta=delta)
        output.line(line, **facts)


def _first_sequence(last: int, delta: int) -> int:
    """DefaultRecordBatch.decrementSequence in wrapping 32-bit arithmetic."""
    value = _INT32_MAX - (delta - last) + 1 if last < delta else last - delta
    value &= 0xFFFFFFFF
    return value - 2**32 if value & 0x80000000 else value
