"""The limits of a trigger: maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay.

The arithmetic is that of KafkaMicroBatchStream.rateLimit and delayBatch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from seglog.model import TopicPartition
from seglog.spark.streaming.positions import Offsets

__all__ = ["BatchDelay", "limit_ends"]


def limit_ends(most: int, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    """The ends of a batch of about `most` offsets, divided in proportion to each partition's new
    offsets.

    `starts` has every partition of `ends`. Every partition with new offsets gets a share.
    """
    sizes = {tp: end - starts[tp] for tp, end in ends.items() if end > starts[tp]}
    total = sum(sizes.values())
    limited = dict(ends)
    for tp, size in sizes.items():
        share = most * (size / total)
        share = math.ceil(share) if share < 1 else math.floor(share)
        limited[tp] = min(ends[tp], starts[tp] + share)
    return limited


class BatchDelay:
    """Delays a batch until enough offsets exist or the time is up. One instance a query."""

    def __init__(self, least: int, max_delay_ms: int,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._least, self._max_delay = least, max_delay_ms / 1000
        self._clock = clock
        self._last: float | None = None  # the first batch after a start is not delayed

    def holds_back(self, starts: Offsets, ends: Offsets) -> bool:
        """Whether this trigger reads nothing. If it reads, the delay starts again."""
        now = self._clock()
        if self._last is not None and now - self._last < self._max_delay:
            if sum(end - starts[tp] for tp, end in ends.items()) < self._least:
                return True
        self._last = now
        return False
