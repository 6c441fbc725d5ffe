"""Uploads in parts that were broken off, which S3 keeps (and bills) until they are aborted.

obstore neither lists nor aborts them, so these two requests are signed here (AWS Signature Version
4).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
import urllib.error
import urllib.request
from datetime import datetime, UTC
from http.client import HTTPException
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from seglog.objects.store import StoreError
from seglog.objects.store_options import StorageOptions
from seglog.objects.urls import ObjectUrl

__all__ = ["S3Uploads"]

_ANSWER_BYTES_MAX: Final = 4 << 20
_PIECE_BYTES: Final = 1 << 16
#: What urllib raises; ValueError for an endpoint that is no URL, or a chunk without a length.
_FAILURES: Final = (OSError, HTTPException, ValueError)
_EMPTY: Final = hashlib.sha256(b"").hexdigest()


class _Keys(NamedTuple):
    access: str
    secret: str
    token: str | None


class S3Uploads:
    """The unfinished uploads of a bucket.

    Keys come from the options or the environment, as obstore's do. Without them (an instance
    profile, a web identity) nothing is swept: a lifecycle rule of the bucket
    (AbortIncompleteMultipartUpload) does it then.
    """

    def __init__(self, url: ObjectUrl, options: StorageOptions) -> None:
        known = {name.lower().removeprefix("aws_"): value for name, value in os.environ.items()
                 if name.lower().startswith("aws_")}
        known.update((name.removeprefix("aws_"), value)
                     for name, value in options.client().items())

        def first(*names: str) -> str | None:
            return next((known[name] for name in names if known.get(name)), None)

        access, secret = first("access_key_id"), first("secret_access_key")
        self._keys = None if access is None or secret is None else _Keys(
            access, secret, first("session_token", "token"))
        self._region = first("region", "default_region") or "us-east-1"
        endpoint = first("endpoint_url_s3", "endpoint_url", "endpoint") \
            or f"https://s3.{self._region}.amazonaws.com"
        self._endpoint = endpoint.rstrip("/")
        self._bucket = url.root.partition("://")[2]
        self._timeout = options.request_timeout_seconds

    def abort(self, prefix: str) -> None:
        """Aborts the unfinished uploads of objects whose key begins with `prefix`. StoreError."""
        for key, upload in self.unfinished(prefix):
            try:
                self._ask("DELETE", key, {"uploadId": upload})
            except urllib.error.HTTPError as error:
                if error.code != 404:  # it ended meanwhile
                    raise _failure(error) from None
            except _FAILURES as error:
                raise _failure(error) from None

    def unfinished(self, prefix: str) -> list[tuple[str, str]]:
        """Key and id of each of them; at most a thousand. StoreError."""
        if self._keys is None:
            return []
        try:
            answer = self._ask("GET", "", {"uploads": "", "prefix": prefix})
            document = ElementTree.fromstring(answer)
        except (*_FAILURES, ElementTree.ParseError) as error:
            raise _failure(error) from None
        found = []
        for element in document.iter():
            if element.tag.rpartition("}")[2] == "Upload":
                fields = {child.tag.rpartition("}")[2]: child.text or "" for child in element}
                key, upload = fields.get("Key", ""), fields.get("UploadId", "")
                if upload and key.startswith(prefix):
                    found.append((key, upload))
        return found

    def _ask(self, method: str, key: str, query: dict[str, str]) -> bytes:
        assert self._keys is not None
        base = urlsplit(self._endpoint)
        path = f"{base.path}/{quote(self._bucket)}" + (f"/{quote(key)}" if key else "")
        asked = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}"
                         for name, value in sorted(query.items()))
        headers = _signed(self._keys, self._region, method, base.netloc, path, asked)
        request = urllib.request.Request(f"{base.scheme}://{base.netloc}{path}?{asked}",
                                         method=method, headers=headers)
        try:
            opened = urllib.request.urlopen(request, timeout=self._timeout)
        except urllib.error.HTTPError as error:
            error.close()  # it holds the connection
            raise
        with opened as answer:
            content = bytearray()
            deadline = time.monotonic() + self._timeout  # urllib's is that of one read
            while len(content) < _ANSWER_BYTES_MAX and (piece := answer.read1(_PIECE_BYTES)):
                content += piece
                if time.monotonic() > deadline:
                    raise TimeoutError
            return bytes(content)


def _signed(keys: _Keys, region: str, method: str, host: str, path: str, query: str
            ) -> dict[str, str]:
    """The headers of a request without a body, signed."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": host, "x-amz-content-sha256": _EMPTY, "x-amz-date": now}
    if keys.token is not None:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join((method, path, query, lines, names, _EMPTY))
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope}, "
                                f"SignedHeaders={names}, Signature={signature}")
    return headers


def _failure(error: Exception) -> StoreError:
    reason = f"HTTP status {error.code}" if isinstance(error, urllib.error.HTTPError) \
        else type(error).__name__
    return StoreError(f"unfinished uploads: {reason}")
