"""Messages in a compressed one of an old format, where seglog's decoder and Java's differ."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from seglog._native.batch import scan
from seglog.errors import (
    CorruptDataError, CorruptRecordError, IllegalArgumentError, InvalidRecordError,
    OutOfBoundsError,
)
from seglog.recovery.wrappers import first_offset
from seglog.storage import codecs
from seglog.storage.codec_streams import StreamError
from seglog.storage.legacy_records import LegacyRecord, inner_records
from tests.oracle.compression import compress
from tests.oracle.legacy import Message, decode, encode, rows, wrap
from tests.oracle.wire import OracleError

#: A message of magic 1 with a gzip value, whose codes refer to bytes before its beginning.
FAR_BACK = bytes.fromhex(
    "f61f15740001ffffffff00000025"
    "1f8b0800000000000203636060648002beca708f070c0cff8100e4050073fcfd781a000000")


def test_a_gzip_value_that_java_refuses_is_refused() -> None:
    """Kafka reads it through java.util.zip.Inflater."""
    with pytest.raises(StreamError, match="ZipException: invalid distance too far back"):
        next(inner_records(LegacyRecord(1 << 40, memoryview(FAR_BACK))))


@pytest.mark.parametrize(("magic", "wrapper", "stored", "offsets"), [
    (1, 9, [0, 1, 2], [7, 8, 9]), (1, 2, [0, 1, 2], [0, 1, 2]), (1, 0, [0, 1, 2], [0, 1, 2]),
    (0, 9, [4, 5, 6], [4, 5, 6]), (0, 0, [4, 5, 6], [4, 5, 6])])
def test_only_a_wrapper_of_magic_1_with_an_offset_moves_its_messages(
        magic: int, wrapper: int, stored: list[int], offsets: list[int]) -> None:
    """AbstractLegacyRecordBatch.DeepRecordsIterator; some clients sent 0."""
    inner = b"".join(encode(Message(offset, magic, value=b"v")) for offset in stored)
    whole = encode(Message(wrapper, magic, value=compress(codecs.GZIP, inner, magic=magic),
                           codec=codecs.GZIP))
    found = inner_records(LegacyRecord(wrapper, memoryview(whole)[12:]))
    assert [record.offset for record in found] == offsets


@pytest.mark.parametrize("codec", [0, codecs.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_the_first_offset_is_that_of_the_first_message(
        tmp_path: Path, magic: int, codec: int) -> None:
    messages = [Message(offset, magic, value=b"v", timestamp=5 if magic else -1)
                for offset in (5, 6, 7)]
    (tmp_path / "f").write_bytes(encode(wrap(messages, codec) if codec else messages[0]))
    with open(tmp_path / "f", "rb") as file:
        row, = scan((tmp_path / "f").read_bytes()).batches
        assert first_offset(file.fileno(), row, "f") == 5


def messages(draw: random.Random, magic: int, count: int) -> list[Message]:
    def blob() -> bytes | None:
        return draw.choice((None, b"", draw.randbytes(draw.randint(1, 9))))

    return [Message(100 + n, magic, blob(), blob(), draw.choice((-1, 0, 5, 1 << 40)) if magic else
                    -1, timestamp_type=draw.randint(0, magic)) for n in range(count)]


@pytest.mark.parametrize("magic", [0, 1])
def test_the_fields_of_a_message_are_those_of_the_oracle(magic: int) -> None:
    for seed in range(40):
        message, = messages(random.Random(seed), magic, 1)
        whole = encode(message)
        record = LegacyRecord(message.offset, memoryview(whole)[12:])
        stored = decode(whole)
        assert (record.magic, record.codec, record.attributes, record.timestamp) == (
            magic, 0, message.timestamp_type << 3, stored.timestamp)
        assert record.has_append_time is bool(stored.timestamp_type)
        assert (record.key, record.value) == (message.key, message.value)
        assert record.key_size == (-1 if message.key is None else len(message.key))
        assert record.crc == int.from_bytes(whole[12:16], "big")
        record.touch()
        record.ensure_valid()
        kind = ("CreateTime", "LogAppendTime")[message.timestamp_type]
        time = f"{kind}={message.timestamp}, " if magic else ""
        assert str(record) == (
            f"LegacyRecordBatch(offset={message.offset}, Record(magic={magic}, "
            f"attributes={message.timestamp_type << 3}, compression=none, crc={record.crc}, {time}"
            f"key={len(message.key or b'')} bytes, value={len(message.value or b'')} bytes))")
        # A wrapper's time is that of its messages of magic 1.
        for has_append_time in (False, True):
            inner = LegacyRecord(1, memoryview(whole)[12:], 77, has_append_time)
            assert inner.has_append_time is (has_append_time and magic == 1)
            assert inner.timestamp == (77 if has_append_time and magic else stored.timestamp)
        for at in range(16, len(whole)):
            wrong = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:]
            with pytest.raises(CorruptRecordError, match=f"stored crc = {record.crc}, ") as caught:
                LegacyRecord(1, memoryview(wrong)[12:]).ensure_valid()
            assert (caught.value.expected, caught.value.found, caught.value.code) == (
                record.crc, zlib.crc32(wrong[16:]), "batch_crc")


@pytest.mark.parametrize("magic", [0, 1])
def test_a_field_that_a_message_has_no_room_for_is_the_error_of_a_buffer(magic: int) -> None:
    """ByteBuffer.getInt throws one exception, and its limit another."""
    whole = encode(Message(1, magic, b"key", b"value", timestamp=5 if magic else -1))[12:]
    key_at = 14 if magic else 6
    for end in range(key_at, len(whole)):
        record = LegacyRecord(1, memoryview(whole)[:end])
        if end < key_at + 4:
            with pytest.raises(OutOfBoundsError, match=f"no field at byte {key_at} of {end}$"):
                _ = record.key_size
            error: Any = OutOfBoundsError
        elif end < key_at + 7:
            error = IllegalArgumentError
            with pytest.raises(error, match=rf"newLimit > capacity: \(3 > {end - key_at - 4}\)"):
                _ = record.key
        else:
            assert record.key == b"key"
            error = OutOfBoundsError if end < key_at + 11 else IllegalArgumentError
            with pytest.raises(error):
                _ = record.value
        with pytest.raises(error):
            record.touch()


def test_bytes_of_a_message_are_signed() -> None:
    """A magic that is neither 0 nor 1, as in the middle of a wrapper, has the fields of 1."""
    for byte, number in ((0, 0), (1, 1), (2, 2), (127, 127), (128, -128), (255, -1)):
        buffer = bytes(4) + bytes([byte, byte & 0xF8]) + bytes(7) + b"\5" + struct.pack(">ii", -1,
                                                                                       -1)
        record = LegacyRecord(1, memoryview(buffer))
        assert record.magic == number and record.attributes == number - (byte & 7)
        if number:
            assert (record.timestamp, record.key, record.value) == (5, None, None)
            assert record.has_append_time is bool(byte & 8)


def test_a_wrapper_gives_its_messages_what_the_oracle_says() -> None:
    accepted = 0
    for seed in range(300):
        draw = random.Random(seed)
        magic, codec = draw.randint(0, 1), draw.choice((codecs.GZIP, codecs.SNAPPY, codecs.LZ4))
        inner = messages(draw, magic, draw.randint(0, 3))
        plain = b"".join(encode(one, draw.choice((one.offset, one.offset - 100)))
                         for one in inner)
        if draw.random() < 0.4:
            plain = plain[:draw.randint(0, len(plain))]
        value = compress(codec, plain, magic=magic) if draw.random() < 0.9 else None
        wrapper = Message(draw.choice((0, 1, 2, 101, 102, 1 << 62)), magic, value=value,
                          timestamp=99 if magic else -1, codec=codec,
                          timestamp_type=draw.randint(0, magic))
        whole = encode(wrapper)
        try:
            expected = [(row["offset"], row["timestamp"], row["timestamp_type"], row["key"],
                         row["value"]) for row in rows(decode(whole), 0)]
        except OracleError:
            with pytest.raises(InvalidRecordError):
                list(inner_records(LegacyRecord(wrapper.offset, memoryview(whole)[12:])))
            continue
        accepted += 1
        assert [(one.offset, one.timestamp, int(one.has_append_time) if magic else -1, one.key,
                 one.value) for one in
                inner_records(LegacyRecord(wrapper.offset, memoryview(whole)[12:]))] == expected
    assert 100 < accepted < 280


@pytest.mark.parametrize(("value", "codec", "offset", "code", "expected", "found", "words"), [
    (None, codecs.GZIP, 1, "legacy_null_wrapper", None, None, r"null value \(magic = 1\)"),
    (b"", codecs.GZIP, 1, "legacy_empty_wrapper", None, None, "with no inner records"),
    (encode(Message(2, 1))[:-1], codecs.GZIP, 1, "legacy_empty_wrapper", None, None, "no inner"),
    (encode(Message(2, 1)), codecs.GZIP, 1, "legacy_offset", 2, 1,
     "wrapper offset '1' is less than the last inner message offset '2' and it is not zero"),
    (encode(Message(2, 1, codec=1)), codecs.GZIP, 2, "legacy_nested", None, None, "compressed"),
    (bytes(8) + struct.pack(">i", 13) + bytes(13), codecs.GZIP, 0, "legacy_size", 14, 13,
     r"minimum record overhead \(14\)"),
    (bytes(8) + struct.pack(">i", -1), codecs.GZIP, 0, "legacy_size", 14, -1, "overhead"),
    (encode(Message(2, 1)), codecs.ZSTD, 2, "legacy_codec", None, None, "deep record iterator 1")])
def test_what_a_wrapper_is_refused_for(
        value: bytes | None, codec: int, offset: int, code: str, expected: int | None,
        found: int | None, words: str) -> None:
    packed = None if value is None else compress(codec, value)
    whole = encode(Message(offset, 1, value=packed, timestamp=5, codec=codec))
    with pytest.raises(CorruptDataError, match=words) as caught:
        list(inner_records(LegacyRecord(offset, memoryview(whole)[12:])))
    assert (caught.value.code, caught.value.expected, caught.value.found) == (
        code, expected, found)


def test_the_smallest_message_has_14_bytes() -> None:
    smallest = encode(Message(0, 0))
    assert len(smallest) == 26
    whole = encode(Message(0, 0, value=compress(codecs.GZIP, smallest), codec=codecs.GZIP))
    one, = inner_records(LegacyRecord(0, memoryview(whole)[12:]))
    assert (one.key, one.value) == (None, None)


def test_offsets_of_a_wrapper_wrap_as_javas() -> None:
    inner = encode(Message(-1 << 63, 1)) + encode(Message(-2, 1))
    whole = encode(Message((1 << 63) - 1, 1, value=compress(codecs.GZIP, inner), codec=codecs.GZIP))
    found = inner_records(LegacyRecord((1 << 63) - 1, memoryview(whole)[12:]))
    assert [one.offset for one in found] == [1, (1 << 63) - 1]
