"""The native dump: its lines at any buffer size, its walk of hostile bytes, and Java's strings."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog._native import dump as native
from seglog.errors import CorruptDataError, DecompressionError, InvalidRecordError, SeglogError
from seglog.storage.codecs import decompress
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record

ALL = native.RECORDS | native.METADATA | native.STRINGS


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[int, int]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd, os.fstat(fd).st_size
    finally:
        os.close(fd)


def dumped(path: Path, what: int = ALL) -> tuple[bytes, SeglogError | None]:
    out = bytearray()
    with opened(path) as (fd, size):
        dump = native.LogDump(fd, size, what=what, decompress=decompress, file=str(path))
        try:
            dump.run(out.extend)
        except SeglogError as error:
            return bytes(out), error
    return bytes(out), None


def one_batch(records: list[Record]) -> bytes:
    first, last = records[0].offset, records[-1].offset
    return v2.encode(Batch(base_offset=first, last_offset_delta=last - first, records=records,
                           base_timestamp=1, max_timestamp=5))


@pytest.mark.parametrize(("raw", "text"), [
    (b"", ""), (b"plain", "plain"), ("żółw 𝄞".encode(), "żółw 𝄞"),
    (b"\x80", "�"), (b"\xc3", "�"), (b"\xc0\xaf", "��"), (b"\xe2\x82", "�"),
    (b"\xe2\x28\xa1", "�(�"), (b"\xed\xa0\x80", "�"), (b"\xf0\x90\x80", "�"),
    (b"\xf5\x80\x80\x80", "����"), (b"\xf4\x90\x80\x80", "����"), (b"a\xffb", "a�b"),
])
def test_java_reads_malformed_utf8(raw: bytes, text: str) -> None:
    assert native.java_utf8(raw).decode() == text


def test_a_value_larger_than_the_buffer_comes_in_pieces(tmp_path: Path) -> None:
    """Pieces end between characters, good ones and bad ones."""
    for seed in range(4):
        rng = random.Random(seed)
        value = b"".join(rng.choice(["żó".encode(), "𝄞".encode(), b"\x80\x80\x80\x80\x80", b"ab",
                                     b"\xf0\x90", b"\xed\xa0\x80"]) for _ in range(250_000))
        path = tmp_path / f"{seed}.log"
        path.write_bytes(one_batch([Record(offset=0, timestamp=1, key=b"k" * seed, value=value)]))
        text, error = dumped(path)
        assert error is None
        assert text.split(b" payload: ", 1)[1] == native.java_utf8(value) + b"\n"


def test_header_keys_larger_than_the_buffer(tmp_path: Path) -> None:
    headers = [(b"\x80" * 400_000, None), (b"second", b"v")]
    path = tmp_path / "0.log"
    path.write_bytes(one_batch([Record(offset=0, timestamp=1, key=None, value=b"v",
                                       headers=headers)]))
    text, error = dumped(path)
    assert error is None
    assert b"headerKeys: [" + "�".encode() * 400_000 + b",second] payload: v\n" in text


def test_gaps_are_kept_beyond_the_room_for_them(tmp_path: Path) -> None:
    records = [Record(offset=2 * n, timestamp=1, key=None, value=b"") for n in range(5000)]
    path = tmp_path / "0.log"
    path.write_bytes(one_batch(records))
    with opened(path) as (fd, size):
        dump = native.LogDump(fd, size, what=native.RECORDS, decompress=decompress)
        dump.run(lambda text: None)
        assert dump.gaps == {2 * n: 2 * n + 2 for n in range(4999)}
        assert dump.position == size


def small_log(golden: Path) -> bytes:
    return (golden / "real/clean/txn-0/00000000000000000000.log").read_bytes()[:3000]


def test_every_truncation_ends_well(golden: Path, tmp_path: Path) -> None:
    data, path = small_log(golden), tmp_path / "0.log"
    whole = b""
    for size in range(0, len(data), 13):
        path.write_bytes(data[:size])
        text, error = dumped(path)
        assert error is None  # a torn tail is no error to Kafka
        assert text.startswith(whole)
        whole = text


def test_hostile_bytes_give_text_and_at_most_one_typed_error(golden: Path, tmp_path: Path) -> None:
    data, path = small_log(golden), tmp_path / "0.log"
    rng = random.Random(5)
    errors = 0
    for _ in range(800):
        damaged = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 127, 128, 255,
                                                               rng.randrange(256)])
        path.write_bytes(damaged)
        text, error = dumped(path)
        if error is not None:
            errors += 1
            assert isinstance(error, CorruptDataError)
            assert (error.file, error.code) != (None, "corrupt")
            assert error.position is not None
            assert 0 <= error.position < len(damaged)
    assert errors > 60


def test_the_caller_prints_what_it_asked_for(tmp_path: Path) -> None:
    records = [Record(offset=n, timestamp=5, key=None if n % 2 else b"k", value=b"v%d" % n)
               for n in range(3)]
    path = tmp_path / "0.log"
    path.write_bytes(one_batch(records))
    seen = []

    def contents(offset: int, key: bytes | None, value: bytes | None, control: int) -> bytes:
        seen.append((offset, key, value, control))
        return b" <%d>" % offset if offset else b"x" * 3_000_000

    out = bytearray()
    with opened(path) as (fd, size):
        dump = native.LogDump(fd, size, what=native.RECORDS | native.METADATA | native.CALLER,
                              decompress=decompress)
        dump.run(out.extend, contents)
    assert seen == [(0, b"k", b"v0", -1), (1, None, b"v1", -1), (2, b"k", b"v2", -1)]
    lines = bytes(out).splitlines()
    assert lines[1].endswith(b"headerKeys: []" + b"x" * 3_000_000)
    assert [line.rsplit(b" ", 1)[1] for line in lines[2:]] == [b"<1>", b"<2>"]


def test_what_the_caller_raises_comes_after_the_text(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(one_batch([Record(offset=0, timestamp=5, key=b"k", value=b"v")]))

    def contents(*_: object) -> bytes:
        raise LookupError("no")

    out = bytearray()
    with opened(path) as (fd, size):
        dump = native.LogDump(fd, size, what=native.RECORDS | native.METADATA | native.CALLER,
                              decompress=decompress)
        with pytest.raises(LookupError):
            dump.run(out.extend, contents)
    assert out.endswith(b"sequence: -1 headerKeys: []")


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_text_that_is_not_taken_is_not_written_again(
        tmp_path: Path, error: type[BaseException]) -> None:
    """Ctrl-C while the reader of a pipe stands still: a second write would wait for it forever."""
    path, writes = tmp_path / "0.log", []
    path.write_bytes(one_batch([Record(offset=n, timestamp=5, key=None, value=b"v" * 1000)
                                for n in range(2000)]))

    def write(text: memoryview) -> None:
        writes.append(len(text))
        raise error

    with opened(path) as (fd, size):
        dump = native.LogDump(fd, size, what=ALL, decompress=decompress)
        with pytest.raises(error):
            dump.run(write)
    assert len(writes) == 1 and writes[0] < size


def test_the_walk_gives_the_facts(golden: Path) -> None:
    path = golden / "real/clean/plain-none-0/00000000000000000000.log"
    with opened(path) as (fd, size):
        walk = native.LogWalk(fd, size, decompress=decompress, file=str(path))
        positions, count = [], 0
        while (batch := walk.next_batch()) is not None:
            assert batch["is_valid"]
            positions.append(batch["position"])
            walk.enter()
            offsets = []
            while (record := walk.next_record()) is not None:
                offsets.append(record["offset"])
            assert len(offsets) == batch["count"]
            assert offsets[-1] == batch["last_offset"]
            walk.seek(batch["position"])
            walk.next_batch()
            assert walk.max_record_timestamp() == batch["max_timestamp"]
            count += len(offsets)
        found, last_offsets, unreadable = native.batch_chain(fd, size, 0)
        assert found.tolist() == positions
        assert not unreadable
        assert last_offsets[-1] + 1 == count
        assert native.last_offset_at(fd, size, positions[3], 1 << 20) == last_offsets[3]
        assert native.last_offset_at(fd, size, positions[3], 40) is None


def test_there_is_no_batch_to_enter(tmp_path: Path) -> None:
    """Before the first one, and after a log that another process changes has ended there."""
    path = tmp_path / "0.log"
    data = one_batch([Record(offset=n, timestamp=5, key=b"k", value=bytes(300)) for n in range(3)])
    path.write_bytes(data * 2)  # the window holds one of them
    with opened(path) as (fd, size):
        for method in ("enter", "max_record_timestamp"):
            walk = native.LogWalk(fd, size, decompress=decompress, window_size=4096)
            with pytest.raises(ValueError, match="there is no batch to enter"):
                getattr(walk, method)()
            walk.next_batch()
            assert walk.max_record_timestamp() == 5
        walk.enter()
        assert walk.next_record() is not None
        walk = native.LogWalk(fd, size, decompress=decompress, window_size=128)
        walk.next_batch()
        walk.enter()
        with open(path, "r+b") as file:
            file.seek(len(data) + 8)
            file.write((2**31 - 100).to_bytes(4, "big"))
        assert walk.next_batch() is None and walk.next_record() is None
        with pytest.raises(ValueError, match="there is no batch to enter"):
            walk.max_record_timestamp()


def test_no_records_of_the_batch_before(tmp_path: Path) -> None:
    """After a payload that could not be decompressed."""
    path = tmp_path / "0.log"
    first, second = (bytearray(one_batch([Record(offset=n, timestamp=5, key=b"k", value=b"v")
                                          for n in range(start, start + 3)])) for start in (0, 3))
    second[22] |= 4  # zstd
    path.write_bytes(first + second)
    with opened(path) as (fd, size):
        walk = native.LogWalk(fd, size, decompress=decompress)
        walk.next_batch()
        walk.enter()
        walk.next_batch()
        with pytest.raises(DecompressionError):
            walk.enter()
        with pytest.raises(InvalidRecordError):
            walk.next_record()


def test_a_record_count_that_lies(tmp_path: Path) -> None:
    """One record too few is found before the last record is given out, as in Kafka."""
    records = [Record(offset=n, timestamp=5, key=None, value=b"v") for n in range(3)]
    data = bytearray(one_batch(records))
    data[57:61] = (2).to_bytes(4, "big")
    path = tmp_path / "0.log"
    path.write_bytes(data)
    text, error = dumped(path)
    assert isinstance(error, InvalidRecordError)
    assert error.code == "record_count"
    assert text.count(b"| offset") == 1
    assert b"isvalid: false" in text


def test_a_run_after_a_read_that_failed_prints_no_memory(tmp_path: Path) -> None:
    """Of a file that became shorter: the batch that was cut off is not entered."""
    whole = one_batch([Record(offset=0, timestamp=1, key=None, value=bytes(5000))])
    path = tmp_path / "0.log"
    path.write_bytes(whole[:-100])
    with opened(path) as (fd, _):
        dump = native.LogDump(fd, len(whole), what=ALL, decompress=decompress)
        for _ in range(2):
            out = bytearray()
            with contextlib.suppress(SeglogError):
                dump.run(out.extend)
            assert not out
