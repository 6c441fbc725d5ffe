"""Level verify: positions in a part of a log file, and offsets between segments."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import NoReturn

import pytest

import seglog
from seglog.recovery import segment_verification
from seglog.recovery.loader_failures import FileVanished, LoaderFailure
from seglog.recovery.scans import Extent
from seglog.recovery.segment_verification import verify_extent
from tests.oracle import batch as v2
from tests.oracle import legacy
from tests.oracle.batch import Batch
from tests.recovery.test_claims import batch
from tests.recovery.test_log_loader import FAR, at


@pytest.mark.parametrize("base", [3, 3 << 30])
def test_positions_are_those_of_the_segment(tmp_path: Path, base: int) -> None:
    rng = random.Random(1)
    first, sound, broken = (batch(base + n, 3, rng) for n in (-3, 0, 3))
    log = tmp_path / "whole.log"
    log.write_bytes(first + sound + broken[:-1] + bytes([broken[-1] ^ 1]))
    check = verify_extent(Extent(str(log), len(first), log.stat().st_size), base, "t-0")
    [found] = check.findings
    assert (found.code, found.directory, found.file) == ("batch-crc", "t-0", f"{base:020}.log")
    assert (found.position, found.bytes) == (len(sound), len(broken))
    assert (check.batch_count, check.record_count, check.next_offset) == (1, 3, base + 3)


@pytest.mark.parametrize(("base", "found"), [(-5, 0), (-1 << 40, 1)])
def test_a_segment_below_0(tmp_path: Path, base: int, found: int) -> None:
    """Of a name such as `-5.log`. (A recovery at level verify ended in an OverflowError.)"""
    log = tmp_path / "whole.log"
    log.write_bytes(batch(1, 3, random.Random(1)))
    check = verify_extent(Extent(str(log), 0, log.stat().st_size), base, "t-0")
    assert [one.code for one in check.findings] == ["batch-offset-range"] * found
    assert (check.batch_count, check.next_offset) == (1, 4)


def test_a_segment_without_bytes_is_sound(tmp_path: Path) -> None:
    log = tmp_path / "whole.log"
    log.touch()
    check = verify_extent(Extent(str(log), 0, 0), 7, "t-0")
    assert (check.findings, check.size, check.next_offset) == ([], 0, None)


def test_a_part_of_a_file_is_read_without_an_index(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from the data directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t-0").mkdir()
    for suffix, data in ((".log", batch(0, 3, random.Random(1))), (".index", b"\0\0\0\1" * 2)):
        (tmp_path / "t-0" / f"{0:020d}{suffix}").write_bytes(data)
    log = tmp_path / "t-0" / f"{0:020d}.log"
    assert verify_extent(Extent(str(log), 0, log.stat().st_size), 0, "t-0").findings == []


def test_a_message_of_an_old_format_is_a_record(tmp_path: Path) -> None:
    log = tmp_path / "whole.log"
    messages = [legacy.Message(offset, 1, None, b"v", 1000) for offset in range(5)]
    log.write_bytes(b"".join(map(legacy.encode, [*messages[:2], legacy.wrap(messages[2:], 1)])))
    check = verify_extent(Extent(str(log), 0, log.stat().st_size), 0, "t-0")
    assert (check.findings, check.next_offset) == ([], 5)
    assert (check.batch_count, check.record_count) == (3, 3), "a wrapper has no count"


def test_a_batch_that_was_compacted_to_nothing_has_no_record(tmp_path: Path) -> None:
    rng, log = random.Random(1), tmp_path / "log"
    log.write_bytes(batch(0, 3, rng) + v2.encode(Batch(3, 4, [], producer_id=7, producer_epoch=0,
                                                       base_sequence=0)))
    check = verify_extent(Extent(str(log), 0, log.stat().st_size), 0, "t-0")
    assert (check.findings, check.next_offset) == ([], 8)
    assert (check.batch_count, check.record_count) == (2, 3)


def test_after_too_many_bad_batches_the_rest_of_a_segment_is_one(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_verification, "_BAD_BATCHES_MAX", 3)
    rng, log = random.Random(1), tmp_path / "log"
    bad = [broken[:-1] + bytes([broken[-1] ^ 1]) for broken in (
        batch(base, 3, rng) for base in range(0, 15, 3))]
    log.write_bytes(b"".join(bad))
    check = verify_extent(Extent(str(log), 0, log.stat().st_size), 0, "t-0")
    assert [found.bytes for found in check.findings] == [
        len(bad[0]), len(bad[1]), sum(map(len, bad[2:]))]


def test_offsets_that_go_backwards_between_chunks_are_found(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_verification, "_BATCHES_PER_CHUNK", 2)
    rng, log = random.Random(1), tmp_path / "log"
    parts = [batch(base, 3, rng) for base in (3, 6, 0, 9)]
    log.write_bytes(b"".join(parts))
    [found] = verify_extent(Extent(str(log), 0, log.stat().st_size), 0, "t-0").findings
    assert (found.code, found.position, found.expected, found.found) == (
        "batch-offset-order", sum(map(len, parts[:2])), 9, 0)


def test_zeros_and_offsets_out_of_reach_are_found_once(tmp_path: Path) -> None:
    log, data = tmp_path / "log", at(0) + at(FAR) + at(FAR + 1)
    log.write_bytes(data + bytes(100))
    check = verify_extent(Extent(str(log), 0, log.stat().st_size), 0, "t-0")
    assert [(one.code, one.position, one.bytes) for one in check.findings] == [
        ("batch-offset-range", len(at(0)), None), ("zero-tail", len(data), 100)]
    assert check.next_offset == FAR + 2


def test_a_log_that_cannot_be_opened_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "none")
    for name, code in (("none", "file-missing"), ("link", "file-unreadable")):
        check = verify_extent(Extent(str(tmp_path / name), 0, 7), 0, "t-0")
        assert (check.size, [one.code for one in check.findings]) == (0, [code])


def test_missing_offsets_between_segments_are_a_gap(tmp_path: Path) -> None:
    rng, directory = random.Random(1), tmp_path / "t-0"
    directory.mkdir()
    for base in (0, 3, 9):
        (directory / f"{base:020}.log").write_bytes(batch(base, 3, rng))
    with seglog.open_data_dir(tmp_path, level="verify") as found:
        gaps = [(one.directory, one.offset, one.expected, one.found)
                for partition in found.report.partitions for one in partition.findings
                if one.code == "offset-gap"]
    assert gaps == [("t-0", 6, 6, 9)]


def test_a_disk_that_fails_behind_damage_is_reported(tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "log").write_bytes(at(0) + bytes(8) + b"\xff" * 92)  # an impossible length
    monkeypatch.setattr(segment_verification, "find_batch", fail)
    check = verify_extent(Extent(str(tmp_path / "log"), 0, len(at(0)) + 100), 0, "t-0")
    assert check.batch_count == 1 and [(one.code, one.found) for one in check.findings] == [
        ("file-unreadable", os.strerror(errno.EIO))]


@pytest.mark.parametrize("error", [FileVanished("log"), LoaderFailure("IOException", "gone")])
def test_the_bytes_behind_damage_are_told_though_they_cannot_be_read(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> NoReturn:
        raise error

    data = bytearray(at(0) + at(1))
    data[-1] ^= 1
    (tmp_path / "log").write_bytes(data)
    monkeypatch.setattr(segment_verification, "claims_after", fail)
    found, = verify_extent(Extent(str(tmp_path / "log"), 0, len(data)), 0, "t-0").findings
    assert (found.code, found.position, found.bytes, found.records) == (
        "batch-crc", len(at(0)), len(at(1)), None)
