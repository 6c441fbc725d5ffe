"""A small S3 server that injects the faults of a real one, in milliseconds.

It serves files below a directory as `/bucket/key` (GET with a range, HEAD, list of type 2 with a
delimiter; PUT, DELETE and uploads in parts). It checks no signature, but the signed SHA-256 of what
it gets. `fault(request)` returns the fault of a request.
"""

from __future__ import annotations

import hashlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

__all__ = ["Asked", "Faulty", "serve_faulty"]


_BROKEN = b"<Error><Code>Broken</Code><Message>to order</Message></Error>"


@dataclass(frozen=True)
class Asked:
    """One request: its method, key ("" for a list) and range."""

    method: str
    key: str
    start: int = 0
    end: int = 0
    number: int = 0  # earlier occurrences of the same request


@dataclass
class Faulty:
    """A running server: its port, its requests and its faults.

    A fault is None (nothing), a status, "reset", "stall" (longer than a client waits), "cut" (fewer
    bytes than announced) or "short" (fewer bytes than requested, and announced as such); of a write
    also "lost" (done, and the answer never comes) and "flip" (a byte changes on its way). Lists
    leave out the keys that `is_listed` does.
    """

    root: Path
    port: int = 0
    fault: Callable[[Asked], int | str | None] = lambda asked: None
    etag: Callable[[Path], str] = lambda path: f"{path.stat().st_mtime_ns:x}"
    is_listed: Callable[[str], bool] = lambda key: True
    parts: dict[str, tuple[str, dict[int, bytes]]] = field(default_factory=dict)  # by upload
    quote: str = '"'  # around entity tags in a list; Azure uses none
    asked: list[Asked] = field(default_factory=list)
    stall_seconds: float = 2.0
    continuation: str = ""  # every page of a list ends with this token, and none is the last
    is_noting: bool = True  # `asked` gets every request
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, method: str, key: str, start: int, end: int) -> Asked:
        """Counts a request."""
        if not self.is_noting:
            return Asked(method, key, start, end)
        with self.lock:
            number = sum((one.method, one.key, one.start, one.end) == (method, key, start, end)
                         for one in self.asked)
            asked = Asked(method, key, start, end, number)
            self.asked.append(asked)
            return asked


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: 40 ms for each answer else
    faulty: Faulty

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr."""

    def do_HEAD(self) -> None:
        self._serve("HEAD")

    def do_GET(self) -> None:
        self._serve("GET")

    def do_PUT(self) -> None:
        self._change("PUT")

    def do_POST(self) -> None:
        self._change("POST")

    def do_DELETE(self) -> None:
        self._change("DELETE")

    def _change(self, method: str) -> None:
        """A write, of an object or of a part of one."""
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, True).items()}
        key = unquote(url.path).lstrip("/")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.faulty.fault(self.faulty.note(
            method, key.partition("/")[2], int(query.get("partNumber", 0)), len(body)))
        if fault == "flip" and body:
            body = bytes((body[0] ^ 1,)) + body[1:]
        if fault == "stall":
            time.sleep(self.faulty.stall_seconds)
            self.close_connection = True
        elif fault == "reset":
            self._reset()
        elif isinstance(fault, int):
            self._answer(fault, _BROKEN)
        elif body and hashlib.sha256(body).hexdigest() != self.headers["x-amz-content-sha256"]:
            self._answer(400, b"<Error><Code>XAmzContentSHA256Mismatch</Code>"
                              b"<Message>not what was signed</Message></Error>")
        else:
            done = self._apply(method, key, query, body)
            if fault == "lost":
                self._reset()
            elif done is None:
                self._answer(404, b"<Error><Code>NoSuchUpload</Code><Message>?</Message></Error>")
            else:
                self._answer(204 if method == "DELETE" else 200, done[1], done[0])

    def _apply(self, method: str, key: str, query: dict[str, str], body: bytes
               ) -> tuple[str, bytes] | None:
        """The entity tag and the body of the answer; None for an upload that is not known."""
        path, parts = self.faulty.root / key, self.faulty.parts
        with self.faulty.lock:
            if query.get("uploadId", "") not in {"", *parts}:
                return None
            if "delete" in query:
                gone = [unescape(one) for one in re.findall(r"<Key>([^<]*)</Key>", body.decode())]
                for one in gone:
                    (path / one).unlink(missing_ok=True)
                return "", ("<DeleteResult>" + "".join(
                    f"<Deleted><Key>{escape(one)}</Key></Deleted>" for one in gone)
                    + "</DeleteResult>").encode()
            if "uploads" in query:
                upload = f"upload{len(parts)}"
                parts[upload] = key.partition("/")[2], {}
                return "", (f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>"
                            "</InitiateMultipartUploadResult>").encode()
            upload = query.get("uploadId", "")
            if method == "PUT" and upload:
                parts[upload][1][int(query["partNumber"])] = body
            elif method == "PUT":
                self._put(path, body)
            elif method == "POST":
                taken = parts.pop(upload)[1]
                self._put(path, b"".join(taken[number] for number in sorted(taken)))
                return "", (b"<CompleteMultipartUploadResult><ETag>whole</ETag>"
                            b"</CompleteMultipartUploadResult>")
            elif upload:
                parts.pop(upload, None)
            else:
                path.unlink(missing_ok=True)
        return hashlib.md5(body).hexdigest(), b""

    def _put(self, path: Path, body: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def _serve(self, method: str) -> None:
        url = urlsplit(self.path)
        key = unquote(url.path).lstrip("/").partition("/")[2]
        path = self.faulty.root / unquote(url.path).lstrip("/")
        size = path.stat().st_size if path.is_file() else 0
        start, end = 0, size
        if asked_range := self.headers.get("Range"):
            first, _, last = asked_range.removeprefix("bytes=").partition("-")
            start, end = int(first), min(size, int(last) + 1)
        fault = self.faulty.fault(self.faulty.note(method, key, start, end))
        if fault == "reset":
            self._reset()
        elif fault == "stall":
            time.sleep(self.faulty.stall_seconds)
            self.close_connection = True
        elif isinstance(fault, int):
            self._answer(fault, _BROKEN)
        elif not key and "uploads" in parse_qs(url.query, True):
            self._answer(200, self._unfinished(parse_qs(url.query, True).get("prefix", [""])[0]))
        elif not key and not path.is_dir():
            self._answer(404, b"<Error><Code>NoSuchBucket</Code><Message>?</Message></Error>")
        elif not key:
            self._answer(200, self._listing(path, parse_qs(url.query).get("prefix", [""])[0]))
        elif not path.is_file():
            self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>")
        elif start >= size and asked_range:
            self._answer(416, b"<Error><Code>InvalidRange</Code><Message>no</Message></Error>")
        else:
            self._send(method, path, start, end, size, fault)

    def _send(self, method: str, path: Path, start: int, end: int, size: int,
              fault: str | None) -> None:
        with path.open("rb") as stream:
            stream.seek(start)
            data = stream.read(end - start) if method == "GET" else b""
        if fault == "short" and method == "GET":
            data = data[:len(data) // 2]
            end = start + len(data)
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("Content-Length", str(end - start))
        if "Range" in self.headers:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.send_header("ETag", f'"{self.faulty.etag(path)}"')
        self.send_header("Last-Modified", "Sun, 22 Nov 2026 12:00:00 GMT")
        self.end_headers()
        if fault == "cut":
            data = data[:len(data) // 2]
            self.close_connection = True
        self.wfile.write(data)

    def _unfinished(self, prefix: str) -> bytes:
        with self.faulty.lock:
            found = [(key, upload) for upload, (key, _) in self.faulty.parts.items()
                     if key.startswith(prefix)]
        return ("<ListMultipartUploadsResult>" + "".join(
            f"<Upload><Key>{escape(key)}</Key><UploadId>{upload}</UploadId></Upload>"
            for key, upload in found) + "</ListMultipartUploadsResult>").encode()

    def _listing(self, bucket: Path, prefix: str) -> bytes:
        folder = bucket / prefix
        parts = []
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            key = escape(f"{prefix}{path.name}")
            if path.is_dir():
                parts.append(f"<CommonPrefixes><Prefix>{key}/</Prefix></CommonPrefixes>")
            elif self.faulty.is_listed(f"{prefix}{path.name}"):
                parts.append(
                    f"<Contents><Key>{key}</Key><Size>{path.stat().st_size}</Size>"
                    f"<ETag>{self.faulty.quote}{self.faulty.etag(path)}{self.faulty.quote}</ETag>"
                    "<LastModified>2026-11-22T12:00:00.000Z</LastModified></Contents>")
        token = self.faulty.continuation
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}" \
            "</NextContinuationToken>" if token else "<IsTruncated>false</IsTruncated>"
        return (f"<ListBucketResult>{more}"
                f"{''.join(parts)}</ListBucketResult>").encode()

    def _answer(self, status: int, body: bytes, tag: str = "") -> None:
        self.send_response(status)
        if tag:
            self.send_header("ETag", f'"{tag}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that disconnect."""


@contextmanager
def serve_faulty(root: Path) -> Iterator[Faulty]:
    """Serves the directories below `root` as buckets."""
    faulty = Faulty(root)
    server = _Server(("127.0.0.1", 0), type("_", (_Handler,), {"faulty": faulty}))
    faulty.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield faulty
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
