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

from seglog import forks
from seglog.errors import (
    CorruptDataError, KafkaStorageError, OffsetOutOfRangeError, SeglogError,
)

TYPE_CHECKING = False  # typing takes 4 ms, and `seglog --help` needs none of it
if TYPE_CHECKING:
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
__getattr__, __dir__ = forks.imported_at_use(__name__, {
    "datadir": ("DataDir", "open_data_dir"),
    "embedded.embedded_log": ("EmbeddedLog", "open"),
    "log.scheduler": ("Scheduler",),
    "manager.manager": ("LogManager",),
    "model": ("TimestampOffset", "TopicPartition"),
    "recovery.callbacks": ("LoadListener",),
    "recovery.findings": ("Finding",),
    "recovery.load_report": ("LoadReport",),
    "storage.log_reader": ("LogReader",),
    "storage.partition_log": ("PartitionLog",),
    "storage.ranges": ("LogRange",),
    "storage.record_rows": ("Record",),
    "storage.stream": ("RecordBatchStream",),
})

__all__ = [
    "CorruptDataError", "DataDir", "EmbeddedLog", "Finding", "KafkaStorageError", "LoadListener",
    "LoadReport", "LogManager", "LogRange", "LogReader", "OffsetOutOfRangeError", "PartitionLog",
    "Record", "RecordBatchStream", "Scheduler", "SeglogError", "TimestampOffset", "TopicPartition",
    "__version__", "open", "open_data_dir",
]
