"""A stream of snappy with a wrong second header: where snappy-java ends, and where it continues."""

from __future__ import annotations

import struct

import pytest

from seglog.errors import DecompressionError
from seglog.storage import codecs
from seglog.storage.codec_streams import open_stream
from tests.unit.test_codec_streams import SNAPPY, TEXT, snappy_chunk


def varint_record(size: int) -> bytes:
    """As a record batch has it: its size as a zigzag varint, then that many bytes."""
    found, rest = bytearray(), 2 * size
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(found) + bytes((rest,)) + TEXT[:1] * size


@pytest.mark.parametrize(("sizes", "is_end"), [
    ((100, 5000), True), ((100, 5064), True), ((100, 2500), False), ((100, 5000, 10), False),
    ((2046,), True), ((2045,), False), ((1000, 1044), True), ((), True), ((100,), False)])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_wrong_magic_ends_a_payload_if_a_read_of_a_record_begins_there(
        sizes: tuple[int, ...], is_end: bool, magic: int) -> None:
    """SnappyInputStream.read gives what is before it; only if that is nothing, it is an end."""
    def one(size: int) -> bytes:  # of the same length in each format
        if magic == 2:
            return varint_record(size)
        whole = len(varint_record(size)) - 12
        return struct.pack(">qi", 0, whole) + TEXT[:1] * whole

    def payload(joint: bytes) -> bytes:
        return SNAPPY + (snappy_chunk(before) if before else b"") + joint + snappy_chunk(one(50))

    before = b"".join(map(one, sizes))
    wrong = b"\x82SNAPPX\0" + SNAPPY[8:]
    assert codecs.decompress(codecs.SNAPPY, magic, payload(SNAPPY)) == before + one(50)
    stream = open_stream(codecs.SNAPPY, magic, payload(SNAPPY))
    assert (stream.read(len(before)), stream.read(len(one(50)))) == (before, one(50))
    assert codecs.decompress(codecs.SNAPPY, magic, payload(wrong)) == before + (
        b"" if is_end else one(50))


def test_a_wrong_magic_inside_a_record_is_no_end() -> None:
    """Utils.readFully asks again after a part of what it wants."""
    whole = varint_record(2500) + varint_record(2500)
    for at in (2048, 2049, 4550, 4551, 4600):
        payload = SNAPPY + snappy_chunk(whole[:at]) + b"\x82SNAPPX\0" + SNAPPY[8:] + snappy_chunk(
            whole[at:])
        assert codecs.decompress(codecs.SNAPPY, 2, payload) == whole
        stream = open_stream(codecs.SNAPPY, 2, payload)
        assert stream.read(1) + stream.read(5003) == whole


def test_a_wrong_magic_before_what_is_no_record_bounds_the_memory() -> None:
    wrong = b"\x82SNAPPX\0" + SNAPPY[8:]
    for before in (b"\x80" * 5 + bytes(2043), b"\1"):  # a read of records would end there
        payload = SNAPPY + snappy_chunk(before) + wrong + snappy_chunk(bytes(100_000))
        assert codecs.decompress(codecs.SNAPPY, 2, payload) == before + bytes(100_000)
    with pytest.raises(DecompressionError) as told:
        codecs.decompress(codecs.SNAPPY, 2, payload, max_bytes=50_000)
    assert told.value.code == "codec_too_large"
    with pytest.raises(DecompressionError) as told:
        codecs.decompress(codecs.SNAPPY, 2, payload + b"\0\0\0\7")
    assert told.value.code == "codec_data"
