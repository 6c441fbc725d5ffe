"""The interface to the topic __remote_log_metadata, in a cluster or in local logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from seglog.errors import CorruptDataError

__all__ = ["ConsumedRecord", "MetadataTransport"]


class ConsumedRecord(NamedTuple):
    """A record of the topic; its key is ignored. With an `error` it stands for the records from
    `first_offset` to `offset`, which are damaged or absent; if `first_offset` is greater, for
    damaged bytes of none of them."""

    partition: int
    offset: int
    value: bytes | None
    error: CorruptDataError | None = None
    first_offset: int | None = None


class MetadataTransport(Protocol):
    """The topic as its writer and its reader see it.

    One thread at a time calls `partition_count`, `create_topic`, `open` and `close`. Any thread
    calls `publish`, and the reader's thread calls `assign`, `bounds` and `poll`.
    RetriableRemoteStorageError means that the same call may succeed later.
    """

    def partition_count(self) -> int | None:
        """The number of partitions; None if the topic does not exist.

        Raises RemoteStorageError for a topic with settings that would lose metadata.
        """

    def create_topic(self) -> None:
        """Creates the topic; an existing one is not changed."""

    def open(self) -> None:
        """Creates the writer and the reader."""

    def publish(self, partition: int, value: bytes) -> Future[int]:
        """Writes a record; the future has its offset once it is durable."""

    def assign(self, positions: Mapping[int, int | None]) -> None:
        """Reads these partitions from now on: from an offset, or from the beginning."""

    def bounds(self, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        """(first offset, end offset) of each, but for those that cannot be read now."""

    def poll(self, timeout_ms: int) -> Sequence[ConsumedRecord]:
        """The next records, and what is damaged between them; waits up to `timeout_ms` for one. A
        partition that cannot be read now does not hold up the others."""

    def wakeup(self) -> None:
        """Ends a waiting `poll`."""

    def close(self) -> None:
        """Releases everything. A second call does nothing."""
