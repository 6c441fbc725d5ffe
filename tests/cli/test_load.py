"""`seglog ls`, `load` and `verify`: what they print and how they end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seglog.cli import ls
from seglog.cli.main import main
from tests.support.verbs import run

Copy = Callable[[str], Path]


def test_ls(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "ls", golden / "real" / "clean")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].split() == ["PARTITION", "SEGMENTS", "BYTES", "LOG", "START", "OFFSET", "LOG",
                                "END", "OFFSET", "LAST", "STABLE", "OFFSET", "LEADER", "EPOCH"]
    assert len({len(line.rstrip()) for line in lines[:-1]}) == 1  # columns line up
    loaded = json.loads((golden / "real" / "loaded.json").read_text())["clean"]
    content = json.loads(run(capsys, "ls", "--json", golden / "real" / "clean")[1])
    assert (content["verb"], content["exit_code"], content["ok"]) == ("ls", 0, True)
    assert content["directories"][0]["path"] == str(golden / "real" / "clean")
    assert content["directories"][0]["clean_shutdown"] is True
    assert len(content["partitions"]) == content["totals"]["partitions"] == 23
    for row in content["partitions"]:
        if row["kind"] == "metadata":
            continue
        kafka = loaded[row["directory"]]
        assert row["directory"] == f"{row['topic']}-{row['partition']}"
        assert row["log_start_offset"] == kafka["log_start_offset"]
        assert row["log_end_offset"] == kafka["log_end_offset"]
        assert row["segment_count"] == len(kafka["segments"])
        assert row["size"] == sum(segment["size"] for segment in kafka["segments"])
        assert row["leader_epochs"] == kafka["leader_epochs"]
        assert row["error"] is None
    segments, size = content["totals"]["segments"], content["totals"]["size"]
    assert lines[-1] == f"23 partitions, {segments} segments, {size / 1024 / 1024:.1f} MiB"


def test_ls_of_segments_and_topics(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = golden / "real" / "clean"
    rows = json.loads(run(capsys, "ls", "--segments", "--json", "-t", "txn", path)[1])["partitions"]
    assert [row["directory"] for row in rows] == ["txn-0", "txn-1"]
    assert [one["base_offset"] for one in rows[0]["segments"]] == [0, 125]
    assert [one["next_offset"] for one in rows[0]["segments"]] == [125, 217]
    lines = run(capsys, "ls", "--segments", "-t", "txn", path)[1].splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["txn-0", "0", "125"], ["txn-0", "125", "217"]]
    for words, sentence in (("gone", "topic gone is not here"), ("txm", "did you mean 'txn'?"),
                            ("x*", "no topic matches"), ("^(", "not a regular expression")):
        code, out, err = run(capsys, "ls", "-t", words, path)
        assert (code, out) == (2, "") and sentence in err


def names(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines()[1:-1]]


def test_ls_sorts_and_selects(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = golden / "real" / "clean"
    rows = json.loads(run(capsys, "ls", "--json", path)[1])["partitions"]
    for key, number in (("size", lambda row: row["size"]),
                        ("segments", lambda row: row["segment_count"]),
                        ("offsets", lambda row: row["log_end_offset"] - row["log_start_offset"]),
                        ("end", lambda row: row["log_end_offset"])):
        expected = sorted(rows, key=lambda row: -number(row))
        assert names(run(capsys, "ls", "--sort", key, path)[1]) == [
            row["directory"] for row in expected]
        assert names(run(capsys, "ls", "--sort", key, "-r", path)[1]) == [
            row["directory"] for row in expected[::-1]]
    assert names(run(capsys, "ls", "-t", "txn,plain-z*", path)[1]) == [
        "plain-zstd-0", "txn-0", "txn-1"]
    assert run(capsys, "ls", "-t", "txn", "-p", "1", path)[1].splitlines()[1].startswith("txn-1")


def test_ls_shows_all_kinds_of_directories(golden_copy: Copy, capsys: pytest.CaptureFixture[str]
                                           ) -> None:
    root = golden_copy("real/clean")
    ident = "84e51c290c264fe0a26b669ae47c2e14"
    for partition, kind in (("txn-0", "future"), ("plain-gzip-0", "stray")):
        (root / partition).rename(root / f"{partition}.{ident}-{kind}")
    found = {row["directory"].partition(".")[0]: row["kind"] for row in json.loads(
        run(capsys, "ls", "--all", "--json", root)[1])["partitions"]}
    assert found["txn-0"] == "future" and found["plain-gzip-0"] == "stray"
    assert found["deleted-0"] == "deleted" and found["__cluster_metadata-0"] == "metadata"
    assert found["txn-1"] == "live"
    assert "KIND" in run(capsys, "ls", "--all", root)[1].splitlines()[0]
    assert "txn-0" not in names(run(capsys, "ls", root)[1])


def test_ls_of_two_backups(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same partitions in both: a column with the directory tells them apart."""
    paths = [golden / "real" / "clean", golden / "real" / "unclean"]
    code, out, _ = run(capsys, "ls", "-t", "txn", *paths)
    lines = [line.split()[:2] for line in out.splitlines()]
    assert code == 0 and lines[0] == ["DIRECTORY", "PARTITION"]
    assert lines[1:5] == [[str(path), name] for name in ("txn-0", "txn-1") for path in paths]
    assert out.splitlines()[-1].endswith("in 2 directories")
    content = json.loads(run(capsys, "ls", "--json", *paths)[1])
    assert len(content["directories"]) == 2 and len(content["partitions"]) == 46


def test_what_is_no_data_directory_is_explained(
        golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A parent, an empty directory, an installation, a copy under another name, a file."""
    backup, kafka = tmp_path / "b1", tmp_path / "kafka_2.13-4.3.1"
    shutil.copytree(golden / "real" / "clean" / "txn-0", backup / "data" / "txn-0")
    shutil.copytree(golden / "real" / "clean" / "txn-0", tmp_path / "mycopy")
    (tmp_path / "nothing").mkdir()
    for name in ("bin", "libs", "config"):
        (kafka / name).mkdir(parents=True)
    (kafka / "bin" / "kafka-server-start.sh").touch()
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "zero.txt").touch()
    for verb in (["ls"], ["cat", "-e"], ["export", "-o", str(tmp_path / "out.jsonl")]):
        for path, sentence in ((backup, f"did you mean {backup}/data?"),
                               (tmp_path / "nothing", "there are no logs in it"),
                               (kafka, "this is a Kafka installation"),
                               (tmp_path / "mycopy", "rename it to TOPIC-PARTITION, such as "
                                                     "mycopy-0"),
                               (odd, "but 'zero.txt'"), (tmp_path / "gone", "no such directory"),
                               (kafka / "bin" / "kafka-server-start.sh", "this is a file")):
            code, out, err = run(capsys, *verb, path)
            assert (code, out) == (2, ""), (verb, path)
            assert sentence in err and err.count("\n") == 1, (verb, err)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("options", [[], ["--json"], ["--segments"]])
def test_ls_leaves_out_what_a_broker_deletes_meanwhile(
        golden_copy: Copy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
        options: list[str]) -> None:
    """It was an error and exit code 1, though nothing is wrong with the directory."""
    root = golden_copy("real/clean")
    listed = ls.find_directories

    def find(path: str) -> Any:
        found = listed(path)
        (root / "txn-1").rename(root / f"txn-1.{'0' * 32}-delete")
        return found

    monkeypatch.setattr(ls, "find_directories", find)
    assert main(["ls", str(root), *options]) == 0
    out, err = capsys.readouterr()
    assert "txn-0" in out and "txn-1" not in out and err == ""


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
    assert "0 fatal, 0 errors, 0 warnings" in out and "no errors were found" in out.splitlines()[-1]
    assert "--all" in out and "temporary-deleted" not in out
    assert "temporary-deleted" in run(capsys, "load", "--all", golden / "real" / "clean")[1]


def test_json_report(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "load", "--json", "--level", "full", golden / "real" / "unclean")
    report = json.loads(out)
    assert code == 0
    [directory] = report["directories"]
    assert directory["level"] == "full" and directory["clean_shutdown"] is False
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
    found = [one["code"] for one in json.loads(out)["findings"]
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
    assert len(json.loads(out)["directories"][0]["thread_segments"]) == 3
    _, out, _ = run(capsys, "load", "--json", "--config", threads, "--threads", "2", root)
    assert len(json.loads(out)["directories"][0]["thread_segments"]) == 2
    code, _, err = run(capsys, "load", "--config", "index.interval.bytes=-1", root)
    assert code == 2 and "index.interval.bytes: Value must be at least 0" in err
    for wrong in ("index.interval.bytes", "no.such.setting=1"):
        with pytest.raises(SystemExit):
            run(capsys, "load", "--config", wrong, root)


def test_a_lone_surrogate_in_meta_properties_is_shown(tmp_path: Path,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    """Java's files hold them as escapes. Printing one ended in a UnicodeEncodeError."""
    (tmp_path / "meta.properties").write_text("version=\\ud83d\n")
    code, out, err = run(capsys, "load", tmp_path)
    assert code == 1 and err == "" and "version string '\\ud83d'" in out


@pytest.mark.parametrize("verb", ["load", "verify", "compact"])
def test_more_threads_than_a_machine_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                           verb: str) -> None:
    """A report with a line of each of two billion threads filled the memory."""
    with pytest.raises(SystemExit) as end:
        main([verb, "--threads", "1025", str(tmp_path)])
    assert end.value.code == 2 and "expected a number, 1 to 1024, got '1025'" in \
        capsys.readouterr().err
