"""The commit of a job: assigns offsets to its fragments and adds them to the logs atomically.

Under the lock of a cleanly shut down data directory, it prepares every file under a hidden name and
syncs it (`prepare`), then renames all of them through a journal (`journal`). The result looks like
a clean shutdown to a broker: index files, checkpoints, producer snapshots and marker.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from seglog.arguments import shown
from seglog.errors import IllegalStateError, KafkaStorageError, storage_errors
from seglog.fragments.checked_json import CheckedJson
from seglog.fragments.fragment import Fragment
from seglog.fragments.job import Job, sweep
from seglog.fragments.journal import commit_moves, finish_commit
from seglog.fragments.layout import partition_count, partitions_of
from seglog.fragments.prepare import NewRecords, Preparation
from seglog.model import TopicPartition
from seglog.storage.checkpoint_files import (
    encode_checkpoint, offset_lines, read_offset_checkpoint,
)
from seglog.storage.discover import find_directories
from seglog.storage.lock import FileLock
from seglog.storage.meta import encode_clean_shutdown_marker
from seglog.storage.ownership import make_directories
from seglog.storage.paths import (
    CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, JOB_FILE_PREFIX,
    LOCK_FILE, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, DirectoryKind,
)
from seglog.storage.place import PlaceKind, identify, require_room_for_logs
from seglog.storage.textfile import sync_names

__all__ = ["StreamBatch", "check_target", "exclusive", "publish"]

_STREAMS: Final = f"{JOB_FILE_PREFIX}streams"
_BATCHES: Final = CheckedJson(
    "record of committed micro-batches",
    "restore it, or delete it if no streaming query will repeat a batch",
    {"version": int, "streams": dict}, 16 << 20)
_BATCH_MAX: Final = 2**63 - 1
_NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A micro-batch of a streaming query, which is committed only once."""

    query_id: str
    batch_id: int


@contextlib.contextmanager
def exclusive(data_dir: str) -> Iterator[None]:
    """Locks the data directory for this process, finishes an interrupted commit and deletes the
    files of dead jobs.

    Waits for other commits. Raises LogDirLockedError while a broker or another writer holds the
    lock, KafkaStorageError.
    """
    with contextlib.ExitStack() as stack:
        with storage_errors(data_dir):
            queue = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, queue)
            with contextlib.suppress(OSError):  # Some file systems lock no directories.
                fcntl.flock(queue, fcntl.LOCK_EX)
            lock = FileLock(os.path.join(data_dir, LOCK_FILE))
            lock.lock()
            stack.callback(lock.destroy)
            finish_commit(data_dir)
            sweep(data_dir)
        yield


def check_target(path: str) -> str:
    """Checks that a job may write to `path`, creates it if it is missing, and returns its absolute
    path.

    Raises KafkaStorageError for a path that is no data directory or needs recovery first, and
    LogDirLockedError.
    """
    data_dir = require_room_for_logs(path)
    with storage_errors(data_dir):
        sync_names(make_directories(data_dir, is_ours=True))
    with exclusive(data_dir):
        _require_clean(data_dir)
    return data_dir


def _require_clean(data_dir: str) -> None:
    if os.path.exists(os.path.join(data_dir, CLEAN_SHUTDOWN_FILE)):
        return
    if identify(data_dir).kind is not PlaceKind.DATA_DIRECTORY:
        return
    if any(one.kind is not DirectoryKind.DELETED for one in find_directories(data_dir)):
        raise KafkaStorageError(
            f"{data_dir} was not shut down cleanly: run `seglog load --recover {data_dir}` first")


def publish(job: Job, fragments: Sequence[Fragment], counts: Mapping[str, int], *,
            new_partitions: int | None = None, segment_bytes: int, index_interval_bytes: int,
            stream: StreamBatch | None = None) -> dict[TopicPartition, tuple[int, int]]:
    """Adds the fragments to their logs in the given order; returns each partition's new offsets as
    (first, end).

    `counts` holds the number of partitions that the tasks saw, by topic. A micro-batch that is
    already committed adds nothing and returns {}. The job is over afterwards. Nothing has changed
    after an exception. Raises IllegalStateError, LogDirLockedError, KafkaStorageError.
    """
    data_dir = job.data_dir
    with exclusive(data_dir):
        streams = _read_streams(data_dir)
        if stream is not None and stream.batch_id <= streams.get(stream.query_id, -1):
            job.end()
            return {}
        if job.is_over:
            raise IllegalStateError(f"{data_dir}: this job was committed or aborted already")
        _require_clean(data_dir)
        offsets = {}
        if fragments:
            with storage_errors(data_dir):
                offsets = _publish(job, fragments, counts, new_partitions,
                                   Preparation(job, segment_bytes, index_interval_bytes),
                                   streams, stream)
        job.end()
    return offsets


def _publish(job: Job, fragments: Sequence[Fragment], counts: Mapping[str, int],
             new_partitions: int | None, preparation: Preparation, streams: dict[str, int],
             stream: StreamBatch | None) -> dict[TopicPartition, tuple[int, int]]:
    data_dir = job.data_dir
    by_log: dict[TopicPartition, list[Fragment]] = {}
    for topic in sorted({one.topic_partition.topic for one in fragments}):
        now = partition_count(data_dir, topic, new_partitions)
        if now != counts[topic]:
            raise IllegalStateError(f"another job created topic {topic} with {now} partitions; "
                                    f"this job wrote for {counts[topic]}: run it again")
        if not partitions_of(data_dir, topic):
            by_log.update({TopicPartition(topic, number): [] for number in range(now)})
    for one in fragments:
        by_log.setdefault(one.topic_partition, []).append(one)
    ends: dict[TopicPartition, NewRecords] = {}
    new = {key for key in by_log if not os.path.isdir(os.path.join(data_dir, str(key)))}
    for key, parts in sorted(by_log.items()):
        ends[key] = preparation.add_log(key, parts)
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        known = read_offset_checkpoint(os.path.join(data_dir, name))
        known.update({key: end.end_offset for key, end in ends.items()})
        preparation.add_file(name, encode_checkpoint(offset_lines(dict(sorted(known.items())))))
    for name in (LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT):
        # A log whose directory was removed by hand left its lines: a new one would begin there.
        known = read_offset_checkpoint(os.path.join(data_dir, name))
        others = {key: offset for key, offset in known.items() if key not in new}
        if len(others) < len(known):
            preparation.add_file(name, encode_checkpoint(offset_lines(others)))
    if stream is not None:
        streams[stream.query_id] = stream.batch_id
        preparation.add_file(_STREAMS, _BATCHES.encode(
            os.path.join(data_dir, _STREAMS), {"version": _BATCHES.version, "streams": streams}))
    # An existing marker keeps its broker epoch; no broker starts before the last rename.
    if not os.path.exists(os.path.join(data_dir, CLEAN_SHUTDOWN_FILE)):
        preparation.add_file(CLEAN_SHUTDOWN_FILE, encode_clean_shutdown_marker(_NO_EPOCH))
    preparation.sync()
    commit_moves(data_dir, job.name("journal"), preparation.moves, lambda: job.is_over)
    return {key: (end.first_offset, end.end_offset) for key, end in ends.items() if by_log[key]}


def _read_streams(data_dir: str) -> dict[str, int]:
    """The last committed batch by query; a missing file has none. Raises KafkaStorageError."""
    path = os.path.join(data_dir, _STREAMS)
    found = _BATCHES.read(path)
    streams: dict[str, int] = {} if found is None else found["streams"]
    for query, batch in streams.items():
        if type(batch) is not int or not 0 <= batch <= _BATCH_MAX:
            raise _BATCHES.damaged(path, f"the batch of query {shown(query)} is {shown(batch)}",
                                   expected="the number of a batch", found=batch)
    return streams
