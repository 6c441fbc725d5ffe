"""Kafka's exceptions and messages for what `_native.validate` refuses."""

from __future__ import annotations

from collections.abc import Callable

from seglog._native.validate import RecordWalk, Refusal
from seglog.errors import (
    CorruptRecordError, DecompressionError, IllegalArgumentError, InvalidRecordError,
    OutOfBoundsError, SeglogError, UncheckedError,
)
from seglog.storage.codec_streams import StreamError

__all__ = ["of_frame", "of_record", "of_stream"]

Make = Callable[[int, int], SeglogError]


def _invalid(text: str) -> Make:
    return lambda a, b: InvalidRecordError(text.format(a=a, b=b), expected=a, found=b,
                                           code="record")


_OF_RECORDS: dict[int, Make] = {
    Refusal.RECORD_COUNT: _invalid("Found invalid record count {a} in magic v2 batch"),
    Refusal.PREMATURE_END: _invalid("Incorrect declared batch size, premature EOF reached"),
    Refusal.VARINT: lambda a, b: IllegalArgumentError(
        "Varint is too long, the most significant bit in the 5th byte is set, "
        f"converted value: {a:x}"),
    Refusal.BODY: _invalid("Invalid record size: expected {a} bytes in record payload, but "
                           "instead the buffer has only {b} remaining bytes."),
    Refusal.BODY_END: _invalid("Invalid record size: expected {a} bytes in record payload, but "
                               "the record payload reached EOF."),
    Refusal.BODY_SIZE: _invalid("Invalid record size: expected to read {a} bytes in record "
                                "payload, but instead read {b}"),
    Refusal.STRUCTURE: _invalid("Found invalid record structure"),
    Refusal.HEADER_COUNT: _invalid("Found invalid number of record headers {a}"),
    Refusal.HEADERS_LEFT: _invalid("Found invalid number of record headers. {a} is larger than "
                                   "the remaining size of the buffer"),
    Refusal.HEADER_KEY: _invalid("Invalid negative header key size {a}"),
    Refusal.SKIP: _invalid("Reached end of input stream before skipping all bytes. "
                           "Remaining bytes:{a}"),
    Refusal.BYTES_LEFT: _invalid("Incorrect declared batch size, records still remaining in file"),
}

_OF_FRAMES: dict[int, Make] = {
    Refusal.LENGTH: lambda a, b: CorruptRecordError(
        f"Record size {a} is less than the minimum record overhead (14)", expected=14, found=a,
        code="batch_length"),
    Refusal.OVERFLOW: lambda a, b: IllegalArgumentError(f"newLimit < 0: ({a} < 0)"),
    Refusal.MAGIC: lambda a, b: CorruptRecordError(
        f"Invalid magic found in record: {a}", expected=2, found=a, code="batch_magic"),
    Refusal.SHORT: lambda a, b: OutOfBoundsError(f"a batch of {a} bytes ends inside its header"),
}


def of_record(refusal: int, walk: RecordWalk) -> SeglogError:
    """The exception for an invalid record."""
    return _OF_RECORDS[refusal](walk.a, walk.b)


def of_frame(refusal: int, a: int) -> SeglogError | None:
    """The exception for bytes that are not a batch; None for every other refusal."""
    make = _OF_FRAMES.get(refusal)
    return None if make is None else make(a, 0)


def of_stream(error: StreamError, words: str | None = None) -> SeglogError:
    """The exception that Kafka throws for an error of a stream: it wraps an IOException, with
    `words` as its message if there are any, and passes on everything else."""
    if error.is_io or error.kafka_error == DecompressionError.kafka_name:
        return DecompressionError(str(error) if words is None else words, code="codec_data")
    return UncheckedError(error.message, error.kafka_error)
