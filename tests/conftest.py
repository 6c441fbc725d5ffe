"""Fixtures that every test may use. Golden data: tests/golden/README.md."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import seglog
from tests.support import effort
from tests.support import golden as golden_data


# On a loaded machine an example takes as long as it takes; and what was drawn by chance fails no
# test by its size.
settings.register_profile("seglog", deadline=None, suppress_health_check=[
    HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example,
    HealthCheck.filter_too_much])
settings.load_profile("seglog")


def pytest_configure() -> None:
    """`make test` promises to test the wheel that users get, so a source tree must not slip in."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts a job in the background so, and the commands under test would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if java_home := os.environ.get("JAVA_HOME"):  # as .ci/need and Spark take it
        os.environ["PATH"] = os.pathsep.join([os.path.join(java_home, "bin"), os.environ["PATH"]])
    if os.environ.get("SEGLOG_INSTALLED") == "1":
        home = Path(sysconfig.get_path("platlib")).resolve()
        found = Path(seglog.__file__).resolve()
        if not found.is_relative_to(home):
            raise pytest.UsageError(f"SEGLOG_INSTALLED=1, but seglog is {found}, not in {home}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the tests that need Kafka. `make test` leaves the judges to `make test-all`."""
    for item in items:
        if "kafka_lib" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
    if effort.IS_QUICK:
        config.hook.pytest_deselected(
            items=[item for item in items if item.get_closest_marker("judge")])
        items[:] = [item for item in items if not item.get_closest_marker("judge")]


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules stay to the end: no search for garbage, of which tests
    make many, looks through them again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """All that need Spark run in one process; but with the judges they take too long for one."""
    if effort.IS_QUICK and config.getoption("dist") == "loadfile":
        from tests.support.schedule import FolderScheduling

        return FolderScheduling(config, log)
    return None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With --durations also the files that took longest: what CI should make shorter."""
    if config.getoption("durations") is None:
        return
    seconds: Counter[str] = Counter()
    for report in (one for some in terminalreporter.stats.values() for one in some):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section(f"slowest files of {len(seconds)}, {seconds.total():.0f} s in all")
    for name, spent in seconds.most_common(40):
        terminalreporter.line(f"{spent:8.1f} s  {name}")


@pytest.fixture(scope="session")
def golden() -> Iterator[Path]:
    """The unpacked golden data. Tests must not write there, and the end of the session checks
    it."""
    root = golden_data.unpack()
    before = golden_data.fingerprint(root)
    yield root
    assert golden_data.fingerprint(root) == before, f"a test changed the golden data in {root}"


@pytest.fixture
def golden_copy(golden: Path, tmp_path: Path) -> Callable[[str], Path]:
    """`golden_copy("real/clean")`: a fresh, writable copy of one directory, times kept."""

    def copy(name: str) -> Path:
        target = tmp_path / name.replace("/", "_") / Path(name).name
        number = 1
        while target.exists():
            target = tmp_path / f"{name.replace('/', '_')}_{number}" / Path(name).name
            number += 1
        shutil.copytree(golden / name, target)
        return target

    return copy


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `kernel` runs once for every CRC-32C kernel of this machine."""
    if "kernel" in metafunc.fixturenames:
        from seglog._native.crc32c import KERNELS

        metafunc.parametrize("kernel", KERNELS, ids=str)
