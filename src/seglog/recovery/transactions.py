"""Producer state while a log is loaded: the batches of a scan, and what Kafka throws at some.

Kafka accepts nearly everything while it loads (reference 5.2, origin REPLICATION), but no batch
without the transactional bit inside an open transaction of its producer, and no marker that is
none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from seglog.errors import CorruptDataError
from seglog.model import AbortedTxn
from seglog.recovery.failures import LoaderFailure
from seglog.storage.producers import ProducerState

__all__ = ["Folded", "apply_batches", "fold_batches"]

# What Kafka throws at a bad marker, where that is not the error's own exception.
_UNCHECKED = {
    "control_type": "IllegalArgumentException",
    "control_marker_null": "NullPointerException",
    "control_marker_short": "BufferUnderflowException",
    "txn_not_started": "IllegalArgumentException",
}


@dataclass(slots=True)
class Folded:
    """What a fold came to: the transactions that ended with an abort, in the order of their
    markers; `failure` is what Kafka throws at the batch `failed_at` (byte of the log file)."""

    aborted: list[AbortedTxn] = field(default_factory=list)
    failure: LoaderFailure | None = None
    failed_at: int = -1


def fold_batches(producers: ProducerState, batches: npt.NDArray[np.void], fd: int,
                 file: str) -> Folded:
    """Applies the next batches of the log file `fd`; batches of magic 0 and 1 mean nothing.

    Everything before a batch that Kafka throws at is applied, nothing of it and behind it.
    """
    folded = Folded()

    def read(position: int, size: int) -> bytes:
        try:
            return os.pread(fd, size, position)
        except OSError as error:
            raise LoaderFailure("IOException", f"{file}: {error.strerror}", file=file,
                                position=position) from None

    is_legacy = batches["magic"] < 2
    if np.any(is_legacy):
        batches = batches[~is_legacy]
    try:
        producers.apply(batches, read, file=file, aborted=folded.aborted)
    except LoaderFailure as failure:
        folded.failure, folded.failed_at = failure, failure.where["position"]
    except CorruptDataError as error:
        assert error.position is not None
        folded.failed_at = error.position
        folded.failure = LoaderFailure(
            _UNCHECKED.get(error.code, error.kafka_name), str(error), file=file,
            position=error.position, expected=error.expected, found=error.found)
    if folded.failure is not None:
        done = int(np.searchsorted(batches["position"], folded.failed_at))
        if done:
            producers.map_end_offset = int(batches["last_offset"][done - 1]) + 1
    return folded


def apply_batches(producers: ProducerState, batches: npt.NDArray[np.void], fd: int,
                  file: str) -> None:
    """`fold_batches` for a rebuild of producer state, which nothing survives that Kafka throws."""
    failure = fold_batches(producers, batches, fd, file).failure
    if failure is not None:
        raise failure
