"""What `seglog load --recover` and `compact` require of the file system before they change
anything, and a dry run before it says what would change."""

from __future__ import annotations

import errno
import os
from typing import Final

from seglog.errors import KafkaStorageError
from seglog.recovery.root import RootDirectory
from seglog.storage.checkpoint_files import CHECKPOINT_BYTES_MAX
from seglog.storage.paths import (
    CLEANER_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOCK_FILE, LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES, RECOVERY_POINT_CHECKPOINT,
)
from seglog.storage.textfile import read_beginning

__all__ = ["require_access", "require_quarantine", "require_readable"]

# The files at the top of a data directory that must be read. (A checkpoint is replaced, not written
# to. Without these checks one that cannot be read would count as empty and be lost.)
_READ_AT_START: Final = (
    META_PROPERTIES, RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT)


def require_quarantine(path: str) -> None:
    """Raises KafkaStorageError if no directory can be made at `path`, before a log is changed whose
    bytes it must keep."""
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        raise KafkaStorageError(errno.ENOTDIR, "this is no directory, and --quarantine needs one; "
                                "nothing was changed", path)
    if not os.access(path, os.W_OK | os.X_OK):
        raise KafkaStorageError(errno.EACCES, "this user may not write here, where --quarantine "
                                "keeps bytes; nothing was changed", path)


def require_access(root: RootDirectory, work: str = "the recovery") -> None:
    """Raises KafkaStorageError for the first directory or file that this user may not change, so
    that no `work` fails halfway, and for a file at the top that cannot be read."""
    if os.geteuid() != 0:  # root may change everything
        _require_permission(root, work)
    require_readable(root, work)


def require_readable(root: RootDirectory, work: str = "the recovery") -> None:
    """Raises KafkaStorageError for a file at the top that cannot be read. (A dry run that took it
    for empty would say something else than a recovery.)"""
    for name in _READ_AT_START:
        path = os.path.join(root.path, name)
        if os.path.isfile(path) and not os.access(path, os.R_OK):
            raise _no_access(path, work)
        try:
            read_beginning(path, CHECKPOINT_BYTES_MAX)
        except KafkaStorageError as error:
            raise KafkaStorageError(
                error.errno, f"{error.strerror}; nothing was changed: put a file that can be read "
                "in its place", path, position=error.position, code=error.code) from error


def _require_permission(root: RootDirectory, work: str) -> None:
    if not os.access(root.path, os.R_OK | os.W_OK | os.X_OK):
        raise _no_access(root.path, work)
    lock = os.path.join(root.path, LOCK_FILE)
    if os.path.isfile(lock) and not os.access(lock, os.R_OK | os.W_OK):
        raise _no_access(lock, work)
    for partition in root.partitions:
        path = os.path.join(root.path, partition.name)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise _no_access(path, work)
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False) and not os.access(
                        entry.path, os.R_OK | os.W_OK):
                    raise _no_access(entry.path, work)


def _no_access(path: str, work: str) -> KafkaStorageError:
    owner = os.stat(path).st_uid
    return KafkaStorageError(
        errno.EACCES, f"this user may not read and write it; run {work} as its owner (user "
        f"{owner}) or as root", path)
