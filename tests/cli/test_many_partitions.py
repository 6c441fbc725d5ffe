"""What verbs do once for a directory, and when they do it: the work is counted, not timed."""

from __future__ import annotations

import gc
import re
import shutil
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.cli import compact, recover
from seglog.cli.main import main
from seglog.errors import KafkaStorageError
from seglog.recovery.overlay import OverlayDisk
from seglog.storage.partition_log import PartitionLog
from seglog.storage.segment import LogSegment

Copy = Callable[[str], Path]
Capture = pytest.CaptureFixture[str]


def counted(patch: pytest.MonkeyPatch, owner: Any, name: str) -> Counter[str]:
    """Counts the calls of a function by its first argument."""
    calls: Counter[str] = Counter()
    function = getattr(owner, name)

    def count(first: Any, *rest: Any, **named: Any) -> Any:
        calls[str(first)] += 1
        return function(first, *rest, **named)

    patch.setattr(owner, name, count)
    return calls


# ---- cat

def cat(root: Path, topics: str, *options: str) -> int:
    return main(["cat", "-e", "-f", "%t:%o ", "-t", topics, *options, str(root)])


def on_open(patch: pytest.MonkeyPatch, topic: str, act: Callable[[str], object]) -> None:
    """Calls `act` with the path of this topic's partition before it is opened."""
    opens = PartitionLog.open

    def open_it(path: str, **how: Any) -> PartitionLog:
        if path.endswith(f"/{topic}-0"):
            act(path)
        return opens(path, **how)

    patch.setattr(PartitionLog, "open", open_it)


def test_cat_opens_what_it_prints(golden: Path, monkeypatch: pytest.MonkeyPatch,
                                  capfd: Capture) -> None:
    """It opened every partition before it printed the first record."""
    opened = counted(monkeypatch, PartitionLog, "open")
    root = golden / "real" / "clean"
    assert cat(root, "plain-*", "-q", "-c", "3") == 0
    assert capfd.readouterr().out == "plain-gzip:0 plain-gzip:1 plain-gzip:2 "
    assert opened == {f"{root}/plain-gzip-0": 1}


def test_cat_prints_what_is_before_a_partition_that_does_not_open(
        golden: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    root = golden / "real" / "clean"
    assert cat(root, "plain-gzip", "-q") == 0
    alone = capfd.readouterr().out

    def fail(path: str) -> None:
        raise KafkaStorageError(5, "Input/output error", path)

    on_open(monkeypatch, "plain-lz4", fail)
    assert cat(root, "plain-gzip,plain-lz4", "-q") == 2
    assert capfd.readouterr() == (
        alone, f"seglog: error: {root}/plain-lz4-0: Input/output error\n")


def test_cat_leaves_out_a_partition_that_is_gone(
        golden_copy: Copy, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    """A running broker deletes a topic meanwhile: it ended there, before the topics after it."""
    root = golden_copy("real/clean")
    assert cat(root, "plain-gzip,plain-none", "-q") == 0
    others = capfd.readouterr().out
    on_open(monkeypatch, "plain-lz4", shutil.rmtree)
    assert cat(root, "plain-gzip,plain-lz4,plain-none") == 0
    out, err = capfd.readouterr()
    assert out == others
    assert "% plain-lz4-0 is gone since it was listed\n" in err


def test_cat_of_partitions_that_are_all_gone(
        golden_copy: Copy, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    root = golden_copy("real/clean")
    for topic in ("txn", "plain-lz4"):  # two partitions, and one alone
        partitions = sorted(root.glob(f"{topic}-?"))
        with monkeypatch.context() as patch:
            on_open(patch, topic, lambda path, gone=partitions: [  # type: ignore[misc]
                shutil.rmtree(one) for one in gone])
            assert cat(root, topic, "-q") == 2
        out, err = capfd.readouterr()
        assert out == "" and len(err.splitlines()) == 1
        assert ("partitions are gone" if topic == "txn" else "No such file or directory") in err


def test_cat_tells_each_offset_that_is_out_of_range(golden: Path, capfd: Capture) -> None:
    root = golden / "real" / "clean"
    assert cat(root, "txn", "-o", "999999") == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert re.findall(r"of (txn-\d) is out of range", err) == ["txn-0", "txn-1"]
    assert "isolation level" not in err


# ---- ls

def test_ls_makes_no_object_of_a_segment(golden: Path, monkeypatch: pytest.MonkeyPatch,
                                         capfd: Capture) -> None:
    """Of a log that was closed cleanly."""
    path = str(golden / "real" / "clean")
    assert main(["ls", "--segments", "-t", "plain-none", path]) == 0
    before = capfd.readouterr().out
    assert len(before.splitlines()) > 3
    made = counted(monkeypatch, LogSegment, "read_next_offset")
    monkeypatch.setattr(PartitionLog, "open", None)
    assert main(["ls", "--segments", "-t", "plain-none", path]) == 0
    assert capfd.readouterr().out == before and not made


# ---- recoveries and compactions

def test_a_dry_run_lists_a_directory_once(golden: Path, monkeypatch: pytest.MonkeyPatch,
                                          capfd: Capture) -> None:
    """And its loader is left to the logs that are not plain."""
    root = golden / "real" / "clean"
    assert main(["load", "--dry-run", "--all", str(root)]) == 0
    before = capfd.readouterr().out
    listed = counted(monkeypatch, recover, "read_root")
    loaded = counted(monkeypatch, recover, "load_log")
    assert main(["load", "--dry-run", "--all", str(root)]) == 0
    seconds = re.compile(r"in [\d.]+ s")
    assert seconds.sub("", capfd.readouterr().out) == seconds.sub("", before)
    assert listed == {str(root): 1}
    assert f"{root}/plain-none-0" not in loaded
    assert f"{root}/__cluster_metadata-0" in loaded


def test_compact_lists_a_directory_once(golden_copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = [str(golden_copy("real/clean")) for _ in range(2)]
    listed = counted(monkeypatch, compact, "read_root")
    assert main(["compact", "--dry-run", "-t", "__consumer_offsets", *roots]) == 0
    assert listed == dict.fromkeys(roots, 1)


def test_a_dry_run_keeps_no_log_that_it_has_loaded(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    """It kept the rebuilt indexes of all partitions in memory."""
    alive: weakref.WeakSet[OverlayDisk] = weakref.WeakSet()
    before: list[int] = []

    class Counted(OverlayDisk):
        def __init__(self, path: str) -> None:
            super().__init__(path)
            gc.collect()
            before.append(len(alive))
            alive.add(self)

    for number in range(5):
        with seglog.open(tmp_path / f"t-{number}") as log:
            log.append(b"x")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    monkeypatch.setattr(recover, "OverlayDisk", Counted)
    # A level at which no partition is a row.
    assert main(["load", "--dry-run", "--level", "full", "--threads", "1", str(tmp_path)]) == 0
    assert before == [0] * 5, capfd.readouterr()


def test_states_list_the_findings_once(golden: Path, monkeypatch: pytest.MonkeyPatch,
                                       capfd: Capture) -> None:
    """They were put together again for each partition."""
    root, lists = golden / "real" / "unclean", Counter[str]()
    found = recover.DirectoryOutcome.findings
    assert found.fget is not None
    get = found.fget

    def counting(self: Any) -> Any:
        lists[self.path] += 1
        return get(self)

    monkeypatch.setattr(recover.DirectoryOutcome, "findings", property(counting))
    assert main(["load", "--dry-run", "--states", str(root)]) in (0, 1)
    assert lists[str(root)] < 5
