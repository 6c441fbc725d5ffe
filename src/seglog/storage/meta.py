"""Identity files: meta.properties, partition.metadata and .kafka_cleanshutdown.

All problems of content are MalformedCheckpointError with Kafka's text and a `code`
(`meta_properties`, `meta_properties_escape`, `partition_metadata_line`, ...).
"""

from __future__ import annotations

import base64
import json
import os
import re
import uuid
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NoReturn

from seglog.errors import MalformedCheckpointError
from seglog.java.numbers import parse_int32, trim
from seglog.java.properties import parse_properties
from seglog.storage.paths import temporary_name
from seglog.storage.textfile import read_beginning, read_small_file, replace_file, too_large

__all__ = [
    "MetaProperties", "PartitionMetadata", "encode_clean_shutdown_marker",
    "encode_partition_metadata", "format_uuid", "parse_uuid", "read_clean_shutdown_epoch",
    "read_meta_properties", "read_partition_metadata", "write_partition_metadata",
]

#: Far more than Kafka writes (under 200 bytes).
META_BYTES_MAX: Final = 1 << 20
_Path = str | os.PathLike[str]

# Keys of partition.metadata. An id that begins with an A may be the zero id.
_AS_WRITTEN = re.compile(rb"version: 0\ntopic_id: ([B-Za-z0-9_-][A-Za-z0-9_-]{21})\n?")
_LINE_END = re.compile(r"\r\n|\n|\r")
_CHARS_DECODED: Final = 8192
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_UUID = re.compile(r"[A-Za-z0-9_-]{22}")  # as Kafka writes it
_BASE64_URL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def _malformed(path: _Path, code: str, message: str, position: int | None = None,
               found: object = None) -> NoReturn:
    raise MalformedCheckpointError(message, file=os.fspath(path), position=position, found=found,
                                   code=code)


def parse_uuid(text: str) -> uuid.UUID:
    """Parses a 16-byte id in Kafka's base64 for URLs. Raises ValueError with Kafka's text."""
    if len(text) > 24:
        raise ValueError(f"Input string with prefix `{text[:24]}` is too long to be decoded as a "
                         "base64 UUID")
    value = _decode_base64(text)
    if len(value) != 16:
        raise ValueError(f"Input string `{text}` decoded as {len(value)} bytes, which is not "
                         "equal to the expected 16 bytes of a base64-encoded UUID")
    return uuid.UUID(bytes=value)


def _decode_base64(text: str) -> bytes:
    """Base64 for URLs, padded or not. ValueError with the text of Java's decoder."""
    if _UUID.fullmatch(text):
        return base64.urlsafe_b64decode(text + "==")
    raw = text.encode("latin-1", "replace")
    if len(raw) == 1:
        raise ValueError("Input byte[] should at least have 2 bytes for base64 bytes")
    value = digits = at = 0
    while at < len(raw):
        digit, at = _BASE64_URL.find(raw[at]), at + 1
        if raw[at - 1] == ord("="):
            if digits % 4 == 0 or (digits % 4 == 2 and raw[at:at + 1] != b"="):
                raise ValueError("Input byte array has wrong 4-byte ending unit")
            at += digits % 4 == 2
            break
        if digit < 0:
            raise ValueError(f"Illegal base64 character {raw[at - 1] - 256 * (raw[at - 1] >> 7):x}")
        value, digits = value << 6 | digit, digits + 1
    if digits % 4 == 1:
        raise ValueError("Last unit does not have enough valid bits")
    if at < len(raw):
        raise ValueError(f"Input byte array has incorrect ending byte at {at}")
    return (value >> digits * 6 % 8).to_bytes(digits * 6 // 8, "big")


def format_uuid(value: uuid.UUID) -> str:
    """The 22 characters that Kafka writes."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner of a data directory (Kafka: MetaProperties). `extra` holds all keys unparsed."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: uuid.UUID | None
    extra: dict[str, str] = field(default_factory=dict, hash=False)


def read_meta_properties(path: _Path) -> MetaProperties | None:
    """Reads meta.properties; None if it is missing (a data directory need not have one).

    Raises MalformedCheckpointError (`meta_properties`, `meta_properties_escape`) and
    KafkaStorageError.
    """
    content = read_small_file(path, META_BYTES_MAX)
    if content is None:
        return None
    try:
        properties = parse_properties(content)
    except ValueError as error:
        _malformed(path, "meta_properties_escape", str(error))

    def number(key: str) -> int | None:
        text = properties.get(key)
        if text is None:
            return None
        try:
            return parse_int32(text)
        except ValueError:
            _malformed(path, "meta_properties", f"Unable to read {key} as a base-10 number.",
                       found=text)

    text = properties.get("version", "0")
    try:
        version = parse_int32(trim(text))
    except ValueError:
        _malformed(path, "meta_properties", f"Invalid meta.properties version string '{text}'",
                   found=text)
    if version not in (0, 1):
        _malformed(path, "meta_properties", f"Unknown meta.properties version number {version}",
                   found=version)
    cluster_id = properties.get("cluster.id")
    node_id = number("node.id") if version else number("broker.id")
    if version and node_id is None:
        _malformed(path, "meta_properties", "Failed to find node.id")
    directory_id = None
    if "directory.id" in properties:
        try:
            directory_id = parse_uuid(properties["directory.id"])
        except ValueError as error:
            _malformed(path, "meta_properties",
                       f"Unable to read directory.id as a Uuid: {error}",
                       found=properties["directory.id"])
    if version and cluster_id is None:
        _malformed(path, "meta_properties", "cluster.id was not found.")
    return MetaProperties(version, cluster_id, node_id, directory_id, properties)


# --- partition.metadata and .kafka_cleanshutdown -------------------------------------------------

@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A topic's id, as its partition directory holds it."""

    version: int
    topic_id: uuid.UUID


def read_partition_metadata(path: _Path, content: bytes | None = None
                            ) -> PartitionMetadata | None:
    """Reads partition.metadata; None if it is missing. Reads two lines, whatever their keys, and
    ignores the rest. `content` is the file's content if the caller has read it already.

    Raises KafkaStorageError and MalformedCheckpointError: `partition_metadata_line`,
    `partition_metadata_version`, `partition_metadata_id` (the zero id; Kafka's IOExceptions),
    `partition_metadata_short` (fewer than two lines), `partition_metadata_uuid` (fatal to a
    broker), and `checkpoint_too_large` if the two lines do not end within META_BYTES_MAX.
    """
    size = len(content or b"")
    if content is None:
        found = read_beginning(path, META_BYTES_MAX)
        if found is None:
            return None
        content, size = found
    if plain := _AS_WRITTEN.fullmatch(content):
        return PartitionMetadata(0, uuid.UUID(bytes=_decode_base64(plain[1].decode())))
    name = os.fspath(path)
    lines = _two_lines(path, content, size)
    if not lines[-1]:
        lines.pop()

    def value(number: int) -> str:
        if number >= len(lines):
            # Kafka dereferences the missing line; this is Java's text for that.
            _malformed(path, "partition_metadata_short", 'Cannot invoke '
                       '"java.lang.CharSequence.length()" because "this.text" is null',
                       found=len(lines))
        line = lines[number]
        parts = re.split(r":[ \t\n\x0b\f\r]+", line)
        if len(parts) != 2 or not parts[1]:
            _malformed(path, "partition_metadata_line",
                       f"Malformed line in partition metadata file [{name}]: {line}", found=line)
        return parts[1]

    try:
        version = parse_int32(value(0))
    except MalformedCheckpointError:
        raise
    except ValueError:
        _malformed(path, "partition_metadata_line",
                   f"Malformed line in partition metadata file [{name}]: {lines[0]}",
                   found=lines[0])
    if version < 0:
        _malformed(path, "partition_metadata_version",
                   f"Unrecognized version of partition metadata file ({name}): {version}",
                   found=version)
    try:
        topic_id = parse_uuid(value(1))
    except MalformedCheckpointError:
        raise
    except ValueError as error:
        _malformed(path, "partition_metadata_uuid", str(error), found=lines[1])
    if not topic_id.int:
        _malformed(path, "partition_metadata_id",
                   f"Invalid topic ID in partition metadata file ({name})", found=lines[1])
    return PartitionMetadata(version, topic_id)


def _two_lines(path: _Path, content: bytes, size: int) -> list[str]:
    """The first two lines, and the rest, of a file of `size` bytes that begins with `content`.

    Java decodes 8192 characters at a time until it has two lines; bytes after those are ignored.
    """
    text = content.decode(errors="surrogateescape")
    ends = [found.end() for found in islice(_LINE_END.finditer(text), 2)]
    if len(ends) < 2 and len(content) < size:
        raise too_large(path, size, META_BYTES_MAX)
    decoded = len(text) if len(ends) < 2 else -(-ends[1] // _CHARS_DECODED) * _CHARS_DECODED
    bad = _NOT_UTF8.search(text, 0, decoded)
    if bad is not None:
        position = len(text[:bad.start()].encode(errors="surrogateescape"))
        _malformed(path, "checkpoint_encoding",
                   f"{os.fspath(path)}: byte {position} is not UTF-8", position)
    return _LINE_END.split(text, 2)


def write_partition_metadata(path: _Path, topic_id: uuid.UUID) -> None:
    """Replaces a partition.metadata atomically and durably. Raises KafkaStorageError."""
    replace_file(path, encode_partition_metadata(topic_id), temporary_name(path))


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    """The bytes of a partition.metadata."""
    return f"version: 0\ntopic_id: {format_uuid(topic_id)}".encode()


def encode_clean_shutdown_marker(broker_epoch: int) -> bytes:
    """The bytes of .kafka_cleanshutdown (Kafka: CleanShutdownFileHandler.write)."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def read_clean_shutdown_epoch(path: _Path) -> int | None:
    """The broker epoch in .kafka_cleanshutdown; None if the content does not hold one.

    Only the file's existence says whether the shutdown was clean, not its content.
    """
    try:
        content = read_small_file(path, META_BYTES_MAX)
        found = json.loads(content or b"null")
        epoch = found["brokerEpoch"]
    except (MalformedCheckpointError, OSError, RecursionError, ValueError, TypeError, KeyError):
        return None
    return epoch if type(epoch) is int and -1 << 63 <= epoch < 1 << 63 else None
