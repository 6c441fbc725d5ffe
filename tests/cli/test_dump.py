"""`seglog dump`: Kafka's lines byte for byte, JSON beside them, and what is only seglog's."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.support.dump import dump, run_seglog
from tests.support.golden import unpack
from tests.support.users import without_rights

LOG = "00000000000000000000.log"
# What stands behind the file name in the names of tests/golden/dump.
DUMP_OPTIONS = {"printdatalog": "--print-data-log", "offsetsdecoder": "--offsets-decoder",
                "transactionlogdecoder": "--transaction-log-decoder",
                "clustermetadatadecoder": "--cluster-metadata-decoder"}


def golden_dumps() -> list[str]:
    return sorted(path.name for path in (unpack() / "dump").iterdir())


@pytest.mark.parametrize("name", golden_dumps())
def test_golden_dumps_byte_for_byte(name: str, golden: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    partition, _, file = name.removesuffix(".txt").rpartition("_")
    options = [option for end, option in DUMP_OPTIONS.items() if file.endswith(end)]
    for end in DUMP_OPTIONS:
        file = file.removesuffix(end)
    monkeypatch.chdir(golden / "real")
    done = dump(["--files", f"clean/{partition}/{file}", *options])
    assert done.code == 0
    assert done.out == (golden / "dump" / name).read_bytes()


def facts_of(*args: str) -> list[dict[str, Any]]:
    done = dump(["--json", *args])
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_json_tells_what_the_lines_tell(golden: Path) -> None:
    path = str(golden / "real/clean/txn-0" / LOG)
    facts = facts_of("--files", path, "--print-data-log")
    lines = dump(["--files", path, "--print-data-log"]).out
    assert facts[:2] == [{"type": "file", "path": path}, {"type": "log", "starting_offset": 0}]
    batches = [fact for fact in facts if fact["type"] == "batch"]
    records = [fact for fact in facts if fact["type"] == "record"]
    assert len(batches) == lines.count(b"baseOffset: ")
    assert len(records) == lines.count(b"| offset: ")
    for batch in batches:
        assert (f" lastOffset: {batch['last_offset']} count: {batch['count']} baseSequence: "
                f"{batch['base_sequence']} ").encode() in lines
        assert f" crc: {batch['crc']} isvalid: true\n".encode() in lines
    value = next(base64.b64decode(record["value"]) for record in records
                 if record["value"] and record["value"].isascii() and not record.get("control"))
    assert value in (golden / "real/clean/txn-0" / LOG).read_bytes()
    markers = [record for record in records if "end_txn_marker" in record]
    assert len(markers) == lines.count(b"endTxnMarker: ")
    assert {marker["end_txn_marker"] for marker in markers} == {"ABORT", "COMMIT"}


def test_json_of_every_kind_of_file(golden: Path) -> None:
    folder = golden / "real/clean/txn-0"
    kinds = {fact["type"] for fact in facts_of(str(folder), "--deep-iteration")}
    assert kinds >= {"file", "log", "batch", "record", "offset_index_entry", "time_index_entry",
                     "aborted_transaction", "producer", "non_consecutive_offsets"}


def test_json_of_decoders_is_json(golden: Path) -> None:
    path = golden / "real/clean/__cluster_metadata-0" / LOG
    facts = facts_of("--cluster-metadata-decoder", str(path))
    kinds = {fact["decoded_value"]["type"] for fact in facts if fact.get("decoded_value")}
    assert "PARTITION_RECORD" in kinds
    assert any(fact.get("control", {}).get("leaderId") == 1 for fact in facts)


def test_a_directory_and_plain_files(golden: Path) -> None:
    folder = golden / "real/clean/txn-0"
    names = sorted(path for path in folder.iterdir() if path.suffix in (
        ".log", ".index", ".timeindex", ".txnindex", ".snapshot"))
    assert dump([str(folder)]) == dump(["--files", ",".join(map(str, names))])
    assert dump([str(folder) + "/", "--deep-iteration"]).out == dump(
        [*map(str, names), "--deep-iteration"]).out


def test_old_formats_have_their_own_lines(golden: Path) -> None:
    logs = sorted((golden / "old").rglob("*.log"))
    lines = dump(["--deep-iteration", *map(str, logs)]).out.splitlines()
    assert any(line.startswith(b"offset: ") and b" magic: 0 " in line for line in lines)
    assert any(b" isValid: true crc: " in line for line in lines)


def write_log(path: Path, *records: Record) -> bytes:
    first = records[0].offset
    data = v2.encode(Batch(base_offset=first, last_offset_delta=records[-1].offset - first,
                           records=list(records), base_timestamp=1, max_timestamp=1))
    path.write_bytes(data)
    return data


def test_a_tail_that_is_no_batch(tmp_path: Path) -> None:
    path = tmp_path / LOG
    data = write_log(path, Record(offset=0, timestamp=1, value=b"v"))
    path.write_bytes(data + data[:40])
    done = dump([str(path)])
    assert done.out.endswith(b"Found 40 invalid bytes at the end of " + LOG.encode() + b"\n")
    assert done.code == 0


def test_a_wrong_crc_is_told_and_no_error(tmp_path: Path) -> None:
    path = tmp_path / LOG
    data = bytearray(write_log(path, Record(offset=3, timestamp=1, value=b"v")))
    data[-2] ^= 1
    path.write_bytes(data)
    done = dump(["--deep-iteration", str(path)])
    assert done.code == 0
    assert b"isvalid: false" in done.out
    assert done.err == (f"Non-consecutive offsets in {path}\n  -1 is followed by 3\n")


def test_where_kafka_dies_one_error_says_where(tmp_path: Path) -> None:
    """The lines before stay; the error has its class, code, file, position and numbers."""
    path = tmp_path / LOG
    data = write_log(path, Record(offset=0, timestamp=1, value=b"v"))
    path.write_bytes(data + (1).to_bytes(8, "big") + bytes(100))
    done = dump([str(path), str(path)])
    assert done.code == 1
    assert done.out.count(b"baseOffset: 0 ") == 1
    assert done.err.count("\n") == 1
    assert "CorruptRecordError [batch_length]" in done.err
    assert f"{path}: batch length 0 is below the minimum 14, at byte {len(data)}" in done.err


@pytest.mark.parametrize(("name", "code"), [
    ("foo.log", "file_name"), ("foo.index", "file_name"), ("1_0.log", "file_name"),
    ("bad.checkpoint", "file_name"), ("foo.txnindex", "file_name"),
])
def test_names_that_are_no_offsets(name: str, code: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    done = dump([str(tmp_path / name)])
    assert (done.code, done.out) == (1, f"Dumping {tmp_path / name}\n".encode())
    assert f"[{code}]" in done.err


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOG)
    done = dump([str(tmp_path / LOG)])
    assert done.code == 1
    assert "not a regular file" in done.err
    done = dump([str(tmp_path / "7.log")])
    assert done.code == 1
    assert done.out.endswith(b"Log starting offset: 7\n")
    assert str(tmp_path / "7.log") in done.err


def test_nothing_is_created(tmp_path: Path) -> None:
    """Kafka's tool makes an index that is missing, and empty; this one never writes."""
    write_log(tmp_path / LOG, Record(offset=0, timestamp=1, value=b"v"))
    (tmp_path / "00000000000000000000.timeindex").write_bytes(bytes(12))
    done = dump(["--files", str(tmp_path / "00000000000000000000.timeindex")])
    assert done.code == 1
    assert "00000000000000000000.index" in done.err
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("args", [
    [], ["--max-bytes", "-1", LOG], ["--max-bytes", "x", LOG],
    ["--max-message-size", "2147483648", LOG], ["--no-such-option", LOG],
])
def test_wrong_usage(args: list[str]) -> None:
    assert dump(args).code == 2


def test_a_decoder_class_that_only_a_jvm_could_load() -> None:
    done = dump([LOG, "--value-decoder-class", "com.example.MyDecoder"])
    assert done.code == 2
    assert "com.example.MyDecoder cannot be loaded" in done.err
    assert "org.apache.kafka.tools.api.LongDecoder" in done.err


@pytest.mark.parametrize(("args", "sentence"), [
    (["clean"], "this is a data directory; name the directory of a partition, such as "),
    (["."], "there is no file to dump here"), (["--files", "nope.log"], "no such file in "),
    (["--files", "clean/txn-0/00000000000000000125.log,nope.index"], "nope.index"),
    (["clean/txn-0/O0000000000000000125.log"],
     "did you mean clean/txn-0/00000000000000000125.log?"),
    (["txn"], "no such file"), ([], "no files: seglog dump FILE"),
    (["--print-data-log"], "no files"), (["--files", ",,"], "no files"),
])
def test_what_is_not_there_is_told_before_anything_is_printed(
        golden: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], sentence: str) -> None:
    monkeypatch.chdir(golden / "real")
    done = run_seglog("dump", *args)
    assert (done.code, done.out) == (2, b"")
    assert sentence in done.err and done.err.count("\n") == 1


def test_directories_and_lists_of_files(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(golden / "real" / "clean")
    names = sorted(path.name for path in Path("txn-0").iterdir() if path.suffix)
    whole = run_seglog("dump", "txn-0")
    assert whole.code == 0
    listed = ",".join(f"txn-0/{name}" for name in names if not name.endswith(".metadata"))
    assert run_seglog("dump", "--files", listed).out == whole.out
    assert run_seglog("dump", "--files", "txn-0/").out == whole.out


def test_json_of_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    write_log(folder / LOG, Record(offset=3, timestamp=1, value=b"v"))
    told = facts_of(str(folder / LOG), "--deep-iteration")  # each line is UTF-8
    for fact in (told[0]["path"], told[-1]["file"]):
        assert os.fsencode(fact) == os.fsencode(folder / LOG)


def test_what_may_not_be_reached_is_not_missing(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "t-0"
    folder.mkdir(parents=True)
    write_log(folder / LOG, Record(offset=0, timestamp=1, value=b"v"))
    run_seglog("dump", str(folder))  # what is imported
    folder.parent.chmod(0o700)
    with without_rights(tmp_path):
        for path in (folder, folder / "partition.metadata"):
            done = run_seglog("dump", str(path))
            assert (done.code, done.out) == (2, b"")
            assert done.err == f"seglog: error: {path}: Permission denied\n"


@pytest.mark.parametrize(("name", "told"), [
    ("00000000000000000007-0000000003", b"Snapshot end offset: 7, epoch: 3\n"),
    ("+0000000000000000007-+000000003", b"Snapshot end offset: 7, epoch: 3\n"),
    ("99999999999999999999-0000000003", None), ("00000000000000000007-9999999999", None),
    ("00000000000000000007-3", None), ("7", None)])
def test_names_of_raft_snapshots(tmp_path: Path, name: str, told: bytes | None) -> None:
    """Kafka: Snapshots.parse, which reads the numbers as Java does."""
    path = tmp_path / f"{name}.checkpoint"
    path.touch()
    done = dump(["--files", str(path)])
    assert (done.code, done.out) == (
        int(told is None), f"Dumping {path}\n".encode() + (told or b""))


def test_every_files_option_counts(golden: Path) -> None:
    path = golden / "real/clean/txn-0"
    first, second = str(path / LOG), str(path / LOG.replace(".log", ".index"))
    assert dump(["--files", first, "--files", second]) == dump(["--files", f"{first},{second}"])
