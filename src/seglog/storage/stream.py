"""Streams of columns decoded from byte ranges, in order, ahead by threads when asked.

Memory is bounded: a stream without threads holds one set of columns and the decoder's window; with
`threads=N` at most N + 1 ranges are decoded and not yet taken, none of them holds more than
`batch_bytes` or one set of columns, and its thread as much again that waits to be handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from itertools import chain
from types import TracebackType
from typing import Self

from seglog._native.batch import scan_file
from seglog._native.columns import (
    DEFAULT_COLUMNS, ColumnPool, RecordColumns, export_stream, schema_capsule,
)
from seglog._native.records import RecordDecoder
from seglog._native.status import Status
from seglog.errors import CorruptIndexError
from seglog.storage import codecs
from seglog.storage.handles import FileHandle
from seglog.storage.isolation import Damage
from seglog.storage.prefetch import Ending, Prefetch
from seglog.storage.ranges import LogGap, LogRange, check_torn

__all__ = ["DecodeOptions", "RecordBatchStream", "decode_range"]

#: Bytes of a log file that one thread decodes at a time. Larger ranges keep more columns alive than
#: are recycled, and fresh memory costs page faults: 138 ms of CPU for 221 MB at 16 MiB, 106 at 4.
RANGE_BYTES = 4 * 1024 * 1024
#: Bytes of columns that a thread hands over at a time: more than a range of uncompressed records.
HAND_OVER_BYTES = 8 * 1024 * 1024

Opened = Callable[[str], AbstractContextManager[FileHandle]]


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How records become columns: what is copied, where batches are cut, what is checked.

    `batch_rows` and `batch_bytes` (of keys, values and headers) bound one set of columns; a single
    record may exceed the bytes.
    """

    columns: tuple[str, ...] = DEFAULT_COLUMNS
    batch_rows: int = 16384  # values of 100 B then stay in a second-level cache: 59 ms, 70 at 65536
    batch_bytes: int = 64 * 1024 * 1024
    check_crcs: bool = True
    include_control: bool = False

    def decoder(self, handle: FileHandle, planned: LogRange, pool: ColumnPool) -> RecordDecoder:
        """The decoder of one range of an open file."""
        return RecordDecoder(
            handle.fd, planned.start, planned.end, columns=self.columns,
            start_offset=planned.start_offset, end_offset=planned.end_offset,
            base_offset=planned.base_offset, max_rows=self.batch_rows,
            max_bytes=self.batch_bytes, check_crcs=self.check_crcs,
            include_control=self.include_control, aborted=planned.aborted or None,
            decompress=codecs.decompress, direct=codecs.DIRECT,
            max_decompressed_bytes=codecs.MAX_BYTES_DEFAULT, file=planned.file, pool=pool)


def _open_alone(path: str) -> AbstractContextManager[FileHandle]:
    return closing(FileHandle(path))


def decode_range(planned: LogRange, options: DecodeOptions | None = None
                 ) -> Iterator[RecordColumns]:
    """The columns of one range, without the log that it came from: what a Spark task runs.

    CorruptDataError at the first bad batch, after everything before it; CorruptIndexError if the
    range does not end at a batch, which an index that lies about its log can bring about.
    """
    ending = Ending()
    decoders = _Decoders(options or DecodeOptions(), 0)
    yield from chain.from_iterable(_decode(planned, decoders, _open_alone, ending))
    if ending.is_sound or ending.position >= planned.end:
        return
    with _open_alone(planned.file) as handle:
        first = scan_file(handle.fd, ending.position, planned.segment_end, check_crcs=False,
                          max_batches=1)
    if not first.batch_count:
        check_torn(planned, ending.position)
    elif not planned.is_segment_end:
        raise CorruptIndexError(
            f"{planned.file}: the range of bytes {planned.start} to {planned.end} ends inside the "
            f"batch at {ending.position}; its offset index is wrong", file=planned.file,
            position=ending.position, expected=planned.end, found=ending.position,
            code=Status.INDEX_NOT_A_BATCH.code)


class _Decoders:
    """The decoders of one stream, each used by one thread at a time, for one range after another.

    With threads they hand over some MiB at once: taking the GIL back costs more than it looks.
    """

    def __init__(self, options: DecodeOptions, threads: int) -> None:
        self._options = options
        # Enough for what the ranges in flight hold: fresh memory costs more than decoding into it.
        self._pool = ColumnPool(keep=3 * (threads + 1))
        self._idle: list[RecordDecoder] = []
        self.hand_over_bytes = max(
            1, min(HAND_OVER_BYTES, options.batch_bytes // 2) if threads else 1)

    def take(self, handle: FileHandle, planned: LogRange) -> RecordDecoder:
        """One that has memory, if there is one."""
        try:
            decoder = self._idle.pop()
        except IndexError:
            return self._options.decoder(handle, planned, self._pool)
        decoder.restart(
            handle.fd, planned.start, planned.end, start_offset=planned.start_offset,
            end_offset=planned.end_offset, base_offset=planned.base_offset,
            aborted=planned.aborted or None, file=planned.file)
        return decoder

    def give_back(self, decoder: RecordDecoder) -> None:
        """For the next range."""
        self._idle.append(decoder)


def _decode(planned: LogRange, decoders: _Decoders, opened: Opened, ending: Ending
            ) -> Iterator[list[RecordColumns]]:
    with opened(planned.file) as handle:
        decoder = decoders.take(handle, planned)
        try:
            while not ending.is_over and (taken := decoder.take(decoders.hand_over_bytes)):
                _tell(decoder, ending)
                yield taken
                del taken
            _tell(decoder, ending)
        finally:
            decoders.give_back(decoder)


def _tell(decoder: RecordDecoder, ending: Ending) -> None:
    """Fills in the ending, if this was it; an error is told by the decoder's next answer."""
    status = Status(decoder.status)
    if status in (Status.END, Status.TORN_TAIL, Status.ZERO_TAIL):
        ending.is_over, ending.is_sound = True, status == Status.END
        ending.position, ending.kind = decoder.position, decoder.status_name


class RecordBatchStream:
    """Record batches of a log, in order of their offsets, decoded as they are pulled.

    Iterate it for `RecordColumns`, or hand it to anything that speaks the Arrow C stream
    interface: `pyarrow.RecordBatchReader.from_stream(stream)`, `polars.DataFrame(stream)`,
    `duckdb.from_arrow(stream)`. It can be pulled once. Corrupt bytes raise CorruptDataError with
    file and position after everything before them was delivered. `close()`, the end of a `with`
    block, or letting go of the stream stops the threads that decode ahead.
    """

    def __init__(self, ranges: Iterator[LogRange], options: DecodeOptions, *,
                 opened: Opened | None = None, let_go: Callable[[], None] = lambda: None,
                 threads: int = 0, on_gap: Callable[[LogGap], None] | None = None,
                 damage: Damage | None = None) -> None:
        if threads < 0:
            raise ValueError(f"{threads} threads")
        self.columns = options.columns
        schema_capsule(options.columns)  # a wrong name is an error now, not at the first pull
        source = _Source(options, opened or _open_alone, on_gap or (lambda gap: None),
                         threads)
        self._ahead = Prefetch(ranges, source.decode, threads, options.batch_bytes, let_go)
        self._batches = source.batches(self._ahead, damage)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RecordColumns:
        return next(self._batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stops decoding, and waits until the threads have let go of their files."""
        self._batches.close()
        self._ahead.join()

    def __arrow_c_schema__(self) -> object:
        """The schema as an Arrow capsule."""
        return schema_capsule(self.columns)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rest of the stream as an Arrow capsule; a requested schema is not cast to."""
        return export_stream(self._batches, self.columns)


class _Source:
    """Decodes ranges and judges how each ended."""

    def __init__(self, options: DecodeOptions, opened: Opened,
                 on_gap: Callable[[LogGap], None], threads: int) -> None:
        self._opened, self._on_gap = opened, on_gap
        self._decoders = _Decoders(options, threads)

    def batches(self, ahead: Prefetch, damage: Damage | None
                ) -> Generator[RecordColumns]:
        distrusted: str | None = None
        with ahead:
            for planned, columns, ending in ahead.decoded():
                if planned.file == distrusted:
                    continue
                yield from columns
                if ending.is_sound or ending.position >= planned.end:
                    continue
                if planned.is_segment_end:
                    self._tell(planned, ending)
                    continue
                # A cut that an index gave was no batch boundary after all: on from the last
                # batch that is known, without the cuts.
                distrusted = planned.file
                yield from self._rest(planned, ending)
        if damage is not None:
            raise damage

    def decode(self, planned: LogRange, ending: Ending) -> Iterator[list[RecordColumns]]:
        return _decode(planned, self._decoders, self._opened, ending)

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
