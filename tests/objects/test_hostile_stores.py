"""Stores that answer with what no store should: each answer is one typed error, or none."""

from __future__ import annotations

import os
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import KafkaStorageError
from seglog.objects import StorageOptions, directory_store
from seglog.objects.directory_store import DirectoryStore
from seglog.objects.requests import Requests
from seglog.objects.s3_uploads import S3Uploads
from seglog.objects.store import ObjectInfo, ObjectVersion, StoreError
from seglog.objects.urls import parse_url
from tests.objects.faulty import Faulty
from tests.objects.server import options_of


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


class _Cached(_System):
    """One file, of which listings are kept until they are invalidated."""

    def __init__(self) -> None:
        self.content, self.version = b"old bytes", 1
        self.kept: dict[str, Any] | None = None

    def invalidate_cache(self, path: str) -> None:
        if path == "/place":
            self.kept = None

    def info(self, path: str) -> dict[str, Any]:
        if self.kept is None:
            self.kept = {"name": path, "type": "file", "size": 9, "ETag": str(self.version)}
        return self.kept

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        return [self.info("/place/a.log")]

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        return self.content[start:end]

    def replace(self) -> None:
        self.content, self.version = b"new bytes", 2


class _Replaced(_Cached):
    """The file is replaced just when it is read."""

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        self.replace()
        return super().cat_file(path, start, end)


@pytest.mark.parametrize("system", [_Cached, _Replaced])
def test_fsspec_reads_a_file_that_is_replaced(system: type[_Cached]) -> None:
    """The bytes of one version never pass for those of another."""
    pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'seglog[fsspec]'")
    from seglog.objects.fsspec_store import FsspecStore

    store = FsspecStore(parse_url("memory://place"), StorageOptions())
    found = store._system = system()
    store._root = "/place"
    (listed,), _ = store.list("")
    if system is _Cached:
        found.replace()
    assert not store.read("a.log", 0, 9)[1].is_content_of(listed.version)
    assert not store.size("a.log").is_content_of(listed.version)
    (again,), _ = store.list("")
    content, version = store.read("a.log", 0, 9)
    assert content == b"new bytes" and version == again.version


def test_obstore_lists_what_is_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    obstore = pytest.importorskip(
        "obstore", reason="obstore is not installed: pip install 'seglog[s3]'")
    from seglog.objects.obstore_store import ObstoreStore

    store = ObstoreStore(parse_url("s3://place"), StorageOptions({"aws_skip_signature": "true"}))
    wrong = {"path": "a.log", "size": 1, "e_tag": None, "last_modified": None}
    async def answer(*given: object) -> dict[str, list[object]]:
        return {"objects": [wrong], "common_prefixes": []}

    monkeypatch.setattr(obstore, "list_with_delimiter_async", answer)
    monkeypatch.setattr(obstore, "head", lambda *given: wrong)
    with pytest.raises(StoreError):
        store.list("")
    with pytest.raises(StoreError):
        store.size("a.log")


def test_pages_of_a_list_that_lead_in_a_circle(
        faulty: Faulty, hasty: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page names the next one."""
    from seglog.objects import obstore_store

    (faulty.root / "data" / "orders-0").mkdir(parents=True)
    faulty.continuation = "again"
    monkeypatch.setattr(obstore_store, "LIST_SECONDS_MAX", 1)
    store = obstore_store.ObstoreStore(parse_url("s3://data"), StorageOptions(hasty))
    with pytest.raises(StoreError, match="did not end in 1 seconds") as caught:
        store.list("orders-0")
    assert not caught.value.may_pass and len(faulty.asked) > 1
    faulty.continuation = ""
    assert store.list("orders-0") == ([], [])


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


@contextmanager
def answering(answer: bytes, *, is_slow: bool = False) -> Iterator[int]:
    """The port of a server that answers everything with these bytes; a slow one without end, a byte
    at a time."""
    is_done = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.request.sendall(answer)
            while is_slow and not is_done.wait(0.2):
                try:
                    self.request.sendall(b" ")
                except OSError:
                    break

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server.server_address[1]
        is_done.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("answer", [
    b"no status line\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", b"",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<a>&b",
    b"HTTP/1.1 302 Found\r\nLocation: nonsense://\r\nContent-Length: 0\r\n\r\n",
], ids=["status line", "length", "nothing", "chunks", "headers", "document", "redirect"])
def test_uploads_of_a_server_that_speaks_otherwise(answer: bytes) -> None:
    with answering(answer) as port:
        uploads = S3Uploads(parse_url("s3://place"), StorageOptions(options_of(port)))
        with pytest.raises(StoreError, match="unfinished uploads"):
            uploads.unfinished("orders-0")


def test_an_endpoint_that_is_none() -> None:
    options = {**options_of(1), "aws_endpoint": "localhost:9000", "aws_endpoint_url": "localhost"}
    with pytest.raises(StoreError, match="unfinished uploads"):
        S3Uploads(parse_url("s3://place"), StorageOptions(options)).unfinished("orders-0")


def test_uploads_of_a_server_that_never_ends() -> None:
    """Each byte comes within the time that one read may take."""
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n", is_slow=True) as port:
        uploads = S3Uploads(parse_url("s3://place"), StorageOptions({
            **options_of(port), "request_timeout_seconds": "1"}))
        with pytest.raises(StoreError, match="TimeoutError"):
            uploads.unfinished("orders-0")
