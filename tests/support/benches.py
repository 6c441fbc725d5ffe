"""Running bench files at their smallest size: python -m bench --size smoke --only NAME."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support.readme import ROOT

_PROGRAM = """
import sys
from pathlib import Path
from bench.__main__ import bench_files, run
files = bench_files()
sys.exit(run([files[name] for name in sys.argv[2:]], Path(sys.argv[1])))
"""


def bench_names() -> list[str]:
    """Every bench file's, without importing one."""
    return sorted(path.stem.removeprefix("bench_") for path in (ROOT / "bench").glob("bench_*.py"))


def smoke(names: Iterable[str], target: Path, **more: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of bench files by name; AssertionError with the output if one does not end well.

    All run in one process, whose imports and compiled floors they share, with `more` in its
    environment.
    """
    chosen = list(names)
    path = [os.path.dirname(sys.executable), *os.environ["PATH"].split(os.pathsep)]
    # The Rust peer takes minutes to compile, and is not what is tried here.
    path = [one for one in path if not shutil.which("cargo", path=one)]
    # A process of xdist must not take the bench for a part of itself: it would measure nothing.
    inherited = {key: value for key, value in os.environ.items() if "XDIST" not in key}
    environment = {**inherited, "SEGLOG_BENCH_SIZE": "smoke", "PATH": os.pathsep.join(path),
                   **more}
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(target), *chosen], cwd=ROOT,
                          capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(target.read_text())["benchmarks"]
    return {name: [row for one in found if f"bench_{name}.py" in one["fullname"]
                   for row in one["extra_info"]["rows"]] for name in chosen}
