"""Quotas of copies to remote storage and of fetches from it."""

from __future__ import annotations

import threading

import pytest

from seglog.errors import ConfigError
from seglog.log.scheduler import MockTime
from seglog.remote_log.copy_task import CopyTask
from seglog.remote_log.quotas import RemoteQuota
from tests.remote_log.support import NOW_MS
from tests.remote_log.tiering import KEY, Make, Tiering
from tests.remote_log.tiering import make as make  # the fixture
from tests.support.waiting import wait_for


def throttled(one: Tiering, what: str) -> list[object]:
    """Average and maximum of the delays."""
    gauges = [one.manager.metrics.get(
        f"kafka.server:type=RemoteLogManager,name=remote-{what}-throttle-time-{kind}")
        for kind in ("avg", "max")]
    return [None if gauge is None else gauge.attributes()["Value"] for gauge in gauges]


def test_the_copy_quota(make: Make) -> None:
    one = make(settings={"remote.log.manager.copy.max.bytes.per.second": "100"})
    quota = one.tiering.copy_quota
    assert quota.throttle_ms() == 0
    quota.record(1000)
    assert quota.throttle_ms() == 9000
    one.clock.sleep(5000)
    assert quota.throttle_ms() == 5000
    one.clock.sleep(5001)
    assert quota.throttle_ms() == 0
    one.append(12)
    quota.record(1_000_000)
    copying = threading.Thread(target=one.copy, daemon=True)
    copying.start()
    wait_for(one.tiering._tasks._copy_quota._turn.locked)
    assert one.storage.starts() == []
    one.tiering.reconfigure({"remote.log.manager.copy.max.bytes.per.second": 10**9})
    assert quota.throttle_ms() == 0
    copying.join(60)
    assert one.storage.starts() == one.bases()[:-1]


def test_bytes_count_as_long_as_their_window_reaches_into_the_time() -> None:
    """The numbers are those of Kafka's RLMQuotaManager."""
    clock = MockTime(current_time_ms=NOW_MS)
    quota = RemoteQuota(100, 11, 1000, clock)
    assert quota.throttle_ms() == 0  # begins the first window
    clock.sleep(900)
    quota.record(20_000)
    delays = []
    for ms in (10_100, 899, 1):
        clock.sleep(ms)
        delays.append(quota.throttle_ms())
    assert delays == [189_000, 188_101, 0]


def test_a_copy_that_waits_for_its_quota_is_cancelled(make: Make) -> None:
    one = make(settings={"remote.log.manager.copy.max.bytes.per.second": "1"})
    one.append(12)
    one.tiering.copy_quota.record(1_000_000)
    copying = threading.Thread(target=one.copy, daemon=True)
    copying.start()
    wait_for(one.tiering._tasks._copy_quota._turn.locked)
    one.task(CopyTask).cancel()
    copying.join(60)
    assert not copying.is_alive() and one.storage.starts() == [] and one.segments() == []
    delay = one.tiering.copy_quota.throttle_ms()
    assert delay > 0 and throttled(one, "copy") == [delay, delay]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_copy_that_waits_for_its_turn_is_cancelled(make: Make, is_late: bool) -> None:
    """The deletion of a partition waits for its copy, and would wait for those of all others."""
    one = make()
    one.append(12)
    turn = one.tiering._tasks._copy_quota._turn
    copying = threading.Thread(target=one.copy, daemon=True)
    with turn:
        copying.start()
        wait_for(lambda: one.task(CopyTask).is_running)
        one.task(CopyTask).cancel()
        if not is_late:
            copying.join(20)
            assert not copying.is_alive()
    copying.join(60)
    assert one.storage.starts() == [] and one.segments() == []


def test_the_fetch_quota(make: Make) -> None:
    one = make(topic={"local.retention.bytes": 1, "retention.bytes": 100_000})
    one.append(12)
    one.copy()
    one.log.delete_old_segments()
    one.tiering.reconfigure({"remote.log.manager.fetch.max.bytes.per.second": "10"})
    assert one.tiering.read(KEY, 0, 400).records
    assert str(throttled(one, "fetch")) == "[nan, nan]"
    assert one.tiering.read(KEY, 0, 400).records == b"", "no error, and nothing for now"
    delay = one.tiering.fetch_quota.throttle_ms()
    assert delay > 0 and throttled(one, "fetch") == [delay, delay]
    assert one.gauge("RemoteFetchRequestsPerSec") == 1
    one.clock.sleep(20_000)
    assert one.tiering.read(KEY, 0, 400).records
    one.clock.sleep(60_000)
    assert str(throttled(one, "fetch")) == "[nan, nan]"
    with pytest.raises(ConfigError, match="cannot be changed"):
        one.tiering.reconfigure({"remote.log.reader.max.pending.tasks": 1})
    one.tiering.close()
    assert throttled(one, "fetch") == [None, None]


def test_idle_copying_threads_are_of_the_pool_as_it_is(make: Make) -> None:
    one = make()

    def idle() -> object:
        found = one.manager.metrics.get(
            "kafka.log.remote:type=RemoteLogManager,name=RemoteLogManagerTasksAvgIdlePercent")
        assert found is not None
        return found.attributes()["Value"]

    one.task(CopyTask).is_running = True
    assert idle() == 0.9
    one.tiering.reconfigure({"remote.log.manager.copier.thread.pool.size": 2})
    assert idle() == 0.5
    one.task(CopyTask).is_running = False
