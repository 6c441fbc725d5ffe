"""Reads and lookups of a tiered log with a time limit: what a broker's fetch and list-offsets
requests wait for, and what they get if remote storage does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seglog.errors import (
    IllegalArgumentError, OffsetOutOfRangeError, RemoteReadTimeoutError, RemoteStorageError,
    RetriableRemoteStorageError, SeglogError, UnknownTopicOrPartitionError,
)
from seglog.log.read import FetchDataInfo
from seglog.log.unified_log import UnifiedLog
from seglog.model import TopicPartition
from seglog.remote_log.copy_task import CopyTask
from seglog.tiered import TopicIdPartition
from tests.remote_log.support import NOW_MS
from tests.remote_log.tiering import KEY, TOPIC_ID, Tiering
from tests.support.waiting import wait_for

OTHER = TopicPartition("orders", 1)


class Slow(Tiering):
    """Twelve records, the first ten of them in remote storage alone, which answers after `answer`.
    One reader thread."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, topic={"local.retention.bytes": 1, "retention.bytes": 100_000},
                         settings={"remote.log.reader.threads": "1",
                                   "remote.log.reader.max.pending.tasks": "3"})
        self.append(12)
        self.copy()
        self.log.delete_old_segments()
        self.answer = threading.Event()
        fetch = self.storage.fetch_log_segment
        self.asked = 0

        def slow(*arguments: object) -> object:
            self.asked += 1
            assert self.answer.wait(120)
            return fetch(*arguments)

        self.storage.fetch_log_segment = slow

    def value(self, mbean: str, attribute: str = "Count") -> object:
        found = self.manager.metrics.get(mbean)
        return None if found is None else found.attributes()[attribute]

    def pool(self, name: str) -> object:
        return self.value("kafka.log.remote:type=RemoteStorageThreadPool,"
                          f"name=RemoteLogReader{name}", "Value")

    def expired(self, kind: str, tags: str = "") -> object:
        return self.value(f"kafka.server:type=DelayedRemote{kind}Metrics,name=ExpiresPerSec{tags}")


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    one = Slow(tmp_path)
    yield one
    one.answer.set()
    one.close()


def test_a_read_that_is_not_done_in_time(slow: Slow) -> None:
    """It answers with no records. The one that waits for a thread is never run; the one that runs
    ends, and its caller has gone (DelayedRemoteFetch.onExpiration)."""
    assert slow.expired("Fetch") == 0
    running = slow.tiering.async_read(KEY, 0, 400)
    wait_for(lambda: slow.asked == 1)
    found = slow.tiering.read(KEY, 0, 400, "read_committed", max_wait_ms=1)
    assert (found.records, found.aborted_transactions) == (b"", [])
    assert found.fetch_offset_metadata.message_offset == 0
    assert slow.expired("Fetch") == 1
    assert slow.pool("TaskQueueSize") == 0 and slow.pool("AvgIdlePercent") == 0
    assert slow.tiering._fetches.in_time({KEY: running}, 1) == {KEY: None}
    assert slow.expired("Fetch") == 2 and slow.gauge("RemoteFetchRequestsPerSec") == 2
    slow.answer.set()
    assert running.result(60).records == slow.tiering.read(KEY, 0, 400).records != b""
    assert slow.asked == 2
    assert slow.gauge("RemoteFetchErrorsPerSec") == 0
    assert slow.value("kafka.log.remote:type=RemoteLogManager,"
                      "name=RemoteLogReaderFetchRateAndTimeMs") == 2


def test_the_limit_is_a_setting(tmp_path: Path) -> None:
    one = Tiering(tmp_path, topic={"local.retention.bytes": 1, "retention.bytes": 100_000},
                  settings={"remote.fetch.max.wait.ms": "1"})
    one.append(12)
    one.copy()
    one.log.delete_old_segments()
    answer, fetch = threading.Event(), one.storage.fetch_log_segment
    one.storage.fetch_log_segment = lambda *given: answer.wait(120) and fetch(*given)
    assert one.tiering.read(KEY, 0, 400).records == b""
    answer.set()
    one.close()


def test_a_fetch_of_many_partitions(slow: Slow) -> None:
    """Those of remote storage have one time limit; the others answer whatever that does."""
    other = another_partition(slow)
    wanted = {KEY: 0, OTHER: other.log_end_offset - 1, TopicPartition("none", 0): 0}
    found = slow.tiering.fetch(wanted, 400, max_wait_ms=1)
    assert list(found) == list(wanted)
    assert [one.records == b"" for one in found.values() if isinstance(one, FetchDataInfo)] == [
        True, False]
    assert isinstance(found[TopicPartition("none", 0)], UnknownTopicOrPartitionError)
    assert slow.expired("Fetch") == 1
    slow.answer.set()
    found = slow.tiering.fetch({KEY: 3, OTHER: 4}, 400)
    for key, offset in ((KEY, 3), (OTHER, 4)):
        one = found[key]
        assert isinstance(one, FetchDataInfo)
        assert int.from_bytes(one.records[:8]) == offset
    slow.storage.fail["fetch"] = [RemoteStorageError("gone")]
    found = slow.tiering.fetch({KEY: 3, OTHER: 4}, 400)
    assert sorted(type(one) for one in found.values() if isinstance(one, Exception)) == [
        RemoteStorageError]
    assert isinstance(slow.tiering.fetch({KEY: 40}, 400)[KEY], OffsetOutOfRangeError)


def another_partition(slow: Slow) -> UnifiedLog:
    log = slow.manager.get_or_create_log(OTHER, topic_id=TOPIC_ID)
    slow.tiering.on_leadership_change([OTHER])
    key = TopicIdPartition(TOPIC_ID.bytes, "orders", 1)
    wait_for(lambda: slow.tiering.is_partition_ready(OTHER))
    first, slow.log = slow.log, log
    slow.append(12)
    slow.log = first
    slow.tiering._tasks.of(key)[CopyTask].run()
    log.delete_old_segments()
    assert log.local_log_start_offset > log.log_start_offset == 0
    return log


def test_an_offset_that_is_nowhere_is_no_error_of_remote_storage(slow: Slow) -> None:
    slow.answer.set()
    with pytest.raises(OffsetOutOfRangeError):
        slow.tiering.async_read(KEY, 1000, 400).result(60)
    assert slow.gauge("RemoteFetchErrorsPerSec") == 0
    assert slow.gauge("RemoteFetchRequestsPerSec") == 1


def test_lookups_by_time_in_reader_threads(slow: Slow) -> None:
    waiting = slow.tiering.async_offset_for_timestamp(KEY, NOW_MS + 3)
    wait_for(lambda: slow.asked == 1)
    with pytest.raises(RemoteReadTimeoutError, match="orders-0: no offset was found for time"):
        slow.tiering.offset_for_timestamp(KEY, NOW_MS + 4, timeout_ms=1)
    tags = ",topic=orders,partition=0"
    assert slow.expired("ListOffsets") == slow.expired("ListOffsets", tags) == 1
    slow.answer.set()
    assert waiting.result(60) == (NOW_MS + 3, 3, 0)
    assert slow.tiering.offset_for_timestamp(KEY, NOW_MS + 11) == (NOW_MS + 11, 11, 0)
    assert slow.tiering.offset_for_timestamp(KEY, NOW_MS + 12) is None
    assert slow.asked == 1, "the lookup that was cancelled never ran, the others are local"
    with pytest.raises(UnknownTopicOrPartitionError):
        slow.tiering.offset_for_timestamp(TopicPartition("none", 0), 0)
    slow.tiering.stop_partitions([KEY])
    assert slow.expired("ListOffsets", tags) is None


def test_more_threads_at_run_time(slow: Slow) -> None:
    for _ in range(4):
        slow.tiering.async_read(KEY, 0, 400)
    with pytest.raises(RetriableRemoteStorageError, match="3 reads are pending"):
        slow.tiering.async_read(KEY, 0, 400)
    with pytest.raises(RetriableRemoteStorageError, match="3 reads are pending"):
        slow.tiering.async_offset_for_timestamp(KEY, NOW_MS)
    slow.tiering.reconfigure({"remote.log.reader.threads": "3"})
    wait_for(lambda: slow.asked == 3)
    assert slow.pool("TaskQueueSize") == 1
    slow.answer.set()
    wait_for(lambda: slow.asked == 4 and slow.pool("AvgIdlePercent") == 1)


def test_closing_ends_reads_that_wait(slow: Slow) -> None:
    reads = [slow.tiering.async_read(KEY, 0, 400) for _ in range(3)]
    wait_for(lambda: slow.asked == 1)
    closing = threading.Thread(target=slow.tiering.close)
    closing.start()
    wait_for(lambda: reads[1].cancelled() and reads[2].cancelled())
    slow.answer.set()
    closing.join(60)
    assert not closing.is_alive() and reads[0].done()
    assert slow.pool("TaskQueueSize") is slow.expired("Fetch") is None


def test_callers_that_wait_are_told_of_the_end(slow: Slow) -> None:
    """At once, not when their time is over."""
    slow.tiering.async_read(KEY, 0, 400)
    wait_for(lambda: slow.asked == 1)
    told: list[str] = []

    def wait(call: Callable[[], object]) -> None:
        try:
            call()
        except SeglogError as error:
            told.append(str(error))

    calls: list[Callable[[], object]] = [
        lambda: slow.tiering.read(KEY, 0, 400, max_wait_ms=3_600_000),
        lambda: slow.tiering.offset_for_timestamp(KEY, NOW_MS, timeout_ms=1 << 70)]
    threads = [threading.Thread(target=wait, args=[call], daemon=True) for call in calls]
    for number, thread in enumerate(threads):
        thread.start()
        wait_for(lambda number=number: slow.pool("TaskQueueSize") == number + 1)
    closing = threading.Thread(target=slow.tiering.close)
    closing.start()
    for thread in threads:
        thread.join(60)
    slow.answer.set()
    closing.join(60)
    assert told == ["the read was cancelled: the RemoteLogManager was closed"] * 2
    with pytest.raises(SeglogError, match="the RemoteLogManager was closed"):
        slow.tiering.offset_for_timestamp(KEY, NOW_MS)


@pytest.mark.parametrize("offset", [0, 11])
def test_wrong_arguments_are_refused_wherever_the_records_are(slow: Slow, offset: int) -> None:
    slow.answer.set()
    with pytest.raises(IllegalArgumentError, match="Invalid max size -1 for log read"):
        slow.tiering.read(KEY, offset, -1)
    with pytest.raises(ValueError, match="isolation 'READ_COMMITTED' is neither"):
        slow.tiering.read(KEY, offset, 400, "READ_COMMITTED")  # type: ignore[arg-type]
