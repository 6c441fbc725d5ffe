"""`seglog tier export` and `seglog export --remote`: files with what consumers got, or no file."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.cli.main import main
from seglog.storage.isolation import Isolation
from tests.support.golden import decode
from tests.tiered.conftest import Row, Tiered

NAME = "t-gzip-0"  # segments at 0, 46, 93, 140, 187; the tier ends at 234
Capture = pytest.CaptureFixture[str]


def run(*args: object) -> int:
    return main([str(one) for one in args])


def lines(path: Path) -> dict[str, list[Row]]:
    """The rows of JSON lines with base64, by partition."""
    found: dict[str, list[Row]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(Row(
            row["offset"], row["timestamp"], decode(row["key"]), decode(row["value"]),
            tuple((one["key"], decode(one["value"])) for one in row["headers"])))
    return found


def expected(tiered: Tiered, name: str, isolation: Isolation = "read_uncommitted",
             end: int | None = None) -> list[Row]:
    return [row for row in tiered.rows(name, isolation) if end is None or row.offset < end]


@pytest.mark.parametrize("with_metadata", [False, True])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_all_that_a_bucket_holds(tiered: Tiered, tmp_path: Path, capsys: Capture,
                                 isolation: Isolation, with_metadata: bool) -> None:
    target = tmp_path / "all.jsonl"
    metadata = ("--metadata", tiered.data) if with_metadata else ()
    assert run("tier", "export", tiered.remote, *metadata, "-o", target, "--binary", "base64",
               "--isolation", isolation, "--json", "-q") == 0
    told = json.loads(capsys.readouterr().out)
    found = lines(target)
    assert len(found) == 9
    for name, rows in found.items():
        start = tiered.marks()[name][0]  # which a bucket does not know
        assert [row for row in rows if row.offset >= start] == expected(
            tiered, name, isolation, rows[-1].offset + 1)
        assert rows[-1].offset >= 100
    assert {one["partition"]: one["records"] for one in told["partitions"]} == {
        name: len(rows) for name, rows in found.items()}
    assert (told["records"], told["size"], told["gaps"]) == (
        sum(map(len, found.values())), target.stat().st_size, [])
    assert os.listdir(tmp_path) == ["all.jsonl"]


def test_disk_and_tier_are_one_log(tiered: Tiered, tmp_path: Path) -> None:
    target = tmp_path / "all.jsonl"
    assert run("export", tiered.data, "--remote", tiered.remote, "-o", target, "--binary",
               "base64", "-q") == 0
    found = lines(target)
    names = [name for name in tiered.marks() if name in found]
    assert len(names) >= 10
    for name in names:
        assert found[name] == expected(tiered, name)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_tables_need_no_seglog(tiered: Tiered, tmp_path: Path, form: str) -> None:
    pa = pytest.importorskip("pyarrow")
    target = tmp_path / f"out.{form}"
    assert run("tier", "export", tiered.remote, "-t", "t-txn", "-p", 0, "-o", target, "-q",
               "--isolation", "read_committed") == 0
    if form == "parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(target)
    else:
        table = pa.ipc.open_file(target).read_all()
    rows = expected(tiered, "t-txn-0", "read_committed", 201)
    assert table["offset"].to_pylist() == [row.offset for row in rows]
    assert table["value"].to_pylist() == [row.value for row in rows]


def test_a_range_of_offsets_and_of_times(tiered: Tiered, tmp_path: Path) -> None:
    rows = expected(tiered, NAME, end=234)
    target = tmp_path / "out.jsonl"
    command = ("tier", "export", tiered.remote, "-t", "t-gzip", "-p", 0, "-o", target, "--binary",
               "base64", "-q", "--force")
    assert run(*command, "--start-offset", 90, "--end-offset", 95) == 0
    assert lines(target)[NAME] == [row for row in rows if 90 <= row.offset < 95]
    first, last = rows[60].timestamp, rows[150].timestamp
    assert run(*command, "--start-time", first, "--end-time", last) == 0
    assert lines(target)[NAME] == [row for row in rows if first <= row.timestamp < last]


def test_encrypted_segments(tiered: Tiered, tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("cryptography", reason="needs cryptography (the extra [aiven])")
    pytest.importorskip("Crypto", reason="needs pycryptodome (the extra [aiven])")
    pytest.importorskip("pyarrow", reason="needs pyarrow, whose zstd is independent")
    from tests.tiered import aiven_by_hand as by_hand

    key, pem = by_hand.key_pair()
    _, other = by_hand.key_pair()
    starts = [int(path.name[:20]) for path in tiered.objects(NAME)]
    manifests = [by_hand.write_segment(tmp_path / "aiven", path, chunk_size=1000, compress=True,
                                       metadata=True, key=("k1", key), end_offset=end - 1)
                 for path, end in zip(tiered.objects(NAME), [*starts[1:], 234], strict=True)]
    for name, content in (("right", pem), ("wrong", other)):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    out = tmp_path / "out"
    out.mkdir()
    command = ("tier", "export", tmp_path / "aiven", "-o", out / "o.jsonl", "--binary", "base64",
               "-q")
    for keys, sentence in (((), "not given"), (("--key", f"k1={tmp_path}/wrong"), "k1"),
                           (("--key", "k1"), "expected ID=FILE")):
        assert run(*command, *keys) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert os.listdir(out) == []
    assert run(*command, "--key", f"k1={tmp_path}/right") == 0
    assert lines(out / "o.jsonl")[NAME] == expected(tiered, NAME, end=234)
    manifests[1].write_bytes(manifests[1].read_bytes()[:100])
    capsys.readouterr()
    assert run(*command, "--force", "--key", f"k1={tmp_path}/right") == 2
    assert "manifest is not JSON" in capsys.readouterr().err
    assert lines(out / "o.jsonl")[NAME] == expected(tiered, NAME, end=234)  # the old file


def damages(tiered: Tiered) -> dict[str, Any]:
    log, other = tiered.objects(NAME)[1:3]
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    return {"absent": log.unlink, "cut": lambda: os.truncate(log, len(content) - 100),
            "swapped": lambda: shutil.copy(other, log),
            "flipped": lambda: log.write_bytes(content)}


@pytest.mark.parametrize("kind", ["absent", "cut", "swapped", "flipped"])
def test_damage_leaves_no_file_or_is_reported(tiered_copy: Tiered, tmp_path: Path, kind: str,
                                              capsys: Capture) -> None:
    damages(tiered_copy)[kind]()
    out = tmp_path / "out"
    out.mkdir()
    command = ("tier", "export", tiered_copy.remote, "-t", "t-gzip", "-o", out / "o.jsonl",
               "--binary", "base64")
    assert run(*command) == 2
    *_, error, advice = capsys.readouterr().err.splitlines()
    assert error.startswith("seglog: error") and "--skip-damaged" in advice
    assert os.listdir(out) == []
    assert run(*command, "--skip-damaged", "--json", "-q") == 1
    told = json.loads(capsys.readouterr().out)
    rows = lines(out / "o.jsonl")[NAME]
    assert [row for row in rows if not 46 <= row.offset < 93] == [
        row for row in expected(tiered_copy, NAME, end=234) if not 46 <= row.offset < 93]
    assert told["records"] == len(rows)
    assert {gap["partition"] for gap in told["gaps"]} == {NAME}
    assert all(gap["code"] and gap["object"] for gap in told["gaps"])


def test_one_of_several_topics_of_a_name(tiered_copy: Tiered, tmp_path: Path, capsys: Capture
                                         ) -> None:
    directory = tiered_copy.objects(NAME)[0].parent
    topic_id = directory.name.removeprefix(f"{NAME}-")
    shutil.copytree(directory, directory.with_name(f"{NAME}-{'A' * 22}"))
    target = tmp_path / "o.jsonl"
    command = ("tier", "export", tiered_copy.remote, "-t", "t-gzip", "-o", target, "--binary",
               "base64", "-q")
    assert run(*command) == 2
    assert "give topic_id" in capsys.readouterr().err
    assert run(*command, "--topic-id", topic_id) == 0
    assert lines(target)[NAME] == expected(tiered_copy, NAME, end=234)
    with pytest.raises(SystemExit):
        run(*command, "--topic-id", "short")
    assert "is no topic id" in capsys.readouterr().err


@pytest.mark.parametrize(("args", "sentence"), [
    (["-o", "x.xlsx"], "names no format; use one of .parquet"),
    (["-o", "-"], "needs --format"),
    (["-o", "-", "--format", "csv", "--json"], "both be on stdout"),
    (["-o", "o.jsonl", "-t", "t-gzp"], "did you mean 't-gzip'?"),
    (["-o", "o.jsonl", "-t", "t-gzip", "-p", "9"], "t-gzip has 0"),
    (["-o", "o.jsonl", "-t", "t-gzip", "--start-offset", "9999"], "holds offsets 0 to 233"),
    (["-o", "o.jsonl", "--layout", "aivn"], "layout 'aivn' is neither"),
    (["-o", "nowhere/o.jsonl"], "No such file or directory"),
])
def test_refusals(tiered: Tiered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str],
                  sentence: str, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("tier", "export", tiered.remote, *args) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_nothing_is_written_into_the_bucket(tiered_copy: Tiered, tmp_path: Path, capsys: Capture
                                            ) -> None:
    inside = tiered_copy.objects(NAME)[0].parent / "o.jsonl"
    assert run("tier", "export", tiered_copy.remote, "-o", inside) == 2
    assert "write elsewhere" in capsys.readouterr().err
    assert not inside.exists()
    assert run("tier", "export", tmp_path / "nowhere", "-o", tmp_path / "o.jsonl") == 2
    assert "nowhere" in capsys.readouterr().err
    assert run("export", "-o", tmp_path / "o.jsonl") == 2
    assert "name a path, or a tier with --remote" in capsys.readouterr().err
