"""The line format shared by five checkpoint files, and the offset checkpoints.

Format (Kafka: CheckpointFile): the version `0`, the number of entries, then one entry a line. Kafka
throws three kinds of exceptions for malformed content. Here all are MalformedCheckpointError, with
Kafka's text and one `code` per cause:

    checkpoint_line      Malformed line (IOException)
    checkpoint_version   Unrecognised version (IOException)
    checkpoint_count     more or fewer entries than announced (IOException)
    checkpoint_encoding  bytes that are not UTF-8 (IOException)
    checkpoint_number    a field that is not a number (unchecked: fatal to a broker)
    checkpoint_capacity  a negative number of entries (unchecked)
    checkpoint_too_large a file beyond CHECKPOINT_BYTES_MAX (seglog's own bound)
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NoReturn, TypeVar

from seglog.errors import KafkaStorageError, MalformedCheckpointError
from seglog.model import TopicPartition
from seglog.java.numbers import parse_int32, parse_int64
from seglog.storage import paths
from seglog.storage.textfile import read_small_file, replace_file

__all__ = [
    "CHECKPOINT_BYTES_MAX", "encode_checkpoint", "has_line", "offset_lines", "read_checkpoint",
    "read_offset_checkpoint", "write_checkpoint", "write_offset_checkpoint",
]

#: 64 MiB hold the longest entries of 230,000 partitions.
CHECKPOINT_BYTES_MAX: Final = 64 << 20
_VERSION = 0
# Readers split a line at ASCII blanks. A surrogate stands for a byte of a name that is not UTF-8.
_NOT_IN_A_LINE = re.compile("[ \t-\r\ud800-\udfff]")
_Entry = TypeVar("_Entry")
_Path = str | os.PathLike[str]


def _malformed(path: _Path, code: str, message: str, position: int, expected: object = None,
               found: object = None) -> NoReturn:
    raise MalformedCheckpointError(message, file=os.fspath(path), position=position,
                                   expected=expected, found=found, code=code)


def _bad_line(path: _Path, line: bytes, position: int) -> NoReturn:
    text = line.decode()
    _malformed(path, "checkpoint_line",
               f"Malformed line in checkpoint file [{os.fspath(path)}]: {text}", position,
               found=text)


def _header_number(path: _Path, line: bytes, position: int) -> int:
    try:
        return parse_int32(line.decode())
    except ValueError:
        _bad_line(path, line, position)


def _entries(path: _Path, lines: list[bytes], position: int,
             parse: Callable[[list[bytes]], _Entry], fields_count: int) -> Iterator[_Entry]:
    for line in lines:
        # Java's \s matches ASCII blanks, at which bytes.split() splits. In Java a leading blank
        # yields an empty first field; trailing blanks are harmless.
        fields = line.split()
        if line[:1].isspace():
            fields.insert(0, b"")
        if len(fields) != fields_count:
            _bad_line(path, line.rstrip(b"\r\n"), position)
        try:
            yield parse(fields)
        except ValueError as error:
            _malformed(path, "checkpoint_number", str(error), position,
                       found=line.rstrip(b"\r\n").decode())
        position += len(line)


def read_checkpoint(path: _Path, parse: Callable[[list[bytes]], _Entry],
                    fields_count: int, content: bytes | None = None) -> list[_Entry]:
    """The entries of a checkpoint file in file order; empty if the file is missing or empty.
    `content` is the file's content if the caller has read it already.

    `parse` gets the `fields_count` fields of a line in valid UTF-8, and raises ValueError for a
    field that is not a number. Raises MalformedCheckpointError and KafkaStorageError.
    """
    if content is None:
        content = read_small_file(path, CHECKPOINT_BYTES_MAX)
    if not content:
        return []
    try:
        content.decode()
    except UnicodeDecodeError as error:
        _malformed(path, "checkpoint_encoding",
                   f"{os.fspath(path)}: byte {error.start} is not UTF-8", error.start, "UTF-8",
                   content[error.start:error.start + 1].hex())
    lines = content.splitlines(keepends=True)  # splits at \n, \r\n and \r, as Java's readLine
    version = _header_number(path, lines[0].rstrip(b"\r\n"), 0)
    if version != _VERSION:
        _malformed(path, "checkpoint_version",
                   f"Unrecognised version:{version}, expected version: {_VERSION} in checkpoint "
                   f"file at: {os.fspath(path)}", 0, _VERSION, version)
    if len(lines) == 1:
        return []
    announced = _header_number(path, lines[1].rstrip(b"\r\n"), len(lines[0]))
    if announced < 0:
        _malformed(path, "checkpoint_capacity", f"Illegal Capacity: {announced}", len(lines[0]),
                   0, announced)
    start = len(lines[0]) + len(lines[1])
    entries = list(_entries(path, lines[2:], start, parse, fields_count))
    if len(entries) != announced:
        _malformed(path, "checkpoint_count",
                   f"Expected [{announced}] entries in checkpoint file [{os.fspath(path)}], but "
                   f"found only [{len(entries)}]", len(lines[0]), announced, len(entries))
    return entries


def _parse_offset(fields: list[bytes]) -> tuple[TopicPartition, int]:
    topic, partition, offset = fields
    return (TopicPartition(topic.decode(), parse_int32(partition.decode())),
            parse_int64(offset.decode()))


def read_offset_checkpoint(path: _Path, content: bytes | None = None
                           ) -> dict[TopicPartition, int]:
    """The offset checkpoint of a data directory; empty if the file is missing or empty. `content`
    is the file's content if the caller has read it already.

    The last of duplicate entries counts. Raises MalformedCheckpointError (codes: see the module)
    and KafkaStorageError.
    """
    return dict(read_checkpoint(path, _parse_offset, 3, content))


def encode_checkpoint(lines: Iterable[str]) -> bytes:
    """The bytes of a checkpoint file with these entries."""
    entries = list(lines)
    return "".join([f"{line}\n" for line in (_VERSION, len(entries), *entries)]).encode()


def write_checkpoint(path: _Path, lines: Iterable[str], *, spare_same: bool = False) -> None:
    """Replaces a checkpoint file atomically and durably; `lines` are its entries.

    With `spare_same` a file that has the same content is not written, unless an earlier write of it
    was interrupted.
    """
    content, temporary = encode_checkpoint(lines), paths.temporary_name(path)
    if spare_same and not os.path.lexists(temporary) and _holds(path, content):
        return
    replace_file(path, content, temporary)


def _holds(path: _Path, content: bytes) -> bool:
    try:
        return read_small_file(path, len(content)) == content
    except (KafkaStorageError, MalformedCheckpointError):
        return False


def has_line(key: TopicPartition) -> bool:
    """Whether an offset checkpoint can hold this partition. False for a topic that Kafka would not
    create, whose directory was made by hand."""
    return _NOT_IN_A_LINE.search(key.topic) is None


def offset_lines(offsets: Mapping[TopicPartition, int]) -> Iterator[str]:
    """The entries of an offset checkpoint, without partitions that it cannot hold."""
    return (f"{key.topic} {key.partition} {offset}" for key, offset in offsets.items()
            if has_line(key))


def write_offset_checkpoint(path: _Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces an offset checkpoint; partitions that it cannot hold get no line. Raises
    KafkaStorageError."""
    write_checkpoint(path, offset_lines(offsets))
