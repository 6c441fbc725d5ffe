"""Producer state in a dry run: the batches that can stop a loader, and what Kafka throws then.

Kafka accepts nearly everything while it loads (reference 5.2, origin REPLICATION), but no batch
without the transactional bit inside an open transaction of its producer, and no marker that is
none.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from seglog._native.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from seglog.errors import CorruptDataError
from seglog.recovery.failures import LoaderFailure
from seglog.storage.producers import ProducerState

__all__ = ["apply_transactions"]

# What Kafka throws at a bad marker, where that is not the error's own exception.
_UNCHECKED = {
    "control_type": "IllegalArgumentException",
    "control_marker_null": "NullPointerException",
    "control_marker_short": "BufferUnderflowException",
    "txn_not_started": "IllegalArgumentException",
}


def apply_transactions(producers: ProducerState, batches: npt.NDArray[np.void], fd: int,
                       file: str) -> None:
    """Applies the next batches, of the log file `fd`, as far as they concern transactions.

    Most batches of most logs are passed over without a look at each: what they do to the state of
    their producers stops nothing. LoaderFailure for a batch that breaks into a transaction
    (InvalidTxnStateException), and for a marker that does not parse: recovery never cuts it, it
    keeps its batch and dies of it.
    """

    def read(position: int, size: int) -> bytes:
        try:
            return os.pread(fd, size, position)
        except OSError as error:
            raise LoaderFailure("IOException", f"{file}: {error.strerror}", file=file,
                                position=position) from None

    try:
        producers.apply(_of_transactions(producers, batches), read, file=file)
    except CorruptDataError as error:
        raise LoaderFailure(_UNCHECKED.get(error.code, error.kafka_name), str(error), file=file,
                            position=error.position, expected=error.expected,
                            found=error.found) from None


def _of_transactions(producers: ProducerState,
                     batches: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """The transactional and control batches, and all of a producer that may be in a transaction."""
    rows: npt.NDArray[np.void] = batches[(batches["producer_id"] >= 0) & (batches["magic"] >= 2)]
    marked = (rows["attributes"] & (ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL)) != 0
    inside = [one.producer_id for one in producers.open_transactions]
    if not inside and not np.any(marked):
        return rows[:0]
    inside += rows["producer_id"][marked].tolist()
    wanted: npt.NDArray[np.bool_] = marked | np.isin(rows["producer_id"], np.unique(inside))
    return rows[wanted]
