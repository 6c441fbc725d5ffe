"""Nothing is written and nothing is needed: a read-only mount, and files that may not be read."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.probe import Outcome
from tests.oracle.builder import Shape, build_data_dir
from tests.oracle.writer import BuiltLog

ROOT = Path(__file__).resolve().parents[2]
_MOUNT = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && ! touch "$1/x" 2>/dev/null'
_AS_NOBODY = """
import os, pickle, sys
from pathlib import Path
from tests.hostile import probe
probe.probe(Path(sys.argv[1]))  # with every module loaded: the next user may not reach them
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.stdout.buffer.write(pickle.dumps(probe.probe(Path(sys.argv[2]))))
"""


@pytest.fixture
def open_tmp() -> Iterator[Path]:
    """A temporary directory that every user may enter, unlike pytest's."""
    root = Path(tempfile.mkdtemp(prefix="seglog-"))
    root.chmod(0o755)
    yield root
    for path in [*root.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(root)


def _build(root: Path) -> BuiltLog:
    return build_data_dir(root, 4, [Shape(batches=60)])["built-0"]


def test_a_read_only_mount_is_enough(tmp_path: Path) -> None:
    built = _build(tmp_path / "data")
    inside = ["unshare", "--mount", "sh", "-c"]
    tried = subprocess.run([*inside, _MOUNT, "sh", str(tmp_path / "data")], check=False,
                           capture_output=True, text=True) if shutil.which("unshare") else None
    if tried is None or tried.returncode:
        pytest.skip(f"no read-only mount here: {tried.stderr.strip() if tried else 'no unshare'}")
    (tmp_path / "out").mkdir()
    subprocess.run([*inside, f'{_MOUNT} && exec "$2" -m tests.hostile.probe "$3" "$1/built-0"',
                    "sh", str(tmp_path / "data"), sys.executable, str(tmp_path / "out")],
                   cwd=ROOT, check=True, timeout=600)
    outcomes: dict[str, Outcome] = pickle.loads((tmp_path / "out" / "data.pickle").read_bytes())
    assert {name: outcome.facts for name, outcome in outcomes.items() if outcome.error} == {}
    for isolation in ("read_uncommitted", "read_committed"):
        for threads in (0, 2):
            assert outcomes[f"{isolation} {threads}"].rows == built.rows(isolation=isolation)


@pytest.mark.parametrize("what", ["log", "index", "directory", "checkpoint", "data directory"])
def test_what_may_not_be_read_is_told(open_tmp: Path, what: str) -> None:
    """As a user without rights: root gives them up first, because nothing binds root."""
    _build(open_tmp / "good")
    built = _build(open_tmp / "data")
    first = built.segments[0]
    path = {"log": built.path / f"{first:020d}.log", "index": built.path / f"{first:020d}.index",
            "directory": built.path, "data directory": open_tmp / "data",
            "checkpoint": open_tmp / "data" / "recovery-point-offset-checkpoint"}[what]
    path.chmod(0)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _AS_NOBODY, str(open_tmp / "good" / "built-0"),
         str(built.path)], cwd=ROOT, capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    outcomes: dict[str, Outcome] = pickle.loads(done.stdout)
    assert {name: outcome.untyped for name, outcome in outcomes.items() if outcome.untyped} == {}
    # Only the level that reads the logs can tell that one may not be read.
    read, loaded = outcomes["read_uncommitted 0"], outcomes["verify"]
    if what in {"log", "directory", "data directory"}:
        assert read.error == "KafkaStorageError", read
        assert str(path) in read.facts["message"] or str(built.path) in read.facts["message"]
    else:
        assert read.error is None and read.rows == built.rows()
    if what == "data directory":
        assert loaded.error == "KafkaStorageError"
    else:
        told = [one for one in loaded.value if path.name in one["message"]]
        assert told, loaded.value
    assert os.geteuid() != 0 or path.stat().st_mode & 0o777 == 0
