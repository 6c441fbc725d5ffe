"""The examples of docs/spark.md about functions, tables and verification, run as they stand."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seglog.spark import register
from tests.support.readme import ROOT, localize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
DOCUMENT = (ROOT / "docs" / "spark.md").read_text()
SECTIONS = ("Functions", "Tables", "Verify over a cluster")


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section(spark: SparkSession, golden: Path, title: str) -> None:
    register(spark)
    section = re.split(r"^## ", DOCUMENT.partition(f"\n## {title}\n")[2], flags=re.MULTILINE)[0]
    examples = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert examples
    for example in examples:
        expected = re.findall(r"^print\(.*\)\s+# (.*)$", example, re.MULTILINE)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(localize(example, golden), {"spark": spark})
        assert printed.getvalue().splitlines() == expected and expected
