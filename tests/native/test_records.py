"""Records into columns: the golden truth, known bytes, and what a consumer makes of bad ones."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog._native.columns import COLUMNS, DEFAULT_COLUMNS, RecordColumns
from seglog._native.records import RecordDecoder
from seglog.errors import (
    CorruptDataError,
    CorruptRecordError,
    DecompressionError,
    InvalidRecordError,
    UnsupportedCompressionTypeError,
)
from seglog.storage.codecs import decompress
from tests.oracle import batch as v2
from tests.oracle import legacy, log
from tests.oracle.compression import compress
from tests.support import golden as golden_data
from tests.support.effort import quick_each

Rows = list[dict[str, Any]]

LOG_NAME = "00000000000000000000.log"


def as_rows(columns: RecordColumns) -> Rows:
    lists = columns.to_pylists()
    if "headers" in lists:
        lists["headers"] = [[{"key": key, "value": value} for key, value in headers]
                            for headers in lists["headers"]]
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def decode_file(path: Path, **options: Any) -> Iterator[RecordColumns]:
    fd = os.open(path, os.O_RDONLY)
    try:
        options = {"decompress": decompress, "file": path, **options}
        yield from RecordDecoder(fd, 0, os.fstat(fd).st_size, **options)
    finally:
        os.close(fd)


def read_partition(folder: Path, **options: Any) -> Rows:
    return [row for base in log.base_offsets(folder)
            for columns in decode_file(folder / f"{base:020d}.log", **options)
            for row in as_rows(columns)]


@pytest.mark.parametrize("name, partition", quick_each(
    (pytest.param(*one) for one in golden_data.real_partitions()), 3))
@pytest.mark.parametrize("limits", [{}, {"max_rows": 7}, {"max_bytes": 500}])
def test_real_partitions_read_as_consumers_saw_them(
        golden: Path, name: str, partition: str, limits: dict[str, int]) -> None:
    folder, truth = golden / "real" / name / partition, golden / "real" / "truth" / name
    start, end = json.loads((truth / "watermarks.json").read_text())[partition]
    rows = read_partition(folder, start_offset=start, end_offset=end, **limits)
    assert rows == golden_data.read_truth(truth / f"{partition}.jsonl")
    aborted = [(t.producer_id, t.first_offset, t.last_offset)
               for t in log.transactions(folder).aborted]
    stable = min(end, log.last_stable_offset(folder, end))
    rows = read_partition(folder, start_offset=start, end_offset=stable, aborted=aborted, **limits)
    assert rows == golden_data.read_truth(truth / f"{partition}.jsonl", "read_committed")


@pytest.mark.parametrize("name, partition", golden_data.real_partitions())
def test_every_column_agrees_with_the_oracle(golden: Path, name: str, partition: str) -> None:
    folder = golden / "real" / name / partition
    rows = read_partition(folder, columns=COLUMNS, include_control=True)
    assert rows == [{column: row[column] for column in COLUMNS} for row in log.read(folder).rows]


@pytest.mark.parametrize("limits", [{}, {"max_rows": 3}, {"max_bytes": 200}])
@pytest.mark.parametrize("name", [
    *(f"old-v{magic}-{codec}-0" for magic in (0, 1)
      for codec in ("none", "gzip", "snappy", "lz4")), "old-mixed-0"])
def test_old_partitions_read_as_they_were_written(
        golden: Path, name: str, limits: dict[str, int]) -> None:
    rows = read_partition(golden / "old" / name, **limits)
    assert rows == golden_data.read_truth(golden / "old" / "truth" / f"{name}.jsonl")
    assert set(DEFAULT_COLUMNS) == set(rows[0])


# ---- known bytes and hostile ones ----------------------------------------------------------------

def decode_bytes(data: bytes, tmp_path: Path, **options: Any) -> tuple[Rows, RecordDecoder,
                                                                       Exception | None]:
    """Rows until the end or the error, that error, and the decoder at its end."""
    path = tmp_path / LOG_NAME
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    rows: Rows = []
    try:
        options = {"decompress": decompress, "file": path, **options}
        decoder = RecordDecoder(fd, 0, len(data), **options)
        try:
            while (columns := decoder.next()) is not None:
                assert columns.num_rows == len(columns) > 0
                rows += as_rows(columns)
        except CorruptDataError as error:
            with pytest.raises(type(error)):
                decoder.next()
            return rows, decoder, error
        return rows, decoder, None
    finally:
        os.close(fd)


def good_rows(data: bytes, tmp_path: Path, **options: Any) -> Rows:
    rows, _, error = decode_bytes(data, tmp_path, **options)
    assert error is None
    return rows


def batch_of(payload: bytes, count: int = 1, codec: int = 0, offset: int = 0) -> bytes:
    """A batch with a right CRC around any bytes."""
    return v2.seal(offset, 0, codec, count - 1, 1000, 1000, -1, -1, -1, count, payload)


RECORD = bytes.fromhex("1400000001087465737400")
TWO = bytes.fromhex(
    "00000000000000000000004bffffffff02dbbc396d00000000000100000000000003e800000000000003ed"
    "ffffffffffffffffffffffffffff00000002"
    "20000000026b02760402680401 02026e01 10000a02046b320100")


def test_known_records(tmp_path: Path) -> None:
    rows = good_rows(TWO, tmp_path)
    assert rows == [
        {"offset": 0, "timestamp": 1000, "timestamp_type": 0, "key": b"k", "value": b"v",
         "headers": [{"key": "h", "value": b"\1\2"}, {"key": "n", "value": None}]},
        {"offset": 1, "timestamp": 1005, "timestamp_type": 0, "key": b"k2", "value": None,
         "headers": []},
    ]
    for codec, payload in {
            2: "82534e41505059000000000100000001 0000000d 0b28 1400000001087465737400",
            3: "04224d18 60 40 82 0b000080 1400000001087465737400 00000000"}.items():
        row, = good_rows(batch_of(bytes.fromhex(payload), codec=codec), tmp_path)
        assert (row["value"], row["key"], row["timestamp"]) == (b"test", None, 1000)


#: payload, record count, status, expected, found
BAD_RECORDS = {
    "nothing there": (b"", 1, "record_count", 1, 0),
    "one too few": (RECORD, 2, "record_count", 2, 1),
    "bytes left": (RECORD + b"\0", 1, "record_count", 1, 1),
    "length beyond the payload": (b"\x16" + RECORD[1:], 1, "record_length", 10, 11),
    "negative length": (b"\x01" + RECORD[1:], 1, "record_length", 10, -1),
    "endless length": (b"\xff" * 11, 1, "record_varint", 5, 11),
    "length of five bytes": (b"\x94\x80\x80\x80\x00" + RECORD[1:], 1, None, 0, 0),
    "length of six bytes": (b"\x94\x80\x80\x80\x80\x00" + RECORD[1:], 1, "record_varint", 5, 16),
    "endless timestamp": (b"\x20\x00" + b"\x80" * 15, 1, "record_varint", 10, 15),
    "shorter than its fields": (b"\x12" + RECORD[1:], 1, "record_size", 9, 10),
    "longer than its fields": (b"\x16" + RECORD[1:] + b"\0", 1, "record_size", 11, 10),
    "key beyond": (b"\x14\0\0\0\x14test\0\0", 1, "record_field", 6, 10),
    "value beyond": (b"\x14\0\0\0\x01\x0ctest\0", 1, "record_field", 5, 6),
    "value of 2 GiB": (b"\x16\0\0\0\x01\xfe\xff\xff\xff\x0f\0\0", 1, "record_field", 2, 2**31 - 1),
    "negative header count": (b"\x14\0\0\0\x01\x08test\x01", 1, "record_headers", 0, -1),
    "header count beyond": (b"\x14\0\0\0\x01\x08test\x02", 1, "record_headers", 0, 1),
    "negative header key": (b"\x18\0\0\0\x01\x08test\x02\x01\0", 1, "record_field", 1, -1),
    "header key beyond": (b"\x18\0\0\0\x01\x08test\x02\x04\0", 1, "record_field", 1, 2),
    "header value beyond": (b"\x1a\0\0\0\x01\x08test\x02\x02h\x04", 1, "record_field", 0, 2),
    "header without a value": (b"\x18\0\0\0\x01\x08test\x02\x02h", 1, "record_varint", 5, 0),
    "record of no bytes": (bytes(7), 1, "record_size", 0, 6),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
@pytest.mark.parametrize("columns", [COLUMNS, ("offset",), ("offset", "value"), ("headers",), ()])
def test_bad_records(name: str, columns: tuple[str, ...], tmp_path: Path) -> None:
    """Rows before the bad record come out; then one typed error, whatever is projected."""
    plain, count, code, expected, found = BAD_RECORDS[name]
    before = batch_of(RECORD * 2, 2, offset=5)
    for codec in (0, 1, 4):
        payload = compress(codec, plain) if codec else plain
        data = before + batch_of(payload, count, codec, offset=7) + batch_of(RECORD, offset=30)
        rows, decoder, error = decode_bytes(data, tmp_path, columns=columns)
        if code is None:
            assert error is None and (len(rows) == 4 or not columns)
            continue
        if "offset" in columns:
            whole = {"one too few": 1, "bytes left": 1}.get(name, 0)
            assert [row["offset"] for row in rows] == [5, 5, 7][:2 + whole]
        assert isinstance(error, InvalidRecordError)
        assert (error.code, error.expected, error.found) == (code, expected, found)
        assert (error.position, error.file) == (len(before), str(tmp_path / LOG_NAME))
        assert decoder.position == len(before) and decoder.status_name == code


def test_a_record_count_of_zero_hides_the_payload(tmp_path: Path) -> None:
    empty = v2.seal(3, 0, 4, 5, -1, 1000, -1, -1, -1, 0, b"no zstd at all")
    rows = good_rows(empty + batch_of(RECORD, offset=9), tmp_path)
    assert [row["offset"] for row in rows] == [9]


@pytest.mark.parametrize("change, code, kind", [
    ({57: b"\xff\xff\xff\xff"}, "batch_record_count", CorruptRecordError),
    ({22: b"\x05"}, "batch_codec", UnsupportedCompressionTypeError),
    ({22: b"\x04"}, "codec_data", DecompressionError),
    ({16: b"\x03"}, "batch_magic", CorruptRecordError),
    ({16: b"\xff"}, "batch_magic", CorruptRecordError),
])
def test_bad_headers(change: dict[int, bytes], code: str, kind: type[Exception],
                     tmp_path: Path) -> None:
    good = batch_of(RECORD)
    bad = bytearray(batch_of(RECORD, offset=5))
    for at, value in change.items():
        bad[at:at + len(value)] = value
    bad[17:21] = v2.crc32c(bytes(bad[21:])).to_bytes(4, "big")
    rows, decoder, error = decode_bytes(good + bytes(bad), tmp_path)
    assert len(rows) == 1 and isinstance(error, kind)
    assert (error.code, error.position) == (code, len(good)) and error.file
    assert decoder.position == len(good)


def test_a_bad_crc_and_tails(tmp_path: Path) -> None:
    good = batch_of(RECORD)
    rows, _, error = decode_bytes(good + good[:-1] + b"\1", tmp_path)
    assert len(rows) == 1 and isinstance(error, CorruptRecordError) and error.code == "batch_crc"
    for tail, status in {b"": "end", good[:30]: "torn_tail", bytes(3000): "zero_tail",
                         bytes(9): "zero_tail", b"\1": "torn_tail"}.items():
        rows, decoder, error = decode_bytes(good + tail, tmp_path)
        assert (len(rows), error, decoder.status_name) == (1, None, status)
        assert decoder.position == len(good) and decoder.next() is None
    unchecked = good[:17] + b"\0\0\0\0" + good[21:]
    assert len(good_rows(unchecked, tmp_path, check_crcs=False)) == 1


def test_several_sets_at_a_time(tmp_path: Path) -> None:
    """`take` gives what `next` gives, by bytes instead of one by one, and errors behind it."""
    good = b"".join(batch_of(RECORD * 3, 3, offset=3 * n) for n in range(40))
    path = tmp_path / LOG_NAME
    path.write_bytes(good + good[:-1] + b"\1")
    with open(path, "rb") as file:
        decoder = RecordDecoder(file.fileno(), 0, len(good), decompress=decompress, max_rows=7)
        one = decoder.next()
        assert one is not None
        whole = [one, *decoder.take(1 << 30)]
        assert [len(columns) for columns in whole] == [7] * 17 + [1]
        assert decoder.take(1) == [] and decoder.next() is None
        for wanted in (1, one.nbytes, one.nbytes + 1, 3 * one.nbytes):
            decoder.restart(file.fileno(), 0, len(good), file=path)
            found = []
            while taken := decoder.take(wanted):
                assert len(taken) <= -(-wanted // one.nbytes) + 1
                found += taken
            assert [row for columns in found for row in as_rows(columns)] == [
                row for columns in whole for row in as_rows(columns)]
            assert decoder.status_name == "end" and decoder.position == len(good)
        size = path.stat().st_size
        decoder.restart(file.fileno(), 0, size, start_offset=102, file=path)
        assert sum(map(len, decoder.take(1 << 30))) == 18
        for _ in range(2):
            with pytest.raises(CorruptRecordError) as caught:
                decoder.take(1 << 30)
            assert caught.value.file == str(path)
        decoder.restart(file.fileno(), 0, len(good), end_offset=5)
        assert sum(map(len, decoder.take(1))) == 6
        with pytest.raises(ValueError, match="position"):
            decoder.restart(file.fileno(), 5, 4)
        with pytest.raises(ValueError, match="max_bytes is 0"):
            decoder.take(0)


def test_offsets_that_go_backwards(tmp_path: Path) -> None:
    """The CRC does not cover the base offset: order is all that tells of a damaged one."""
    data = batch_of(RECORD, offset=5) + batch_of(RECORD, offset=5)
    rows, _, error = decode_bytes(data, tmp_path, end_offset=6)
    assert len(rows) == 1 and error is None
    rows, _, error = decode_bytes(data, tmp_path)
    assert len(rows) == 1 and isinstance(error, CorruptRecordError)
    assert (error.code, error.expected, error.found) == ("batch_offset_order", 6, 5)
    rows, _, error = decode_bytes(data, tmp_path, base_offset=6)
    assert not rows and isinstance(error, CorruptRecordError) and error.position == 0


def test_java_arithmetic(tmp_path: Path) -> None:
    """Offsets, timestamps and sequences wrap as they do in a consumer."""
    low, high = -2**63, 2**63 - 1
    record = v2.encode_record(v2.Record(high - 1, 5), high - 1, 2)
    one = b"\x0c" + b"\0" + b"\x02" + b"\x04" + b"\1\1\0"
    data = v2.seal(high - 1, 0, 0, 0, high, high, 7, 1, 2**31 - 1, 2, record + one)
    rows = good_rows(data, tmp_path, columns=("offset", "timestamp", "sequence"))
    assert [row["offset"] for row in rows] == [high - 1, low]
    assert [row["timestamp"] for row in rows] == [low + 2, low]
    assert [row["sequence"] for row in rows] == [2**31 - 1, 1]
    data = v2.seal(0, 0, 8, 0, 5, 99, -1, -1, -1, 1, one)
    row, = good_rows(data, tmp_path)
    assert (row["timestamp"], row["timestamp_type"]) == (99, 1)


def test_header_keys_as_java_reads_them(tmp_path: Path) -> None:
    """Answers of `new String(bytes, UTF_8)` on OpenJDK 17."""
    known = {
        "": "", "61": "a", "c3a9": "\u00e9", "f09f9880": "\U0001f600", "00": "\0",
        "80": "\ufffd", "c0af": "\ufffd\ufffd", "c241": "\ufffdA", "e0a0": "\ufffd",
        "e08080": "\ufffd\ufffd\ufffd", "eda080": "\ufffd", "eda041": "\ufffdA",
        "edbfbf41": "\ufffdA", "eda0": "\ufffd", "ed41": "\ufffdA", "f08080": "\ufffd\ufffd\ufffd",
        "f0908041": "\ufffdA", "f4908080": "\ufffd\ufffd\ufffd\ufffd", "f8": "\ufffd",
        "fc8080": "\ufffd\ufffd\ufffd", "6161616161616161ff61616161616161": "aaaaaaaa\ufffdaaaaaaa",
        "efbfbf": "\uffff",
    }
    headers = [(bytes.fromhex(key), None) for key in known]
    data = v2.encode(v2.Batch(0, 0, [v2.Record(0, 0, None, None, headers)]))
    row, = good_rows(data, tmp_path)
    assert [header["key"] for header in row["headers"]] == list(known.values())


# ---- messages of magic 0 and 1 -------------------------------------------------------------------

def wrapper(inner: bytes, offset: int, magic: int = 1, codec: int = 1, kind: int = 0,
            timestamp: int = 77) -> bytes:
    return legacy.encode(legacy.Message(offset, magic, None, compress(codec, inner, magic=magic),
                                        timestamp, codec, kind))


def message(offset: int, magic: int = 1, **fields: Any) -> bytes:
    fields = {"value": b"v", "timestamp": 5 if magic else -1, **fields}
    return legacy.encode(legacy.Message(offset, magic, **fields))


def test_wrapper_offsets(tmp_path: Path) -> None:
    """Relative in magic 1, absolute in magic 0, and absolute under a wrapper at offset 0."""
    inner = message(0) + message(2) + message(3)
    for outer, expected in {wrapper(inner, 13): [10, 12, 13], wrapper(inner, 3): [0, 2, 3],
                            wrapper(inner, 0): [0, 2, 3]}.items():
        assert [row["offset"] for row in good_rows(outer, tmp_path)] == expected
    old = wrapper(message(20, 0) + message(22, 0), 22, 0)
    rows = good_rows(old, tmp_path)
    assert [(row["offset"], row["timestamp"], row["timestamp_type"]) for row in rows] == [
        (20, -1, -1), (22, -1, -1)]
    assert [row["offset"] for row in good_rows(old, tmp_path, start_offset=21)] == [22]
    assert [row["offset"] for row in good_rows(old, tmp_path, end_offset=22)] == [20]
    assert good_rows(old + message(30), tmp_path, end_offset=21)[0]["offset"] == 20


def test_wrapper_times(tmp_path: Path) -> None:
    """The broker's stamp wins; an inner message of another magic keeps what its own bytes say."""
    inner = message(0) + message(1, 0)
    rows = good_rows(wrapper(inner, 1, kind=1), tmp_path)
    assert [(row["timestamp"], row["timestamp_type"]) for row in rows] == [(77, 1), (-1, -1)]
    rows = good_rows(wrapper(inner, 1), tmp_path)
    assert [(row["timestamp"], row["timestamp_type"]) for row in rows] == [(5, 0), (-1, -1)]
    rows = good_rows(wrapper(message(9), 9, magic=0), tmp_path)
    assert [(row["timestamp"], row["timestamp_type"]) for row in rows] == [(5, -1)]


@pytest.mark.parametrize("data, code, rows_before", [
    (wrapper(message(0) + message(9), 4), "legacy_offset", 0),
    (wrapper(b"", 4), "legacy_empty_wrapper", 0),
    (wrapper(message(0)[:-1], 4), "legacy_empty_wrapper", 0),
    (wrapper(message(0) + wrapper(message(0), 0), 1), "legacy_nested", 1),
    (legacy.encode(legacy.Message(4, 1, None, None, 5, 1)), "legacy_null_wrapper", 0),
    (legacy.encode(legacy.Message(4, 1, None, b"x", 5, 4)), "legacy_codec", 0),
    (legacy.encode(legacy.Message(4, 1, None, b"x", 5, 6)), "batch_codec", 0),
    (wrapper(message(0)[:8] + b"\0\0\0\x0d" + message(0)[12:], 4), "legacy_size", 0),
    (wrapper(message(0) + bytes(12), 4), "legacy_size", 0),
])
def test_bad_wrappers(data: bytes, code: str, rows_before: int, tmp_path: Path) -> None:
    rows, _, error = decode_bytes(message(0) + data, tmp_path)
    assert len(rows) == 1 + rows_before and error is not None
    assert isinstance(error, CorruptDataError)
    assert (error.code, error.position) == (code, len(message(0)))


def test_bad_messages(tmp_path: Path) -> None:
    """A right CRC around fields that do not fit."""
    good = message(0, value=b"value", key=b"key")
    for at, field, code in [(26, b"\0\0\0\x7f", "record_field"),
                            (33, b"\0\0\0\x06", "record_field"),
                            (26, b"\0\0\0\x0a", "legacy_size")]:
        bad = bytearray(good)
        bad[7] = 1
        bad[at:at + 4] = field
        bad[12:16] = zlib.crc32(bad[16:]).to_bytes(4, "big")
        rows, _, error = decode_bytes(good + bytes(bad), tmp_path)
        assert len(rows) == 1 and isinstance(error, CorruptDataError) and error.code == code
    short = bytes(8) + (20).to_bytes(4, "big") + bytes(4) + b"\1" + bytes(15)
    assert len(short) == 32
    short = short[:12] + zlib.crc32(short[16:]).to_bytes(4, "big") + short[16:]
    _, _, error = decode_bytes(short, tmp_path)
    assert isinstance(error, CorruptDataError) and error.code == "legacy_size"
