"""Whatever else fsspec reads: hdfs://, sftp://, memory:// and more."""

from __future__ import annotations

import errno
from typing import Any

import fsspec

from seglog.errors import KafkaStorageError
from seglog.objects.options import StorageOptions
from seglog.objects.store import Block, ObjectInfo, ObjectVersion, StoreError
from seglog.objects.urls import ObjectUrl

__all__ = ["FsspecStore"]


class FsspecStore:
    """One file system of fsspec, or of an installed package that fsspec knows."""

    def __init__(self, url: ObjectUrl, options: StorageOptions) -> None:
        try:
            find: Any = fsspec.get_filesystem_class
            system = find(url.scheme)
            given = {**system._get_kwargs_from_urls(url.root + "/"), **options.client()}
            given.pop("path", None)
            self._system: Any = system(**given)
        except ValueError as error:
            raise KafkaStorageError(errno.EINVAL, f"{url.scheme}:// is no scheme that obstore or "
                                    f"fsspec reads: {error}", url.root) from None
        except ImportError as error:
            raise KafkaStorageError(errno.EINVAL, f"reading {url.scheme}:// needs a package that is"
                                    f" not installed: {error}", url.root) from None
        except Exception as error:
            raise KafkaStorageError(errno.EINVAL, f"{type(error).__name__}: cannot open this file "
                                    "system", url.root) from None
        self._root = str(system._strip_protocol(url.root + "/")).rstrip("/")
        self._tries = options.max_retries

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root or "/"

    def list(self, prefix: str) -> tuple[list[ObjectInfo], list[str]]:
        """See ObjectStore."""
        path = self._path(prefix)
        try:
            self._system.invalidate_cache(path)
            found = self._system.ls(path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        except Exception as error:
            raise _failure(error) from None
        objects, prefixes = [], []
        start = f"{prefix}/" if prefix else ""
        for entry in found:
            key = start + entry["name"].rstrip("/").rpartition("/")[2]
            if entry["type"] == "directory":
                prefixes.append(key)
            elif entry["name"].rstrip("/") != path:  # a file lists itself
                objects.append(ObjectInfo(key, _version(entry)))
        return objects, prefixes

    def size(self, key: str) -> ObjectVersion:
        """See ObjectStore."""
        try:
            return _version(self._system.info(self._path(key)))
        except Exception as error:
            raise _failure(error) from None

    def read(self, key: str, start: int, end: int) -> tuple[Block, ObjectVersion]:
        """See ObjectStore. A change is seen by the size alone, which costs a second request."""
        try:
            path = self._path(key)
            info = self._system.info(path)
            return self._system.cat_file(path, start=start, end=end), _version(info)
        except Exception as error:
            raise _failure(error) from None


def _version(info: dict[str, Any]) -> ObjectVersion:
    etag = info.get("ETag") or info.get("etag")
    return ObjectVersion(int(info["size"]), None if etag is None else str(etag))


def _failure(error: Exception) -> StoreError:
    if isinstance(error, FileNotFoundError):
        return StoreError("no such object", is_missing=True)
    # The class alone: what a client says may hold what it was given.
    return StoreError(f"{type(error).__name__}", may_pass=isinstance(error, OSError)
                      and not isinstance(error, PermissionError | IsADirectoryError))
