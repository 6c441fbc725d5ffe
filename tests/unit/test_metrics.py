"""The registry, its MBean names, and what meters and timers measure."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading

import pytest

from seglog.metrics import Gauge, MetricName, MetricsRegistry, Timer
from seglog.metrics.kinds import Histogram, Meter


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("tags", "mbean"), [
    ({}, "kafka.log:type=LogManager,name=N"),
    ({"dir": "/data/k1", "threadNum": 0},
     'kafka.log:type=LogManager,name=N,dir="/data/k1",threadNum=0'),
    ({"topic": "a.b-c_d", "partition": 3, "is-future": ""},
     "kafka.log:type=LogManager,name=N,topic=a.b-c_d,partition=3"),
    ({"a": "x y\t%"}, "kafka.log:type=LogManager,name=N,a=x y\t%"),
    ({"a": 'q"*?\\\n='}, 'kafka.log:type=LogManager,name=N,a="q\\"\\*\\?\\\\\\n="'),
    ({"a": "\u00fc"}, 'kafka.log:type=LogManager,name=N,a="\u00fc"'),
])
def test_mbean_names(tags: dict[str, str | int], mbean: str) -> None:
    name = MetricName.of("kafka.log", "LogManager", "N", tags)
    assert name.mbean == str(name) == mbean


def test_gauges_come_and_go() -> None:
    registry = MetricsRegistry()
    group = registry.group("kafka.log", "LogManager")
    waiting = [1, 2, 3]
    made = group.gauge("remainingLogsToRecover", lambda: len(waiting), {"dir": "/d"})
    mbean = 'kafka.log:type=LogManager,name=remainingLogsToRecover,dir="/d"'
    assert registry.get(mbean) is made and made.value == 3
    waiting.pop()
    assert registry.snapshot() == {mbean: {"Value": 2}}
    assert mbean in registry and len(registry) == 1 and 7 not in registry
    # A name that is taken keeps what it has, as Kafka's registry does.
    assert group.gauge("remainingLogsToRecover", lambda: 7, {"dir": "/d"}).value == 2
    with pytest.raises(TypeError, match="is a Gauge, not a Meter"):
        group.meter("remainingLogsToRecover", "logs", {"dir": "/d"})
    assert group.remove("remainingLogsToRecover", {"dir": "/d"})
    assert not group.remove("remainingLogsToRecover", {"dir": "/d"})
    assert registry.get(mbean) is None and not list(registry)


def test_iteration_keeps_the_order_and_bears_changes() -> None:
    registry = MetricsRegistry()
    group = registry.group("g", "T")
    for name in ("b", "a", "c"):
        group.meter(name, "events")
    assert [name.name for name, _ in registry] == ["b", "a", "c"]
    for name, _ in registry:
        registry.remove(name)
    assert len(registry) == 0


def test_a_meter_has_yammers_rates() -> None:
    clock = Clock()
    meter = MetricsRegistry(clock=clock).group("g", "T").meter("BytesInPerSec", "bytes")
    assert meter.rates == (0.0, 0.0, 0.0) and meter.mean_rate == 0.0
    meter.mark(30)
    clock.now += 4.9
    assert meter.rates == (0.0, 0.0, 0.0)  # no tick yet
    clock.now += 0.1
    assert meter.rates == (6.0, 6.0, 6.0)  # the first tick sets the rate
    clock.now += 60
    # Twelve empty ticks: one minute of decay.
    one, five, fifteen = meter.rates
    assert one == pytest.approx(6 * math.exp(-1))
    assert five == pytest.approx(6 * math.exp(-1 / 5))
    assert fifteen == pytest.approx(6 * math.exp(-1 / 15))
    assert meter.mean_rate == pytest.approx(30 / 65)
    assert meter.attributes() | {"OneMinuteRate": 0, "FiveMinuteRate": 0, "FifteenMinuteRate": 0,
                                 "MeanRate": 0} == {
        "Count": 30, "EventType": "bytes", "RateUnit": "SECONDS", "MeanRate": 0,
        "OneMinuteRate": 0, "FiveMinuteRate": 0, "FifteenMinuteRate": 0}


def test_a_timer_measures_in_ms() -> None:
    clock = Clock()
    timer = MetricsRegistry(clock=clock).group("kafka.log", "LogFlushStats").timer(
        "LogFlushRateAndTimeMs")
    assert timer.attributes()["Min"] == timer.attributes()["99thPercentile"] == 0.0
    with pytest.raises(KeyError), timer.time():
        clock.now += 0.25
        raise KeyError
    for value in range(1, 100):
        timer.update(value)
    timer.update(-1)
    found = timer.attributes()
    assert timer.count == found["Count"] == 100
    assert (found["Min"], found["Max"]) == (1, 250.0)
    values = [*range(1, 100), 250.0]
    mean = sum(values) / 100
    assert found["Mean"] == pytest.approx(mean)
    assert found["StdDev"] == pytest.approx(
        math.sqrt(sum((value - mean) ** 2 for value in values) / 99))
    assert found["50thPercentile"] == pytest.approx(50.5)
    assert found["95thPercentile"] == pytest.approx(95.95)
    assert found["999thPercentile"] == 250.0
    assert found["LatencyUnit"] == "MILLISECONDS" and found["EventType"] == "calls"


def test_percentiles_follow_what_is_new() -> None:
    clock = Clock()
    histogram = Histogram(clock)
    for _ in range(3000):
        histogram.update(1.0)
    clock.now += 3700  # more than an hour: the sample is scaled down
    for _ in range(3000):
        histogram.update(2.0)
    found = histogram.attributes()
    assert found["50thPercentile"] == 2.0 and found["Count"] == 6000 and found["Min"] == 1.0


def test_threads_lose_nothing() -> None:
    registry = MetricsRegistry()

    def work() -> None:
        group = registry.group("g", "T")
        for _ in range(500):
            group.meter("m", "events").mark()
            group.timer("t").update(1.0)
            registry.snapshot()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    meter, timer = (registry.get(f"g:type=T,name={name}") for name in "mt")
    assert isinstance(meter, Meter) and isinstance(timer, Timer)
    assert meter.count == timer.count == 2000


def test_no_optional_package_is_needed() -> None:
    code = "import sys, seglog.metrics; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_prometheus() -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    from seglog.metrics.prometheus import PrometheusCollector

    clock = Clock()
    registry = MetricsRegistry(clock=clock)
    manager = registry.group("kafka.log", "LogManager")
    manager.gauge("RemainingSegmentsToLoad", lambda: 3, {"dir": "/d", "threadNum": 0})
    manager.gauge("RemainingSegmentsToLoad", lambda: 4, {"dir": "/d", "threadNum": 1})
    manager.gauge("remainingSegmentsToRecover", lambda: None, {"dir": "/d", "threadNum": 0})
    registry.group("kafka.log", "Log").gauge("Size", lambda: 1 << 40, {
        "topic": "t", "partition": 0, "is-future": "true"})
    registry.group("kafka.log", "LogCleaner").gauge("max-dirty-percent", lambda: 5.5)
    registry.group("kafka.log", "LogFlushStats").timer("LogFlushRateAndTimeMs").update(7)
    registry.group("kafka.server", "BrokerTopicMetrics").meter("BytesInPerSec", "bytes").mark(12)
    broken: Gauge[float] = manager.gauge("broken", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        broken.attributes()
    exported = prometheus_client.CollectorRegistry()
    exported.register(PrometheusCollector(registry))
    lines = prometheus_client.generate_latest(exported).decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if line[0] != "#")
    assert {name: float(value) for name, _, value in samples} == {
        'kafka_log_logmanager_remainingsegmentstoload{dir="/d",threadNum="0"}': 3,
        'kafka_log_logmanager_remainingsegmentstoload{dir="/d",threadNum="1"}': 4,
        'kafka_log_log_size{is_future="true",partition="0",topic="t"}': 1 << 40,
        "kafka_log_logcleaner_max_dirty_percent": 5.5,
        "kafka_log_logflushstats_logflushrateandtimems_count": 1,
        **{f'kafka_log_logflushstats_logflushrateandtimems{{quantile="{quantile}"}}': 7
           for quantile in ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")},
        "kafka_server_brokertopicmetrics_bytesin_total": 12}
    assert "# TYPE kafka_server_brokertopicmetrics_bytesin_total counter" in lines
    assert "# TYPE kafka_log_logmanager_remainingsegmentstoload gauge" in lines


def test_a_path_that_is_not_utf8_fails_no_scrape() -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    from seglog.metrics.prometheus import PrometheusCollector

    registry = MetricsRegistry()
    registry.group("kafka.log", "LogManager").gauge(
        "LogDirectoryOffline", lambda: 1, {"logDirectory": os.fsdecode(b"/k\xff")})
    exported = prometheus_client.CollectorRegistry()
    exported.register(PrometheusCollector(registry))
    assert ('kafka_log_logmanager_logdirectoryoffline{logDirectory="/k\\\\udcff"} 1.0'
            in prometheus_client.generate_latest(exported).decode().splitlines())
