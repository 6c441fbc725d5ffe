"""A read in one call, and the functions that a distributed reader needs.

A Spark driver gets byte ranges from `PartitionLog.ranges` and ships them; each task runs
`decode_range`. No process opens a log twice, and no task needs the indexes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from seglog._native.batch import BatchColumns
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogRange
from seglog.storage.stream import (
    DecodeOptions, RecordBatchStream, decode_range, read_batch_headers,
)

__all__ = ["DecodeOptions", "RecordBatchStream", "batch_headers", "decode_range", "read"]


def read(path: str | os.PathLike[str], start_offset: int | None = None,
         end_offset: int | None = None, columns: Sequence[str] | None = None,
         **options: Any) -> RecordBatchStream:
    """Reads the partition directory `path`; the options are those of `PartitionLog.to_arrow`."""
    return PartitionLog.open(path).to_arrow(start_offset, end_offset, columns, **options)


def batch_headers(planned: LogRange, *, check_crcs: bool = False) -> Iterator[BatchColumns]:
    """The headers of the batches of one range (of `PartitionLog.ranges`), thousands at a time.

    The result supports the Arrow C data interface (`pyarrow.record_batch(columns)`) and holds the
    same rows as a numpy array (`columns.batches`): base_offset, last_offset, base_timestamp and
    max_timestamp (ms), producer_id, position, size, partition_leader_epoch, base_sequence,
    record_count (-1 for a wrapper of magic 0 or 1, which has no count), crc, attributes,
    producer_epoch, magic. Covers every batch with offsets of the range, including control and
    aborted batches. Reads no records unless `check_crcs`. Raises as `decode_range`.
    """
    return read_batch_headers(planned, check_crcs=check_crcs)
