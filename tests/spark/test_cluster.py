"""A standalone cluster whose Workers have no seglog: a Master, two Workers, one driver.

Executors and Workers are killed during jobs, and every row appears once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.scrub import finding_row
from tests.spark.cluster import Cluster
from tests.spark.environments import DRIVER, clean, environment

pytestmark = [pytest.mark.judge, pytest.mark.slow]

RECORDS = 3000
#: A loaded machine may not see the middle of a short job.
ATTEMPTS = 20
Row = list[Any]


class Driver:
    """A program on the cluster that runs one job after the other."""

    def __init__(self, process: subprocess.Popen[str], cluster: Cluster) -> None:
        self._process, self._cluster = process, cluster

    def _event(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the driver ended with {self._process.wait()}"
        event: dict[str, Any] = json.loads(line)
        return event

    def wait_until_ready(self) -> None:
        assert self._event() == {"ready": True}

    def _lost(self) -> int:
        """The number of lost executors that Spark has noticed."""
        return (self._cluster.home / "driver.log").read_text().count(" Lost executor ")

    def run(self, job: str, kill: str | None, undo: Callable[[], object] = lambda: None,
            **args: str) -> Any:
        """Runs a job and returns its result. Kills the executor of a Worker, the Worker, or nothing
        in the middle of the job. A job that was over before that is undone, and runs again."""
        for _ in range(ATTEMPTS):
            is_killed, result = self._run_once(job, kill, **args)
            if is_killed or kill is None:
                return result
            undo()
        raise AssertionError(f"{job} was over {ATTEMPTS} times before anything could be killed")

    def _run_once(self, job: str, kill: str | None, **args: str) -> tuple[bool, Any]:
        assert self._process.stdin is not None
        lost = self._lost()
        print(json.dumps({"job": job, **args}), file=self._process.stdin, flush=True)
        event = self._event()
        while "result" not in event:
            assert event["middle"] == job
            if kill is None:
                event = self._event()
                continue
            assert event["tasks"] >= 10
            if kill == "executor":
                self._cluster.kill_executor(0)
            elif kill == "worker":
                self._cluster.kill_worker(0)
            kill = ""
            event = self._event()
        assert kill != "" or self._lost() > lost
        return kill == "", event["result"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    java = shutil.which("java")
    if java is None:
        pytest.skip("java is missing: Spark needs a JDK of at least 17")
    home = tmp_path_factory.mktemp("cluster")
    # A typical cluster has the heavy packages, but not seglog.
    bare = environment(home / "bare", ("numpy", "pyarrow", "pandas", "dateutil", "six"))
    path = f"{bare.parent}:{Path(java).parent}:/usr/bin:/bin"
    with Cluster(home / "spark", clean(path)) as running:
        yield running


@pytest.fixture(scope="module")
def driver(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    python = environment(tmp_path_factory.mktemp("driver") / "venv", DRIVER)
    program = Path(__file__).with_name("cluster_driver.py")
    path = f"{python.parent}:{Path(shutil.which('java') or '').parent}:/usr/bin:/bin"
    # "python3" is the driver's environment here, and the one without seglog on the Workers.
    env = clean(path, PYSPARK_PYTHON="python3", SPARK_LOCAL_IP="127.0.0.1")
    with open(cluster.home / "driver.log", "w") as log:
        process = subprocess.Popen([python, program, cluster.master], env=env, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    try:
        one = Driver(process, cluster)
        one.wait_until_ready()
        yield one
    finally:
        process.kill()
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """A data directory with two partitions in small segments, and its rows."""
    home = tmp_path_factory.mktemp("data")
    (home / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    rows = []
    for partition in range(2):
        with seglog.open(home / f"orders-{partition}", config={
                "internal.segment.bytes": 32768, "index.interval.bytes": 1024}) as log:
            for first in range(0, RECORDS, 20):
                values = [f"{partition}/{n} {'x' * 80}" for n in range(first, first + 20)]
                log.append_many([value.encode() for value in values])
                rows += [["orders", partition, first + n, value]
                         for n, value in enumerate(values)]
    return home, sorted(rows)


@pytest.mark.parametrize("kill", ["executor", "worker"])
def test_a_read_has_every_row_once(driver: Driver, cluster: Cluster, kill: str,
                                   data: tuple[Path, list[Row]]) -> None:
    path, rows = data
    assert driver.run("read", kill, path=str(path)) == rows
    if kill == "worker":
        cluster.start_worker()


def test_a_write_has_every_row_once(driver: Driver, data: tuple[Path, list[Row]],
                                    tmp_path: Path) -> None:
    path, rows = data
    target = tmp_path / "target"
    assert driver.run("write", "executor", lambda: shutil.rmtree(target), path=str(path),
                      target=str(target)) is True
    with seglog.open_data_dir(target, level="verify") as written:
        assert not [found for found in written.report.findings if found.directory is not None]
        values = [value.decode() for batch in written.to_arrow("copied", columns=["value"])
                  for value in batch.to_pylists()["value"]]
    assert sorted(values) == sorted(row[3] for row in rows)
    assert not [name for name in target.rglob("*") if "fragment" in name.name]


def test_speculative_twins_write_every_row_once(driver: Driver, tmp_path: Path) -> None:
    target, attempts = tmp_path / "target", tmp_path / "attempts"
    attempts.mkdir()
    assert driver.run("write twins", None, target=str(target), attempts=str(attempts)) is True
    assert sorted(mark.name for mark in attempts.iterdir()) == ["0", "1"]
    with seglog.open_data_dir(target, level="verify") as written:
        assert not [found for found in written.report.findings if found.directory is not None]
        values = [int(value) for batch in written.to_arrow("twins", columns=["value"])
                  for value in batch.to_pylists()["value"]]
    assert sorted(values) == sorted([*range(1000), *range(1000)])
    assert not [name for name in target.rglob("*") if "fragment" in name.name]


def test_a_scrub_has_every_finding_once(driver: Driver, data: tuple[Path, list[Row]],
                                        tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    shutil.copytree(data[0], path)
    for log in sorted(path.glob("orders-*/*.log"))[::3]:
        content = bytearray(log.read_bytes())
        content[len(content) // 2] ^= 0xFF
        log.write_bytes(content)
    with seglog.open_data_dir(path, level="verify") as local:
        expected = [finding_row(str(path), found) for found in local.report.findings]
    assert len(expected) > 5
    assert driver.run("scrub", "executor", path=str(path)) == expected
