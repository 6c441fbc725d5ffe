"""Record batches from columns: Arrow tables of any library, numpy arrays, and lists.

The columns are those of a record: `key` and `value` (any binary or text type of Arrow, including
fixed-size ones), `timestamp` (64-bit integers in ms, or timestamps of any unit), `headers` (a list
of structs `key`, `value`, or a map). Each may be missing or null: a record then has no key, no
value, no headers, or the default timestamp. Other columns of records in a log or a topic (`offset`,
`topic`, ...) are ignored, so that records can be written as they were read. Unknown columns are
refused.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seglog._native.encode_columns import ColumnEncoder
from seglog._native.encode_sources import (
    READ_COLUMNS, ColumnSource, arrow_source, buffer_source, headers_source, selected_source,
)
from seglog.arguments import INT32_MAX, INT32_MIN, int32, int64, integer, shown
from seglog.errors import IllegalArgumentError
from seglog.log.batch_builder import (
    Headers, attributes_of, check_bytes, check_producer, codec_of,
)
from seglog.storage import codecs

__all__ = ["MAX_BATCH_BYTES_DEFAULT", "SPAN_BYTES_DEFAULT", "SelectedRows", "encode_batches",
           "encode_spans"]

#: Kafka's `batch.size` of a producer.
MAX_BATCH_BYTES_DEFAULT: Final = 16384
SPAN_BYTES_DEFAULT: Final = 1 << 20
_IGNORED: Final = READ_COLUMNS - {"key", "value", "timestamp", "headers"}
_TIME_UNITS: Final = {"s": "tss:", "ms": "tsm:", "us": "tsu:", "ns": "tsn:"}


class SelectedRows(NamedTuple):
    """Rows of tables, encoded without copying the tables.

    A piece is a table, exported by `__arrow_c_array__()`, and the numbers of its rows in the order
    of the records.
    """

    pieces: Sequence[tuple[tuple[object, object], NDArray[np.int32]]]


def encode_batches(data: Any, **options: Any) -> bytes:
    """All records of `data` as one span of batches; the options are those of `encode_spans`."""
    return next(encode_spans(data, **{"span_bytes": None, **options}), b"")


def encode_spans(data: Any, *, codec: int | str = codecs.NONE, level: int | None = None,
                 max_batch_bytes: int = MAX_BATCH_BYTES_DEFAULT, max_records: int = INT32_MAX,
                 span_bytes: int | None = SPAN_BYTES_DEFAULT, base_offset: int | None = None,
                 timestamp: int | None = None, log_append_time: int | None = None,
                 producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1,
                 is_transactional: bool = False,
                 partition_leader_epoch: int = -1) -> Iterator[bytes]:
    """Yields spans of whole batches that together hold all records.

    A span is one batch, or as many as fit into `span_bytes` (None: all of them). `data` is an
    object with Arrow's `__arrow_c_stream__` or `__arrow_c_array__` whose rows are the records
    (pyarrow, polars, pandas, duckdb, ...); or a mapping of column names to such objects, numpy
    arrays (`S`, `V`, two-dimensional uint8, int64, datetime64, object; what is masked is null) or
    lists (times as integers in ms; a row of headers is a sequence of pairs), all of one length; or
    SelectedRows.

    A batch ends before the record that would exceed `max_batch_bytes` (header included, before
    compression; a single record may exceed it) or `max_records`. Every batch begins at offset 0, as
    producers send them and leaders expect them. With a `base_offset` offsets increase from there,
    and so do sequences from `base_sequence`. `timestamp` (ms) is for records without one; None
    means now. The other options are RecordBatchBuilder's. `data` is copied only into the batches.
    The GIL is released around whole spans.

    Raises IllegalArgumentError before or between spans: for records that Kafka refuses, unknown
    columns, and types that a column cannot have. The message names the row.
    """
    codec = codec_of(codec)
    codecs.level_of(codec, level)
    _check_numbers(locals())
    check_producer(producer_id, producer_epoch, base_sequence, is_transactional=is_transactional)
    compress = functools.partial(codecs.compress, codec, level=level)
    return ColumnEncoder(
        _sources(data), base_offset=base_offset, attributes=attributes_of(
            codec, is_log_append_time=log_append_time is not None,
            is_transactional=is_transactional),
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence,
        partition_leader_epoch=partition_leader_epoch,
        timestamp=time.time_ns() // 1_000_000 if timestamp is None else timestamp,
        append_time=-1 if log_append_time is None else log_append_time,
        max_batch_bytes=max_batch_bytes, max_records=max_records, span_bytes=span_bytes,
        compress=compress if codec else None)


def _check_numbers(given: Mapping[str, Any]) -> None:
    """Checks the numeric arguments of `encode_spans`."""
    for name in ("base_offset", "timestamp", "log_append_time", "span_bytes"):
        if given[name] is not None:
            int64(name, given[name])
    for name in ("max_batch_bytes", "max_records", "producer_id"):
        int64(name, given[name])
    integer("producer_epoch", given["producer_epoch"], -1 << 15, (1 << 15) - 1)
    for name in ("base_sequence", "partition_leader_epoch"):
        int32(name, given[name], INT32_MIN)


def _sources(data: Any) -> list[ColumnSource]:
    if isinstance(data, SelectedRows):
        return [selected_source(data.pieces)]
    if not isinstance(data, Mapping):
        if not (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")):
            raise TypeError(f"{type(data).__name__} has neither __arrow_c_stream__ nor "
                            "__arrow_c_array__: give a table of pyarrow, polars, pandas or duckdb, "
                            "or a mapping of column names to columns")
        return [arrow_source(data)]
    sources = []
    for name, column in data.items():
        if name in _IGNORED:
            continue
        if hasattr(column, "__arrow_c_stream__") or hasattr(column, "__arrow_c_array__"):
            sources.append(arrow_source(column, name))
        elif column is not None:
            sources.append(_plain_source(name, column))
    if not sources:
        raise IllegalArgumentError(f"data has no column to encode: {shown(data)}")
    return sources


def _plain_source(name: str, column: Any) -> ColumnSource:
    """A column from a numpy array, from an object that numpy converts to an array, or from a
    list."""
    if name == "headers":
        return _headers(column)
    if not isinstance(column, np.ndarray):
        column = column.to_numpy() if hasattr(column, "to_numpy") else _objects(name, column)
    if isinstance(column, np.ma.MaskedArray):  # as of duckdb's fetchnumpy
        nothing: Any = np.array("NaT", column.dtype) if column.dtype.kind == "M" else None
        column = np.where(np.ma.getmaskarray(column), nothing, column.data)
    if name == "timestamp":
        return _times(name, column)
    if column.dtype == object:
        return _values(name, column.tolist())
    return _fixed(name, column)


def _objects(name: str, values: Any) -> NDArray[np.object_]:
    if isinstance(values, str | bytes | bytearray | Mapping) or not (
            hasattr(values, "__len__") and hasattr(values, "__getitem__")):
        # numpy would repeat a single value in every row.
        raise TypeError(f"the column {name} must be a list or an array, not {shown(values)}")
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _validity(valid: NDArray[np.bool_]) -> NDArray[np.uint8] | None:
    return None if valid.all() else np.packbits(valid, bitorder="little")


def _times(name: str, column: NDArray[Any]) -> ColumnSource:
    valid = None
    if column.dtype == object:
        valid = _validity(np.array([value is not None for value in column], bool))
        # numpy would cut a time in seconds to an integer, and read text as a number.
        column = np.array([0 if value is None else int64(f"timestamp of row {row}", value)
                           for row, value in enumerate(column)], np.int64)
    if column.ndim != 1 or column.dtype.kind not in "iuM":
        raise IllegalArgumentError(f"timestamps are integers or datetime64, not {column.dtype}")
    format = "l"
    if column.dtype.kind == "M":
        valid = _validity(~np.isnat(column))
        unit, count = np.datetime_data(column.dtype)
        if unit not in _TIME_UNITS or count != 1:
            column, unit = column.astype("M8[ms]"), "ms"
        format = _TIME_UNITS[unit]
    elif column.dtype.kind == "u" and column.dtype.itemsize == 8 and (column >> 63).any():
        raise IllegalArgumentError("a timestamp above 2**63 - 1")
    numbers = np.ascontiguousarray(column).astype(np.int64, copy=False)
    return buffer_source(name, format, len(numbers), [numbers], valid)


def _values(name: str, values: list[Any]) -> ColumnSource:
    try:
        # A copy of what can change, because the sizes must be those of the content.
        parts = [value if type(value) is bytes else
                 b"" if value is None else bytes(memoryview(value)) for value in values]
    except TypeError:
        for value in values:
            check_bytes(f"each {name}", value)
        raise
    offsets = np.fromiter(itertools.accumulate(map(len, parts), initial=0), np.int64,
                          len(parts) + 1)
    valid = _validity(np.array([value is not None for value in values], bool))
    content = np.frombuffer(b"".join(parts) or b"\0", np.uint8)
    return buffer_source(name, "Z", len(parts), [offsets, content], valid)


def _headers(rows: Iterable[Headers | None]) -> ColumnSource:
    """A column of headers: each row is a sequence of pairs, or None."""
    pairs: list[tuple[Any, Any]] = []
    ends = [0]
    for number, row in enumerate(rows):
        try:
            if isinstance(row, Mapping):
                raise TypeError
            found = [(key, value) for key, value in row or ()]
        except (TypeError, ValueError):
            raise TypeError(f"the headers of row {number} must be pairs of a key and a value, not "
                            f"{shown(row)}") from None
        pairs += [(key.encode() if isinstance(key, str) else key, value) for key, value in found]
        ends.append(len(pairs))
    if any(key is None for key, _ in pairs):
        raise IllegalArgumentError("Invalid null header key found in headers")
    lists = buffer_source("headers", "+L", len(ends) - 1, [np.array(ends, np.int64)], None)
    return headers_source(lists, _values("key", [key for key, _ in pairs]),
                          _values("value", [value for _, value in pairs]))


def _fixed(name: str, column: NDArray[Any]) -> ColumnSource:
    kind, rows = column.dtype.kind, len(column)
    if kind == "S" and column.ndim == 1:
        # Zero bytes at the end are not part of the value, as in numpy's own elements.
        sizes = np.char.str_len(column)
        width = column.dtype.itemsize
        matrix = np.ascontiguousarray(column).view(np.uint8).reshape(rows, width)
        content = matrix[np.arange(width) < sizes[:, np.newaxis]]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        return buffer_source(name, "Z", rows, [offsets, _some(content)], None)
    is_matrix = column.dtype == np.uint8 and column.ndim == 2
    if not is_matrix and not (kind == "V" and column.ndim == 1 and column.dtype.fields is None):
        raise IllegalArgumentError(
            f"{name}s are arrays of bytes (S, V, or uint8 in two dimensions), not "
            f"{column.dtype} in {column.ndim}")
    width = column.shape[1] if is_matrix else column.dtype.itemsize
    return buffer_source(name, f"w:{width}", rows, [_some(np.ascontiguousarray(column))], None)


def _some(content: NDArray[Any]) -> NDArray[Any]:
    """An array with an address, even if `content` is empty."""
    return content if content.size else np.zeros(1, np.uint8)
