"""Stores that answer with what no store should: each answer is one typed error, or none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import KafkaStorageError
from seglog.objects import StorageOptions, directory_store
from seglog.objects.directory_store import DirectoryStore
from seglog.objects.requests import Requests
from seglog.objects.store import ObjectInfo, ObjectVersion, StoreError
from seglog.objects.urls import parse_url


class _System:
    """A file system of fsspec with these entries."""

    def __init__(self, *entries: dict[str, Any]) -> None:
        self.entries = entries

    def invalidate_cache(self, path: str) -> None:
        """Nothing is cached."""

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        return list(self.entries)

    def info(self, path: str) -> dict[str, Any]:
        return self.entries[0]


@pytest.mark.parametrize("entry", [
    {"name": "/place/a.log", "type": "file", "size": None},
    {"name": "/place/a.log", "type": "file", "size": -1},
    {"name": "/place/a.log", "type": "file"},
    {"name": "/place/a.log", "size": 1},
    {"name": None, "type": "file", "size": 1},
    {"name": "/place/a.log", "type": "file", "size": 1, "mtime": float("nan")},
], ids=repr)
def test_fsspec_lists_what_is_no_entry(entry: dict[str, Any]) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'seglog[fsspec]'")
    from seglog.objects.fsspec_store import FsspecStore

    store = FsspecStore(parse_url("memory://place"), StorageOptions())
    store._system = _System({"name": "/place/b.log", "type": "file", "size": 1}, entry)
    with pytest.raises(StoreError):
        store.list("")


def test_obstore_lists_what_is_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    obstore = pytest.importorskip(
        "obstore", reason="obstore is not installed: pip install 'seglog[s3]'")
    from seglog.objects.obstore_store import ObstoreStore

    store = ObstoreStore(parse_url("s3://place"), StorageOptions({"aws_skip_signature": "true"}))
    wrong = {"path": "a.log", "size": 1, "e_tag": None, "last_modified": None}
    monkeypatch.setattr(obstore, "list_with_delimiter",
                        lambda *given: {"objects": [wrong], "common_prefixes": []})
    monkeypatch.setattr(obstore, "head", lambda *given: wrong)
    with pytest.raises(StoreError):
        store.list("")
    with pytest.raises(StoreError):
        store.size("a.log")


def test_a_directory_that_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                            ) -> None:
    def refusing(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(directory_store.os, "scandir", refusing)
    with pytest.raises(KafkaStorageError, match="Permission denied"):
        Requests(DirectoryStore(tmp_path), StorageOptions()).list("", str(tmp_path))


def test_a_file_of_a_directory_that_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                  ) -> None:
    os.symlink("loop", tmp_path / "loop")
    with pytest.raises(StoreError, match="Too many levels"):
        DirectoryStore(tmp_path).list("")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_no_object(tmp_path: Path, make: Any) -> None:
    """A read of a named pipe would wait for a writer."""
    make(tmp_path / "0.log")
    store = DirectoryStore(tmp_path)
    with pytest.raises(StoreError) as caught:
        store.size("0.log")
    assert caught.value.is_missing
    with pytest.raises(StoreError):
        store.read("0.log", 0, 1)


def test_a_listing_of_other_keys() -> None:
    """Names were cut out of them."""

    class Store(DirectoryStore):
        def list(self, prefix: str) -> tuple[list[ObjectInfo], list[str]]:
            keys = ("data/orders-0/1.log", "data/others-0/2.log", "data/orders-0", "3.log",
                    "data/orders-0/")
            return [ObjectInfo(key, ObjectVersion(1)) for key in keys], list(keys)

    requests = Requests(Store("/"), StorageOptions())
    assert requests.list("data/orders-0", "s3://bucket/data/orders-0") == (
        {"1.log": ObjectVersion(1)}, ["1.log"])
