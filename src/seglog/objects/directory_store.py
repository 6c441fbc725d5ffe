"""A local directory as a store: of tiered storage on a file system, and what tests hold the others
against."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seglog.objects.store import Block, ObjectInfo, ObjectVersion, StoreError

__all__ = ["DirectoryStore", "make_durable_directories"]

_MISSING = (FileNotFoundError, NotADirectoryError)


class DirectoryStore:
    """The files below `root`. The entity tag is the modification time and inode."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.fspath(root)

    def list(self, prefix: str) -> tuple[list[ObjectInfo], list[str]]:
        """See ObjectStore."""
        start = f"{prefix}/" if prefix else ""
        objects, prefixes = [], []
        with (_store_errors(), suppress(*_MISSING),
              os.scandir(os.path.join(self._root, prefix)) as entries):
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir():
                    prefixes.append(start + entry.name)
                elif entry.is_file():
                    with suppress(FileNotFoundError):  # deleted meanwhile
                        objects.append(ObjectInfo(start + entry.name, _version(entry.stat())))
        return objects, prefixes

    def size(self, key: str) -> ObjectVersion:
        """See ObjectStore."""
        with _store_errors():
            return _object_version(os.stat(os.path.join(self._root, key)))

    def read(self, key: str, start: int, end: int) -> tuple[Block, ObjectVersion]:
        """See ObjectStore."""
        with (_store_errors(),
              open(os.path.join(self._root, key), "rb", opener=_opened) as stream):
            version = _object_version(os.fstat(stream.fileno()))
            return os.pread(stream.fileno(), end - start, start), version

    def write(self, key: str, content: bytes | Path) -> None:
        """See ObjectStore: durable when it returns, by way of a hidden file beside it."""
        path = os.path.join(self._root, key)
        directory = os.path.dirname(path)
        part = os.path.join(directory, f".{os.path.basename(path)}.{os.getpid()}.part")
        with _store_errors():
            make_durable_directories(directory)
            try:
                if isinstance(content, Path):
                    shutil.copyfile(content, part)  # in the kernel, where it can
                with open(part, "ab") as stream:
                    if isinstance(content, bytes):
                        stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())
                os.replace(part, path)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(part)
                raise
            _sync_directory(directory)

    def delete(self, key: str) -> None:
        """See ObjectStore: durable when it returns. The directory stays."""
        path = os.path.join(self._root, key)
        with _store_errors(), suppress(*_MISSING):
            os.unlink(path)
            _sync_directory(os.path.dirname(path))

    def sweep(self, prefix: str) -> None:
        """See ObjectStore."""
        directory, name = os.path.split(os.path.join(self._root, prefix))
        with _store_errors(), suppress(*_MISSING):
            with os.scandir(directory) as entries:
                parts = [entry.path for entry in entries
                         if entry.name.startswith(f".{name}") and entry.name.endswith(".part")]
            for path in parts:
                with suppress(FileNotFoundError):
                    os.unlink(path)


def make_durable_directories(path: str) -> None:
    """Creates a directory and its parents, durably."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path) or os.curdir
    for each in reversed(missing):
        try:
            os.mkdir(each)
        except FileExistsError:  # another thread has created it
            if not os.path.isdir(each):
                raise
        _sync_directory(os.path.dirname(each) or os.curdir)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _opened(path: str, flags: int) -> int:
    """Opens without waiting for the writer of a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _object_version(status: os.stat_result) -> ObjectVersion:
    """Raises StoreError for anything but a file: a listing has no object there either."""
    if not stat.S_ISREG(status.st_mode):
        raise StoreError("not a file", is_missing=True)
    return _version(status)


def _version(status: os.stat_result) -> ObjectVersion:
    return ObjectVersion(status.st_size, f"{status.st_mtime_ns:x}-{status.st_ino:x}",
                         status.st_mtime_ns // 1_000_000)


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(error.strerror or "",
                         is_missing=isinstance(error, FileNotFoundError)) from None
