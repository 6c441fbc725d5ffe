"""Metrics of logs for Prometheus: a LogManager, a registry and an HTTP endpoint.

    python examples/prometheus.py DIRECTORY [PORT]

Serves http://localhost:PORT/metrics until Ctrl-C; without PORT it prints one scrape.
Needs prometheus_client: pip install 'seglog[metrics]'.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest, start_http_server

import seglog
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.metrics import MetricsRegistry
from seglog.metrics.prometheus import PrometheusCollector


def main(directory: Path, port: int | None) -> None:
    """Opens the directory as a broker does, appends a record and shows the metrics."""
    metrics = MetricsRegistry()
    scraped = CollectorRegistry()
    scraped.register(PrometheusCollector(metrics))
    with seglog.LogManager(directory / "data", metrics=metrics) as manager:
        log = manager.get_or_create_log(seglog.TopicPartition("orders", 0))
        batch = RecordBatchBuilder()
        batch.append(time.time_ns() // 1_000_000, b"key", b"value")
        log.append_as_leader(batch.build(), 0)
        if port is None:
            for line in generate_latest(scraped).decode().splitlines():
                if not line.startswith("#") and "orders" in line:
                    print(line)
            return
        start_http_server(port, registry=scraped)
        while True:
            time.sleep(1)


if __name__ == "__main__":
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else None
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), wanted)
    else:
        with tempfile.TemporaryDirectory() as name:
            main(Path(name), wanted)
