"""`seglog demo` from a clone, and where only the package is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import seglog
import seglog_command
from seglog.cli import demo
from seglog.cli.main import main
from tests.support.source_files import ROOT


def test_without_the_archive_it_makes_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "_GOLDEN", Path("nowhere"))
    nowhere = tmp_path / "read-only"
    nowhere.mkdir()
    nowhere.chmod(0o500)
    monkeypatch.chdir(nowhere)
    assert main(["demo", "--no-spark"]) == 0
    out, err = capfd.readouterr()
    assert "making directories" in err and "Traceback" not in err
    assert "6 partitions" in out and "unclean shutdown" in out
    assert "0 fatal, 0 errors, 0 warnings" in out  # of the clean one
    assert "error   batch-crc: clicks-1/00000000000000000000.log@" in out
    assert "9000 records in" in out
    assert os.listdir(nowhere) == []


def test_an_archive_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--golden", str(tmp_path / "gone.tar.xz")]) == 2
    assert "no such archive" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"no archive", b"", b"\xfd7zXZ\x00cut", b"\x1f\x8b\x08"])
def test_an_archive_that_is_none(content: bytes, tmp_path: Path,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.tar.xz"
    path.write_bytes(content)
    assert main(["demo", "--no-spark", "--golden", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and f"{path}: this is no archive of directories" in err


def test_an_archive_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(__file__, "file")
    assert main(["demo", "--no-spark", "--golden", str(path)]) == 2
    assert "this is no archive of directories" in capsys.readouterr().err


def test_a_clone_shows_real_directories_from_anywhere(tmp_path: Path) -> None:
    """A clone has the archive beside `src`; the package may have been installed elsewhere."""
    clone, elsewhere = tmp_path / "clone", tmp_path / "elsewhere"
    for package in (seglog, seglog_command):
        there = Path(package.__file__ or "").parent
        shutil.copytree(there, clone / "src" / there.name)
    archive = clone / demo._GOLDEN
    archive.parent.mkdir(parents=True)
    archive.symlink_to(ROOT / demo._GOLDEN)
    elsewhere.mkdir()
    done = subprocess.run([sys.executable, "-m", "seglog", "demo", "--no-spark"], cwd=elsewhere,
                          capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": str(clone / "src")})
    assert done.returncode == 0, done.stderr
    assert f"unpacking {archive}" in done.stderr
    assert "predicted, " in done.stdout and "by Kafka" in done.stdout


@pytest.mark.parametrize(("version", "variable"), [
    (11, "PATH"), (11, "JAVA_HOME"), (17, "PATH"), (17, "JAVA_HOME"), (None, "PATH")])
def test_the_spark_part_needs_the_java_that_spark_takes(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        version: int | None, variable: str) -> None:
    pytest.importorskip("pyspark")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    if version is not None:
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}.0.1\"' >&2\n")
        java.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(variable, str(java.parent if variable == "PATH" else tmp_path))
    shown = list[str]()
    monkeypatch.setattr(demo, "_show_topics", shown.append)
    demo._spark(tmp_path)
    out = capsys.readouterr().out
    assert bool(shown) == (version == 17)
    assert ("left out: Spark needs Java 17 or newer on the driver" in out) == (version != 17)
