"""What readers ask of a store, and who answers for which URL."""

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


#: Settings of clients in the environment begin so.
_CLIENT_VARIABLES: Final = ("AWS_", "GOOGLE_", "AZURE_", "HADOOP_", "FSSPEC_")


class Block(Protocol):
    """Bytes that a client gave: a buffer with a length."""

    def __len__(self) -> int: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...


class ObjectVersion(NamedTuple):
    """Which content of an object was seen: its size in bytes, its entity tag if the store has such,
    and when it was written, in ms since 1970, if the store tells. A read of another content is an
    error."""

    size: int
    etag: str | None = None
    modified_ms: int | None = None

    def is_content_of(self, other: ObjectVersion) -> bool:
        """Whether two looks saw the same content, as far as both tell."""
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
    """A request that failed. `is_missing`: there is no such object. `may_pass`: another try may go
    well. The text is the client's, without credentials."""

    def __init__(self, reason: str, *, is_missing: bool = False, may_pass: bool = False) -> None:
        super().__init__(reason)
        self.is_missing, self.may_pass = is_missing, may_pass


class ObjectStore(Protocol):
    """Objects of one container, by key. Safe from any thread; each call may wait for the network,
    without the GIL where the client can. StoreError for all that goes wrong."""

    def list(self, prefix: str) -> tuple[list[ObjectInfo], list[str]]:
        """The objects directly below `prefix` (a key, "" for the container), and the prefixes of
        those further down; keys are whole."""

    def size(self, key: str) -> ObjectVersion:
        """What there is under a key."""

    def read(self, key: str, start: int, end: int) -> tuple[Block, ObjectVersion]:
        """Bytes [start, end) of an object, fewer where it ends, and the version that they are
        of."""

    def write(self, key: str, content: bytes | Path) -> None:
        """Makes an object of bytes, or of a local file; replaces what was there. An object is there
        whole or not at all, as far as the store can."""

    def delete(self, key: str) -> None:
        """Removes an object. No error where there is none."""


class _Adapters(Protocol):
    def __call__(self, url: ObjectUrl, options: StorageOptions) -> ObjectStore: ...


def open_store(url: str, options: StorageOptions) -> ObjectStore:
    """The store of a URL's container. KafkaStorageError, in one sentence, where its client is not
    installed, knows no such scheme or refuses the options.

    Readers of one container with the same options and environment share a client, and so its
    connections.
    """
    surroundings = frozenset((name, value) for name, value in os.environ.items()
                             if name.upper().startswith(_CLIENT_VARIABLES))
    return _opened(url, frozenset(options.items()), surroundings, os.getpid())


@lru_cache(maxsize=32)
def _opened(url: str, options: frozenset[tuple[str, str]],
            surroundings: frozenset[tuple[str, str]], pid: int) -> ObjectStore:
    """A client that the environment of before has made, or that was forked, is not the same."""
    parsed, given = parse_url(url), StorageOptions(dict(options))
    try:
        return _adapter(parsed)(parsed, given)
    except KafkaStorageError:
        raise
    except ModuleNotFoundError as error:
        raise KafkaStorageError(
            errno.ENOPKG if hasattr(errno, "ENOPKG") else errno.EINVAL,
            f"reading {parsed.scheme}:// needs {error.name}: pip install "
            f"'seglog[{_extra(parsed.scheme)}]'", parsed.root) from None


def _adapter(url: ObjectUrl) -> _Adapters:
    if url.scheme in ("s3", "gs", "az"):
        from seglog.objects.obstore_store import ObstoreStore

        return ObstoreStore
    from seglog.objects.fsspec_store import FsspecStore

    return FsspecStore


def _extra(scheme: str) -> str:
    return scheme if scheme in ("s3", "gs", "az", "hdfs") else "fsspec"


def parents(keys: Iterator[str], prefix: str) -> list[str]:
    """The prefixes directly below `prefix` under which keys lie."""
    start = f"{prefix}/" if prefix else ""
    return sorted({start + key[len(start):].partition("/")[0] for key in keys
                   if key.startswith(start) and "/" in key[len(start):]})
