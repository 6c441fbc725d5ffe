"""One partition over a local directory and a remote tier, as the files of one directory."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from seglog._native.index import read_aborted
from seglog._native.scan import PartitionListing, list_names
from seglog._native.status import Status, status_error
from seglog.errors import KafkaStorageError, storage_errors
from seglog.forks import SurvivesFork
from seglog.model import EpochEntry, TopicPartition
from seglog.objects.store import Block, ObjectVersion
from seglog.storage.checkpoint_files import CHECKPOINT_BYTES_MAX
from seglog.storage.epochs import encode_leader_epochs, read_leader_epochs
from seglog.storage.log_store import (
    LOCAL, Files, IndexView, ListedDirectory, LogFile, Stamp, small_file,
)
from seglog.storage.handles import HandleCache
from seglog.storage.meta import META_BYTES_MAX, encode_partition_metadata, read_partition_metadata
from seglog.storage.paths import (
    LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, FileKind, FileState, file_name, parse_file_name,
    snapshot_name,
)
from seglog.storage.remote import RemoteLog
from seglog.storage.segment import LogSegment, SegmentPaths
from seglog.tiered.chunked_log import ChunkedLog
from seglog.tiered.known_facts import KnownFacts
from seglog.tiered.partition_catalog import Catalog, PartitionCatalog
from seglog.tiered.remote_segment import RemoteSegment
from seglog.tiered.remote_storage import IndexType
from seglog.tiered.segment_selection import Piece, TierFinding

if TYPE_CHECKING:
    from seglog.tiered.bucket import Bucket

__all__ = ["INDEXES", "TieredFiles"]

_HANDLES: Final = 8
_LOOKS: Final = 4
#: Kafka's default of segment.index.bytes, rounded up.
_INDEX_KEPT_BYTES_MAX: Final = 16 << 20
_OFFSET_MAX: Final = (1 << 63) - 1
#: The magic byte of a batch (DefaultRecordBatch.MAGIC_OFFSET), in every format.
_MAGIC_AT: Final = 16
_HEAD_BYTES: Final = _MAGIC_AT + 1
#: The indexes of a segment, each by its name here and in a tier.
INDEXES: Final = ((FileKind.INDEX, IndexType.OFFSET), (FileKind.TIME_INDEX, IndexType.TIMESTAMP),
                  (FileKind.TXN_INDEX, IndexType.TRANSACTION))


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a segment in the tier; for a gap `cause` says why there is none."""

    segment: RemoteSegment | None
    kind: IndexType | None = None
    cause: str = ""


class TieredFiles(SurvivesFork):
    """See Files: the local files, and before them the segments of the tier.

    Each segment of the tier appears under the name that its first offset would have in the local
    directory; errors show its path or URL in the tier. A gap between segments is a segment that
    cannot be opened. `local` is None for a partition that is read from the tier alone; `directory`
    is then the partition's path in the tier.
    """

    def __init__(self, bucket: Bucket, topic_partition: TopicPartition, topic_id: bytes | None,
                 directory: str, local: Files | None) -> None:
        self.bucket, self.topic_partition, self.topic_id = bucket, topic_partition, topic_id
        self.directory, self._local = directory, local
        #: The local files as long as their directory is the one that was listed.
        self._listed = local
        self.range_factor = bucket.tree.files.range_factor
        self._table: dict[str, _File] = {}
        self._moved: dict[str, str] = {}
        self._names: dict[tuple[int, FileKind], str] = {}
        self._snapshots: dict[str, RemoteSegment] = {}
        self._lineage: tuple[EpochEntry, ...] = ()
        #: Those of the last listing: gaps, missing or superfluous objects.
        self.findings: tuple[TierFinding, ...] = ()
        self._handles, self._known = HandleCache(_HANDLES), KnownFacts()
        # Where the tier ends is looked up once by the listing and once by the log's reader.
        self._newest_index: tuple[object, Block, int] | None = None
        self._checked: set[tuple[str, ObjectVersion | None]] = set()
        self._open: WeakValueDictionary[tuple[str, ObjectVersion | None], RemoteLog | ChunkedLog] \
            = WeakValueDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickling lists the tier again."""
        return (type(self), (self.bucket, self.topic_partition, self.topic_id, self.directory,
                             self._local))

    def __setstate__(self, state: tuple[dict[str, _File]]) -> None:
        """Restores the state that `for_ranges` passed on."""
        self._table, = state

    def __repr__(self) -> str:
        return f"TieredFiles({self.bucket.tree.root!r}, {self.topic_partition})"

    # ---- the directory

    def listing(self, path: str) -> tuple[PartitionListing, Mapping[str, ObjectVersion]]:
        """See Files: lists the tier, and selects the needed segments."""
        local_names: list[str] = []
        versions: dict[str, ObjectVersion] = {}
        if self._local is not None:
            self._listed = ListedDirectory(path) if self._local is LOCAL else self._local
            with storage_errors(path):  # of a partition that was moved or deleted
                if self._local is LOCAL:
                    local_names = [name for name, is_directory in LOCAL.entries(path)
                                   if not is_directory]
                else:
                    versions.update(self._local.listing(path)[1])
                    local_names = list(versions)
        catalog, skipped = self._look(path, _first_base(local_names))
        self._lineage, self.findings = catalog.lineage, (*skipped, *catalog.findings)
        names = self._take(catalog, path, local_names, versions)
        return list_names(path, names), versions

    def _look(self, path: str, until: int | None) -> tuple[Catalog, tuple[TierFinding, ...]]:
        """The tier below offset `until`, and the skipped records of the metadata topic."""
        bucket = self.bucket
        topic_id = self.topic_id or self._local_topic_id(path)
        found = bucket.find(self.topic_partition, topic_id)
        topic_id = topic_id or (None if found is None else found.topic_id)
        announced, skipped = bucket.announced(self.topic_partition, topic_id)
        for looks_left in reversed(range(_LOOKS)):
            catalog = PartitionCatalog(bucket.tree, bucket.layout, self._reader, self._known).look(
                found, announced, self._local_epochs(path), until)
            if announced is None or not looks_left or all(
                    finding.code != "object_missing" for finding in catalog.findings):
                break
            # A broker announces a deletion before it deletes the objects.
            before, (announced, skipped) = announced, bucket.announced(
                self.topic_partition, topic_id)
            if announced == before:
                break
        self.topic_id = topic_id
        return catalog, skipped

    def _take(self, catalog: Catalog, path: str, local_names: list[str],
              versions: dict[str, ObjectVersion]) -> list[str]:
        names = list(local_names)
        pieces = catalog.pieces
        first_local = _first_base(local_names)
        table: dict[str, _File] = {}
        self._names, self._snapshots = {}, {}
        if self._moved:
            here = set(local_names)
            self._moved = {file: place for file, place in self._moved.items()
                           if os.path.basename(file) not in here}
        ends = [*(piece.start_offset for piece in pieces[1:]), first_local]
        for row, piece in enumerate(pieces):
            base, following = piece.start_offset, ends[row]
            if piece.segment is None:
                names += self._gap(piece, path, table, versions)
                continue
            segment = piece.segment
            log = self._enter(segment, table)
            limit = piece.end_offset + 1
            if following is not None:
                limit = min(limit, following)
            versions[os.path.basename(log)] = self._version(segment, limit, table)
            names.append(file_name(base, FileKind.LOG))
            self._names[base, FileKind.LOG] = log
            for kind, index in INDEXES:
                if self.bucket.layout.has_index(segment, index):
                    names.append(file_name(base, kind))
                    self._names[base, kind] = f"{log}#{index.value}"
            if self.bucket.layout.has_index(segment, IndexType.PRODUCER_SNAPSHOT):
                snapshot = snapshot_name(piece.end_offset + 1)
                if snapshot not in local_names and piece.end_offset == segment.end_offset:
                    names.append(snapshot)
                    self._snapshots[snapshot] = segment
        self._table.update(table)
        return names

    def _gap(self, piece: Piece, path: str, table: dict[str, _File],
             versions: dict[str, ObjectVersion]) -> list[str]:
        """Adds a segment that cannot be opened. It gets an index, because without one readers would
        assume that Kafka rebuilds its state from there on."""
        log = os.path.join(path, file_name(piece.start_offset, FileKind.LOG))
        table[log] = table[f"{log}#{IndexType.OFFSET.value}"] = _File(None, cause=piece.cause)
        versions[os.path.basename(log)] = ObjectVersion(1)
        self._names[piece.start_offset, FileKind.LOG] = log
        self._names[piece.start_offset, FileKind.INDEX] = f"{log}#{IndexType.OFFSET.value}"
        return [file_name(piece.start_offset, FileKind.LOG),
                file_name(piece.start_offset, FileKind.INDEX)]

    def _enter(self, segment: RemoteSegment, table: dict[str, _File]) -> str:
        log = self.bucket.layout.log_path(self.bucket.tree, segment)
        table[log] = _File(segment)
        for _, index in INDEXES:
            table[f"{log}#{index.value}"] = _File(segment, index)
        return log

    def _version(self, segment: RemoteSegment, limit: int, table: dict[str, _File]
                 ) -> ObjectVersion:
        """The size of a log up to the offset where the next segment begins."""
        size = segment.size or 0
        if segment.end_offset is not None and limit <= segment.end_offset:
            self._table.update(table)
            batch = self._reader(segment).translate_offset(limit)
            if batch is not None:
                size = batch.position if batch.base_offset >= limit else \
                    batch.position + batch.size
        return ObjectVersion(size)

    def _reader(self, segment: RemoteSegment) -> LogSegment:
        log = self._enter(segment, self._table)
        layout = self.bucket.layout
        size = segment.size
        if size is None:
            size = layout.described(self.bucket.tree, segment).size or 0
        return LogSegment(segment.start_offset, SegmentPaths(
            log, f"{log}#{IndexType.OFFSET.value}"
            if layout.has_index(segment, IndexType.OFFSET) else None,
            version=ObjectVersion(size)), self._handles, self._handles.new_owner(), where=self)

    def names(self) -> Mapping[tuple[int, FileKind], str]:
        """See Files."""
        return self._names

    def for_ranges(self, files: set[str]) -> TieredFiles:
        """The same place for a process that opens only these logs, and lists nothing."""
        other = _Carried(self.bucket, self.topic_partition, self.topic_id, self.directory,
                         self._local)
        other._table = {file: found for file in files
                        if (found := self._table.get(file)) is not None}
        return other

    def pieces_of(self, segments: Iterable[LogSegment]
                  ) -> Iterator[tuple[RemoteSegment, LogSegment]]:
        """The segments of a log that are in the tier, each with its remote segment."""
        for segment in segments:
            found = self._table.get(segment.files.log)
            if found is not None and found.segment is not None:
                yield found.segment, segment

    # ---- small files

    def _local_topic_id(self, path: str) -> bytes | None:
        if self._local is None:
            return None
        file = os.path.join(path, PARTITION_METADATA)
        found = self._local.beginning(file, META_BYTES_MAX)
        metadata = None if found is None else read_partition_metadata(file, found[0])
        return None if metadata is None else metadata.topic_id.bytes

    def _local_epochs(self, path: str) -> list[EpochEntry]:
        if self._local is None:
            return []
        file = os.path.join(path, LEADER_EPOCH_CHECKPOINT)
        return list(read_leader_epochs(
            file, small_file(self._local, file, CHECKPOINT_BYTES_MAX) or b""))

    def entries(self, path: str) -> list[tuple[str, bool]]:
        """See Files: the entries of the local directory, or none."""
        return [] if self._local is None else self._local.entries(path)

    def stamp(self, directory: str, file: str | None) -> Stamp:
        """See Files. A segment that leaves the local directory is in the tier by then."""
        if self._local is not None:
            return self._local.stamp(directory, None if file in self._table else file)
        found = self.bucket.find(self.topic_partition, self.topic_id)
        listed = {} if found is None else self.bucket.tree.list(found.directory)[0]
        return Stamp(tuple(sorted(listed.items())), None)

    def state(self, path: str) -> Hashable | None:
        """See Files."""
        return None if self._local is None else self._local.state(path)

    def beginning(self, path: str, bytes_max: int) -> tuple[bytes, int] | None:
        """See Files. From the tier alone, the checkpoints are computed from its content."""
        found = None if self._local is None else self._local.beginning(path, bytes_max)
        if found is not None:
            return found
        name = os.path.basename(path)
        content: bytes | None = None
        if name in self._snapshots:
            block = self.bucket.layout.index(self.bucket.tree, self._snapshots[name],
                                             IndexType.PRODUCER_SNAPSHOT)
            content = None if block is None else bytes(memoryview(block))
        elif name == LEADER_EPOCH_CHECKPOINT and self._lineage:
            content = encode_leader_epochs(self._lineage)
        elif name == PARTITION_METADATA and self._local is None and self.topic_id is not None:
            content = encode_partition_metadata(uuid.UUID(bytes=self.topic_id))
        return None if content is None else (content[:bytes_max], len(content))

    # ---- segments

    def open_log(self, path: str, version: ObjectVersion | None) -> LogFile:
        """See Files. A local segment that was deleted since the listing is read from the tier: a
        broker copies a segment before it deletes it, byte for byte."""
        path = self._moved.get(path, path)
        found = self._table.get(path)
        if found is None:
            files = self._listed or self.bucket.tree.files
            try:
                return files.open_log(path, version)
            except KafkaStorageError as error:
                moved = self._find_moved(path) if error.errno == errno.ENOENT else None
                if moved is None:
                    raise
            return self.open_log(moved, None)
        if found.segment is None:
            raise _no_segment(path, found.cause)
        return self._open_remote(path, found.segment)

    def _open_remote(self, path: str, segment: RemoteSegment) -> LogFile:
        """A segment's log, whose first batch is checked when it is read. Whoever opens it again
        while it is open gets the same one, with the blocks that it keeps."""
        stored = segment.objects.get("log")
        key = path, None if stored is None else stored.version
        log: LogFile | None = self._open.get(key)
        if log is None:
            log = self.bucket.layout.open_log(self.bucket.tree, segment)
        if isinstance(log, RemoteLog | ChunkedLog):
            log.check_start = partial(_check_first, segment, log.path)
            self._open[key] = log
        elif key not in self._checked:
            try:
                _check_first(segment, log.path,
                             memoryview(log.read(min(log.size, _HEAD_BYTES), 0)))
            except BaseException:
                log.close()
                raise
            self._checked.add(key)
        return log

    def _find_moved(self, path: str) -> str | None:
        """The file in the tier with the content of a local file that was deleted; None if its
        segment is not there."""
        parsed = parse_file_name(os.path.basename(path))
        kinds = {FileKind.LOG: None, **dict(INDEXES)}
        if self._local is None or parsed.offset is None or parsed.kind not in kinds:
            return None
        directory = os.path.dirname(path)
        segment = next((piece.segment for piece in self._look(directory, None)[0].pieces
                        if piece.segment is not None
                        and piece.start_offset == parsed.offset), None)
        if segment is None:
            return None
        log = self._enter(segment, self._table)
        for kind, index in kinds.items():
            self._moved[os.path.join(directory, file_name(parsed.offset, kind))] = \
                log if index is None else f"{log}#{index.value}"
        return self._moved.get(path)

    def _index_place(self, path: str) -> str:
        """The path of an index, in the tier if the local one was deleted since the listing."""
        path = self._moved.get(path, path)
        if path in self._table or self._local is not LOCAL or LOCAL.state(path) is not None:
            return path
        return self._find_moved(path) or path

    def index(self, view: type[IndexView], path: str, base_offset: int) -> IndexView:
        """See Files."""
        path = self._index_place(path)
        if path in self._table or self._local is None:
            return view(path, base_offset, fetch=partial(self._index, path))
        return self._local.index(view, path, base_offset)

    def aborted(self, path: str) -> npt.NDArray[np.void]:
        """See Files. A missing one in the tier is empty (KIP-405)."""
        path = self._moved.get(path, path)
        if path in self._table or self._listed is None:
            return read_aborted(path, self._index(path))
        try:
            return self._listed.aborted(path)
        except KafkaStorageError as error:
            moved = self._find_moved(path) if error.errno == errno.ENOENT else None
            if moved is None:
                raise
        return read_aborted(moved, self._index(moved))

    def _index(self, path: str) -> Block:
        found = self._table.get(path)
        if found is None or found.segment is None or found.kind is None:
            raise _no_segment(path, "" if found is None else found.cause)
        stored, base = (path, found.segment.objects), found.segment.start_offset
        newest = self._newest_index
        if newest is not None and newest[0] == stored:
            return newest[1]
        content = self.bucket.layout.index(self.bucket.tree, found.segment, found.kind)
        if content is None and found.kind is IndexType.TRANSACTION and \
                self.bucket.layout.has_index(found.segment, found.kind):
            raise status_error(Status.FILE_MISSING, file=path)  # retention has deleted it since
        block: Block = b"" if content is None else content
        if found.kind is IndexType.OFFSET and len(block) <= _INDEX_KEPT_BYTES_MAX:
            with self._lock:
                if self._newest_index is None or base >= self._newest_index[2]:
                    self._newest_index = stored, block, base
        return block


class _Carried(TieredFiles):
    """Opens logs in another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with the table of those logs."""
        return (_Carried, (self.bucket, self.topic_partition, self.topic_id, self.directory,
                           self._local), (self._table,))


def _first_base(names: list[str]) -> int | None:
    """The lowest base offset of the segments in a listing."""
    parsed = [parse_file_name(name) for name in names]
    return min((one.offset for one in parsed if one.kind is FileKind.LOG and one.canonical
                and one.state is FileState.LIVE and one.offset is not None and one.offset >= 0),
               default=None)


def _check_first(segment: RemoteSegment, path: str, block: memoryview) -> None:
    """Raises KafkaStorageError for a log whose first batch is not in the segment: it was swapped
    for another's. No index and no CRC would show that."""
    if len(block) < _HEAD_BYTES:
        return
    head = bytes(block[:_HEAD_BYTES])
    first = int.from_bytes(head[:8], "big", signed=True)
    start, end = segment.start_offset, segment.end_offset
    if segment.is_end_scanned or end is None:
        end = start if head[_MAGIC_AT] == 2 else _OFFSET_MAX
    if not start <= first <= end:
        raise KafkaStorageError(
            errno.EIO, f"the first batch has offset {first}, the segment has {start} to {end}: "
            "these are the bytes of another segment (at byte 0)", path, position=0, expected=start,
            found=first, code="offset_mismatch")


def _no_segment(path: str, cause: str) -> KafkaStorageError:
    return KafkaStorageError(errno.ENODATA, cause or "no such segment in the tier", path,
                             position=0, code="remote_gap")
