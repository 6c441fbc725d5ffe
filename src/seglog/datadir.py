"""A data directory of a broker, read-only: its partitions, its checkpoints, its load report."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from seglog.arguments import (
    directory_path, int32, names, optional, partition_of, shown, text,
)
from seglog.arguments import threads as at_once
from seglog.arrow.topics import OffsetBound, TimeBound, TopicStream
from seglog.closed_by_with import ClosedByWith
from seglog.config import LoadConfig, LogConfig
from seglog.errors import UnknownTopicOrPartitionError
from seglog.forks import SurvivesFork
from seglog.model import TopicPartition
from seglog.recovery.callbacks import LoadListener
from seglog.recovery.loader import LoadOptions, LoadResult, load_directory
from seglog.recovery.partition_plan import CheckedSegments, LoadLevel
from seglog.recovery.load_report import LoadReport
from seglog.recovery.root import PartitionDirectory
from seglog.storage.isolation import Isolation
from seglog.storage.log_reader import BATCH_BYTES, BATCH_ROWS
from seglog.storage.partition_log import PartitionLog
from seglog.storage.meta import MetaProperties
from seglog.storage.paths import DirectoryKind
from seglog.storage.ranges import LogGap
from seglog.storage.selection import (
    is_internal, select_partitions, unknown_partition, unknown_topic,
)
from seglog.storage.stream import OnDamage

if TYPE_CHECKING:
    from seglog.tiered.bucket import Bucket

__all__ = ["DataDir", "open_data_dir"]


def open_data_dir(path: str | os.PathLike[str], *, num_segment_loading_threads: int = 1,
                  level: Literal["kafka", "full", "verify"] | LoadLevel = "kafka",
                  log_config: LogConfig | None = None,
                  listener: LoadListener | None = None,
                  remote: str | os.PathLike[str] | Bucket | None = None) -> DataDir:
    """Loads a data directory (one entry of `log.dirs`) and opens it for reading.

    Nothing is written, created or locked: a copy, half a copy, and the directory of a running
    broker all do. `num_segment_loading_threads` is Kafka's
    `num.segment.loading.threads.per.data.dir` (KIP-1346): more than one open and check segments at
    the same time, also of one partition.

    `level` says how much is checked: "kafka" what a broker checks at start, "full" also every
    entry of every index, "verify" also every batch, and then the report predicts where a recovery
    would cut. Of `log_config`, the topics' settings, `index_interval_bytes` decides whether a
    recovery notices offsets that go backwards, and `segment_index_bytes` which index is too large
    to be written on. Problems are findings of `DataDir.report`, not exceptions.

    `remote` is the path or URL of the broker's remote tier, or a `seglog.tiered.Bucket`: logs then
    begin with the segments that only the tier has (docs/tiered.md). The load does not look there.

    Raises KafkaStorageError (`path` is missing, cannot be listed, or is no data directory) and
    ValueError (an unknown level; ConfigError for a number of threads that Kafka refuses).
    """
    optional(LogConfig, log_config=log_config)
    optional(LoadListener, listener=listener)
    threads = at_once("num_segment_loading_threads", num_segment_loading_threads, 1)
    if level not in list(LoadLevel):
        raise ValueError(f"level {shown(level)} is neither kafka, full nor verify")
    options = LoadOptions(LoadLevel(level), LoadConfig(threads), log_config or LogConfig())
    result = load_directory(directory_path("path", path), options, listener)
    if remote is None:
        return DataDir(result)
    from seglog.tiered.bucket import Bucket, open_bucket  # of no use without a tier

    bucket = remote if isinstance(remote, Bucket) else open_bucket(remote)
    return DataDir(result, bucket.with_metadata_of(result.root.path))


class _Logs(SurvivesFork, Mapping[TopicPartition, PartitionLog]):
    """Opens a log when it is first asked for, and keeps it."""

    def __init__(self, result: LoadResult, remote: Bucket | None) -> None:
        self._result, self._remote = result, remote
        # Kafka does not start with two directories of one partition; here the first one is read.
        self._directories: dict[TopicPartition, PartitionDirectory] = {}
        for one in result.root.partitions:
            # One that cannot be read says so when it is opened; one that is gone is left out.
            if one.kind is DirectoryKind.LIVE and (
                    result.is_loaded(one.name)
                    or os.path.isdir(os.path.join(result.root.path, one.name))):
                self._directories.setdefault(one.topic_partition, one)
        self._opened: dict[TopicPartition, PartitionLog] = {}

    def __getitem__(self, key: TopicPartition) -> PartitionLog:
        directory = self._directories[key]
        with self._lock:
            log = self._opened.get(key)
            if log is None:
                root = self._result.root
                log = PartitionLog.open(
                    os.path.join(root.path, directory.name), topic_partition=key,
                    log_start_offset=root.log_start_offsets.get(key, 0), remote=self._remote)
                self._opened[key] = log
            return log

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(sorted(self._directories))

    def __len__(self) -> int:
        return len(self._directories)

    def __contains__(self, key: object) -> bool:
        return key in self._directories

    def __repr__(self) -> str:
        return f"<{len(self)} logs of {self._result.root.path!r}>"

    def close(self) -> None:
        """Closes the logs that were opened."""
        with self._lock:
            opened, self._opened = self._opened, {}
        for log in opened.values():
            log.close()


class DataDir(ClosedByWith):
    """A loaded data directory. Close it, or use it as a context manager, when logs were read."""

    def __init__(self, result: LoadResult, remote: Bucket | None = None) -> None:
        self._result = result
        self._logs = _Logs(result, remote)

    def __reduce__(self) -> NoReturn:
        """TypeError: a load is not repeated unseen."""
        raise TypeError("cannot pickle a DataDir; pickle the PartitionLogs of its `logs`, or call "
                        "seglog.open_data_dir in the other process")

    @property
    def path(self) -> str:
        """The absolute path."""
        return self._result.root.path

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The partitions in place (not those marked deleted, stray or future), opened lazily.

        A lookup raises KeyError for a partition that is not here, and what PartitionLog.open
        raises.
        """
        return self._logs

    def log(self, topic: str, partition: int) -> PartitionLog:
        """One partition. Raises UnknownTopicOrPartitionError, which names what is there."""
        key = partition_of(TopicPartition(topic, partition))
        if key not in self._logs:
            numbers = self.topics.get(topic)
            raise unknown_topic(self.path, topic, self.topics) if numbers is None else \
                unknown_partition(self.path, [topic], partition, numbers)
        return self._logs[key]

    def to_arrow(self, topics: str | Sequence[str] | None = None,
                 columns: Sequence[str] | None = None, *,
                 partitions: Collection[int] | None = None, start_offset: OffsetBound = None,
                 end_offset: OffsetBound = None, start_timestamp: TimeBound = None,
                 end_timestamp: TimeBound = None, isolation: Isolation = "read_uncommitted",
                 threads: int = 0, batch_rows: int = BATCH_ROWS, batch_bytes: int = BATCH_BYTES,
                 include_control: bool = False, check_crcs: bool = True,
                 on_damage: OnDamage = "raise", on_gap: Callable[[LogGap], None] | None = None
                 ) -> TopicStream:
        """The records of whole topics as a lazy stream of Arrow record batches, partition after
        partition, in the memory of one.

        `topics` are names or patterns: `orders`, `orders-*`, or a regular expression `^orders`;
        None means all but Kafka's internal ones. `partitions` limits their numbers. `columns` are
        names of `seglog.arrow.COLUMNS` and ORIGIN_COLUMNS (default: topic, partition, offset,
        timestamp, timestamp_type, key, value, headers).

        Records of `[start_offset, end_offset)` count, given for all partitions or by
        TopicPartition, and of `[start_timestamp, end_timestamp)`: ms since 1970 or a datetime with
        a time zone, exact for each record, also where timestamps are out of order. Only the start
        of the log is passed over by its time index; to bound what is read at the end, give
        `end_offset`. `threads`, `batch_rows`, `batch_bytes` and the other options are those of
        `PartitionLog.to_arrow`.

        Raises UnknownTopicOrPartitionError, which names what is there; OffsetOutOfRangeError if no
        partition reaches the offsets; ValueError for unknown columns.
        """
        words = ([topics] if isinstance(topics, str) else
                 [topic for topic in self.topics if not is_internal(topic)] if topics is None
                 else names("topics", topics))
        numbers = None if partitions is None else _numbers(partitions)
        chosen = select_partitions(self._logs, words, numbers, self.path)
        return TopicStream(
            [(key, partial(self._logs.__getitem__, key)) for key in chosen], columns,
            start_offset=start_offset, end_offset=end_offset, start_timestamp=start_timestamp,
            end_timestamp=end_timestamp, isolation=isolation, threads=threads,
            batch_rows=batch_rows, batch_bytes=batch_bytes, include_control=include_control,
            check_crcs=check_crcs, on_damage=on_damage, on_gap=on_gap)

    @property
    def topics(self) -> dict[str, list[int]]:
        """The partition numbers of each topic, both sorted."""
        topics: dict[str, list[int]] = {}
        for key in self._logs:
            topics.setdefault(key.topic, []).append(key.partition)
        return topics

    @property
    def report(self) -> LoadReport:
        """What the load found."""
        return self._result.report

    @property
    def directories(self) -> tuple[PartitionDirectory, ...]:
        """Every partition directory, of every kind, by name."""
        return self._result.root.partitions

    def segments(self, directory: str) -> CheckedSegments:
        """The segments of a partition directory as columns. Raises
        UnknownTopicOrPartitionError for one that is not here or could not be listed."""
        plan = self._result.plan(text("directory", directory))
        if plan is None:
            raise UnknownTopicOrPartitionError(f"{self.path} holds no directory {directory}")
        return plan.segments

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """recovery-point-offset-checkpoint; empty where it is missing or malformed."""
        return self._result.root.recovery_points

    @property
    def log_start_offsets(self) -> Mapping[TopicPartition, int]:
        """log-start-offset-checkpoint; empty where it is missing or malformed."""
        return self._result.root.log_start_offsets

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """replication-offset-checkpoint; empty where it is missing or malformed."""
        return self._result.root.high_watermarks

    @property
    def meta_properties(self) -> MetaProperties | None:
        """meta.properties; None where it is missing or malformed."""
        return self._result.root.meta_properties

    @property
    def had_clean_shutdown(self) -> bool:
        """Whether the clean shutdown marker was there."""
        return self._result.root.clean_shutdown

    def close(self) -> None:
        """Closes the logs that were opened; a later lookup opens them again."""
        self._logs.close()

    def __repr__(self) -> str:
        return f"DataDir({self.path!r}, {len(self._logs)} partitions)"


def _numbers(partitions: Any) -> list[int]:
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise TypeError(f"partitions must be several numbers, not {shown(partitions)}")
    return [int32("each of partitions", number) for number in partitions]
