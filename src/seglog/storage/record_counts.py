"""How many records a range holds, and their smallest and largest offset and timestamp.

Batch headers tell nearly all of it. Some batches have to be decoded: those cut by the offsets of
the range, the wrappers of magic 0 and 1, and the batches at both ends, whose first or last record
compaction may have removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from seglog._native.batch import (
    ATTRIBUTE_CONTROL, ATTRIBUTE_DELETE_HORIZON, ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
)
from seglog._native.columns import ColumnPool, RecordColumns
from seglog.storage.log_store import LOCAL, Files, LogFile
from seglog.storage.ranges import LogGap, LogRange
from seglog.storage.stream import DecodeOptions, decode_range, read_batch_headers

__all__ = ["RecordCount", "count_range"]

_Rows = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class RecordCount:
    """Number of records, and their offsets and timestamps (ms). The four are None if there are no
    records.

    Headers hold the largest timestamp of a batch and that of its first record, which need not be
    the smallest. Unless `min_timestamp_is_exact` a record may be older than `min_timestamp`.
    """

    records: int = 0
    min_offset: int | None = None
    max_offset: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    min_timestamp_is_exact: bool = True

    def __add__(self, other: RecordCount) -> RecordCount:
        if not self.records or not other.records:
            return other if not self.records else self
        return RecordCount(
            self.records + other.records,
            min(self.min_offset, other.min_offset),  # type: ignore[type-var]
            max(self.max_offset, other.max_offset),  # type: ignore[type-var]
            min(self.min_timestamp, other.min_timestamp),  # type: ignore[type-var]
            max(self.max_timestamp, other.max_timestamp),  # type: ignore[type-var]
            self.min_timestamp_is_exact and other.min_timestamp_is_exact)


def count_range(planned: LogRange, options: DecodeOptions, *, exact: bool = False,
                on_gap: Callable[[LogGap], None] | None = None, where: Files = LOCAL
                ) -> RecordCount:
    """Counts the records that `decode_range` would return for the range.

    With `exact` the smallest timestamp is exact too, so batches of create times are decoded. With
    `options.on_damage="skip"` everything is decoded, because only the records show damage. Raises,
    and calls `on_gap`, as `decode_range`; damage in records that are not decoded is not found.
    """
    options = replace(options, columns=("offset", "timestamp"), layout="kafka", origin=None,
                      row_filter=None)
    total = RecordCount()
    if options.on_damage == "skip":
        for columns in decode_range(planned, options, on_gap=on_gap, where=where):
            total += _of_columns(columns)
        return total
    with closing(_Decoding(planned, options, where)) as decoding:
        for chunk in read_batch_headers(planned, on_gap=on_gap, where=where):
            total += _of_batches(chunk.batches, planned, decoding, exact)
    return total


class _Decoding:
    """Decodes some batches of a range."""

    def __init__(self, planned: LogRange, options: DecodeOptions, where: Files) -> None:
        self._planned, self._options, self._where = planned, options, where
        self._pool = ColumnPool()
        self._handle: LogFile | None = None

    def count(self, batches: _Rows) -> RecordCount:
        """Counts the records of adjacent batches."""
        if self._handle is None:
            self._handle = self._where.open_log(self._planned.file, self._planned.version)
        start = int(batches["position"][0])
        end = int(batches["position"][-1]) + int(batches["size"][-1])
        total = RecordCount()
        planned = replace(self._planned, start=start, end=end)
        with self._handle.span(start, end) as source:
            for columns in self._options.decoder(source, planned, self._pool):
                total += _of_columns(columns)
        return total

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()


def _of_columns(columns: RecordColumns) -> RecordCount:
    return RecordCount(columns.num_rows, columns.first_offset, columns.last_offset,
                       *columns.timestamp_range())


def _of_batches(batches: _Rows, planned: LogRange, decoding: _Decoding, exact: bool
                ) -> RecordCount:
    batches = batches[~_left_out(batches, planned)]
    records, attributes = batches["record_count"], batches["attributes"]
    is_v2 = batches["magic"] == 2
    append_time = is_v2 & (attributes & ATTRIBUTE_LOG_APPEND_TIME != 0)
    undecided = (records < 0) | (batches["magic"] > 2) | (batches["magic"] < 0)
    undecided |= batches["base_offset"] < planned.start_offset
    if planned.end_offset is not None:
        undecided |= batches["last_offset"] >= planned.end_offset
    filled = np.flatnonzero(records != 0)
    for rows in (filled, filled[::-1]):
        _doubt_outermost(batches, rows, undecided)
    unknown = is_v2 & ~append_time & (records > 1)
    unknown |= is_v2 & ~append_time & (attributes & ATTRIBUTE_DELETE_HORIZON != 0)
    if exact:
        undecided |= unknown & (records > 0)
    total = _of_headers(batches, ~undecided & (records > 0), append_time, unknown)
    for run in _runs(np.flatnonzero(undecided)):
        total += decoding.count(batches[run])
    return total


def _doubt_outermost(batches: _Rows, rows: npt.NDArray[np.intp],
                     undecided: npt.NDArray[np.bool_]) -> None:
    """Marks the first row counted by its header as undecided: compaction may have removed the
    record at its end."""
    for row in rows.tolist():
        if not undecided[row]:
            span = int(batches["last_offset"][row]) - int(batches["base_offset"][row]) + 1
            undecided[row] = int(batches["record_count"][row]) != span
            return


def _of_headers(batches: _Rows, counted: npt.NDArray[np.bool_], append_time: npt.NDArray[np.bool_],
                unknown: npt.NDArray[np.bool_]) -> RecordCount:
    rows = batches[counted]
    if not len(rows):
        return RecordCount()
    # The base timestamp of a batch with a delete horizon is the horizon.
    by_last = append_time | (batches["attributes"] & ATTRIBUTE_DELETE_HORIZON != 0) & (
        batches["magic"] == 2)
    first = np.where(by_last[counted], rows["max_timestamp"], rows["base_timestamp"])
    return RecordCount(
        int(rows["record_count"].sum(dtype=np.int64)), int(rows["base_offset"][0]),
        int(rows["last_offset"][-1]), int(np.minimum(first, rows["max_timestamp"]).min()),
        int(rows["max_timestamp"].max()), not bool(unknown[counted].any()))


def _left_out(batches: _Rows, planned: LogRange) -> npt.NDArray[np.bool_]:
    """Whether each batch is a control batch or one of an aborted transaction."""
    is_v2 = batches["magic"] >= 2
    left_out: npt.NDArray[np.bool_] = is_v2 & (batches["attributes"] & ATTRIBUTE_CONTROL != 0)
    if not planned.aborted:
        return left_out
    aborted = np.array(planned.aborted, np.int64)
    aborted = aborted[aborted[:, 1].argsort(kind="stable")]
    marked = np.flatnonzero(is_v2 & (batches["attributes"] & ATTRIBUTE_TRANSACTIONAL != 0))
    producers = batches["producer_id"][marked]
    for producer in np.unique(producers).tolist():
        ranges = aborted[aborted[:, 0] == producer]
        if not len(ranges):
            continue
        rows = marked[producers == producer]
        # The last range that begins at or before the batch's end decides, as in the decoder.
        at = ranges[:, 1].searchsorted(batches["last_offset"][rows], side="right") - 1
        left_out[rows] |= (at >= 0) & (ranges[at, 2] >= batches["base_offset"][rows])
    return left_out


def _runs(rows: npt.NDArray[np.intp]) -> Iterator[slice]:
    """Consecutive rows, as slices."""
    for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
        if len(run):
            yield slice(int(run[0]), int(run[-1]) + 1)
