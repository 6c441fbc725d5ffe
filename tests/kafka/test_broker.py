"""Directories of a broker of today: read while it writes, after kill -9, after a clean stop."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import seglog
from tests.kafka import workload
from tests.kafka.harness import Broker, Client
from tests.oracle import log
from tests.oracle.batch import Row
from tests.support import reading
from tests.support.readme import ROOT
from tests.support.waiting import wait_for

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
ISOLATIONS = ("read_uncommitted", "read_committed")
Truth = dict[tuple[str, str], list[Row]]


class Watcher(threading.Thread):
    """Reads all partitions of a live data directory, over and over, until it is told to stop."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(name="watcher")
        self.data_dir, self.stopping = data_dir, threading.Event()
        #: the result of each read of a topic
        self.looks: dict[str, list[list[Row]]] = {topic: [] for topic in workload.TOPICS}
        self.rounds = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                for number, (topic, looks) in enumerate(self.looks.items()):
                    with seglog.PartitionLog.open(self.data_dir / f"{topic}-0") as opened:
                        looks.append(reading.read_rows(opened, threads=2 * (number % 2)))
                self.rounds += 1
        except BaseException as error:
            self.error = error

    def look(self) -> None:
        """Waits until it has looked at what is there now."""
        end = self.rounds + 2
        wait_for(lambda: self.rounds >= end or self.error is not None)


@pytest.fixture(scope="module")
def killed(kafka_lib: Path, tmp_path_factory: pytest.TempPathFactory
           ) -> tuple[Path, Truth, Watcher]:
    """A data directory after kill -9, what consumers got before, and who read while it grew."""
    rng = random.Random(11)
    with Broker(tmp_path_factory.mktemp("killed")) as broker, Client(broker.bootstrap) as client:
        for topic, config in workload.TOPICS.items():
            client.create_topic(topic, config=config)
        watcher = Watcher(broker.data_dir)
        watcher.start()
        try:
            for part in range(5):
                workload.produce_mix(client, rng, 4)
                workload.produce_transactions(client, rng, 3, leave_open=part == 4)
                watcher.look()
        finally:
            watcher.stopping.set()
            watcher.join()
        truth = {(topic, isolation): client.consume(topic, isolation=isolation)
                 for topic in workload.TOPICS for isolation in ISOLATIONS}
        broker.kill()
    return broker.data_dir, truth, watcher


def _default(rows: list[Row]) -> list[Row]:
    return [{name: row[name] for name in COLUMNS} for row in rows]


@pytest.mark.judge
def test_the_oracle_reads_what_consumers_got(killed: tuple[Path, Truth, Watcher]) -> None:
    data_dir, truth, _ = killed
    for topic in workload.TOPICS:
        found = log.read(data_dir / f"{topic}-0")
        assert found.error is None
        assert _default(log.data(found.rows)) == truth[topic, "read_uncommitted"]
        replay = log.transactions(data_dir / f"{topic}-0")
        assert _default(log.committed(log.data(found.rows), replay)) == \
            truth[topic, "read_committed"]
    assert log.transactions(data_dir / "txn-0").open
    active = max((data_dir / "preallocated-0").glob("*.log"))
    assert active.stat().st_size == 16384 and active.read_bytes().endswith(bytes(18))


@pytest.mark.judge
def test_a_growing_log_reads_as_a_growing_prefix(killed: tuple[Path, Truth, Watcher]) -> None:
    """While a broker appends: never an error, never half a batch, never a row too many."""
    _, truth, watcher = killed
    assert watcher.error is None
    for topic, looks in watcher.looks.items():
        rows = truth[topic, "read_uncommitted"]
        sizes = [len(look) for look in looks]
        assert all(look == rows[:len(look)] for look in looks), topic
        assert sizes == sorted(sizes) and len(set(sizes)) > 3, (topic, sizes)


@pytest.mark.judge
@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_killed_brokers_logs_read_as_consumers_got_them(
        killed: tuple[Path, Truth, Watcher], isolation: str, threads: int) -> None:
    data_dir, truth, _ = killed
    for topic in workload.TOPICS:
        with seglog.PartitionLog.open(data_dir / f"{topic}-0") as opened:
            assert reading.read_rows(opened, isolation=isolation, threads=threads) == \
                truth[topic, isolation]
    with seglog.open_data_dir(data_dir) as found:
        assert not found.had_clean_shutdown
        opened = found.logs[seglog.TopicPartition("txn", 0)]
        assert opened.last_stable_offset < opened.log_end_offset
        assert reading.read_rows(opened, isolation=isolation) == truth["txn", isolation]


def test_the_first_broker_of_a_machine_starts(kafka_lib: Path, tmp_path: Path) -> None:
    """With an empty cache, which Maven fills: here one that has the jars at hand."""
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text('#!/bin/sh\nfor option; do case $option in -DoutputDirectory=*)\n'
                     f'ln -s "{kafka_lib}" "${{option#*=}}";; esac; done\n')
    maven.chmod(0o755)
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path),
           "PATH": f"{maven.parent}{os.pathsep}{os.environ['PATH']}"}
    env.pop("SEGLOG_KAFKA_LIB", None)
    done = subprocess.run(
        [sys.executable, "-c", "from tests.kafka import harness; print(harness.formatted())"],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=True)
    assert (Path(done.stdout.strip()) / "meta.properties").is_file()
