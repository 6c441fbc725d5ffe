"""`--remote` of ls, cat, verify and dump, and the verb `tier`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import DirectoryKind, directory_name_or_none
from tests.support.synced import syncs
from tests.support.verbs import run
from tests.tiered.conftest import Tiered


def test_ls(tiered: Tiered, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "ls", tiered.data, "--remote", tiered.remote, "--json", "-t", "t-*")
    rows = {row["directory"]: row for row in json.loads(out)["partitions"]}
    assert code == 0
    assert all((row["log_start_offset"], row["log_end_offset"]) == tiered.marks()[name]
               for name, row in rows.items())
    code, out, _ = run(capsys, "ls", "--remote", tiered.remote, "--json")
    told = json.loads(out)
    rows = {row["directory"][:-23]: row for row in told["partitions"]}
    assert (code, len(rows)) == (0, 9)
    assert [one["clean_shutdown"] for one in told["directories"]] == [None]  # it was false
    assert rows["t-gzip-0"]["log_end_offset"] == 234
    code, _, err = run(capsys, "ls")
    assert code == 2
    assert "name a path" in err


def test_cat(tiered: Tiered, capsys: pytest.CaptureFixture[str]) -> None:
    for place, end in (((tiered.data,), 240), ((), 234)):
        code, out, _ = run(capsys, "cat", *place, "--remote", tiered.remote, "-t", "t-gzip", "-e",
                           "-q", "-f", "%o\\n", "--isolation", "read_committed")
        assert code == 0
        assert out.split() == [str(row.offset) for row in tiered.rows(
            "t-gzip-0", "read_committed") if row.offset < end]


def test_verify_and_dump(tiered_copy: Tiered, capsys: pytest.CaptureFixture[str]) -> None:
    remote = tiered_copy.remote
    code, out, _ = run(capsys, "verify", tiered_copy.data, "--remote", remote)
    assert code == 0
    assert "t-gzip-0: 5 segments, 80 batches, 33080 bytes: sound" in out
    for option in ("--threads", "2"), ("--spark", "local[2]"):  # they were ignored
        code, out, err = run(capsys, "verify", tiered_copy.data, "--remote", remote, *option)
        assert (code, out) == (2, "") and "one partition after the other" in err
    code, out, err = run(capsys, "verify", *[tiered_copy.data] * 2, "--remote", remote)
    assert (code, out) == (2, "") and "Duplicate" in err
    code, out, _ = run(capsys, "dump", "--remote", remote, "t-zstd-0", "--deep-iteration")
    assert code == 0
    assert "lastOffset: 199 " in out
    code, again, _ = run(capsys, "dump", "--remote", remote, "--files", "t-zstd-0,",
                         "--deep-iteration")  # it was ignored
    assert (code, again.count("\n")) == (0, out.count("\n"))
    path = tiered_copy.objects("t-gzip-0")[2]
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    code, out, _ = run(capsys, "tier", "verify", remote, "t-gzip-0", "--json")
    row = json.loads(out)
    assert (code, row["ok"]) == (1, False)
    assert row["findings"][0]["object"] == str(path)
    assert row["findings"][0]["code"] == "batch_crc"


def test_one_segment_is_one(tiered: Tiered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                            capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("seglog.cli.tier.restore", lambda log, target: 1)
    code, out, _ = run(capsys, "tier", "restore", tiered.remote, "t-txn-0", tmp_path / "t-txn-0")
    assert (code, out.startswith(f"{tmp_path}/t-txn-0: 1 segment, offsets ")) == (0, True)


def test_tier(tiered: Tiered, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "tier", "ls", tiered.remote, "--metadata", tiered.data)
    assert code == 0
    assert "t-gzip-0  SCh4E8VdQyakXnuXoblENg  5 segments, offsets 0 to 233, 33080 bytes" in out
    code, out, _ = run(capsys, "tier", "orphans", tiered.remote, "--metadata", tiered.data)
    assert code == 1  # one upload of the broker was broken off
    assert out.count("COPY_SEGMENT_STARTED") == len(out.splitlines()) == 5
    assert run(capsys, "tier", "orphans", tiered.remote)[0] == 2
    with pytest.raises(SystemExit, match="2"):
        run(capsys, "tier", "restore", tiered.remote)
    code, _, _ = run(capsys, "tier", "restore", tiered.remote, "t-txn-0", tmp_path / "t-txn-0")
    assert code == 0
    assert PartitionLog.open(tmp_path / "t-txn-0").log_end_offset == 201
    assert run(capsys, "tier", "restore", tiered.remote, "t-txn-0", tmp_path / "t-txn-0")[0] == 2


def test_a_tier_whose_last_segment_is_lost_is_listed(tiered_copy: Tiered,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    tiered_copy.objects("t-gzip-0")[-1].unlink()
    for *metadata, last in ((186,), ("--metadata", tiered_copy.data, 186)):
        code, out, _ = run(capsys, "tier", "ls", tiered_copy.remote, "t-gzip-0", *metadata)
        assert (code, f"4 segments, offsets 0 to {last}," in out) == (0, True)
        assert ("object_missing" in out) == bool(metadata)


def test_a_restore_that_does_not_fit_names_its_file_and_leaves_nothing(
        tiered: Tiered, tmp_path: Path) -> None:
    made = tmp_path / "t-gzip-0"
    done = subprocess.run(["sh", "-c", 'ulimit -f 4; exec "$@"', "sh", sys.executable, "-m",
                           "seglog", "tier", "restore", tiered.remote, "t-gzip-0", made],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"seglog: error: {made}/{0:020}.log: File too large\n"
    assert not made.exists()


def test_a_restored_log_is_durable_with_the_directories_above_it(
        tiered: Tiered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with syncs() as synced:
        assert run(capsys, "tier", "restore", tiered.remote, "t-gzip-0", "a/b/t-gzip-0")[0] == 0
    assert {(tmp_path, ("a",)), (tmp_path / "a", ("b",)), (tmp_path / "a/b", ("t-gzip-0",))} <= {
        (path, tuple(names)) for path, names in synced if isinstance(names, list)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_log_that_root_restores_belongs_to_the_broker(
        tiered: Tiered, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.chown(tmp_path, 1234, 1235)
    made = tmp_path / "t-gzip-0"
    assert run(capsys, "tier", "restore", tiered.remote, made.name, made)[0] == 0
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (made, *made.iterdir())} \
        == {(1234, 1235)}


KILLED = """
import os, signal, sys
from seglog.cli.main import main

real, left = os.fsync, [7]

def fsync(descriptor):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    real(descriptor)

os.fsync = fsync
main(sys.argv[1:])
"""


@pytest.mark.parametrize("is_there", [False, True])
def test_a_killed_restore_leaves_no_log(tiered: Tiered, tmp_path: Path, is_there: bool,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    """A part of a log looks like all of one that is shorter."""
    made = tmp_path / "t-gzip-0"
    if is_there:
        made.mkdir()
    command = ("tier", "restore", tiered.remote, made.name, made)
    done = subprocess.run([sys.executable, "-c", KILLED, *map(str, command)], check=False)
    assert done.returncode == -signal.SIGKILL
    left = next(path for path in tmp_path.rglob("*") if path.suffix == ".log").parent
    name = directory_name_or_none(left)
    assert name is not None and name.kind is DirectoryKind.DELETED  # a broker deletes it
    if is_there:
        assert left.parent == made and not list(made.glob("*.log"))
        shutil.rmtree(left)
    else:
        assert not made.exists()
    code, out, _ = run(capsys, *command)
    assert (code, out) == (0, f"{made}: 5 segments, offsets 0 to 233\n")
    assert PartitionLog.open(made).log_end_offset == 234
