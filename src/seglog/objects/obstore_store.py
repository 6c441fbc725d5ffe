"""S3, Google Cloud Storage and Azure Blob Storage through obstore, which waits without the GIL."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import obstore
from obstore import exceptions
from obstore.store import from_url

from seglog.errors import ForkedProcessError, KafkaStorageError
from seglog.objects.s3_uploads import S3Uploads
from seglog.objects.store_options import StorageOptions
from seglog.objects.store import Block, ObjectInfo, ObjectVersion, StoreError
from seglog.objects.urls import ObjectUrl

__all__ = ["ObstoreStore"]

#: The longest that the pages of one list may take: of millions of objects it is some minutes.
LIST_SECONDS_MAX: Final = 3600
# Settings of obstore's HTTP client; all other names belong to the store's configuration.
_CLIENT: Final = frozenset((
    "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only",
    "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes",
    "proxy_url", "timeout", "user_agent",
))
_FLAGS: Final = frozenset(("allow_http", "allow_invalid_certificates", "http1_only", "http2_only"))
#: Error messages of failures that a retry may resolve: of an answer its status alone.
_PASSING: Final = re.compile(
    r"timed? ?out|connect|reset|closed|incomplete|eof|error sending|decoding|"
    r"request or response body|requested \d+\.\.\d+, got", re.IGNORECASE)
_STATUS: Final = re.compile(r"status code: (\d+)")
_PASSING_STATUSES: Final = ("429", "500", "502", "503", "504")

#: The process whose threads obstore has, from the first request on. In a forked child it would wait
#: for them for ever.
_process: int | None = None
_FORKED: Final = (
    "Its threads are not in a forked child: read buckets in the children alone, or start the "
    "children with the method spawn or forkserver of multiprocessing.")


class ObstoreStore:
    """One bucket or container."""

    def __init__(self, url: ObjectUrl, options: StorageOptions) -> None:
        given = options.client()
        client: dict[str, Any] = {name: given.pop(name) for name in _CLIENT & given.keys()}
        for name in _FLAGS & client.keys():
            client[name] = client[name].strip().lower() == "true"
        client.setdefault("timeout", timedelta(seconds=options.request_timeout_seconds))
        client.setdefault("connect_timeout", timedelta(seconds=min(
            10, options.request_timeout_seconds)))
        # An http:// endpoint is explicit permission.
        if any(text.lower().startswith("http://") for text in _endpoints(given)):
            client.setdefault("allow_http", True)
        retries: dict[str, Any] = {
            "max_retries": options.max_retries,
            "retry_timeout": timedelta(seconds=options.retry_timeout_seconds),
            "backoff": {"init_backoff": timedelta(milliseconds=100),
                        "max_backoff": timedelta(seconds=5), "base": 2},
        }
        root = f"{url.scheme}://{url.root.partition('://')[2]}"
        make: Any = from_url  # its overloads list every key of every store
        try:
            self._store = make(root, config=given or None, client_options=client,
                               retry_config=retries)
        except Exception as error:
            raise KafkaStorageError(errno.EINVAL, _reason(error, options), url.root) from None
        self._options = options
        self._uploads = S3Uploads(url, options) if url.scheme == "s3" else None

    def list(self, prefix: str) -> tuple[list[ObjectInfo], list[str]]:
        """See ObjectStore."""
        with self._store_errors():
            found = self._listed(prefix)
            return ([ObjectInfo(meta["path"], _version(meta))
                     for meta in found["objects"]], list(found["common_prefixes"]))

    def _listed(self, prefix: str) -> Any:
        """obstore's list. It follows the store's tokens from page to page by itself, also where
        they lead in a circle: only its task can be cancelled. An event loop of a thread of its own
        has it, because the caller's may have a loop."""
        answer: Future[Any] = Future()

        async def ask() -> Any:
            return await asyncio.wait_for(
                obstore.list_with_delimiter_async(self._store, prefix or None), LIST_SECONDS_MAX)

        def run() -> None:
            try:
                answer.set_result(asyncio.run(ask()))
            except TimeoutError:
                answer.set_exception(StoreError(
                    f"the list did not end in {LIST_SECONDS_MAX} seconds"))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=run, name="seglog-list", daemon=True).start()
        return answer.result()

    def size(self, key: str) -> ObjectVersion:
        """See ObjectStore."""
        with self._store_errors():
            return _version(obstore.head(self._store, key))

    def read(self, key: str, start: int, end: int) -> tuple[Block, ObjectVersion]:
        """See ObjectStore."""
        with self._store_errors():
            result = obstore.get(self._store, key, options={"range": (start, end)})
            return result.bytes(), _version(result.meta)

    def write(self, key: str, content: bytes | Path) -> None:
        """See ObjectStore. A large file goes in parts, and appears when the last one is there."""
        with self._store_errors():
            try:
                obstore.put(self._store, key, content)
            except Exception as error:
                if "NoSuchUpload" in str(error):  # it was completed, and the answer was lost
                    raise StoreError("the upload ended", may_pass=True) from None
                raise

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        with self._store_errors(), suppress(FileNotFoundError, exceptions.NotFoundError):
            obstore.delete(self._store, key)

    def sweep(self, prefix: str) -> None:
        """See ObjectStore: of S3. Azure drops unfinished blocks after a week."""
        if self._uploads is not None:
            self._uploads.abort(prefix)

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        global _process
        if _process is None:
            _process = os.getpid()
        elif _process != os.getpid():
            raise ForkedProcessError("client of an object store", _process, _FORKED)
        try:
            yield
        except StoreError:
            raise
        except (FileNotFoundError, exceptions.NotFoundError):
            raise StoreError("no such object", is_missing=True) from None
        except Exception as error:
            reason = _reason(error, self._options)
            raise StoreError(reason, may_pass=isinstance(error, exceptions.GenericError)
                             and _may_pass(reason)) from None


def _version(meta: Mapping[str, Any]) -> ObjectVersion:
    """Removes quotes from the entity tag: Azure quotes it in headers but not in listings."""
    tag = meta["e_tag"]
    return ObjectVersion(meta["size"], None if tag is None else tag.strip('"'),
                         int(meta["last_modified"].timestamp() * 1000))


def _endpoints(given: Mapping[str, str]) -> list[str]:
    """The endpoints set by options or the environment."""
    known = {**{name.lower(): text for name, text in os.environ.items()
                if name.lower().startswith(("aws_", "azure_", "google_"))}, **given}
    return [known[name] for name in _ENDPOINTS if name in known]


_ENDPOINTS: Final = ("aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint", "endpoint_url",
                     "endpoint", "azure_storage_endpoint", "azure_endpoint", "google_base_url")


def _reason(error: Exception, options: StorageOptions) -> str:
    """The client's error message on one line, with all option values masked."""
    text = str(error).partition("Debug source:")[0].strip() or type(error).__name__
    answer = _ANSWER.search(text)
    if answer is not None:  # the rest of the document repeats the signed request
        text = f"{text[:text.index('<')].rstrip(': ')}: {answer[1]}: {answer[2]}"
    for value in sorted(options.client().values(), key=len, reverse=True):
        if len(value) >= _SECRET_MIN and not value.lower().startswith(("http://", "https://")):
            text = text.replace(value, "***")
    text = _SIGNED.sub(r"\1=***", text)
    if _ROLE.search(text):
        text = "no credentials are in the environment or in the storage options, and the " \
            f"machine's metadata service gave none: {text}"
    return " ".join(text.split())[:_REASON_MAX].rstrip(": ")


def _may_pass(reason: str) -> bool:
    """Whether a retry may succeed. Before " - " there are the URL and a time, in which any word and
    number may occur."""
    if "max_retries" in reason:  # obstore has already retried it, with backoff
        return False
    cause = reason.partition(" - ")[2] or reason
    status = _STATUS.search(cause)
    return _PASSING.search(cause) is not None if status is None else \
        status[1] in _PASSING_STATUSES


_SECRET_MIN: Final = 4
_REASON_MAX: Final = 500
_ANSWER: Final = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
#: Where clients without credentials ask a virtual machine for those of its role.
_ROLE: Final = re.compile(r"/latest/(api/token|meta-data)|/computeMetadata/|/metadata/identity/")
_SIGNED: Final = re.compile(r"(?i)(signature|credential|token|sig)=[^&\s\")]+")
