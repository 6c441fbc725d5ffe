"""When a follower of another process's log looks again, and when it ends."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seglog.storage import polling
from seglog.storage.partition_log import PartitionLog
from seglog.storage.polling import POLL_SECONDS, PollingFollower
from tests.oracle import batch as v2
from tests.support.facts import refusal


class Columns(int):
    """The columns of one offset."""

    @property
    def last_offset(self) -> int:
        return self


class Log:
    """A log whose end is another one at each look. Each offset has one set of columns."""

    def __init__(self, *ends: int, path: str = "/data/orders-0", range_factor: int = 1) -> None:
        self.path, self.where = path, SimpleNamespace(range_factor=range_factor)
        self.ends, self.at = list(ends), 0
        self.reads: list[tuple[int, int | None]] = []
        self.did: list[Any] = []
        self.clock = 100.0

    def end_offset(self, isolation: str) -> int:
        self.did.append(isolation)
        return self.ends[min(self.at, len(self.ends) - 1)]

    def refresh(self) -> None:
        self.at += 1

    def check(self, log: Log) -> None:
        """As TopicWatch, before the log's end is asked for."""
        assert log is self and self.did[-1:] != ["log_end"]

    def close(self) -> None:
        self.did.append("closed")

    def read(self, start: int, stop: int | None) -> Any:
        self.reads.append((start, stop))
        for offset in range(start, self.end_offset("") if stop is None else stop):
            self.clock += 1
            yield Columns(offset)

    def wait(self, seconds: float) -> None:
        self.did.append(round(seconds, 6))
        self.clock += seconds


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Any:
    def begin(log: Log, start: int, stop: int | None = None, timeout: float | None = None) -> Any:
        given: Any = log
        found = PollingFollower(given, start, stop, "log_end", timeout, given, log.read)
        monkeypatch.setattr(polling.time, "monotonic", lambda: log.clock)
        monkeypatch.setattr(found._closed, "wait", log.wait)
        return found

    return begin


def test_it_looks_again_after_what_it_has_read(follow: Any) -> None:
    log = Log(3, 3, 5, 4)
    follower = follow(log, 1)
    assert [next(follower) for _ in range(4)] == [1, 2, 3, 4]
    assert log.reads == [(1, None), (3, None), (3, None)]
    assert [one for one in log.did if one] == ["log_end", POLL_SECONDS] * 2 + ["log_end"]
    assert refusal(lambda: next(follower)) == {
        "class": "OffsetOutOfRangeError",
        "text": "the log was truncated to offset 4, and was read up to 5 before"}


@pytest.mark.parametrize(("stop", "reads"), [
    (2, [(0, 2)]), (3, [(0, 3)]), (4, [(0, None), (3, 4)]), (5, [(0, None), (3, 5)]),
    (0, [(0, 0)])])
def test_it_ends_at_its_end(follow: Any, stop: int, reads: list[tuple[int, int | None]]) -> None:
    log = Log(3, 5)
    assert list(follow(log, 0, stop)) == list(range(stop))
    assert log.reads == reads


@pytest.mark.parametrize(("timeout", "waits"), [
    (0.0, []), (0.02, [0.02]), (POLL_SECONDS, [POLL_SECONDS]), (0.12, [0.05, 0.05, 0.02])])
def test_it_ends_when_nothing_came_for_so_long(follow: Any, timeout: float, waits: list[float]
                                              ) -> None:
    """The time counts from the last record, or from the beginning."""
    for start in (0, 2):
        log = Log(2)
        assert list(follow(log, start, None, timeout)) == list(range(start, 2))
        assert [one for one in log.did if isinstance(one, float)] == waits


def test_after_a_timeout_it_looks_again_at_once(follow: Any) -> None:
    log = Log(2, 5)
    follower = follow(log, 0, None, 0.0)
    assert [list(follower), list(follower), list(follower)] == [[0, 1], [2, 3, 4], []]


def test_after_ctrl_c_it_looks_again_at_once(follow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log, interrupts = Log(2, 5), iter([KeyboardInterrupt])

    def check(_: Log) -> None:
        for interrupt in interrupts:
            raise interrupt

    monkeypatch.setattr(log, "check", check)
    follower = follow(log, 0, None, 0.0)
    with pytest.raises(KeyboardInterrupt):
        next(follower)
    assert list(follower) == list(range(5))


@pytest.mark.parametrize(("path", "quiet"), [
    ("s3://data/orders-0", [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]),
    ("/data/orders-0", [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])])
def test_a_store_without_news_is_listed_less_and_less_often(follow: Any, path: str,
                                                            quiet: list[float]) -> None:
    """Each list costs money: twenty a second were some dollars a day. A disk with a tier in a store
    is listed more often."""
    log = Log(0, 0, 0, 1, path=path, range_factor=8)
    assert list(follow(log, 0, None, sum(quiet))) == [0]
    assert [one for one in log.did if isinstance(one, float)] == [*quiet[:3], *quiet]


def test_it_ends_when_it_is_closed(follow: Any) -> None:
    log = Log(3)
    follower = follow(log, 0)
    assert next(follower) == 0
    follower.close()
    assert list(follower) == [] and log.did[-1] == "closed"
    with follow(log, 0) as follower:
        pass
    assert list(follower) == []


def test_a_start_after_the_last_stable_offset_waits_for_the_transaction(tmp_path: Path) -> None:
    """The log is not truncated: a read_committed reader only gets its records later."""
    def made(offset: int) -> bytes:
        return v2.encode(v2.Batch(
            offset, 0, [v2.Record(offset, 5)], base_timestamp=5, max_timestamp=5, producer_id=7,
            producer_epoch=0, base_sequence=offset, is_transactional=True))

    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(made(0) + made(1) + made(2))
    with PartitionLog.open(tmp_path) as log:
        assert (log.last_stable_offset, log.log_end_offset) == (0, 3)
        for start in (None, 2, 3):
            assert not list(log.follow(start, isolation="read_committed", timeout=0))
        follower = log.follow(1, isolation="read_committed", end_offset=4).records()
        with path.open("ab") as file:
            file.write(v2.encode(v2.marker(3, 7, 0, v2.COMMIT, 6)))
        assert [record.offset for record in follower] == [1, 2]
