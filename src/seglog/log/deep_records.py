"""Every record of a client's bytes, one at a time, as Kafka iterates them (MemoryRecords.records).

For the slow cases: conversions of old formats, and error messages that name records.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from seglog._native.batch import ATTRIBUTE_CODEC
from seglog._native.validate import RecordSource, RecordWalk, Refusal, frames
from seglog.errors import DecompressionError, SeglogError
from seglog.log.refusals import of_frame, of_record, of_stream
from seglog.storage import codecs
from seglog.storage.codec_streams import StreamError, open_stream
from seglog.storage.legacy_records import LegacyRecord, inner_records

__all__ = ["HEADER_BYTES", "legacy_records", "payload", "plain_or_readable", "record_offsets",
           "refused_record", "stamped_records", "touch_records"]

#: Before the records of a batch of magic 2.
HEADER_BYTES = 61
_PREFIX_BYTES = 12
_BROKEN_STREAM = "Failed to decompress record stream"

Batches = NDArray[np.void]


def payload(records: memoryview, batches: Batches, row: int) -> memoryview:
    """The bytes after the header of a batch of magic 2."""
    position = int(batches["position"][row])
    return records[position + HEADER_BYTES:position + int(batches["size"][row])]


def plain_or_readable(records: memoryview, batches: Batches,
                      row: int) -> tuple[memoryview, StreamError | None]:
    """The records of a batch of magic 2, decompressed. If the codec refuses the payload, returns
    the readable part, and the exception of Java's stream.

    Raises IllegalArgumentError for an unknown codec, and DecompressionError if Kafka cannot even
    open the payload.
    """
    codec = codecs.known_codec(int(batches["attributes"][row]))
    given = payload(records, batches, row)
    if codec != codecs.GZIP:  # its usual decoder accepts codes that zlib (and Java) refuses
        try:
            return codecs.decompress(codec, 2, given), None
        except DecompressionError:
            pass  # Java's streams accept some of these payloads
    found = bytearray()
    try:
        stream = open_stream(codec, 2, given)
    except StreamError as error:
        raise of_stream(error) from None
    try:
        while piece := stream.read(max(stream.buffered, 1)):
            found += piece
    except StreamError as error:
        return memoryview(found), error
    return memoryview(found), None


def refused_record(refusal: int, walk: RecordWalk, batches: Batches, row: int, plain: memoryview,
                   source: RecordSource, failure: StreamError | None) -> SeglogError:
    """The exception for an invalid record; that of the stream, if the record is invalid only
    because bytes are missing. With more bytes the exception would differ."""
    if failure is not None:
        if refusal == Refusal.BODY_END:  # even 64 more bytes may be too few
            return of_stream(failure, _BROKEN_STREAM)
        short, longer = (RecordWalk(batches, row, data, source=source)
                         for data in (plain, bytes(plain) + bytes(64)))
        said = [(one.run(), one.index, one.a, one.b) for one in (short, longer)]
        if said[0][0] == refusal and said[0] != said[1]:
            return of_stream(failure, _BROKEN_STREAM)
    return of_record(refusal, walk)


def legacy_records(records: memoryview, batches: Batches, row: int) -> Iterator[LegacyRecord]:
    """The messages of an entry of magic 0 or 1: itself, or those inside it."""
    position = int(batches["position"][row])
    end = position + int(batches["size"][row])
    outer = LegacyRecord(int(batches["base_offset"][row]),
                         records[position + _PREFIX_BYTES:end])
    return _inner_records(outer) if outer.codec else iter((outer,))


def _inner_records(wrapper: LegacyRecord) -> Iterator[LegacyRecord]:
    try:
        yield from inner_records(wrapper)
    except StreamError as error:
        raise of_stream(error) from None


def touch_records(records: memoryview) -> None:
    """Reads every field of every record, as Kafka does when it sums their sizes."""
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
        else:
            for offset, _ in stamped_records(records, batches, row):
                yield offset
    error = of_frame(found.refusal, found.a)
    if error is not None:
        raise error


def stamped_records(records: memoryview, batches: Batches, row: int, *,
                    streaming: bool = False) -> Iterator[tuple[int, int]]:
    """Offset and timestamp (ms) of each record of a batch, in any format.

    Kafka reads all of a compressed batch before it returns the first record. If it is `streaming`,
    valid records come before the exception for an invalid one.
    """
    if batches["magic"][row] < 2:
        yield from ((one.offset, one.timestamp) for one in legacy_records(records, batches, row))
        return
    if not batches["record_count"][row]:
        return
    is_compressed = bool(int(batches["attributes"][row]) & ATTRIBUTE_CODEC)
    source = RecordSource.STREAM if is_compressed else RecordSource.BUFFER
    found = _streamed(records, batches, row, source)
    yield from list(found) if is_compressed and not streaming else found


def _streamed(records: memoryview, batches: Batches, row: int,
              source: RecordSource) -> Iterator[tuple[int, int]]:
    plain, failure = plain_or_readable(records, batches, row)
    walk = RecordWalk(batches, row, plain, source=source)
    while (refusal := walk.next()) == Refusal.ACCEPTED:
        # The last record is returned only if no bytes follow it.
        if failure is not None and walk.index == batches["record_count"][row]:
            raise of_stream(failure, "Error checking for remaining bytes after reading batch")
        yield walk.offset, walk.timestamp
    if refusal != Refusal.NO_MORE:
        raise refused_record(refusal, walk, batches, row, plain, source, failure)


def record_offsets(records: memoryview, limit: int | None = None) -> list[int]:
    """Offsets of the first `limit` records, or of all, for a message.

    Raises Kafka's exception in the middle of such a message if a record is invalid.
    """
    return list(islice(_offsets(records), limit))
