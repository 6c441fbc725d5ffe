"""The fixtures of the benches, and the additions to pytest-benchmark's results."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from bench import harness
from bench.floors import Floors

_SKIPPED: dict[str, str] = {}


@pytest.fixture
def compare(benchmark: Any) -> harness.Compare:
    """`compare(measure, ours, others, ...)` measures and adds rows to the table."""
    return harness.Compare(benchmark)


@pytest.fixture(scope="session")
def floors(tmp_path_factory: pytest.TempPathFactory) -> Floors:
    """The C floors, compiled for this run."""
    return Floors(tmp_path_factory.mktemp("floors"))


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A directory for data on the disk of temporary files, deleted after the run."""
    path = Path(tempfile.mkdtemp(prefix="seglog-bench-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignores warnings of the peers kafka-python and PySpark."""
    for item in items:
        if "bench/" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("default"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Stores the reason of each skip for the table."""
    if report.skipped and isinstance(report.longrepr, tuple):
        _SKIPPED[report.nodeid.rpartition("/")[2]] = report.longrepr[2].removeprefix("Skipped: ")


def cpu_name() -> str:
    """The CPU's name from /proc/cpuinfo, or from the platform."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def pytest_benchmark_update_machine_info(config: pytest.Config,
                                         machine_info: dict[str, Any]) -> None:
    """Adds the facts about the machine and versions that results depend on."""
    import os

    import seglog
    from seglog._native.crc32c import KERNEL

    names = ("numpy", "cramjam", "pyarrow", "pyspark", "google-crc32c", "aiokafka", "kafka-python")
    machine_info["seglog"] = {
        "cpu_name": cpu_name(), "cpus": len(os.sched_getaffinity(0)) if hasattr(
            os, "sched_getaffinity") else os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(), "version": seglog.__version__, "crc32c": KERNEL,
        "load_average": os.getloadavg(), "size": harness.size(),
        "packages": {name: found for name in names if (found := _version(name))},
    }


def pytest_benchmark_update_json(config: pytest.Config, benchmarks: Any,
                                 output_json: dict[str, Any]) -> None:
    """Adds the skipped benches to the result."""
    output_json["skipped"] = dict(_SKIPPED)
