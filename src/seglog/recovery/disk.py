"""Every change that a loader makes to a partition directory, as methods of a disk: RealDisk here,
and the overlay of a dry run in `seglog.recovery.overlay`.

The loader decides, the disk executes. Both disks get the same calls in the same order, so a dry run
and a real run agree by construction. Names are file names inside the partition directory. Every
failure of the file system is a KafkaStorageError with its number and the path; it never counts as
bad data.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from seglog._native.file import look, preallocate, set_size
from seglog.errors import KafkaStorageError, storage_errors
from seglog.model import EpochEntry
from seglog.recovery.overlay import OverlayDisk, file_size, read_up_to
from seglog.recovery.scans import Extent
from seglog.storage.epochs import encode_leader_epochs, write_leader_epochs
from seglog.storage.ownership import create_file, open_file
from seglog.storage.paths import LEADER_EPOCH_CHECKPOINT, FileState, temporary_name
from seglog.storage.textfile import sync_path

__all__ = ["Disk", "RealDisk"]

_COPY_BYTES = 1 << 20
_MISSING = None, None
# Both Kafka and seglog remove any file with this suffix at the next load.
_TEMPORARY = ".new" + FileState.DELETED.value


class Disk(Protocol):
    """The operations of a loader on a partition directory. Sizes and positions are bytes."""

    path: str

    def size(self, name: str) -> int | None:
        """The size of a regular file; None if there is none."""

    def look(self, read: Sequence[str], measure: Sequence[str] = ()) -> None:
        """Reads and measures these files in one call, because they will be used: the content of
        `read`, the sizes of `measure`.

        Until `forget` no other code may change them.
        """

    def known(self, name: str) -> bytes | None:
        """The content of a small file, if `look` has read it."""

    def forget(self) -> None:
        """Drops what `look` cached: the files may change from now on."""

    def extent(self, name: str) -> Extent:
        """The bytes of a log file."""

    def read(self, name: str, position: int, size: int) -> bytes:
        """Up to `size` bytes, fewer at the end of the file."""

    def create(self, name: str, size: int = 0) -> None:
        """Creates a file of zeros; an existing one keeps its bytes and gets the size."""

    def preallocate(self, name: str, size: int) -> None:
        """Creates a file of zeros with its blocks allocated, if the file system can do that."""

    def resize(self, name: str, size: int) -> None:
        """Truncates a file, or extends it with zeros."""

    def write(self, name: str, position: int, data: bytes) -> None:
        """Overwrites bytes in place; creates the file if it is missing."""

    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """Replaces a file's content atomically: a crash leaves the old or the new."""

    def copy(self, source: str, start: int, end: int, name: str) -> None:
        """Creates a file from bytes [start, end) of another."""

    def rename(self, name: str, new_name: str) -> bool:
        """Renames a file, replacing one with the new name. Returns whether it existed."""

    def delete(self, name: str) -> bool:
        """Deletes a file. Returns whether it existed."""

    def keep(self, name: str, start: int = 0) -> None:
        """Copies bytes from `start` on aside, before they are truncated or the file is removed."""

    def write_epochs(self, epochs: Iterable[EpochEntry]) -> None:
        """Replaces the leader epoch checkpoint."""

    def overlay(self) -> Disk:
        """An overlay that begins with the current content of this disk."""

    def sync(self, name: str) -> None:
        """Syncs a file."""

    def open_for_sync(self, names: Iterable[str]) -> list[tuple[int, str]]:
        """(descriptor, path) of those of these files that exist. The caller syncs and closes them,
        so that no other thread waits."""

    def sync_directory(self) -> None:
        """Syncs the directory, so that names are durable."""

    def modified_ms(self, name: str) -> int:
        """The modification time of the file (ms), 0 if it is missing."""

    def copy_times(self, source: str, name: str) -> None:
        """Gives a file the modification time of another."""


class RealDisk:
    """The directory itself. With `quarantine`, an existing or new directory, bytes of logs are
    copied there as `PARTITION_FILE@POSITION` before they are truncated or removed."""

    def __init__(self, path: str, *, quarantine: str | None = None) -> None:
        self.path, self.quarantine = os.fspath(path), quarantine
        self._seen: dict[str, tuple[int | None, bytes | None]] = {}

    @property
    def path(self) -> str:
        """The path of the directory. Setting it records that it was renamed."""
        return self._home

    @path.setter
    def path(self, path: str) -> None:
        self._home, self._prefix = path, os.path.join(path, "")

    def _path(self, name: str) -> str:
        return self._prefix + name

    @contextlib.contextmanager
    def _open(self, name: str, flags: int) -> Iterator[int]:
        path = self._prefix + name
        with storage_errors(path):
            if flags == os.O_RDONLY:
                fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            else:
                self._seen.pop(name, None)
                fd = open_file(path, flags)
            try:
                yield fd
            finally:
                os.close(fd)

    @contextlib.contextmanager
    def _open_new(self, name: str, model: str) -> Iterator[int]:
        """Opens a file that replaces an existing one; it gets owner, group and mode of `model`."""
        self._seen.pop(name, None)
        path = self._path(name)
        with storage_errors(path):
            fd = create_file(path, self._path(model))
        try:
            yield fd
        finally:
            os.close(fd)

    def size(self, name: str) -> int | None:
        """See Disk."""
        if name in self._seen:
            return self._seen[name][0]
        return file_size(self._prefix + name)

    def look(self, read: Sequence[str], measure: Sequence[str] = ()) -> None:
        """See Disk."""
        self._seen.update(look(self.path, read, measure))

    def known(self, name: str) -> bytes | None:
        """See Disk."""
        return self._seen.get(name, _MISSING)[1]

    def forget(self) -> None:
        """See Disk."""
        self._seen.clear()

    def extent(self, name: str) -> Extent:
        """See Disk."""
        return Extent(self._path(name), 0, self.size(name) or 0)

    def read(self, name: str, position: int, size: int) -> bytes:
        """See Disk."""
        content = self.known(name)
        if content is not None:
            return content[position:position + size]
        with self._open(name, os.O_RDONLY) as fd:
            return read_up_to(self._path(name), fd, position, size)

    def create(self, name: str, size: int = 0) -> None:
        """See Disk."""
        with self._open(name, os.O_RDWR) as fd:
            os.ftruncate(fd, size)

    def preallocate(self, name: str, size: int) -> None:
        """See Disk."""
        with self._open(name, os.O_RDWR) as fd:
            preallocate(fd, size, file=self._path(name))

    def resize(self, name: str, size: int) -> None:
        """See Disk."""
        self._seen.pop(name, None)
        set_size(self._prefix + name, size)

    def write(self, name: str, position: int, data: bytes) -> None:
        """See Disk."""
        with self._open(name, os.O_RDWR) as fd:
            _write(self._path(name), fd, position, data)

    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """See Disk. A file that has the content already is not written: after nearly every crash
        that holds for the indexes of all segments but the last."""
        if self.size(name) == len(data) and self.read(name, 0, len(data)) == data:
            if sync:
                self.sync(name)
            return
        temporary = name + _TEMPORARY
        try:
            with self._open_new(temporary, name) as fd:
                _write(self._path(temporary), fd, 0, data)
                if sync:
                    os.fsync(fd)
            self.rename(temporary, name)
        except KafkaStorageError:
            with contextlib.suppress(OSError):
                os.unlink(self._path(temporary))
            raise

    def copy(self, source: str, start: int, end: int, name: str) -> None:
        """See Disk."""
        with self._open(source, os.O_RDONLY) as from_fd, \
                self._open_new(name, source) as to_fd:
            _copy(self._path(source), from_fd, start, end, self._path(name), to_fd)

    def rename(self, name: str, new_name: str) -> bool:
        """See Disk."""
        self._seen.pop(name, None)
        self._seen.pop(new_name, None)
        with storage_errors(self._path(name)):
            try:
                os.replace(self._path(name), self._path(new_name))
            except FileNotFoundError:
                return False
            except IsADirectoryError as error:  # which it says of the file
                raise KafkaStorageError(error.errno, error.strerror,
                                        self._path(new_name)) from error
            return True

    def delete(self, name: str) -> bool:
        """See Disk."""
        self._seen.pop(name, None)
        with storage_errors(self._path(name)):
            try:
                os.unlink(self._path(name))
            except FileNotFoundError:
                return False
            return True

    def keep(self, name: str, start: int = 0) -> None:
        """See Disk."""
        end = self.size(name)
        if self.quarantine is None or end is None or start >= end:
            return
        with storage_errors(self.quarantine):
            os.makedirs(self.quarantine, exist_ok=True)
            target = _unused(self.quarantine, f"{os.path.basename(self.path)}_{name}@{start}")
            with self._open(name, os.O_RDONLY) as from_fd:
                to_fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                try:
                    _copy(self._path(name), from_fd, start, end, target, to_fd)
                    os.fsync(to_fd)
                finally:
                    os.close(to_fd)
            sync_path(self.quarantine)

    def write_epochs(self, epochs: Iterable[EpochEntry]) -> None:
        """See Disk."""
        name = LEADER_EPOCH_CHECKPOINT
        temporary, entries = temporary_name(name), list(epochs)
        if self._seen.get(temporary) == _MISSING and \
                self.known(name) == encode_leader_epochs(entries):
            return
        self._seen.pop(name, None)
        self._seen.pop(temporary, None)
        write_leader_epochs(self._path(name), entries)

    def overlay(self) -> Disk:
        """See Disk."""
        return OverlayDisk(self.path)

    def sync(self, name: str) -> None:
        """See Disk."""
        with self._open(name, os.O_RDONLY) as fd:
            os.fsync(fd)

    def open_for_sync(self, names: Iterable[str]) -> list[tuple[int, str]]:
        """See Disk."""
        found: list[tuple[int, str]] = []
        try:
            for name in names:
                path = self._path(name)
                with storage_errors(path), contextlib.suppress(FileNotFoundError):
                    found.append((os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), path))
        except KafkaStorageError:
            for fd, _ in found:
                os.close(fd)
            raise
        return found

    def sync_directory(self) -> None:
        """See Disk."""
        with storage_errors(self.path):
            sync_path(self.path)

    def modified_ms(self, name: str) -> int:
        """See Disk."""
        with storage_errors(self._path(name)):
            try:
                return os.lstat(self._path(name)).st_mtime_ns // 1_000_000
            except FileNotFoundError:
                return 0

    def copy_times(self, source: str, name: str) -> None:
        """See Disk."""
        with storage_errors(self._path(source)):
            mtime = self.modified_ms(source) * 1_000_000
            os.utime(self._path(name), ns=(mtime, mtime), follow_symlinks=False)


def _write(path: str, fd: int, position: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        with storage_errors(path, position):
            written = os.pwrite(fd, view, position)
        position, view = position + written, view[written:]


def _copy(from_path: str, from_fd: int, start: int, end: int, to_path: str, to_fd: int) -> None:
    position = start
    while position < end:
        part = read_up_to(from_path, from_fd, position, min(end - position, _COPY_BYTES))
        if not part:
            raise OSError(errno.EIO, "the file ends before it should")
        _write(to_path, to_fd, position - start, part)
        position += len(part)


def _unused(directory: str, name: str) -> str:
    """An unused name, so that a second recovery never overwrites what a first one kept."""
    path, number = os.path.join(directory, name), 1
    while os.path.lexists(path):
        path, number = os.path.join(directory, f"{name}.{number}"), number + 1
    return path
