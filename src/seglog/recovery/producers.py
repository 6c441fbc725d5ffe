"""Producer state during a dry run: open transactions, and the two rules that are fatal.

Kafka accepts nearly everything while it loads (reference 5.2, origin REPLICATION), but no batch
without the transactional bit inside an open transaction of its producer, and no marker that is
none.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from seglog.errors import CorruptDataError
from seglog.recovery.failures import LoaderFailure
from seglog.storage.markers import CONTROL_BATCH_BYTES_MAX, parse_marker

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

    def apply(self, batches: npt.NDArray[np.void], fd: int, file: str) -> None:
        """The next batches, of the log file `fd`. LoaderFailure for one that breaks into a
        transaction (InvalidTxnStateException), and for a marker that is none."""
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
                if _is_marker(batch, fd, file):
                    self.open.pop(producer, None)
            elif attributes & _TRANSACTIONAL:
                self.open.setdefault(producer, int(batch["base_offset"]))
            elif producer in self.open:
                first = self.open[producer]
                raise LoaderFailure(
                    "InvalidTxnStateException",
                    f"Expected transactional write from producer {producer} at offset {first} in "
                    f"partition {self.topic_partition}", position=int(batch["position"]),
                    file=file, offset=int(batch["base_offset"]), found=producer)


def _is_marker(batch: np.void, fd: int, file: str) -> bool:
    """Whether a control batch ends a transaction; compaction leaves empty ones, which end nothing.

    A marker that does not parse is never cut: recovery keeps its batch, stops behind it, and dies
    of it when it reads the producer state once more.
    """
    position = int(batch["position"])
    try:
        data = os.pread(fd, min(int(batch["size"]), CONTROL_BATCH_BYTES_MAX), position)
        return parse_marker(data, file=file, position=position) is not None
    except OSError as error:
        raise LoaderFailure("IOException", f"{file}: {error.strerror}", file=file,
                            position=position) from None
    except CorruptDataError as error:
        raise LoaderFailure(_kafka_error(error), str(error), file=file, position=position,
                            expected=error.expected, found=error.found) from None


def _kafka_error(error: CorruptDataError) -> str:
    """The exception of Kafka's that a marker like this is."""
    if error.code == "control_type":
        return "IllegalArgumentException"
    if error.code == "control_marker" and "null" in str(error):
        return "NullPointerException"
    if error.code == "control_marker" and "required" in str(error):
        return "BufferUnderflowException"
    return error.kafka_name
