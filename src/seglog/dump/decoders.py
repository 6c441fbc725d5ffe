"""The `--*-decoder` options: the text after `key: ` and `payload: ` in a dumped record.

A decoder takes the offset, the key and the value (None for null) and returns the two texts, or
None to print nothing. An exception that Kafka's decoders catch becomes text, as in Kafka ("Error
at offset 5, skipping. ..."); one that ends Kafka's tool raises DecodeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seglog.java.printed_text import java_text, json_text
from seglog.dump.messages import Message, MessageError, Reader, message, messages
from seglog.errors import MetadataParseError
from seglog.tiered.api_frames import read_frame
from seglog.tiered.metadata_serde import deserialize

__all__ = ["CLASS_DECODERS", "STRING_DECODER", "DecodeError", "Decoded", "Decoder",
           "class_decoder", "cluster_metadata_decoder", "control_facts", "control_record",
           "coordinator_decoder", "offsets_decoder", "remote_log_metadata_decoder"]

Decoded = tuple[str | None, str | None]
Decoder = Callable[[int, bytes | None, bytes | None], Decoded]


class DecodeError(ValueError):
    """A record that ends Kafka's tool with an exception."""


def coordinator_decoder(family: str, value_json: Callable[[Message, dict[str, Any], int], Any]
                        = Message.to_json) -> Decoder:
    """A decoder for keys that start with an int16 record type, and values with an int16 version.

    `family` is "offsets", "transaction" or "share" (CoordinatorRecordSerde's subclasses).
    """
    keys, values = messages(f"{family}-key"), messages(f"{family}-value")

    def decode(offset: int, key: bytes | None, value: bytes | None) -> Decoded:
        if key is None:
            raise DecodeError(f"Failed to decode message at offset {offset} using the specified "
                              "decoder (message had a missing key)")
        try:
            reader = Reader(key)
            kind = _int16(reader, "key")
            if kind not in keys:
                return f"Unknown record type {kind} at offset {offset}, skipping.", None
            # Kafka parses the key with its record type as the version.
            key_tree = keys[kind].to_json(_read(keys[kind], reader, kind, "key"), 0)
            key_text = json_text({"type": str(kind), "data": key_tree})
            if value is None:
                return key_text, "<DELETE>"
            reader = Reader(value)
            schema = values[kind]
            version = _int16(reader, "value")
            if not schema.lowest <= version <= schema.highest:
                raise MessageError(f"Found an unknown record version {version} for {kind} type")
            tree = value_json(schema, _read(schema, reader, version, "value"), version)
            return key_text, json_text({"version": str(version), "data": tree})
        except MessageError as error:
            return f"Error at offset {offset}, skipping. {error}", None

    return decode


def offsets_decoder() -> Decoder:
    """`--offsets-decoder`: records of __consumer_offsets."""
    return coordinator_decoder("offsets", _offsets_value)


def _offsets_value(schema: Message, values: dict[str, Any], version: int) -> Any:
    tree = schema.to_json(values, version)
    if schema.name == "GroupMetadataValue" and tree["protocolType"] == "consumer":
        for member in tree["members"]:
            _open(member, "subscription", message("ConsumerProtocolSubscription"))
            _open(member, "assignment", message("ConsumerProtocolAssignment"))
    return tree


def _open(member: dict[str, Any], name: str, schema: Message) -> None:
    """Replaces the bytes of a consumer's metadata with their decoded content, if they parse."""
    try:
        reader = Reader(member[name])
        version = reader.fixed(">h")
        member[name] = schema.to_json(schema.read(reader, version), version)
    except MessageError:
        pass


def _int16(reader: Reader, name: str) -> int:
    try:
        return int(reader.fixed(">h"))
    except MessageError:
        raise MessageError(f"Could not read version from {name}'s buffer.") from None


def _read(schema: Message, reader: Reader, version: int, name: str) -> dict[str, Any]:
    try:
        return schema.read(reader, version)
    except MessageError as error:
        raise MessageError(f"Could not read record with version {version} from {name}'s buffer "
                           f"due to: {error}.") from None


def _read_framed(data: bytes) -> tuple[Message, int, dict[str, Any]]:
    """One record of cluster metadata (MetadataRecordSerde): its type, version and fields."""
    key, version, position = read_frame(data)
    schema = messages("metadata").get(key)
    if schema is None:
        raise MessageError("org.apache.kafka.common.errors.UnsupportedVersionException: "
                           f"Unknown metadata id {key}")
    reader = Reader(data, position)
    try:
        values = schema.read(reader, version)
    except MessageError:
        raise MessageError(f"Failed to deserialize record with type {key}") from None
    if reader.remaining:
        raise MessageError(f"Found {reader.remaining} byte(s) of garbage after {key}")
    return schema, version, values


def cluster_metadata_decoder() -> Decoder:
    """`--cluster-metadata-decoder`: records of __cluster_metadata and of its snapshots."""

    def decode(offset: int, key: bytes | None, value: bytes | None) -> Decoded:
        try:
            if value is None:
                raise MessageError("Error while reading frame version")
            schema, version, values = _read_framed(value)
            tree = {"type": _constant_name(schema.name), "version": version,
                    "data": schema.to_json(values, version)}
            return None, json_text(tree)
        except (MessageError, MetadataParseError) as error:
            return None, f"Error at {offset}, skipping. {error}"

    return decode


def _constant_name(name: str) -> str:
    """`PartitionChangeRecord` as `PARTITION_CHANGE_RECORD`."""
    return "".join(f"_{c}" if c.isupper() and i else c for i, c in enumerate(name)).upper()


def remote_log_metadata_decoder() -> Decoder:
    """`--remote-log-metadata-decoder`: records of __remote_log_metadata."""

    def decode(offset: int, key: bytes | None, value: bytes | None) -> Decoded:
        try:
            if value is None:
                raise MetadataParseError(
                    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
                    '"org.apache.kafka.common.record.internal.Record.value()" is null')
            return None, str(deserialize(value))
        except MetadataParseError as error:
            return None, f"Error at offset {offset}, skipping. {error}"

    return decode


def _number(data: bytes, size: int) -> str:
    if len(data) < size:
        raise DecodeError(f"{len(data)} bytes where a number of {size} bytes is expected")
    return str(int.from_bytes(data[:size], "big", signed=True))


STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"
CLASS_DECODERS: dict[str, Callable[[bytes], str]] = {
    STRING_DECODER: java_text,
    "org.apache.kafka.tools.api.LongDecoder": lambda data: _number(data, 8),
    "org.apache.kafka.tools.api.IntegerDecoder": lambda data: _number(data, 4),
}


def class_decoder(key_class: str = STRING_DECODER, value_class: str = STRING_DECODER) -> Decoder:
    """`--key-decoder-class`, `--value-decoder-class`. KeyError for an unknown class."""
    key_text, value_text = CLASS_DECODERS[key_class], CLASS_DECODERS[value_class]

    def decode(offset: int, key: bytes | None, value: bytes | None) -> Decoded:
        return (None if key is None else key_text(key),
                None if value is None else value_text(value))

    return decode


# The name in DumpLogSegments, and the message in the value.
_CONTROL_RECORDS = {2: ("LeaderChange", "LeaderChangeMessage"),
                    3: ("SnapshotHeader", "SnapshotHeaderRecord"),
                    4: ("SnapshotFooter", "SnapshotFooterRecord"),
                    5: ("KRaftVersion", "KRaftVersionRecord"),
                    6: ("KRaftVoters", "VotersRecord")}


def control_record(control_type: int, value: bytes | None) -> tuple[str, str]:
    """Name and JSON of a KRaft control record (types 2 to 6). Raises DecodeError."""
    name = _CONTROL_RECORDS[control_type][0]
    return name, json_text(_control_tree(control_type, value))


def _control_tree(control_type: int, value: bytes | None) -> dict[str, Any]:
    name, schema_name = _CONTROL_RECORDS[control_type]
    schema = message(schema_name)
    if value is None:
        raise DecodeError(f"{name} record without a value")
    try:
        values = schema.read(Reader(value), 0)
        # Parsed as version 0, printed as the version in the record.
        return schema.to_json(values, values["version"])
    except MessageError as error:
        raise DecodeError(f"{name} record does not parse: {error}") from None


def control_facts(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """The content of a control record, for JSON. Raises DecodeError."""
    try:
        reader = Reader(key or b"")
        version, kind = reader.fixed(">h"), reader.fixed(">h")
        facts: dict[str, Any] = {"control_type": kind}
        if kind in _CONTROL_RECORDS:
            facts["control"] = _control_tree(kind, value)
        elif kind in (0, 1):
            reader = Reader(value or b"")
            version = min(version, reader.fixed(">h"))
            facts["end_txn_marker"] = ("ABORT", "COMMIT")[kind]
            facts["coordinator_epoch"] = reader.fixed(">i")
    except MessageError:
        raise DecodeError("control record is too short") from None
    if version < 0:
        raise DecodeError(f"control record of version {version}")
    return facts
