"""PartitionLog: one partition directory, read without a broker."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Literal, Self

from seglog._native.columns import DEFAULT_COLUMNS
from seglog.errors import InvalidTopicPartitionError
from seglog.model import OpenTransaction, TimestampOffset, TopicPartition
from seglog.storage.batches import BatchHeader, FetchData, read_headers
from seglog.storage.checkpoints import read_offset_checkpoint
from seglog.storage.epochs import LeaderEpochs, read_leader_epochs
from seglog.storage.handles import FILES_PER_SEGMENT, HandleCache, shared_cache
from seglog.storage.isolation import Isolation, check_isolation
from seglog.storage.meta import format_uuid, read_partition_metadata
from seglog.storage.paths import (
    LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, PARTITION_METADATA, parse_directory_name,
)
from seglog.storage.ranges import WHOLE_SEGMENT, LogGap, LogRange
from seglog.storage.segments import Segments
from seglog.storage.stream import RANGE_BYTES, DecodeOptions, RecordBatchStream
from seglog.storage.timestamps import find_offset_by_timestamp, find_offset_of_max_timestamp
from seglog.storage.view import LogView

__all__ = ["EARLIEST_TIMESTAMP", "LATEST_TIMESTAMP", "MAX_TIMESTAMP", "PartitionLog"]

#: Kafka's special values of `offset_for_timestamp`.
LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP = -1, -2, -3, -4

BATCH_ROWS, BATCH_BYTES = 16384, 64 * 1024 * 1024


class PartitionLog:
    """A log as it was when it was opened; `refresh()` looks again.

    Reading changes nothing: no file is written, created or locked, so the directory may belong to
    a running broker, be a copy, or be on a read-only mount. Indexes, checkpoints and snapshots may
    be missing, and an index that is wrong makes a read slow, never wrong. Safe from any thread.

    **Where the log ends.** `log_end_offset` is the offset after the last batch with a good CRC,
    walking from the last good index entry of the last segment: Kafka's log end offset after a clean
    shutdown, and after its recovery of a torn or zeroed tail. Damage further up is not looked for
    here; a reader meets it, and gets a typed error after everything before it. An incomplete batch
    or zeros at the end of the last segment are the end. Inside the log (a segment that was copied
    halfway, before further ones) they are passed over, and `on_gap` and `gaps` tell of it.
    """

    def __init__(self, path: str, handles: HandleCache, log_start_offset: int | None,
                 topic_partition: TopicPartition | None,
                 on_gap: Callable[[LogGap], None] | None) -> None:
        self._path, self._handles, self._start = path, handles, log_start_offset
        self._topic_partition, self._on_gap = topic_partition, on_gap
        self._lock = threading.Lock()
        self._gaps: dict[LogGap, None] = {}
        self._view = self._look()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, read_only: Literal[True] = True,
             log_start_offset: int | None = None, topic_partition: TopicPartition | None = None,
             max_open_segments: int | None = None,
             on_gap: Callable[[LogGap], None] | None = None) -> Self:
        """Opens a partition directory for reading.

        `log_start_offset` replaces what the `log-start-offset-checkpoint` beside the directory
        says. `max_open_segments` gives this log its own bound of open segments instead of the
        process-wide one of 128. `on_gap` is called, from whatever thread reads, the first time
        something inside the log has to be passed over.

        Raises KafkaStorageError (no such directory, not readable), MalformedCheckpointError.
        """
        if not read_only:
            raise ValueError("a PartitionLog is opened read-only")
        name = os.path.abspath(os.fspath(path))
        if topic_partition is None:
            try:
                topic_partition = parse_directory_name(name).topic_partition
            except InvalidTopicPartitionError:
                pass  # a copy under another name; only its checkpoints need the partition
        if max_open_segments is not None and max_open_segments < 1:
            raise ValueError(f"{max_open_segments} open segments are too few to read one")
        handles = shared_cache() if max_open_segments is None else HandleCache(
            max_open_segments * FILES_PER_SEGMENT)
        return cls(name, handles, log_start_offset, topic_partition, on_gap)

    # ---- identity

    @property
    def path(self) -> str:
        """The absolute path of the directory."""
        return self._path

    @property
    def topic_partition(self) -> TopicPartition | None:
        """From the directory's name; None for a copy whose name is no partition's."""
        return self._topic_partition

    @property
    def topic_id(self) -> str | None:
        """The topic's id as Kafka prints it; None without partition.metadata.

        Raises MalformedCheckpointError.
        """
        found = read_partition_metadata(os.path.join(self._path, PARTITION_METADATA))
        return None if found is None else format_uuid(found.topic_id)

    def __repr__(self) -> str:
        return f"PartitionLog({self._path!r}, {len(self.segments)} segments)"

    # ---- offsets

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers get; records below are still in the file, and left out."""
        return self._view.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record would get."""
        return self._view.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided; the log end offset if none is open."""
        return self._view.last_stable_offset

    @property
    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """Transactions without a marker, by first offset."""
        return self._view.transactions.open_transactions

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """Leader epochs within the log, cut at its start and end as Kafka's loader cuts them.

        Raises MalformedCheckpointError.
        """
        epochs = read_leader_epochs(os.path.join(self._path, LEADER_EPOCH_CHECKPOINT))
        epochs.truncate_from_end(self.log_end_offset)
        epochs.truncate_from_start(self.log_start_offset)
        return epochs

    @property
    def segments(self) -> Segments:
        """The segments, ascending; nothing is opened for them."""
        return self._view.segments

    @property
    def gaps(self) -> tuple[LogGap, ...]:
        """What readers had to pass over so far."""
        with self._lock:
            return tuple(self._gaps)

    # ---- reading

    def batches(self, start_offset: int | None = None, end_offset: int | None = None, *,
                check_crcs: bool = True) -> Iterator[BatchHeader]:
        """The headers of the batches that hold `[start_offset, end_offset)`, in order.

        Raises OffsetOutOfRangeError at the first pull, CorruptRecordError at a bad batch.
        """
        view = self._view
        start, end = view.bounds(start_offset, end_offset, committed=False)
        opened = view.segments.opened
        for planned in view.plan(start, end, WHOLE_SEGMENT, False, self._report):
            yield from read_headers(planned, opened, check_crcs, self._report)

    def to_arrow(self, start_offset: int | None = None, end_offset: int | None = None,
                 columns: Sequence[str] | None = None, isolation: Isolation = "read_uncommitted",
                 *, threads: int = 0, batch_rows: int = BATCH_ROWS, batch_bytes: int = BATCH_BYTES,
                 include_control: bool = False, check_crcs: bool = True) -> RecordBatchStream:
        """The records of `[start_offset, end_offset)` as a lazy stream of Arrow record batches.

        Without bounds: the whole log, or for read_committed all below the last stable offset. An
        `end_offset` beyond that reads to there. `columns` are names of `seglog.arrow.COLUMNS`
        (default: offset, timestamp, timestamp_type, key, value, headers). A batch has at most
        `batch_rows` rows and `batch_bytes` of keys, values and headers (one record may have more).
        `threads` decode ahead; 0 decodes while it is pulled.

        Raises OffsetOutOfRangeError for a start outside the log, ValueError for unknown names.
        """
        committed = check_isolation(isolation)
        view = self._view
        start, end = view.bounds(start_offset, end_offset, committed)
        options = DecodeOptions(tuple(DEFAULT_COLUMNS if columns is None else columns), batch_rows,
                                batch_bytes, check_crcs, include_control)
        target = RANGE_BYTES if threads else WHOLE_SEGMENT
        return RecordBatchStream(
            view.plan(start, end, target, committed, self._report), options,
            opened=view.segments.opened, let_go=view.segments.let_go, threads=threads,
            on_gap=self._report,
            damage=view.hidden_damage(end_offset) if committed else None)

    def read(self, start_offset: int, max_bytes: int,
             isolation: Isolation = "read_uncommitted") -> FetchData:
        """Whole record batches from the one that holds `start_offset`, as Kafka's fetch.

        At least one batch, then as many as fit into `max_bytes`; none at the end. CRCs are left to
        the consumer. Raises OffsetOutOfRangeError, CorruptRecordError, ValueError.
        """
        if max_bytes < 0:
            raise ValueError(f"Invalid max size {max_bytes} for log read")
        return self._view.fetch(start_offset, max_bytes, check_isolation(isolation))

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a time; None if all are earlier (Kafka: ListOffsets).

        LATEST_TIMESTAMP (-1) and EARLIEST_TIMESTAMP (-2) give the log end and start offset with
        timestamp -1, MAX_TIMESTAMP (-3) the first record with the largest timestamp. Raises
        CorruptDataError when the way there is damaged, ValueError for other negative values.
        """
        view = self._view
        if timestamp_ms == LATEST_TIMESTAMP:
            return TimestampOffset(-1, view.log_end_offset)
        if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return TimestampOffset(-1, view.log_start_offset)
        if timestamp_ms < MAX_TIMESTAMP:
            raise ValueError(f"timestamp {timestamp_ms} is negative and none of Kafka's specials")
        start = view.log_start_offset
        segments = view.read_segments(start)
        if timestamp_ms == MAX_TIMESTAMP:
            return find_offset_of_max_timestamp(segments, start)
        return find_offset_by_timestamp(segments, timestamp_ms, start)

    def ranges(self, target_bytes: int, start_offset: int | None = None,
               end_offset: int | None = None, isolation: Isolation = "read_uncommitted"
               ) -> list[LogRange]:
        """`[start_offset, end_offset)` as picklable byte ranges of about `target_bytes`.

        Their records, in order, are exactly those of `to_arrow` with the same bounds; any process
        that sees the files decodes one with `seglog.arrow.decode_range`.
        """
        if target_bytes < 1:
            raise ValueError(f"ranges of {target_bytes} bytes")
        committed = check_isolation(isolation)
        view = self._view
        start, end = view.bounds(start_offset, end_offset, committed)
        return list(view.plan(start, end, target_bytes, committed, self._report))

    # ---- life

    def refresh(self) -> None:
        """Looks at the directory again; streams that began before go on with what they saw."""
        fresh = self._look()
        with self._lock:
            self._view, old = fresh, self._view
        old.segments.close()

    def close(self) -> None:
        """Lets go of open files. The log can still be read: they are opened again when needed."""
        self._view.segments.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def _look(self) -> LogView:
        start = self._start
        if start is None and self._topic_partition is not None:
            checkpoint = os.path.join(os.path.dirname(self._path), LOG_START_OFFSET_CHECKPOINT)
            start = read_offset_checkpoint(checkpoint).get(self._topic_partition)
        return LogView(self._path, self._handles, start,
                       str(self._topic_partition or self._path))

    def _report(self, gap: LogGap) -> None:
        with self._lock:
            if gap in self._gaps:
                return
            self._gaps[gap] = None
        if self._on_gap is not None:
            self._on_gap(gap)
