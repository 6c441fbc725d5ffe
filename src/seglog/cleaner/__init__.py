"""The log cleaner: compaction, byte for byte as in Apache Kafka 4.3.1.

`Cleaner` runs one round over one log: it rewrites the segments up to a bound, and keeps the last
record of each key (Kafka: Cleaner). `LogCleanerManager` knows which log is the dirtiest, where its
last round ended, and which partitions must not be cleaned now. `LogCleaner` runs rounds in threads
of its own.

    cleaner = Cleaner(offset_map=OffsetMap(1 << 20))
    end, stats = cleaner.clean(LogToClean.of(log))
    ...                                                  # appends, rolls
    end, stats = cleaner.clean(LogToClean.of(log, end))  # only the new records

`log` is a `seglog.log.unified_log.UnifiedLog`.
"""

from __future__ import annotations

from seglog._native.clean import OffsetMap
from seglog.cleaner.cleanable import LogToClean, OffsetsToClean, cleanable_offsets
from seglog.cleaner.cleaner import Cleaner
from seglog.cleaner.cleaner_manager import CleanedLogs, LogCleanerManager
from seglog.cleaner.cleaner_stats import CleanerStats
from seglog.cleaner.config import CleanerConfig
from seglog.cleaner.log_cleaner import LogCleaner

__all__ = ["CleanedLogs", "Cleaner", "CleanerConfig", "CleanerStats", "LogCleaner",
           "LogCleanerManager", "LogToClean", "OffsetMap", "OffsetsToClean",
           "cleanable_offsets"]
