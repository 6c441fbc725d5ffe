"""The Spark bench runs at its smallest size, with a broker if one is available."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.benches import smoke

pytest.importorskip("pytest_benchmark",
                    reason="pytest-benchmark is not installed: pip install 'seglog[bench]'")

pytestmark = [pytest.mark.judge, pytest.mark.slow, pytest.mark.kafka]


def test_the_bench_gives_rows(spark_home: Path, tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("java is missing: Spark needs a JDK of at least 17")
    rows = smoke(["spark"], tmp_path / "result.json", SPARK_HOME=str(spark_home))["spark"]
    assert len(rows) >= 7
    assert all(row["ours"] > 0 and row["ratio"] > 0 for row in rows)
