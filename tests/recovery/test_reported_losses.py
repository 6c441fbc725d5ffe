"""What the findings of a load say about records that a recovery drops."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.recovery.findings import Finding, Severity
from tests.log.test_fast_path import batch
from tests.oracle import legacy
from tests.oracle.files import AbortedTransaction, encode_txn_index
from tests.recovery.test_load import codes, data_dir, name
from tests.recovery.test_log_loader import load

SIZE = len(batch(2))


def written(root: Path, segments: dict[int, list[bytes]], *, clean: bool = False) -> Path:
    """A data directory with one partition of these bytes."""
    path = data_dir(root, clean=clean) / "t-0"
    path.mkdir()
    for base, batches in segments.items():
        (path / name(base, ".log")).write_bytes(b"".join(
            (base + 2 * number).to_bytes(8, "big") + one[8:] if any(one) else one
            for number, one in enumerate(batches)))
        for suffix in (".index", ".timeindex"):
            (path / name(base, suffix)).touch()
    return path


def found(root: Path, code: str) -> Finding | None:
    with seglog.open_data_dir(root, level="verify") as data:
        return next((one for one in data.report.findings if one.code == code), None)


def facts(one: Finding | None, *names: str) -> dict[str, Any]:
    assert one is not None
    told = {**one.to_dict()}
    return {key: told.get(key) for key in names}


def broken(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


NAMES = ("file", "position", "offset", "last_offset", "bytes", "records", "batches", "severity")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_recovery_cuts_at_the_first_bad_batch(tmp_path: Path, at: int) -> None:
    batches = [batch(2) for _ in range(3)]
    batches[at] = broken(batches[at])
    root = tmp_path / "data"
    written(root, {0: batches, 6: [batch(2), batch(2)]})
    lost = 3 - at
    assert facts(found(root, "log-truncated"), *NAMES) == {
        "file": name(0, ".log"), "position": at * SIZE, "offset": 2 * at, "last_offset": 5,
        "bytes": lost * SIZE, "records": 2 * lost, "batches": lost, "severity": "error"}
    assert facts(found(root, "segments-removed"), *NAMES) == {
        "file": name(6, ".log"), "position": None, "offset": 6, "last_offset": 9,
        "bytes": 2 * SIZE, "records": 4, "batches": 2, "severity": "error"}


def test_offsets_that_go_backwards_empty_a_segment_from_its_base_on(tmp_path: Path) -> None:
    """Kafka truncates it at the first index entry at its base offset (LogSegment.truncateTo)."""
    path = data_dir(tmp_path / "data", clean=False) / "t-0"
    path.mkdir()
    large = batch(size=5000)  # an index entry is due at each
    (path / name(10, ".log")).write_bytes(b"".join(
        offset.to_bytes(8, "big") + large[8:] for offset in (11, 10, 10)))
    for suffix in (".index", ".timeindex"):
        (path / name(10, suffix)).touch()
    assert facts(found(path.parent, "segment-emptied"), *NAMES) == {
        "file": name(10, ".log"), "position": len(large), "offset": 10, "last_offset": 10,
        "bytes": 2 * len(large), "records": 2, "batches": 2, "severity": "error"}


def test_segments_of_zeros_are_removed_from_their_first_offset_on(tmp_path: Path) -> None:
    root = tmp_path / "data"
    written(root, {0: [batch(2), b"x"], 2: [bytes(9)], 5: [bytes(9)]})
    assert facts(found(root, "segments-removed"), "file", "offset", "last_offset", "severity") == {
        "file": name(2, ".log"), "offset": 2, "last_offset": None, "severity": "warning"}


def test_bytes_that_claim_nothing_are_a_warning(tmp_path: Path) -> None:
    root = tmp_path / "data"
    written(root, {0: [batch(2), bytes(100)]})
    one = found(root, "log-truncated")
    assert one is not None and one.severity is Severity.WARNING
    assert facts(one, "offset", "last_offset", "bytes", "records") == {
        "offset": 2, "last_offset": None, "bytes": 100, "records": 0}


@pytest.mark.parametrize(("version", "severity"), [
    (0, None), (255, Severity.WARNING), (256, Severity.FATAL)])
def test_the_version_of_a_transaction_index_is_its_first_byte(
        tmp_path: Path, version: int, severity: Severity | None) -> None:
    """Kafka reads one byte of two (AbortedTxn.version), so small numbers pass."""
    root = tmp_path / "data"
    path = written(root, {0: [batch(2)]}, clean=True)
    entry = encode_txn_index([AbortedTransaction(7, 0, 1, 2)])
    (path / name(0, ".txnindex")).write_bytes(version.to_bytes(2, "big") + entry[2:])
    with seglog.open_data_dir(root, level="full") as data:
        told = [one for one in data.report.findings if one.code == "txn-version"]
        assert ("log-unloadable" in codes(data.report)) == (version == 256)
    assert [one.severity for one in told] == ([] if severity is None else [severity])
    assert version != 255 or told[0].action == "reads it as version 0"


def test_the_first_index_entry_that_the_log_contradicts_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path / "data", {0: [batch(2) for _ in range(4)]}, clean=True)
    entries = [(3, SIZE), (5, 2 * SIZE - 1), (7, 3 * SIZE - 1)]
    (path / name(0, ".index")).write_bytes(b"".join(struct.pack(">ii", *one) for one in entries))
    (path / name(0, ".timeindex")).write_bytes(struct.pack(">qiqi", 77, 3, 78, 5))
    assert facts(found(path.parent, "index-not-a-batch"), "file", "position", "expected",
                 "found") == {"file": name(0, ".index"), "position": 8, "expected": 5,
                              "found": 2 * SIZE - 1}
    assert facts(found(path.parent, "index-timestamp"), "file", "position", "found") == {
        "file": name(0, ".timeindex"), "position": 0, "found": 77}
    with seglog.open_data_dir(path.parent, level="verify") as data:
        assert [data.report.counts[code] for code in ("index-not-a-batch", "index-timestamp")] == [
            1, 1]


def test_a_time_index_entry_is_above_all_before_it(tmp_path: Path) -> None:
    """The first and the second batch have the largest timestamps 100 and 50."""
    path = written(tmp_path / "data", {0: [batch(2, timestamp=99), batch(2, timestamp=49)]},
                   clean=True)
    for entries, position in ((((100, 1),), None), (((50, 1),), 0), (((100, 1), (120, 3)), 12)):
        (path / name(0, ".timeindex")).write_bytes(
            b"".join(struct.pack(">qi", *one) for one in entries))
        wrong = found(path.parent, "index-timestamp")
        assert (None if wrong is None else wrong.position) == position


def test_an_index_entry_of_a_damaged_batch_is_no_finding_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path / "data", {0: [batch(2), broken(batch(2)), batch(2)]}, clean=True)
    (path / name(0, ".index")).write_bytes(struct.pack(">ii", 3, SIZE))
    assert found(path.parent, "batch-crc") is not None
    assert found(path.parent, "index-not-a-batch") is None


def test_damage_below_the_recovery_point_stays(tmp_path: Path) -> None:
    root = tmp_path / "data"
    written(root, {base: [broken(batch(2))] for base in (0, 2, 4, 6)})
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    with seglog.open_data_dir(root, level="verify") as data:
        told = {one.file: "readers fail there" in one.action for one in data.report.findings
                if one.code == "batch-crc"}
    assert told == {name(base, ".log"): base == 0 for base in (0, 2, 4, 6)}
    assert facts(found(root, "segments-unflushed"), "file", "offset", "found", "bytes") == {
        "file": name(2, ".log"), "offset": 2, "found": 3, "bytes": 3 * SIZE}
    assert facts(found(root, "segments-removed"), "file", "offset", "found") == {
        "file": name(4, ".log"), "offset": 4, "found": 2}


@pytest.mark.parametrize(("level", "told"), [("full", []), ("verify", [name(0, ".snapshot")])])
def test_snapshots_that_a_start_does_not_read_are_verified(
        tmp_path: Path, level: Any, told: list[str]) -> None:
    path = written(tmp_path / "data", {0: [batch(2)]}, clean=True)
    load(path).close()
    assert (path / name(2, ".snapshot")).exists()
    (path / name(0, ".snapshot")).write_bytes(b"damaged")
    with seglog.open_data_dir(path.parent, level=level) as data:
        assert [one.file for one in data.report.findings
                if one.code == "snapshot-corrupt"] == told


def test_an_index_names_an_offset_of_its_batch(tmp_path: Path) -> None:
    """A lookup of another one before the batch would begin after it."""
    path = written(tmp_path / "data", {0: [batch(2) for _ in range(4)]}, clean=True)
    for offset, is_wrong in ((1, True), (2, False), (3, False)):
        (path / name(0, ".index")).write_bytes(struct.pack(">ii", offset, SIZE))
        assert (found(path.parent, "index-not-a-batch") is not None) is is_wrong


def test_a_log_that_ends_below_its_start_loses_all(tmp_path: Path) -> None:
    root = tmp_path / "data"
    written(root, {0: [batch(2)], 2: [batch(2), batch(2)]})
    start = root / "log-start-offset-checkpoint"
    start.write_text("0\n1\nt 0 6\n")
    assert found(root, "log-end-below-start") is None
    start.write_text("0\n1\nt 0 7\n")
    assert facts(found(root, "log-end-below-start"), "expected", "found", "offset", "records",
                 "bytes") == {"expected": 7, "found": 6, "offset": 0, "records": 6,
                              "bytes": 3 * SIZE}


def test_segments_without_batches_below_the_start_are_lost_from_the_first_on(
        tmp_path: Path) -> None:
    root = tmp_path / "data"
    written(root, {1: [], 2: []})
    (root / "log-start-offset-checkpoint").write_text("0\n1\nt 0 7\n")
    assert facts(found(root, "log-end-below-start"), "found", "offset", "records") == {
        "found": 2, "offset": 1, "records": 0}


@pytest.mark.parametrize("magic", [0, 1])
def test_an_index_may_name_any_offset_of_a_wrapper(tmp_path: Path, magic: int) -> None:
    """The first brokers wrote its first one; its header holds the last."""
    def one(offset: int) -> legacy.Message:
        return legacy.Message(offset, magic, b"k", b"v", 1000 if magic else -1)

    path = data_dir(tmp_path / "data") / "t-0"
    path.mkdir()
    parts = [legacy.encode(one) for one in (
        one(0), legacy.wrap([one(n) for n in range(1, 5)], 1), one(5))]
    (path / name(0, ".log")).write_bytes(b"".join(parts))
    (path / name(0, ".timeindex")).touch()
    for offset, position, is_wrong in (
            (1, len(parts[0]), False), (4, len(parts[0]), False), (1, len(parts[0]) + 1, True)):
        (path / name(0, ".index")).write_bytes(struct.pack(">ii", offset, position))
        assert (found(path.parent, "index-not-a-batch") is not None) is is_wrong
