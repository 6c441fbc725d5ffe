"""Files and circumstances that are not as they should be: half a checkpoint, a live owner, a marker
of another version, a partition that is there twice, a clock that jumps."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from seglog import TopicPartition
from seglog.cli.main import main
from seglog.config import LoadConfig, LogConfig
from seglog.errors import DuplicatePartitionError, LogDirLockedError
from seglog.manager.manager import LogManager
from seglog.recovery.loaded import LoadedLog
from tests.differential.sources import GOLDEN_CONFIG
from tests.faults.box import snapshot, stamps
from tests.faults.managed import CLEAN_MARKER, make_directory
from tests.support.effort import quick_first

SETTINGS = LogConfig.from_properties(GOLDEN_CONFIG)
FOR_EVER = LoadConfig(producer_id_expiration_ms=2**31 - 1)
PARTITION = "dots.and_under-scores-2"
KEY = TopicPartition("dots.and_under-scores", 2)


def manager(*roots: Path) -> LogManager:
    return LogManager(list(roots), config=FOR_EVER, log_config=SETTINGS)


def logs_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(root.glob("*/*.log"))}


# ---- a checkpoint cut at every byte

_LINE = re.compile(r"(\S+) (\S+) (\S+)\s*$")
_NUMBER = re.compile(r"[+-]?\d+$")


def by_reference(content: str) -> Any:
    """Kafka's answer for a file truncated anywhere (CheckpointFile.read): the offset of KEY (0
    without an entry), "reset" for an invalid number, or "offline"."""
    lines = content.splitlines()
    if not lines:
        return 0
    if lines[0] != "0":
        return "offline"
    if len(lines) == 1:
        return 0
    if not _NUMBER.match(lines[1]):
        return "offline"
    offsets = {}
    for line in lines[2:]:
        found = _LINE.match(line)
        if found is None:
            return "offline"
        if not (_NUMBER.match(found[2]) and _NUMBER.match(found[3])):
            return "reset"
        offsets[found[1], int(found[2])] = int(found[3])
    if len(lines) - 2 != int(lines[1]):
        return "offline"
    return offsets.get((KEY.topic, KEY.partition), 0)


@pytest.mark.parametrize("name", quick_first(["recovery-point-offset-checkpoint",
                                              "log-start-offset-checkpoint"], 1))
def test_a_checkpoint_cut_at_every_byte(golden: Path, tmp_path: Path, name: str) -> None:
    origin = make_directory(golden, tmp_path / "origin", "unclean", PARTITION)
    whole = f"0\n2\n{KEY.topic} {KEY.partition} 41\nother 12 70\n"
    (origin / name).write_text(whole)
    before = logs_of(origin)
    seen = set()
    for cut in range(len(whole) + 1):
        work = tmp_path / f"{cut}"
        root = work / "first"
        shutil.copytree(origin, root)
        (root / name).write_text(whole[:cut])
        expected = by_reference(whole[:cut])
        with manager(root, work / "second") as running:
            offline = running.offline_log_dirs == [str(root)]
            assert offline == (expected == "offline"), whole[:cut]
            log = running.get_log(KEY)
            assert (log is None) == offline
            if log is not None:
                offset = 0 if expected == "reset" else expected
                if name.startswith("recovery"):
                    assert log.recovery_point == offset
                else:
                    assert log.log_start_offset == max(offset, log.segments.base_offsets[0])
        seen.add(expected if isinstance(expected, str) else "number")
        # Whatever it said: no byte of the log is gone, and no marker says that all was well.
        assert logs_of(root) == before
        assert os.path.exists(root / CLEAN_MARKER) == (expected != "offline")
        shutil.rmtree(work)
    assert seen == {"number", "offline"}


# ---- a live owner

HOLDER = """
import sys
from seglog.storage.lock import FileLock
lock = FileLock(sys.argv[1])
assert lock.try_lock()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_live_owner_is_named_and_nothing_is_touched(
        golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    free = make_directory(golden, tmp_path / "free", "clean", "txn-0")
    root = make_directory(golden, tmp_path / "held", "clean", PARTITION)
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(root / ".lock")], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    try:
        before = snapshot(tmp_path), stamps(root)
        with pytest.raises(LogDirLockedError) as caught:
            manager(free, root)
        assert caught.value.holder_pid == process.pid
        assert snapshot(tmp_path) == before[0]
        assert main(["load", "--recover", str(root)]) == 2
        said = capsys.readouterr().err.strip()
        assert f"process {process.pid}" in said and len(said.splitlines()) == 1
        assert stamps(root) == before[1]
        assert not (free / ".lock").exists() and (free / CLEAN_MARKER).exists()
    finally:
        process.communicate()
    with manager(free, root) as running:
        assert running.offline_log_dirs == []


# ---- a marker of another version, a partition twice

@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"version":7,"brokerEpoch":"x"}',
                                     b"[" * 5000, b"0" * 100_000])
def test_a_marker_counts_by_being_there(golden: Path, tmp_path: Path, content: bytes) -> None:
    """Whatever it holds, the shutdown was clean (Kafka: CleanShutdownFileHandler.exists)."""
    root = make_directory(golden, tmp_path / "root", "clean", PARTITION)
    before = logs_of(root)
    (root / CLEAN_MARKER).write_bytes(content)
    running = manager(root)
    assert running.read_broker_epoch_from_clean_shutdown_files() is None
    with running:
        log = running.get_log(KEY)
        assert log is not None and log.recovery_point == log.log_end_offset
    assert logs_of(root) == before
    assert (root / CLEAN_MARKER).read_bytes() == b'{"version":0,"brokerEpoch":-1}'


@pytest.mark.parametrize("home", ["clean", "unclean"])
def test_a_partition_in_two_directories_is_in_both_afterwards(golden: Path, tmp_path: Path,
                                                              home: str) -> None:
    roots = [make_directory(golden, tmp_path / name, home, PARTITION) for name in ("a", "b")]
    before = [logs_of(root) for root in roots]
    with pytest.raises(DuplicatePartitionError) as caught, manager(*roots):
        pass
    assert all(str(root) in str(caught.value) for root in roots)
    assert [logs_of(root) for root in roots] == before
    # The way out that the message names.
    shutil.rmtree(roots[1] / PARTITION)
    with manager(*roots) as running:
        assert running.get_log(KEY) is not None
    assert logs_of(roots[0]) == before[0]


# ---- the clock

def load_all(root: Path, expiration_ms: int) -> dict[str, Any]:
    config = LoadConfig(producer_id_expiration_ms=expiration_ms,
                        num_recovery_threads_per_data_dir=1)  # the order of checkpoint lines
    with LogManager([root], config=config, log_config=SETTINGS) as running:
        return {str(log.topic_partition): facts(log) for log in running.all_logs}


def facts(log: LoadedLog) -> tuple[Any, ...]:
    return (log.log_start_offset, log.log_end_offset, log.last_stable_offset,
            [(one.epoch, one.start_offset) for one in log.leader_epochs],
            sorted(repr(one) for one in log.producers.entries))


@pytest.mark.parametrize("seconds", [0, 1, 2**31, 2**33, -(2**31)])
def test_the_times_of_files_mean_nothing(golden: Path, tmp_path: Path, seconds: int) -> None:
    results = []
    for name, stamp in (("plain", None), ("jumped", seconds)):
        root = make_directory(golden, tmp_path / name, "unclean", "txn-0", "compacted-0")
        for path in root.rglob("*"):
            if stamp is not None:
                os.utime(path, (stamp, stamp))
        results.append((load_all(root, 2**31 - 1), snapshot(root)))
    assert results[0] == results[1]


@pytest.mark.parametrize("partition", ["idempotent-0", "txn-0", "compacted-txn-0"])
def test_a_clock_that_was_set_back_expires_no_producer(
        golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition: str) -> None:
    """Kafka: a producer goes when now - its last timestamp is at least the expiration."""
    day_ms = 86_400_000
    newest_ms = 1_800_000_000_000  # later than anything in the golden logs
    for home in ("clean", "unclean"):
        found = {}
        for name, now_ms in (("then", None), ("1970", 0), ("before", 1_000_000_000_000),
                             ("late", newest_ms + 400 * day_ms)):
            root = make_directory(golden, tmp_path / f"{home}-{name}", home, partition)
            with monkeypatch.context() as patch:
                if now_ms is not None:
                    patch.setattr(time, "time_ns", lambda now=now_ms: now * 1_000_000)
                found[name] = load_all(root, day_ms if now_ms is not None else 2**31 - 1)
        producers = {name: states[partition][4] for name, states in found.items()}
        assert producers["then"] and producers["1970"] == producers["then"]
        assert producers["before"] == producers["then"]
        # One that was set forward does, as Kafka's: those that the snapshot knows and that have
        # no transaction open. What the log itself says of offsets is never touched.
        assert set(producers["late"]) <= set(producers["then"])
        assert len({str(states[partition][:2]) for states in found.values()}) == 1
