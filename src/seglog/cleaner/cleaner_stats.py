"""What one round of cleaning read and wrote (Kafka: CleanerStats)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

__all__ = ["CleanerStats"]


@dataclass(slots=True)
class CleanerStats:
    """Counts of messages and bytes; `map_` are those of the offset map's pass over the log.

    `invalid_messages_read` are records without a key, which a round drops. `buffer_utilization` is
    the part of the offset map that is in use.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    map_bytes_read: int = 0
    map_messages_read: int = 0
    messages_read: int = 0
    invalid_messages_read: int = 0
    messages_written: int = 0
    buffer_utilization: float = 0.0
    _started: float = field(default_factory=time.monotonic)
    _map_done: float = 0.0
    _done: float = 0.0

    def index_done(self) -> None:
        """Marks the end of the offset map."""
        self._map_done = time.monotonic()

    def all_done(self) -> None:
        """Marks the end of the round."""
        self._done = time.monotonic()

    @property
    def elapsed_secs(self) -> float:
        """Of the whole round, in seconds."""
        return self._done - self._started

    @property
    def elapsed_index_secs(self) -> float:
        """Of the offset map, in seconds."""
        return self._map_done - self._started
