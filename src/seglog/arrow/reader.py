"""Reading in one call, and the pieces that a distributed reader needs.

A Spark driver asks `PartitionLog.ranges` for byte ranges, ships them, and each task runs
`decode_range`: neither opens a log twice, and no task needs the directory's indexes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from seglog.storage.log import PartitionLog
from seglog.storage.stream import DecodeOptions, RecordBatchStream, decode_range

__all__ = ["DecodeOptions", "RecordBatchStream", "decode_range", "read"]


def read(path: str | os.PathLike[str], start_offset: int | None = None,
         end_offset: int | None = None, columns: Sequence[str] | None = None,
         **options: Any) -> RecordBatchStream:
    """The records of the partition directory `path`; options as for `PartitionLog.to_arrow`."""
    return PartitionLog.open(path).to_arrow(start_offset, end_offset, columns, **options)
