"""Every bench runs, at its smallest size, and finds right what it computes. Spark's is in
tests/spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.benches import bench_names, smoke

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
for peer in ("google_crc32c", "aiokafka", "kafka", "pyarrow"):
    pytest.importorskip(peer, reason=f"{peer} is not installed: pip install 'seglog[bench]'")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", [name for name in bench_names() if name != "spark"])
def test_a_bench_gives_rows(name: str, tmp_path: Path) -> None:
    rows = smoke(name, tmp_path / "result.json")
    assert rows or name == "objects"  # which needs a server that may not be there
    # Rows of a small table may fit into pages that the process had before.
    assert all(row["ours"] > 0 and row["ratio"] > 0 or "resident" in row["other"] for row in rows)
