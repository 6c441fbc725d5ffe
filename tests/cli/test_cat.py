"""`seglog cat`: kcat's tokens and options, against the truth a consumer saw."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.cli.format import compile_format, json_formatter
from seglog.cli.main import main
from seglog.cli.unpack import UnpackError, parse_deserializers
from seglog.model import TopicPartition
from tests.support.waiting import PATIENCE

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

    assert offsets() == every  # as Kafka's consumer: read_uncommitted unless told otherwise
    for level, wanted in (("read_uncommitted", every), ("read_committed", committed)):
        def of_level(*args: str, level: str = level) -> list[int]:
            return offsets("--isolation", level, *args)

        assert of_level() == wanted
        assert of_level("-c", "5") == wanted[:5]
        assert of_level("-c", "0") == []
        assert of_level("-o", "100") == [offset for offset in wanted if offset >= 100]
        assert of_level("-o", "end") == []
        assert of_level("-o", "-50") == [o for o in wanted if o >= 234 - 50]
        stamp = rows[len(rows) // 2]["timestamp"]
        first = next(row["offset"] for row in rows if row["timestamp"] >= stamp)
        assert of_level("-o", f"s@{stamp}") == [o for o in wanted if o >= first]
        assert of_level("-o", f"beginning,e@{stamp}") == [o for o in wanted if o < first]
        assert of_level("-o", "100", "-o", f"e@{stamp}") == [o for o in wanted if 100 <= o < first]


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


@pytest.mark.parametrize(("args", "sentence"), [
    (["-b", "localhost:9092", "-t", "txn"], "-b names a broker"),
    (["--bootstrap-server", "x:1"], "--bootstrap-server names a broker"),
    (["-L"], "seglog ls PATH"),
    (["-X", "isolation.level=read_committed"], "--isolation"), (["-G", "mine", "txn"], "-G joins"),
    (["-P", "-t", "txn"], "this command only reads"), (["-Q", "-t", "txn:0:5"], "-o s@MS"),
    (["-F", "kcat.conf"], "there is none here"), (["-r", "http://r"], "schema registry"),
])
def test_what_needs_a_broker_is_explained_in_one_sentence(
        golden: Path, args: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (args, [str(golden / "real" / "clean"), *args]):
        with pytest.raises(SystemExit) as ended:
            main(["cat", *words])
        said = capsys.readouterr()
        assert ended.value.code == 2 and not said.out
        assert said.err.startswith("seglog cat: -") and said.err.count("\n") == 1
        assert sentence in said.err


def test_topics_and_partitions_as_in_kcat(golden: Path, capfdbinary: pytest.CaptureFixture[bytes]
                                          ) -> None:
    path = str(golden / "real" / "clean")

    def places(*args: str) -> list[str]:
        out = run(capfdbinary, "-C", "-u", "-e", "-q", "-c", "9999", "-f", "%t-%p\n", *args, path)
        return list(dict.fromkeys(out.decode().split()))

    assert places("-t", "txn") == ["txn-0", "txn-1"]
    assert places("-t", "txn", "-p", "1") == places("-t", "t*", "-p", "1") == ["txn-1"]
    assert places("-t", "dots.and_under-scores", "-p", "0,2") == [
        "dots.and_under-scores-0", "dots.and_under-scores-2"]
    assert places("-t", "txn,epochs") == places("-t", "txn", "-t", "epochs") == [
        "epochs-0", "txn-0", "txn-1"]
    plain = [f"plain-{codec}-0" for codec in ("gzip", "lz4", "none", "snappy", "zstd")]
    assert places("-t", "plain-*") == places("-t", "^pla.n") == plain
    assert "__consumer_offsets-0" in places("-t", "__*") and not any(
        name.startswith("_") for name in places())


@pytest.mark.parametrize(("args", "code", "said"), [
    (["-o", "999999999"], 1, "offset 999999999 of txn-0 is out of range: the log starts at 0 and "
                             "ends at 217"),
    (["-o", "218"], 1, "of txn-0 is out of range"), (["-o", "217"], 0, "at offset 217"),
    (["-o", "s@9999999999999"], 1, "no record of txn-0 is at or after timestamp 9999999999999; the "
                                   "latest has timestamp 1795261"),
    (["-o", "stored"], 2, "consumer group"), (["-t", "tnx"], 2, "did you mean 'txn'?"),
    (["-t", "txn", "-p", "2"], 2, "txn has 0 to 1"), (["-p", "x"], 2, "-p: expected"),
    (["-t", ""], 2, "a topic is empty"), (["-t", "^("], 2, "not a regular expression"),
    (["-t", "nope*"], 2, "no topic matches 'nope*'"), (["-s", "key=avro"], 2, "avro needs"),
    (["-s", "z"], 2, "got 'z'"), (["-s", "x=i"], 2, "neither key nor value"),
    (["-s", ""], 2, "-s:"),
    (["-o", "s@-9"], 2, "milliseconds"),
])
def test_nothing_is_silently_empty(golden: Path, capsys: pytest.CaptureFixture[str],
                                   args: list[str], code: int, said: str) -> None:
    topic = [] if "-t" in args else ["-t", "txn"]
    assert main(["cat", "-e", "-f", "%o", *args, *topic, str(golden / "real" / "clean")]) == code
    assert said in capsys.readouterr().err


def test_an_offset_below_the_start_is_told(golden: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(golden / "real" / "clean")
    assert main(["cat", "-e", "-t", "startoffset", "-o", "3", "-c", "1", "-f", "%o", path]) == 0
    out, err = capfd.readouterr()
    assert out == "253"
    assert "% offset 3 of startoffset-0 is gone: the log starts at 253\n" in err


def test_one_partition_out_of_range_does_not_hide_the_others(
        golden: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", "-e", "-t", "txn", "-o", "230", "-f", "%p:%o ",
                 str(golden / "real" / "clean")]) == 1
    out, err = capfd.readouterr()
    assert out.startswith("1:230 1:231") and "offset 230 of txn-0 is out of range" in err


def test_the_isolation_level_is_told(golden: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(golden / "real" / "clean" / "txn-0")
    aborted = {}
    for level in ("read_uncommitted", "read_committed"):
        assert main(["cat", "-e", "--isolation", level, "-f", "%o\n", path]) == 0
        out, err = capfd.readouterr()
        assert f"% isolation level {level}\n" in err
        aborted[level] = (len(out.splitlines()), "left out" in err, "leaves them out" in err)
    assert aborted == {"read_uncommitted": (170, False, True), "read_committed": (90, True, False)}
    assert main(["cat", "-e", "-f", "%o", str(golden / "real" / "clean" / "plain-none-0")]) == 0
    assert "transactions" not in capfd.readouterr().err


@pytest.mark.parametrize(("pack", "data", "expected"), [
    ("i", b"\x00\x00\x01\x02", b"258"), ("<i", b"\x02\x01\x00\x00", b"258"),
    (">bBhH", b"\xff\xff\xff\xff\xff\xff", b"-1255-165535"), ("b B", b"\x01\x02", b"1 2"),
    ("qQ", b"\xff" * 16, b"-118446744073709551615"), ("I", b"\xff" * 4, b"4294967295"),
    ("bs", b"\x07text\xff", b"7text\xff"), ("cc$", b"ab", b"ab"), ("h<h", b"\0\x01\x01\0", b"11"),
    ("b", b"\x05and more", b"5"), ("s$", b"", b""), ("c$", b"ab", None), ("i", b"abc", None),
])
def test_deserializers(pack: str, data: bytes, expected: bytes | None) -> None:
    unpack = parse_deserializers([pack])["value"]
    if expected is None:
        with pytest.raises(UnpackError, match="value"):
            unpack(data)
    else:
        assert unpack(data) == expected


def test_records_before_one_that_does_not_fit_are_printed(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with seglog.open(tmp_path / "numbers-0") as log:
        log.append_many([(None, (n).to_bytes(4, "big")) for n in range(5)])
        log.append_many([(b"k", b"ab"), (b"key", bytes(4))])
    args = ["cat", "-e", "-q", "-f", "%o=%s,%k ", str(tmp_path / "numbers-0")]
    assert main([*args, "-s", "value=i"]) == 1
    out, err = capfd.readouterr()
    assert out == "0=0, 1=1, 2=2, 3=3, 4=4, "
    assert "offset 5: the value is truncated: i takes 4 bytes, 2 remain" in err
    assert main([*args, "-s", "key=c$", "-c", "6"]) == 0
    assert main([*args, "-s", "key=c$", "-s", "value=s"]) == 1
    assert "offset 6: expected the end of the key, but 2 bytes remain" in capfd.readouterr().err


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
    assert process.wait(120) == 141
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
    deadline = time.monotonic() + PATIENCE
    while len(seen) < len(wanted) and time.monotonic() < deadline:
        seen.append(int(process.stdout.readline()))
    process.send_signal(signal.SIGINT)
    errors = process.stderr.read()
    assert process.wait(120) == 130
    process.stdout.close()
    process.stderr.close()
    assert seen == wanted
    assert errors == b""


def test_a_topic_that_is_created_again_ends_it(tmp_path: Path) -> None:
    path, new = tmp_path / "t-0", tmp_path / "new" / "t-0"
    for number, one in enumerate((path, new), 1):
        with seglog.open(one, topic_id=uuid.UUID(int=number << 100)) as log:
            log.append_many([one.parent.name.encode()] * number)
    process = start("-q", "-f", "%s\\n", str(path))
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == tmp_path.name.encode() + b"\n"
    path.rename(tmp_path / "t-0.old")
    new.rename(path)
    assert process.stdout.read() == b"" and process.wait(120) == 2
    assert b"deleted and created again" in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


def test_follows_up_to_a_time(tmp_path: Path) -> None:
    """As kcat does. It waited for ever, and printed what came after that time."""
    path = tmp_path / "t-0"
    with seglog.open(path) as log:
        log.append(b"0", timestamp=1000)
        assert main(["cat", "-q", "-o", "beginning,e@1000", str(path)]) == 0
        process = start("-q", "-f", "%o\\n", "-o", "beginning,e@2000", str(path))
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"0\n"
        log.append(b"1", timestamp=1500)
        assert process.stdout.readline() == b"1\n"
        log.append(b"2", timestamp=2500)
        log.append(b"3", timestamp=1600)
        assert process.stdout.read() == b"" and process.wait(120) == 0
        process.stdout.close()
        process.stderr.close()
