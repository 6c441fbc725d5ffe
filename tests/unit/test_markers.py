"""Control batches: what Kafka's reader says of each (EndTransactionMarker)."""

from __future__ import annotations

import struct

import pytest

from seglog.errors import CorruptDataError, InvalidRecordError
from seglog.storage import codecs
from seglog.storage.markers import EndTransactionMarker, parse_marker, read_control_type
from tests.oracle import batch as oracle
from tests.oracle.compression import compress

ABORT = bytes.fromhex(
    "000000000000000500000042" "0000000002c987e7dd003000000000" "00000000000003e8"
    "00000000000003e8" "0000000000000001" "0000ffffffff00000001"
    "2000000008000000000c00000000000000")


def control(key: bytes | None, value: bytes | None, codec: int = 0, **fields: int) -> bytes:
    batch = oracle.Batch(5, 0, [oracle.Record(5, 1000, key, value)], base_timestamp=1000,
                         max_timestamp=2000, producer_id=1, producer_epoch=0, is_control=True,
                         is_transactional=True, codec=codec, **fields)
    return oracle.encode(batch)


KEY, VALUE = bytes(4), struct.pack(">hi", 0, 9)


def test_known_marker() -> None:
    assert parse_marker(ABORT) == EndTransactionMarker(True, 0, 1000)


def test_accepted() -> None:
    commit = b"\0\5\0\1" + b"more"  # later versions are read as 0, what follows is ignored
    assert parse_marker(control(commit, b"\0\7" + VALUE[2:] + b"more")) == EndTransactionMarker(
        False, 9, 1000)
    assert parse_marker(control(KEY, VALUE, timestamp_type=1)) == EndTransactionMarker(
        True, 9, 2000)
    for codec in (codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD):
        assert parse_marker(control(KEY, VALUE, codec)) == EndTransactionMarker(True, 9, 1000)
    emptied = oracle.Batch(5, 0, [], producer_id=1, is_control=True, is_transactional=True)
    assert parse_marker(oracle.encode(emptied)) is None


@pytest.mark.parametrize(("key", "value", "code", "message"), [
    (None, VALUE, "control_key_null", "control record of null key bytes, 4 are required"),
    (b"\0\0\0", VALUE, "control_key", "Invalid value size found for control record key. Must have "
     "at least 4 bytes, but found only 3"),
    (b"\xff\xff\0\0", VALUE, "control_key", "Invalid version found for control record: -1. May "
     "indicate data corruption"),
    (b"\0\0\0\2", VALUE, "control_type",
     "Invalid control record type for end transaction marker LEADER_CHANGE"),
    (b"\0\0\0\x63", VALUE, "control_type",
     "Invalid control record type for end transaction marker UNKNOWN"),
    (KEY, None, "control_marker_null", "end transaction marker of null bytes, 6 are required"),
    (KEY, b"", "control_marker_short", "end transaction marker of 0 bytes, 6 are required"),
    (KEY, VALUE[:5], "control_marker_short",
     "end transaction marker of 5 bytes, 6 are required"),
    (KEY, b"\xff\xff" + VALUE[2:], "control_marker", "Invalid version found for end transaction "
     "marker: -1. May indicate data corruption"),
])
def test_refused(key: bytes | None, value: bytes | None, code: str, message: str) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        parse_marker(control(key, value), file="f", position=77)
    error = caught.value
    assert (error.code, str(error), error.file, error.position) == (code, message, "f", 77)


@pytest.mark.parametrize(("position", "byte", "code"), [
    (57, 0x80, "batch_record_count"), (61, 0x22, "record_length"), (61, 0x1E, "record_size"),
    (61, 0x01, "record_size"), (65, 0x7E, "record_field"), (77, 0x02, "record_headers"),
    (77, 0x01, "record_headers"), (61, 0x00, "record_size"),
])
def test_broken_structure(position: int, byte: int, code: str) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        parse_marker(ABORT[:position] + bytes((byte,)) + ABORT[position + 1:])
    assert caught.value.code == code


@pytest.mark.parametrize("codec", [codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD])
def test_later_records_of_a_compressed_batch(codec: int) -> None:
    records = [oracle.Record(5, 1000, KEY, VALUE), oracle.Record(6, 1000, None, None)]
    fields = {"base_timestamp": 1000, "max_timestamp": 2000, "producer_id": 1,
              "is_control": True, "is_transactional": True}
    plain = oracle.encode(oracle.Batch(5, 1, records, **fields))
    packed = oracle.encode(oracle.Batch(5, 1, records, codec=codec, **fields))
    for batch in (plain, packed):
        assert parse_marker(batch) == EndTransactionMarker(True, 9, 1000)
    for count, code in ((3, "record_varint"), (1, "record_count")):
        with pytest.raises(InvalidRecordError) as caught:
            parse_marker(packed[:57] + struct.pack(">i", count) + packed[61:])
        assert caught.value.code == code
    # Without a codec Kafka reads the first record alone.
    assert parse_marker(plain[:57] + struct.pack(">i", 3) + plain[61:]) is not None


@pytest.mark.parametrize(("number", "name"), [
    (0, "ABORT"), (1, "COMMIT"), (2, "LEADER_CHANGE"), (3, "SNAPSHOT_HEADER"),
    (4, "SNAPSHOT_FOOTER"), (5, "KRAFT_VERSION"), (6, "KRAFT_VOTERS"), (7, "UNKNOWN"),
    (-1, "UNKNOWN"), (-2, "UNKNOWN"), (32767, "UNKNOWN")])
def test_control_types_are_kafkas(number: int, name: str) -> None:
    """ControlRecordType.java."""
    marker = control(struct.pack(">hh", 0, number), VALUE)
    found = read_control_type(marker)
    assert found is not None and found.name == name
    assert found.value == (number if name != "UNKNOWN" else -1)
    if number > 1 or number < 0:
        with pytest.raises(InvalidRecordError, match=f"transaction marker {name}$"):
            parse_marker(marker)


def varint(value: int, size: int = 1) -> bytes:
    """A zigzag varint of at least `size` bytes: more than it needs are zeros."""
    raw, out = value * 2 if value >= 0 else -value * 2 - 1, bytearray()
    while raw > 0x7F or len(out) < size - 1:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


@pytest.mark.parametrize("codec", [0, codecs.GZIP])
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("headers", [[], [(b"", None)], [(b"k", b""), (b"long", b"v" * 70)]])
def test_fields_of_any_width_and_headers(codec: int, size: int,
                                         headers: list[tuple[bytes, bytes | None]]) -> None:
    """No broker writes a varint longer than it has to be, or headers; Kafka reads both."""
    def record(delta_size: int, offset_size: int, *wrong: bytes) -> bytes:
        body = b"\0" + varint(-7, delta_size) + varint(0, offset_size) + b"".join(
            varint(len(part), size) + part for part in (KEY, VALUE)) + varint(len(headers), size)
        for key, value in headers:
            body += varint(len(key), size) + key + (varint(-1, size) if value is None else varint(
                len(value), size) + value)
        body += b"".join(wrong)
        return varint(len(body), size) + body

    def marker(content: bytes) -> bytes:
        payload = codecs.compress(codec, content) if codec else content
        head = bytearray(control(KEY, VALUE)[:61])
        head[8:12] = struct.pack(">i", 61 - 12 + len(payload))
        head[21:23] = struct.pack(">h", 0x30 | codec)
        return bytes(head) + payload

    assert parse_marker(marker(record(size, size))) == EndTransactionMarker(True, 9, 993)
    assert parse_marker(marker(record(10, size))) == EndTransactionMarker(True, 9, 993)
    # Each field's width in bytes: of the key, the value, the headers, a header's key and value.
    def wide(*widths: int) -> bytes:
        key, value, count, name, content = widths
        body = b"".join([b"\0", varint(-7), varint(0), varint(len(KEY), key), KEY,
                         varint(len(VALUE), value), VALUE, varint(1, count), varint(1, name), b"k",
                         varint(1, content), b"v"])
        # Kafka shifts what is too much out of an int.
        body = body.replace(varint(len(KEY), 5), varint(len(KEY), 5)[:-1] + b"\x70", 1)
        return varint(len(body)) + body

    assert parse_marker(marker(wide(5, 5, 5, 5, 5))) == EndTransactionMarker(True, 9, 993)
    cut = b"\0" + varint(-7) + varint(0) + b"".join(
        varint(len(part)) + part for part in (KEY, VALUE)) + varint(1) + varint(9) + b"k"
    for content, code in ((varint(len(cut)) + cut, "record_field"),
                          (record(11, size), "record_varint"), (record(1, 6), "record_varint"),
                          *((wide(*(6 if one == field else 1 for one in range(5))), "record_varint")
                            for field in range(5)),
                          (record(size, size, b"x"), "record_size")):
        with pytest.raises(InvalidRecordError) as caught:
            parse_marker(marker(content))
        assert caught.value.code == code


def test_bytes_behind_the_record() -> None:
    longer = ABORT[:8] + struct.pack(">i", 0x43) + ABORT[12:] + b"x"
    with pytest.raises(InvalidRecordError, match="records still remaining in file"):
        parse_marker(longer)


def test_every_truncation() -> None:
    for size in range(len(ABORT)):
        with pytest.raises(InvalidRecordError):
            parse_marker(ABORT[:size])


@pytest.mark.parametrize("codec", [codecs.GZIP, codecs.LZ4])
def test_a_byte_behind_the_record_comes_before_the_end_of_a_torn_stream(codec: int) -> None:
    """DefaultRecordBatch.ensureNoneRemaining reads one byte."""
    record = oracle.encode_record(oracle.Record(5, 1000, KEY, VALUE), 5, 1000)
    header = control(KEY, VALUE, codec)[:61]
    for behind, code, words in ((b"x", "record_count", "records still remaining in file"),
                                (b"", "codec_data", "Error checking for remaining bytes after")):
        torn = compress(codec, record + behind)[:-1]
        with pytest.raises(CorruptDataError) as caught:
            parse_marker(header[:8] + struct.pack(">i", 49 + len(torn)) + header[12:] + torn)
        assert caught.value.code == code and words in str(caught.value)


@pytest.mark.parametrize("codec", [codecs.GZIP, codecs.LZ4])
@pytest.mark.parametrize("length", [
    b"\xff" * 5, b"\x80" * 5 + b"\0", b"\x80" * 9 + b"\1", b"\1"])
def test_a_length_that_is_none_in_a_stream_is_its_end(codec: int, length: bytes) -> None:
    """DefaultRecord.readFrom: -1, and what has more than five bytes."""
    header = control(KEY, VALUE, codec)[:61]
    data = compress(codec, length + bytes(60))
    with pytest.raises(InvalidRecordError) as caught:
        parse_marker(header[:8] + struct.pack(">i", 49 + len(data)) + header[12:] + data)
    assert (caught.value.code, str(caught.value)) == (
        "record_varint", "Incorrect declared batch size, premature EOF reached")
