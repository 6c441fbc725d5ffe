"""A log inside a program, in ten lines:

    with seglog.open("data/events-0") as log:
        log.append(b"value", key=b"key")
        for batch in log.to_arrow():
            print(batch.to_pylists())
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final

from seglog.arguments import INT64_MAX, int32, int64, offset
from seglog.cleaner.cleaner_stats import CleanerStats
from seglog.closed_by_with import ClosedByWith
from seglog.config import LogConfig
from seglog.embedded.shared_directory import SharedDirectory
from seglog.embedded.latest import LatestOffsets
from seglog.embedded.settings import Durability, durability_of, place_of, settings_of
from seglog.embedded.transaction import Records, Transaction, build_batches, first_made
from seglog.errors import (
    ForkedProcessError, IllegalArgumentError, IllegalStateError, KafkaStorageError,
)
from seglog.forks import ProcessBound, ending
from seglog.log.batch_builder import Headers, RecordBatchBuilder, batch_of_one, check_bytes
from seglog.log.column_batches import encode_spans
from seglog.log.log_dir_failures import public_errors
from seglog.log.record_reads import AsyncFollower, Follower, RecordReads
from seglog.log.topic_id import topic_id_of
from seglog.log.unified_log import UnifiedLog
from seglog.log.holes import cut_to_first_hole, remove_below_start
from seglog.log.watermarks import StartOffsetReason
from seglog.model import TimestampOffset, TopicPartition
from seglog.storage.batches import FetchData
from seglog.storage.codecs import Buffer
from seglog.storage.isolation import Isolation, check_isolation
from seglog.storage.markers import ControlType
from seglog.storage.ownership import make_directories
from seglog.storage.place import require_room_for_logs
from seglog.storage.record_rows import Record
from seglog.storage.textfile import sync_names

__all__ = ["AsyncFollower", "Durability", "EmbeddedLog", "Follower", "Record", "open"]

_RETENTION_MS: Final = 300_000  # log.retention.check.interval.ms
_CHECKPOINT_MS: Final = 60_000  # log.flush.offset.checkpoint.interval.ms
_BATCH_BYTES: Final = 64 * 1024
_SPAN_BYTES: Final = 1024 * 1024
#: More than any codec adds to a small batch; to a large one none adds a twentieth, which is Kafka's
#: margin too (MemoryRecordsBuilder.COMPRESSION_RATE_ESTIMATION_FACTOR).
_FRAMING_BYTES: Final = 64


def open(path: str | os.PathLike[str], *,
         config: LogConfig | Mapping[str, object] | None = None, durability: Durability = "none",
         topic_partition: TopicPartition | None = None, topic_id: uuid.UUID | None = None,
         batch_bytes: int = _BATCH_BYTES) -> EmbeddedLog:
    """Opens a log for reading and writing; creates it if there is none.

    `path` is a partition directory, `.../topic-0`, whose parent is the data directory. A path with
    another kind of name is itself the data directory, and the log is the partition
    `topic_partition` in it, by default `log-0`. While a log is open, no broker or other process may
    write to its data directory, which `.lock` enforces. One process may open several logs of one
    data directory.

    `config` are a topic's settings by Kafka's names. Nothing is deleted unless they say so
    (`retention.ms`), and then every five minutes. A LogConfig is taken as it is, with Kafka's
    default of seven days. With `cleanup.policy=compact` a thread compacts closed segments as a
    broker's cleaner does. A batch above `max.message.bytes` (1 MiB) is refused:
    `config={"max.message.bytes": ...}` allows more. After a crash everything after the last flush
    is recovered: an incomplete batch is truncated, as by a broker, and a warning is logged.
    `batch_bytes`, and `max.message.bytes` if that is less, bounds the batches that `append_many`
    builds, before compression.

    Raises LogDirLockedError, which names the process that has the directory; KafkaStorageError,
    also if a new data directory would be inside other things; LogLoadError, ConfigError,
    InvalidTopicPartitionError, and InvalidTopicError for a name that Kafka would not create.
    """
    settings = settings_of(config)
    durability = durability_of(durability)
    if durability == "append":
        settings = settings.override({"flush.messages": "1"})
    if topic_id is not None:
        topic_id_of(topic_id)
    batch_bytes = int32("batch_bytes", batch_bytes, 1)
    data_dir, key = place_of(path, topic_partition)
    require_room_for_logs(data_dir)
    with public_errors(data_dir):
        # No later sync of the log makes them durable.
        sync_names(make_directories(data_dir, is_ours=True))
        directory = SharedDirectory.acquire(data_dir, key)
        try:
            log = _load(directory, key, settings, topic_id)
        except BaseException:
            with suppress(KafkaStorageError):
                directory.release(key, is_clean=False)
            raise
        try:
            directory.opened(log)
            if not directory.has_recovery_point(key):
                # Gaps that came with the log are below the recovery point before the first append.
                log.flush()
                directory.checkpoint()
            return EmbeddedLog(log, directory, durability, batch_bytes)
        except BaseException:
            log.close_handlers()
            with suppress(KafkaStorageError):
                directory.release(key, is_clean=False)
            raise


def _load(directory: SharedDirectory, key: TopicPartition, settings: LogConfig,
          topic_id: uuid.UUID | None) -> UnifiedLog:
    """Loads the log with the directory's checkpoints and marker."""
    place, is_clean = os.path.join(directory.path, str(key)), directory.was_closed(key)
    is_there = os.path.isdir(place)
    if not is_there:
        directory.forget(key)
    recovery_point, start = directory.recovery_point(key), directory.log_start_offset(key)
    if is_there and not is_clean:
        remove_below_start(place, start)
        cut_to_first_hole(place, recovery_point, preallocated=settings.preallocate,
                          may_have_gaps=settings.compact or directory.may_have_gaps(key))
    return UnifiedLog.create(
        place, settings, scheduler=directory.scheduler, failures=directory.failures,
        log_start_offset=start, recovery_point=recovery_point,
        clean_shutdown=is_clean, topic_id=topic_id, checkpoint=directory.checkpoint)


class EmbeddedLog(ProcessBound, ClosedByWith, RecordReads):
    """One log, open for writing. Any thread may use it: appends wait for each other, readers never
    wait. A `with` block closes it.

    Offsets that appends return are final. `durability` says when appended records are durable.
    Flushed records survive a crash of the machine; everything that an append returned survives a
    crash of the process alone. Methods raise KafkaStorageError if the file system refuses, and
    after `close`.
    """

    _has_lock = True

    def __init__(self, log: UnifiedLog, directory: SharedDirectory, durability: Durability,
                 batch_bytes: int) -> None:
        """Created by `seglog.open`."""
        #: The log itself, with every operation of a broker's log.
        self.log = log
        self._directory = directory
        self._codec, self._level = _codec(log.config), log.config.compression_level
        self._batch_bytes = min(batch_bytes, _largest_batch(log.config, self._codec))
        self._span_bytes = min(_SPAN_BYTES, log.config.segment_size)
        latest = log.leader_epochs.latest
        self._epoch = 0 if latest is None else latest.epoch
        self._now = log.context.time.milliseconds
        self._closing = threading.RLock()
        self._guard, self._transactions = threading.Lock(), set[int]()
        self._latest = LatestOffsets(self, log.readers)
        log.update_high_watermark(log.log_end_offset)
        self._durable_start = log.log_start_offset
        schedule = directory.scheduler.schedule
        self._tasks = [schedule("recovery-point-checkpoint", directory.checkpoint, _CHECKPOINT_MS,
                                _CHECKPOINT_MS)]
        retains = log.config.retention_ms >= 0 or log.config.retention_bytes >= 0
        if log.config.delete and not log.config.compact and retains:  # else its cleaner does
            self._tasks.append(schedule("log-retention", log.delete_old_segments, _RETENTION_MS,
                                        _RETENTION_MS))
        period = log.config.flush_ms
        if not isinstance(durability, str):
            period = min(period, int(durability * 1000))
        if period < INT64_MAX:
            self._tasks.append(schedule("log-flusher", log.flush, max(1, period), max(1, period)))

    def __repr__(self) -> str:
        return (f"EmbeddedLog({self.path!r}, {self.log_start_offset} to {self.log_end_offset}"
                f"{', closed' if self._is_closed else ''})")

    @property
    def path(self) -> str:
        """The partition directory."""
        return self.log.path

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return self.log.topic_partition

    @property
    def log_start_offset(self) -> int:
        """The first readable offset."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction is open."""
        return self.log.last_stable_offset

    # ---- writing ------------------------------------------------------------------------------

    def append(self, value: Buffer | None, *, key: Buffer | None = None, headers: Headers = (),
               timestamp: int | None = None) -> int:
        """Appends one record and returns its offset. `timestamp` is ms since 1970, by default now.

        Raises RecordTooLargeError for more than `max.message.bytes` (1 MiB unless configured),
        InvalidTimestampError and Kafka's other exceptions.
        """
        when = self._now() if timestamp is None else int64("timestamp", timestamp)
        batch = batch_of_one(when, key, value, headers, self._codec, self._level)
        try:
            return self.log.append_as_leader(batch, self._epoch).first_offset
        finally:  # also when a signal interrupts it after the write
            self._commit()

    def append_many(self, records: Records) -> range:
        """Appends records in order and returns their offsets.

        A record is a value, a pair of key and value, or a Record (whose offset is ignored). They
        become batches of up to `batch_bytes`, written a MiB at a time. A crash, a refused record,
        or an exception of the iterable leaves whole batches. After the first MiB other writers wait
        until the iterable ends: it must not wait for them, append itself, or read the log with
        threads.
        """
        return self._append_spans(self._spans(records))

    def append_batches(self, records: bytes | bytearray | memoryview) -> range:
        """Appends whole record batches, as producers send them (each begins at offset 0). Returns
        their offsets. Batches before a refused one stay."""
        if not memoryview(records).nbytes:
            self.log.check_open()
            return range(self.log_end_offset, self.log_end_offset)
        try:
            info = self.log.append_each_as_leader(records, self._epoch)
        finally:  # batches before a refused one are committed too
            self._commit()
        if info.valid_bytes <= 0:
            raise IllegalArgumentError(
                f"records hold no whole batch in {memoryview(records).nbytes} bytes")
        return range(info.first_offset, info.last_offset + 1)

    def _commit(self) -> None:
        self.log.update_high_watermark(INT64_MAX)  # the log limits it to its end, under its lock

    def _append_spans(self, spans: Iterable[bytes | bytearray]) -> range:
        """Appends several spans without other writes in between."""
        self.log.check_open()  # also without records
        spans = first_made(spans)
        with self.log.lock:
            first = self.log_end_offset
            for span in spans:
                self.append_batches(span)
            return range(first, self.log_end_offset)

    def _spans(self, records: Iterable[Any]) -> Iterator[bytes]:
        """Batches, as many at a time as are written at once."""
        span: list[bytes] = []
        size = 0
        for builder in build_batches(records, self._builder, self._now()):
            batch = builder.build()
            if size + len(batch) > self._span_bytes:
                yield b"".join(span)
                span, size = [], 0
            span.append(batch)
            size += len(batch)
        yield b"".join(span)

    def _builder(self) -> RecordBatchBuilder:
        return RecordBatchBuilder(codec=self._codec, level=self._level,
                                  write_limit=self._batch_bytes)

    def append_columns(self, data: Any) -> range:
        """Appends the rows of Arrow data (a table or a stream of any library) or of a mapping of
        columns (Arrow, numpy, lists): `key`, `value`, `timestamp`, `headers`. Returns their
        offsets.

        Other columns of a log's records (`offset`, ...) are ignored. Rows without a timestamp get
        the current time. They are written like those of `append_many`.
        """
        return self._append_spans(encode_spans(
            data, codec=self._codec, level=self._level, max_batch_bytes=self._batch_bytes,
            timestamp=self._now(), span_bytes=self._span_bytes))

    @contextmanager
    def transaction(self, producer_id: int = 0) -> Iterator[Transaction]:
        """Appends of the block through the transaction become visible to `read_committed` together
        when the block ends; never if the block raises or the process dies.

        Other threads may append meanwhile, and have transactions of other `producer_id`s. A
        transaction that a process left open is aborted by the next one of its producer. Raises
        IllegalStateError for a second one of a producer. The marker is as durable as an append.
        """
        self.log.check_open()
        offset("producer_id", producer_id)
        open_transactions = self._transactions
        with self._guard:
            if producer_id in open_transactions:
                raise IllegalStateError(f"Producer {producer_id} has a transaction open already")
            open_transactions.add(producer_id)
        try:
            begun = Transaction(self.log, producer_id, self._epoch, self._builder)
            try:
                yield begun
            except BaseException as error:
                try:
                    begun.end(ControlType.ABORT)
                except ForkedProcessError:
                    pass  # the parent ends the transaction
                except KafkaStorageError:
                    if not isinstance(error, KafkaStorageError):
                        raise
                raise
            begun.end(ControlType.COMMIT)
        finally:
            open_transactions.discard(producer_id)

    def flush(self) -> None:
        """Makes everything that was appended before the call durable."""
        self.log.check_open()
        self.log.flush(True)

    def delete_before(self, offset: int) -> bool:
        """Makes `offset` the first readable one, durably. Returns whether the start moved. Deletes
        segments that are completely below it.

        Raises OffsetOutOfRangeError above the end.
        """
        log = self.log
        moved = log.maybe_increment_log_start_offset(
            int64("offset", offset), StartOffsetReason.CLIENT_RECORD_DELETION)
        start = log.log_start_offset
        if moved or start > self._durable_start:  # an interrupted call has moved it
            self._directory.checkpoint()
            self._durable_start = start
            log.delete_old_segments()
        return moved

    def compact(self, *, threads: int = 1) -> list[CleanerStats]:
        """Compacts the log now, however dirty it is: begins a new segment, and cleans all earlier
        ones, in `threads` threads with the same result. Returns the statistics of each round; there
        is none without new records.

        An open transaction and `min.compaction.lag.ms` bound it, as a broker's cleaner. Raises
        IllegalStateError without `cleanup.policy=compact`, LogCleaningAbortedError if the log is
        closed meanwhile, and Kafka's exceptions for records that it cannot read.
        """
        log = self.log
        log.check_open()
        if not log.config.compact:
            raise IllegalStateError(f"{self.path} is not compacted: its cleanup.policy is "
                                    f"{','.join(log.config.cleanup_policy)}")
        with log.lock:
            if log.active.size:
                log.roll()
        return self._directory.cleaning.compact(log, threads)

    # ---- reading ------------------------------------------------------------------------------

    def latest(self, key: Buffer) -> bytes | None:
        """The last committed value of a key; None if there is none, or after a tombstone (a value
        of None). Records after the first open transaction do not count yet.

        The first call reads the whole log, each later one what was appended since. The offsets of
        all keys with a value are kept in memory; values are read from the log.
        """
        self.log.check_open()
        check_bytes("key", key)
        return self._latest.value(bytes(memoryview(key)))

    def keys(self) -> list[bytes]:
        """The keys for which `latest` has a value, in the order of their last records."""
        self.log.check_open()
        return self._latest.keys()

    def fetch(self, start_offset: int, max_bytes: int,
              isolation: Isolation = "read_uncommitted") -> FetchData:
        """See LogReader."""
        return self.log.fetch(start_offset, max_bytes, _fetch_isolation(isolation))

    def _reads_as(self, isolation: Isolation) -> tuple[UnifiedLog, Isolation]:
        return self.log, _fetch_isolation(isolation)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """See LogReader."""
        return self.log.offset_for_timestamp(timestamp_ms)

    # ---- its end ------------------------------------------------------------------------------

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        """Closes the log. If the file system ended the block, its error is raised, and not that the
        directory is therefore offline."""
        try:
            self.close()
        except KafkaStorageError:
            if not isinstance(error, KafkaStorageError):
                raise

    @ending
    def close(self) -> None:
        """Flushes and closes the log; a second call does nothing.

        The next open, here or by a broker, needs no recovery. Raises KafkaStorageError if that
        cannot be ensured; the log is closed all the same. It is also closed after a
        KeyboardInterrupt, unless that came while another thread was appending: then call it again.
        """
        with self._closing:
            if self._is_closed:
                return
            for task in self._tasks:
                task.cancel()
            try:
                with self._directory.cleaning.paused(self.log):
                    self._flush_and_close()
            finally:
                if not self._is_closed:  # the wait for the cleaner was interrupted
                    self._release(is_clean=False)

    def _flush_and_close(self) -> None:
        log, is_clean = self.log, False
        try:
            with log.lock:
                log.flush(True)
                log.close()
            is_clean = True
        finally:
            self._release(is_clean=is_clean)

    def _release(self, *, is_clean: bool) -> None:
        if not is_clean:
            self.log.close_handlers()
        self._directory.release(self.topic_partition, is_clean=is_clean)

    @property
    def _is_closed(self) -> bool:
        return not self._directory.has(self.log)


def _fetch_isolation(isolation: Isolation) -> Isolation:
    """A log inside a program has no replicas: its high watermark is its end."""
    return "read_committed" if check_isolation(isolation) else "log_end"


def _largest_batch(config: LogConfig, codec: int | str) -> int:
    """How large a batch may be, before compression, that the log accepts: data that a codec cannot
    compress get larger by its framing."""
    largest = min(config.max_message_bytes, config.segment_size)
    return max(1, largest - largest // 20 - _FRAMING_BYTES) if codec else largest


def _codec(config: LogConfig) -> int | str:
    """The codec for new batches, chosen so that the log need not encode them again."""
    name = config.compression_type
    return 0 if name in ("producer", "uncompressed") else name
