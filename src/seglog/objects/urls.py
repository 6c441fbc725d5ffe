"""Object store URLs: `scheme://container/key`."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from seglog.errors import KafkaStorageError

__all__ = ["ObjectUrl", "is_url", "local_path", "parse_url"]

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
#: Synonyms that other programs use for the same schemes.
_SYNONYMS: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfs": "az",
                    "abfss": "az", "adl": "az"}


@dataclass(frozen=True, slots=True)
class ObjectUrl:
    """A parsed URL. `scheme` is in lower case, with synonyms resolved; `root` is the URL of the
    container (a bucket, or a file system's host); `key` is the path in it, without leading or
    trailing slashes."""

    scheme: str
    root: str
    key: str


def is_url(path: object) -> bool:
    """Whether a path is a URL, not a local path."""
    return isinstance(path, str) and _URL.match(path) is not None


def local_path(url: str) -> str | None:
    """The path of a `file://` URL; None for any other."""
    if not url.lower().startswith("file://"):
        return None
    host, slash, path = url[len("file://"):].partition("/")
    if host not in ("", "localhost"):
        raise KafkaStorageError(errno.EINVAL, f"a file on another machine ({host}); a local path "
                                "has three slashes: file:///var/lib/kafka/data", url)
    return unquote(slash + path)


def parse_url(url: str) -> ObjectUrl:
    """Parses a URL; `?` and `#` are letters of its key. Raises KafkaStorageError for a URL without
    a container, or with a user name, a password, or an empty part."""
    match = _URL.match(url)
    assert match is not None
    scheme = match[1].lower()
    container, _, key = url[match.end():].partition("/")
    if "@" in container and scheme not in ("abfs", "abfss"):
        # The message omits the URL: it may contain a password before the @.
        raise KafkaStorageError(errno.EINVAL, "a URL must not contain credentials: give them in "
                                "the environment or as storage options",
                                f"{scheme}://...@{container.rpartition('@')[2]}")
    if not container and scheme != "memory":
        raise KafkaStorageError(errno.EINVAL, f"names no bucket; expected {scheme}://BUCKET/PATH",
                                url)
    if "//" in key.strip("/"):
        raise KafkaStorageError(errno.EINVAL, "has an empty part between two slashes", url)
    return ObjectUrl(_SYNONYMS.get(scheme, scheme), f"{match[1]}://{container}", key.strip("/"))
