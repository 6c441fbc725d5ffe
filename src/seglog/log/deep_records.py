"""Every record of a client's bytes, one at a time, as Kafka iterates them (MemoryRecords.records).

For what cannot be quick: conversions of old formats, and messages that name records.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from seglog._native.batch import ATTRIBUTE_CODEC
from seglog._native.validate import RecordWalk, Refusal, Source, frames
from seglog.errors import IllegalArgumentError
from seglog.log.legacy_records import LegacyRecord, inner_records
from seglog.log.refusals import of_frame, of_record
from seglog.storage import codecs

__all__ = ["HEADER_BYTES", "legacy_records", "payload", "plain_payload", "record_offsets",
           "touch_records"]

#: Before the records of a batch of magic 2.
HEADER_BYTES = 61
_PREFIX_BYTES = 12

Batches = NDArray[np.void]


def payload(records: memoryview, batches: Batches, row: int) -> memoryview:
    """What is behind the header of a batch of magic 2."""
    position = int(batches["position"][row])
    return records[position + HEADER_BYTES:position + int(batches["size"][row])]


def plain_payload(records: memoryview, batches: Batches, row: int) -> memoryview:
    """The records of a batch of magic 2, decompressed.

    Raises IllegalArgumentError for a codec that does not exist, and DecompressionError.
    """
    codec = int(batches["attributes"][row]) & ATTRIBUTE_CODEC
    if codec > codecs.ZSTD:
        raise IllegalArgumentError(f"Unknown compression type id: {codec}")
    return codecs.decompress(codec, 2, payload(records, batches, row))


def legacy_records(records: memoryview, batches: Batches, row: int) -> Iterator[LegacyRecord]:
    """The messages of an entry of magic 0 or 1: itself, or those in it."""
    position = int(batches["position"][row])
    end = position + int(batches["size"][row])
    outer = LegacyRecord(int(batches["base_offset"][row]),
                         records[position + _PREFIX_BYTES:end])
    return inner_records(outer) if outer.codec else iter((outer,))


def touch_records(records: memoryview) -> None:
    """Looks at every field of every record, as Kafka does when it adds up their sizes."""
    for _ in _offsets(records, touching=True):
        pass


def _offsets(records: memoryview, *, touching: bool = False) -> Iterator[int]:
    found = frames(records)
    batches = found.batches
    for row in range(len(batches)):
        if batches["magic"][row] < 2:
            for message in legacy_records(records, batches, row):
                if touching:
                    message.touch()
                yield message.offset
        elif batches["record_count"][row]:
            offsets = _offsets_of_batch(records, batches, row)
            # Kafka has read all of a compressed batch before it gives out the first record.
            is_compressed = int(batches["attributes"][row]) & ATTRIBUTE_CODEC
            yield from list(offsets) if is_compressed else offsets
    error = of_frame(found.refusal, found.a)
    if error is not None:
        raise error


def _offsets_of_batch(records: memoryview, batches: Batches, row: int) -> Iterator[int]:
    is_compressed = int(batches["attributes"][row]) & ATTRIBUTE_CODEC
    walk = RecordWalk(batches, row, plain_payload(records, batches, row),
                      source=Source.STREAM if is_compressed else Source.BUFFER)
    while (refusal := walk.next()) == Refusal.ACCEPTED:
        yield walk.offset
    if refusal != Refusal.NO_MORE:
        raise of_record(refusal, walk)


def record_offsets(records: memoryview, limit: int | None = None) -> list[int]:
    """Offsets of the first `limit` records, or of all, for a message.

    Raises what Kafka raises in the middle of such a message when a record does not parse.
    """
    return list(islice(_offsets(records), limit))
