"""Transactions of a log inside of a program that takes over a broker's."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.storage.markers import ControlType


def brokers_transaction(log: seglog.EmbeddedLog, sequence: int, *, epoch: int = 3,
                        coordinator_epoch: int | None) -> None:
    """Appends what a producer and its coordinator leave: without an epoch no end of it."""
    builder = RecordBatchBuilder(producer_id=0, producer_epoch=epoch, base_sequence=sequence,
                                 is_transactional=True)
    builder.append(log.log.now_ms(), None, b"theirs")
    log.append_batches(builder.build())
    if coordinator_epoch is not None:
        log.log.append_as_leader(
            end_transaction_marker(0, epoch, ControlType.COMMIT, timestamp=log.log.now_ms(),
                                   coordinator_epoch=coordinator_epoch),
            0, origin=AppendOrigin.COORDINATOR, transaction_version=0)


@pytest.mark.parametrize("is_open", [False, True])
def test_the_producer_had_a_coordinator_of_a_later_epoch(tmp_path: Path, is_open: bool) -> None:
    """The marker was refused, and the transaction stayed open: no read_committed reader went past
    it."""
    with seglog.open(tmp_path / "t-0") as log:
        brokers_transaction(log, 0, coordinator_epoch=5)
        if is_open:
            brokers_transaction(log, 1, coordinator_epoch=None)
    with seglog.open(tmp_path / "t-0") as log:
        with log.transaction() as transaction:
            transaction.append(b"ours")
        with pytest.raises(ZeroDivisionError), log.transaction() as transaction:
            transaction.append(b"undone")
            _ = 1 / 0
        assert log.last_stable_offset == log.log_end_offset
        assert [record.value for record in log.records(isolation="read_committed")] == [
            b"theirs", b"ours"]
        assert log.log.active_producers()[0].coordinator_epoch == 5
