"""Metrics under Kafka's MBean names: a registry and the kinds of metrics.

    registry = MetricsRegistry()
    group = registry.group("kafka.log", "LogManager")
    group.gauge("remainingLogsToRecover", lambda: len(waiting), {"dir": "/data/k1"})
    registry.get('kafka.log:type=LogManager,name=remainingLogsToRecover,dir="/data/k1"')

There is no global registry: the caller that creates a `LogManager` passes one.
`seglog.metrics.prometheus` exports a registry through prometheus_client (extra `[metrics]`).
"""

from __future__ import annotations

from seglog.metrics.kinds import Gauge, Histogram, Meter, Metric, Timer
from seglog.metrics.registry import MetricName, MetricsGroup, MetricsRegistry, MetricsSource

__all__ = [
    "Gauge", "Histogram", "Meter", "Metric", "MetricName", "MetricsGroup", "MetricsRegistry",
    "MetricsSource", "Timer",
]
