"""The effects that a round of cleaning would have on a log, without writing a byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from seglog._native.batch import ATTRIBUTE_CONTROL
from seglog._native.clean import OffsetMap
from seglog._native.validate import RecordWalk, frames
from seglog.cleaner.chunks import Chunk
from seglog.cleaner.cleanable import LogToClean
from seglog.cleaner.cleaner import Cleaner
from seglog.cleaner.config import CleanerConfig
from seglog.cleaner.log_cleaner import map_size
from seglog.cleaner.record_filter import read_records
from seglog.storage.batches import BatchHeader

__all__ = ["DryRun", "dry_run"]


@dataclass(slots=True)
class DryRun:
    """Sizes are bytes of the segments that the round reads and would write.

    Waiting tombstones and markers stay until their delete horizons; `waiting_until_ms` is the
    latest of those. `is_map_full`: the keys do not fit the offset map, and another round follows.
    """

    end_offset: int = 0
    keys: int = 0
    is_map_full: bool = False
    size_before: int = 0
    size_after: int = 0
    records_before: int = 0
    records_after: int = 0
    waiting_tombstones: int = 0
    waiting_markers: int = 0
    waiting_until_ms: int | None = None


class _Counting:
    """A Target that counts the batches that a round keeps."""

    def __init__(self, found: DryRun, base_offset: int) -> None:
        self.base_offset, self._found = base_offset, found

    def append(self, max_offset: int, data: memoryview) -> None:
        """Counts the waiting tombstones and markers in them."""
        chunk = Chunk(data, frames(data).batches, "", 0)
        for row, batch in chunk.batches():
            horizon = batch.delete_horizon_ms
            if horizon is not None:
                until = self._found.waiting_until_ms
                self._found.waiting_until_ms = horizon if until is None else max(until, horizon)
                if batch.attributes & ATTRIBUTE_CONTROL:
                    self._found.waiting_markers += 1
                else:
                    self._found.waiting_tombstones += _tombstones(chunk, row, batch)


def _tombstones(chunk: Chunk, row: int, batch: BatchHeader) -> int:
    count = 0

    def read(walk: RecordWalk) -> int:
        nonlocal count
        while not (refusal := walk.next()):
            count += walk.value_size < 0
        return refusal

    read_records(chunk, row, batch, read)
    return count


def dry_run(cleanable: LogToClean, config: CleanerConfig, now_ms: int,
            on_read: Callable[[int], object] | None = None, threads: int = 1) -> DryRun:
    """Runs a round that discards its segments; `on_read` gets the bytes of each read. Raises the
    exceptions of `Cleaner.do_clean`. Only the offset map is built in several threads."""
    log, found = cleanable.log, DryRun()
    cleaner = Cleaner(
        offset_map=OffsetMap(map_size(config, cleanable)), map_bytes=config.map_size,
        io_buffer_size=config.buffer_size,
        max_io_buffer_size=config.max_message_size, load_factor=config.io_buffer_load_factor,
        on_read=on_read, threads=threads)
    round_, end, stats = cleaner.begin(cleanable, now_ms)
    found.end_offset, found.keys = end, len(cleaner.offset_map)
    found.is_map_full = end < cleanable.first_uncleanable_offset
    with log.lock:
        bases = cleanable.segments_until(end)
        last_records = log.last_records_of_active_producers()
    for base, following in zip(bases, [*bases[1:], None], strict=False):
        with cleaner.open_source(log, base) as source:
            round_.clean_into(_Counting(found, base), source, following, last_records)
    found.size_before, found.size_after = stats.bytes_read, stats.bytes_written
    found.records_before, found.records_after = stats.messages_read, stats.messages_written
    return found
