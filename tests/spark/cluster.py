"""A standalone Spark cluster on 127.0.0.1 out of the pip package: one Master, some Workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pyspark

_START_SECONDS = 180.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


class Cluster:
    """`with` starts it and kills what is left of it. `environment` is that of the Workers, which
    their executors get too."""

    def __init__(self, home: Path, environment: Mapping[str, str], workers: int = 2) -> None:
        self.home, self.master = home, ""
        self._environment = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m",
                             **environment, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
        self._count = workers
        self._processes: list[subprocess.Popen[bytes]] = []

    def _start(self, name: str, kind: str, *args: str, host: str = "127.0.0.1", until: str
               ) -> str:
        """Starts a daemon and waits for a line of its log; returns the first group of `until`."""
        log = self.home / f"{name}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [Path(self._environment["SPARK_HOME"], "bin", "spark-class"), kind,
                 "--host", host, "--port", "0", "--webui-port", "0", *args],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                env={**self._environment, "SPARK_LOCAL_IP": host}, cwd=self.home,
                start_new_session=True)
        self._processes.append(process)
        end = time.monotonic() + _START_SECONDS
        while (found := re.search(until, log.read_text())) is None:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{name} did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.1)
        return found[1]

    def start_worker(self) -> None:
        """One more Worker, of one core. Each has a host of its own, because Spark starts no twin of
        a task on the same one; all of 127.0.0.0/8 is this machine on Linux alone."""
        number = len(self._processes)
        name, host = f"worker{number}", f"127.0.0.{number if sys.platform == 'linux' else 1}"
        self._start(name, _WORKER, "--cores", "1", "--memory", "1g", "--work-dir",
                    str(self.home / name), self.master, host=host,
                    until=r"Successfully registered with master (\S+)")

    def __enter__(self) -> Cluster:
        self.home.mkdir(parents=True, exist_ok=True)
        try:
            self.master = self._start("master", _MASTER, until=r"Starting Spark master at (\S+)")
            for _ in range(self._count):
                self.start_worker()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        for process in self._processes:
            # A Worker, its executors and their Pythons are one session.
            for pid in _session(process.pid):
                _kill(pid)
            process.wait(timeout=60)
        self._processes.clear()

    def kill_executor(self, worker: int) -> None:
        """SIGKILL for the executor of a Worker, which starts another one."""
        executors = [pid for pid in _session(self._workers[worker].pid)
                     if b"CoarseGrainedExecutorBackend" in _command(pid)]
        assert executors, f"worker {worker} runs no executor"
        for pid in executors:
            _kill(pid)

    def kill_worker(self, worker: int) -> None:
        """SIGKILL for all that runs on a Worker's machine, itself first."""
        process = self._workers[worker]
        for pid in [process.pid, *_session(process.pid)]:
            _kill(pid)
        process.wait(timeout=60)

    @property
    def _workers(self) -> list[subprocess.Popen[bytes]]:
        """Those that run, after the Master."""
        return [process for process in self._processes[1:] if process.poll() is None]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended by itself


def _session(leader: int) -> list[int]:
    """The processes of a session, of which this test started the leader."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[3]) == leader:
                found.append(int(folder.name))
    return found


def _command(pid: int) -> bytes:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return b""
