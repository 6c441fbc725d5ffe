"""Producer state during a dry run: which snapshots survive, and the one rule that is fatal.

Kafka accepts nearly everything while it loads (reference 5.2, origin REPLICATION); a batch without
the transactional bit inside an open transaction of its producer is what it does not accept.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from seglog.recovery.failures import LoaderFailure

__all__ = ["ProducerReplay"]

_TRANSACTIONAL, _CONTROL = 0x10, 0x20


class ProducerReplay:
    """Open transactions by producer id, fed with batches in offset order."""

    def __init__(self, topic_partition: str) -> None:
        self.topic_partition = topic_partition
        self.open: dict[int, int] = {}

    def load(self, open_transactions: dict[int, int]) -> None:
        """Starts from a snapshot."""
        self.open = dict(open_transactions)

    def apply(self, batches: npt.NDArray[np.void]) -> None:
        """LoaderFailure (InvalidTxnStateException) for a batch that breaks into a transaction."""
        rows = batches[(batches["producer_id"] >= 0) & (batches["magic"] >= 2)]
        if not len(rows):
            return
        transactional = (rows["attributes"] & (_TRANSACTIONAL | _CONTROL)) != 0
        if not self.open and not np.any(transactional):
            return
        for batch in rows:
            producer = int(batch["producer_id"])
            attributes = int(batch["attributes"])
            if attributes & _CONTROL:
                # Compaction leaves empty ones, which end nothing.
                if int(batch["record_count"]) > 0:
                    self.open.pop(producer, None)
            elif attributes & _TRANSACTIONAL:
                self.open.setdefault(producer, int(batch["base_offset"]))
            elif producer in self.open:
                first = self.open[producer]
                raise LoaderFailure(
                    "InvalidTxnStateException",
                    f"Expected transactional write from producer {producer} at offset {first} in "
                    f"partition {self.topic_partition}", position=int(batch["position"]),
                    offset=int(batch["base_offset"]), found=producer)
