"""One round of cleaning over one log (Kafka: Cleaner)."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from seglog._native.clean import BatchCleaner, CleanStep, OffsetMap
from seglog._native.clean_keys import BatchKeys
from seglog._native.validate import RecordWalk
from seglog.cleaner.ahead import in_order
from seglog.cleaner.chunks import BufferSizes, Chunk, SegmentSource, read_chunks
from seglog.cleaner.cleanable import LogToClean, log_segments
from seglog.cleaner.cleaned_segment import CleanedSegment
from seglog.cleaner.cleaner_stats import CleanerStats
from seglog.cleaner.config import SLOT_BYTES
from seglog.cleaner.grouping import group_segments_by_size
from seglog.cleaner.record_filter import RecordFilter, Rules, batch_cleaner, read_records
from seglog.cleaner.throttler import Throttler
from seglog.cleaner.transaction_metadata import CleanedTransactionMetadata
from seglog.errors import (
    IllegalArgumentError, LogCleaningAbortedError, LogSegmentOffsetOverflowError, SeglogError,
)
from seglog.log.deep_records import legacy_records
from seglog.log.readable_log import LastRecord
from seglog.log.unified_log import UnifiedLog
from seglog.model import TopicPartition
from seglog.recovery.loader_failures import public_errors
from seglog.recovery.next_offset import opened_log
from seglog.recovery.segment_files import SegmentFiles
from seglog.storage import codecs
from seglog.storage.batches import BatchHeader

__all__ = ["Cleaner", "Round", "Target"]

_logger = logging.getLogger("seglog.LogCleaner")
#: A thread takes so many bytes of chunks at a time, and so many chunks of small buffers.
_BYTES_OF_THREAD, _CHUNKS_OF_THREAD = 1 << 20, 64


class Cleaner:
    """Rewrites logs and keeps the last record of each key. One round at a time.

    `offset_map` bounds the keys of a round: 24 bytes each, of which `load_factor` are used
    (`log.cleaner.dedupe.buffer.size`, 128 MiB, and `log.cleaner.io.buffer.load.factor`). A map of
    `map_bytes` replaces it for a round whose keys do not fit, if that is larger.
    `io_buffer_size` is the bytes of one read, `max_io_buffer_size` the largest message of the
    broker (`message.max.bytes`). `check_done(topic_partition)` is called before each read and may
    raise LogCleaningAbortedError to end a round; `on_read(size)` is called after it. `throttler`
    limits the rate of its bytes.

    A round runs in `threads` threads, of which the caller is one. What it writes, counts and raises
    is the same with any number. The others call `check_done` and `on_read`, too, the latter one at
    a time. Each adds about 6 MiB, and a segment on the disk that waits for its turn.

    Any other thread may append to the log and read it meanwhile. The caller ensures that only one
    round runs over a log at a time.
    """

    def __init__(self, cleaner_id: int = 0, *, offset_map: OffsetMap | None = None,
                 io_buffer_size: int = 256 << 10, max_io_buffer_size: int = (1 << 20) + 12,
                 load_factor: float = .9, map_bytes: int = 0, threads: int = 1,
                 check_done: Callable[[TopicPartition], None] | None = None,
                 throttler: Throttler | None = None,
                 on_read: Callable[[int], object] | None = None) -> None:
        self.cleaner_id = cleaner_id
        self._load_factor, self._map_bytes = load_factor, map_bytes
        self._use_map(OffsetMap(128 << 20) if offset_map is None else offset_map)
        self._sizes = BufferSizes(io_buffer_size, max_io_buffer_size)
        if threads < 1:
            raise IllegalArgumentError(f"{threads} threads: expected at least 1")
        self.threads = threads
        self._chunks_of_thread = min(max(_BYTES_OF_THREAD // io_buffer_size, 1), _CHUNKS_OF_THREAD)
        #: By the number of a chunk's buffer.
        self._keys = [BatchKeys(codecs.DIRECT)
                      for _ in range((threads + 2) * self._chunks_of_thread if threads > 1 else 0)]
        self._check_done = check_done or (lambda topic_partition: None)
        self._throttler, self._on_read, self._reading = throttler, on_read, threading.Lock()
        # The first batch of the map: base offset of its segment, and position.
        self._mapped_from = (0, 0)

    def _use_map(self, offset_map: OffsetMap) -> None:
        self.offset_map, self._max_map_size = offset_map, int(offset_map.slots * self._load_factor)

    def clean(self, cleanable: LogToClean) -> tuple[int, CleanerStats]:
        """Runs one round at the time of the log's clock: see `do_clean`."""
        return self.do_clean(cleanable, cleanable.log.now_ms())

    def do_clean(self, cleanable: LogToClean, now_ms: int) -> tuple[int, CleanerStats]:
        """Runs one round: (the first offset that it did not clean, what it read and wrote).

        That offset is the `first_dirty_offset` of the next round. `now_ms` decides which tombstones
        and markers are removed. Raises Kafka's exceptions for records that it cannot read,
        LogCleaningAbortedError, KafkaStorageError; then each group of segments is either unchanged,
        or cleaned and swapped in.
        """
        log, upper_bound = cleanable.log, cleanable.first_uncleanable_offset
        round_, end, stats = self.begin(cleanable, now_ms)
        # A record goes because a later one has its key. After a power cut that one must be there,
        # though the group of its segment is swapped in last. Kafka syncs only what it writes.
        log.sync_to(end)
        with log.lock, log.guarded(f"Error while cleaning {log.topic_partition}", reads=True):
            groups = group_segments_by_size(
                log, cleanable.segments_until(end), log.config.segment_size,
                log.config.segment_index_bytes, upper_bound)
        round_.clean_groups(groups)
        stats.buffer_utilization = len(self.offset_map) / self.offset_map.slots
        stats.all_done()
        return end, stats

    def begin(self, cleanable: LogToClean, now_ms: int) -> tuple[Round, int, CleanerStats]:
        """The first half of a round, which only reads. Returns the round, its end, and the
        statistics."""
        log, upper_bound = cleanable.log, cleanable.first_uncleanable_offset
        _logger.info("Beginning cleaning of log %s", log.topic_partition)
        with log.lock:
            log.check_open()
            if log.deferred_checks is not None:
                log.deferred_checks.ensure_range(0, upper_bound)
            clean = log_segments(log, 0, cleanable.first_dirty_offset)
            legacy_horizon_ms = 0 if not clean else (
                log.disk.modified_ms(log.segments.get(clean[-1]).log_name)
                - log.config.delete_retention_ms)
        stats = CleanerStats()
        _logger.info("Building offset map for %s...", log.topic_partition)
        is_full = self.build_offset_map(log, cleanable.first_dirty_offset, upper_bound, stats)
        if is_full and self._map_bytes // SLOT_BYTES > self.offset_map.slots:
            self._use_map(OffsetMap(self._map_bytes))
            stats.map_bytes_read = stats.map_messages_read = 0
            self.build_offset_map(log, cleanable.first_dirty_offset, upper_bound, stats)
        end = self.offset_map.latest_offset + 1
        stats.index_done()
        round_ = Round(self, log, now_ms, upper_bound, legacy_horizon_ms, stats,
                       cleanable.truncations)
        return round_, end, stats

    # ---- the offset map -----------------------------------------------------------------------

    def build_offset_map(self, log: UnifiedLog, start: int, end: int, stats: CleanerStats) -> bool:
        """Fills the map with the keys of [start, end), up to its capacity. Its latest offset is the
        last one that the round cleans. Returns whether it was full before the end."""
        self.offset_map.clear()
        self.offset_map.mark(start, end)
        with log.lock:
            bases = log_segments(log, start, end)
            transactions = CleanedTransactionMetadata()
            transactions.add_aborted(log.collect_aborted_transactions(start, end))
        batches = batch_cleaner(self.offset_map, transactions)
        _logger.info("Building offset map for log %s for %s segments in offset range [%s, %s).",
                     log.topic_partition, len(bases), start, end)
        is_full = False
        for base, next_base in zip(bases, [*bases[1:], end], strict=False):
            is_full = self._map_segment(log, base, start, batches, transactions, stats)
            if is_full:
                _logger.debug("Offset map is full, segment with base offset %s is partially mapped",
                              base)
                break
            # Offsets may be missing at the end of the segment.
            self.offset_map.latest_offset = next_base - 1
        stats.map_bytes_read += batches.map_bytes
        stats.map_messages_read += batches.map_messages
        _logger.info("Offset map for log %s complete.", log.topic_partition)
        return is_full

    def _map_segment(self, log: UnifiedLog, base: int, start: int, batches: BatchCleaner,
                     transactions: CleanedTransactionMetadata, stats: CleanerStats) -> bool:
        """Adds the keys of a segment. Returns whether the map was full before its end."""
        with self.open_source(log, base) as source:
            with log.lock:
                segment = _segment(log, base)
                position = max(segment.offset_index.lookup(start)[1], 0)
                log.segments.release(segment)
            if not len(self.offset_map):
                self._mapped_from = base, position
            has_work = source.size - position > self._chunks_of_thread * self._sizes.first
            threads = self.threads if has_work else 1
            chunks = self.chunks(log, source, self.check_of(log), position,
                                 len(self._keys) if threads > 1 else 1)
            with contextlib.closing(in_order(
                    chunks, threads, self._chunks_of_thread, lambda chunk: self._hashing(
                        chunk, start), lambda chunk: None)) as results:
                for chunk, keys in results:
                    if self._map_chunk(chunk, keys, start, batches, transactions, stats):
                        return True
        return False

    def _hashing(self, chunk: Chunk, start: int) -> Callable[[], BatchKeys | None] | None:
        """What hashes the keys of a chunk ahead; None for one without zstd, whose other codecs are
        called for such a short time that threads would only wait for the GIL."""
        if not chunk.has_zstd:
            return None

        def hashed() -> BatchKeys:
            keys = self._keys[chunk.buffer]
            keys.read(chunk.data, chunk.rows, start)
            return keys

        return hashed

    def _map_chunk(self, chunk: Chunk, keys: BatchKeys | None, start: int, batches: BatchCleaner,
                   transactions: CleanedTransactionMetadata, stats: CleanerStats) -> bool:
        """Adds the keys of a chunk. Returns whether the map was full before its end. Native code
        handles the batches; unusual ones are read here."""
        row, limit = 0, self._max_map_size
        while True:
            step, row = batches.map(chunk.data, chunk.rows, row, start, limit, keys)
            if step is CleanStep.FULL or row == len(chunk.rows):
                return step is CleanStep.FULL
            batch = chunk.batch(row)
            try:
                if step is CleanStep.REFUSED:
                    read_records(chunk, row, batch, lambda walk: walk.run())
                if self._map_batch(chunk, row, batch, start, transactions, stats):
                    return True
            except SeglogError as error:
                error.batch_at = chunk.place(batch)
                raise
            if batch.last_offset >= start:
                self.offset_map.latest_offset = batch.last_offset
            stats.map_bytes_read += batch.size
            row += 1

    def _map_batch(self, chunk: Chunk, row: int, batch: BatchHeader, start: int,
                   transactions: CleanedTransactionMetadata, stats: CleanerStats) -> bool:
        """Adds the keys of a batch. Returns whether the map was full before its end."""
        if batch.is_control:
            transactions.on_control_batch(batch.producer_id, batch.last_offset,
                                          chunk.control_type(batch))
            stats.map_messages_read += 1
            return False
        if transactions.on_batch(batch.producer_id, batch.last_offset, batch.is_transactional):
            stats.map_messages_read += batch.record_count
            return False
        if batch.magic < 2:
            return self._map_legacy(chunk, row, start, stats)
        is_full = False

        def read(walk: RecordWalk) -> int:
            nonlocal is_full
            refusal, count, is_full = self.offset_map.add_records(walk, start, self._max_map_size)
            stats.map_messages_read += count
            return refusal

        read_records(chunk, row, batch, read)
        return is_full

    def _map_legacy(self, chunk: Chunk, row: int, start: int, stats: CleanerStats) -> bool:
        for record in legacy_records(chunk.data, chunk.rows, row):
            key = record.key
            if key is not None and record.offset >= start:
                if len(self.offset_map) >= self._max_map_size:
                    return True
                self.offset_map.put(key, record.offset)
            stats.map_messages_read += 1
        return False

    # ---- sources ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def open_source(self, log: UnifiedLog, base: int) -> Iterator[SegmentSource]:
        """Opens a segment of the log. Raises LogCleaningAbortedError if it is gone."""
        with contextlib.ExitStack() as opened:
            with log.lock:
                segment = _segment(log, base)
                with public_errors(log.path):
                    fd = opened.enter_context(opened_log(segment.log_path))
            status = os.fstat(fd)
            yield SegmentSource(base, segment.log_name, segment.log_path, status.st_size,
                                status.st_ino, fd, status.st_mtime_ns // 1_000_000)

    def check_of(self, log: UnifiedLog) -> Callable[[], None]:
        """Raises if a round over the log is to end."""
        return functools.partial(self._check_done, log.topic_partition)

    def chunks(self, log: UnifiedLog, source: SegmentSource, check: Callable[[], None],
               position: int = 0, buffers: int = 1) -> Iterator[Chunk]:
        """The batches of a source from a byte on; `check` runs before each read and may raise."""
        with public_errors(log.path):
            for chunk in read_chunks(source.fd, source.path, position, self._sizes,
                                     log.config.max_message_bytes, check, buffers):
                self.throttle(len(chunk.data), check)
                if self._on_read is not None:
                    with self._reading:
                        self._on_read(len(chunk.data))
                yield chunk

    def is_mapped(self, source: SegmentSource, position: int) -> bool:
        """Whether the map was built from the batches of a segment from this byte on."""
        return (source.base_offset, position) >= self._mapped_from

    def throttle(self, size: int, check: Callable[[], None]) -> None:
        """Counts bytes that were read or written, and sleeps if there were too many; `check` may
        raise to end it."""
        if self._throttler is not None:
            self._throttler.maybe_throttle(size, check)


def _segment(log: UnifiedLog, base: int) -> SegmentFiles:
    """A segment of the log, whose lock the caller holds. Raises LogCleaningAbortedError if it is
    gone: other threads may delete records during a round."""
    log.check_open()
    if base not in log.segments:
        raise LogCleaningAbortedError(
            f"Segment {base} of {log.topic_partition} was removed during its cleaning")
    return log.segments.get(base)


class Target(Protocol):
    """Receives the batches that a round keeps: a CleanedSegment, or a counter."""

    @property
    def base_offset(self) -> int:
        """The base offset of the segment."""

    def append(self, max_offset: int, data: memoryview) -> None:
        """Appends whole batches; see CleanedSegment."""


class Round:
    """The second half of a round: groups of segments become one segment each."""

    def __init__(self, cleaner: Cleaner, log: UnifiedLog, now_ms: int, upper_bound: int,
                 legacy_horizon_ms: int, stats: CleanerStats, truncations: int) -> None:
        self.cleaner, self.log, self.now_ms = cleaner, log, now_ms
        self.upper_bound, self.legacy_horizon_ms = upper_bound, legacy_horizon_ms
        self.stats, self.truncations = stats, truncations
        self.transactions = CleanedTransactionMetadata()
        self._filter = RecordFilter(cleaner.offset_map, self.transactions, stats)
        #: Raises if the round is to end.
        self.check = cleaner.check_of(log)

    # ---- groups in several threads ------------------------------------------------------------

    def clean_groups(self, groups: Sequence[Sequence[int]]) -> None:
        """Cleans each group into one segment, and swaps that in after those before it.

        Threads clean groups ahead as if no transaction went on from one to the next. Where one
        does, and where a group fails, it is cleaned in its turn.
        """
        is_over, stays_alone = False, False
        ahead: list[_Ahead] = []

        def check() -> None:
            if is_over:
                raise LogCleaningAbortedError("The round is over")
            self.check()

        def prepare(group: Sequence[int]) -> Callable[[], _Ahead | None] | None:
            if stays_alone:
                return None
            one = _Ahead(Round(self.cleaner, self.log, self.now_ms, self.upper_bound,
                               self.legacy_horizon_ms, CleanerStats(), self.truncations))
            one.round.check = check
            ahead.append(one)
            return functools.partial(one.clean, group)

        def stop() -> None:
            nonlocal is_over
            is_over = True

        try:
            with contextlib.closing(in_order(groups, min(self.cleaner.threads, len(groups)), 1,
                                             prepare, self.clean_segments, stop)) as results:
                for group, one in results:
                    if one is None:
                        stays_alone = not self.transactions.is_idle
                        continue
                    ahead.remove(one)
                    stays_alone = not self.transactions.is_idle
                    if one.cleaned is not None and not stays_alone:
                        self.stats.add_copied(one.round.stats)
                        self.transactions.go_on_from(one.round.transactions)
                        self._swap(one.cleaned, one.sources)
                    else:
                        one.discard()
                        self.clean_segments(group)
        finally:
            for one in ahead:
                one.discard()

    def clean_segments(self, group: Sequence[int]) -> None:
        """Cleans adjacent segments into one, and swaps that in."""
        sources: list[SegmentSource] = []
        try:
            cleaned = self.cleaned(group, sources)
        except LogSegmentOffsetOverflowError as error:
            _logger.info("Caught segment overflow error during cleaning: %s", error)
            base = sources[-1].base_offset
            with self.log.lock:
                _segment(self.log, base)
                self.log.split_overflowed_segment(base)
            raise LogCleaningAbortedError(f"Segment {base} of {self.log.topic_partition} was "
                                          f"split: {error}") from None
        self._swap(cleaned, sources)

    def cleaned(self, group: Sequence[int], sources: list[SegmentSource]) -> CleanedSegment:
        """Adjacent segments cleaned into one, which is durable. Adds what it reads to `sources`."""
        log = self.log
        with log.lock:
            cleaned = CleanedSegment(log, group[0])
            last_records = log.last_records_of_active_producers()
        self.transactions.retained = cleaned.append_aborted
        try:
            for base, following in zip(group, [*group[1:], None], strict=True):
                with self.cleaner.open_source(log, base) as source:
                    sources.append(source)
                    self.clean_into(cleaned, source, following, last_records)
            cleaned.finish(sources[-1].name)
        except BaseException:
            cleaned.delete()
            raise
        return cleaned

    def clean_into(self, cleaned: Target, source: SegmentSource, following: int | None,
                   last_records: Mapping[int, LastRecord]) -> None:
        """Copies the retained part of a source, which ends at `following`, or at its end."""
        log = self.log
        with log.lock, public_errors(log.path):
            if following is None:
                segment = _segment(log, source.base_offset)
                following = segment.read_next_offset()
                log.segments.release(segment)
            self.transactions.add_aborted(
                log.collect_aborted_transactions(source.base_offset, following))
        retains = source.modified_ms > self.legacy_horizon_ms
        _logger.info(
            "Cleaning %s in log %s into %s with an upper bound deletion horizon %s computed from "
            "the segment last modified time of %s,%s deletes.", source.name, log.topic_partition,
            cleaned.base_offset, self.legacy_horizon_ms, source.modified_ms,
            "retaining" if retains else "discarding")
        self._filter.begin(Rules(self.now_ms, log.config.delete_retention_ms, retains, last_records,
                                 self.upper_bound))
        for chunk in self.cleaner.chunks(log, source, self.check):
            max_offset, data = self._filter.filter(
                chunk, is_mapped=self.cleaner.is_mapped(source, chunk.position))
            if data:
                cleaned.append(max_offset, data)
                self.cleaner.throttle(len(data), self.check)

    def _swap(self, cleaned: CleanedSegment, sources: Sequence[SegmentSource]) -> None:
        log = self.log
        with log.lock:
            for source in sources:
                # After a truncation the later records may be gone whose keys the map has.
                if not self._is_there(source) or log.segment_truncations != self.truncations:
                    cleaned.delete()
                    raise LogCleaningAbortedError(
                        f"Segment {source.base_offset} of {log.topic_partition} changed during its "
                        "cleaning")
            bases = [source.base_offset for source in sources]
            _logger.info("Swapping in cleaned segment %s for segment(s) %s in log %s",
                         cleaned.files.base_offset, bases, log.topic_partition)
            log.replace_segments([cleaned.files], bases)

    def _is_there(self, source: SegmentSource) -> bool:
        """Whether the source is still in the log, unchanged."""
        if (source.base_offset not in self.log.segments
                or source.base_offset == self.log.active.base_offset):
            return False
        try:
            status = os.lstat(source.path)
        except FileNotFoundError:
            return False
        return (status.st_ino, status.st_size) == (source.inode, source.size)


class _Ahead:
    """A group that is cleaned before its turn: `cleaned` waits to be swapped in, None if there was
    an error."""

    def __init__(self, round_: Round) -> None:
        self.round = round_
        self.cleaned: CleanedSegment | None = None
        self.sources: list[SegmentSource] = []

    def clean(self, group: Sequence[int]) -> _Ahead:
        """Cleans it; raises nothing. In its turn it meets the error again."""
        try:
            self.cleaned = self.round.cleaned(group, self.sources)
        except Exception as error:
            _logger.debug("Cleaning of %s ahead ended: %s", group, error)
        return self

    def discard(self) -> None:
        """Deletes its files."""
        if self.cleaned is not None:
            self.cleaned.delete()
