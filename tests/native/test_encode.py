"""The encoder of batches against known bytes, the slow oracle, and parsers that others wrote."""

from __future__ import annotations

import importlib
import mmap
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog._native.encode import BATCH_OVERHEAD, BatchEncoder
from seglog.errors import IllegalArgumentError
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.oracle.wire import varint
from tests.support.effort import examples

# Apache Kafka wrote these (tests/c/build.h).
GOLDEN_ONE = bytes.fromhex(
    "0000000000000000 0000003c 00000000 02 b36be244 0000 00000000 00000000000003e8"
    "00000000000003e8 ffffffffffffffff ffff ffffffff 00000001 14 00 00 00 01 08 74657374 00")
GOLDEN_TWO = bytes.fromhex(
    "00000000000000000000004bffffffff02dbbc396d00000000000100000000000003e8"
    "00000000000003edffffffffffffffffffffffffffff00000002"
    "20000000026b0276040268040102026e01 10000a02046b320100")

blobs = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), blobs),
                   max_size=3)
timestamps = st.integers(-1, 2**63 - 1)
records = st.lists(st.tuples(st.integers(1, 2**20), timestamps, blobs, blobs, headers),
                   min_size=1, max_size=20)


def test_known_answers() -> None:
    encoder = BatchEncoder()
    assert encoder.append(0, 1000, None, b"test") == 11
    assert encoder.seal(partition_leader_epoch=0) == GOLDEN_ONE
    encoder = BatchEncoder()
    encoder.append(0, 1000, b"k", b"v", [("h", b"\1\2"), ("n", None)])
    encoder.append(1, 1005, b"k2", None)
    assert encoder.seal() == GOLDEN_TWO
    assert encoder.seal(payload=encoder.records()) == GOLDEN_TWO
    assert encoder.records_size == len(GOLDEN_TWO) - BATCH_OVERHEAD


def _build(found: list[Any], base_offset: int, **fields: Any) -> tuple[bytes, Batch]:
    encoder, expected, offset = BatchEncoder(base_offset), [], base_offset - 1
    for gap, timestamp, key, value, pairs in found:
        offset += gap
        size = encoder.size_of(offset, timestamp, key, value, pairs)
        assert encoder.append(offset, timestamp, key, value, pairs) == size
        expected.append(Record(offset, timestamp, key, value,
                               [(name.encode(), content) for name, content in pairs]))
    batch = Batch(base_offset, offset - base_offset, expected,
                  base_timestamp=expected[0].timestamp,
                  max_timestamp=max(record.timestamp for record in expected), **fields)
    return encoder.seal(**{**fields, "max_timestamp": None}), batch


@given(records, st.integers(0, 2**62), st.integers(0, 2**31 - 1))
@settings(max_examples=examples(300))
def test_random_records_are_the_oracles_bytes(found: list[Any], base_offset: int,
                                              sequence: int) -> None:
    fields = {"producer_id": 7, "producer_epoch": 3, "base_sequence": sequence,
              "partition_leader_epoch": 12}
    built, batch = _build(found, base_offset, **fields)
    assert built == v2.encode(batch)
    assert v2.decode(built) == batch


def _parser(package: str) -> Any:
    """Another client's class for batches; not seglog's, so not every machine has it."""
    pytest.importorskip(package)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"{package}.record.default_records").DefaultRecordBatch


@pytest.mark.parametrize("package", ["aiokafka", "kafka"])
@given(found=records)
@settings(max_examples=examples(100))
def test_other_clients_read_the_same_records(package: str, found: list[Any]) -> None:
    parser = _parser(package)
    # Their parsers hold time deltas that wrap, as Java's do, for a number outside of 64 bits.
    found = [(1, timestamp % 2**40, key, value, pairs) for _, timestamp, key, value, pairs in found]
    built, batch = _build(found, 5)
    expected = [(record.offset, record.timestamp, record.key, record.value,
                 [(key.decode(), value) for key, value in record.headers])
                for record in batch.records]
    parsed = parser(bytearray(built) if package == "aiokafka" else built)
    assert parsed.validate_crc()
    assert [(record.offset, record.timestamp, record.key, record.value, list(record.headers))
            for record in parsed] == expected


@pytest.mark.parametrize("size", [0, 1, 50, 51, 52, 53, 63, 64, 8180, 8190, 8191, 8192, 8193,
                                  2**20 - 10, 2**20, 2**21])
def test_sizes_around_the_widths_of_varints(size: int) -> None:
    encoder = BatchEncoder()
    encoder.append(0, 0, b"k" * size, b"v" * size)
    assert v2.decode(encoder.seal()).records == [Record(0, 0, b"k" * size, b"v" * size)]


def test_deltas_wrap_as_in_java() -> None:
    encoder = BatchEncoder()
    for offset, timestamp in enumerate([2**63 - 1, -1, 0]):
        encoder.append(offset, timestamp, None, None)
    assert [record.timestamp for record in v2.decode(encoder.seal()).records] == [
        2**63 - 1, -1, 0]


def test_a_refused_record_leaves_the_batch_as_it_was() -> None:
    encoder = BatchEncoder(10)
    encoder.append(10, 5, None, b"a")
    before = encoder.seal()
    for offset, timestamp, message in ((10, 5, "Illegal offset 10 following previous offset 10"),
                                       (11, -2, "Invalid negative timestamp -2"),
                                       (10 + 2**31, 5, "Maximum offset delta exceeded")):
        with pytest.raises(IllegalArgumentError, match=message):
            encoder.append(offset, timestamp, None, b"b")
    with pytest.raises(TypeError):
        encoder.append(11, 5, 7, b"b")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        encoder.append(11, 5, None, b"b", [("h", "text")])  # type: ignore[list-item]
    with pytest.raises(IllegalArgumentError, match="null header key"):
        encoder.append(11, 5, None, b"b", [(None, b"")])  # type: ignore[list-item]
    assert encoder.seal() == before
    assert BatchEncoder(2**62).append(2**62 + 2**31 - 1, 0, None, None) > 0


def test_a_record_that_comes_while_headers_are_read_counts_for_itself() -> None:
    """As one of another thread would."""
    batch = BatchEncoder()

    def headers() -> Any:
        assert batch.append(0, 5, None, b"of another", max_size=1 << 20) > 0
        yield "h", b"1"

    assert batch.append(1, 5, None, b"v", headers(), max_size=BATCH_OVERHEAD + 1) == 0
    other = BatchEncoder()
    other.append(0, 5, None, b"of another")
    wanted, batch = other.append(1, 5, None, b"v", [("h", b"1")]), BatchEncoder()
    assert batch.append(1, 5, None, b"v", headers()) == wanted


def test_a_batch_ends_below_two_gibibytes() -> None:
    encoder = BatchEncoder()
    encoder.append(0, 0, None, b"")

    with mmap.mmap(-1, 2**31, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as zeros:  # never touched
        with pytest.raises(IllegalArgumentError, match="above the largest of 2147483647"):
            encoder.append(1, 0, None, zeros)
        view = memoryview(zeros)[:2**31 - 70]
        with pytest.raises(IllegalArgumentError, match="above the largest of 2147483647"):
            encoder.append(1, 0, None, view)
        with pytest.raises(IllegalArgumentError, match="above the largest of 2147483647"):
            encoder.seal(payload=memoryview(zeros)[:2**31 - 61])
        view.release()
    assert encoder.record_count == 1


def test_the_last_offset_is_any() -> None:
    """As Kafka's builder: compaction writes a batch again that ends before it begins."""
    encoder = BatchEncoder(10)
    encoder.append(10, 0, None, None)
    for last in (15, 9, 2):
        assert v2.decode(encoder.seal(last_offset=last)).last_offset == last
    assert v2.decode(encoder.seal(last_offset=10 + 2**31)).last_offset == 10 - 2**31


def test_an_empty_batch_is_not_written() -> None:
    encoder = BatchEncoder(3)
    assert (encoder.record_count, encoder.records(), encoder.last_offset) == (0, b"", None)
    with pytest.raises(ValueError, match="without records"):
        encoder.seal()
    with pytest.raises(ValueError, match="negative"):
        BatchEncoder(-1)


def test_the_oracle_and_the_encoder_write_varints_alike() -> None:
    for value in (0, 1, 63, 64, 8191, 8192, 2**20, 2**27, 2**31 - 1):
        encoder = BatchEncoder()
        encoder.append(value, 0, None, None)
        assert varint(value) in encoder.records()
