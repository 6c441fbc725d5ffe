"""Every bench runs, at its smallest size, and finds right what it computes. Spark's is in
tests/spark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.benches import bench_names, smoke
from tests.support.effort import IS_QUICK

pytest.importorskip("pytest_benchmark",
                    reason="pytest-benchmark is not installed: pip install 'seglog[bench]'")
for peer in ("google_crc32c", "aiokafka", "kafka", "pyarrow"):
    pytest.importorskip(peer, reason=f"{peer} is not installed: pip install 'seglog[bench]'")

pytestmark = pytest.mark.slow


BENCHES = [name for name in bench_names() if name != "spark"]
#: They run Kafka's classes, a broker, a server that Go builds, or many processes.
LONG = {"clean", "encode", "load", "objects", "recover", "small_partitions", "startup", "tiered"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The rows of all benches; in a quick run without those that no test asks for."""
    names = [name for name in BENCHES if not (IS_QUICK and name in LONG)]
    return smoke(names, tmp_path_factory.mktemp("benches") / "result.json")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.judge) if name in LONG else name for name in BENCHES])
def test_a_bench_gives_rows(name: str, rows: dict[str, list[dict[str, Any]]]) -> None:
    assert rows[name] or name == "objects"  # which needs a server that may not be there
    # Rows of a small table may fit into pages that the process had before.
    assert all(row["ours"] > 0 and row["ratio"] > 0 or "resident" in row["other"]
               for row in rows[name])
