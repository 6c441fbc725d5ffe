"""One start of a manager in every detail, with logs as rows or loaded one by one: what the tests of
rows compare."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog._native.clean_load import load_clean
from seglog.config import LoadConfig, LogConfig
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.manager.loading import LogLoading
from seglog.metrics import MetricsRegistry
from seglog.recovery.callbacks import NullListener
from seglog.storage.checkpoint_files import write_offset_checkpoint
from seglog.storage.paths import parse_directory_name
from tests.manager.support import snapshot
from tests.support.golden import LOAD_CONFIG

NOW_MS = 1_800_000_000_000
CLEAN = ".kafka_cleanshutdown"
SETTINGS = LogConfig.from_properties(LOAD_CONFIG)


CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint",
               "log-start-offset-checkpoint")
#: Golden logs, and what they are called here.
PLAIN = {"plain-none-0": "t-0", "txn-0": "t-1", "idempotent-0": "a" * 240 + "-17",
            "empty-0": "x.y_z-0", "outoforder-0": "-1-2"}


class Events(NullListener):
    """What a listener hears of each directory."""

    def __init__(self) -> None:
        self.heard: dict[str, list[Any]] = {}

    def note(self, directory: str | None, *what: Any) -> None:
        self.heard.setdefault(directory or "", []).append(what)

    def load_started(self, partitions: int, threads: int) -> None:
        self.note("", "load_started", partitions, threads)

    def partition_started(self, directory: str) -> None:
        self.note(directory, "started")

    def segments_listed(self, directory: str, count: int) -> None:
        self.note(directory, "listed", count)

    def segments_loaded(self, directory: str, count: int, thread: int) -> None:
        self.note(directory, "loaded", count, thread)

    def finding(self, found: Any) -> None:
        self.note(found.directory, "finding", found)

    def partition_loaded(self, report: Any) -> None:
        self.note(report.directory, "report", report)

    def done(self, report: Any) -> None:
        self.note("", "done", report.to_dict() | {"seconds": 0, "partitions": 0})


class Messages(logging.Handler):
    """Log lines, without how long something took and how many came before."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = re.sub(r"in \d+ms", "in 0ms", record.getMessage())
        text = re.sub(r"\(\d+/(\d+) completed", r"(n/\1 completed", text)
        self.lines.append(f"{record.name} {record.levelname} {text}")


def state_of(log: UnifiedLog) -> dict[str, Any]:
    return {
        "path": log.path, "topic_id": log.topic_id, "config": log.config,
        "start": log.log_start_offset, "local_start": log.local_log_start_offset,
        "end": log.log_end_offset, "end_metadata": log.log_end_offset_metadata,
        "high": log.high_watermark, "stable": log.last_stable_offset,
        "recovery_point": log.recovery_point, "flushed": log.last_flush_ms,
        "epochs": list(log.leader_epochs), "producers": log.producers.entries,
        "map_end": log.producers.map_end_offset, "segments": log.segments.base_offsets.tolist(),
        "sizes": log.segments.log_size.tolist(), "created": log.segments.created_ms.tolist(),
        "state": log.state()}


def run(root: Path, config: LogConfig, *, rows: bool, opens: bool, threads: int = 1,
        listens: bool = True) -> dict[str, Any]:
    """One start and its shutdown, in every detail. `opens`: somebody asks for every log."""
    messages, events, registry = Messages(), Events(), MetricsRegistry(clock=lambda: 1.0)
    found: dict[str, Any] = {"rows": 0}
    logger = logging.getLogger("seglog")
    before, level = logger.handlers[:], logger.level
    logger.addHandler(messages)
    logger.setLevel(logging.INFO)
    with pytest.MonkeyPatch.context() as patch:
        if not rows:
            patch.setattr(LogLoading, "_knows_rows", lambda self: False)
        manager = seglog.LogManager(
            [root], log_config=config, metrics=registry, time=MockTime(current_time_ms=NOW_MS),
            config=LoadConfig(num_recovery_threads_per_data_dir=threads),
            listener=events if listens else None)
        try:
            manager.startup()
            found["metrics"] = registry.snapshot()
            found["names"] = sorted(name.mbean for name, _ in registry)
            assert len(registry) == len(found["names"])
            found["rows"] = len(manager._state.table.unopened_keys())
            if opens:
                messages_before = list(messages.lines)
                logs = manager.current_logs
                found["files after start"] = snapshot(root)
                messages.lines = messages_before  # the loader speaks of a log when it is opened
                found["logs"] = {key: state_of(log) for key, log in logs.items()}
                found["future"] = {key: state_of(log)
                                   for key, log in manager.future_logs.items()}
                assert not manager._state.table.unopened_keys()
                found["metrics of opened"] = registry.snapshot()
        except Exception as error:
            found["error"] = type(error), str(error)
        reports = manager.load_reports
        found["reports"] = {path: (report.to_dict() | {"seconds": 0})
                            for path, report in reports.items()}
        found["offline"] = manager.offline_log_dirs
        manager.shutdown()
    logger.handlers[:] = before
    logger.setLevel(level)
    found["messages"], found["events"] = sorted(messages.lines), events.heard
    found["files"] = snapshot(root)
    return found


def compare(template: Path, work: Path, config: LogConfig = SETTINGS, *,
            threads: int = 1) -> int:
    """Both starts of copies of one directory; how many logs were rows."""
    rows = 0
    for opens in (False, True):
        results = []
        for by_rows in (False, True):
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(template, work, symlinks=True)
            results.append(run(work, config, rows=by_rows, opens=opens, threads=threads))
        if results[0]["offline"]:  # its logs are given up as they are; rows as they were
            for found in results:
                found["files"] = {name: data.rstrip(b"\0") if name.endswith("index") else data
                                  for name, data in found["files"].items()}
        rows = results[1].pop("rows")
        assert results[0].pop("rows") == 0
        for what in results[0].keys() | results[1].keys():
            assert results[1].get(what) == results[0].get(what), (opens, what)
    return rows


def restarted(root: Path, config: LogConfig = SETTINGS) -> Path:
    """The directory after a start and a shutdown."""
    with seglog.LogManager([root], log_config=config, time=MockTime(current_time_ms=NOW_MS)):
        pass
    return root


def idle_directory(golden: Path, root: Path) -> Path:
    """A directory of a few logs that were closed cleanly, none of which is anything special."""
    root.mkdir()
    offsets = {}
    for number, (source, name) in enumerate(PLAIN.items()):
        shutil.copytree(golden / "real/clean" / source, root / name)
        offsets[parse_directory_name(name).topic_partition] = number
    for name in CHECKPOINTS:
        write_offset_checkpoint(root / name, offsets if "replication" in name else {})
    (root / CLEAN).write_text('{"version":0,"brokerEpoch":-1}')
    restarted(root)
    assert load_clean(root, list(PLAIN.values()), [0] * len(PLAIN))[0]["plain"].all()
    return root
