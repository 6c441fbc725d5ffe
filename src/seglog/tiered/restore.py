"""Restores a log directory from a partition's segments in a tier."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

from seglog.arguments import directory_path
from seglog.errors import KafkaStorageError, storage_errors
from seglog.objects.store import Block
from seglog.storage.log_store import LogFile
from seglog.storage.ownership import make_directories, open_file
from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import (
    LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, FileKind, delete_dir_name, file_name,
    snapshot_name,
)
from seglog.storage.textfile import sync_names, sync_path
from seglog.tiered.remote_storage import IndexType
from seglog.tiered.tiered_files import INDEXES, TieredFiles

__all__ = ["restore"]

_COPY_BYTES = 4 << 20
_GAPS = ("remote_gap", "object_missing")


def restore(log: PartitionLog, target: str | os.PathLike[str]) -> int:
    """Writes the tier's segments of a log into the directory `target`, as a broker would have them:
    logs, indexes, the last producer snapshot, leader epochs, partition.metadata. Returns the number
    of segments.

    `log` is one of `Bucket.log`, or of `PartitionLog.open(path, remote=...)`, whose local segments
    are not copied. Everything is durable on return, and belongs to the owner of the directory above
    if root restores it. A segment that the next one overlaps is
    truncated where that one begins, and gets no indexes.

    The files are written into a directory whose name marks it as deleted, beside the target, or in
    a target that is there; they are moved when all are complete. A restore that is killed leaves
    that directory, which a broker's start deletes.

    Raises KafkaStorageError for a target that is not empty or cannot be written, a gap between
    segments, or an object that cannot be read; then what was written is deleted again.
    """
    root = Path(directory_path("target", target))
    where = log.where
    assert isinstance(where, TieredFiles)
    with storage_errors(str(root)):
        is_new = not root.exists()
        if not is_new and os.listdir(root):
            raise KafkaStorageError(errno.ENOTEMPTY, "the directory is not empty", str(root))
        unfinished = (root.parent if is_new else root) / delete_dir_name(
            where.topic_partition, uuid4().hex)
        sync_names(make_directories(unfinished))
        try:
            count = _restore(log, where, root, unfinished)
            sync_path(unfinished)
            if is_new:
                unfinished.rename(root)
            else:
                for path in unfinished.iterdir():
                    path.rename(root / path.name)
                unfinished.rmdir()
                sync_path(root)
            sync_path(root.parent)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return count


def _restore(log: PartitionLog, where: TieredFiles, root: Path, unfinished: Path) -> int:
    def write(name: str, pieces: Iterable[Block]) -> None:
        with storage_errors(str(root / name)), os.fdopen(
                open_file(unfinished / name, os.O_WRONLY | os.O_EXCL), "wb") as out:
            out.writelines(map(memoryview, pieces))
            out.flush()
            os.fsync(out.fileno())

    gap = next((one for one in where.findings if one.code in _GAPS), None)
    if gap is not None:
        raise KafkaStorageError(errno.ENODATA, f"not restored: {gap.message}", str(root))
    count = 0
    layout, tree = where.bucket.layout, where.bucket.tree
    last = None
    for remote, segment in where.pieces_of(log.segments):
        with segment.opened() as source:
            write(file_name(segment.base_offset, FileKind.LOG), _pieces(source, segment.size))
        if segment.size == remote.size:
            for kind, index in INDEXES:
                content = layout.index(tree, remote, index)
                if content is not None:
                    write(file_name(segment.base_offset, kind), [content])
        count, last = count + 1, remote
    if last is not None and last.end_offset is not None:
        content = layout.index(tree, last, IndexType.PRODUCER_SNAPSHOT)
        if content is not None:
            write(snapshot_name(last.end_offset + 1), [content])
    for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
        found = where.beginning(os.path.join(where.directory, name), 1 << 30)
        if found is not None:
            write(name, [found[0]])
    return count


def _pieces(source: LogFile, size: int) -> Iterator[bytes]:
    for position in range(0, size, _COPY_BYTES):
        yield source.read(min(_COPY_BYTES, size - position), position)
