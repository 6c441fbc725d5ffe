"""How much a trigger reads: maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay.

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
    """Ends of a batch of about `most` offsets, shared in proportion to what each partition has.

    `starts` has every partition of `ends`. No partition with new offsets is left out.
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
    """Holds a batch back until enough offsets are there or the time is over. One a query."""

    def __init__(self, least: int, max_delay_ms: int,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._least, self._max_delay = least, max_delay_ms / 1000
        self._clock = clock
        self._last: float | None = None  # the first batch after a start does not wait

    def holds_back(self, starts: Offsets, ends: Offsets) -> bool:
        """Whether this trigger is to read nothing; if not, the time begins anew."""
        now = self._clock()
        if self._last is not None and now - self._last < self._max_delay:
            if sum(end - starts[tp] for tp, end in ends.items()) < self._least:
                return True
        self._last = now
        return False
