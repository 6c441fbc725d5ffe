"""An append that a signal's handler interrupts once its batch is written: the producers' state and
the transaction index have it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.errors import OutOfOrderSequenceError
from seglog.log.local_log import LocalLog
from seglog.log.producer_state_manager import ProducerStateManager
from seglog.log.watermarks import Watermarks
from seglog.recovery.index_files import TxnIndexFile
from tests.log.test_fast_path import batch

STEPS = [(LocalLog, "set_end"), (ProducerStateManager, "update"), (TxnIndexFile, "append"),
         (ProducerStateManager, "complete_txn"), (ProducerStateManager, "update_map_end_offset"),
         (Watermarks, "update_first_unstable_offset")]
OF_RECORDS = [step for step in STEPS if step[0] is not TxnIndexFile and "txn" not in step[1]]


def interrupt(patch: pytest.MonkeyPatch, owner: type, name: str, *, is_after: bool) -> None:
    """The next call of a method ends with Ctrl-C, before it does anything or after it."""
    method = getattr(owner, name)

    def interrupted(*args: Any, **how: Any) -> None:
        patch.undo()
        if is_after:
            method(*args, **how)
        raise KeyboardInterrupt

    patch.setattr(owner, name, interrupted)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize(("owner", "name"), OF_RECORDS)
def test_a_producer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type,
                            name: str, is_after: bool) -> None:
    with seglog.open(tmp_path / "t-0", config={"compression.type": "lz4"}) as log:
        log.append_batches(batch(2, producer=1, sequence=0, codec=3))
        interrupt(monkeypatch, owner, name, is_after=is_after)
        with pytest.raises(KeyboardInterrupt):
            log.append_batches(batch(3, producer=1, sequence=2, codec=3))
        assert log.append_batches(batch(3, producer=1, sequence=2, codec=3)) == range(2, 5)
        with pytest.raises(OutOfOrderSequenceError):
            log.append_batches(batch(producer=1, sequence=6, codec=3))
        assert log.append_batches(batch(producer=1, sequence=5, codec=3)) == range(5, 6)
        assert log.log_end_offset == 6


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize(("owner", "name"), STEPS)
def test_an_aborted_transaction_stays_hidden(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, is_after: bool
        ) -> None:
    with seglog.open(tmp_path / "t-0") as log:
        other = log.transaction(2)
        other.__enter__().append(b"open since before")
        with pytest.raises(KeyboardInterrupt), log.transaction(1) as transaction:
            transaction.append(b"never")
            interrupt(monkeypatch, owner, name, is_after=is_after)
            raise ZeroDivisionError
        with log.transaction(1) as transaction:
            transaction.append(b"seen")
        other.__exit__(None, None, None)
        expected = [b"open since before", b"seen"]
        assert [one.value for one in log.records(isolation="read_committed")] == expected
    with seglog.open(tmp_path / "t-0") as log:
        assert [one.value for one in log.records(isolation="read_committed")] == expected
        assert [entry[1][1:4] for entry in log.log.active.files.txn_index.read()] == [(1, 1, 2)]


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize(("owner", "name"), OF_RECORDS)
def test_a_transaction_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type,
                               name: str, is_after: bool) -> None:
    """The next record had the sequence of the interrupted one, and was dropped as its duplicate."""
    with seglog.open(tmp_path / "t-0") as log:
        with log.transaction() as transaction:
            interrupt(monkeypatch, owner, name, is_after=is_after)
            with pytest.raises(KeyboardInterrupt):
                transaction.append(b"written")
            assert transaction.append(b"next") == 1
        assert [one.value for one in log.records(isolation="read_committed")] == [
            b"written", b"next"]


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize(("owner", "name"), OF_RECORDS)
def test_a_transaction_whose_first_append_is_interrupted_is_aborted(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, is_after: bool
        ) -> None:
    """It stayed open, and readers of committed records waited for its end."""
    with seglog.open(tmp_path / "t-0") as log:
        with pytest.raises(KeyboardInterrupt), log.transaction() as transaction:
            interrupt(monkeypatch, owner, name, is_after=is_after)
            transaction.append(b"never")
        log.append(b"seen")
        assert log.last_stable_offset == log.log_end_offset == 3
        assert [one.value for one in log.records(isolation="read_committed")] == [b"seen"]
