"""Transactions: readers of committed data get all of their records or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final, TypeVar

from seglog.arguments import shown
from seglog.errors import IllegalStateError
from seglog.forks import ProcessBound
from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import Headers, RecordBatchBuilder, end_transaction_marker
from seglog.log.unified_log import UnifiedLog
from seglog.model import ProducerStateEntry
from seglog.storage.codecs import Buffer
from seglog.storage.markers import ControlType
from seglog.storage.record_rows import Record

__all__ = ["Records", "Transaction", "build_batches", "first_made"]

#: What `append_many` takes: values, pairs of key and value, Records.
Records = Iterable[Record | tuple[Buffer | None, Buffer | None] | Buffer | None]

_SEQUENCES: Final = 1 << 31
_PAIR: Final = 2

_T = TypeVar("_T")


def build_batches(records: Iterable[Any], builder: Callable[[], RecordBatchBuilder], now_ms: int
                  ) -> Iterator[RecordBatchBuilder]:
    """Yields builders that are full, and the last one, from records in any of the forms that
    `EmbeddedLog.append_many` accepts."""
    if isinstance(records, str | Buffer | Mapping):  # its bytes or keys would be the records
        raise TypeError("records must be several values, pairs of key and value, or Records, not "
                        f"{shown(records)}")
    current = builder()
    for record in records:
        try:
            if isinstance(record, tuple) and len(record) > _PAIR:
                _, timestamp, key, value, headers = record
            else:
                key, value = record if isinstance(record, tuple) else (None, record)
                timestamp, headers = now_ms, ()
        except ValueError:
            raise TypeError("a record must be a value, a pair of key and value, or a Record, not "
                            f"{shown(record)}") from None
        if not current.has_room_for(timestamp, key, value, headers):
            yield current
            current = builder()
        current.append(timestamp, key, value, headers)
    if current.num_records:
        yield current


def first_made(items: Iterable[_T]) -> Iterator[_T]:
    """The same items, of which the first is made now: before the caller takes a lock for which
    other writers wait. Mostly it is the only one."""
    rest = iter(items)
    return chain([*islice(rest, 1)], rest)


class Transaction(ProcessBound):
    """An open transaction, created by `EmbeddedLog.transaction`. For one thread."""

    _has_lock = True

    def __init__(self, log: UnifiedLog, producer_id: int, leader_epoch: int,
                 builder: Callable[[], RecordBatchBuilder]) -> None:
        """Created by `EmbeddedLog.transaction`."""
        self.producer_id = producer_id
        self._log, self._leader_epoch = log, leader_epoch
        self._builder = builder
        with log.lock:
            known = self._known
        self._epoch = 0 if known is None else max(known.producer_epoch, 0)
        #: Of the next record; None if the log must be asked.
        self._sequence: int | None = None
        self._has_ended = False
        self._write_marker(ControlType.ABORT)  # the process that had it open has ended

    @property
    def _known(self) -> ProducerStateEntry | None:
        """The log's state of the producer. The caller holds the log's lock."""
        return self._log.producer_manager.last_entry(self.producer_id)

    @property
    def is_open(self) -> bool:
        """Whether the log has records of it, and not its end. The log is asked: an append that was
        interrupted may have written the first ones."""
        with self._log.lock:
            known = self._known
        return known is not None and known.current_txn_first_offset is not None

    def append(self, value: Buffer | None, *, key: Buffer | None = None, headers: Headers = (),
               timestamp: int | None = None) -> int:
        """See EmbeddedLog.append. Raises IllegalStateError after the end of the block."""
        when = self._log.now_ms() if timestamp is None else timestamp
        return self._append([(-1, when, key, value, headers)]).start

    def append_many(self, records: Records) -> range:
        """See EmbeddedLog.append_many. Raises IllegalStateError after the end of the block."""
        return self._append(records)

    def _append(self, records: Iterable[Any]) -> range:
        log = self._log
        batches = first_made(build_batches(records, self._builder, log.now_ms()))
        with log.lock:
            if self._has_ended:  # no block would end the transaction that this append begins
                raise IllegalStateError(
                    f"The transaction of producer {self.producer_id} has ended with its block")
            first = log.log_end_offset
            for builder in batches:
                sequence = self._take_sequence()
                builder.set_producer_state(self.producer_id, self._epoch, sequence, True)
                log.append_as_leader(builder.build(), self._leader_epoch)
                self._sequence = (sequence + builder.num_records) % _SEQUENCES
            log.update_high_watermark(log.log_end_offset)
            return range(first, log.log_end_offset)

    def _take_sequence(self) -> int:
        """The sequence of the next record. It is unknown until the append returns: an append that
        is interrupted may have written its batch, and the log takes a sequence that comes again for
        a duplicate."""
        sequence, self._sequence = self._sequence, None
        if sequence is None:
            known = self._known
            sequence = 0 if known is None else (known.last_sequence + 1) % _SEQUENCES
        return sequence

    def end(self, how: ControlType) -> None:
        """Writes the marker; a transaction without records needs none. Later appends are
        refused."""
        with self._log.lock:
            self._has_ended = True
        self._write_marker(how)

    def _write_marker(self, how: ControlType) -> None:
        log = self._log
        with log.lock:
            known = self._known
            if known is None or known.current_txn_first_offset is None:
                return
            # The log refuses a marker of an older coordinator than the broker's that it had.
            marker = end_transaction_marker(
                self.producer_id, self._epoch, how, timestamp=log.now_ms(),
                coordinator_epoch=max(known.coordinator_epoch, 0))
            log.append_as_leader(marker, self._leader_epoch, origin=AppendOrigin.COORDINATOR,
                                 transaction_version=0)
            log.update_high_watermark(log.log_end_offset)
