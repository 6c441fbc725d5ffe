"""Small files: read whole, within bounds, and replaced atomically."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from seglog._native import file as native_file
from seglog.arguments import given_path
from seglog.errors import KafkaStorageError, MalformedCheckpointError
from seglog.storage.ownership import create_file

__all__ = ["read_beginning", "read_small_file", "remove_path", "replace_file", "sync_names",
           "sync_path", "too_large", "whole_content", "write_file"]

_Path = str | os.PathLike[str]


def read_small_file(path: _Path, bytes_max: int) -> bytes | None:
    """The content of a regular file, None if there is none.

    Raises KafkaStorageError if it is not a regular file or cannot be read, and
    MalformedCheckpointError (`checkpoint_too_large`) above `bytes_max`.
    """
    return whole_content(read_beginning(path, bytes_max), path, bytes_max)


def whole_content(beginning: tuple[bytes, int] | None, path: _Path, bytes_max: int
                  ) -> bytes | None:
    """The content of a file from its beginning and size; None if there is none. Raises
    MalformedCheckpointError (`checkpoint_too_large`) above `bytes_max`."""
    if beginning is None:
        return None
    content, size = beginning
    if size > bytes_max:
        raise too_large(path, size, bytes_max)
    return content


def read_beginning(path: _Path, bytes_max: int) -> tuple[bytes, int] | None:
    """The first `bytes_max` bytes of a regular file, and the size of the whole; None if there is
    none. Raises KafkaStorageError as `read_small_file` does."""
    try:
        descriptor, size = native_file.open_read(given_path(path))
    except KafkaStorageError as error:
        if error.code == "file_missing":
            return None
        raise
    try:
        return native_file.read_at(descriptor, min(size, bytes_max), 0, file=path), size
    finally:
        os.close(descriptor)


def too_large(path: _Path, size: int, bytes_max: int) -> MalformedCheckpointError:
    """The error for a file of more than `bytes_max` bytes."""
    return MalformedCheckpointError(
        f"{os.fspath(path)}: {size} bytes, at most {bytes_max} are read", file=os.fspath(path),
        expected=bytes_max, found=size, code="checkpoint_too_large")


def replace_file(path: _Path, content: bytes, temporary: _Path) -> None:
    """Writes `temporary`, syncs it, renames it onto `path` and syncs the directory.

    After a crash `path` holds the old content or the new, never a part. An OSError of any step
    becomes KafkaStorageError with its number; the old file stays in place.
    """
    try:
        write_file(temporary, content, model=path)
        os.replace(temporary, path)
        sync_path(Path(path).parent)
    except OSError as error:
        raise KafkaStorageError(
            error.errno, f"Error while writing to checkpoint file {os.path.abspath(path)}: "
            f"{error.strerror}", os.fspath(path)) from error


def write_file(path: _Path, content: bytes, *, model: _Path | None = None) -> None:
    """Creates or replaces a file and syncs it, but not its directory. Raises OSError; a crash may
    leave a part.

    The file gets the owner and mode of `model` if that exists.
    """
    with os.fdopen(create_file(path, model), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def remove_path(path: _Path) -> None:
    """Removes a file, a link or an empty directory, as Java's Files.delete. OSError."""
    (os.rmdir if stat.S_ISDIR(os.lstat(path).st_mode) else os.unlink)(path)


def sync_path(path: _Path) -> None:
    """Makes a file durable, or the names in a directory. OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_names(paths: Iterable[str]) -> None:
    """Makes the names of new files or directories durable. OSError."""
    for path in paths:
        sync_path(os.path.dirname(path))
