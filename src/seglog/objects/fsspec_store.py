"""Object stores through fsspec: hdfs://, sftp://, memory:// and more."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import fsspec

from seglog.errors import KafkaStorageError
from seglog.objects.store_options import StorageOptions
from seglog.objects.store import Block, ObjectInfo, ObjectVersion, StoreError
from seglog.objects.urls import ObjectUrl

__all__ = ["FsspecStore"]

#: Names that file systems use for the modification time.
_MODIFIED: Final = ("mtime", "modification_time", "modificationTime", "modified", "LastModified",
                    "last_modified", "updated")

#: Every file system, as in fsspec's own cache. A forked child empties that cache, and the end of a
#: client of hdfs-native waits there for threads that the child does not have.
_KEPT: Final[dict[int, Any]] = {}


class FsspecStore:
    """One file system of fsspec, or of an installed package registered with it."""

    def __init__(self, url: ObjectUrl, options: StorageOptions) -> None:
        try:
            find: Any = fsspec.get_filesystem_class
            system = find(url.scheme)
            given = {**_patience(system, options),
                     **system._get_kwargs_from_urls(url.root + "/"), **options.client()}
            given.pop("path", None)
            self._system: Any = system(**given)
            _KEPT[id(self._system)] = self._system
        except ValueError as error:
            raise KafkaStorageError(errno.EINVAL, f"neither obstore nor fsspec supports "
                                    f"{url.scheme}://: {error}", url.root) from None
        except ImportError as error:
            raise KafkaStorageError(errno.EINVAL, f"reading {url.scheme}:// needs a package that is"
                                    f" not installed: {error}", url.root) from None
        except Exception as error:
            raise KafkaStorageError(errno.EINVAL, f"{type(error).__name__}: cannot open this file "
                                    "system", url.root) from None
        self._root = str(system._strip_protocol(url.root + "/")).rstrip("/")

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root or "/"

    def list(self, prefix: str) -> tuple[list[ObjectInfo], list[str]]:
        """See ObjectStore."""
        path = self._path(prefix)
        start = f"{prefix}/" if prefix else ""
        objects, prefixes = [], []
        with _store_errors(), suppress(FileNotFoundError, NotADirectoryError):
            self._system.invalidate_cache(path)
            for entry in self._system.ls(path, detail=True):
                key = start + entry["name"].rstrip("/").rpartition("/")[2]
                if entry["type"] == "directory":
                    prefixes.append(key)
                elif entry["name"].rstrip("/") != path:  # a file lists itself
                    objects.append(ObjectInfo(key, _version(entry)))
            return objects, prefixes
        return [], []

    def size(self, key: str) -> ObjectVersion:
        """See ObjectStore."""
        with _store_errors():
            return self._version_now(self._path(key))

    def read(self, key: str, start: int, end: int) -> tuple[Block, ObjectVersion]:
        """See ObjectStore. A second request gets the version, after the bytes: what still has the
        listed version had it when they were read."""
        with _store_errors():
            path = self._path(key)
            content: Block = self._system.cat_file(path, start=start, end=end)
            return content, self._version_now(path)

    def _version_now(self, path: str) -> ObjectVersion:
        """The version of an object, also where the file system keeps its last listing."""
        self._system.invalidate_cache(path.rpartition("/")[0])
        return _version(self._system.info(path))

    def write(self, key: str, content: bytes | Path) -> None:
        """See ObjectStore. Whether half an object can be seen is the file system's to say."""
        path = self._path(key)
        with _store_errors():
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
            if isinstance(content, bytes):
                self._system.pipe_file(path, content)
            else:
                self._system.put_file(str(content), path)

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        with _store_errors(), suppress(FileNotFoundError):
            self._system.rm_file(self._path(key))

    def sweep(self, prefix: str) -> None:
        """See ObjectStore. fsspec does not say what it left."""


def _patience(system: Any, options: StorageOptions) -> dict[str, str]:
    """Retry settings for hdfs-native, which by default retries an unresponsive name node for
    minutes before it reports an error."""
    if not system.__module__.startswith("hdfs_native"):
        return {}
    return {"dfs.client.failover.max.attempts": "4",  # some attempts may go to a standby
            "dfs.client.failover.sleep.base.millis": "100",
            "dfs.client.failover.sleep.max.millis": "1000",
            "dfs.client.socket-timeout": str(1000 * options.request_timeout_seconds)}


def _version(info: dict[str, Any]) -> ObjectVersion:
    size = -1 if info["size"] is None else int(info["size"])
    if size < 0:
        raise StoreError("the file system does not tell the size of an object")
    modified = next((_milliseconds(info[name]) for name in _MODIFIED if name in info), None)
    tag = info.get("ETag") or info.get("etag")
    return ObjectVersion(size, None if tag is None else str(tag), modified)


def _milliseconds(when: Any) -> int | None:
    """Converts a file system's time to ms: a datetime, float seconds, or integer seconds or ms."""
    if isinstance(when, datetime):
        return int(when.timestamp() * 1000)
    if isinstance(when, float):
        return int(when * 1000)
    if isinstance(when, int):
        return when if when > 1 << 34 else when * 1000
    return None


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except FileNotFoundError:
        raise StoreError("no such object", is_missing=True) from None
    except Exception as error:
        # Only the class name: a client's message may contain credentials.
        raise StoreError(f"{type(error).__name__}", may_pass=isinstance(error, OSError)
                         and not isinstance(error, PermissionError | IsADirectoryError)) from None
