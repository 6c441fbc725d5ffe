"""The log cleaner: compaction, byte for byte as Apache Kafka 4.3.1 does it (LogCleaner, Cleaner).

A round rewrites the segments of a log up to a bound, so that of each key the last record stays:

    cleaner = Cleaner(offset_map=OffsetMap(1 << 20))
    end, stats = cleaner.clean(LogToClean.of(log))
    ...                                                  # appends, rolls
    end, stats = cleaner.clean(LogToClean.of(log, end))  # what came since then

`log` is a `seglog.log.unified_log.UnifiedLog`. Nothing here runs by itself or keeps an offset
between rounds: the caller passes the end of one round to the next.
"""

from __future__ import annotations

from seglog._native.clean import OffsetMap
from seglog.cleaner.cleanable import LogToClean, OffsetsToClean, cleanable_offsets
from seglog.cleaner.cleaner import Cleaner
from seglog.cleaner.cleaner_stats import CleanerStats

__all__ = ["Cleaner", "CleanerStats", "LogToClean", "OffsetMap", "OffsetsToClean",
           "cleanable_offsets"]
