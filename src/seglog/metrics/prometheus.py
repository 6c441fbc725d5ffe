"""Exports a registry to Prometheus. Needs prometheus_client (extra `[metrics]`).

    prometheus_client.REGISTRY.register(PrometheusCollector(registry))

Names are those of the JMX exporter with its usual rules for Kafka (kafka-2_0_0.yml):
`kafka.log:type=LogManager,name=remainingLogsToRecover,dir="/data"` becomes
`kafka_log_logmanager_remaininglogstorecover{dir="/data"}`, a meter `BytesInPerSec` becomes the
counter `..._bytesin_total`, and a timer or histogram becomes a summary with `quantile` labels.
Label values are unquoted, unlike in MBean names.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from seglog.metrics.kinds import QUANTILES, Gauge, Meter, Metric
from seglog.metrics.registry import MetricName, MetricsRegistry

__all__ = ["PrometheusCollector"]

_LOG = logging.getLogger(__name__)
_FOREIGN = re.compile(r"[^A-Za-z0-9_]+")
_PER_SECOND = re.compile(r"PerSec\w*$")


def _family(name: MetricName, metric: Metric) -> tuple[str, str, str]:
    """The family's name and type, and the name of the sample that holds the count."""
    plain = name.name
    meter = isinstance(metric, Meter)
    if meter:
        plain = _PER_SECOND.sub("", plain)
    text = "_".join(part for part in (name.group, name.type, plain) if part)
    text = re.sub(r"_+", "_", _FOREIGN.sub("_", text)).lower()
    if meter:
        return text, "counter", f"{text}_total"
    return (text, "gauge", text) if isinstance(metric, Gauge) else \
        (text, "summary", f"{text}_count")


def _label(value: str) -> str:
    """A tag's value in UTF-8: a path with other bytes must not fail the whole scrape."""
    return value.encode("utf-8", "backslashreplace").decode()


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


class PrometheusCollector(Collector):
    """Reads the registry at each scrape. Omits gauges that return no number (None, strings).

    Omits a gauge whose function raises and logs a warning: one metric must not fail the scrape.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry

    def describe(self) -> list[Family]:
        """An empty list: the families differ from scrape to scrape."""
        return []

    def collect(self) -> Iterator[Family]:
        """One family per name, with a sample per set of tags."""
        families: dict[str, Family] = {}
        for name, metric in self._registry:
            try:
                attributes = metric.attributes()
            except Exception:
                _LOG.warning("%s cannot be read", name, exc_info=True)
                continue
            text, kind, counts = _family(name, metric)
            family = families.setdefault(
                text, Family(text, f"{name.group}:type={name.type},name={name.name}", kind))
            labels = {_FOREIGN.sub("_", key): _label(value) for key, value in name.tags if value}
            value = _number(attributes.get("Value", attributes.get("Count")))
            if value is not None:
                family.add_sample(counts, labels, value)
            if kind == "summary":
                for attribute in QUANTILES:
                    found = _number(attributes[attribute])
                    if found is not None:
                        # The rules' "0.$4" for (\d+)thPercentile: 0.50, not 0.5.
                        quantile = f"0.{attribute.removesuffix('thPercentile')}"
                        family.add_sample(text, {**labels, "quantile": quantile}, found)
        yield from (family for family in families.values() if family.samples)
