"""A standalone Spark cluster on 127.0.0.1 from the pip package: one Master and some Workers."""

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

from tests.spark.environments import spark_home

_START_SECONDS = 600.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


class Cluster:
    """`with` starts the cluster and kills its remaining processes. `environment` is that of the
    Workers and their executors."""

    def __init__(self, home: Path, environment: Mapping[str, str], workers: int = 2) -> None:
        self.home, self.master = home, ""
        self._environment = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m",
                             **environment, "SPARK_HOME": str(home / "home")}
        self._count = workers
        self._processes: list[subprocess.Popen[bytes]] = []

    def _start(self, name: str, kind: str, *args: str, host: str = "127.0.0.1", until: str
               ) -> str:
        """Starts a daemon, waits for a line of its log, and returns the first group of `until`."""
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
        """Adds a Worker with one core. Each has its own host, because Spark starts no second
        attempt of a task on the same host. Only on Linux is all of 127.0.0.0/8 this machine."""
        number = len(self._processes)
        name, host = f"worker{number}", f"127.0.0.{number if sys.platform == 'linux' else 1}"
        self._start(name, _WORKER, "--cores", "1", "--memory", "1g", "--work-dir",
                    str(self.home / name), self.master, host=host,
                    until=r"Successfully registered with master (\S+)")

    def __enter__(self) -> Cluster:
        spark_home(self.home / "home")
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
            # A Worker, its executors and their Pythons form one session.
            for pid in _session(process.pid):
                _kill(pid)
            process.wait(timeout=300)
        self._processes.clear()

    def kill_executor(self, worker: int) -> None:
        """Kills the executor of a Worker with SIGKILL; the Worker starts another one."""
        executors = [pid for pid in _session(self._workers[worker].pid)
                     if b"CoarseGrainedExecutorBackend" in _command(pid)]
        assert executors, f"worker {worker} runs no executor"
        for pid in executors:
            _kill(pid)

    def kill_worker(self, worker: int) -> None:
        """Kills a Worker and everything on its machine with SIGKILL, the Worker first."""
        process = self._workers[worker]
        for pid in [process.pid, *_session(process.pid)]:
            _kill(pid)
        process.wait(timeout=300)

    @property
    def _workers(self) -> list[subprocess.Popen[bytes]]:
        """The running Workers."""
        return [process for process in self._processes[1:] if process.poll() is None]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended by itself


def _session(leader: int) -> list[int]:
    """The processes of a session whose leader this test started."""
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
