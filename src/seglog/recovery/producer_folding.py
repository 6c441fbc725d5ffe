"""Producer state while a log is loaded: applies the batches of a scan, with Kafka's exceptions.

Kafka accepts nearly everything while it loads (AppendOrigin.REPLICATION). It refuses a batch
without the transactional bit inside an open transaction of its producer, and an invalid marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from seglog._native.file import read_at
from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.model import AbortedTxn
from seglog.recovery.loader_failures import InvalidRecord, IoFailure, LoaderFailure
from seglog.storage.markers import is_invalid_record, thrown_at
from seglog.storage.producer_state import ProducerState

__all__ = ["Folded", "fold_batches", "replay_batches"]


@dataclass(slots=True)
class Folded:
    """The result of applying batches: the aborted transactions, in the order of their markers.
    `failure` is Kafka's exception for the batch at `failed_at` (byte of the log file)."""

    aborted: list[AbortedTxn] = field(default_factory=list)
    failure: LoaderFailure | None = None
    failed_at: int = -1


def _reader(fd: int, file: str) -> Callable[[int, int], bytes]:
    def read(position: int, size: int) -> bytes:
        try:
            return read_at(fd, size, position, file=file)
        except KafkaStorageError as error:
            raise IoFailure(f"{file}: {error.strerror}", number=error.errno, file=file,
                            position=position) from None

    return read


def _failure(error: CorruptDataError, file: str) -> LoaderFailure:
    kafka_error, message = thrown_at(error)
    where: dict[str, Any] = {"file": file, "position": error.position,
                             "expected": error.expected, "found": error.found}
    if is_invalid_record(error):
        return InvalidRecord(message, **where)
    return LoaderFailure(kafka_error, message, **where)


def fold_batches(producers: ProducerState, batches: npt.NDArray[np.void], fd: int, file: str, *,
                 last: AbortedTxn | None = None, txn_index: str = "") -> Folded:
    """Applies the next batches of the log file `fd`; ignores batches of magic 0 and 1.

    Everything before a failing batch is applied, and nothing from it on. With `txn_index`, the path
    of the transaction index that is written meanwhile (its last entry is `last`), entries out of
    order are a failure too.
    """
    folded = Folded()

    def on_aborted(position: int, ended: AbortedTxn) -> None:
        before = folded.aborted[-1] if folded.aborted else last
        if txn_index and before is not None and ended.last_offset <= before.last_offset:
            raise LoaderFailure(
                "IllegalArgumentException", "The last offset of appended transactions must "
                f"increase sequentially, but {ended.last_offset} is not greater than current last "
                f"offset {before.last_offset} of index {txn_index}", file=file, position=position)
        folded.aborted.append(ended)

    is_legacy = batches["magic"] < 2
    if np.any(is_legacy):
        batches = batches[~is_legacy]
    try:
        producers.apply(batches, _reader(fd, file), file=file, fd=fd, on_aborted=on_aborted)
    except LoaderFailure as failure:
        folded.failure, folded.failed_at = failure, failure.where["position"]
    except CorruptDataError as error:
        assert error.position is not None
        folded.failed_at = error.position
        folded.failure = _failure(error, file)
    return folded


def replay_batches(producers: ProducerState, chunks: Iterable[npt.NDArray[np.void]], fd: int,
                   file: str) -> None:
    """Applies the batches of one segment, to rebuild producer state. Raises LoaderFailure where
    Kafka throws."""
    try:
        producers.replay(chunks, _reader(fd, file), file=file, fd=fd)
    except CorruptDataError as error:
        raise _failure(error, file) from None
