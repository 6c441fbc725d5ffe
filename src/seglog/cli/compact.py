"""`seglog compact`: the log cleaner's work on the directories of a stopped broker."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from seglog.arguments import directory_path, given_path
from seglog.cleaner.cleanable import LogToClean
from seglog.cleaner.config import CleanerConfig
from seglog.cleaner.dry_run import dry_run
from seglog.cli import render
from seglog.cli.access import require_access, require_readable
from seglog.cli.compact_text import print_compaction
from seglog.cli.document import document, print_document
from seglog.cli.option_numbers import thread_count
from seglog.cli.report import load_properties, setting
from seglog.cli.summary import Part, joined
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import (
    ConfigError, KafkaStorageError, LogDirLockedError, MalformedCheckpointError, SeglogError,
)
from seglog.log.scheduler import MockTime, Time
from seglog.log.unified_log import LogContext, UnifiedLog, load_unified_log
from seglog.manager.manager import LogManager
from seglog.model import TopicPartition
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.loaded import error_state
from seglog.recovery.overlay import OverlayDisk
from seglog.recovery.root import RootDirectory, read_root
from seglog.recovery.rows import compaction_row, directory_row, exit_code, partition_row
from seglog.storage.checkpoint_files import read_offset_checkpoint
from seglog.storage.paths import CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_CHECKPOINT, DirectoryKind
from seglog.storage.place import refuse_duplicates
from seglog.storage.selection import unknown_topic

__all__ = ["add_parser", "run"]

#: Kafka's own compacted topics, and the broker's setting of their segment size.
_INTERNAL: Final = {"__consumer_offsets": "offsets.topic.segment.bytes",
                    "__transaction_state": "transaction.state.log.segment.bytes"}
_INTERNAL_SEGMENT_BYTES: Final = 100 << 20
_POLICY: Final = "cleanup.policy"

Row = dict[str, Any]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options of the verb."""
    parser = subparsers.add_parser(
        "compact", help="compact the logs of a stopped broker",
        description="Compacts logs as the broker's log cleaner would, however dirty they are, and "
                    "writes its checkpoint. Of a broker that was shut down cleanly, under its "
                    "lock. Without -t: Kafka's internal compacted topics, and those that a cleaner "
                    "has cleaned before. Exit code 0: done; 1: a log cannot be cleaned; 2: not "
                    "done.")
    parser.add_argument("path", nargs="+", type=given_path,
                        help="data directories (each one entry of log.dirs)")
    parser.add_argument("-t", "--topic", action="append", default=[], metavar="TOPIC",
                        help="only this topic; may be repeated")
    parser.add_argument("--dry-run", action="store_true",
                        help="what it would do; touches nothing")
    parser.add_argument("--threads", type=thread_count, default=1, metavar="N",
                        help="threads for one log at a time (default 1); the result is the same")
    parser.add_argument("--config", type=setting, action="append", default=[],
                        metavar="KEY=VALUE", help="a setting of the broker or the topics under "
                        "Kafka's name, such as delete.retention.ms=0; may be repeated")
    parser.add_argument("--properties", metavar="FILE", type=given_path,
                        help="a server.properties; --config goes before it")
    parser.add_argument("--json", action="store_true", help="one JSON document (docs/json.md)")


@dataclass(frozen=True, slots=True)
class _Settings:
    """Of one run. `topics` are those asked for, empty for all that are known to be compacted."""

    broker: BrokerConfig
    log: LogConfig
    segment_bytes: dict[str, int]
    topics: tuple[str, ...]
    says_compact: bool
    threads: int

    def of_topic(self, topic: str) -> LogConfig:
        """What counts for a topic."""
        config = self.log
        if topic in self.segment_bytes:
            config = replace(config, segment_bytes=self.segment_bytes[topic])
        return config if config.compact else replace(config, cleanup_policy=("compact",))


def run(args: argparse.Namespace) -> int:
    """Compacts every path; 1 if a log cannot be cleaned."""
    settings = _settings(args)
    paths = [directory_path("path", path) for path in args.path]
    refuse_duplicates(paths)
    roots = [_root_of(path) for path in paths]
    _require_topics(paths, roots, settings.topics)
    work = _dry_run if args.dry_run else _compact
    parts = []
    label = "measuring" if args.dry_run else "compacting"
    with _Bar(label) as bar:
        for path, root in zip(paths, roots, strict=True):
            parts.append(_part(path, root, settings, work, bar))
    rows = joined(parts)
    code = exit_code(*rows)
    if args.json:
        print_document(document("compact-dry-run" if args.dry_run else "compact", code, *rows))
    else:
        print_compaction(parts, is_dry=args.dry_run)
    return code


def _root_of(path: str) -> RootDirectory | SeglogError:
    """The top level of a data directory, or why it cannot be read."""
    try:
        return read_root(path, lambda found: None)
    except SeglogError as error:
        return error


def _require_topics(paths: Sequence[str], roots: Sequence[RootDirectory | SeglogError],
                    topics: Sequence[str]) -> None:
    """UnknownTopicOrPartitionError, before anything changes, for a topic that no directory has. A
    directory that cannot be listed may have it; its own error follows."""
    there: set[str] = set()
    for root in roots:
        if isinstance(root, SeglogError):
            return
        there |= {key.topic for key in _live(root)}
    for topic in topics:
        if topic not in there:
            raise unknown_topic(", ".join(paths), topic, there)


def _live(root: RootDirectory) -> set[TopicPartition]:
    """The partitions of a data directory that a cleaner may work on."""
    return {one.topic_partition for one in root.partitions if one.kind is DirectoryKind.LIVE
            and not one.is_metadata}


def _settings(args: argparse.Namespace) -> _Settings:
    properties, own = load_properties(args), dict(args.config)
    broker = BrokerConfig.from_properties(properties)
    log = broker.log_config(own)
    sizes = {topic: _size(properties.get(name)) for topic, name in _INTERNAL.items()}
    if {"segment.bytes", "internal.segment.bytes"} & set(own):
        sizes = {}
    return _Settings(broker, log, sizes, tuple(args.topic), _POLICY in own and log.compact,
                     args.threads)


def _size(value: object) -> int:
    return _INTERNAL_SEGMENT_BYTES if value is None else LogConfig.from_properties(
        {"segment.bytes": value}).segment_bytes


class _Bar(render.Progress):
    """Bytes read of those that there are: a round reads what is dirty, and then all."""

    def __init__(self, label: str) -> None:
        super().__init__(label, 0, detail=lambda room: f"bytes, {self._now}"[:room])
        self._now, self._left = "", 0
        self._sizes: dict[str, int] = {}

    def expect(self, root: str, keys: list[TopicPartition]) -> None:
        """These logs come next."""
        for key in keys:
            path = os.path.join(root, str(key))
            with suppress(OSError), os.scandir(path) as entries:
                self._sizes[path] = 2 * sum(
                    one.stat().st_size for one in entries if one.name.endswith(".log"))
            self.total = (self.total or 0) + self._sizes.get(path, 0)

    def begin(self, root: str, key: TopicPartition) -> None:
        """Goes on with a log; one that was not read to its end is done, too."""
        self.end()
        self._now, self._left = str(key), self._sizes.pop(os.path.join(root, str(key)), 0)

    def read(self, size: int) -> None:
        """So many bytes of the log were read."""
        size = min(size, self._left)
        self._left -= size
        self.advance(size)

    def end(self) -> None:
        """The log is done."""
        self.advance(self._left)
        self._left = 0


_Work = Callable[[RootDirectory, list[TopicPartition], _Settings, _Bar], Iterator[Row]]


def _part(path: str, found: RootDirectory | SeglogError, settings: _Settings, work: _Work,
          bar: _Bar) -> Part:
    """The rows of one data directory; its error is in its row, and the next one is tried."""
    started, rows = time.perf_counter(), list[Row]()
    root = None if isinstance(found, SeglogError) else found
    error: SeglogError | None = None
    try:
        if isinstance(found, SeglogError):
            raise found
        keys = _compacted(found, settings)
        bar.expect(path, keys)
        for row in work(found, keys, settings, bar):
            rows.append(row)
        bar.end()
    except SeglogError as failure:
        error = failure
        render.error(error)
    said = {} if error is None else error_state(error)
    return Part(directory_row(
        path, clean_shutdown=None if root is None else root.clean_shutdown,
        clean_after=os.path.exists(os.path.join(path, CLEAN_SHUTDOWN_FILE)),
        in_use_by=None if root is None or root.holder is None else str(root.holder),
        seconds=time.perf_counter() - started, error=said.get("error"),
        message=said.get("message")), rows, [])


def _compacted(root: RootDirectory, settings: _Settings) -> list[TopicPartition]:
    """The partitions to compact. ConfigError for a topic of which nothing says that it is."""
    known = set(_cleaned(root.path)) | {
        one.topic_partition for one in root.partitions if one.topic_partition.topic in _INTERNAL}
    present = _live(root)
    if not settings.topics:
        return sorted(known & present)
    topics = {key.topic for key in known}
    for topic in settings.topics:
        if topic not in topics and not settings.says_compact and any(
                key.topic == topic for key in present):
            raise ConfigError(
                f"{root.path}: nothing here says that {topic} is a compacted topic, and compaction "
                f"removes records; if it is, say so with --config {_POLICY}=compact")
    return sorted(key for key in present if key.topic in settings.topics)


def _cleaned(path: str) -> dict[TopicPartition, int]:
    with suppress(MalformedCheckpointError):  # it counts as empty, as to a cleaner
        return read_offset_checkpoint(os.path.join(path, CLEANER_OFFSET_CHECKPOINT))
    return {}


# ---- for real -----------------------------------------------------------------------------------


def _compact(root: RootDirectory, keys: list[TopicPartition], settings: _Settings,
             bar: _Bar) -> Iterator[Row]:
    """Compacts under the directory's lock, and leaves it as a clean shutdown does."""
    if root.holder is not None:
        raise LogDirLockedError(root.path, root.holder.pid, root.holder.command)
    _require_clean(root.path)
    require_access(root, "the compaction")
    failed: dict[str, Exception] = {}
    manager = LogManager(  # from here on the directory is locked
        [root.path], config=settings.broker, log_config=settings.log,
        topic_configs={key.topic: settings.of_topic(key.topic) for key in keys},
        on_load_error=failed.__setitem__, keep_log_starts=True)
    epoch = manager.read_broker_epoch_from_clean_shutdown_files()
    try:
        _require_clean(root.path)
        manager.startup()
        for path, error in sorted(failed.items()):  # also of logs that are not to be compacted:
            yield partition_row(  # without them the directory gets no clean shutdown marker
                root.path, os.path.basename(path), **_state_of(error, root.path))
        for key in keys:
            bar.begin(root.path, key)
            if os.path.join(root.path, str(key)) not in failed:
                yield _compacted_row(root.path, key, manager, settings.threads, bar)
    finally:
        manager.shutdown(-1 if epoch is None else epoch)


def _require_clean(path: str) -> None:
    """KafkaStorageError for a directory without the clean shutdown marker."""
    if not os.path.exists(os.path.join(path, CLEAN_SHUTDOWN_FILE)):
        raise KafkaStorageError(
            None, "the broker was not shut down cleanly: its logs may end earlier after a "
            "recovery, and the old values of keys would be gone; run `seglog load --recover` "
            "first", path)


def _compacted_row(path: str, key: TopicPartition, manager: LogManager, threads: int,
                   bar: _Bar) -> Row:
    log = manager.get_log(key)
    if log is None:
        return partition_row(path, str(key), error="KafkaStorageException",
                             message="the log does not load; see seglog load")
    known: Row = {"rounds": 0}
    try:
        known |= _measured(LogToClean.of(log, _cleaned(path).get(key)))
        known |= {"size_before": log.size, "size_after": log.size}
        rounds = manager.compact(key, bar.read, threads=threads)
        known |= {"rounds": len(rounds), "size_after": log.size}
        if rounds:
            known |= {"records_before": rounds[0].messages_read,
                      "records_after": rounds[-1].messages_written}
        known["end_offset"] = _cleaned(path).get(key, known["end_offset"])
    except (SeglogError, OSError) as error:
        return _failed_row(path, log, known, error)
    return _row(path, log, known)


# ---- a dry run ----------------------------------------------------------------------------------


def _dry_run(root: RootDirectory, keys: list[TopicPartition], settings: _Settings,
             bar: _Bar) -> Iterator[Row]:
    """Opens no file for writing and takes no lock."""
    require_readable(root, "the compaction")
    cleaned, config = _cleaned(root.path), CleanerConfig.of(settings.broker)
    # A scheduler of a clock that nobody moves runs nothing.
    context = LogContext(MockTime().scheduler, Time())
    for key in keys:
        bar.begin(root.path, key)
        path = os.path.join(root.path, str(key))
        inputs = LoadInputs(key, root.clean_shutdown, root.log_start_offsets.get(key, 0),
                            root.recovery_points.get(key, 0), settings.of_topic(key.topic))
        try:
            log = load_unified_log(path, inputs, context=context, disk=OverlayDisk(path))
        except SeglogError as error:
            yield partition_row(root.path, str(key), **error_state(error))
        else:
            with ExitStack() as given_up:
                given_up.callback(log.close_handlers)
                log.update_high_watermark(root.high_watermarks.get(key, 0))
                yield _dry_row(root.path, log, cleaned.get(key), config,
                               settings.threads, bar)


def _dry_row(path: str, log: UnifiedLog, checkpoint: int | None, config: CleanerConfig,
             threads: int, bar: _Bar) -> Row:
    known: Row = {"rounds": 0}
    try:
        cleanable = LogToClean.of(log, checkpoint)
        known |= _measured(cleanable) | {"size_before": log.size, "size_after": log.size}
        if cleanable.cleanable_bytes:
            found = dry_run(cleanable, config, log.now_ms(), bar.read, threads)
            known |= {
                "rounds": 1, "end_offset": found.end_offset, "keys": found.keys,
                "is_map_full": found.is_map_full,
                "size_after": log.size - found.size_before + found.size_after,
                "records_before": found.records_before, "records_after": found.records_after,
                "waiting_tombstones": found.waiting_tombstones,
                "waiting_markers": found.waiting_markers,
                "waiting_until_ms": found.waiting_until_ms}
    except (SeglogError, OSError) as error:
        return _failed_row(path, log, known, error)
    return _row(path, log, known)


# ---- rows ---------------------------------------------------------------------------------------


def _measured(cleanable: LogToClean) -> Row:
    return {"first_dirty_offset": cleanable.first_dirty_offset,
            "first_uncleanable_offset": cleanable.first_uncleanable_offset,
            "end_offset": cleanable.first_dirty_offset,
            "dirty_ratio": cleanable.cleanable_ratio}


def _row(path: str, log: UnifiedLog, compaction: Row, **known: Any) -> Row:
    return partition_row(
        path, os.path.basename(log.path), segment_count=len(log.segments), size=log.size,
        log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset, high_watermark=log.high_watermark,
        recovery_point=log.recovery_point, compaction=compaction_row(**compaction), **known)


def _failed_row(path: str, log: UnifiedLog, compaction: Row, error: Exception) -> Row:
    file, position = getattr(error, "batch_at", None) or (None, None)
    return _row(path, log, {
        **compaction, "uncleanable_position": position,
        "uncleanable_file": None if file is None else os.path.basename(file)},
        **_state_of(error, path))


def _state_of(error: Exception, path: str) -> Row:
    state = error_state(error) if isinstance(error, SeglogError) else {
        "error": "IOException", "message": str(error)}
    return {**state, "message": str(state["message"]).replace(path, "")}
