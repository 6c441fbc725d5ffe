"""The objects of a remote tier below one path or URL: listed, read, written, deleted."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seglog.errors import KafkaStorageError
from seglog.objects.directory_store import DirectoryStore
from seglog.objects.store_options import StorageOptions
from seglog.objects.requests import Requests
from seglog.objects.store import Block, ObjectVersion
from seglog.objects.urls import is_url, parse_url
from seglog.storage.log_store import Files, absolute, files_of, place_of
from seglog.storage.remote import RemoteFiles

__all__ = ["ListedTree", "RemoteTree"]


class RemoteTree:
    """Objects by their key below `root`: a local directory, or the URL of one in a store.

    For any thread. A pickle holds the options, which may be secrets. Each method raises
    KafkaStorageError, with the path or URL of the object.
    """

    def __init__(self, root: str | os.PathLike[str],
                 storage_options: StorageOptions | Mapping[str, str] | None = None) -> None:
        self.root = absolute(place_of(root)).rstrip("/") or "/"
        self.options = storage_options if isinstance(storage_options, StorageOptions) \
            else StorageOptions(storage_options)
        self.files: Files = files_of(self.root, self.options)
        self._prefix = parse_url(self.root).key if is_url(self.root) else ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickling creates a new client."""
        return (type(self), (self.root, self.options))

    def __repr__(self) -> str:
        return f"RemoteTree({self.root!r})"

    def below(self, key: str) -> RemoteTree:
        """The tree of a directory in this one."""
        return RemoteTree(self.path(key), self.options)

    def path(self, key: str) -> str:
        """The path or URL of an object."""
        return posixpath.join(self.root, key) if key else self.root

    @property
    def _requests(self) -> Requests:
        if isinstance(self.files, RemoteFiles):
            return self.files.requests
        return Requests(DirectoryStore(self.root), self.options)

    def _key(self, key: str) -> str:
        """The key in the store. Keys may come from records, whose topic names nothing checked."""
        if key.startswith("/") or ".." in key.split("/") or "\0" in key:
            raise KafkaStorageError(errno.EINVAL, "not the name of an object below this directory",
                                    self.path(key))
        return f"{self._prefix}/{key}".strip("/")

    def list(self, key: str = "") -> tuple[dict[str, ObjectVersion], list[str]]:
        """Names and versions of the objects directly below a key, and the names of directories;
        empty if there is nothing."""
        return self._requests.list(self._key(key), self.path(key))

    def version(self, key: str) -> ObjectVersion:
        """Size and entity tag of an object."""
        return self._requests.version(self._key(key), self.path(key))

    def read(self, key: str, start: int, end: int, version: ObjectVersion) -> Block:
        """Exactly bytes [start, end) of that version of an object."""
        return self._requests.read(self._key(key), start, end, version, self.path(key))

    def beginning(self, key: str, bytes_max: int) -> tuple[Block, int] | None:
        """The first bytes of an object and its size; None if there is none."""
        return self._requests.beginning(self._key(key), self.path(key), bytes_max)

    def write(self, key: str, content: bytes | Path) -> None:
        """Creates or replaces an object. On a file system it is durable on return."""
        self._requests.write(self._key(key), content, self.path(key))

    def delete(self, key: str) -> None:
        """Deletes an object, if it exists."""
        self._requests.delete(self._key(key), self.path(key))

    def sweep(self, prefix: str) -> None:
        """Removes what broken writes left of objects whose key begins with `prefix`."""
        self._requests.sweep(self._key(prefix), self.path(prefix))


class ListedTree(RemoteTree):
    """A tree that lists each directory once: while a layout is detected, and the first partition
    looked up. For one thread."""

    def __init__(self, tree: RemoteTree) -> None:
        super().__init__(tree.root, tree.options)
        self._tree = tree
        self._listed: dict[str, tuple[dict[str, ObjectVersion], list[str]]] = {}

    def list(self, key: str = "") -> tuple[dict[str, ObjectVersion], list[str]]:
        """See RemoteTree: as of the first call."""
        if key not in self._listed:
            self._listed[key] = self._tree.list(key)
        return self._listed[key]
