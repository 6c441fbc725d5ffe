"""Checks of arguments to public calls; each error is one sentence that names the argument.

A value of the wrong type raises TypeError, one out of range IllegalArgumentError. Without these
checks C would raise OverflowError, or Python AttributeError somewhere inside.
"""

from __future__ import annotations

import errno
import math
import os
import re
import threading
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from seglog.errors import IllegalArgumentError, KafkaStorageError
from seglog.model import TopicPartition

__all__ = ["INT32_MAX", "INT32_MIN", "INT64_MAX", "INT64_MIN", "THREADS_MAX", "all_of", "content",
           "count",
           "directory_path", "given_path", "int32", "int64", "integer", "names", "offset",
           "optional", "partition_of", "require_local", "seconds", "shown", "text", "threads"]

INT32_MAX: Final = (1 << 31) - 1
INT32_MIN: Final = -1 << 31
INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -1 << 63
#: More threads would only wait for each other, and 2**31 would take the machine down.
THREADS_MAX: Final = 1024
_SHOWN: Final = 80
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

_T = TypeVar("_T")


def shown(value: object) -> str:
    """The repr of a value for a message, shortened to one line."""
    try:
        found = repr(value)
    except RecursionError:  # JSON can be parsed a level deeper than it can be shown.
        found = f"a {type(value).__name__} of too many levels"
    return found if len(found) <= _SHOWN else f"{found[:_SHOWN]}..."


def integer(name: str, value: Any, least: int, most: int) -> int:
    """`value` as an int within [least, most]; accepts any integer type except bool."""
    if type(value) is not int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{name} must be an integer, not {shown(value)}")
        value = value.__index__()
    if not least <= value <= most:
        raise IllegalArgumentError(
            f"{name} must be between {least} and {most}, not {shown(value)}")
    return int(value)


def int64(name: str, value: Any) -> int:
    """Any 64-bit integer, such as a timestamp (also a special value) or an unchecked offset."""
    return integer(name, value, INT64_MIN, INT64_MAX)


def offset(name: str, value: Any) -> int:
    """A non-negative offset or number of bytes."""
    return integer(name, value, 0, INT64_MAX)


def int32(name: str, value: Any, least: int = 0) -> int:
    """A 32-bit integer of at least `least`."""
    return integer(name, value, least, INT32_MAX)


def count(name: str, value: Any) -> int:
    """A count of at least 1."""
    return integer(name, value, 1, INT64_MAX)


def threads(name: str, value: Any, least: int = 0) -> int:
    """A number of threads."""
    return integer(name, value, least, THREADS_MAX)


def seconds(name: str, value: Any) -> float | None:
    """A timeout in seconds, or None for no limit; capped at the system's longest wait."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise TypeError(f"{name} must be a number of seconds or None, not {shown(value)}")
    if value < 0:
        raise IllegalArgumentError(f"{name} must not be negative, as {shown(value)} is")
    return float(min(value, threading.TIMEOUT_MAX))


def text(name: str, value: Any) -> str:
    """A str that can be encoded in UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {shown(value)}")
    return value


def names(name: str, value: Any) -> tuple[str, ...]:
    """Several strs; raises TypeError for a single str, which would be read as its letters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list of names, not {shown(value)}")
    return tuple(text(f"each of {name}", one) for one in value)


def content(name: str, value: Any) -> bytes:
    """The bytes of a file."""
    if not isinstance(value, bytes):
        raise TypeError(f"{name} must be bytes, not {shown(value)}")
    return value


def all_of(kind: type[_T], name: str, value: Any) -> tuple[_T, ...]:
    """Several instances of a class."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be several {kind.__name__}, not {shown(value)}")
    found = tuple(value)
    for one in found:
        if not isinstance(one, kind):
            raise TypeError(f"each of {name} must be of the class {kind.__name__}, "
                            f"not {shown(one)}")
    return found


def partition_of(value: Any) -> TopicPartition:
    """A TopicPartition with a name and a number."""
    if not isinstance(value, TopicPartition):
        raise TypeError(f"topic_partition must be a TopicPartition, not {shown(value)}")
    text("topic", value.topic)
    int32("partition", value.partition)
    return value


def given_path(value: Any, name: str = "path") -> str:
    """A path, unchanged. Raises KafkaStorageError if it is empty, IllegalArgumentError if no file
    can have this name.

    An empty path is an unset variable, never the current directory.
    """
    if not isinstance(value, str | os.PathLike) or isinstance(path := os.fspath(value), bytes):
        raise TypeError(f"{name} must be a path, not {shown(value)}")
    if not path:
        raise KafkaStorageError(
            errno.ENOENT, "the path is empty (is a variable not set?); the current directory is .",
            "")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise IllegalArgumentError(f"{name} is no name of a file: {shown(path)}")
    return path


def directory_path(name: str, value: Any) -> str:
    """An absolute path. Raises as `given_path`, and KafkaStorageError for a URL."""
    path = given_path(value, name)
    require_local(path)
    return os.path.abspath(path)


def require_local(path: str) -> None:
    """Raises KafkaStorageError for a URL, where only a local path will do."""
    if _URL.match(path):
        raise KafkaStorageError(
            errno.EINVAL, "this is a URL, and only a local directory will do here; object stores "
            "are read by PartitionLog.open, seglog ls, cat and export, and Spark", path)


def optional(kind: type, **given: Any) -> None:
    """Raises TypeError unless each value is None or an instance of `kind`."""
    for name, value in given.items():
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be of the class {kind.__name__}, not {shown(value)}")
