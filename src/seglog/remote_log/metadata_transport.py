"""What the metadata manager needs of the topic __remote_log_metadata, wherever it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

__all__ = ["ConsumedRecord", "MetadataTransport"]


class ConsumedRecord(NamedTuple):
    """A record of the topic; its key means nothing."""

    partition: int
    offset: int
    value: bytes | None


class MetadataTransport(Protocol):
    """The topic as its writer and its reader see it.

    `partition_count`, `create_topic`, `open` and `close` are called by one thread at a time,
    `publish` by any thread, `assign`, `bounds` and `poll` by the reader's. A
    RetriableRemoteStorageError says that the same call may succeed later.
    """

    def partition_count(self) -> int | None:
        """How many partitions the topic has; None where it does not exist.

        RemoteStorageError for a topic with settings that would lose metadata.
        """

    def create_topic(self) -> None:
        """Creates the topic; one that exists by now is left as it is."""

    def open(self) -> None:
        """Makes what writes and reads."""

    def publish(self, partition: int, value: bytes) -> Future[int]:
        """Writes a record; its offset, as soon as it is durable."""

    def assign(self, positions: Mapping[int, int | None]) -> None:
        """Reads these partitions from now on: from an offset, or from the beginning."""

    def bounds(self, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        """(first offset, end offset) of each."""

    def poll(self, timeout_ms: int) -> Sequence[ConsumedRecord]:
        """The next records; waits so long for one. Damage is passed over and logged."""

    def wakeup(self) -> None:
        """Ends a `poll` that waits."""

    def close(self) -> None:
        """Releases everything. A second call does nothing."""
