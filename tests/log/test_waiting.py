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
