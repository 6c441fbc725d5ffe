"""seglog compact: which logs, up to where, and what it leaves to a broker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.cli.main import main
from seglog.config import LogConfig
from seglog.model import TopicPartition
from tests.cleaner.support import append
from tests.manager.support import entries, snapshot
from tests.support.dump import run_seglog

GROUP, USERS, PLAIN = (TopicPartition(name, 0) for name in ("__consumer_offsets", "users", "plain"))
SMALL = LogConfig(cleanup_policy=("compact",), internal_segment_bytes=1 << 20)
CLEANER, MARKER = "cleaner-offset-checkpoint", ".kafka_cleanshutdown"
SAYS = ["--config", "cleanup.policy=compact"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What a broker leaves: three logs of 4 closed segments, of which one is known as compacted."""
    path = tmp_path / "data"
    with seglog.LogManager(path, log_config=SMALL) as manager:
        for key in (GROUP, USERS, PLAIN):
            log = manager.get_or_create_log(key, is_new=True)
            for number in range(4):
                append(log, [(b"a", b"%d" % number), (b"b%d" % (number % 2), None)])
                log.roll()
            append(log, [(b"a", b"active")])
            log.update_high_watermark(log.log_end_offset)
    return path


def compacted(capsys: Capture, *args: object, code: int = 0) -> dict[str, Any]:
    assert main(["compact", "--json", *map(str, args)]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == code
    return found


def rows(path: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    with seglog.PartitionLog.open(path) as log:
        return [row for batch in log.to_arrow(columns=["offset", "key", "value"])
                for row in zip(*(batch.to_pylists()[name] for name in ("offset", "key", "value")),
                               strict=True)]


KEPT = [(5, b"b0", None), (6, b"a", b"3"), (7, b"b1", None), (8, b"a", b"active")]


def test_an_internal_topic(root: Path, capsys: Capture) -> None:
    before = snapshot(root)
    dry = compacted(capsys, root, "--dry-run")
    assert snapshot(root) == before and dry["verb"] == "compact-dry-run"
    told = compacted(capsys, root)
    assert [row["directory"] for row in told["partitions"]] == ["__consumer_offsets-0"]
    real, planned = (one["partitions"][0]["compaction"] for one in (told, dry))
    for name in ("first_dirty_offset", "first_uncleanable_offset", "end_offset", "dirty_ratio",
                 "rounds", "size_before", "size_after", "records_before", "records_after"):
        assert real[name] == planned[name], name
    assert (real["end_offset"], real["records_before"], real["records_after"]) == (8, 8, 3)
    assert (planned["keys"], planned["is_map_full"], planned["waiting_tombstones"]) == (3, False, 2)
    assert planned["waiting_until_ms"] > 1_600_000_000_000 and planned["waiting_markers"] == 0
    assert real["size_after"] == sum(
        path.stat().st_size for path in (root / "__consumer_offsets-0").glob("*.log"))
    assert rows(root / "__consumer_offsets-0") == KEPT
    assert entries(root / CLEANER) == {GROUP: 8}
    assert (root / MARKER).read_bytes() == before[MARKER] and not list(root.rglob("*.cleaned"))
    for name in ("users-0", "plain-0"):
        assert len(rows(root / name)) == 9
    again = compacted(capsys, root)["partitions"][0]["compaction"]
    assert (again["rounds"], again["end_offset"], again["dirty_ratio"]) == (0, 8, 0)


def test_topics_that_are_named(root: Path, capsys: Capture) -> None:
    for args in (["-t", "users"], ["-t", "users", "--dry-run"]):
        assert main(["compact", str(root), *args]) == 2
        said = capsys.readouterr()
        assert "nothing here says that users is a compacted topic" in said.err
        assert len(rows(root / "users-0")) == 9
    told = compacted(capsys, root, "-t", "users", *SAYS)
    assert [row["topic"] for row in told["partitions"]] == ["users"]
    assert rows(root / "users-0") == KEPT and len(rows(root / "__consumer_offsets-0")) == 9
    told = compacted(capsys, root)  # it is known now
    assert [row["topic"] for row in told["partitions"]] == ["__consumer_offsets", "users"]


def test_a_named_topic_that_no_directory_has_stops_all(root: Path, tmp_path: Path,
                                                       capsys: Capture) -> None:
    """As `ls`, `cat` and `export` do: a script that compacts a misspelt topic should not believe
    that it did. (It was a warning, and exit code 0.)"""
    other = tmp_path / "other"
    with seglog.LogManager(other, log_config=SMALL) as manager:
        manager.get_or_create_log(TopicPartition("orders", 0), is_new=True)
    before = snapshot(root)
    for args in (["-t", "users", "-t", "orderz", *SAYS], ["-t", "orderz", "--dry-run", "--json"]):
        assert main(["compact", str(root), str(other), *args]) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err == (
            f"seglog: error: {root}, {other}: topic orderz is not here; did you mean 'orders'?\n")
    assert snapshot(root) == before
    told = compacted(capsys, root, other, "-t", "users", "-t", "orders", *SAYS)
    assert [row["topic"] for row in told["partitions"]] == ["users", "orders"]
    # Of a directory that cannot be listed nothing is known; its own error comes.
    told = compacted(capsys, root, tmp_path / "none", "-t", "users", "-t", "orderz", *SAYS, code=2)
    assert [row["error"] is None for row in told["directories"]] == [True, False]


def test_the_high_watermark_bounds_it(root: Path, capsys: Capture) -> None:
    """Of a replica that is behind: what is above may be truncated by its leader."""
    path = root / "replication-offset-checkpoint"
    assert entries(path)[GROUP] == 9
    path.write_text(path.read_text().replace(f"{GROUP.topic} 0 9", f"{GROUP.topic} 0 5"))
    for args in (["--dry-run"], []):
        found = compacted(capsys, root, *args)["partitions"][0]
        assert found["compaction"]["end_offset"] == 4 and found["high_watermark"] == 5
    assert entries(root / CLEANER) == {GROUP: 4} and entries(path)[GROUP] == 5
    assert [row[0] for row in rows(root / "__consumer_offsets-0")] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_what_is_refused(root: Path, tmp_path: Path, capsys: Capture) -> None:
    (root / MARKER).unlink()
    before = snapshot(root)
    told = compacted(capsys, root, code=2)
    assert "was not shut down cleanly" in told["directories"][0]["message"]
    assert snapshot(root) == before
    assert main(["load", "--recover", str(root)]) == 0
    capsys.readouterr()
    with seglog.LogManager(root):
        held = compacted(capsys, root, code=2)["directories"][0]
        assert held["error"] is not None and len(rows(root / "__consumer_offsets-0")) == 9
    # One that cannot be worked through is no reason to leave the next one.
    (tmp_path / "none").mkdir()
    told = compacted(capsys, tmp_path / "none", root, code=2)
    assert [row["error"] is None for row in told["directories"]] == [False, True]
    assert rows(root / "__consumer_offsets-0") == KEPT
    assert main(["compact", str(root), str(root)]) == 2


@pytest.mark.parametrize("what", ["length", "record"])
def test_a_log_that_cannot_be_cleaned(root: Path, capsys: Capture, what: str) -> None:
    """The others are; the line names the batch. A first batch whose length cannot be fails while
    Kafka chooses a log, before there is a checkpoint line."""
    (root / CLEANER).write_text("0\n1\nusers 0 0\n")
    name = "00000000000000000002.log"
    data = bytearray((root / "__consumer_offsets-0" / name).read_bytes())
    data[8 if what == "length" else 61:] = b"\0\0\0\x05" + data[12:] if what == "length" else \
        b"\xff" * (len(data) - 61)
    (root / "__consumer_offsets-0" / name).write_bytes(data)
    before = snapshot(root / "__consumer_offsets-0")
    for args in (["--dry-run"], []):
        told = compacted(capsys, root, *args, code=1)
        bad, good = told["partitions"]
        assert bad["error"] is not None and good["error"] is None
        assert bad["compaction"]["uncleanable_file"] == name
        assert bad["compaction"]["uncleanable_position"] == 0
    after = snapshot(root / "__consumer_offsets-0")
    assert {one: after[one] for one in before} == before
    assert rows(root / "users-0") == KEPT and (root / MARKER).exists()
    assert entries(root / CLEANER).get(GROUP) == (None if what == "length" else 0)
    done = run_seglog("compact", str(root))
    assert done.code == 1 and f"({name} at byte 0)" in done.out.decode()


def test_settings(root: Path, capsys: Capture) -> None:
    found = compacted(capsys, root, "--config", "min.compaction.lag.ms=99999999999999")
    assert found["partitions"][0]["compaction"]["rounds"] == 0
    found = compacted(capsys, root, "--dry-run", "--threads", "2", "--config",
                      "log.cleaner.dedupe.buffer.size=48")
    planned = found["partitions"][0]["compaction"]
    assert planned["is_map_full"] and planned["end_offset"] == 1
    found = compacted(capsys, root, "--config", "log.cleaner.dedupe.buffer.size=48")
    assert found["partitions"][0]["compaction"]["rounds"] > 2
    assert rows(root / "__consumer_offsets-0") == KEPT


@pytest.mark.parametrize("factor", ["NaN", "0", "-1", "Infinity", "20"])
def test_any_load_factor(root: Path, capsys: Capture, factor: str) -> None:
    """Kafka takes any number. Nothing is cleaned if the map has room for no key."""
    given = "--config", f"log.cleaner.io.buffer.load.factor={factor}"
    planned, = compacted(capsys, root, "--dry-run", *given)["partitions"]
    found, = compacted(capsys, root, *given)["partitions"]
    end = 8 if factor in ("Infinity", "20") else 0
    assert planned["compaction"]["end_offset"] == found["compaction"]["end_offset"] == end
    assert planned["compaction"]["is_map_full"] == (end == 0)


def test_the_text(root: Path) -> None:
    done = run_seglog("compact", str(root), "--dry-run")
    out = done.out.decode()
    assert done.code == 0 and not done.err
    assert f"{root}: 1 compacted log, " in out and "would become" in out
    assert "8 to 3 records; 100% dirty; would be clean up to offset 8 of 9; 3 dirty keys" in out
    assert "waiting until 2" in out and "2 tombstones" in out
    out = run_seglog("compact", str(root)).out.decode()
    assert "; clean up to offset 8 of 9" in out and "now" in out
    assert "nothing to clean, clean up to offset 8" in run_seglog("compact", str(root)).out.decode()


@pytest.mark.parametrize("threads", [1, 3])
def test_golden_directories(golden: Path, tmp_path: Path, capsys: Capture, threads: int) -> None:
    """What consumers see of each key stays, in both isolations."""
    root = tmp_path / "clean"
    shutil.copytree(golden / "real" / "clean", root)
    # Every closed segment is dirty again.
    (root / CLEANER).write_text("0\n2\ncompacted 0 0\ncompacted-txn 0 0\n")

    def last() -> dict[tuple[str, str], dict[Any, Any]]:
        found = {}
        for name in ("compacted-0", "compacted-txn-0"):
            with seglog.PartitionLog.open(root / name) as log:
                for isolation in ("read_committed", "read_uncommitted"):
                    values = {}
                    for batch in log.to_arrow(columns=["key", "value"], isolation=isolation):
                        lists = batch.to_pylists()
                        values |= dict(zip(lists["key"], lists["value"], strict=True))
                    found[name, isolation] = {
                        key: value for key, value in values.items() if value is not None}
        return found

    before = last()
    told = compacted(capsys, root, "--threads", threads)
    assert sum(row["compaction"]["rounds"] for row in told["partitions"]) == 2
    after = last()
    assert after["compacted-0", "read_committed"] == before["compacted-0", "read_committed"]
    assert after["compacted-txn-0", "read_committed"] == before["compacted-txn-0",
                                                                "read_committed"]
    assert main(["verify", str(root)]) == 0


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["for real", "dry run"])
def test_the_bar_counts_bytes(root: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch,
                              dry: list[str]) -> None:
    """All that a round reads, and a log that was left out is done when its turn is over."""
    from seglog.cli import compact
    reads: list[int] = []
    bars: list[Any] = []

    class Bar(compact._Bar):
        def __init__(self, label: str) -> None:
            super().__init__(label)
            bars.append(self)

        def read(self, size: int) -> None:
            reads.append(size)
            super().read(size)

    monkeypatch.setattr(compact, "_Bar", Bar)
    size = {name: sum(path.stat().st_size for path in (root / name).glob("*.log"))
            for name in ("users-0", "plain-0")}
    closed = sum(path.stat().st_size for path in sorted((root / "users-0").glob("*.log"))[:-1])
    compacted(capsys, root, "-t", "users", *SAYS, *dry)
    assert sum(reads) == 2 * closed
    assert (bars[0].done, bars[0].total) == (2 * size["users-0"],) * 2
    compacted(capsys, root, "-t", "users", "-t", "plain", *SAYS, *dry)
    assert bars[1].done == bars[1].total > 2 * size["plain-0"]


def test_a_log_that_does_not_load_is_told(root: Path, tmp_path: Path, capsys: Capture) -> None:
    """Also one that is not to be compacted: the directory gets no clean shutdown marker then, and
    nothing said so."""
    (root / "plain-0" / "partition.metadata").write_text("no metadata")
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    told = compacted(capsys, root, code=1)
    bad, good = told["partitions"]
    assert bad["directory"] == "plain-0" and bad["error"] == "KafkaStorageException"
    assert good["error"] is None and rows(root / "__consumer_offsets-0") == KEPT
    assert told["directories"][0]["clean_after"] is False and not (root / MARKER).exists()
    done = run_seglog("compact", str(copy))
    assert done.code == 1
    assert "no clean shutdown marker any more, as not every log is loaded" in done.out.decode()
    assert "  plain-0: KafkaStorageException: " in done.out.decode()


def test_a_dry_run_says_what_is_refused(root: Path) -> None:
    with seglog.LogManager(root):
        done = run_seglog("compact", str(root), "--dry-run")
        assert done.code == 0 and "directory is refused: it is in use by" in done.out.decode()
    assert "is refused" not in run_seglog("compact", str(root), "--dry-run").out.decode()
    (root / MARKER).unlink()
    done = run_seglog("compact", str(root), "--dry-run")
    assert done.code == 0
    assert ("without --dry-run this directory is refused: the broker was not shut down cleanly; "
            "run seglog load --recover first\n") in done.out.decode()
