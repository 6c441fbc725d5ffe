"""Who waits for whom: the readers and the writers of a log inside a program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import seglog
from seglog.embedded.embedded_log import EmbeddedLog


def in_time(act: Callable[[], object]) -> bool:
    """Whether another thread does it while this one waits."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(5)
    return not thread.is_alive()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with seglog.open(tmp_path / "t-0", config={"cleanup.policy": "compact"}) as log:
        yield log


@pytest.mark.parametrize("is_open", [False, True])
def test_readers_of_committed_records_do_not_wait_for_an_append(log: EmbeddedLog, is_open: bool
                                                                ) -> None:
    """As long as its sync, or the iterable of `append_many`, takes."""
    with log.transaction(1) as transaction:
        transaction.append(b"value", key=b"key")
    pending = log.transaction(2)
    if is_open:
        pending.__enter__().append(b"open", key=b"key")

    def read() -> None:
        assert [one.value for one in log.records(isolation="read_committed")] == [b"value"]
        assert len(log.fetch(0, 1000, "read_committed").records)
        assert log.latest(b"key") == b"value" and log.keys() == [b"key"]
        with log.follow(0, isolation="read_committed") as follower:
            assert next(follower.records()).value == b"value"

    read()
    with log.log.lock:
        assert in_time(read)
    if is_open:
        pending.__exit__(None, None, None)


@pytest.mark.parametrize("is_transaction", [False, True])
def test_writers_do_not_wait_for_a_short_iterable(log: EmbeddedLog, is_transaction: bool) -> None:
    """It could never end if it waited for one of them."""
    def records() -> Iterator[tuple[bytes, bytes]]:
        yield b"key", b"first"
        assert in_time(lambda: log.append(b"other thread", key=b"key"))
        assert log.append(b"this thread", key=b"key") == 1
        yield b"key", b"second"

    if is_transaction:
        with log.transaction() as transaction:
            found = transaction.append_many(records())
    else:
        found = log.append_many(records())
    assert found == range(2, 4)
    assert [one.value for one in log.records(2, 4)] == [b"first", b"second"]


