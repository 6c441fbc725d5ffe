"""Where a segment ends by its headers, as Kafka reads them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from seglog.recovery.loader_failures import LoaderFailure
from seglog.recovery.next_offset import (_BATCHES_PER_CHUNK, find_offset, next_offset_from,
                                         opened_log, whole_headers)
from tests.log.test_fast_path import batch
from tests.oracle.legacy import Message, encode
from tests.support.held import open_files

#: Offset, length, leader epoch, magic, and bytes in which the rest of the header does not fit.
SHORT = struct.pack(">qiib", 2, 14, 0, 2) + bytes(9)


def test_a_last_batch_without_its_whole_header_fails_the_search(tmp_path: Path) -> None:
    """Kafka reads its header to tell whether it holds the offset."""
    first, path = batch(2), str(tmp_path / f"{0:020d}.log")
    Path(path).write_bytes(first + SHORT)
    end = len(first) + len(SHORT)
    with opened_log(path) as fd:
        assert find_offset(fd, path, 0, end, 1) == (0, 0)
        assert find_offset(fd, path, 0, end, 2) == (2, len(first))
        with pytest.raises(LoaderFailure) as caught:
            find_offset(fd, path, 0, end, 3)
    assert caught.value.kafka_error == "KafkaException"
    assert caught.value.message == (
        f"Failed to load record batch at position {len(first)} from FileRecords(size={end}, "
        f"file={path}, start=0, end={2**31 - 1})")


def test_the_end_of_a_log_is_in_the_whole_header_of_its_last_batch(tmp_path: Path) -> None:
    """LogSegment.readNextOffset, which reads from the batch on that it found."""
    first, path = batch(2), str(tmp_path / f"{0:020d}.log")
    Path(path).write_bytes(first + SHORT)
    end = len(first) + len(SHORT)
    with opened_log(path) as fd, pytest.raises(
            LoaderFailure, match=f"size={end}, file={path}, start=0, end={end}"):
        next_offset_from(fd, path, 0, end, 0, 1)


@pytest.mark.parametrize(("left", "is_refused"), [
    (1, False), (12, False), (17, False), (18, True)])
def test_zeros_that_are_too_few_for_a_length_end_a_search(tmp_path: Path, left: int,
                                                          is_refused: bool) -> None:
    first, path = batch(2), str(tmp_path / f"{0:020d}.log")
    Path(path).write_bytes(first + bytes(left))
    with opened_log(path) as fd:
        if is_refused:
            with pytest.raises(LoaderFailure, match="Found record size 0"):
                find_offset(fd, path, 0, len(first) + left, 3)
        else:
            assert find_offset(fd, path, 0, len(first) + left, 3) is None


def test_a_search_continues_in_the_next_chunk(tmp_path: Path) -> None:
    """Offsets count on from batch to batch, each of two records."""
    one, count, path = batch(2), _BATCHES_PER_CHUNK + 3, str(tmp_path / f"{0:020d}.log")
    whole = np.tile(np.frombuffer(one, np.uint8), (count, 1))
    whole[:, :8] = (2 * np.arange(count)).astype(">i8").view(np.uint8).reshape(count, 8)
    whole.tofile(path)
    end, edge = whole.size, 2 * _BATCHES_PER_CHUNK
    with opened_log(path) as fd:
        for offset in (edge - 2, edge - 1, edge, edge + 1, 2 * count - 1):
            assert find_offset(fd, path, 0, end, offset) == (
                offset // 2 * 2, offset // 2 * len(one)), offset
        assert find_offset(fd, path, 0, end, 2 * count) is None
        for target in (0, edge - 1, 2 * count - 1):
            assert next_offset_from(fd, path, 0, end, 0, target) == 2 * count
        assert next_offset_from(fd, path, 0, end, 7, 2 * count) == 7


def test_a_search_reads_no_crc(tmp_path: Path) -> None:
    """As Kafka's: after a clean shutdown a log with damaged records ends where it ended before."""
    one, path = batch(2), str(tmp_path / f"{0:020d}.log")
    first, broken, last = (offset.to_bytes(8, "big") + one[8:] for offset in (0, 2, 4))
    Path(path).write_bytes(first + broken[:-1] + bytes([broken[-1] ^ 1]) + last)
    end = 3 * len(one)
    with opened_log(path) as fd:
        assert [find_offset(fd, path, 0, end, offset) for offset in (3, 4)] == [
            (2, len(one)), (4, 2 * len(one))]
        assert next_offset_from(fd, path, 0, end, 0, 1) == 6


@pytest.mark.parametrize(("is_slice", "skipped"), [(False, 0), (True, 0), (True, 1)])
def test_a_header_that_ends_after_the_file_is_not_whole(
        tmp_path: Path, is_slice: bool, skipped: int) -> None:
    """FileLogInputStream.FileChannelRecordBatch.loadBatchHeader."""
    first, path = batch(2), str(tmp_path / f"{0:020d}.log")
    start, size = skipped * len(first), len(first) + len(SHORT)
    end = start + size
    Path(path).write_bytes(first * (skipped + 1) + SHORT)
    with opened_log(path) as fd:
        found = whole_headers(fd, path, start, end, is_slice=is_slice)
        assert next(found)["base_offset"].tolist() == [0]
        with pytest.raises(LoaderFailure) as caught:
            next(found)
    assert caught.value.message == (
        f"Failed to load record batch at position {start + len(first)} from FileRecords("
        f"size={size}, file={path}, start={start}, end={end if is_slice else 2**31 - 1})")


def test_a_batch_of_fewer_bytes_than_its_header_is_one_batch(tmp_path: Path) -> None:
    """Kafka reads the rest of the header from the bytes that follow."""
    one, path = batch(2), str(tmp_path / f"{0:020d}.log")
    Path(path).write_bytes(one + SHORT + one)
    with opened_log(path) as fd:
        found = list(whole_headers(fd, path, 0, 2 * len(one) + len(SHORT)))
    assert [rows["base_offset"].tolist() for rows in found] == [[0], [2], [0]]


def test_a_log_that_was_read_is_closed(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.touch()
    with opened_log(str(path)):
        assert open_files(tmp_path) == [str(path)]
    assert open_files(tmp_path) == []


@pytest.mark.parametrize(("codec", "payload", "kafka_error", "message"), [
    (1, bytes(9), "KafkaException", "java.util.zip.ZipException: Not in GZIP format"),
    (2, b"\x82SNAPPY\0" + bytes(8) + b"\xff" * 4, "SnappyError",
     "[INVALID_CHUNK_SIZE] chunkSize is too big or negative : -1")])
def test_an_exception_of_a_codec_is_wrapped_if_it_is_of_io(
        tmp_path: Path, codec: int, payload: bytes, kafka_error: str, message: str) -> None:
    """DeepRecordsIterator catches IOException alone."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(encode(Message(3, 1, value=payload, timestamp=5, codec=codec)))
    with opened_log(str(path)) as fd, pytest.raises(LoaderFailure) as caught:
        find_offset(fd, str(path), 0, path.stat().st_size, 1)
    assert (caught.value.kafka_error, caught.value.message) == (kafka_error, message)
