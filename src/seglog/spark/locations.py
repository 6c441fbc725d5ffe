"""Resolves the paths of a query to directories: comma-separated lists, globs and `file:` URIs.
URLs of object stores stay unchanged.

Globs are Hadoop's (`*`, `?`, `[abc]`, `[^a-c]`, `{a,b}`), as in every path of Spark. A path that
exists under its literal name is that directory, whatever characters it has.
"""

from __future__ import annotations

import difflib
import errno
import fnmatch
import os
import platform
import re
from collections.abc import Iterator, Sequence

from seglog.arguments import given_path
from seglog.errors import InvalidTopicPartitionError, KafkaStorageError
from seglog.objects.urls import is_url
from seglog.storage.paths import DirectoryKind, leads_to_directory, parse_directory_name
from seglog.storage.place import NOT_A_DATA_DIRECTORY, PlaceKind, identify

__all__ = ["directories", "local_directory", "require_local", "require_seen"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//([^/]*))?(/.*)", re.DOTALL)
_MAGIC = re.compile(r"[*?\[{]")
_BRACES_MAX = 10_000


def directories(paths: Sequence[str]) -> list[str]:
    """Resolves `paths` (as given to `load`) to distinct directories, in order.

    A single path may be a comma-separated list. A glob must match at least one data directory or
    partition directory; other matches are ignored. Directories without a glob are not checked
    here. Raises KafkaStorageError for a glob without a match, ValueError for an unsupported scheme
    or host, and as `given_path`.
    """
    texts = _divided(paths[0]) if len(paths) == 1 else list(paths)
    found: dict[str, str] = {}
    for text in texts:
        if is_url(text) and not text.lower().startswith("file:"):
            if _MAGIC.search(text):
                raise ValueError(f"{text} is a pattern, but patterns match only directories: name "
                                 "each URL, separated by commas.")
            found.setdefault(text, text)
            continue
        path = given_path(_local(text))
        matched = [path] if not _MAGIC.search(path) or os.path.lexists(path) else _matched(path)
        for one in matched:
            found.setdefault(os.path.realpath(one), os.path.abspath(one))
    return list(found.values())


def require_local(paths: Sequence[str], what: str) -> None:
    """Raises ValueError for an object store URL, because `what` reads only directories."""
    for path in paths:
        if is_url(path) and not path.lower().startswith("file:"):
            raise ValueError(f"{what} reads directories, not {path}: read URLs with spark.read, or "
                             "copy the objects to a directory.")


def local_directory(text: str) -> str:
    """The path of a directory to write to, without its `file:` prefix. Raises ValueError for
    another file system, and as `given_path`."""
    if is_url(text) and not text.lower().startswith("file:"):
        raise ValueError(f"format('seglog') writes to a local directory, not to {text}: write to a "
                         "directory, and copy it there.")
    return given_path(_local(text))


def require_seen(path: str, otherwise: str = "") -> None:
    """Raises KafkaStorageError for a path of the driver that this machine does not have, also
    `otherwise`. An executor without the data must not take its files for lost."""
    if not is_url(path) and not os.path.exists(path):
        raise KafkaStorageError(
            errno.ENOENT, f"this is not on {platform.node()}{otherwise and f', {otherwise}'}: the "
            "driver and every executor must see the data under the same path", path)


def _divided(text: str) -> list[str]:
    """Splits at commas outside braces, unless a directory has the whole name."""
    if os.path.lexists(text):
        return [text]
    parts, depth = [""], 0
    for char in text:
        depth = max(0, depth + (char == "{") - (char == "}"))
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def _local(text: str) -> str:
    """A local path, without its `file:` prefix."""
    match = _SCHEME.fullmatch(text)
    if match is None or os.path.lexists(text):
        return text
    scheme, host = match[1], match[3]
    if scheme.lower() != "file":
        raise ValueError(f"format('seglog') cannot read {text}: {scheme}: is not a "
                         "supported object store, and the path does not exist.")
    if host not in (None, "", "localhost"):
        raise ValueError(f"{text} names the host {host!r}; a file: URI of this machine has three "
                         "slashes, such as file:///var/lib/kafka/data")
    return match[4]


def _matched(pattern: str) -> list[str]:
    found = sorted({path for one in _without_braces(pattern) for path in _glob(one)})
    if not found:
        # The code tells it from a directory that vanishes while a query is planned.
        raise KafkaStorageError(errno.ENOENT, _why_nothing(pattern), pattern,
                                code=NOT_A_DATA_DIRECTORY)
    kept = [path for path in found if _holds_logs(path)]
    if not kept:
        shown = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        around = [near for path in found[:8] for near in identify(path).data_directories()]
        hint = f"; did you mean {around[0]}?" if around else ""
        raise KafkaStorageError(errno.EINVAL, "this pattern matches no data directory: "
                                f"{shown}{hint}", pattern)
    return kept


def _holds_logs(path: str) -> bool:
    """Whether a glob includes this directory. Deleted and future partitions do not count."""
    try:
        kind = identify(path).kind
        if kind is PlaceKind.PARTITION_DIRECTORY:
            return parse_directory_name(path).kind is DirectoryKind.LIVE
    except (KafkaStorageError, InvalidTopicPartitionError):
        return False
    return kind is PlaceKind.DATA_DIRECTORY


def _without_braces(pattern: str) -> list[str]:
    """Expands `{a,b}` to separate patterns, as Hadoop's GlobExpander."""
    done, waiting = [], [pattern]
    while waiting:
        one = waiting.pop()
        match = re.search(r"\{([^{}]*)\}", one)
        if match is None:
            done.append(one)
            continue
        waiting += [one[:match.start()] + word + one[match.end():]
                    for word in match[1].split(",")]
        if len(waiting) + len(done) > _BRACES_MAX:
            raise ValueError(f"{pattern} expands to more than {_BRACES_MAX} paths")
    return done


def _glob(pattern: str) -> Iterator[str]:
    """The directories that match a pattern. As in Hadoop, names that begin with a dot match only a
    pattern with the dot."""
    found = ["/" if pattern.startswith("/") else "."]
    for part in (part for part in pattern.split("/") if part):
        if not _MAGIC.search(part):
            found = [path for path in (os.path.join(one, part) for one in found)
                     if os.path.isdir(path)]
            continue
        matches = re.compile(fnmatch.translate(part.replace("[^", "[!"))).match
        found = [os.path.join(one, name) for one in found for name in _names(one)
                 if matches(name) and name.startswith(".") <= part.startswith(".")]
    yield from (os.path.normpath(path) for path in found)


def _names(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if leads_to_directory(entry))
    except OSError:
        return []


def _why_nothing(pattern: str) -> str:
    """Which names exist where the pattern stops matching, and which was probably meant."""
    parts = [part for part in _without_braces(pattern)[0].split("/") if part]
    begin = "/" if pattern.startswith("/") else ""
    for depth in range(len(parts)):
        if any(True for _ in _glob(begin + "/".join(parts[:depth + 1]))):
            continue
        parents = list(_glob(begin + "/".join(parts[:depth]))) if depth else [begin or "."]
        names = {name for parent in parents[:8] for name in _names(parent) if name[0] != "."}
        wanted = parts[depth]
        near = difflib.get_close_matches(re.sub(r"[*?]|\[[^]]*\]", "", wanted), names, 1, 0.5)
        where = parents[0] if len(parents) == 1 else f"{parents[0]} and {len(parents) - 1} more"
        if near:
            return f"nothing matches {wanted!r} in {where}; did you mean {near[0]!r}?"
        shown = ", ".join(sorted(names)[:5]) or "no directory"
        return f"nothing matches {wanted!r} in {where}, which has {shown}"
    return "nothing matches this pattern"
