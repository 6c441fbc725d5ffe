"""`seglog export`: every format against what a consumer got, and never a half file."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.cli.main import main
from seglog.export import FORMATS
from tests.support.golden import read_truth, real_partitions
from tests.support.golden import decode
from tests.support.waiting import PATIENCE, wait_for

csv.field_size_limit(1 << 24)
CLEAN = [name for folder, name in real_partitions()
         if folder == "clean" and not name.startswith("__")]


def truth(golden: Path, isolation: str = "read_uncommitted") -> list[dict[str, Any]]:
    """Every record of the topics that are not internal, in the order of partitions."""
    rows = []
    for name in sorted(CLEAN, key=lambda name: name.rpartition("-")[::2]):
        topic, _, number = name.rpartition("-")
        rows += [{"topic": topic, "partition": int(number), **row} for row in read_truth(
            golden / "real" / "truth" / "clean" / f"{name}.jsonl", isolation)]
    return rows


def from_table(table: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    at = table.schema.get_field_index("timestamp")
    return table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()


def read_back(path: Path, form: str) -> list[dict[str, Any]]:
    """The rows of a file, by another library than the one that wrote it where there is one."""
    if form in ("parquet", "arrow", "arrows"):
        pa = pytest.importorskip("pyarrow")
        if form == "parquet":
            import pyarrow.parquet as pq

            return from_table(pq.read_table(path))
        opened = pa.ipc.open_file if form == "arrow" else pa.ipc.open_stream
        return from_table(opened(path.read_bytes()).read_all())
    if form == "jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        headers = [row["headers"] for row in rows]
    else:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        text = path.read_text().splitlines()
        assert len(text) == len(rows) + 1
        for row, line in zip(rows, text[1:], strict=True):
            for name in ("partition", "offset", "timestamp", "timestamp_type"):
                row[name] = int(row[name])
            # Null has no quotes, empty text has.
            cells = line.split(",")
            for name, cell in (("key", cells[5]), ("value", cells[6])):
                row[name] = None if cell == "" else row[name]
        headers = [json.loads(row["headers"]) for row in rows]
    for row, found in zip(rows, headers, strict=True):
        row["key"], row["value"] = decode(row["key"]), decode(row["value"])
        row["headers"] = [{"key": one["key"], "value": decode(one["value"])} for one in found]
    return rows


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("form", list(FORMATS))
def test_every_format_gives_the_truth(golden: Path, tmp_path: Path, form: str, isolation: str,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    if form in ("parquet", "arrow", "arrows"):
        pytest.importorskip("pyarrow")
    out = tmp_path / f"all{FORMATS[form][0]}"
    binary = ["--binary", "base64"] if form in ("csv", "jsonl") else []
    assert main(["export", str(golden / "real" / "clean"), "-o", str(out), "--isolation", isolation,
                 *binary]) == 0
    expected = truth(golden, isolation)
    assert read_back(out, form) == expected
    assert f"{len(expected)} records of {len(CLEAN)} partitions ({isolation})" in (
        capsys.readouterr().err)
    assert os.listdir(tmp_path) == [out.name]


def test_duckdb_and_polars_read_it(golden: Path, tmp_path: Path) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    files = {}
    for form in ("parquet", "arrow", "csv", "jsonl"):
        files[form] = str(tmp_path / f"o{FORMATS[form][0]}")
        assert main(["export", str(golden / "real" / "clean"), "-t", "txn", "-o", files[form], "-q",
                     *(["--binary", "base64"] if form in ("csv", "jsonl") else [])]) == 0
    rows = [row for row in truth(golden) if row["topic"] == "txn"]
    want = [(number, len(part), sum(row["offset"] for row in part),
             sum(row["key"] is not None for row in part))
            for number in (0, 1) for part in [[r for r in rows if r["partition"] == number]]]
    query = ('select partition, count(*), sum("offset")::bigint, count(key) from {} '
             "group by partition order by partition")
    for form, reader in (("parquet", "read_parquet"), ("csv", "read_csv"),
                         ("jsonl", "read_json")):
        source = f"{reader}('{files[form]}')"
        if form == "csv":
            source = f"read_csv('{files[form]}', allow_quoted_nulls=false)"
        assert duckdb.sql(query.format(source)).fetchall() == want, form
    for frame in (polars.read_parquet(files["parquet"]), polars.read_ipc(files["arrow"]),
                  polars.read_csv(files["csv"], null_values=None),
                  polars.read_ndjson(files["jsonl"])):
        assert frame["offset"].to_list() == [row["offset"] for row in rows]
        assert frame["partition"].to_list() == [row["partition"] for row in rows]
        assert frame["key"].null_count() == sum(row["key"] is None for row in rows)


def test_filters_and_columns(golden: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
                             ) -> None:
    path, rows = str(golden / "real" / "clean"), truth(golden)
    some = [row for row in rows if row["topic"] == "outoforder"]
    stamps = sorted(row["timestamp"] for row in some)
    low, high = stamps[len(stamps) // 4], stamps[len(stamps) // 2]

    def offsets(*args: str) -> list[int]:
        assert main(["export", path, "-t", "outoforder", "-q", "-o", "-", "--format", "jsonl",
                     "--columns", "offset", *args]) == 0
        return [json.loads(line)["offset"] for line in capfd.readouterr().out.splitlines()]

    assert offsets("--start-time", str(low), "--end-time", str(high)) == [
        row["offset"] for row in some if low <= row["timestamp"] < high]
    assert offsets("--start-offset", "100", "--end-offset", "120") == [
        row["offset"] for row in some if 100 <= row["offset"] < 120]
    assert offsets("-p", "0") == [row["offset"] for row in some]
    assert offsets("--start-time", "2099-12-31T00:00:00Z") == []
    assert main(["export", path, "-t", "txn", "-o", "-", "--format", "csv",
                 "--columns", "partition,offset", "--end-offset", "2"]) == 0
    out, err = capfd.readouterr()
    assert out == "partition,offset\n0,0\n0,1\n1,0\n1,1\n"
    assert "4 records of 2 partitions (read_uncommitted)" in err


def test_text_that_csv_and_json_find_hard(tmp_path: Path,
                                          capfd: pytest.CaptureFixture[str]) -> None:
    texts = [None, b"", b'"', b"a,b\n\r\0;", "später 🎉".encode(), b"\\N", b"null"]
    with seglog.open(tmp_path / "data" / "hard-0") as log:
        for text in texts:
            log.append(text, key=text, headers=[("h", text), ('"', b"x")])
    for form in ("csv", "jsonl"):
        out = str(tmp_path / f"o.{form}")
        assert main(["export", str(tmp_path / "data"), "-q", "-o", out]) == 0
    wanted = [None if text is None else text.decode() for text in texts]
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().split("\n")[:-1]]
    assert [row["value"] for row in rows] == [row["key"] for row in rows] == wanted
    assert [row["headers"][0]["value"] for row in rows] == wanted
    with (tmp_path / "o.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert [row["value"] for row in found] == [text or "" for text in wanted]
    assert [json.loads(row["headers"])[0]["value"] for row in found] == wanted
    with seglog.open(tmp_path / "data" / "hard-0") as log:
        log.append(b"\xff")
    target = tmp_path / "p.jsonl"
    assert main(["export", str(tmp_path / "data"), "-o", str(target)]) == 2
    assert ("the value of record 7, topic hard, partition 0, offset 7, is not UTF-8 text; "
            "--binary base64") in capfd.readouterr().err
    assert not target.exists()
    assert main(["export", str(tmp_path / "data"), "-o", str(target), "--binary", "replace"]) == 0
    assert json.loads(target.read_text().splitlines()[-1])["value"] == "�"


@pytest.mark.parametrize(("args", "sentence"), [
    (["-o", "x.xlsx"], "names no format; use one of .parquet"),
    (["-o", "-"], "needs --format"),
    (["-o", "o.jsonl", "-t", "tnx"], "did you mean 'txn'?"),
    (["-o", "o.jsonl", "-t", "txn", "-p", "9"], "txn has 0 to 1"),
    (["-o", "o.jsonl", "-t", "txn", "--start-offset", "9999"], "txn-0 holds offsets 0 to 216"),
    (["-o", "o.jsonl", "--columns", "vlaue"], "no column 'vlaue'; there are offset"),
    (["-o", "o.jsonl", "--compression", "zstd"], "pipe jsonl into a compressor"),
    (["-o", "nowhere/o.jsonl"], "No such file or directory"),
    (["-o", ".", "--format", "csv"], "Is a"),
])
def test_refusals(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str],
                  sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(golden / "real" / "clean"), *args]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_times_need_a_zone(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, sentence in (("2026-01-01", "such as 2026-01-01T00:00:00Z"), ("soon", "neither"),
                           ("--5", "'--5' is neither")):
        with pytest.raises(SystemExit):
            main(["export", str(golden / "real" / "clean"), "-o", "-", f"--start-time={text}"])
        assert sentence in capsys.readouterr().err


def test_a_file_that_is_there_stays(golden: Path, tmp_path: Path,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "o.jsonl"
    target.write_text("precious")
    command = ["export", str(golden / "real" / "clean"), "-t", "epochs", "-o", str(target)]
    assert main(command) == 2
    assert "--force replaces it" in capsys.readouterr().err and target.read_text() == "precious"
    assert main([*command, "--force", "--binary", "base64"]) == 0
    assert len(target.read_text().splitlines()) == 166 and os.listdir(tmp_path) == ["o.jsonl"]
    own = golden / "real" / "clean" / "txn-0" / "o.jsonl"
    assert main(["export", str(own.parent), "-o", str(own)]) == 2
    assert "which is Kafka's" in capsys.readouterr().err


def test_a_file_that_is_replaced_keeps_its_rights(golden: Path, tmp_path: Path) -> None:
    """An export to a private file leaves it private."""
    target, link = tmp_path / "o.jsonl", tmp_path / "link.jsonl"
    target.touch()
    link.symlink_to(target)
    mine = os.geteuid() != 0
    if not mine:
        os.chown(target, 1234, 5678)
    for mode in (0o600, 0o640, 0o666):
        target.chmod(mode)
        assert main(["export", str(golden / "real" / "clean"), "-t", "epochs", "-o", str(link),
                     "--force", "--binary", "base64"]) == 0
        found = target.stat()
        assert stat.S_IMODE(found.st_mode) == mode and found.st_size > 0
        assert mine or (found.st_uid, found.st_gid) == (1234, 5678)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_and_its_file_is_written(golden: Path, tmp_path: Path, is_there: bool) -> None:
    # /dev/stdout is such a link; a rename over it would take it from every process.
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "o.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(target)
    command = ["export", str(golden / "real" / "clean"), "-t", "epochs", "--binary", "base64",
               "-o", str(link)]
    if is_there:
        target.write_text("precious")
        assert main(command) == 2 and target.read_text() == "precious"
        command.append("--force")
    assert main(command) == 0
    assert link.is_symlink() and len(target.read_text().splitlines()) == 166
    assert os.listdir(target.parent) == ["o.jsonl"]


def write_damaged(path: Path) -> None:
    """A log of 50 records, of which record 25 is damaged."""
    with seglog.open(path) as log:
        for number in range(50):
            log.append(b"%d" % number)
    file, = path.glob("*.log")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x55
    file.write_bytes(content)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_damage_leaves_no_whole_file_in_a_pipe(tmp_path: Path, form: str,
                                               capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A reader would take the rows before the damage for all."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    write_damaged(tmp_path / "bad-0")
    command = ["export", str(tmp_path), "--format", form, "-o", "-"]
    assert main(command) == 2
    content = capfdbinary.readouterr().out
    read = parquet.read_table if form == "parquet" else pa.ipc.open_file
    with pytest.raises(pa.ArrowInvalid):
        read(pa.BufferReader(content))
    assert main([*command, "--skip-damaged"]) == 1
    assert read(pa.BufferReader(capfdbinary.readouterr().out))


def test_damage_leaves_no_file(golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
                               ) -> None:
    write_damaged(tmp_path / "data" / "bad-0")
    (tmp_path / "out").mkdir()
    for name in ("o.jsonl", "o.parquet"):
        if name == "o.parquet":
            pytest.importorskip("pyarrow")
        assert main(["export", str(tmp_path / "data"), "-o", str(tmp_path / "out" / name)]) == 2
        said = capsys.readouterr().err
        assert "CorruptRecordError" in said and "--skip-damaged" in said
    assert os.listdir(tmp_path / "out") == []
    target = tmp_path / "out" / "o.jsonl"
    command = ["export", str(tmp_path / "data"), "--skip-damaged", "-o", str(target)]
    assert main(command) == 1
    kept = [json.loads(line)["offset"] for line in target.read_text().splitlines()]
    assert len(kept) == 49 and kept == sorted(set(range(50)) - {25})
    assert "bad [0]" in capsys.readouterr().err
    assert main([*command, "--force", "--start-time", "0"]) == 1
    assert len(target.read_text().splitlines()) == 49


def test_a_full_disk_is_one_sentence(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full, a device without space")
    for form in ("jsonl", "csv", "parquet"):
        if form == "parquet":
            pytest.importorskip("pyarrow")
        assert main(["export", str(golden / "real" / "clean"), "--format", form, "-o", "/dev/full",
                     *(["--binary", "base64"] if form != "parquet" else [])]) == 2
        said = capsys.readouterr().err
        assert "No space left on device" in said and said.count("\n") == 1


def test_without_pyarrow(golden: Path, tmp_path: Path) -> None:
    """JSON lines and CSV need nothing; the others say what to install."""
    (tmp_path / "pyarrow.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    for name, code in (("o.csv", 0), ("o.jsonl", 0), ("o.parquet", 2), ("o.feather", 2)):
        done = subprocess.run(
            [sys.executable, "-m", "seglog", "export", golden / "real" / "clean", "-t", "epochs",
             "--binary", "base64" if code == 0 else "utf8", "-o", tmp_path / name], text=True,
            capture_output=True, timeout=600, env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == code, done.stderr
        assert (tmp_path / name).exists() == (code == 0)
        assert code == 0 or "pip install 'seglog[export]'" in done.stderr


def sizes(directory: Path) -> dict[str, int]:
    """The sizes of files that are not empty, by name; a file may go meanwhile."""
    found = {}
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[path.name] = path.stat().st_size
    return {name: size for name, size in found.items() if size}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_export_leaves_no_half_file(tmp_path: Path, how: signal.Signals) -> None:
    with seglog.open(tmp_path / "data" / "much-0", config={"segment.bytes": 1 << 20}) as log:
        for _ in range(8):
            log.append_many(b"x" * 1000 for _ in range(4000))
    out = tmp_path / "out"
    out.mkdir()
    for _ in range(20):
        process = subprocess.Popen([sys.executable, "-m", "seglog", "export", tmp_path / "data",
                                    "-o", out / "o.jsonl"], stderr=subprocess.PIPE, text=True)
        wait_for(lambda: sizes(out) or process.poll() is not None)
        started = sizes(out)
        process.send_signal(how)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
        process.stderr.close()
        if process.wait(PATIENCE) != 0:
            break
        (out / "o.jsonl").unlink()  # it was done before the signal
    assert process.wait() == (130 if how is signal.SIGINT else -how)
    assert not (out / "o.jsonl").exists() and min(started).startswith(".seglog-export-")
    if how is signal.SIGINT:
        assert os.listdir(out) == []
