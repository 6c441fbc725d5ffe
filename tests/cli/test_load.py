"""`seglog ls`, `load` and `verify`: what they print and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.cli.main import main

Copy = Callable[[str], Path]


def run(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    code = main([str(arg) for arg in args])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_ls(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "ls", golden / "real" / "clean")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].split() == ["PARTITION", "SEGMENTS", "BYTES", "LOG", "START", "OFFSET", "LOG",
                                "END", "OFFSET", "LAST", "STABLE", "OFFSET", "LEADER", "EPOCH"]
    assert len({len(line.rstrip()) for line in lines}) == 1  # columns line up
    loaded = json.loads((golden / "real" / "loaded.json").read_text())["clean"]
    for line in run(capsys, "ls", "--json", golden / "real" / "clean")[1].splitlines():
        row = json.loads(line)
        if row["partition"].startswith("__cluster"):
            continue
        kafka = loaded[row["partition"]]
        assert row["log_start_offset"] == kafka["log_start_offset"]
        assert row["log_end_offset"] == kafka["log_end_offset"]
        assert row["segments"] == len(kafka["segments"])
        assert row["bytes"] == sum(segment["size"] for segment in kafka["segments"])
        assert row["leader_epochs"] == kafka["leader_epochs"]


def test_ls_of_segments_and_topics(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "ls", "--segments", "--json", "-t", "txn", golden / "real" / "clean")
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["partition"] for row in rows} == {"txn-0", "txn-1"}
    assert [row["base_offset"] for row in rows if row["partition"] == "txn-0"] == [0, 125]
    assert [row["next_offset"] for row in rows if row["partition"] == "txn-0"] == [125, 217]
    assert run(capsys, "ls", "-t", "gone", golden / "real" / "clean")[0] == 2


def test_ls_names_a_partition_that_cannot_be_read(golden_copy: Copy,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    root = golden_copy("real/clean")
    (root / "txn-0" / "leader-epoch-checkpoint").write_text("garbage\n")
    code, out, err = run(capsys, "ls", root)
    assert code == 1
    assert "MalformedCheckpointError" in out and "leader-epoch-checkpoint" in err
    assert "txn-1" in out


def test_load_of_a_sound_directory(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "load", "--threads", "2", golden / "real" / "clean")
    assert (code, err) == (0, "")
    assert "24 partitions, 72 segments" in out and "clean shutdown" in out
    assert "0 fatal, 0 errors, 0 warnings" in out
    assert "--all" in out and "temporary-deleted" not in out
    assert "temporary-deleted" in run(capsys, "load", "--all", golden / "real" / "clean")[1]


def test_json_report(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "load", "--json", "--level", "full", golden / "real" / "unclean")
    report = json.loads(out)
    assert code == 0
    assert report["level"] == "full" and report["clean_shutdown"] is False
    assert {one["directory"] for one in report["partitions"]} >= {"txn-0", "plain-none-0"}


@pytest.mark.parametrize("threads", ["1", "2"])
def test_verify_finds_a_flipped_bit(golden: Path, golden_copy: Copy, threads: str,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "verify", golden / "real" / "clean")[0] == 0
    root = golden_copy("real/clean")
    log = sorted((root / "plain-none-0").glob("*.log"))[2]
    data = bytearray(log.read_bytes())
    data[200] ^= 4
    log.write_bytes(data)
    code, out, _ = run(capsys, "verify", "--threads", threads, root)
    assert code == 1
    assert f"batch-crc: plain-none-0/{log.name}@0" in out
    # One partition alone: the same finding, nothing about its neighbours.
    code, out, _ = run(capsys, "verify", "--json", root / "plain-none-0")
    found = [one["code"] for part in json.loads(out)["partitions"] for one in part["findings"]
             if one["severity"] in ("error", "fatal")]
    assert code == 1 and "batch-crc" in found
    assert run(capsys, "verify", root / "plain-zstd-0")[0] == 0


def test_what_cannot_be_loaded(golden: Path, tmp_path: Path,
                               capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "verify", tmp_path / "nowhere")
    assert (code, out) == (2, "")
    assert "nowhere" in err and "Traceback" not in err
    with pytest.raises(SystemExit) as stopped:
        main(["load", "--threads", "0", str(golden)])
    assert stopped.value.code == 2


def test_demo_needs_its_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "demo", "--golden", tmp_path / "missing.tar.xz")
    assert code == 2 and "run the demo in a clone" in err


def test_demo_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    archive = Path(__file__).parents[1] / "golden" / "golden.tar.xz"
    code, out, _ = run(capsys, "demo", "--no-spark", "--golden", archive)
    assert code == 0
    assert "log end offset 28 predicted, 28 by Kafka" in out
    assert "6500 records" in out


def test_settings(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = golden / "real" / "clean"
    assert run(capsys, "load", root)[0] == 0
    code, out, _ = run(capsys, "load", "--config", "segment.index.bytes=8", root)
    assert code == 1 and "newPosition > limit" in out
    threads = "num.segment.loading.threads.per.data.dir=3"
    _, out, _ = run(capsys, "load", "--json", "--config", threads, root)
    assert len(json.loads(out)["thread_segments"]) == 3
    _, out, _ = run(capsys, "load", "--json", "--config", threads, "--threads", "2", root)
    assert len(json.loads(out)["thread_segments"]) == 2
    code, _, err = run(capsys, "load", "--config", "index.interval.bytes=-1", root)
    assert code == 2 and "index.interval.bytes: Value must be at least 0" in err
    for wrong in ("index.interval.bytes", "no.such.setting=1"):
        with pytest.raises(SystemExit):
            run(capsys, "load", "--config", wrong, root)
