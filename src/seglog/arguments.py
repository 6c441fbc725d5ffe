"""Arguments at the border of the package: a wrong one is refused in one sentence that names it.

What C would answer with an OverflowError, or Python with an AttributeError somewhere inside, is a
TypeError (a value of another kind) or an IllegalArgumentError (one out of range) here.
"""

from __future__ import annotations

import errno
import math
import os
import re
import threading
from collections.abc import Iterable
from typing import Any, Final

from seglog.errors import IllegalArgumentError, KafkaStorageError
from seglog.model import TopicPartition

__all__ = ["INT32_MAX", "INT32_MIN", "INT64_MAX", "INT64_MIN", "count", "directory_path",
           "given_path", "int32", "int64", "integer", "names", "offset", "optional",
           "partition_of", "seconds", "shown", "text", "threads"]

INT32_MAX: Final = (1 << 31) - 1
INT32_MIN: Final = -1 << 31
INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -1 << 63
#: More would only wait for each other, and 2**31 would take the machine down.
THREADS_MAX: Final = 1024
_SHOWN: Final = 80
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def shown(value: object) -> str:
    """A value in a message, not longer than a line."""
    found = repr(value)
    return found if len(found) <= _SHOWN else f"{found[:_SHOWN]}..."


def integer(name: str, value: Any, least: int, most: int) -> int:
    """`value` as an int within [least, most]; any integer type but bool is one."""
    if type(value) is not int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{name} must be an integer, not {shown(value)}")
        value = value.__index__()
    if not least <= value <= most:
        raise IllegalArgumentError(
            f"{name} must be between {least} and {most}, not {shown(value)}")
    return int(value)


def int64(name: str, value: Any) -> int:
    """Any number of 64 bits: timestamps with their special values, offsets that Kafka refuses."""
    return integer(name, value, INT64_MIN, INT64_MAX)


def offset(name: str, value: Any) -> int:
    """An offset, or a number of bytes: not negative."""
    return integer(name, value, 0, INT64_MAX)


def int32(name: str, value: Any, least: int = 0) -> int:
    """A number that Kafka keeps in 32 bits."""
    return integer(name, value, least, INT32_MAX)


def count(name: str, value: Any) -> int:
    """At least one."""
    return integer(name, value, 1, INT64_MAX)


def threads(name: str, value: Any, least: int = 0) -> int:
    """A number of threads."""
    return integer(name, value, least, THREADS_MAX)


def seconds(name: str, value: Any) -> float | None:
    """A time to wait, None for ever; longer than the system can wait is as long as it can."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise TypeError(f"{name} must be a number of seconds or None, not {shown(value)}")
    if value < 0:
        raise IllegalArgumentError(f"{name} must not be negative, as {shown(value)} is")
    return float(min(value, threading.TIMEOUT_MAX))


def text(name: str, value: Any) -> str:
    """A str that UTF-8 can write."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {shown(value)}")
    return value


def names(name: str, value: Any) -> tuple[str, ...]:
    """Several strs; one alone is not taken for its letters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list of names, not {shown(value)}")
    return tuple(text(f"each of {name}", one) for one in value)


def partition_of(value: Any) -> TopicPartition:
    """A TopicPartition with a name and a number."""
    if not isinstance(value, TopicPartition):
        raise TypeError(f"topic_partition must be a TopicPartition, not {shown(value)}")
    text("topic", value.topic)
    int32("partition", value.partition)
    return value


def given_path(value: Any, name: str = "path") -> str:
    """A path as it was given. KafkaStorageError for an empty one: that is a variable which is not
    set, never the current directory."""
    if not isinstance(value, str | os.PathLike) or isinstance(path := os.fspath(value), bytes):
        raise TypeError(f"{name} must be a path, not {shown(value)}")
    if not path:
        raise KafkaStorageError(
            errno.ENOENT, "the path is empty (is a variable not set?); the current directory is .",
            "")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise IllegalArgumentError(f"{name} is no name of a file: {shown(path)}") from None
    return path


def directory_path(name: str, value: Any) -> str:
    """An absolute path. KafkaStorageError for an empty one, and for a URL."""
    path = given_path(value, name)
    if _URL.match(path):
        raise KafkaStorageError(
            errno.EINVAL, "this is a URL, and only a local directory will do here; object stores "
            "are read by PartitionLog.open, seglog ls, seglog cat and Spark", path)
    if "\0" in path:
        raise IllegalArgumentError(f"{name} is no name of a file: {shown(path)}")
    return os.path.abspath(path)


def optional(kind: type, **given: Any) -> None:
    """TypeError unless each is None or of that class."""
    for name, value in given.items():
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be of the class {kind.__name__}, not {shown(value)}")
