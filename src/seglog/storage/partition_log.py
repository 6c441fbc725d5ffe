"""PartitionLog: one partition directory, read without a broker."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from seglog._native.columns import DEFAULT_COLUMNS
from seglog.arguments import (
    count, directory_path, int32, int64, names, offset, partition_of, seconds, shown,
)
from seglog.arguments import threads as at_once
from seglog.closed_by_with import ClosedByWith
from seglog.errors import (
    InvalidTopicPartitionError, KafkaStorageError, MalformedCheckpointError,
)
from seglog.forks import SurvivesFork
from seglog.model import (
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP, EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, AbortedTxn, OpenTransaction,
    TimestampOffset, TopicPartition,
)
from seglog.storage.batches import BatchHeader, FetchData, read_headers
from seglog.storage.checkpoint_files import CHECKPOINT_BYTES_MAX, read_offset_checkpoint
from seglog.storage.discover import find_live_names
from seglog.storage.epochs import LeaderEpochs, read_leader_epochs
from seglog.storage.log_store import LOCAL, Files, files_of, place_of, small_file
from seglog.storage.handles import FILES_PER_SEGMENT, HandleCache, shared_cache
from seglog.storage.isolation import Isolation, check_isolation
from seglog.storage.log_reader import BATCH_BYTES, BATCH_ROWS
from seglog.storage.log_tail import LogTail
from seglog.storage.meta import META_BYTES_MAX, format_uuid, read_partition_metadata
from seglog.storage.paths import (
    LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, PARTITION_METADATA,
    parse_directory_name,
)
from seglog.storage.place import PlaceKind, identify
from seglog.storage.polling import PollingFollower, TopicWatch
from seglog.storage.ranges import WHOLE_SEGMENT, LogGap, LogRange
from seglog.storage.record_rows import Record, one_by_one
from seglog.storage.segments import Segments
from seglog.storage.skipping import GapList
from seglog.storage.stream import RANGE_BYTES, DecodeOptions, OnDamage, Plan, RecordBatchStream
from seglog.storage.tiers import open_tier
from seglog.storage.timestamps import find_offset_by_timestamp, find_offset_of_max_timestamp
from seglog.storage.view import LogView, SalvagedView

__all__ = ["PartitionLog"]

#: A log of so few segments may be small: then each thread gets this number of ranges at least.
_SMALL_SEGMENTS, _RANGES_PER_THREAD = 8, 8


class PartitionLog(SurvivesFork, ClosedByWith):
    """A log as it was when it was opened; `refresh()` reads the directory again.

    Reading changes nothing: no file is written, created or locked. The directory may belong to a
    running broker, be a copy, or be on a read-only mount. Indexes, checkpoints and snapshots may be
    missing; a wrong index makes a read slow, never wrong. Only a time index is trusted, as in
    Kafka, to leave out no larger timestamp before an entry that its batch confirms; `seglog verify`
    checks that too. Safe from any thread, and in forked children too. Unpickling opens the
    directory again.

    **Where the log ends.** `log_end_offset` is the offset after the last batch with a valid CRC,
    found by a walk from the last valid index entry of the last segment: Kafka's log end offset
    after a clean shutdown, and after its recovery of a torn or zeroed tail. Damage before that
    entry is not searched for: a reader that reaches it gets a typed error after all records before
    it. An incomplete batch or zeros at the end of the last segment are the end. Inside the log (a
    segment that was copied halfway, followed by others) they are skipped, and reported by `on_gap`
    and `gaps`.
    """

    def __init__(self, path: str, handles: HandleCache, log_start_offset: int | None,
                 topic_partition: TopicPartition | None,
                 on_gap: Callable[[LogGap], None] | None, where: Files = LOCAL) -> None:
        self._path, self._handles, self._start = path, handles, log_start_offset
        self._topic_partition, self._on_gap, self._where = topic_partition, on_gap, where
        self._gaps = GapList(on_gap or _ignore)
        self._view = self._look()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, read_only: Literal[True] = True,
             log_start_offset: int | None = None, topic_partition: TopicPartition | None = None,
             max_open_segments: int | None = None,
             on_gap: Callable[[LogGap], None] | None = None,
             storage_options: Mapping[str, str] | None = None,
             remote: object = None) -> Self:
        """Opens a partition directory for reading, on a file system or in an object store.

        `log_start_offset` replaces the value in the `log-start-offset-checkpoint` beside the
        directory. `max_open_segments` gives this log its own bound of open segments instead of the
        process-wide one of 128. `on_gap` is called, from the reading thread, when something inside
        the log is first skipped.

        `path` may be a URL (`s3://bucket/data/orders-0`, docs/objects.md); `storage_options` are
        then those of `seglog.objects.StorageOptions`.

        `remote` is the path or URL of the broker's remote tier (KIP-405), or a
        `seglog.tiered.Bucket`: the log then begins with the segments that only the tier has
        (docs/tiered.md).

        Raises KafkaStorageError (missing or unreadable directory, or a data directory instead of
        one of its partitions) and MalformedCheckpointError.
        """
        if not read_only:
            raise ValueError("a PartitionLog is opened read-only")
        name = place_of(path)
        where = files_of(name, storage_options)
        if where is LOCAL:
            name = directory_path("path", name)
        if topic_partition is None:
            try:
                topic_partition = parse_directory_name(name).topic_partition
            except InvalidTopicPartitionError:
                pass  # a copy under another name; only its checkpoints need the partition
        else:
            partition_of(topic_partition)
        if remote is not None:
            where = open_tier(remote, name, where, topic_partition, storage_options)
        if max_open_segments is not None:
            int32("max_open_segments", max_open_segments, 1)
        if log_start_offset is not None:
            offset("log_start_offset", log_start_offset)
        if on_gap is not None and not callable(on_gap):
            raise TypeError(f"on_gap must be callable, not {shown(on_gap)}")
        handles = shared_cache() if max_open_segments is None else HandleCache(
            max_open_segments * FILES_PER_SEGMENT)
        log = cls(name, handles, log_start_offset, topic_partition, on_gap, where)
        if not len(log.segments):
            _refuse_other_places(name, where, is_named=topic_partition is not None)
            log.refresh()  # a broker that creates the directory now may have written more
        return log

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickling opens the log again, in its state at that time."""
        return (type(self), (self._path, self._handles, self._start, self._topic_partition,
                             self._on_gap, self._where))

    # ---- identity

    @property
    def path(self) -> str:
        """The absolute path of the directory, or its URL."""
        return self._path

    @property
    def where(self) -> Files:
        """The Files that `ranges` refer to, for a `decode_range` in another process."""
        return self._where

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The partition in the directory's name; None for a copy under another name."""
        return self._topic_partition

    @property
    def topic_id(self) -> str | None:
        """The topic's id as Kafka prints it; None without partition.metadata.

        Raises MalformedCheckpointError.
        """
        path = os.path.join(self._path, PARTITION_METADATA)
        found = self._where.beginning(path, META_BYTES_MAX)
        if found is None:
            return None
        metadata = read_partition_metadata(path, found[0])
        return None if metadata is None else format_uuid(metadata.topic_id)

    def __repr__(self) -> str:
        return f"PartitionLog({self._path!r}, {len(self.segments)} segments)"

    # ---- offsets

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers get. Earlier records may still be in the file; they are
        left out."""
        return self._view.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""
        return self._view.log_end_offset

    @property
    def tail(self) -> LogTail:
        """Where the log ends, and what follows its last sound batch."""
        return self._view.tail

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided; the log end offset if none is
        open."""
        return self._view.last_stable_offset

    def end_offset(self, isolation: Isolation = "read_uncommitted",
                   on_damage: OnDamage = "raise") -> int:
        """The offset after the last record that a read with these options can return."""
        committed = check_isolation(isolation)
        if on_damage == "skip":
            return self._view.salvaged.end_offset(committed)
        return self.last_stable_offset if committed else self.log_end_offset

    @property
    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """Transactions without a marker, sorted by first offset."""
        return self._view.transactions.open_transactions

    def aborted_transactions(self, start_offset: int, end_offset: int
                             ) -> tuple[AbortedTxn, ...]:
        """The aborted transactions that may have records in `[start_offset, end_offset)`, which
        `read_committed` leaves out."""
        return self._view.transactions.aborted_between(int64("start_offset", start_offset),
                                                       int64("end_offset", end_offset))

    @property
    def checkpointed_epochs(self) -> LeaderEpochs:
        """The entries of `leader-epoch-checkpoint`. Raises MalformedCheckpointError."""
        path = os.path.join(self._path, LEADER_EPOCH_CHECKPOINT)
        return read_leader_epochs(path, self._checkpoint(path))

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """Leader epochs within the log, cut at its start and end as Kafka's loader cuts them.

        Raises MalformedCheckpointError.
        """
        epochs = self.checkpointed_epochs
        epochs.truncate_from_end(self.log_end_offset)
        epochs.truncate_from_start(self.log_start_offset)
        return epochs

    @property
    def segments(self) -> Segments:
        """The segments, ascending. Opens no file."""
        return self._view.segments

    @property
    def gaps(self) -> tuple[LogGap, ...]:
        """What readers have skipped so far."""
        return tuple(self._gaps.gaps)

    # ---- reading

    def batches(self, start_offset: int | None = None, end_offset: int | None = None, *,
                check_crcs: bool = True) -> Iterator[BatchHeader]:
        """The headers of the batches that hold `[start_offset, end_offset)`, in order.

        Raises OffsetOutOfRangeError when the first header is requested, CorruptRecordError at a bad
        batch.
        """
        view = self._view
        start, end = view.bounds(start_offset, end_offset, committed=False)
        opened = view.segments.opened
        for planned in view.plan(start, end, WHOLE_SEGMENT, False, self._gaps.add):
            yield from read_headers(planned, opened, check_crcs, self._gaps.add)

    def to_arrow(self, start_offset: int | None = None, end_offset: int | None = None,
                 columns: Sequence[str] | None = None, isolation: Isolation = "read_uncommitted",
                 *, threads: int = 0, batch_rows: int = BATCH_ROWS, batch_bytes: int = BATCH_BYTES,
                 include_control: bool = False, check_crcs: bool = True,
                 on_damage: OnDamage = "raise",
                 on_gap: Callable[[LogGap], None] | None = None) -> RecordBatchStream:
        """The records of `[start_offset, end_offset)` as a lazy stream of Arrow record batches.

        Without bounds: the whole log; for read_committed, all below the last stable offset. A
        larger `end_offset` means that end. `columns` are names of `seglog.arrow.COLUMNS` (default:
        offset, timestamp, timestamp_type, key, value, headers). A batch has at most `batch_rows`
        rows and `batch_bytes` of keys, values and headers (a single record may have more).
        `threads` decode ahead; with 0 the consumer's thread decodes.

        With `on_damage="skip"` damage costs only the damaged batch: the stream continues after it,
        and `stream.gaps`, `on_gap` or else a logged warning report what was lost (docs/damage.md).

        Raises OffsetOutOfRangeError for a start outside of the log, ValueError for unknown names.
        """
        committed = check_isolation(isolation)
        view = self._view
        options = DecodeOptions(DEFAULT_COLUMNS if columns is None else names("columns", columns),
                                int32("batch_rows", batch_rows, 1),
                                count("batch_bytes", batch_bytes), check_crcs, include_control,
                                on_damage)
        at_once("threads", threads)
        target = self._range_bytes(threads) if threads else WHOLE_SEGMENT
        skips = on_damage == "skip"
        source = view.salvaged if skips else view
        gaps = GapList(on_gap if skips else on_gap or _ignore, self._gaps.add)
        start, end = source.bounds(start_offset, end_offset, committed)
        return RecordBatchStream(
            lambda: Plan(source.plan(start, end, target, committed, gaps.add),
                         view.segments.opened),
            options, about=_about(view, start, end, committed),
            release=view.segments.release, threads=threads, gaps=gaps,
            damage=view.hidden_damage(end_offset) if committed and not skips else None,
            surveys=source.surveys if isinstance(source, SalvagedView) and check_crcs else None)

    def records(self, start_offset: int | None = None, end_offset: int | None = None, *,
                isolation: Isolation = "read_uncommitted") -> Iterator[Record]:
        """Yields the records of `to_arrow` one by one."""
        return one_by_one(self.to_arrow(start_offset, end_offset, isolation=isolation))

    def _range_bytes(self, threads: int) -> int:
        """The size of the ranges that threads decode. In a small log on a file system they are
        smaller, so that no thread has much more to do than the others."""
        segments, most = self._view.segments, RANGE_BYTES * self._where.range_factor
        if self._where.range_factor > 1 or len(segments) > _SMALL_SEGMENTS:
            return most
        try:
            size = segments.size
        except KafkaStorageError:  # the directory was renamed; files that are open can be read
            return most
        return max(most // 8, min(most, size // (_RANGES_PER_THREAD * threads)))

    def fetch(self, start_offset: int, max_bytes: int,
              isolation: Isolation = "read_uncommitted") -> FetchData:
        """Whole record batches from the one that holds `start_offset`, as Kafka's fetch.

        Returns at least one batch, then as many as fit into `max_bytes`; none at the end. CRCs are
        left to the consumer. Raises OffsetOutOfRangeError, CorruptRecordError, also where corrupt
        bytes follow the last sound batch, and ValueError.
        """
        if int64("max_bytes", max_bytes) < 0:
            raise ValueError(f"Invalid max size {max_bytes} for log read")
        return self._view.fetch(int64("start_offset", start_offset), max_bytes,
                                check_isolation(isolation))

    def offset_for_timestamp(self, timestamp_ms: int, *, on_damage: OnDamage = "raise"
                             ) -> TimestampOffset | None:
        """The first record at or after a time; None if all are earlier (Kafka: ListOffsets).

        LATEST_TIMESTAMP (-1) and EARLIEST_TIMESTAMP (-2) return the log end and start offset with
        timestamp -1. MAX_TIMESTAMP (-3) returns the first record with the largest timestamp, and,
        as in Kafka (RecordBatch.offsetOfMaxTimestamp), None if only a batch that was compacted to
        nothing has it. The values for remote storage (-5, -6), not read here, return offset -1.
        Raises CorruptDataError if damage prevents the search, ValueError for other negatives. With
        `on_damage="skip"` only records count that `to_arrow(on_damage="skip")` returns.
        """
        view, timestamp_ms = self._view, int64("timestamp_ms", timestamp_ms)
        if timestamp_ms == LATEST_TIMESTAMP:
            end = self.end_offset(on_damage=on_damage)
            return TimestampOffset(-1, end, self._epoch_at(end - 1))
        if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            start = view.log_start_offset
            return TimestampOffset(-1, start, self._epoch_at(start))
        if timestamp_ms in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            return TimestampOffset(-1, -1, -1)
        if timestamp_ms < MAX_TIMESTAMP:
            raise ValueError(f"timestamp {timestamp_ms} is negative and none of Kafka's specials")
        if on_damage == "skip":
            return view.salvaged.offset_for_timestamp(
                None if timestamp_ms == MAX_TIMESTAMP else timestamp_ms)
        start = view.log_start_offset
        segments = view.read_segments(start)
        if timestamp_ms == MAX_TIMESTAMP:
            return find_offset_of_max_timestamp(segments, start)
        return find_offset_by_timestamp(segments, timestamp_ms, start)

    def follow(self, start_offset: int | None = None, *, end_offset: int | None = None,
               isolation: Isolation = "read_uncommitted", timeout: float | None = None,
               columns: Sequence[str] | None = None, include_control: bool = False
               ) -> PollingFollower:
        """The records from `start_offset` on, by default from the end, and those that another
        process appends later. Lists the directory repeatedly, with its own view of it.

        Ends at `end_offset`, after `timeout` seconds without new records, or when it is closed.
        Raises as `to_arrow`, OffsetOutOfRangeError if returned records are truncated, and
        InconsistentTopicIdError if the topic is deleted and created again, as far as
        `partition.metadata` says so.
        """
        topic = TopicWatch()
        topic.check(self)
        kind, state = self.__reduce__()
        own: PartitionLog = kind(*state)
        start = own.log_end_offset if start_offset is None else int64("start_offset", start_offset)

        def read(first: int, end: int | None) -> RecordBatchStream:
            return own.to_arrow(first, end, columns, isolation, include_control=include_control)

        own.to_arrow(start, start, columns, isolation)  # raises errors of the arguments now
        return PollingFollower(
            own, start, None if end_offset is None else int64("end_offset", end_offset), isolation,
            seconds("timeout", timeout), topic, read)

    def _epoch_at(self, offset: int) -> int | None:
        """The leader epoch of an offset by the checkpoint; None if that does not say."""
        try:
            return self.checkpointed_epochs.epoch_for_offset(offset)
        except MalformedCheckpointError:
            return None

    def ranges(self, target_bytes: int, start_offset: int | None = None,
               end_offset: int | None = None, isolation: Isolation = "read_uncommitted", *,
               on_damage: OnDamage = "raise", on_gap: Callable[[LogGap], None] | None = None
               ) -> list[LogRange]:
        """`[start_offset, end_offset)` as picklable byte ranges of about `target_bytes`.

        Their records, in order, are exactly those of `to_arrow` with the same bounds. Any process
        that sees the files can decode one with `seglog.arrow.decode_range`, with the same
        `on_damage`. Segments that cannot be opened are gaps if that is known here; otherwise
        decoding reports them. Raises the error with which a read_committed `to_arrow` would end
        where damage may hide markers: no range reaches it. An `end_offset` of at most
        `end_offset("read_committed")` avoids that.
        """
        count("target_bytes", target_bytes)
        committed = check_isolation(isolation)
        view, skips = self._view, on_damage == "skip"
        source = view.salvaged if skips else view
        report = GapList(on_gap, self._gaps.add).add if skips else self._gaps.add
        start, end = source.bounds(start_offset, end_offset, committed)
        if committed and not skips and (damage := view.hidden_damage(end_offset)) is not None:
            raise damage
        return list(source.plan(start, end, target_bytes, committed, report))

    # ---- life

    def refresh(self) -> None:
        """Reads the directory again. Streams that were begun before continue with their view."""
        fresh = self._look()
        with self._lock:
            self._view, old = fresh, self._view
        old.segments.close()

    def close(self) -> None:
        """Closes open files. The log can still be read: files are opened again when needed."""
        self._view.segments.close()

    def _look(self) -> LogView:
        start = self._start
        if start is None and self._topic_partition is not None:
            checkpoint = os.path.join(os.path.dirname(self._path), LOG_START_OFFSET_CHECKPOINT)
            start = read_offset_checkpoint(checkpoint, self._checkpoint(checkpoint)).get(
                self._topic_partition)
        return LogView(self._path, self._handles, start,
                       str(self._topic_partition or self._path), self._where)

    def _checkpoint(self, path: str) -> bytes:
        """The content of a checkpoint file, empty if it is missing."""
        return small_file(self._where, path, CHECKPOINT_BYTES_MAX) or b""


def _about(view: LogView, start: int, end: int | None, committed: bool) -> str:
    return f"{view.name} [{start}, {end}), {'read_committed' if committed else 'read_uncommitted'}"


def _one_of(path: str, names: Sequence[str]) -> str:
    return os.path.join(path, next((name for name in names if name[0] != "_"), names[0]))


def _ignore(gap: LogGap) -> None:
    """The default `on_gap`: does nothing, because `gaps` keeps every gap."""


def _refuse_other_places(path: str, where: Files, *, is_named: bool) -> None:
    """Raises KafkaStorageError for a directory without segments that is not an empty log either."""
    if where is not LOCAL:
        if names := find_live_names(path, where):
            raise KafkaStorageError(
                errno.EINVAL, "this is a data directory, not one partition's; open one of its "
                f"{len(names)} partitions, such as {_one_of(path, names)}", path)
        if is_named:
            return  # a partition that has no segment yet
        raise KafkaStorageError(errno.EINVAL, "this is no partition directory: there is no segment "
                                "in it", path)
    place = identify(path)
    if place.kind is PlaceKind.DATA_DIRECTORY:
        names = find_live_names(path)
        partitions = f", or open one of its {len(names)} partitions, such as " \
            f"{_one_of(path, names)}" if names else ""
        raise KafkaStorageError(
            errno.EINVAL, "this is a data directory, not one partition's; open it with "
            f"seglog.open_data_dir{partitions}", path)
    if place.kind in (PlaceKind.EMPTY, PlaceKind.PARTITION_DIRECTORY) or (
            is_named and not place.data_directories()):
        return  # a partition that has no segment yet, or just got its first
    raise KafkaStorageError(errno.EINVAL, place.describe().replace(
        "this is no data directory", "this is no partition directory"), path)
