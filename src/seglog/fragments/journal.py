"""The journal of a commit: its renames are all made, or none.

A commit first prepares its files under hidden names. Then the journal, a list of renames, appears
in a directory at the top of the data directory: this is the commit point. Renames need no disk
space and can be repeated, so the next process that opens the data directory can finish them. Until
then a broker refuses to start (`UNFINISHED_COMMIT`) and never sees half a commit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from typing import Any, Final

from seglog.arguments import shown
from seglog.errors import IllegalStateError, KafkaStorageError
from seglog.fragments.checked_json import CheckedJson
from seglog.storage.paths import UNFINISHED_COMMIT
from seglog.storage.textfile import sync_path, write_file

__all__ = ["Move", "commit_moves", "finish_commit"]

#: Source and target, both relative to the data directory; target None deletes the source.
Move = tuple[str, str | None]

_JOURNAL: Final = "journal"
_ADVICE: Final = ("restore it, or check the newest records of every partition and delete its "
                  "directory")
_CONTENT: Final = CheckedJson("commit journal", _ADVICE, {"version": int, "moves": list}, 1 << 30,
                              version=1)


def commit_moves(data_dir: str, prepared: str, moves: Sequence[Move],
                 is_aborted: Callable[[], bool]) -> None:
    """Makes all renames. After an OSError none is made; after a KafkaStorageError the next process
    that opens the data directory makes the rest.

    All sources and their directories must be durable. `prepared` is the journal's hidden name
    before the commit point. The caller holds the lock of the data directory. Raises
    IllegalStateError, and makes no rename, if the job `is_aborted`: an abort needs no lock.
    """
    journal = os.path.join(data_dir, prepared)
    write_file(journal, _CONTENT.encode(journal, {"version": _CONTENT.version, "moves": moves}))
    directory = os.path.join(data_dir, UNFINISHED_COMMIT)
    os.mkdir(directory)
    try:
        sync_path(data_dir)
        # The directory stops later aborts from deleting the files, so none comes after this check.
        if is_aborted():
            raise IllegalStateError(f"{data_dir}: this job was aborted during its commit")
        os.rename(journal, os.path.join(directory, _JOURNAL))
    except BaseException:
        with contextlib.suppress(OSError):
            os.rmdir(directory)
        raise
    try:
        sync_path(directory)
        _finish(data_dir, directory, moves)
    except OSError as error:
        raise KafkaStorageError(
            error.errno, f"the records are committed, but not all of them are in place yet "
            f"({error.strerror}): do not write them again; `seglog load --recover {data_dir}` or "
            "the next write finishes the commit", error.filename or data_dir) from error


def finish_commit(data_dir: str) -> None:
    """Finishes a commit that a crash interrupted, if there is one.

    The caller holds the lock of the data directory. Raises KafkaStorageError if the journal cannot
    be read or a rename fails.
    """
    directory = os.path.join(data_dir, UNFINISHED_COMMIT)
    path = os.path.join(directory, _JOURNAL)
    try:
        if not _is_directory(directory):
            return
        found = _CONTENT.read(path)
        if found is None:  # The crash came before the journal: nothing was renamed.
            os.rmdir(directory)
            return
        _finish(data_dir, directory, _parse(path, found["moves"]))
    except KafkaStorageError:
        raise
    except OSError as error:
        raise KafkaStorageError(
            error.errno, f"cannot finish the commit of a job that was interrupted: "
            f"{error.strerror}", error.filename or path) from error


def _is_directory(path: str) -> bool:
    """As os.path.isdir, but raises OSError where that says no for a path it cannot look up."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def _parse(path: str, moves: list[Any]) -> list[Move]:
    """The renames of the journal `path`. Raises KafkaStorageError for one that `commit_moves` does
    not write, before any is made."""
    for number, move in enumerate(moves):
        match move:
            case [str(source), None] if _is_inside(source):
                pass
            case [str(source), str(target)] if _is_inside(source) and _is_inside(target):
                pass
            case _:
                raise _CONTENT.damaged(
                    path, f"move {number} does not rename or delete a file of this data "
                    f"directory: {shown(move)}", expected="paths in the data directory",
                    found=move)
    return [(source, target) for source, target in moves]


def _is_inside(path: str) -> bool:
    """Whether a path names something at the top of the data directory, or in a directory there."""
    parts = path.split("/")
    if len(parts) > 2 or not {"", ".", ".."}.isdisjoint(parts) or "\0" in path:
        return False
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _finish(data_dir: str, directory: str, moves: Sequence[Move]) -> None:
    changed = {data_dir}
    for source, target in moves:
        path = os.path.join(data_dir, source)
        goal = None if target is None else os.path.join(data_dir, target)
        try:
            if goal is None:
                os.unlink(path)
            else:
                os.rename(path, goal)
        except FileNotFoundError:  # It was done before the crash.
            if goal is not None and not os.path.lexists(goal):
                raise KafkaStorageError(
                    errno.ENOENT, f"a part of the commit is lost: {target} does not exist, and "
                    f"{source} cannot be renamed to it; {_ADVICE}",
                    os.path.join(directory, _JOURNAL)) from None
        changed.add(os.path.dirname(path if goal is None else goal))
    for each in sorted(changed):
        sync_path(each)
    os.unlink(os.path.join(directory, _JOURNAL))
    os.rmdir(directory)
    sync_path(data_dir)
