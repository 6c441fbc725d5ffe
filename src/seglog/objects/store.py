"""The interface of an object store, and the client for each URL scheme."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from seglog.errors import KafkaStorageError
from seglog.objects.store_options import StorageOptions
from seglog.objects.urls import ObjectUrl, parse_url

__all__ = ["Block", "ObjectInfo", "ObjectStore", "ObjectVersion", "StoreError", "open_store"]


#: Prefixes of client settings in the environment.
_CLIENT_VARIABLES: Final = ("AWS_", "GOOGLE_", "AZURE_", "HADOOP_", "FSSPEC_")


class Block(Protocol):
    """Bytes from a client: a buffer with a length."""

    def __len__(self) -> int: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...


class ObjectVersion(NamedTuple):
    """One version of an object: its size in bytes and, if the store reports them, its entity tag
    and modification time (ms since 1970). Reading a different version is an error."""

    size: int
    etag: str | None = None
    modified_ms: int | None = None

    def is_content_of(self, other: ObjectVersion) -> bool:
        """Whether both are the same version, compared by what both report."""
        if self.size != other.size:
            return False
        if self.etag is not None and other.etag is not None:
            return self.etag == other.etag
        return (self.modified_ms is None or other.modified_ms is None
                or self.modified_ms == other.modified_ms)


class ObjectInfo(NamedTuple):
    """An object in a listing."""

    key: str
    version: ObjectVersion


class StoreError(Exception):
    """A request that failed. `is_missing`: the object does not exist. `may_pass`: a retry may
    succeed. The message is the client's, without credentials."""

    def __init__(self, reason: str, *, is_missing: bool = False, may_pass: bool = False) -> None:
        super().__init__(reason)
        self.is_missing, self.may_pass = is_missing, may_pass


class ObjectStore(Protocol):
    """Objects of one container, by key. Thread-safe. Calls may wait for the network, without the
    GIL if the client supports it. Raises StoreError for every failure."""

    def list(self, prefix: str) -> tuple[list[ObjectInfo], list[str]]:
        """The objects and the prefixes directly below `prefix` (a key, "" for the container), as
        full keys."""

    def size(self, key: str) -> ObjectVersion:
        """The version of the object at `key`."""

    def read(self, key: str, start: int, end: int) -> tuple[Block, ObjectVersion]:
        """Bytes [start, end) of an object, fewer at its end, and the version read."""

    def write(self, key: str, content: bytes | Path) -> None:
        """Makes an object of bytes, or of a local file; replaces what was there. An object is there
        whole or not at all, as far as the store can."""

    def delete(self, key: str) -> None:
        """Removes an object. No error where there is none."""

    def sweep(self, prefix: str) -> None:
        """Removes what broken writes left of objects whose key begins with `prefix`: parts of
        uploads, temporary files. Not for use while such an object is written."""


class _Adapters(Protocol):
    def __call__(self, url: ObjectUrl, options: StorageOptions) -> ObjectStore: ...


def open_store(url: str, options: StorageOptions) -> ObjectStore:
    """The store of a URL's container. Raises KafkaStorageError if its client is not installed, does
    not know the scheme or refuses the options.

    Readers of one container with the same options and environment share a client and its
    connections.
    """
    surroundings = frozenset((name, value) for name, value in os.environ.items()
                             if name.upper().startswith(_CLIENT_VARIABLES))
    return _opened(url, frozenset(options.items()), surroundings, os.getpid())


@lru_cache(maxsize=32)
def _opened(url: str, options: frozenset[tuple[str, str]],
            surroundings: frozenset[tuple[str, str]], pid: int) -> ObjectStore:
    """The cached client for this URL, options, environment and process."""
    parsed, given = parse_url(url), StorageOptions(dict(options))
    try:
        return _adapter(parsed)(parsed, given)
    except KafkaStorageError:
        raise
    except ModuleNotFoundError as error:
        extra = parsed.scheme if parsed.scheme in ("s3", "gs", "az", "hdfs") else "fsspec"
        raise KafkaStorageError(
            errno.ENOPKG if hasattr(errno, "ENOPKG") else errno.EINVAL,
            f"reading {parsed.scheme}:// needs {error.name}: pip install 'seglog[{extra}]'",
            parsed.root) from None


def _adapter(url: ObjectUrl) -> _Adapters:
    if url.scheme in ("s3", "gs", "az"):
        from seglog.objects.obstore_store import ObstoreStore

        return ObstoreStore
    from seglog.objects.fsspec_store import FsspecStore

    return FsspecStore


def parents(keys: Iterator[str], prefix: str) -> list[str]:
    """The prefixes directly below `prefix` that contain keys."""
    start = f"{prefix}/" if prefix else ""
    return sorted({start + key[len(start):].partition("/")[0] for key in keys
                   if key.startswith(start) and "/" in key[len(start):]})
