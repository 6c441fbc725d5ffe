"""Apache Kafka's partition log without the broker.

    log = seglog.PartitionLog.open("/var/lib/kafka/data/orders-0")
    for batch in log.to_arrow(columns=["offset", "key", "value"]):
        ...

    with seglog.open_data_dir("/var/lib/kafka/data", num_segment_loading_threads=4) as data:
        print(data.report.counts)

    with seglog.open("events/clicks-0") as log:
        log.append(b"value", key=b"key")

Errors are in `seglog.errors`, the columns and the pieces of distributed reading in `seglog.arrow`.
"""

from __future__ import annotations

import logging
from importlib import import_module

from seglog import forks
from seglog.errors import (
    CorruptDataError, KafkaStorageError, OffsetOutOfRangeError, SeglogError,
)

TYPE_CHECKING = False  # typing takes 4 ms, and `seglog --help` needs none of it
if TYPE_CHECKING:
    from typing import Any

    from seglog.datadir import DataDir, open_data_dir
    from seglog.embedded.embedded_log import EmbeddedLog, open
    from seglog.log.scheduler import Scheduler
    from seglog.manager.manager import LogManager
    from seglog.model import TimestampOffset, TopicPartition
    from seglog.recovery.callbacks import LoadListener
    from seglog.recovery.findings import Finding
    from seglog.recovery.load_report import LoadReport
    from seglog.storage.partition_log import PartitionLog
    from seglog.storage.log_reader import LogReader
    from seglog.storage.ranges import LogRange
    from seglog.storage.record_rows import Record
    from seglog.storage.stream import RecordBatchStream

__version__ = "0.1.0"

# Kafka's messages are for programs that configure logging. Imported here, not at a first use:
# logging registers with forks, and a fork that waits for our imports would run half of that.
logging.getLogger(__name__).addHandler(logging.NullHandler())

# Imported at their first use: numpy and the native modules take 100 ms, dataclasses 10.
_LAZY = {
    "DataDir": "seglog.datadir",
    "EmbeddedLog": "seglog.embedded.embedded_log",
    "Finding": "seglog.recovery.findings",
    "LoadListener": "seglog.recovery.callbacks",
    "LoadReport": "seglog.recovery.load_report",
    "LogManager": "seglog.manager.manager",
    "LogRange": "seglog.storage.ranges",
    "LogReader": "seglog.storage.log_reader",
    "PartitionLog": "seglog.storage.partition_log",
    "Record": "seglog.storage.record_rows",
    "RecordBatchStream": "seglog.storage.stream",
    "Scheduler": "seglog.log.scheduler",
    "TimestampOffset": "seglog.model",
    "TopicPartition": "seglog.model",
    "open": "seglog.embedded.embedded_log",
    "open_data_dir": "seglog.datadir",
}

__all__ = [
    "CorruptDataError", "DataDir", "EmbeddedLog", "Finding", "KafkaStorageError", "LoadListener",
    "LoadReport", "LogManager", "LogRange", "LogReader", "OffsetOutOfRangeError", "PartitionLog",
    "Record", "RecordBatchStream", "Scheduler", "SeglogError", "TimestampOffset", "TopicPartition",
    "__version__", "open", "open_data_dir",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'seglog' has no attribute {name!r}")
    with forks.imports:
        value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
