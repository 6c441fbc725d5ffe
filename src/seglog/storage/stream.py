"""Streams of columns decoded from byte ranges, in order; threads decode ahead on request.

Memory is bounded. A stream without threads holds one set of columns and the decoder's window. With
`threads=N` at most N + 1 ranges are decoded but not consumed. Each holds at most `batch_bytes` or
one set of columns, and its thread as much again while it waits for the handover.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, NoReturn, Self

from seglog._native.batch import BatchColumns, scan_file
from seglog._native.columns import (
    DEFAULT_COLUMNS, ColumnPool, Projection, RecordColumns, export_stream, schema_capsule,
)
from seglog._native.records import RecordDecoder, RowFilter
from seglog._native.status import Status
from seglog.closed_by_with import ClosedByWith
from seglog.errors import CorruptIndexError, IllegalStateError, SeglogError
from seglog.model import TopicPartition
from seglog.storage import codecs
from seglog.storage.batches import header_columns
from seglog.storage.log_store import LOCAL, Files, Source
from seglog.storage.isolation import Damage
from seglog.storage.prefetch import Decoders, Ending, Prefetch
from seglog.storage.ranges import LogGap, LogRange, Opened, check_torn
from seglog.storage.salvage import Surveys
from seglog.storage.skipping import GapList, decode_skipping

__all__ = ["ColumnStream", "DecodeOptions", "Layout", "OnDamage", "Pass", "Plan",
           "RecordBatchStream", "RowFilter", "decode_range", "read_batch_headers"]

#: Bytes of a log file that one thread decodes at a time. A range costs a wake-up and 0.1 ms; the
#: columns of a larger one leave the cache before they are read. Two threads read 1.36 times as fast
#: as one at 4 MiB, 1.5 at 8, and no faster at 16.
RANGE_BYTES = 8 * 1024 * 1024
#: The decoder's own bound of the rows, and of the bytes, of one set of columns.
_SET_MAX = 1 << 30

OnDamage = Literal["raise", "skip"]
#: How columns are named and typed: see seglog.arrow.schema.
Layout = Literal["kafka", "spark"]


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How records become columns: what is copied, where batches are cut, what is checked.

    `batch_rows` and `batch_bytes` (of keys, values and headers) bound one set of columns; a single
    record may exceed the bytes. With `on_damage="skip"` damaged batches are skipped and reported as
    gaps; otherwise the first raises an error. `columns` are names of the `layout`. With `origin`,
    the topic and partition of all records, `topic` and `partition` may be among them. Rows that
    `row_filter` excludes are not returned. Batches that it excludes by their headers are not
    checked, unless damage is skipped: a damaged header may hide batches.
    """

    columns: tuple[str, ...] = DEFAULT_COLUMNS
    batch_rows: int = 16384  # values of 100 B then fit a second-level cache: 59 ms, 70 at 65536
    batch_bytes: int = 64 * 1024 * 1024
    check_crcs: bool = True
    include_control: bool = False
    on_damage: OnDamage = "raise"
    layout: Layout = "kafka"
    origin: TopicPartition | None = None
    row_filter: RowFilter | None = None

    def __post_init__(self) -> None:
        if self.on_damage not in ("raise", "skip"):
            raise ValueError(f"on_damage {self.on_damage!r} is neither raise nor skip")

    def decoder(self, source: Source, planned: LogRange, pool: ColumnPool) -> RecordDecoder:
        """The decoder of one range of an open file."""
        return RecordDecoder(
            source, planned.start, planned.end, columns=self.columns,
            start_offset=planned.start_offset, end_offset=planned.end_offset,
            base_offset=planned.base_offset, max_rows=min(self.batch_rows, _SET_MAX),
            max_bytes=min(self.batch_bytes, _SET_MAX), check_crcs=self.check_crcs,
            include_control=self.include_control, aborted=planned.aborted or None,
            decompress=codecs.decompress, direct=codecs.DIRECT,
            max_decompressed_bytes=codecs.MAX_BYTES_DEFAULT, file=planned.file, pool=pool,
            layout=self.layout, row_filter=self.row_filter,
            origin=None if self.origin is None else (self.origin.topic, self.origin.partition),
            believe_headers=self.on_damage != "skip")


def _opened_alone(where: Files) -> Opened:
    """Opens the file of one range, for a caller without a log that keeps files open."""
    return lambda planned: closing(where.open_log(planned.file, planned.version))


def _unchanged() -> None:
    """The check of files that are never truncated."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one pass through a stream reads: ranges, and how their files are opened.

    `check_unchanged` raises if bytes changed before they were decoded.
    """

    ranges: Iterator[LogRange]
    opened: Opened
    check_unchanged: Callable[[], None] = _unchanged


def decode_range(planned: LogRange, options: DecodeOptions | None = None, *,
                 on_gap: Callable[[LogGap], None] | None = None, where: Files = LOCAL
                 ) -> Iterator[RecordColumns]:
    """The columns of one range, without the log that it came from: what a Spark task runs. `where`
    is `PartitionLog.where`.

    With `on_damage="skip"` damage is skipped as by `PartitionLog.to_arrow`, for a range of
    `PartitionLog.ranges(on_damage="skip")`, and `on_gap` gets the gaps that begin in this range.
    Otherwise raises CorruptDataError at the first bad batch, after all records before it, and
    CorruptIndexError if a wrong index made the range end inside a batch; `on_gap` gets the
    incomplete batch or the zeros with which a segment inside the log ends.
    """
    opened = _opened_alone(where)
    if options is not None and options.on_damage == "skip":
        yield from RecordBatchStream(lambda: Plan(iter((planned,)), opened), options,
                                     gaps=GapList(on_gap))
        return
    ending = Ending()
    options = options or DecodeOptions()
    decoders = Decoders(options.decoder, options.batch_bytes, threads=0)
    yield from chain.from_iterable(_decode(planned, decoders, Plan(iter(()), opened), ending))
    if not ending.is_sound:
        _check_end(planned, ending.position, ending.kind, opened, on_gap)


def read_batch_headers(planned: LogRange, *, check_crcs: bool = False,
                       on_gap: Callable[[LogGap], None] | None = None, where: Files = LOCAL
                       ) -> Iterator[BatchColumns]:
    """The batches of one range that hold its offsets, some thousands at a time.

    Without `check_crcs` only headers are read. Raises, and calls `on_gap`, as `decode_range`.
    """
    opened = _opened_alone(where)
    position, kind = yield from header_columns(planned, opened, check_crcs)
    _check_end(planned, position, kind, opened, on_gap)


def _check_end(planned: LogRange, position: int, kind: str, opened: Opened,
               on_gap: Callable[[LogGap], None] | None) -> None:
    """Raises unless a range that was read up to `position` may end there, in a gap of this kind."""
    if position >= planned.end:
        return
    with opened(planned) as handle:
        first = scan_file(handle.source, position, planned.segment_end, check_crcs=False,
                          max_batches=1)
    if not first.batch_count:
        check_torn(planned, position)
    elif not planned.is_segment_end:
        raise CorruptIndexError(
            f"{planned.file}: the range of bytes {planned.start} to {planned.end} ends inside the "
            f"batch at {position}; its offset index is wrong", file=planned.file,
            position=position, expected=planned.end, found=position,
            code=Status.INDEX_NOT_A_BATCH.code)
    if on_gap is not None:
        on_gap(LogGap(kind, planned.file, position, planned.end - position))


def _decode(planned: LogRange, decoders: Decoders, plan: Plan, ending: Ending
            ) -> Iterator[list[RecordColumns]]:
    check_unchanged = plan.check_unchanged
    with (plan.opened(planned) as handle,
          handle.span(planned.start, planned.end) as source):
        decoder = decoders.take(source, planned)
        try:
            while not ending.is_over and (taken := decoder.take(decoders.hand_over_bytes)):
                check_unchanged()
                _tell(decoder, ending)
                yield taken
                del taken
            check_unchanged()
            _tell(decoder, ending)
        except SeglogError:
            check_unchanged()
            raise
        finally:
            decoders.release(decoder)


def _tell(decoder: RecordDecoder, ending: Ending) -> None:
    """Fills in the ending if the decoder is done; an error is raised by its next call."""
    status = Status(decoder.status)
    if status in (Status.END, Status.TORN_TAIL, Status.ZERO_TAIL):
        ending.is_over, ending.is_sound = True, status == Status.END
        ending.position, ending.kind = decoder.position, decoder.status_name


class Pass(Iterator[RecordColumns]):
    """One pass through a stream. `join` waits for the threads that decode for it.

    After an error it raises that error again until it is closed: the generator would only end, and
    the records before the error look like all. After Ctrl-C it raises IllegalStateError.
    """

    def __init__(self, batches: Generator[RecordColumns], join: Callable[[], None]) -> None:
        self._batches, self._join = batches, join
        self._failure: Exception | None = None
        self.is_begun = self.is_over = False

    def __next__(self) -> RecordColumns:
        self.is_begun = True
        if self._failure is not None:
            raise self._failure
        try:
            return next(self._batches)
        except BaseException as error:
            self.is_over = True
            if not isinstance(error, Exception):
                self._failure = IllegalStateError(
                    "the read was interrupted before its end; a new iteration starts over")
            elif not isinstance(error, StopIteration):
                self._failure = error
            raise

    def close(self) -> None:
        """Stops decoding, and waits until the threads have closed their files."""
        self.is_over, self._failure = True, None
        self._batches.close()
        self._join()


def _nothing() -> Generator[RecordColumns]:
    yield from ()


class ColumnStream(ClosedByWith):
    """A lazy stream of record batches that can be used repeatedly.

    A new iteration, and every consumer of the C stream interface, reads the same from the start;
    only a pass that was begun and not finished continues. After an error `next`, and a consumer of
    the C stream interface that asks again, get the same error again. `begin` starts one pass.
    """

    def __init__(self, columns: tuple[str, ...], begin: Callable[[], Pass],
                 layout: Layout = "kafka") -> None:
        self.columns = columns
        self._layout = layout
        self._begin = begin
        self._pass: Pass | None = None

    def __reduce__(self) -> NoReturn:
        """TypeError: a stream has threads and open files."""
        raise TypeError(f"cannot pickle a {type(self).__name__}; pickle the PartitionLog, or what "
                        "its `ranges` gives, and read in the other process")

    def __iter__(self) -> Self:
        if self._pass is None or self._pass.is_over:
            self._pass = self._begin()
        return self

    def __next__(self) -> RecordColumns:
        if self._pass is None:
            self._pass = self._begin()
        return next(self._pass)

    def close(self) -> None:
        """Ends the pass that was begun, and waits until its threads have closed their files."""
        if self._pass is None:  # so that `next` ends too
            self._pass = Pass(_nothing(), lambda: None)
        self._pass.close()

    def __arrow_c_schema__(self) -> object:
        """The schema as an Arrow capsule."""
        return schema_capsule(self.columns, layout=self._layout)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The stream as an Arrow capsule: the rest of the pass that was begun and not finished,
        else a new pass. Ignores the requested schema."""
        mine = self._pass
        return export_stream(mine if mine is not None and mine.is_begun and not mine.is_over
                             else self._begin(), self.columns, layout=self._layout)


class RecordBatchStream(ColumnStream):
    """Record batches of a log, in the order of their offsets, decoded on demand.

    Iterate it for `RecordColumns`, or pass it to any library that reads the Arrow C stream
    interface: `pyarrow.RecordBatchReader.from_stream(stream)`, `polars.DataFrame(stream)`,
    `duckdb.from_arrow(stream)`. It can be used repeatedly: a new iteration, and every consumer of
    the C stream interface, reads the same offsets from the start; only a pass that was begun and
    not finished continues. Corrupt bytes raise CorruptDataError with file and position, after all
    records before them. `close()`, the end of a `with` block, or the garbage collection of the
    stream stops the threads that decode ahead.

    `plan` returns the ranges of one pass. `about` describes the read in `repr`.
    """

    def __init__(self, plan: Callable[[], Plan], options: DecodeOptions, *,
                 release: Callable[[], None] = lambda: None, threads: int = 0,
                 gaps: GapList | None = None, damage: Damage | None = None,
                 surveys: Surveys | None = None, about: str = "") -> None:
        if threads < 0:
            raise ValueError(f"{threads} threads")
        Projection(options.columns, origin=options.origin is not None,
                   layout=options.layout)  # reports a wrong name now, not at the first read
        known = self._gaps = GapList(lambda gap: None) if gaps is None else gaps
        self._about = about

        def begin() -> Pass:
            planned = plan()
            source = _Source(options, planned, known.add, threads, surveys)
            ahead = Prefetch(planned.ranges, source.decode, threads, options.batch_bytes, release)
            return Pass(source.batches(ahead, damage), ahead.join)

        super().__init__(options.columns, begin, options.layout)

    def __repr__(self) -> str:
        return f"<RecordBatchStream {', '.join(filter(None, (self._about, *self.columns)))}>"

    @property
    def gaps(self) -> list[LogGap]:
        """What this stream has skipped so far, in the order of the log, each gap once."""
        return self._gaps.gaps


class _Source:
    """Decodes ranges and checks how each ended."""

    def __init__(self, options: DecodeOptions, plan: Plan,
                 on_gap: Callable[[LogGap], None], threads: int, surveys: Surveys | None) -> None:
        self._plan, self._on_gap = plan, on_gap
        self._decoders = Decoders(options.decoder, options.batch_bytes, threads)
        self._surveys = None
        if options.on_damage == "skip":
            self._surveys = surveys or Surveys(check_crcs=options.check_crcs)

    def batches(self, ahead: Prefetch, damage: Damage | None
                ) -> Generator[RecordColumns]:
        distrusted: str | None = None
        with ahead:
            for planned, columns, ending in ahead.decoded():
                if planned.file == distrusted:
                    continue
                yield from columns
                for gap in ending.gaps:
                    self._on_gap(gap)
                if ending.is_sound or ending.position >= planned.end:
                    continue
                if planned.is_segment_end:
                    self._tell(planned, ending)
                    continue
                # A boundary from an index was not a batch boundary: continue from the last known
                # batch, without index boundaries.
                distrusted = planned.file
                yield from self._rest(planned, ending)
        if damage is not None:
            raise damage

    def decode(self, planned: LogRange, ending: Ending) -> Iterator[list[RecordColumns]]:
        plan = self._plan
        if self._surveys is not None:
            return decode_skipping(planned, self._decoders, plan.opened, self._surveys, ending)
        return _decode(planned, self._decoders, plan, ending)

    def _rest(self, planned: LogRange, ending: Ending) -> Iterator[RecordColumns]:
        rest = replace(planned, start=ending.position, end=planned.segment_end)
        ending = Ending()
        yield from chain.from_iterable(self.decode(rest, ending))
        if not ending.is_sound and ending.position < rest.end:
            self._tell(rest, ending)

    def _tell(self, planned: LogRange, ending: Ending) -> None:
        check_torn(planned, ending.position)
        self._on_gap(LogGap(ending.kind, planned.file, ending.position,
                            planned.end - ending.position))
