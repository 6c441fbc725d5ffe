"""The oracle against known bytes and against what a real Kafka wrote and its consumers saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.oracle import batch as v2
from tests.oracle import compression, files, legacy, log
from tests.oracle.wire import Reader, crc32c, java_utf8, varint, varlong, xxh32
from tests.support import golden as golden_data

DEFAULT = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
ONE_RECORD = bytes.fromhex(
    "0000000000000000 0000003c 00000000 02 b36be244 0000 00000000 00000000000003e8"
    "00000000000003e8 ffffffffffffffff ffff ffffffff 00000001 14 00 00 00 01 08 74657374 00")


def test_known_checksums() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"Nobody inspects the spammish repetition") == 0xE2293B2F


@pytest.mark.parametrize("number, hexed", [
    (0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"),
    (8191, "fe7f"), (-8192, "ff7f"), (2**31 - 1, "feffffff0f"), (-2**31, "ffffffff0f")])
def test_known_varints(number: int, hexed: str) -> None:
    assert varint(number).hex() == hexed
    assert Reader(bytes.fromhex(hexed)).varint() == number
    assert Reader(varlong(number)).varlong() == number


def test_varlong_ends() -> None:
    for number in (2**63 - 1, -2**63, 2**35, -2**42 - 7):
        assert Reader(varlong(number)).varlong() == number


@pytest.mark.parametrize("raw, text", [
    (b"abc", "abc"), ("имя".encode(), "имя"), (b"\xff", "\ufffd"), (b"\xc0\x80", "\ufffd\ufffd"),
    (b"\xed\xa0\x80", "\ufffd"), (b"\xe2\x82", "\ufffd"), (b"\xe2\x82A", "\ufffdA"),
    (b"\xf0\x9f\x98\x80", "\U0001f600"), (b"\xf0\x9f\x98", "\ufffd"),
    (b"\xe0\x80", "\ufffd\ufffd"),
    (b"\xf4\x90\x80\x80", "\ufffd" * 4), (b"\xf5\x80\x80\x80", "\ufffd" * 4)])
def test_utf8_as_java_reads_it(raw: bytes, text: str) -> None:
    assert java_utf8(raw) == text


def test_known_batches() -> None:
    record = v2.Record(0, 1000, None, b"test")
    batch = v2.Batch(0, 0, [record], base_timestamp=1000, max_timestamp=1000)
    assert v2.encode(batch) == ONE_RECORD
    assert v2.decode(ONE_RECORD) == batch
    two = v2.Batch(0, 1, [v2.Record(0, 1000, b"k", b"v", [(b"h", b"\1\2"), (b"n", None)]),
                          v2.Record(1, 1005, b"k2", None)],
                   base_timestamp=1000, max_timestamp=1005, partition_leader_epoch=-1)
    assert v2.encode(two).hex() == (
        "00000000000000000000004bffffffff02dbbc396d00000000000100000000000003e800000000000003ed"
        "ffffffffffffffffffffffffffff0000000220000000026b0276040268040102026e0110000a02046b320100")
    assert v2.encode(v2.marker(5, 1, 0, v2.ABORT, 1000)).hex() == (
        "0000000000000005000000420000000002c987e7dd00300000000000000000000003e8"
        "00000000000003e800000000000000010000ffffffff000000012000000008000000000c00000000000000")
    emptied = v2.Batch(10, 3, [], max_timestamp=1000, producer_id=1, producer_epoch=0,
                       base_sequence=0, is_transactional=True)
    assert v2.encode(emptied).hex() == (
        "000000000000000a0000003100000000023e16b8ff001000000003ffffffffffffffff"
        "00000000000003e8000000000000000100000000000000000000")


@pytest.mark.parametrize("hexed", [
    "000000000000000000000050ffffffff02b82430d700010000000000000000000003e800000000000003e8ffffff"
    "ffffffffffffffffffffff000000011f8b08000000000000ff1361606060e428492d2e610000b9a4c2220b000000",
    "000000000000000000000048ffffffff02e4ddc79000040000000000000000000003e800000000000003e8ffffff"
    "ffffffffffffffffffffff0000000128b52ffd00585800001400000001087465737400010000"])
def test_known_compressed_batches(hexed: str) -> None:
    assert v2.decode(bytes.fromhex(hexed)).records == [v2.Record(0, 1000, None, b"test")]


def test_known_frames() -> None:
    plain = bytes.fromhex("1400000001087465737400")
    assert compression.compress(compression.SNAPPY, plain).hex() == \
        "82534e4150505900" "00000001" "00000001" "0000000d" "0b28" + plain.hex()
    frame = "04224d18604082" "0b000080" + plain.hex() + "00000000"
    assert compression.compress(compression.LZ4, plain).hex() == frame
    assert compression.compress(compression.LZ4, plain, magic=0).hex()[:14] == "04224d1860401a"


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("size", [1, 100, 32768, 65536, 200_000])
def test_codecs_go_round(codec: int, size: int) -> None:
    plain = bytes(n * n >> 7 & 0xFF for n in range(size))
    assert compression.decompress(codec, compression.compress(codec, plain)) == plain


def test_known_messages() -> None:
    v1 = "00000000000000000000001abf6be29f010000000000000003e8ffffffff0000000474657374"
    v0 = "000000000000000000000012592a47870000ffffffff0000000474657374"
    assert legacy.encode(legacy.Message(0, 1, None, b"test", 1000)).hex() == v1
    assert legacy.encode(legacy.Message(0, 0, None, b"test")).hex() == v0
    wrapper = legacy.decode(bytes.fromhex(
        "000000000000000b0000004ed0b392a3010100000000000007d0ffffffff00000038"
        "1f8b08000000000000ff63608003f1aed497b98c500ef38bff4000643026424540"
        "32e2372672ce842961bf005392040064d9fc2e46000000"))
    assert [(m.offset, m.timestamp, m.value) for m in wrapper.inner] == \
        [(10, 1000, b"a"), (11, 2000, b"b")]
    assert legacy.decode(legacy.encode(legacy.wrap(wrapper.inner, 1))).inner == wrapper.inner


def test_known_files() -> None:
    index = bytes.fromhex("00000001000000480000000200000090" "00000003000000d8")
    assert files.decode_offset_index(index, 40) == [(41, 72), (42, 144), (43, 216)]
    assert files.encode_offset_index([(41, 72), (42, 144), (43, 216)], 40) == index
    times = bytes.fromhex("0000000000000bb800000001" "0000000000000fa000000003")
    assert files.decode_time_index(times, 40) == [(3000, 41), (4000, 43)]
    assert files.encode_time_index([(3000, 41), (4000, 43)], 40) == times
    aborted = [files.AbortedTransaction(1, 0, 29, 8)]
    raw = bytes.fromhex("00000000000000000001" "0000000000000000" "000000000000001d"
                        "0000000000000008")
    assert files.encode_txn_index(aborted) == raw and files.decode_txn_index(raw) == aborted
    assert files.encode_snapshot([]).hex() == "000148674bc700000000"
    producer = files.ProducerEntry(1, 2, 1, 2, 3, -1, 3, 100)
    snapshot = bytes.fromhex("00015b83e05700000001" "0000000000000001" "0002" "00000001"
                             "0000000000000002" "00000003" "ffffffffffffffff" "00000003"
                             "0000000000000064")
    assert files.encode_snapshot([producer]) == snapshot
    assert files.decode_snapshot(snapshot) == [producer]


def _default(rows: list[v2.Row]) -> list[v2.Row]:
    return [{name: row[name] for name in DEFAULT} for row in rows]


@pytest.mark.parametrize("name, partition", golden_data.real_partitions())
def test_real_partitions_read_as_consumers_saw_them(golden: Path, name: str,
                                                    partition: str) -> None:
    folder = golden / "real" / name / partition
    truth = golden / "real" / "truth" / name
    start, end = json.loads((truth / "watermarks.json").read_text())[partition]
    found = log.read(folder)
    assert found.error is None
    rows = [row for row in log.data(found.rows) if start <= row["offset"] < end]
    assert _default(rows) == golden_data.read_truth(truth / f"{partition}.jsonl")
    replay = log.transactions(folder)
    assert _default(log.committed(rows, replay)) == \
        golden_data.read_truth(truth / f"{partition}.jsonl", "read_committed")
    indexed = [entry for base in log.base_offsets(folder)
               if (path := files.segment_path(folder, base, ".txnindex")).exists()
               for entry in files.decode_txn_index(path.read_bytes())]
    if partition.startswith("txn"):
        assert indexed == replay.aborted and indexed


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_partitions_read_as_they_were_written(golden: Path, magic: int, codec: str) -> None:
    name = f"old-v{magic}-{codec}-0"
    found = log.read(golden / "old" / name)
    assert found.error is None
    truth = golden / "old" / "truth" / f"{name}.jsonl"
    assert _default(found.rows) == golden_data.read_truth(truth)


def test_a_log_of_all_formats(golden: Path) -> None:
    found = log.read(golden / "old" / "old-mixed-0")
    assert _default(found.rows) == \
        golden_data.read_truth(golden / "old" / "truth" / "old-mixed-0.jsonl")


def test_snapshots_of_a_broker(golden: Path) -> None:
    paths = sorted((golden / "real" / "unclean").glob("*/*.snapshot"))
    assert len(paths) > 10
    for path in paths:
        found = files.decode_snapshot(path.read_bytes())
        assert files.encode_snapshot(found) == path.read_bytes()
