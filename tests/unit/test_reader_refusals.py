"""What readers refuse: each error with all that it says."""

from __future__ import annotations

import errno
import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seglog.model import TopicPartition
from seglog.storage import codecs
from seglog.storage.discover import find_directories
from seglog.storage.markers import parse_marker, read_control_type
from seglog.storage.partition_log import PartitionLog
from seglog.storage.place import require_data_directory, require_room_for_logs
from seglog.storage.ranges import check_torn
from seglog.storage.selection import select_partitions
from seglog.storage.stream import decode_range, read_batch_headers
from tests.support.facts import refusal
from tests.unit.test_markers import ABORT
from tests.unit.test_partition_files import batch

LZ4, SNAPPY = codecs._LZ4_HEADER, codecs._SNAPPY_HEADER
GZIPPED, ZSTD = (codecs.compress(codec, b"hello") for codec in (codecs.GZIP, codecs.ZSTD))
SNAPPED = codecs.compress(codecs.SNAPPY, b"hello")
CUT = "Stream ended prematurely"


@pytest.mark.parametrize(("codec", "payload", "why"), [
    ("lz4", b"", CUT), ("lz4", LZ4[:6], CUT), ("lz4", LZ4, CUT), ("lz4", LZ4 + b"\1\0\0", CUT),
    ("lz4", b"x" * 8, "Stream unsupported (invalid magic bytes)"),
    ("lz4", LZ4[:4] + b"\x40\x40\0", "FLG byte 0x40: version 01, independent blocks and zero "
     "reserved bits are required"),
    ("lz4", LZ4[:4] + b"\x60\x30\0", "BD byte 0x30: a block size of 4 to 7 and zero reserved bits "
     "are required"),
    ("lz4", LZ4[:4] + b"\x68\x40\0", CUT),
    ("lz4", LZ4[:4] + b"\x60\x40\0", "Stream frame descriptor corrupted"),
    ("lz4", LZ4 + struct.pack("<I", 65537), "Block size 65537 exceeded max: 65536"),
    ("lz4", LZ4 + struct.pack("<I", 5) + b"abcd", CUT),
    ("lz4", LZ4 + struct.pack("<I", 1 | 1 << 31) + b"a\0\0\0", CUT),
    ("snappy", b"", "empty"),
    ("snappy", b"\xff\xff\xff\xff\x0f" + bytes(20), "a block of 25 bytes announces 4294967295"),
    ("snappy", SNAPPY + b"\0\0\0\5abc", "chunk of 5 bytes at byte 20, 3 are left"),
    ("snappy", SNAPPY + b"\xff\xff\xff\xffabc", "chunk of -1 bytes at byte 20, 3 are left"),
    ("snappy", SNAPPED + SNAPPY[:8], f"header cut at byte {len(SNAPPED)}"),
    ("snappy", SNAPPED + SNAPPY[:8] + struct.pack(">ii", 0, 1),
     f"version 0 at byte {len(SNAPPED) + 8}"),
    ("gzip", b"", "unexpected end of the stream"),
    ("gzip", GZIPPED[:-1], "unexpected end of the stream"),
    ("gzip", b"xx" + GZIPPED, "Not in GZIP format"),
    ("gzip", GZIPPED[:2] + b"\7" + GZIPPED[3:], "Unsupported compression method"),
    ("gzip", GZIPPED[:-8] + bytes(8), "Corrupt GZIP trailer"),
    ("zstd", ZSTD[:-1], "incomplete frame"), ("zstd", b"abcd", "Unknown frame descriptor")])
def test_payloads(codec: str, payload: bytes, why: str) -> None:
    assert refusal(lambda: codecs.decompress(codecs.codec_id(codec), 2, payload)) == {
        "class": "DecompressionError", "code": "codec_data", "found": why,
        "text": f"{codec} payload of {len(payload)} bytes: {why}"}


def left(length: int, bytes_left: int) -> str:
    return (f"Invalid record size: expected {length} bytes in record payload, but instead the "
            f"buffer has only {bytes_left} remaining bytes.")


def read(length: int) -> str:
    return (f"Invalid record size: expected to read {length} bytes in record payload, but instead "
            "read 16")


def changed(position: int, *values: int) -> bytes:
    return ABORT[:position] + bytes(values) + ABORT[position + len(values):]


@pytest.mark.parametrize(("marker", "code", "why"), [
    (changed(57, 0x80), "batch_record_count",
     "Found invalid record count -2147483647 in magic v2 batch"),
    (changed(22, 5), "batch_codec", "Unknown compression type id: 5"),
    (changed(61, 0x22), "record_length", left(17, 16)),
    (changed(61, 0x1E), "record_size", read(15)), (changed(61, 1), "record_size", read(-1)),
    (changed(61, 0), "record_size", read(0)),
    (changed(61, *[0xFF] * 5), "record_varint_endless", "Varint is too long, the most significant "
     "bit in the 5th byte is set, converted value: ffffffff"),
    (changed(65, 0x7E), "record_field", "Found invalid record structure"),
    (changed(77, 2), "record_headers", "Found invalid number of record headers. 1 is larger than "
     "the remaining size of the buffer"),
    (changed(77, 1), "record_headers", "Found invalid number of record headers -1"),
    *((ABORT[:size], "batch_size", f"control batch of {size} bytes") for size in (0, 60)),
    (ABORT[:61], "record_varint", "Incorrect declared batch size, premature EOF reached"),
    (ABORT[:62], "record_length", left(16, 0)), (ABORT[:70], "record_length", left(16, 8))])
def test_markers(marker: bytes, code: str, why: str) -> None:
    facts = {"class": "InvalidRecordError", "code": code, "text": why, "found": why}
    assert refusal(lambda: parse_marker(marker, file="f", position=7)) == facts | {
        "file": "f", "position": 7, "expected": "an end-transaction marker"}
    assert refusal(lambda: read_control_type(marker)) == facts | {"expected": "a control record"}


SOME = [TopicPartition(*one) for one in (("orders", 0), ("orders", 1), ("orders", 3), ("users", 0),
                                         ("__x", 0))]
MANY = [TopicPartition(f"t{number}", 2 * number) for number in range(10)]


@pytest.mark.parametrize(("found", "topics", "partitions", "text"), [
    (SOME, ["order"], None, "topic order is not here; did you mean 'orders'?"),
    (SOME, ["ORDERS"], None, "topic ORDERS is not here; did you mean 'orders'?"),
    (SOME, ["zzzzzz"], None, "topic zzzzzz is not here; there are orders, users"),
    (SOME, ["orders-1"], None, "topic orders-1 is not here; did you mean partition 1 of 'orders'?"),
    (SOME, ["z*"], None, "no topic matches 'z*'; there are orders, users"),
    (SOME, ["^z"], None, "no topic matches '^z'; there are orders, users"),
    (SOME, ["*x"], None, "no topic matches '*x'; there are orders, users"),
    (SOME, ["orders"], [0, 2], "partition 2 is not here; orders has 0 to 1, 3"),
    (SOME, ["orders", "users"], [7], "partition 7 is not here; these topics have 0 to 1, 3"),
    (SOME, [], [7], "partition 7 is not here; this directory has none"),
    ([], ["a"], None, "topic a is not here; there are no topics"),
    (SOME[-1:], ["abcdef"], None, "topic abcdef is not here; there is __x"),
    (MANY, ["abcdef"], None, "topic abcdef is not here; there are t0, t1, t2, t3, t4, t5, t6, t7 "
     "and 2 more"),
    (MANY[:8], ["abcdef"], None, "topic abcdef is not here; there are t0, t1, t2, t3, t4, t5, t6, "
     "t7"),
    (MANY, None, [1], "partition 1 is not here; these topics have 0, 2, 4, 6, 8, 10, 12, 14 and 2 "
     "more ranges"),
    (MANY[:8], None, [1], "partition 1 is not here; these topics have 0, 2, 4, 6, 8, 10, 12, 14")])
def test_selections(found: list[TopicPartition], topics: list[str] | None,
                    partitions: list[int] | None, text: str) -> None:
    assert refusal(lambda: select_partitions(found, topics, partitions, "W")) == {
        "class": "UnknownTopicOrPartitionError", "text": f"W: {text}"}


# ---- places

@pytest.fixture
def places(tmp_path: Path) -> Path:
    for name in ("data/t-0", "data/u-3", "kafka/bin", "kafka/libs", "empty", "other", "young-0",
                 "marked", "odd"):
        (tmp_path / name).mkdir(parents=True)
    for name in (f"data/t-0/{0:020d}.log", f"data/u-3/{0:020d}.log", f"odd/{0:020d}.log"):
        (tmp_path / name).write_bytes(batch(0))
    for name in ("kafka/bin/kafka-server-start.sh", "other/x", "file", "young-0/partition.metadata",
                 "marked/meta.properties"):
        (tmp_path / name).touch()
    return tmp_path


PARTITION = "this is a partition directory, not a data directory"
KAFKA = ("this is a Kafka installation, not a data directory; log.dirs in its "
         "config/server.properties names the data directories")
OTHER = "it has no meta.properties, no checkpoint file and no partition with a segment, but 'x'"
FILE, MEANT = "this is a file, not a data directory", "; did you mean ROOT/data?"
DATA = ("this is a data directory, not one partition's; open it with seglog.open_data_dir, or open "
        "one of its 2 partitions, such as ROOT/data/")


@pytest.mark.parametrize(("name", "number", "as_data", "for_logs", "as_log"), [
    ("data", errno.EINVAL, None, None, f"{DATA}t-0"),
    ("marked", errno.EINVAL, None, None,
     "this is a data directory, not one partition's; open it with seglog.open_data_dir"),
    ("data/t-0", errno.EINVAL, PARTITION + MEANT, PARTITION + MEANT, None),
    ("young-0", errno.EINVAL, PARTITION, PARTITION, None),
    ("kafka", errno.EINVAL, KAFKA, KAFKA, KAFKA),
    ("empty", errno.EINVAL, "this is no data directory: there are no logs in it", None, None),
    ("other", errno.EINVAL, f"this is no data directory: {OTHER}",
     "not a place for logs: it holds 'x', and a data directory holds nothing but logs; use a new "
     "or empty directory, such as ROOT/other/data", f"this is no partition directory: {OTHER}"),
    ("file", errno.ENOTDIR, FILE, FILE, "a system call failed: Not a directory"),
    ("dota", errno.ENOENT, "no such directory" + MEANT, None,
     "a system call failed: No such file or directory"),
    ("none", errno.ENOENT, "no such directory", None,
     "a system call failed: No such file or directory"),
    *((f"data/t-0/x{more}", errno.ENOENT, f"no such directory{meant}", "not a place for logs: it "
       "is inside of the partition directory ROOT/data/t-0",
       "a system call failed: No such file or directory") for more, meant in (
           ("", MEANT), ("/y", "")))])
def test_places(places: Path, name: str, number: int, as_data: str | None, for_logs: str | None,
                as_log: str | None) -> None:
    path = str(places / name)

    def opened() -> None:
        PartitionLog.open(path).close()

    for call, why, code in ((require_data_directory, as_data, "not_a_data_directory"),
                            (require_room_for_logs, for_logs, "not_a_data_directory"),
                            (find_directories, None if name == "data/t-0" else as_data,
                             "not_a_data_directory")):
        if why is None:
            call(path)
            continue
        its = number if not why.startswith("not a place") else errno.EINVAL
        assert refusal(lambda call=call: call(path)) == {  # type: ignore[misc]
            "class": "KafkaStorageError", "code": code, "errno": its, "file": path,
            "text": f"[Errno {its}] {why.replace('ROOT', str(places))}: {path!r}"}
    if as_log is None:
        opened()
    else:
        found = refusal(opened)
        assert (found["class"], found["code"], found["errno"], found["file"], found["text"]) == (
            "KafkaStorageError", "io", number, path,
            f"[Errno {number}] {as_log.replace('ROOT', str(places))}: {path!r}")


def test_the_first_shown_partition_is_no_internal_one(places: Path) -> None:
    (places / "data/__a-0").mkdir()
    (places / f"data/__a-0/{0:020d}.log").touch()
    found = refusal(lambda: PartitionLog.open(places / "data"))
    assert "one of its 3 partitions, such as " + str(places / "data/t-0") in str(found["text"])


def test_a_directory_of_segments_without_a_name(places: Path) -> None:
    path = str(places / "odd")
    assert refusal(lambda: find_directories(path)) == {
        "class": "KafkaStorageError", "code": "io", "errno": errno.EINVAL, "file": path,
        "text": "[Errno 22] this directory holds segments, but 'odd' says neither topic nor "
                "partition; rename it to TOPIC-PARTITION, such as odd-0, or open it with "
                f"seglog.PartitionLog.open: {path!r}"}


# ---- a log

@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "t-0").mkdir()
    for base in (5, 9):
        (tmp_path / f"t-0/{base:020d}.log").write_bytes(batch(base))
    return tmp_path / "t-0"


def test_offsets_and_arguments(path: Path) -> None:
    log: Any = PartitionLog.open(path)
    one: Any = 1

    def refused(call: Callable[[], object], kind: str, text: str) -> None:
        assert refusal(call) == {"class": kind, "text": text}

    for offset, limit in ((4, "starting from offset: 5"), (11, "upto 10")):
        for call in (lambda at: log.fetch(at, 1), log.to_arrow,
                     lambda at: log.to_arrow(at, on_damage="skip"), lambda at: log.follow(at),
                     lambda at: log.ranges(1, at)):
            refused(lambda call=call, offset=offset: call(offset),  # type: ignore[misc]
                    "OffsetOutOfRangeError",
                    f"Received request for offset {offset} for partition t-0, but we only "
                    f"have log segments {limit}. A read may start at 5 (the log start offset) to "
                    "10 (the log end offset).")
    for call, kind, text in (
            (lambda: log.fetch(5, -1), "ValueError", "Invalid max size -1 for log read"),
            (lambda: log.fetch(5, 1, "x"), "ValueError",
             "isolation 'x' is neither read_uncommitted nor read_committed, nor log_end"),
            (lambda: log.to_arrow(on_damage="x"), "ValueError",
             "on_damage 'x' is neither raise nor skip"),
            *((lambda threads=threads: log.to_arrow(threads=threads), "IllegalArgumentError",
               f"threads must be between 0 and 1024, not {threads}") for threads in (-1, 1025)),
            (lambda: log.to_arrow(batch_rows=0), "IllegalArgumentError",
             "batch_rows must be between 1 and 2147483647, not 0"),
            (lambda: log.to_arrow(batch_bytes=0), "IllegalArgumentError",
             "batch_bytes must be between 1 and 9223372036854775807, not 0"),
            (lambda: log.ranges(0), "IllegalArgumentError",
             "target_bytes must be between 1 and 9223372036854775807, not 0"),
            (lambda: log.offset_for_timestamp(-7), "ValueError",
             "timestamp -7 is negative and none of Kafka's specials"),
            (lambda: log.segments.rows(5, 4), "ValueError", "Invalid log segment range: requested "
             "segments from offset 5 which is greater than limit offset 4"),
            (lambda: PartitionLog.open(path, on_gap=one), "TypeError",
             "on_gap must be callable, not 1"),
            (lambda: PartitionLog.open(path, topic_partition=one), "TypeError",
             "topic_partition must be a TopicPartition, not 1"),
            (lambda: PartitionLog.open(path, max_open_segments=0), "IllegalArgumentError",
             "max_open_segments must be between 1 and 2147483647, not 0"),
            (lambda: PartitionLog.open(path, log_start_offset=-1), "IllegalArgumentError",
             "log_start_offset must be between 0 and 9223372036854775807, not -1"),
            (lambda: pickle.dumps(log.to_arrow()), "TypeError",
             "cannot pickle a RecordBatchStream; pickle the PartitionLog, or what its `ranges` "
             "gives, and read in the other process"),
            (lambda: log.follow(timeout=-1), "IllegalArgumentError",
             "timeout must not be negative, as -1 is")):
        refused(call, kind, text)  # type: ignore[arg-type]
    for row in (2, -3):
        with pytest.raises(IndexError, match=f"^segment {row} of 2$"):
            log.segments[row]
    assert [(log.segments[row].base_offset, log.segments[row].next_base_offset)
            for row in (-2, -1, 0, 1)] == [(5, 9), (9, None)] * 2
    log.close()


def test_ranges_that_end_too_early(path: Path) -> None:
    with PartitionLog.open(path) as log:
        whole = log.ranges(100)[0]
    text = (f"{whole.file}: the range of bytes 0 to 69 ends inside the batch at 0; its offset "
            "index is wrong")
    for call in (decode_range, read_batch_headers):
        assert refusal(lambda call=call: list(call(  # type: ignore[misc]
            replace(whole, end=whole.end - 1)))) == {
            "class": "CorruptIndexError", "code": "index_not_a_batch", "file": whole.file,
            "position": 0, "expected": 69, "found": 0, "text": text}
        assert not list(call(replace(whole, end=whole.end - 1, segment_end=whole.end - 1)))
    assert refusal(lambda: check_torn(replace(whole, sound_end=50), 20)) == {
        "class": "CorruptRecordError", "code": "batch_length", "file": whole.file, "position": 20,
        "expected": 50, "found": 20, "text":
        f"{whole.file}: the batch at byte 20 has no end within the segment, but sound batches "
        "follow it, up to byte 50"}
