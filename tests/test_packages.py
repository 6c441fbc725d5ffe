"""The environment of `make test` has every package that a test can do without."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_files import ROOT

#: The environment of the Makefile that has all extras.
COMPLETE = ".venv-test"


@pytest.mark.skipif(Path(sys.prefix).name != COMPLETE, reason=f"only {COMPLETE} has all extras")
def test_no_test_is_skipped_for_a_missing_package() -> None:
    """`importorskip` would hide an extra that the Makefile or pyproject.toml no longer names."""
    asked = {"aiokafka", "kafka"}  # by a variable
    for path in sorted(ROOT.glob("tests/**/*.py")):
        asked.update(re.findall(r'importorskip\(\s*"(\w+)"', path.read_text()))
    assert {"pyarrow", "pyspark", "obstore"} < asked
    program = "\n".join(f"import {name}" for name in sorted(asked))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=600, check=False)
    assert done.returncode == 0, done.stderr
