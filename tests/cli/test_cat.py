"""`seglog cat`: kcat's tokens and options, against the truth a consumer saw."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seglog.cli.format import compile_format, json_formatter
from seglog.cli.main import main
from seglog.model import TopicPartition

TP = TopicPartition("t", 3)
COLUMNS: dict[str, list[Any]] = {
    "offset": [7, 8], "timestamp": [1000, -1], "timestamp_type": [0, 1], "key": [b"k", None],
    "value": [None, b"\xff\n"], "headers": [[("a", b"1"), ("b", None)], []],
}


def truth(golden: Path, tp: str) -> list[dict[str, Any]]:
    lines = (golden / "real" / "truth" / "clean" / f"{tp}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def raw(text: str | None) -> bytes:
    return b"" if text is None else base64.b64decode(text)


@pytest.mark.parametrize(("text", "expected"), [
    ("%s\\n", b"\n\xff\n\n"),
    ("%S ", b"-1 2 "),
    ("%R", b"\xff\xff\xff\xff\x00\x00\x00\x02"),
    ("%k|%K;", b"k|1;|-1;"),
    ("%T,", b"1000,-1,"),
    ("%h;", b"a=1,b=NULL;;"),
    ("%t-%p@%o%%\\t\\x41\\\\", b"t-3@7%\tA\\t-3@8%\tA\\"),
    ("constant", b"constantconstant"),
    ("", b""),
])
def test_tokens(text: str, expected: bytes) -> None:
    formatter = compile_format(text, TP)
    assert formatter.render(COLUMNS, 2) == expected
    assert set(formatter.columns) <= set(COLUMNS)


def test_null_may_be_named_and_rows_may_be_fewer() -> None:
    assert compile_format("%k%s;", TP, b"NULL").render(COLUMNS, 1) == b"kNULL;"


@pytest.mark.parametrize("text", ["%x", "%", "\\q", "\\", "\\xzz"])
def test_bad_formats_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="-f: "):
        compile_format(text, TP)


def test_json_lines() -> None:
    lines = json_formatter(TP).render(COLUMNS, 2).splitlines()
    assert [json.loads(line) for line in lines] == [
        {"topic": "t", "partition": 3, "offset": 7, "tstype": "create", "ts": 1000, "broker": -1,
         "headers": ["a", "1", "b", None], "key": "k", "payload": None},
        {"topic": "t", "partition": 3, "offset": 8, "tstype": "logappend", "ts": -1, "broker": -1,
         "key": None, "payload": "�\n"}]
    second = json.loads(json_formatter(TP, "base64").render(COLUMNS, 2).splitlines()[1])
    assert second["payload"] == base64.b64encode(b"\xff\n").decode()


def run(capfdbinary: pytest.CaptureFixture[bytes], *args: str) -> bytes:
    assert main(["cat", *args]) == 0
    return capfdbinary.readouterr().out


def test_all_records_of_a_partition(golden: Path, capfdbinary: pytest.CaptureFixture[bytes]
                                    ) -> None:
    expected = truth(golden, "plain-zstd-0")
    out = run(capfdbinary, "-e", "-q", "-f", "%o %T %S %k %s\\0", "-t", "plain-zstd",
              str(golden / "real" / "clean"))
    assert out == b"".join(
        b"%d %d %d %s %s\0" % (row["offset"], row["timestamp"],
                               -1 if row["value"] is None else len(raw(row["value"])),
                               raw(row["key"]), raw(row["value"])) for row in expected)


@pytest.mark.parametrize("threads", ["0", "2"])
def test_isolation_count_and_offsets(golden: Path, capfdbinary: pytest.CaptureFixture[bytes],
                                     threads: str) -> None:
    rows = truth(golden, "txn-1")
    path = str(golden / "real" / "clean" / "txn-1")
    every = [row["offset"] for row in rows]
    committed = [row["offset"] for row in rows if row["committed"]]
    assert committed != every

    def offsets(*args: str) -> list[int]:
        out = run(capfdbinary, "-e", "-q", "-f", "%o\\n", "--threads", threads, *args, path)
        return [int(line) for line in out.split()]

    assert offsets() == committed  # as kcat: read_committed unless told otherwise
    assert offsets("--isolation", "read_uncommitted") == every
    assert offsets("-c", "5") == committed[:5]
    assert offsets("-c", "0") == []
    assert offsets("-o", "100") == [offset for offset in committed if offset >= 100]
    assert offsets("-o", "end") == []
    assert offsets("-o", "-50") == [o for o in committed if o >= 234 - 50]
    stamp = rows[len(rows) // 2]["timestamp"]
    first = next(row["offset"] for row in rows if row["timestamp"] >= stamp)
    assert offsets("-o", f"s@{stamp}") == [o for o in committed if o >= first]
    assert offsets("-o", f"beginning,e@{stamp}") == [o for o in committed if o < first]


def test_delimiters_keys_and_offsets(golden: Path, capfdbinary: pytest.CaptureFixture[bytes]
                                     ) -> None:
    row = truth(golden, "txn-0")[2]
    path = str(golden / "real" / "clean" / "txn-0")
    out = run(capfdbinary, "-e", "-q", "-c", "1", "-o", "2", "-O", "-K", "=", "-D", ";", path)
    assert out == b"2: " + raw(row["key"]) + b"=" + raw(row["value"]) + b";"


def test_what_is_not_there(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(golden / "real" / "clean")
    assert main(["cat", "-e", "-t", "gone", path]) == 2
    assert "gone is not here" in capsys.readouterr().err
    assert main(["cat", "-e", "-o", "soon", "-t", "txn", path]) == 2
    assert "-o: expected" in capsys.readouterr().err
    assert main(["cat", "-e", str(golden / "nowhere")]) == 2


def start(*args: str) -> subprocess.Popen[bytes]:
    command: Sequence[str] = [sys.executable, "-m", "seglog", "cat", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=os.environ)


def test_a_broken_pipe_ends_quietly(golden: Path) -> None:
    # All partitions: many writes, since a kernel may take the one under way in good faith.
    process = start("-e", "-q", "-f", "%s\\n", str(golden / "real" / "clean"))
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 141
    assert errors == b""


def test_follows_what_is_appended_until_ctrl_c(golden: Path, golden_copy: Any) -> None:
    source = golden / "real" / "clean" / "epochs-0"
    last = sorted(source.glob("*.log"))[-1]
    whole = last.read_bytes()
    first_size = 12 + int.from_bytes(whole[8:12], "big")
    copy = golden_copy("real/clean/epochs-0")
    with open(copy / last.name, "r+b") as file:
        file.truncate(first_size)  # what came later is appended while cat is following
    process = start("-q", "-f", "%o\\n", "-o", str(int(last.stem)), str(copy))
    assert process.stdout is not None and process.stderr is not None
    seen = [int(process.stdout.readline())]
    with open(copy / last.name, "ab") as file:
        file.write(whole[first_size:])
    wanted = [row["offset"] for row in truth(golden, "epochs-0") if row["offset"] >= seen[0]]
    deadline = time.monotonic() + 30
    while len(seen) < len(wanted) and time.monotonic() < deadline:
        seen.append(int(process.stdout.readline()))
    process.send_signal(signal.SIGINT)
    errors = process.stderr.read()
    assert process.wait(30) == 130
    process.stdout.close()
    process.stderr.close()
    assert seen == wanted
    assert errors == b""
