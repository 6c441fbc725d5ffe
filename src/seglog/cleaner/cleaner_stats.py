"""What one round of cleaning read and wrote (Kafka: CleanerStats)."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field

__all__ = ["CleanerStats"]

_logger = logging.getLogger("seglog.LogCleaner")
_MB = 1 << 20


@dataclass(slots=True)
class CleanerStats:
    """Counts of messages and bytes; `map_` are those of the pass that builds the offset map.

    `invalid_messages_read` are records without a key, which a round drops. `buffer_utilization` is
    the used share of the offset map.
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

    def add_copied(self, other: CleanerStats) -> None:
        """Adds the counts that another thread copied, and sets them to zero there."""
        for name in ("bytes_read", "bytes_written", "messages_read", "invalid_messages_read",
                     "messages_written"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
            setattr(other, name, 0)

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

    def log(self, cleaner_id: int, name: str, start: int, end: int) -> None:
        """Logs the statistics of the round as Kafka's cleaner does."""
        whole, index = self.elapsed_secs, self.elapsed_index_secs
        read, written = self.bytes_read / _MB, self.bytes_written / _MB
        mapped, copy = self.map_bytes_read / _MB, whole - index
        _logger.info(
            f"\n\tLog cleaner thread {cleaner_id} cleaned log {name} (dirty section = "
            f"[{start}, {end}])\n"
            f"\t{read:,.1f} MB of log processed in {whole:,.1f} seconds "
            f"({_ratio(read, whole):,.1f} MB/sec).\n"
            f"\tIndexed {mapped:,.1f} MB in {index:.1f} seconds ({_ratio(mapped, index):,.1f} "
            f"Mb/sec, {100 * _ratio(index, whole):.1f}% of total time)\n"
            f"\tBuffer utilization: {100 * self.buffer_utilization:.1f}%\n"
            f"\tCleaned {read:,.1f} MB in {copy:.1f} seconds ({_ratio(read, copy):,.1f} Mb/sec, "
            f"{100 * _ratio(copy, whole):.1f}% of total time)\n"
            f"\tStart size: {read:,.1f} MB ({self.messages_read:,} messages)\n"
            f"\tEnd size: {written:,.1f} MB ({self.messages_written:,} messages)\n"
            f"\t{100 * (1 - _ratio(written, read)):.1f}% size reduction "
            f"({100 * (1 - _ratio(self.messages_written, self.messages_read)):.1f}% fewer "
            "messages)")
        if self.invalid_messages_read > 0:
            _logger.warning("\tFound %s invalid messages during compaction.",
                            self.invalid_messages_read)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
