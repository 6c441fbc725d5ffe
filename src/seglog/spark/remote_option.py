"""The option `remote`: a broker's remote tier, from which queries read what is no longer local."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from seglog.spark.read_options import ReadOptions
from seglog.storage.log_store import LOCAL, Files
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogRange

if TYPE_CHECKING:
    from seglog.tiered.bucket import Bucket

__all__ = ["carried", "tier_of"]


def tier_of(options: ReadOptions) -> Bucket | None:
    """The tier of a query; None without one. Raises what `open_bucket` raises."""
    if options.remote is None:
        return None
    return _opened(options.remote, options.remote_layout, frozenset(options.storage.items()))


@lru_cache(maxsize=8)
def _opened(remote: str, layout: str | None, storage: frozenset[tuple[str, str]]) -> Bucket:
    from seglog.tiered.bucket import open_bucket  # queries of local files do not need it

    return open_bucket(remote, layout=layout, storage_options=dict(storage))


def carried(log: PartitionLog, ranges: Iterable[LogRange]) -> Files | None:
    """Where a task finds the files of its ranges; None where their paths say it all."""
    where = log.where
    if where is LOCAL:
        return None
    from seglog.tiered.tiered_files import TieredFiles

    return where.for_ranges({one.file for one in ranges}) if isinstance(where, TieredFiles) \
        else None
