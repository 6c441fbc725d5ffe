"""The headers of batches: which belong to a range of offsets, and what their attributes say."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seglog._native.window import WindowSource
from seglog.errors import CorruptRecordError
from seglog.storage import batches, codecs
from seglog.storage.batches import BatchHeader, header_columns, read_batches
from seglog.storage.partition_log import PartitionLog
from tests.oracle import legacy
from tests.oracle.batch import Batch, Record, encode
from tests.support.facts import refusal

DELETE_HORIZON, CONTROL, TRANSACTIONAL, APPEND_TIME = 64, 32, 16, 8


def header(magic: int, attributes: int) -> BatchHeader:
    return BatchHeader(5, 9, 1000, 2000, 7, 0, 100, 3, 0, 5, 0, attributes, 0, magic, "f")


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_only_batches_of_magic_2_have_these_attributes(magic: int) -> None:
    every = header(magic, DELETE_HORIZON | CONTROL | TRANSACTIONAL | APPEND_TIME)
    is_new = magic == 2
    assert (every.is_transactional, every.is_control) == (is_new, is_new)
    assert every.delete_horizon_ms == (1000 if is_new else None)  # the base timestamp
    assert every.timestamp_type == (-1 if magic == 0 else 1)
    assert every.next_offset == 10
    plain = header(magic, codecs.LZ4)
    assert (plain.is_transactional, plain.is_control, plain.delete_horizon_ms) == (
        False, False, None)
    assert plain.timestamp_type == (-1 if magic == 0 else 0) and plain.compression_type == "lz4"
    assert [header(magic, codec).compression_type for codec in (0, 4, 5, 7)] == [
        "none", "zstd", "5", "7"]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("end", "expected"), [
    (2, [0, 1]), (3, [0, 1, 2]), (4, [0, 1, 2, 7]), (8, [0, 1, 2, 7]), (9, [0, 1, 2, 7, 8])])
def test_a_wrapper_may_begin_after_the_batch_before_it(
        tmp_path: Path, magic: int, end: int, expected: list[int]) -> None:
    """Its header holds only its last offset."""
    def one(offset: int) -> legacy.Message:
        return legacy.Message(offset, magic, b"k", b"v", 1000 if magic else -1)

    entries = [one(0), one(1), one(2), legacy.wrap([one(n) for n in range(3, 8)], codecs.GZIP),
               one(8)]
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(map(legacy.encode, entries)))
    with PartitionLog.open(tmp_path) as log:
        for check_crcs in (False, True):
            assert [batch.last_offset for batch in log.batches(
                end_offset=end, check_crcs=check_crcs)] == expected


@pytest.mark.parametrize(("start", "end", "expected"), [
    (0, 1, [2]), (1, 2, [2]), (2, 3, [2]), (2, 4, [2, 5]), (3, 4, [5]), (4, 5, [5]), (6, 9, [])])
def test_a_wrapper_may_begin_where_a_read_does(
        tmp_path: Path, start: int, end: int, expected: list[int]) -> None:
    """It may also begin before."""
    entries = [legacy.wrap([legacy.Message(first + n, 1, b"k", b"v", 1000) for n in range(3)],
                           codecs.GZIP) for first in (0, 3)]
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(map(legacy.encode, entries)))
    with PartitionLog.open(tmp_path) as log:
        assert [batch.last_offset for batch in log.batches(start, end)] == expected


@pytest.mark.parametrize("check_crcs", [False, True])
def test_a_range_may_hold_more_batches_than_its_offsets(tmp_path: Path, check_crcs: bool) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(
        encode(Batch(n, 0, [Record(n, 5)], base_timestamp=5, max_timestamp=5)) for n in range(6)))
    with PartitionLog.open(tmp_path) as log:
        planned, = log.ranges(1 << 20)
        for start, end in ((0, 0), (0, 2), (2, 4), (5, 6), (3, None)):
            found = [offset for columns in header_columns(
                replace(planned, start_offset=start, end_offset=end), log.segments.opened,
                check_crcs) for offset in columns.batches["base_offset"].tolist()]
            assert found == list(range(6))[start:end]
        for upper in (1, 2, 5, 6, 9):
            fetched = read_batches(log.segments[0], 0, 1 << 20, upper)
            assert fetched is not None and fetched.next_offset == min(upper, 6)


@pytest.mark.parametrize("check_crcs", [False, True])
def test_offsets_do_not_go_back_from_one_chunk_to_the_next(
        tmp_path: Path, check_crcs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CRC does not cover the base offset."""
    monkeypatch.setattr(batches, "_CHUNK", 2)
    stored = [encode(Batch(n, 0, [Record(n, 5)], base_timestamp=5, max_timestamp=5))
              for n in (0, 1, 1, 3)]
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(stored))
    with PartitionLog.open(tmp_path) as log:
        found = log.batches(check_crcs=check_crcs)
        assert [next(found).base_offset for _ in range(2)] == [0, 1]
        said = refusal(lambda: next(found))
    assert (said["code"], said["position"], said["expected"], said["found"]) == (
        "batch_offset_order", 2 * len(stored[0]), 2, 1)


def test_a_fetch_leaves_crcs_to_the_consumer(tmp_path: Path) -> None:
    made = [bytearray(encode(Batch(n, 0, [Record(n, 1000, b"k", b"v")], base_timestamp=1000,
                                   max_timestamp=1000))) for n in range(4)]
    made[1][-1] ^= 1
    stored = b"".join(made)
    (tmp_path / f"{0:020d}.log").write_bytes(stored)
    (tmp_path / f"{4:020d}.log").touch()
    with PartitionLog.open(tmp_path) as log:
        for start in (0, 1):
            found = log.fetch(start, 1000)
            assert found.records == stored[start * len(made[0]):] and found.next_offset == 4
        with pytest.raises(CorruptRecordError):
            list(log.batches())
        assert len(list(log.batches(check_crcs=False))) == 4


class Blocks:
    """An open file whose bytes come in blocks, as an object's do."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def source(self) -> WindowSource:
        return WindowSource(lambda position, least: (position, self.data[position:position + 90]))


@pytest.mark.parametrize("check_crcs", [False, True])
def test_headers_of_blocks_are_those_of_the_file(tmp_path: Path, check_crcs: bool) -> None:
    data = b"".join(encode(Batch(n, 0, [Record(n, 1000, b"k", b"v" * 60)], base_timestamp=1000,
                                 max_timestamp=1000)) for n in range(9))
    (tmp_path / f"{0:020d}.log").write_bytes(data)
    blocks: Any = Blocks(data)
    with PartitionLog.open(tmp_path) as log:
        planned, = log.ranges(1 << 20, 2, 7)
        found = [[row for columns in header_columns(planned, opened, check_crcs)
                  for row in columns.batches.tolist()]
                 for opened in (log.segments.opened, lambda _: nullcontext(blocks))]
    assert found[0] == found[1] and [row[0] for row in found[0]] == list(range(2, 7))
