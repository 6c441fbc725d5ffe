"""Logs that the oracle built, loaded by Kafka's own UnifiedLog: they are what a broker writes."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.kafka import harness
from tests.oracle import files
from tests.oracle.builder import Shape, build_data_dir
from tests.oracle.wire import java_utf8
from tests.oracle.writer import BuiltLog, LogConfig
from tests.support import golden as golden_data

CONFIG = LogConfig()
SHAPES = [Shape(), Shape(magics=(0, 1, 2)), Shape(codecs=(0,), base_offset=5_000_000_000),
          Shape(compacted=False), Shape(magics=(1, 2), batches=90)]
CRASHED = [Shape(clean=False), Shape(clean=False, preallocated=True),
           Shape(magics=(0, 1, 2), clean=False)]


def _hashes(partition: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in partition.iterdir()}


def _check_offsets(built: BuiltLog, state: dict[str, Any]) -> None:
    assert "error" not in state, state
    assert state["log_start_offset"] == built.log_start_offset
    assert state["log_end_offset"] == built.log_end_offset
    assert [segment["base_offset"] for segment in state["segments"]] == built.segments
    assert [tuple(entry) for entry in state["leader_epochs"]] == built.leader_epochs
    open_here = {p["producer_id"]: p["current_txn_first_offset"] for p in state["producers"]
                 if p["current_txn_first_offset"] is not None}
    assert open_here == built.open_transactions


@pytest.mark.usefixtures("kafka_lib")
def test_a_clean_directory_loads_and_closes_unchanged(tmp_path: Path) -> None:
    before, built = {}, {}
    for seed in range(4):
        root = tmp_path / f"clean-{seed}"
        built[root.name] = build_data_dir(root, seed * 100, SHAPES)
        before[root.name] = {log.path.name: _hashes(log.path)
                             for log in built[root.name].values()}
    found = harness.load(sorted(tmp_path.iterdir()), CONFIG.as_kafka())
    for name, logs in built.items():
        for partition, log in logs.items():
            _check_offsets(log, found[name][partition])
            closed = {file: facts["sha256"]
                      for file, facts in found[name][partition]["files_closed"].items()}
            assert closed == before[name][partition]


@pytest.mark.usefixtures("kafka_lib")
def test_recovery_rebuilds_what_the_builder_wrote(tmp_path: Path) -> None:
    """Without the marker, indexes and snapshots Kafka rebuilds everything: to the same bytes."""
    built, before = {}, {}
    for seed in range(4):
        root = tmp_path / f"rebuilt-{seed}"
        built[root.name] = logs = build_data_dir(root, seed * 100 + 7, SHAPES)
        before[root.name] = {log.path.name: _hashes(log.path) for log in logs.values()}
        (root / ".kafka_cleanshutdown").unlink()
        (root / "recovery-point-offset-checkpoint").unlink()
        for log in logs.values():
            for path in log.path.iterdir():
                if path.suffix in {".index", ".timeindex", ".txnindex"}:
                    path.unlink()
    found = harness.load(sorted(tmp_path.iterdir()), CONFIG.as_kafka())
    for name, logs in built.items():
        for partition, log in logs.items():
            state = found[name][partition]
            _check_offsets(log, state)
            for file, digest in before[name][partition].items():
                if not file.endswith(".snapshot"):
                    assert state["files_closed"][file]["sha256"] == digest, (name, partition, file)
            latest = files.segment_path(log.path, log.log_end_offset, ".snapshot")
            entries = files.decode_snapshot(latest.read_bytes())
            assert len(entries) == len(state["producers"])


@pytest.mark.usefixtures("kafka_lib")
def test_a_crashed_directory_recovers_to_its_rows(tmp_path: Path) -> None:
    built = {f"crashed-{seed}": build_data_dir(tmp_path / f"crashed-{seed}", seed * 10, CRASHED,
                                               clean=False) for seed in range(4)}
    found = harness.load(sorted(tmp_path.iterdir()), CONFIG.as_kafka())
    for name, logs in built.items():
        for partition, log in logs.items():
            _check_offsets(log, found[name][partition])


@pytest.mark.usefixtures("kafka_lib")
def test_the_harness_gives_the_golden_answers(golden: Path, tmp_path: Path) -> None:
    """The harness gives the recorded answers on the damaged directories, so it can be trusted
    later."""
    recorded = json.loads((golden / "damaged" / "loaded.json").read_text())
    for name in recorded:
        shutil.copytree(golden / "damaged" / name, tmp_path / name)
    found = harness.load(sorted(tmp_path.iterdir()), golden_data.LOAD_CONFIG)
    assert found.keys() == recorded.keys()
    for name, states in recorded.items():
        for partition, state in states.items():
            ours = found[name][partition]
            assert ours.get("error") == state.get("error"), name
            for key in ("log_start_offset", "log_end_offset", "recovery_point", "segments",
                        "leader_epochs", "producers"):
                assert ours.get(key) == state.get(key), (name, key)


def test_java_reads_utf8_as_the_oracle_does(kafka_lib: Path) -> None:
    rng = random.Random(3)
    alphabet = [0x41, 0x7F, 0x80, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF4, 0xF5,
                0xFF, 0x90, 0x9F, 0xA0]
    given = [bytes(rng.choice(alphabet) for _ in range(rng.randint(1, 8))) for _ in range(20_000)]
    given += ["имя \U0001f600 é".encode(), b"\xed\xa0\xbd\xed\xb8\x80"]
    with harness.Client("127.0.0.1:1") as running:
        said = running.java_utf8(given)
    different = [(raw.hex(), java, java_utf8(raw)) for raw, java in zip(given, said, strict=True)
                 if java != java_utf8(raw)]
    assert not different, different[:10]
