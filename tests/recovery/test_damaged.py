"""The 70 damaged directories: what the report predicts is what Kafka's own loader made of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.config import LogConfig
from seglog._native.batch import scan_file
from seglog.recovery import segment_verification
from seglog.recovery.findings import Severity
from tests.recovery.test_log_loader import at

# The settings under which Kafka loaded them (tests/golden/README.md).
SETTINGS = LogConfig(index_interval_bytes=512, segment_index_bytes=16384)
LEVELS = ("kafka", "full", "verify")

CASES = [f"{number:03d}" for number in range(70)]

# What must be found where this was done; several damages may be in one directory.
EXPECTED = {
    "log_byte_flipped": {"batch-crc", "batch-length", "torn-tail", "batch-magic",
                         "batch-offset-order", "batch-attributes", "batch-offset-range"},
    "log_bad_length": {"batch-length", "torn-tail", "batch-size", "batch-crc"},
    "log_bad_magic": {"batch-magic", "batch-crc"},
    "log_garbage_tail": {"torn-tail", "batch-length", "batch-crc", "batch-size"},
    "log_zero_tail": {"zero-tail", "torn-tail"},
    "log_overflowed": {"batch-offset-range"},
    "log_batch_twice": {"batch-offset-order"},
    "every_index_gone": {"index-missing"},
    "index_random": {"index-offset-order", "index-offset-range", "index-position-range",
                     "index-time-order", "index-position-order"},
    "index_odd_size": {"index-size", "index-padded", "index-unwritten"},
    "orphan_index": {"orphan-index"},
    "snapshot_corrupt": {"snapshot-corrupt"},
    "epochs_gone": {"epochs-missing"},
    "temp_files": {"temporary-deleted", "temporary-cleaned", "swap-complete", "swap-incomplete"},
    "swapped_mid_way": {"swap-complete"},
}


@pytest.fixture(scope="module")
def truth(golden: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((golden / "damaged/loaded.json").read_text())
    return loaded


def directory(golden: Path, case: str) -> Path:
    [path] = (golden / "damaged").glob(f"{case}-*")
    return path


@pytest.mark.parametrize("case", CASES)
def test_a_prediction_is_what_kafka_does(golden: Path, truth: dict[str, Any], case: str) -> None:
    path = directory(golden, case)
    for level in LEVELS:
        with seglog.open_data_dir(path, level=level, log_config=SETTINGS) as data:
            [report] = data.report.partitions
        kafka = truth[path.name][report.directory]
        if level == "verify" or report.kafka_error is not None:
            assert report.kafka_error == kafka.get("error")
        if report.kafka_error is not None:
            assert report.kafka_message is not None
            assert report.kafka_message.replace(str(path), "") == kafka["message"]
            assert report.severity == Severity.FATAL
            assert report.log_end_offset is report.log_start_offset is None
        elif level == "verify" or report.log_end_offset is not None:
            assert (report.log_start_offset, report.log_end_offset) == (
                kafka["log_start_offset"], kafka["log_end_offset"])


@pytest.mark.parametrize("case", CASES)
def test_what_was_done_is_found(golden: Path, case: str) -> None:
    path = directory(golden, case)
    kind = path.name[4:]
    with seglog.open_data_dir(path, level="verify", log_config=SETTINGS) as data:
        codes = set(data.report.counts)
    if kind in EXPECTED:
        assert codes & EXPECTED[kind], codes
    done = json.loads((golden / "damaged/cases.json").read_text())[path.name]
    if kind == "untouched" and done["source"].startswith("clean"):
        assert data.report.severity in (None, Severity.INFO, Severity.WARNING)


def test_undamaged_directories_are_sound(golden: Path) -> None:
    for threads in (1, 4):
        with seglog.open_data_dir(golden / "real/clean", level="verify",
                                  num_segment_loading_threads=threads) as data:
            assert data.report.severity == Severity.INFO
            assert sum(data.report.thread_segments) == data.report.segments > 50


@pytest.mark.parametrize("which", ["clean", "unclean"])
def test_every_golden_partition_arrives_where_kafka_does(golden: Path, which: str) -> None:
    truth = json.loads((golden / "real/loaded.json").read_text())[which]
    with seglog.open_data_dir(golden / "real" / which, level="verify",
                              log_config=SETTINGS) as data:
        reports = {report.directory: report for report in data.report.partitions}
    compared = 0
    for name, state in truth.items():
        if name.startswith("__cluster_metadata") or name.endswith("-delete"):
            continue
        report = reports[name]
        assert report.kafka_error is None
        assert (report.log_start_offset, report.log_end_offset) == (
            state["log_start_offset"], state["log_end_offset"]), name
        compared += 1
    assert compared > 15


@pytest.mark.parametrize(("damaged", "grows", "codes", "batches"), [
    (False, True, [], 3), (False, False, ["torn-tail"], 2), (True, True, ["batch-crc"], 2)])
def test_a_segment_that_a_broker_writes_is_verified_to_its_end(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool, grows: bool,
        codes: list[str], batches: int) -> None:
    """The last batch may be there in part only. What is damaged is not waited for."""
    data = bytearray(b"".join(map(at, range(3))))
    if damaged:
        data[len(at(0)) + 70] ^= 1
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(data[:-5])

    def scanned(*arguments: Any, **how: Any) -> Any:
        found = scan_file(*arguments, **how)
        if grows:
            log.write_bytes(data)
        return found

    monkeypatch.setattr(segment_verification, "scan_file", scanned)
    check = segment_verification.verify_segment(str(tmp_path), 0, 0)
    assert ([one.code for one in check.findings][:1], check.batch_count) == (codes, batches)
