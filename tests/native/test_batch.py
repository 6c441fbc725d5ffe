"""Scans of batches: every way in which a span of a log ends, each with its place and numbers."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglog._native import batch as native
from seglog._native.batch import BATCH_DTYPE, BatchScan, resync, scan, scan_file
from seglog.errors import CorruptRecordError, KafkaStorageError
from tests.oracle import batch as v2
from tests.oracle import legacy
from tests.oracle.batch import Batch, Record

#: Reference, Appendix B: one record at offset 0.
ONE = bytes.fromhex(
    "0000000000000000 0000003c 00000000 02 b36be244 0000 00000000 00000000000003e8"
    "00000000000003e8 ffffffffffffffff ffff ffffffff 00000001 14 00 00 00 01 08 74657374 00")
EMPTIED = bytes.fromhex(
    "000000000000000a0000003100000000023e16b8ff001000000003ffffffffffffffff00000000000003e8"
    "000000000000000100000000000000000000")
MESSAGE_1 = bytes.fromhex(
    "00000000000000000000001abf6be29f010000000000000003e8ffffffff0000000474657374")
MESSAGE_0 = bytes.fromhex("000000000000000000000012592a47870000ffffffff0000000474657374")
GZIP_WRAPPER = bytes.fromhex(
    "000000000000000b0000004ed0b392a3010100000000000007d0ffffffff00000038"
    "1f8b08000000000000ff63608003f1aed497b98c500ef38bff400064302642454032e2372672ce842961bf0053"
    "92040064d9fc2e46000000")


def batch_at(offset: int, records: int = 3, value: bytes = b"v" * 100, **fields: Any) -> bytes:
    fields = {"base_timestamp": 1000, "max_timestamp": 1000 + offset, **fields}
    return v2.encode(Batch(offset, records - 1, [
        Record(offset + i, 1000, b"k", value) for i in range(records)], **fields))


def reseal(data: bytes) -> bytes:
    """The same batch with the CRC of the bytes it has now."""
    return data[:17] + struct.pack(">I", v2.crc32c(data[21:])) + data[21:]


def by_file(data: bytes, tmp_path: Path, **options: Any) -> BatchScan:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        return scan_file(fd, 0, len(data), **options)
    finally:
        os.close(fd)


def outcome(found: BatchScan) -> tuple[Any, ...]:
    return (found.status_name, found.position, found.next_position, found.batch_count,
            found.expected, found.found)


def check(data: bytes, tmp_path: Path, **options: Any) -> BatchScan:
    """Memory and file must agree on everything; the file's answer is returned."""
    in_memory, in_file = scan(data, **options), by_file(data, tmp_path, **options)
    assert outcome(in_memory) == outcome(in_file)
    assert np.array_equal(in_memory.batches, in_file.batches)
    for name in ("record_count", "first_offset", "last_offset", "max_timestamp",
                 "offset_of_max_timestamp"):
        assert getattr(in_memory, name) == getattr(in_file, name)
    return in_file


def test_a_known_batch(tmp_path: Path) -> None:
    found = check(ONE + EMPTIED, tmp_path)
    assert outcome(found) == ("end", 133, None, 2, 0, 0)
    first, second = found.batches
    assert first.tolist() == (0, 0, 1000, 1000, -1, 0, 72, 0, -1, 1, 0xB36BE244, 0, -1, 2)
    assert second.tolist() == (10, 13, -1, 1000, 1, 72, 61, 0, 0, 0, 0x3E16B8FF, 16, 0, 2)
    assert (found.first_offset, found.last_offset, found.record_count) == (0, 13, 1)
    assert (found.max_timestamp, found.offset_of_max_timestamp) == (1000, 0)
    assert found.batches.dtype == BATCH_DTYPE


def test_old_messages(tmp_path: Path) -> None:
    found = check(MESSAGE_0 + MESSAGE_1 + GZIP_WRAPPER, tmp_path)
    assert outcome(found)[:4] == ("end", 158, None, 3)
    assert found.batches["magic"].tolist() == [0, 1, 1]
    assert found.batches["max_timestamp"].tolist() == [-1, 1000, 2000]
    assert found.batches["record_count"].tolist() == [1, 1, -1]
    assert found.batches["last_offset"].tolist() == [0, 0, 11]
    assert found.batches["producer_id"].tolist() == [-1, -1, -1]


def test_nothing(tmp_path: Path) -> None:
    found = check(b"", tmp_path)
    assert outcome(found) == ("end", 0, None, 0, 0, 0)
    assert (found.first_offset, found.last_offset, found.max_timestamp) == (-1, -1, -1)


@pytest.mark.parametrize("cut", range(1, 72))
def test_torn_tails(cut: int, tmp_path: Path) -> None:
    found = check(ONE + ONE[:cut], tmp_path)
    wanted = 72 if cut > 17 else 18
    # The first bytes of the batch are zeros, as in a file that was cut while it held only zeros.
    status = "zero_tail" if not any(ONE[:cut]) else "torn_tail"
    assert outcome(found) == (status, 72, None, 1, 0 if status == "zero_tail" else wanted, cut)
    found.raise_for_status("x")


@pytest.mark.parametrize("zeros", [1, 17, 18, 61, 5000, 600_000])
def test_zero_tails(zeros: int, tmp_path: Path) -> None:
    found = check(ONE + bytes(zeros), tmp_path)
    assert outcome(found) == ("zero_tail", 72, None, 1, 0, zeros)
    if zeros > 17:
        # One byte that is not zero at the very end makes it a corrupt length.
        found = check(ONE + bytes(zeros - 1) + b"\1", tmp_path)
        assert outcome(found) == ("batch_length", 72, None, 1, 14, 0)
        with pytest.raises(CorruptRecordError) as raised:
            found.raise_for_status("some.log")
        error = raised.value
        assert (error.file, error.position, error.expected, error.found, error.code) == (
            "some.log", 72, 14, 0, "batch_length")


@pytest.mark.parametrize("length", [-2**31, -1, 0, 13])
def test_lengths_below_the_minimum(length: int, tmp_path: Path) -> None:
    bad = ONE[:8] + struct.pack(">i", length) + ONE[12:]
    assert outcome(check(ONE + bad, tmp_path)) == ("batch_length", 72, None, 1, 14, length)


def test_sizes_below_the_header(tmp_path: Path) -> None:
    bad = ONE[:8] + struct.pack(">i", 48) + ONE[12:60]
    assert outcome(check(ONE + bad + ONE, tmp_path)) == ("batch_size", 72, 132, 1, 61, 60)


def test_a_flipped_bit_is_found_wherever_it_is(tmp_path: Path) -> None:
    data = batch_at(0)
    for position in range(21, len(data), 7):
        bad = bytearray(data)
        bad[position] ^= 0x10
        found = check(ONE + bytes(bad) + ONE, tmp_path)
        assert found.status_name == "batch_crc"
        assert (found.position, found.next_position) == (72, 72 + len(data))
        assert (found.expected, found.found) == (
            v2.crc32c(data[21:]), v2.crc32c(bytes(bad[21:])))
        assert check(ONE + bytes(bad) + ONE, tmp_path, check_crcs=False).batch_count == 3
    flipped = MESSAGE_1[:-1] + b"x"
    assert check(MESSAGE_0 + flipped, tmp_path).status_name == "batch_crc"


def test_magic_as_recovery_sees_it(tmp_path: Path) -> None:
    """The CRC does not cover the magic: Kafka reads 3 to 127 as 2, and recovery keeps them."""
    odd = ONE[:16] + b"\x7f" + ONE[17:]
    assert outcome(check(odd, tmp_path)) == ("end", 72, None, 1, 0, 0)
    assert outcome(check(odd, tmp_path, strict=True)) == ("batch_magic", 0, 72, 0, 2, 127)
    negative = legacy.encode(legacy.Message(5, -3, None, b"value"))
    found = check(negative + ONE, tmp_path)
    assert found.batch_count == 2 and found.batches["magic"].tolist() == [-3, 2]
    assert outcome(check(negative, tmp_path, strict=True))[0] == "batch_magic"


def field(data: bytes, at: int, layout: str, value: int) -> bytes:
    return reseal(data[:at] + struct.pack(layout, value) + data[at + struct.calcsize(layout):])


STRICT = {
    "codec 5": (field(ONE, 21, ">h", 5), "batch_codec", 4, 5),
    "unknown bit": (field(ONE, 21, ">h", 0x80), "batch_attributes", 0x7F, 0x80),
    "high bit": (field(ONE, 21, ">h", -0x8000), "batch_attributes", 0x7F, -0x8000),
    "compressed control": (field(ONE, 21, ">h", 0x21), "batch_attributes", 0x20, 0x21),
    "negative count": (field(ONE, 57, ">i", -1), "batch_record_count", 1, -1),
    "too many records": (field(ONE, 57, ">i", 2), "batch_record_count", 1, 2),
    "negative delta": (field(ONE, 23, ">i", -1), "batch_last_offset", 0, -1),
    "offset overflow": (field(b"\x7f" + b"\xff" * 7 + ONE[8:], 23, ">i", 1),
                        "batch_last_offset", 0, 1),
}


@pytest.mark.parametrize("name", STRICT)
def test_strict_rules(name: str, tmp_path: Path) -> None:
    """What Kafka's recovery lets pass, a verification reports; a damaged CRC comes first."""
    data, status, expected, found = STRICT[name]
    assert outcome(check(data, tmp_path))[0] == "end"
    assert outcome(check(data, tmp_path, strict=True)) == (
        status, 0, len(data), 0, expected, found)
    torn = data[:-1] + bytes([data[-1] ^ 1])
    assert outcome(check(torn, tmp_path, strict=True))[0] == "batch_crc"


def test_offsets_that_go_backwards(tmp_path: Path) -> None:
    data = batch_at(0) + batch_at(3) + batch_at(5)
    assert outcome(check(data, tmp_path))[0] == "end"
    found = check(data, tmp_path, strict=True)
    assert found.status_name == "batch_offset_order" and found.batch_count == 2
    assert (found.expected, found.found) == (6, 5)
    assert check(batch_at(0) + batch_at(9), tmp_path, strict=True).status_name == "end"


def test_many_batches_and_limits(tmp_path: Path) -> None:
    data = b"".join(batch_at(3 * i) for i in range(3000))
    found = check(data, tmp_path)
    assert found.batch_count == 3000 and found.record_count == 9000
    assert np.array_equal(found.batches["base_offset"], np.arange(0, 9000, 3))
    assert (found.max_timestamp, found.offset_of_max_timestamp) == (1000 + 8997, 8999)
    headers = check(data, tmp_path, check_crcs=False)
    assert np.array_equal(headers.batches, found.batches)
    uncollected = by_file(data, tmp_path, collect=False)
    assert len(uncollected.batches) == 0 and uncollected.record_count == 9000
    for most in (0, 1, 256, 257, 2999):
        part = check(data, tmp_path, max_batches=most)
        assert outcome(part)[0] == "full" and len(part.batches) == most
        rest = scan(data[part.position:], position=part.position)
        assert np.array_equal(np.concatenate([part.batches, rest.batches]), found.batches)
    assert check(data, tmp_path, max_batches=3000).status_name == "end"


@pytest.mark.parametrize("size", [1_000_000, 1_048_576, 1_048_700, 3_000_000])
def test_batches_beyond_the_window(size: int, tmp_path: Path) -> None:
    data = batch_at(0) + batch_at(3, 1, os.urandom(size)) + batch_at(4)
    found = check(data, tmp_path)
    assert outcome(found)[:4] == ("end", len(data), None, 3)
    assert check(data, tmp_path, check_crcs=False).batch_count == 3
    bad = bytearray(data)
    bad[-600] ^= 1
    assert check(bytes(bad), tmp_path).status_name == "batch_crc"


def test_every_window_of_memory(tmp_path: Path) -> None:
    """A window that ends inside an entry asks for more and keeps its place."""
    data = ONE + batch_at(1)
    for size in range(len(data)):
        found = scan(data[:size], end=len(data))
        assert found.status_name == "more"
        assert found.position == (72 if size >= 72 else 0)
        whole = scan(data[found.position:], position=found.position, end=len(data))
        assert whole.status_name == "end"
    assert scan(bytes(100), end=200).status_name == "batch_length"


def test_a_file_that_shrank(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(ONE)
    fd = os.open(path, os.O_RDONLY)
    try:
        found = scan_file(fd, 0, 10_000)
    finally:
        os.close(fd)
    assert found.status_name == "file_shrank" and found.position == 72
    with pytest.raises(KafkaStorageError):
        found.raise_for_status(path)


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        scan(ONE, position=-1)
    with pytest.raises(ValueError):
        scan(ONE, position=10, end=5)
    with pytest.raises(ValueError):
        scan(ONE, max_batches=-1)
    with pytest.raises(ValueError):
        scan_file(0, 5, 4)
    found = scan_file(999_999, 0, 100)
    assert found.status_name == "io"
    with pytest.raises(KafkaStorageError):
        found.raise_for_status("x")
    assert "BatchScan io" in repr(found)


def test_end_before_the_bytes_end() -> None:
    found = scan(ONE + b"rubbish" * 10, end=72)
    assert outcome(found) == ("end", 72, None, 1, 0, 0)
    assert native.BATCH_DTYPE.itemsize == 80


def test_resync_finds_the_next_entry_of_any_format_in_bounded_work(tmp_path: Path) -> None:
    entries = [legacy.encode(legacy.Message(1, 0, b"k", b"v" * 30)),
               legacy.encode(legacy.Message(2, 1, None, b"v" * 90, 5)),
               v2.encode(Batch(3, 0, [Record(3, 9, b"k", b"x" * 200)]))]
    data = b"\x01" * 37 + b"\x00" * 50
    places = []
    for entry in entries:
        places.append(len(data))
        data += entry + b"\x00\x02\x01" * 11
    path = tmp_path / "log"
    path.write_bytes(data)
    with open(path, "rb") as file:
        for start in range(len(data)):
            want = next((place for place in places if place >= start), None)
            found, left = resync(file.fileno(), start, len(data), len(data), budget=1 << 30)
            assert found == want and left > 0
        found, left = resync(file.fileno(), 0, len(data), len(data), budget=10)
        assert (found, left) == (None, -1)
