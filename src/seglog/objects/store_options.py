"""Options of an object store: client settings, retries and concurrent requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["StorageOptions"]

#: Our options, with minimum and default; all others go to the client.
_NUMBERS: Final = {
    "max_retries": (0, 6),
    "retry_timeout_seconds": (1, 60),
    "request_timeout_seconds": (1, 30),
    "max_requests": (1, 8),
}


class StorageOptions(Mapping[str, str]):
    """Options by lower-case name. Values may be secrets: no `repr` or error shows one.

    A transient failure is retried up to `max_retries` (6) times with backoff, for at most
    `retry_timeout_seconds` (60). One attempt takes at most `request_timeout_seconds` (30). A reader
    has up to `max_requests` (8) requests of 4 MiB in flight. All other options go to the client:
    obstore's configuration keys (`aws_endpoint`, `aws_access_key_id`, `allow_http`, ...) or, where
    fsspec serves the scheme, arguments of its file system. Raises ValueError for an invalid number.
    """

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._given = {name.lower(): str(value) for name, value in (given or {}).items()}
        numbers = {name: self._number(name) for name in _NUMBERS}
        self.max_retries = numbers["max_retries"]
        self.retry_timeout_seconds = numbers["retry_timeout_seconds"]
        self.request_timeout_seconds = numbers["request_timeout_seconds"]
        self.max_requests = numbers["max_requests"]

    def _number(self, name: str) -> int:
        least, default = _NUMBERS[name]
        text = self._given.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"\d{1,9}", text.strip(), re.ASCII) or int(text) < least:
            raise ValueError(f"storage option '{name}' must be a number of at least {least}, "
                             f"got '{text}'")
        return int(text)

    def client(self) -> dict[str, str]:
        """The options that go to the client."""
        return {name: value for name, value in self._given.items() if name not in _NUMBERS}

    def __getitem__(self, name: str) -> str:
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(sorted(self._given))})"
