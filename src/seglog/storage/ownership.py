"""Creates every file and directory in a data directory, with the right owner and mode.

A recovery often runs as root in a directory of another user's broker. A file that replaces another
gets that file's owner, group and mode. A new file gets the owner and group of its directory, and
the mode of a file beside it, or of the directory without execute bits. A process that works in its
own user's directory is like a broker: there the umask decides.

It is not an error if the owner cannot be set (only root may): `chown_command` returns the command
that corrects it. Nothing here follows a link, and existing files never change owner, because a name
in another user's directory may be a hard link to any file.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shlex
import stat
from collections.abc import Iterator

from seglog.errors import InvalidTopicPartitionError
from seglog.storage.paths import FileKind, parse_directory_name

__all__ = ["chown_command", "create_file", "make_directories", "open_file"]

_log = logging.getLogger(__name__)

_Path = str | os.PathLike[str]
_FILE_MODE, _DIRECTORY_MODE = 0o666, 0o777  # before the umask, as in Java
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # an open must not wait for a fifo
_SIBLINGS_MAX = 64  # how many are checked for their mode

_refused: dict[str, str] = {}  # data directory -> command to run


def open_file(path: _Path, flags: int) -> int:
    """Opens a file for writing and creates it if it is missing. `flags` are those of os.open except
    O_CREAT. Raises OSError; ELOOP for a link."""
    name = os.fspath(path)
    directory = os.path.dirname(name) or "."
    found = os.stat(directory)
    if found.st_uid == os.geteuid():
        return os.open(name, flags | os.O_CREAT | _SAFE, _FILE_MODE)
    try:
        descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL | _SAFE, _FILE_MODE)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        # Without O_CREAT, which the kernel refuses for other users' files in a directory like /tmp.
        return os.open(name, flags | _SAFE)
    try:
        _give(descriptor, name, found.st_uid, found.st_gid, _mode_beside(name, found.st_mode))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_file(path: _Path, model: _Path | None = None) -> int:
    """Creates a new file for writing; an existing one of that name is unlinked first. It gets the
    owner, group and mode of `model` if that is a regular file, else those of a new file. Raises
    OSError."""
    name = os.fspath(path)
    try:
        descriptor = open_file(name, os.O_RDWR | os.O_EXCL)
    except FileExistsError:
        os.unlink(name)
        descriptor = open_file(name, os.O_RDWR | os.O_EXCL)
    try:
        if model is not None:
            _adopt(descriptor, name, model)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_directories(path: _Path, *, is_ours: bool = False) -> list[str]:
    """Creates a directory and its missing parents. Returns those that were missing; each is durable
    once the directory above it is synced.

    Each gets the owner of its parent directory, unless that is shared by all users (/tmp). With
    `is_ours`, as for a data directory itself, an owner that cannot be set is not reported. Raises
    OSError, also if a file has the name.
    """
    name = os.fspath(path)
    missing = []
    while not os.path.isdir(name):
        missing.append(name)
        name = os.path.dirname(name) or "."
        if os.path.lexists(name) and not os.path.isdir(name):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
    os.makedirs(path, exist_ok=True)
    missing.reverse()
    for new in missing:
        above = os.stat(os.path.dirname(new) or ".")
        if above.st_uid == os.geteuid() or above.st_mode & stat.S_ISVTX:
            continue
        descriptor = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                _give(descriptor, new, above.st_uid, above.st_gid,
                      above.st_mode & (_DIRECTORY_MODE | stat.S_ISGID), is_ours)
        finally:
            os.close(descriptor)
    return missing


def chown_command(data_dir: _Path) -> str | None:
    """The command that root has to run because files that this process created could not be given
    to the owner of a data directory; None if all could."""
    return _refused.get(os.path.abspath(data_dir))


# ---- how

def _adopt(descriptor: int, path: str, model: _Path) -> None:
    try:
        found = os.lstat(model)
    except FileNotFoundError:
        return
    if stat.S_ISREG(found.st_mode):
        _give(descriptor, path, found.st_uid, found.st_gid, found.st_mode & 0o777)


def _give(descriptor: int, path: str, user: int, group: int, mode: int,
          is_ours: bool = False) -> None:
    """Sets what differs. The mode comes last, because a change of owner clears bits."""
    found = os.fstat(descriptor)
    refused = False
    if (found.st_uid, found.st_gid) != (user, group):
        try:
            os.fchown(descriptor, user, group)
        except PermissionError:
            refused = True
            with contextlib.suppress(PermissionError):  # an owner may choose one of its own groups
                os.fchown(descriptor, -1, group)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        os.fchmod(descriptor, mode)
    if refused and not is_ours:
        _remember(path, user, group)


def _remember(path: str, user: int, group: int) -> None:
    directory = os.path.dirname(os.path.abspath(path))
    if os.stat(directory).st_uid == os.geteuid():
        return  # the command also covers what others left here
    with contextlib.suppress(InvalidTopicPartitionError):
        parse_directory_name(directory)
        directory = os.path.dirname(directory)
    command = f"chown -R {user}:{group} {shlex.quote(directory)}"
    if _refused.setdefault(directory, command) is not command:  # atomic
        return
    _log.warning("New files in %s belong to user %d, who may not give them to the owner of the "
                 "directory, user %d; before that user opens it, run as root: %s", directory,
                 os.geteuid(), user, command)


def _mode_beside(path: str, directory_mode: int) -> int:
    """The mode for a new file: that of its segment's log, else of any file beside it, else derived
    from the directory's."""
    directory, name = os.path.split(path)
    log = os.path.join(directory, name.partition(".")[0] + FileKind.LOG.value)
    mode = None if log == path else _mode_of(log)
    if mode is None:
        mode = next(_modes_in(directory, name), directory_mode)
    return mode & _FILE_MODE


def _mode_of(path: str) -> int | None:
    try:
        found = os.lstat(path).st_mode
    except OSError:
        return None
    return found if stat.S_ISREG(found) else None


def _modes_in(directory: str, but: str) -> Iterator[int]:
    """The modes of a few files. The lock and the marker are skipped, because they come and go."""
    with contextlib.suppress(OSError), os.scandir(directory or ".") as entries:
        some = sorted(entry.path for entry, _ in zip(entries, range(_SIBLINGS_MAX), strict=False)
                      if entry.name != but and not entry.name.startswith("."))
        yield from filter(None, map(_mode_of, some))
