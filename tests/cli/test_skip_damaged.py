"""`cat --skip-damaged`: all but the damaged batch, the gap on stderr, exit code 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seglog.cli.gaps import GapReport
from seglog.cli.main import main
from seglog.model import TopicPartition
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogGap
from tests.oracle import legacy
from tests.oracle.batch import Batch, Record
from tests.oracle.builder import Shape, build_log
from tests.oracle.writer import LogConfig, LogWriter
from tests.support.damage import poke


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, Any, Any]:
    path = tmp_path / "topic-0"
    built = build_log(path, 3, Shape(
        batches=40, transactions=False, compacted=False, codecs=(0,),
        config=LogConfig(segment_bytes=20_000)))
    entry = built.entries[len(built.entries) // 2]
    file = path / f"{entry.segment:020d}.log"
    poke(file, entry.position + entry.size - 1,
         bytes([file.read_bytes()[entry.position + entry.size - 1] ^ 1]))
    return path, built, entry


def test_without_it_the_error_says_how_to_go_on(damaged: Any, capsys: Any) -> None:
    assert main(["cat", str(damaged[0]), "-e", "-f", "%o\\n"]) == 1
    said = capsys.readouterr()
    assert "--skip-damaged continues after the damage" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("more", [[], ["--threads", "2"], ["--isolation", "read_committed"]])
def test_one_bad_batch_costs_one_batch(damaged: Any, capsys: Any, more: list[str]) -> None:
    path, built, entry = damaged
    assert main(["cat", str(path), "-e", "-f", "%o\\n", "--skip-damaged", *more]) == 1
    said = capsys.readouterr()
    want = [row["offset"] for row in built.rows()
            if not entry.base_offset <= row["offset"] <= entry.last_offset]
    assert [int(line) for line in said.out.split()] == want
    gaps = [line for line in said.err.splitlines() if "skipped" in line]
    assert len(gaps) == 1
    assert f"skipped {entry.size} bytes at byte {entry.position}, offsets " \
        f"{entry.base_offset} to {entry.last_offset} (up to {len(entry.rows)} records)" in gaps[0]


def test_damage_ends_a_read_of_committed_records(damaged: Any, capsys: Any) -> None:
    """Damage may hide the marker of a transaction, so nothing after it is stable; that is not the
    end of the log."""
    path, built, entry = damaged
    assert main(["cat", str(path), "-e", "-f", "%o\\n", "--isolation", "read_committed"]) == 1
    said = capsys.readouterr()
    assert [int(line) for line in said.out.split()] == [
        row["offset"] for row in built.rows() if row["offset"] < entry.base_offset]
    assert "CorruptRecordError" in said.err and "Reached end" not in said.err


def write(path: Path, count: int) -> Path:
    """A log of small batches, with their offsets as times; its only file."""
    writer = LogWriter(path, LogConfig())
    for offset in range(count):
        writer.append(Batch(offset, 0, [Record(offset, offset, None, b"v")],
                            base_timestamp=offset, max_timestamp=offset))
    writer.close()
    file, = path.glob("*.log")
    return file


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("count", [1, 3])
def test_damage_at_the_end_is_told(tmp_path: Path, capsys: Any, count: int, isolation: str) -> None:
    """Also where it is all that there is."""
    file = write(tmp_path / "topic-0", count)
    poke(file, file.stat().st_size - 2, b"x")
    command = ["cat", str(tmp_path / "topic-0"), "-e", "-f", "%o\\n", "--isolation", isolation]
    for more, word in (([], "CorruptRecordError"), (["--skip-damaged"], "skipped")):
        assert main([*command, *more]) == 1
        said = capsys.readouterr()
        assert [int(line) for line in said.out.split()] == list(range(count - 1))
        assert word in said.err


@pytest.mark.parametrize(("bound", "expected"), [("s@3", [3, 4]), ("beginning,e@3", [0, 2])])
def test_a_time_is_found_past_damage(tmp_path: Path, capsys: Any, bound: str,
                                     expected: list[int]) -> None:
    file = write(tmp_path / "topic-0", 5)
    poke(file, file.stat().st_size // 5 + 8, b"\xff" * 4)  # the length of the second batch
    assert main(["cat", str(tmp_path / "topic-0"), "-e", "-f", "%o\\n", "--skip-damaged", "-o",
                 bound]) in (0, 1)
    assert [int(line) for line in capsys.readouterr().out.split()] == expected


def test_every_transaction_in_doubt_is_told(capsys: Any) -> None:
    """They have no position of their own."""
    report, key = GapReport(), TopicPartition("topic", 0)
    for first in (1, 5, 1):
        report.add(key, LogGap("transaction_in_doubt", "/data/topic-0", 0, 0, first_offset=first))
    assert [gap.first_offset for _, gap in report.found] == [1, 5]
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_sound_log_ends_with_0(tmp_path: Path, capsys: Any) -> None:
    build_log(tmp_path / "topic-0", 3, Shape(batches=10))
    assert main(["cat", str(tmp_path / "topic-0"), "-e", "--skip-damaged", "-f", "%o\\n"]) == 0
    assert "skipped" not in capsys.readouterr().err


def test_a_stream_lists_its_gaps_and_the_log_logs_them(damaged: Any, caplog: Any) -> None:
    path, _, entry = damaged
    stream = PartitionLog.open(path).to_arrow(on_damage="skip")
    list(stream)
    gap, = stream.gaps
    assert (gap.kind, gap.position, gap.size) == ("batch_crc", entry.position, entry.size)
    assert (gap.first_offset, gap.last_offset) == (entry.base_offset, entry.last_offset)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with pytest.raises(ValueError, match="neither raise nor skip"):
        PartitionLog.open(path).to_arrow(on_damage="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [4, 5, 6, 7])
def test_verify_reports_codec_bits_of_an_old_message(tmp_path: Path, capsys: Any, magic: int,
                                                     codec: int) -> None:
    writer = LogWriter(tmp_path / "topic-0", LogConfig())
    for offset in range(3):
        writer.append(legacy.Message(offset, magic, b"k", b"v" * 20, 5 if magic else -1,
                                     codec if offset == 1 else 0))
    writer.close()
    for argv in (["verify"], ["load", "--level", "verify"]):
        assert main([*argv, str(tmp_path), "--json"]) == 1
        assert "batch-codec" in json.dumps(json.loads(capsys.readouterr().out))
