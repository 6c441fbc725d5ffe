"""The decoder of Kafka's messages: tables, versions, texts as Java and Jackson give them, damage.

tests/kafka/test_dump_in_kafka.py holds every message in every version to Kafka's own decoders.
"""

from __future__ import annotations

import random
import tracemalloc

import pytest

from seglog.dump import decoders
from seglog.java.printed_text import java_text, json_text
from seglog.dump.messages import MessageError, Reader, message, messages
from tests.support.messages import encode_message

FAMILIES = ("offsets-key", "offsets-value", "transaction-key", "transaction-value", "share-key",
            "share-value", "metadata", "remote")


def test_the_tables_hold_all_of_kafkas_internal_topics() -> None:
    counts = {family: len(messages(family)) for family in FAMILIES}
    assert counts == {"offsets-key": 22, "offsets-value": 22, "transaction-key": 1,
                      "transaction-value": 1, "share-key": 2, "share-value": 2, "metadata": 26,
                      "remote": 4}
    assert message("PartitionRecord").highest == 2
    assert message("GroupMetadataValue").flexible_from == 4
    assert message("OffsetCommitValue").flexible_from == 4
    assert message("OffsetCommitKey").flexible_from is None


@pytest.mark.parametrize("family", FAMILIES)
def test_every_message_reads_to_its_last_byte(family: str) -> None:
    rng = random.Random(3)
    for schema in messages(family).values():
        for version in range(schema.lowest, schema.highest + 1):
            for _ in range(5):
                data = encode_message(schema, version, rng)
                reader = Reader(data)
                values = schema.read(reader, version)
                assert reader.remaining == 0
                json_text(schema.to_json(values, version))


@pytest.mark.parametrize("family", FAMILIES)
def test_damaged_messages_are_refused_or_read_but_never_more(family: str) -> None:
    """Only MessageError, and no memory beyond what the bytes can fill."""
    rng = random.Random(4)
    tracemalloc.start()
    refused = 0
    try:
        for schema in messages(family).values():
            for _ in range(60):
                version = rng.randrange(schema.lowest, schema.highest + 1)
                data = bytearray(encode_message(schema, version, rng))
                for _ in range(rng.randrange(1, 5)):
                    if data:
                        data[rng.randrange(len(data))] = rng.choice([0, 127, 128, 255])
                try:
                    schema.to_json(schema.read(Reader(bytes(data)), version), version)
                except MessageError:
                    refused += 1
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert refused > 0


def test_a_count_beyond_the_bytes() -> None:
    data = b"\x00\x00\x00\x01" + bytes(16) + b"\xff\xff\xff\xff\x07"
    with pytest.raises(MessageError) as caught:
        message("PartitionRecord").read(Reader(data), 0)
    assert str(caught.value) == ("Tried to allocate a collection of size 2147483646, but there "
                                 "are only 0 bytes remaining.")


def test_a_varint_without_end() -> None:
    with pytest.raises(MessageError, match="Varint is too long"):
        Reader(b"\xff" * 10).unsigned_varint()
    assert Reader(b"\xff\xff\xff\xff\x0f").unsigned_varint() == -1


def test_records_of_consumer_groups() -> None:
    decode = decoders.offsets_decoder()
    key = b"\x00\x01\x00\x07readers\x00\x05topic\x00\x00\x00\x03"
    value = (b"\x00\x03" + (406).to_bytes(8, "big") + b"\x00\x00\x00\x09" + b"\x00\x00"
             + (1795261381363).to_bytes(8, "big"))
    assert decode(7, key, value) == (
        '{"type":"1","data":{"group":"readers","topic":"topic","partition":3}}',
        '{"version":"3","data":{"offset":406,"leaderEpoch":9,"metadata":"",'
        '"commitTimestamp":1795261381363}}')
    assert decode(7, key, None)[1] == "<DELETE>"
    assert decode(7, b"\x00\x63", b"") == ("Unknown record type 99 at offset 7, skipping.", None)
    assert decode(7, b"\x00", None) == (
        "Error at offset 7, skipping. Could not read version from key's buffer.", None)
    assert decode(7, key[:-1], value) == (
        "Error at offset 7, skipping. Could not read record with version 1 from key's buffer due "
        "to: null.", None)
    assert decode(7, key, b"\x00\x05")[0] == (
        "Error at offset 7, skipping. Found an unknown record version 5 for 1 type")
    with pytest.raises(decoders.DecodeError, match="missing key"):
        decode(7, None, value)


def test_records_of_the_metadata_log() -> None:
    decode = decoders.cluster_metadata_decoder()
    assert decode(1, None, b"\x01\x0c\x00\x11metadata.version\x00\x1e\x00") == (
        None, '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version",'
              '"featureLevel":30}}')
    assert decode(1, None, b"\x01\x0c\x00\x02a\x00\x1e\x00xy") == (
        None, "Error at 1, skipping. Found 2 byte(s) of garbage after 12")


def test_control_records_are_written_as_the_version_they_name() -> None:
    value = b"\x00\x01\x00\x00\x00\x07\x02\x00\x00\x00\x08\x00\x01\x00"
    assert decoders.control_record(2, value) == (
        "LeaderChange", '{"version":1,"leaderId":7,"voters":[{"voterId":8,'
        '"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA"}],"grantingVoters":[]}')
    with pytest.raises(decoders.DecodeError):
        decoders.control_record(2, value[:5])
    with pytest.raises(decoders.DecodeError):
        decoders.control_record(2, None)


def test_decoder_classes() -> None:
    package = "org.apache.kafka.tools.api"
    decode = decoders.class_decoder(f"{package}.IntegerDecoder", f"{package}.LongDecoder")
    assert decode(0, b"\xff\xff\xff\xfe", (2**40).to_bytes(8, "big") + b"rest") == (
        "-2", "1099511627776")
    assert decode(0, None, None) == (None, None)
    with pytest.raises(decoders.DecodeError):
        decode(0, b"abc", None)


def test_json_is_jacksons() -> None:
    tree = {"a": ['q"\\/', "\x01\x1f\x7f\t", "żółw 𝄞"], "b": b"\xff\x00", "c": None, "d": True,
            "e": -5, "f": 1e9, "g": float("nan")}
    assert json_text(tree) == (
        '{"a":["q\\"\\\\/","\\u0001\\u001F\x7f\\t","żółw 𝄞"],"b":"/wA=","c":null,"d":true,'
        '"e":-5,"f":1.0E9,"g":"NaN"}')


def test_java_text() -> None:
    assert java_text("żółw".encode()) == "żółw"
    assert java_text(b"\xed\xa0\x80a\xc3") == "�a�"
