"""Decodes a range of a damaged segment: every batch that counts, and the gaps between them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from seglog._native.batch import scan_file
from seglog._native.columns import RecordColumns
from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.forks import SurvivesFork
from seglog.storage.log_store import Readable
from seglog.storage.prefetch import Decoders, Ending
from seglog.storage.ranges import LogGap, LogRange, Opened
from seglog.storage.salvage import SegmentExtent, Salvage, Surveys

__all__ = ["GapList", "decode_skipping"]

_log = logging.getLogger("seglog.read")

#: Error codes for damage inside a batch with a valid CRC begin with these.
_INSIDE = ("record_", "legacy_", "codec_")


class GapList(SurvivesFork):
    """The gaps of one stream, each once and in order. Safe from any thread.

    Each gap is passed to `on_gap`; without one it is logged as a warning.
    """

    def __init__(self, on_gap: Callable[[LogGap], None] | None, *also: Callable[[LogGap], None]
                 ) -> None:
        self._on_gap, self._also = on_gap or (lambda gap: _log.warning("%s", gap)), also
        self._gaps: dict[LogGap, None] = {}

    def add(self, gap: LogGap) -> None:
        """Reports a gap, unless it was reported before."""
        with self._lock:
            if gap in self._gaps:
                return
            self._gaps[gap] = None
        for report in (self._on_gap, *self._also):
            report(gap)

    @property
    def gaps(self) -> list[LogGap]:
        """The gaps so far."""
        with self._lock:
            return list(self._gaps)


def _without_empty_range(gap: LogGap) -> LogGap:
    """The gap; with unknown offsets if the batches around it follow each other."""
    if gap.first_offset is None or gap.last_offset is None or gap.first_offset <= gap.last_offset:
        return gap
    return replace(gap, first_offset=None, last_offset=None)


def decode_skipping(planned: LogRange, decoders: Decoders, opened: Opened, surveys: Surveys,
                    ending: Ending) -> Iterator[list[RecordColumns]]:
    """Yields the records of the batches that begin inside a range; its gaps go to `ending.gaps`."""
    try:
        with opened(planned) as handle:
            yield from _Decoding(planned, decoders, handle, surveys, ending.gaps).run()
    except KafkaStorageError as error:
        # The file cannot be opened, or no longer.
        ending.gaps.append(LogGap(error.code, planned.file, planned.start, planned.size,
                                  cause=str(error)))


class _Decoding:
    """Decodes one range of an open file."""

    def __init__(self, planned: LogRange, decoders: Decoders, handle: Readable,
                 surveys: Surveys, gaps: list[LogGap]) -> None:
        self._planned, self._decoders, self._handle = planned, decoders, handle
        self._surveys, self._gaps = surveys, gaps
        self._extent = SegmentExtent(planned.file, planned.base_offset, planned.segment_end,
                              planned.upper_offset)
        self._is_beyond = False
        self._error: CorruptDataError | KafkaStorageError | None = None

    def run(self) -> Iterator[list[RecordColumns]]:
        position = self._planned.start
        survey = self._surveys.of(self._handle, self._extent, checked=self._is_bounded())
        if not survey.is_checked and not self._begins_soundly(survey, position):
            survey = self._surveys.of(self._handle, self._extent, checked=True)
        while position < self._planned.end and not self._is_beyond:
            for start, end in self._spans(survey, position):
                position = yield from self._decode(start, end)
                if position < end or self._is_beyond:
                    break
            else:
                break
            if not self._is_beyond:
                survey, position = self._after_error(survey, position)
        self._gaps += [_without_empty_range(gap) for gap in survey.gaps
                       if self._planned.start <= gap.position < self._planned.end
                       and self._concerns(gap)]
        self._gaps.sort(key=lambda gap: gap.position)

    def _spans(self, survey: Salvage, position: int) -> Iterator[tuple[int, int]]:
        """The sound parts of [position, end of the range): the batches that begin there."""
        stop = self._planned.end
        for start, end in survey.spans:
            if end <= position or start >= stop:
                continue
            first = self._boundary(survey, start, end, position)
            last = self._boundary(survey, start, end, stop)
            if first < last:
                yield first, last

    def _boundary(self, survey: Salvage, start: int, end: int, position: int) -> int:
        """The first batch of a span that begins at or after a position; else the span's end."""
        if position <= start or position >= end:
            return start if position <= start else end
        row = int(survey.marks.searchsorted(position, side="right")) - 1
        begin = max(start, int(survey.marks[row]))
        return scan_file(self._handle.source, begin, end, check_crcs=False, collect=False,
                         until=position).position

    def _is_bounded(self) -> bool:
        """Whether offsets end the read inside the segment. Then batches that are skipped by their
        headers may hide others."""
        planned = self._planned
        return planned.start_offset > planned.base_offset or (
            planned.end_offset is not None and (
                planned.upper_offset is None or planned.end_offset < planned.upper_offset))

    def _begins_soundly(self, survey: Salvage, position: int) -> bool:
        """Whether the batch around a position has a valid CRC: a bad length may hide other
        batches."""
        row = int(survey.marks.searchsorted(position, side="right")) - 1
        before = scan_file(self._handle.source, int(survey.marks[row]), self._extent.size,
                           check_crcs=False, until=position)
        if before.position == position or not before.batch_count:
            return True
        around = int(before.batches["position"][-1])
        return bool(scan_file(self._handle.source, around, before.position,
                              max_batches=1).batch_count)

    def _decode(self, start: int, end: int) -> Generator[list[RecordColumns], None, int]:
        """Decodes consecutive batches; returns where it ended."""
        with self._handle.span(start, end) as source:
            decoder = self._decoders.take(source, replace(self._planned, start=start, end=end))
            try:
                while taken := decoder.take(self._decoders.hand_over_bytes):
                    yield taken
                    del taken
                # The batches lead to `end`: if the decoder stopped before, no more are wanted.
                self._is_beyond = decoder.position < end
                return decoder.position
            except (CorruptDataError, KafkaStorageError) as error:
                self._error = error
                return decoder.position
            finally:
                self._decoders.release(decoder)

    def _after_error(self, survey: Salvage, position: int) -> tuple[Salvage, int]:
        """A survey that includes the error, or a gap of the one batch; and the position to continue
        at."""
        error = self._error
        assert error is not None
        if not survey.is_checked and not error.code.startswith(_INSIDE):
            return self._surveys.of(self._handle, self._extent, checked=True), position
        found = scan_file(self._handle.source, position, self._extent.size, check_crcs=False,
                          max_batches=1)
        if not found.batch_count:
            raise error
        batch = found.batches[0]
        # The header of a wrapper of magic 0 or 1 holds only the last offset.
        first = None if int(batch["record_count"]) < 0 else int(batch["base_offset"])
        gap = LogGap(error.code, self._extent.file, position, int(batch["size"]),
                     first_offset=first, last_offset=int(batch["last_offset"]),
                     records=found.record_count or None, cause=str(error))
        if self._concerns(gap):
            self._gaps.append(gap)
        return survey, found.position

    def _concerns(self, gap: LogGap) -> bool:
        """Whether a gap may hold offsets of this read."""
        planned = self._planned
        return (gap.last_offset is None or gap.last_offset >= planned.start_offset) and (
            gap.first_offset is None or planned.end_offset is None
            or gap.first_offset < planned.end_offset)
