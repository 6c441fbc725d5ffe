"""The optional packages: the environment of `make test` has all of them, README.md names them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
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


def test_the_readme_names_every_extra_with_its_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    table = (ROOT / "README.md").read_text().split("\n## Dependencies\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ((?:`\[\w+\]`(?:, )?)+): (.+?) \|", table, re.MULTILINE)
    told = {extra: words for extras, words in rows for extra in re.findall(r"\w+", extras)}
    assert set(told) == set(project["optional-dependencies"])
    missing = [(extra, name) for extra, needs in project["optional-dependencies"].items()
               for name in (re.split(r"[>=;\[ ]", need)[0] for need in needs)
               if extra != "connect" and not re.search(rf"\b{name}\b", told[extra])]
    assert not missing  # `connect` is pyspark's own extra
