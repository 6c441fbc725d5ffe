"""The files that a commit prepares under hidden names, and the renames that move them into place.

New records become new segments. Small fragments are merged with a small last segment or with each
other. The last segment is copied first, because a rename is atomic and an append is not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from seglog._native.batch import scan_file
from seglog._native.file import open_read
from seglog._native.rebuild import IndexRebuild
from seglog._native.status import Status
from seglog.errors import KafkaStorageError, storage_errors
from seglog.fragments.fragment import Fragment, read_facts, write_all
from seglog.fragments.job import Job
from seglog.fragments.journal import Move
from seglog.fragments.layout import partitions_of
from seglog.model import TopicPartition
from seglog.storage.epochs import encode_leader_epochs, read_leader_epochs
from seglog.storage.partition_log import PartitionLog
from seglog.storage.meta import read_partition_metadata, write_partition_metadata
from seglog.storage.ownership import create_file, make_directories
from seglog.storage.paths import (
    CLEAN_SHUTDOWN_FILE, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, delete_dir_name,
    index_name, log_name, snapshot_name, temporary_name, time_index_name,
)
from seglog.storage.producer_state import SNAPSHOT_BYTES_MAX, encode_snapshot
from seglog.storage.textfile import (
    read_small_file, replace_file, sync_path, write_file,
)

__all__ = ["NewRecords", "Preparation"]

#: Smaller fragments are merged with their neighbour; larger ones become segments of their own.
SMALL_BYTES: Final = 32 << 20
_INDEX_BYTES: Final = 10 << 20  # segment.index.bytes
_OFFSET_DELTA_MAX: Final = 2**31 - 1
_HEAD: Final = np.dtype([("base_offset", ">i8"), ("length", ">i4"), ("epoch", ">i4")])
_LENGTH_LESS: Final = 12


@dataclass(frozen=True, slots=True)
class NewRecords:
    """The first offset and end offset of a log's new records."""

    first_offset: int
    end_offset: int


@dataclass(slots=True)
class _Segment:
    """A segment under construction in the file `path`."""

    base_offset: int
    path: str
    size: int
    facts: list[npt.NDArray[np.void]] = field(default_factory=list)


class Preparation:
    """The files of one commit. They belong to the job and are deleted with it."""

    def __init__(self, job: Job, segment_bytes: int, index_interval_bytes: int) -> None:
        self._job, self._data_dir = job, job.data_dir
        self._segment_bytes, self._interval = segment_bytes, index_interval_bytes
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._count = 0
        self._directories = {job.data_dir}
        #: The renames that publish the commit, in order.
        self.moves: list[Move] = []

    def _hidden(self) -> str:
        self._count += 1
        return self._job.path("prepared", f"-{self._count}")

    def _move(self, source: str, target: str) -> None:
        self.moves.append((os.path.relpath(source, self._data_dir), target))

    def add_file(self, target: str, content: bytes) -> None:
        """Prepares a small file for `target`, relative to the data directory."""
        hidden = self._hidden()
        write_file(hidden, content, model=os.path.join(self._data_dir, target))
        self._move(hidden, target)

    def sync(self) -> None:
        """Makes the names of all prepared files durable; their contents already are."""
        for each in sorted(self._directories):
            sync_path(each)

    # ---- logs

    def add_log(self, key: TopicPartition, fragments: Sequence[Fragment]) -> NewRecords:
        """Prepares new records of one partition, which is created if it is missing."""
        place = os.path.join(self._data_dir, str(key))
        if os.path.isdir(place):
            return self._extend(key, place, fragments)
        if os.path.lexists(place):
            raise KafkaStorageError(errno.EEXIST, "a file, or a link to nothing, has the name of "
                                    "this partition: move it away, or mount its disk", place)
        return self._create(key, fragments)

    def _create(self, key: TopicPartition, fragments: Sequence[Fragment]) -> NewRecords:
        """Creates a partition under a deleted partition's name, so a broker would delete it."""
        # Long topics are truncated, perhaps to the same name: the number tells them apart.
        self._count += 1
        numbered = TopicPartition(f"{self._count}.{key.topic}", key.partition)
        name = delete_dir_name(numbered, self._job.id)
        place = os.path.join(self._data_dir, name)
        make_directories(place)
        self._directories.add(place)
        segments, end = self._segments(None, 0, 0, fragments)
        if not segments:
            for file in (log_name(0), index_name(0), time_index_name(0)):
                write_file(os.path.join(place, file), b"")
        for segment in segments:
            offsets, times = self._indexes(key, segment)
            base = segment.base_offset
            write_file(os.path.join(place, index_name(base)), offsets)
            write_file(os.path.join(place, time_index_name(base)), times)
            os.rename(segment.path, os.path.join(place, log_name(base)))
        if end:
            for offset in {*(one.base_offset for one in segments), end} - {0}:
                write_file(os.path.join(place, snapshot_name(offset)), encode_snapshot([]))
            epochs = read_leader_epochs(os.path.join(place, LEADER_EPOCH_CHECKPOINT))
            epochs.assign(0, 0)
            path = os.path.join(place, LEADER_EPOCH_CHECKPOINT)
            replace_file(path, encode_leader_epochs(epochs), temporary_name(path))
        # Whole or missing: a broker reads it before it deletes the directory, and would not start
        # with a part of it.
        write_partition_metadata(os.path.join(place, PARTITION_METADATA),
                                 self._topic_id(key.topic))
        self.moves.append((name, str(key)))
        return NewRecords(0, end)

    def _topic_id(self, topic: str) -> uuid.UUID:
        """The topic id from the topic's other partitions, or a new one."""
        known = self._topic_ids.get(topic)
        if known is None:
            for number in partitions_of(self._data_dir, topic):
                found = read_partition_metadata(os.path.join(
                    self._data_dir, f"{topic}-{number}", PARTITION_METADATA))
                if found is not None:
                    known = found.topic_id
                    break
            else:
                known = _random_topic_id()
            self._topic_ids[topic] = known
        return known

    def _extend(self, key: TopicPartition, place: str, fragments: Sequence[Fragment]
                ) -> NewRecords:
        # What would stop a rename is found now: after the commit point it stops every writer.
        if os.stat(place).st_dev != os.stat(self._data_dir).st_dev:
            raise KafkaStorageError(f"{place} is on another file system than {self._data_dir}: "
                                    "its files cannot be put in place in one step")
        if not os.access(place, os.W_OK | os.X_OK,
                         effective_ids=os.access in os.supports_effective_ids):
            raise KafkaStorageError(errno.EACCES, "this user may not put new files in the "
                                    "partition's directory: write as its owner", place)
        with PartitionLog.open(place) as log:
            # Else new records would get the offsets of damaged ones, where no reader finds them.
            if log.tail.status is not Status.END:
                raise self._damaged(place, f"what follows offset {log.log_end_offset - 1}")
            return self._extend_log(key, place, log, fragments)

    def _extend_log(self, key: TopicPartition, place: str, log: PartitionLog,
                    fragments: Sequence[Fragment]) -> NewRecords:
        first = log.log_end_offset
        epochs = read_leader_epochs(os.path.join(place, LEADER_EPOCH_CHECKPOINT))
        latest = epochs.latest
        segments, end = self._segments(self._last_segment(log, fragments), first,
                                       0 if latest is None else latest.epoch, fragments)
        snapshot = self._snapshot(place, log, first)
        for segment in segments:
            base = segment.base_offset
            offsets, times = self._indexes(key, segment)
            if base > first and snapshot is not None:
                self.add_file(os.path.join(str(key), snapshot_name(base)), snapshot)
            # For a reader between two renames: a log may extend beyond its indexes.
            is_new = base >= first
            if not is_new:
                self._move(segment.path, os.path.join(str(key), log_name(base)))
            self.add_file(os.path.join(str(key), index_name(base)), offsets)
            self.add_file(os.path.join(str(key), time_index_name(base)), times)
            if is_new:
                self._move(segment.path, os.path.join(str(key), log_name(base)))
        if latest is None:
            epochs.assign(0, first)
            self.add_file(os.path.join(str(key), LEADER_EPOCH_CHECKPOINT),
                          encode_leader_epochs(epochs))
        if snapshot is not None:
            self.add_file(os.path.join(str(key), snapshot_name(end)), snapshot)
            if first and not any(one.base_offset == first for one in segments) \
                    and first not in log.segments.base_offsets:
                self.moves.append((os.path.join(str(key), snapshot_name(first)), None))
        return NewRecords(first, end)

    @staticmethod
    def _snapshot(place: str, log: PartitionLog, end: int) -> bytes | None:
        """The producer states at the log's end; records without a producer do not change them.
        None if a broker would have to read the log to know them."""
        content = read_small_file(os.path.join(place, snapshot_name(end)), SNAPSHOT_BYTES_MAX)
        if content is not None:
            return content
        has_any = any(name.endswith(".snapshot") for name in os.listdir(place))
        return None if has_any else encode_snapshot([])

    def _last_segment(self, log: PartitionLog, fragments: Sequence[Fragment]) -> _Segment | None:
        """A copy of the last segment to append to, if new records go there."""
        if not len(log.segments) or not fragments:
            return None
        last = log.segments[len(log.segments) - 1]
        path = os.path.join(log.path, log_name(last.base_offset))
        descriptor, size = open_read(path)
        try:
            if not 0 < size <= SMALL_BYTES or fragments[0].size > SMALL_BYTES \
                    or size + fragments[0].size > self._segment_bytes:
                return None
            found = scan_file(descriptor, 0, size, check_crcs=False, strict=True)
            if found.position != size:
                raise self._damaged(path, f"what follows byte {found.position}")
            copy = self._hidden()
            target = create_file(copy, path)
            try:
                _copy(path, descriptor, target, size, 0)
            finally:
                os.close(target)
        finally:
            os.close(descriptor)
        return _Segment(last.base_offset, copy, size, [found.batches])

    def _damaged(self, path: str, what: str) -> KafkaStorageError:
        return KafkaStorageError(
            errno.EIO, f"{what} is no sound batch, though the log was closed: restore the "
            f"partition, or delete {CLEAN_SHUTDOWN_FILE} and run `seglog load --recover "
            f"{self._data_dir}`, which truncates it there", path)

    def _segments(self, last: _Segment | None, offset: int, epoch: int,
                  fragments: Sequence[Fragment]) -> tuple[list[_Segment], int]:
        """The fragments as segments from `offset` on; the first ones go to `last`."""
        segments = [] if last is None else [last]
        for fragment in fragments:
            path = os.path.join(self._data_dir, fragment.name)
            facts = read_facts(path, fragment)
            shift = offset - int(facts["base_offset"][0])
            facts["base_offset"] += shift
            facts["last_offset"] += shift
            end = int(facts["last_offset"][-1]) + 1
            _assign(path, fragment.size, facts, epoch)
            if segments and self._fits(segments[-1], fragment, end):
                segment = segments[-1]
                _append(segment.path, segment.size, path, fragment.size)
                facts["position"] += segment.size
                os.unlink(path)
            else:
                segment = _Segment(offset, path, 0)
                segments.append(segment)
            segment.size += fragment.size
            segment.facts.append(facts)
            offset = end
        for segment in segments:
            sync_path(segment.path)
        return segments, offset

    def _fits(self, segment: _Segment, fragment: Fragment, end: int) -> bool:
        return (fragment.size <= SMALL_BYTES
                and segment.size + fragment.size <= self._segment_bytes
                and end - 1 - segment.base_offset <= _OFFSET_DELTA_MAX)

    def _indexes(self, key: TopicPartition, segment: _Segment) -> tuple[bytes, bytes]:
        interval = self._interval
        while True:
            rebuild = IndexRebuild(segment.base_offset, interval_bytes=interval,
                                   index_bytes=_INDEX_BYTES)
            if all(rebuild.feed(np.ascontiguousarray(facts)) == len(facts)
                   for facts in segment.facts):
                rebuild.finish()
                return rebuild.offset_index, rebuild.time_index
            if rebuild.status != Status.INDEX_FULL:
                path = os.path.join(self._data_dir, str(key), log_name(segment.base_offset))
                raise KafkaStorageError(f"{path}: batches that no index takes (at byte "
                                        f"{rebuild.position})")
            interval = 2 * interval + 1024  # A broker rolls; here fewer entries are as good.


def _random_topic_id() -> uuid.UUID:
    """As Kafka's Uuid.randomUuid: never begins with a dash in its text form."""
    while (found := uuid.uuid4()).bytes[0] >> 2 == 0b111110:
        pass
    return found


def _assign(path: str, size: int, facts: npt.NDArray[np.void], epoch: int) -> None:
    """Writes base offsets and leader epochs into the batches; no checksum covers them (Kafka:
    DefaultRecordBatch). Truncates the file after the batches."""
    heads = np.empty(len(facts), _HEAD)
    heads["base_offset"], heads["epoch"] = facts["base_offset"], epoch
    heads["length"] = facts["size"] - _LENGTH_LESS
    content = memoryview(heads.tobytes())
    step = _HEAD.itemsize
    with storage_errors(path), contextlib.ExitStack() as stack:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        stack.callback(os.close, descriptor)
        os.ftruncate(descriptor, size)
        for number, position in enumerate(facts["position"].tolist()):
            write_all(descriptor, content[number * step:(number + 1) * step], position)


def _append(target: str, target_size: int, source: str, size: int) -> None:
    with contextlib.ExitStack() as stack:
        into = os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        stack.callback(os.close, into)
        out, _ = open_read(source)
        stack.callback(os.close, out)
        _copy(source, out, into, size, target_size)


def _copy(path: str, source: int, target: int, size: int, at: int) -> None:
    """Copies the first `size` bytes of the file `path` to position `at` of another."""
    position = 0
    while position < size:
        data = os.pread(source, min(size - position, 8 << 20), position)
        if not data:
            raise KafkaStorageError(f"{path}: the file became shorter while it was copied: "
                                    f"{position} of {size} bytes")
        write_all(target, data, at + position)
        position += len(data)
