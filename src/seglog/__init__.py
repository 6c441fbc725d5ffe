"""Apache Kafka's partition log without the broker.

    log = seglog.PartitionLog.open("/var/lib/kafka/data/orders-0")
    for batch in log.to_arrow(columns=["offset", "key", "value"]):
        ...

Errors are in `seglog.errors`, the columns and the pieces of distributed reading in `seglog.arrow`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from seglog.errors import (
    CorruptDataError, KafkaStorageError, OffsetOutOfRangeError, SeglogError,
)
from seglog.model import AbortedTxn, EpochEntry, OpenTransaction, TimestampOffset, TopicPartition

if TYPE_CHECKING:
    from seglog.storage.batches import BatchHeader, FetchData
    from seglog.storage.log import PartitionLog
    from seglog.storage.ranges import LogGap, LogRange
    from seglog.storage.stream import RecordBatchStream

__version__ = "0.1.0"

# Loaded when they are first asked for: the native modules and numpy take longer than the rest.
_LAZY = {
    "BatchHeader": "seglog.storage.batches",
    "FetchData": "seglog.storage.batches",
    "LogGap": "seglog.storage.ranges",
    "LogRange": "seglog.storage.ranges",
    "PartitionLog": "seglog.storage.log",
    "RecordBatchStream": "seglog.storage.stream",
}

__all__ = [
    "AbortedTxn", "BatchHeader", "CorruptDataError", "EpochEntry", "FetchData",
    "KafkaStorageError", "LogGap", "LogRange", "OffsetOutOfRangeError", "OpenTransaction",
    "PartitionLog", "RecordBatchStream", "SeglogError", "TimestampOffset", "TopicPartition",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'seglog' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
