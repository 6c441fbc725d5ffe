"""The journal of a commit: its renames are all made, or none.

A commit first prepares its files under hidden names. Then the journal, a list of renames, appears
in a directory at the top of the data directory: this is the commit point. Renames need no disk
space and can be repeated, so the next process that opens the data directory can finish them. Until
then a broker refuses to start (`UNFINISHED_COMMIT`) and never sees half a commit.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Sequence
from typing import Final

from seglog.errors import KafkaStorageError
from seglog.storage.paths import UNFINISHED_COMMIT
from seglog.storage.textfile import read_small_file, sync_directory, write_file

__all__ = ["Move", "commit_moves", "finish_commit"]

#: Source and target, both relative to the data directory; target None deletes the source.
Move = tuple[str, str | None]

_JOURNAL: Final = "journal"
_VERSION: Final = 1
_JOURNAL_BYTES_MAX: Final = 1 << 30


def commit_moves(data_dir: str, prepared: str, moves: Sequence[Move]) -> None:
    """Makes all renames. After an OSError none is made; after a KafkaStorageError the next process
    that opens the data directory makes the rest.

    All sources and their directories must be durable. `prepared` is the journal's hidden name
    before the commit point. The caller holds the lock of the data directory.
    """
    journal = os.path.join(data_dir, prepared)
    write_file(journal, json.dumps({"version": _VERSION, "moves": moves}).encode())
    directory = os.path.join(data_dir, UNFINISHED_COMMIT)
    os.mkdir(directory)
    sync_directory(data_dir)
    try:
        os.rename(journal, os.path.join(directory, _JOURNAL))
    except BaseException:
        with contextlib.suppress(OSError):
            os.rmdir(directory)
        raise
    try:
        sync_directory(directory)
        _finish(data_dir, directory, moves)
    except OSError as error:
        raise KafkaStorageError(
            error.errno, f"the records are committed, but not all of them are in place yet "
            f"({error.strerror}): do not write them again; `seglog load --recover {data_dir}` or "
            "the next write finishes the commit", error.filename or data_dir) from error


def finish_commit(data_dir: str) -> bool:
    """Finishes a commit that a crash interrupted; returns whether there was one.

    The caller holds the lock of the data directory. Raises KafkaStorageError if the journal cannot
    be read or a rename fails.
    """
    directory = os.path.join(data_dir, UNFINISHED_COMMIT)
    if not os.path.isdir(directory):
        return False
    path = os.path.join(directory, _JOURNAL)
    try:
        content = read_small_file(path, _JOURNAL_BYTES_MAX)
        if content is None:  # The crash came before the journal: nothing was renamed.
            os.rmdir(directory)
            return False
        _finish(data_dir, directory, _parse(path, content))
    except KafkaStorageError:
        raise
    except OSError as error:
        raise KafkaStorageError(
            error.errno, f"cannot finish the commit of a job that was interrupted: "
            f"{error.strerror}", error.filename or path) from error
    return True


def _parse(path: str, content: bytes) -> list[Move]:
    try:
        found = json.loads(content)
        if found["version"] != _VERSION:
            raise ValueError(f"version {found['version']}")
        moves: list[Move] = []
        for source, target in found["moves"]:
            moves.append((os.fspath(source), target if target is None else os.fspath(target)))
    except (ValueError, KeyError, TypeError) as error:
        raise KafkaStorageError(
            errno.EINVAL, f"this commit journal cannot be read ({error}); restore it, or "
            "check the newest records of every partition and delete its directory",
            path) from None
    return moves


def _finish(data_dir: str, directory: str, moves: Sequence[Move]) -> None:
    changed = {data_dir}
    for source, target in moves:
        path = os.path.join(data_dir, source)
        with contextlib.suppress(FileNotFoundError):  # It was done before the crash.
            if target is None:
                os.unlink(path)
                changed.add(os.path.dirname(path))
            else:
                os.rename(path, os.path.join(data_dir, target))
        if target is not None:
            changed.add(os.path.dirname(os.path.join(data_dir, target)))
    for each in sorted(changed):
        sync_directory(each)
    os.unlink(os.path.join(directory, _JOURNAL))
    os.rmdir(directory)
    sync_directory(data_dir)
