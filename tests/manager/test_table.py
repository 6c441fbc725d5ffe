"""The table of a manager's logs: which are found, opened, counted, removed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from seglog.errors import DuplicatePartitionError, KafkaStorageError, LogManagerStateError
from seglog.log.log_dir_failures import CLOSED, OFFLINE
from seglog.manager.table import DeletedLog, LogTable, RemovedLogs, dir_of
from seglog.model import TopicPartition
from seglog.storage.paths import DirectoryKind
from tests.support.facts import refusal

A0, A1, B0, C0 = (TopicPartition(*key) for key in (("a", 0), ("a", 1), ("b", 0), ("c", 0)))
LIVE, FUTURE, STRAY, DELETED = (DirectoryKind.LIVE, DirectoryKind.FUTURE, DirectoryKind.STRAY,
                                DirectoryKind.DELETED)


class Log(SimpleNamespace):
    """What the table asks of a log."""

    def __init__(self, key: TopicPartition, log_dir: str, producers: int = 0) -> None:
        super().__init__(topic_partition=key, path=f"{log_dir}/{key}", did=[],
                         producer_id_count=producers)

    def remove_log_metrics(self) -> None:
        self.did.append("metrics")

    def close_handlers(self) -> None:
        self.did.append("closed")

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__  # type: ignore[assignment]


class Rows:
    """What it asks of unopened logs. `when_opened` runs before a log is there."""

    def __init__(self, log_dir: str, *keys: TopicPartition) -> None:
        self.log_dir, self.keys, self.when_opened = log_dir, list(keys), lambda: None
        self.opened: list[Log] = []

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Any:
        return iter(list(self.keys))

    def __contains__(self, key: object) -> bool:
        return key in self.keys

    def path(self, key: TopicPartition) -> str:
        return f"{self.log_dir}/{key}"

    def row(self, key: TopicPartition) -> int | None:
        return self.keys.index(key) if key in self.keys else None

    def open(self, row: int) -> Log:
        log = Log(self.keys[row], self.log_dir, 1)
        self.opened.append(log)
        self.when_opened()
        return log

    def take(self, key: TopicPartition) -> bool:
        if key not in self.keys:
            return False
        self.keys.remove(key)
        return True

    def producer_count(self, now_ms: int) -> int:
        return now_ms


def table_of(*rows: Rows) -> tuple[Any, list[Any]]:
    served: list[Any] = []
    table: Any = LogTable(lambda: 77, served.append)
    for one in rows:
        table.add_unopened(one)
    return table, served


def test_a_row_is_opened_when_its_log_is_asked_for() -> None:
    one, two = Rows("/k1", A0, A1), Rows("/k2", B0)
    table, served = table_of(one, two)
    assert [table.has(key) for key in (A0, B0, C0)] == [True, True, False]
    assert table.unopened() == [one, two] and table.unopened("/k2") == [two]
    assert table.current_keys() == table.unopened_keys() == [A0, A1, B0]
    assert table.topics() == {"a", "b"} and table.counts() == {"/k1": 2, "/k2": 1}
    assert table.producer_count(3) == 6
    assert not (table.opened() or one.opened or two.opened)
    assert table.get(C0) is None and table.get(A1, is_future=True) is None
    log = table.get(A1)
    assert table.get(A1) is log and one.opened == [log] == served == table.opened()
    assert table.is_current(log) and not table.is_current(Log(A1, "/k1"))
    assert table.opened_current() == {A1: log} and table.opened("/k2") == []
    assert table.unopened_keys() == [A0, B0] and table.current_keys() == [A1, A0, B0]
    assert table.counts() == {"/k1": 2, "/k2": 1} and table.producer_count(3) == 7
    assert table.opened_of_topic("a") == [log] and table.opened_of_topic("b") == []
    assert len(table.served_in("/k2")) == 1 and not one.row(A1) and len(one.opened) == 1
    assert sorted(table.current) == [A0, A1, B0] and len(one.opened) == 2
    assert len(table.served()) == 3 and len(served) == 3


def test_a_log_that_goes_while_it_is_opened_is_closed() -> None:
    rows = Rows("/k1", A0)
    table, served = table_of(rows)
    rows.when_opened = lambda: table.remove_dir("/k1")
    assert table.get(A0) is None and not served and not table.opened()
    assert rows.opened[0].did == ["metrics", "closed"]


@pytest.mark.parametrize("code", [OFFLINE, CLOSED])
def test_logs_that_cannot_be_opened(code: str) -> None:
    """Of a directory that is offline the others are tried; any other error is the caller's."""
    one, two = Rows("/k1", A0), Rows("/k2", B0)
    table, _ = table_of(one, two)

    def refuse() -> None:
        raise KafkaStorageError("of the test", code=code)

    one.when_opened = refuse
    if code == OFFLINE:
        assert [log.topic_partition for log in table.served()] == [B0]
    else:
        assert refusal(table.served) == {"class": "KafkaStorageError", "code": CLOSED,
                                         "text": "of the test"}
        assert not two.opened
    assert table.unopened_keys()[0] == A0


def test_a_table_that_is_sealed_opens_nothing() -> None:
    table, _ = table_of(Rows("/k1", A0, A1))
    log = table.get(A0)
    table.seal()
    assert table.get(A0) is log
    with pytest.raises(LogManagerStateError):
        table.get(A1)


def test_two_logs_of_one_partition() -> None:
    table, _ = table_of(Rows("/k1", A0))
    table.add(log := Log(B0, "/k1"), LIVE)
    table.add(future := Log(B0, "/k2"), FUTURE)
    table.add(future, FUTURE)
    text = ("Duplicate log directories for {} are found in both {} and {}. It is likely because "
            "log directory failure happened while broker was replacing current replica with "
            "future replica. Recover broker from this failure by manually deleting one of the two "
            "directories for this partition. It is recommended to delete the partition in the log "
            "directory that is known to have failed recently.")
    for call, found in (
            (lambda: table.add(Log(A0, "/k2"), LIVE), text.format("a-0", "/k2/a-0", "/k1/a-0")),
            (lambda: table.add(Log(B0, "/k2"), LIVE), text.format("b-0", "/k2/b-0", "/k1/b-0")),
            (lambda: table.add_unopened(Rows("/k2", C0, A0)),
             text.format("a-0", "/k2/a-0", "/k1/a-0")),
            (lambda: table.add_unopened(Rows("/k2", B0)),
             text.format("b-0", "/k2/b-0", "/k1/b-0")),
            (lambda: table.add(Log(B0, "/k3"), FUTURE),
             "Duplicate log directories found: /k3/b-0, /k2/b-0")):
        with pytest.raises(DuplicatePartitionError) as caught:
            call()
        assert str(caught.value) == found
    assert table.get(B0) is log and table.get(B0, is_future=True) is future and not table.has(C0)


def test_logs_leave_and_take_the_place_of_others() -> None:
    table, served = table_of(Rows("/k1", A0, A1))
    table.add(future := Log(A0, "/k2"), FUTURE)
    opened = table.remove(A0)
    assert served == [opened] and dir_of(opened) == "/k1" and not table.has(A0)
    assert table.remove(A0) is None and table.remove(C0, is_future=True) is None
    assert table.counts() == {"/k1": 1, "/k2": 1}
    table.promote(future)
    assert table.get(A0) is future and table.get(A0, is_future=True) is None
    table.add(other := Log(B0, "/k2"), FUTURE)
    assert table.remove(B0, is_future=True) is other and table.remove(B0, is_future=True) is None


def test_deleted_logs_wait_in_their_order() -> None:
    times = iter((77, 79))
    table: Any = LogTable(lambda: next(times), [].append)
    assert table.next_to_be_deleted_ms() is None and table.take_to_be_deleted(100) is None
    first, second = Log(A0, "/k1"), Log(A0, "/k1")
    table.add(first, DELETED)
    table.add(second, DELETED)
    assert table.next_to_be_deleted_ms() == 77 and table.take_to_be_deleted(76) is None
    assert table.take_to_be_deleted(77) == DeletedLog(first, 77)
    assert table.next_to_be_deleted_ms() == 79 and table.take_to_be_deleted(78) is None
    assert table.take_to_be_deleted(80) == DeletedLog(second, 79)
    assert table.next_to_be_deleted_ms() is None


def test_a_failed_directory_takes_all_of_its_logs() -> None:
    one, two = Rows("/k1", A0, A1), Rows("/k2", B0)
    table, _ = table_of(one, two)
    opened, other = table.get(A1), table.get(B0)
    logs = [Log(TopicPartition(f"x{number}", 0), f"/k{number % 2 + 1}") for number in range(6)]
    for log, kind in zip(logs, (FUTURE, FUTURE, STRAY, STRAY, DELETED, DELETED), strict=True):
        table.add(log, kind)
    gone = table.remove_dir("/k1")
    assert gone == RemovedLogs([opened], [logs[0]], [logs[2], logs[4]], [A0])
    assert gone.opened == [opened, logs[0], logs[2], logs[4]]
    assert gone.current_partitions == (A1, A0)
    assert table.current_keys() == [B0] and table.served() == [other, logs[1]]
    assert table.stray == {logs[3].topic_partition: logs[3]}
    assert [one.log for one in table.to_be_deleted] == [logs[5]]
    assert dict(table.counts()) == {"/k2": 2}
    assert table.remove_dir("/k1") == RemovedLogs([], [], [], [])
