"""One object of a log: which requests its readers make, what is kept, and what ends with them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from seglog._native.batch import scan_file
from seglog._native.status import Status, status_error
from seglog.errors import KafkaStorageError
from seglog.objects.store import ObjectVersion
from seglog.objects.store_options import StorageOptions
from seglog.storage import remote
from seglog.storage.remote import RemoteFiles, RemoteLog
from tests.oracle.files import AbortedTransaction, encode_txn_index
from tests.support.facts import refusal
from tests.unit.test_partition_files import batch

DATA = b"".join(map(batch, range(40)))


class Requests:
    """Answers from memory."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def read(self, key: str, start: int, end: int, version: ObjectVersion, path: str) -> bytes:
        assert (key, path) == ("key", "s3://b/key") and version.size == len(DATA)
        self.asked.append((start, end))
        return DATA[start:end]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    for name, size in (("_LOOK_BYTES", 100), ("_LOOK_BEFORE", 20)):
        monkeypatch.setattr(remote, name, size)
    return Requests()


def log_of(requests: Any) -> RemoteLog:
    return RemoteLog("s3://b/key", "key", ObjectVersion(len(DATA), None, None), requests, 4)


def test_small_reads_share_two_blocks(requests: Requests) -> None:
    log = log_of(requests)

    def read(size: int, position: int, *asked: tuple[int, int]) -> None:
        requests.asked.clear()
        assert log.read(size, position) == DATA[position:position + size]
        assert requests.asked == list(asked)

    read(10, 50, (30, 130))
    for size, position in ((1, 30), (100, 30), (1, 129), (80, 50)):
        read(size, position)
    read(101, 30, (30, 131))
    read(1, 130, (110, 210))
    read(1, 30)
    read(1, 500, (480, 580))  # the block that was not used for longest goes
    read(1, 31)
    read(80, 200, (180, 280))  # the largest that such a block holds in any case
    read(81, 300, (300, 381))
    read(1, 10, (0, 100))
    read(9, len(DATA) - 9, (len(DATA) - 29, len(DATA)))
    log.close()
    read(1, 10, (0, 100))


@pytest.mark.parametrize(("size", "position", "found"), [
    (1, len(DATA), 0), (2, len(DATA) - 1, 1), (len(DATA) + 1, 0, len(DATA)), (5, len(DATA) + 7, 0)])
def test_reads_beyond_the_object(requests: Requests, size: int, position: int, found: int) -> None:
    assert refusal(lambda: log_of(requests).read(size, position)) == {
        "class": "KafkaStorageError", "code": "file_shrank", "file": "s3://b/key", "errno": 5,
        "position": position, "expected": size, "found": found, "text":
        f"[Errno 5] file has {found} bytes where {size} were announced"
        f"{f' at byte {position}' if position else ''}: 's3://b/key'"}
    assert not requests.asked
    assert [log_of(requests).read(3, position) for position in (0, len(DATA) - 3)] == [
        DATA[:3], DATA[-3:]]


def test_only_the_block_with_the_first_byte_is_checked(requests: Requests) -> None:
    log, seen = log_of(requests), list[bytes]()
    log.check_start = lambda block: seen.append(bytes(block))
    log.read(1, 90)
    assert not seen
    log.read(1, 5)
    log.read(1, 6)
    assert seen == [DATA[:100]]


def test_a_span_that_is_over_reads_nothing(
        requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    log, dropped, close = log_of(requests), list[None](), remote.BlockReader.close
    monkeypatch.setattr(remote.BlockReader, "close", lambda reader: (
        close(reader), dropped.append(None)))
    for _ in range(2):
        dropped.clear()
        with log.span(0, len(DATA)) as source:
            assert scan_file(source, 0, len(DATA)).batch_count == 40
            with log.span(0, len(DATA)):
                assert log._spans == 2
        assert log._spans == 0 and dropped, "what was requested ahead is dropped"
        with pytest.raises(ValueError, match="closed"):
            scan_file(source, 0, len(DATA))
    assert scan_file(log.source, 0, len(DATA)).batch_count == 40


def test_a_listing_of_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object is no directory, even with the name of one; the newest without a tag counts."""
    listed = {"a-0": ObjectVersion(1, None, 5), "c": ObjectVersion(1, None, 7),
              "d": ObjectVersion(1, "tag", 9)}, ["b-0"]
    monkeypatch.setattr(RemoteFiles, "requests", SimpleNamespace(list=lambda key, path: listed))
    files = RemoteFiles("s3://bucket/", StorageOptions())
    assert files.entries("s3://bucket/data") == [
        ("a-0", False), ("c", False), ("d", False), ("b-0", True)]
    assert files.stamp("s3://bucket/data", None).modified_ns == 7_000_000, "a tag changes too"


def test_a_transaction_index_is_there_and_not_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """No entries would make aborted records committed."""
    content = encode_txn_index([AbortedTransaction(7, 1, 2, 3)])
    found = {"there": (content, len(content)), "large": (b"x", remote._INDEX_BYTES_MAX + 1)}
    monkeypatch.setattr(RemoteFiles, "requests", SimpleNamespace(
        beginning=lambda key, path, bytes_max: found.get(key)))
    files = RemoteFiles("s3://bucket/", StorageOptions())
    assert files.aborted("s3://bucket/there")["producer_id"].tolist() == [7]
    for key, code in (("gone", "file_missing"), ("large", "file_too_large")):
        assert refusal(lambda key=key: files.aborted(f"s3://bucket/{key}"))["code"] == code


def test_the_state_of_an_object_is_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing object has none; without an answer it is not known whether one is there."""
    answers = {"there": ObjectVersion(1, "tag", 5), "gone": status_error(Status.FILE_MISSING),
               "silent": status_error(Status.IO)}

    def version(key: str, path: str) -> ObjectVersion:
        found = answers[key]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(RemoteFiles, "requests", SimpleNamespace(version=version))
    files = RemoteFiles("s3://bucket/", StorageOptions())
    assert files.state("s3://bucket/there") == answers["there"]
    assert files.state("s3://bucket/gone") is None
    with pytest.raises(KafkaStorageError):
        files.state("s3://bucket/silent")
