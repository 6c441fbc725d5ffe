"""The Spark example of README.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import readme

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_example_prints_what_it_says(spark: SparkSession, golden: Path) -> None:
    example, = (example for example in readme.EXAMPLES if "seglog.spark" in example)
    readme.run_example(example, golden)
