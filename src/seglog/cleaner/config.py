"""The settings of the cleaner's threads (Kafka: CleanerConfig)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from seglog.config import BrokerConfig

__all__ = ["SLOT_BYTES", "CleanerConfig"]

#: Of a key in the offset map.
SLOT_BYTES = 24

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """Sizes are bytes and shared by all threads, times are ms. The names are those of
    `server.properties` without `log.cleaner.`."""

    threads: int = 1
    dedupe_buffer_size: int = 128 << 20
    io_buffer_load_factor: float = 0.9
    io_buffer_size: int = 512 << 10
    #: The largest message of the broker (`message.max.bytes`).
    max_message_size: int = (1 << 20) + 12
    io_max_bytes_per_second: float = 1.7976931348623157e308
    backoff_ms: int = 15_000

    @classmethod
    def of(cls, broker: BrokerConfig) -> Self:
        """The cleaner's settings from those of a broker."""
        # Kafka takes any number, also NaN, which counts as 0 to it.
        load_factor = min(max(0.0, broker.log_cleaner_io_buffer_load_factor), 1.0)
        return cls(broker.log_cleaner_threads, broker.log_cleaner_dedupe_buffer_size,
                   load_factor, broker.log_cleaner_io_buffer_size,
                   broker.message_max_bytes, broker.log_cleaner_io_max_bytes_per_second,
                   broker.log_cleaner_backoff_ms)

    @property
    def map_size(self) -> int:
        """Bytes of the offset map of one thread."""
        return min(self.dedupe_buffer_size // max(self.threads, 1), _INT32_MAX)

    @property
    def buffer_size(self) -> int:
        """Bytes that one thread reads at a time."""
        return max(self.io_buffer_size // max(self.threads, 1) // 2, 1)
