"""The manifest of a segment in Aiven's tiered storage: JSON with a chunk index, and the positions
of the indexes. Every number in it is hostile."""

from __future__ import annotations

import base64
import json
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from seglog.errors import CorruptDataError, DecompressionError
from seglog.storage import codecs
from seglog.tiered.plain_layout import id_of
from seglog.tiered.remote_records import SegmentLeaderEpochs
from seglog.tiered.remote_storage import IndexType

__all__ = ["ChunkIndex", "Encryption", "Manifest", "parse_manifest"]

_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1
#: Bound of the sum of all decompressed chunk sizes, as in the plug-in.
_SIZES_BYTES_MAX: Final = 10 << 20
#: A segment has at most 2 GiB, and chunks are never that small.
_CHUNKS_MAX: Final = 1 << 22
_EPOCH: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """How a log was divided: chunk i has the original bytes from i x `chunk_size` on, and is stored
    in the object at `positions[i]` to `positions[i + 1]`. An array, because a manifest of 300 bytes
    may have millions of chunks."""

    chunk_size: int
    file_size: int
    positions: array[int]

    @property
    def count(self) -> int:
        """The number of chunks."""
        return len(self.positions) - 1

    def original_size(self, chunk: int) -> int:
        """The original bytes of a chunk."""
        return min(self.chunk_size, self.file_size - chunk * self.chunk_size)


@dataclass(frozen=True, slots=True)
class Encryption:
    """`key_id` names the key that wraps the data key."""

    key_id: str
    wrapped_key: bytes
    aad: bytes


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a manifest. `indexes` are (position, size) in the object of indexes. The last
    three are None in manifests of older plug-ins."""

    chunks: ChunkIndex
    indexes: Mapping[IndexType, tuple[int, int]]
    compression: bool
    encryption: Encryption | None
    end_offset: int | None
    max_timestamp_ms: int | None
    epochs: SegmentLeaderEpochs | None


class _Manifest:
    """Reads fields of a JSON object, each of which may have any type."""

    def __init__(self, file: str) -> None:
        self._file = file

    def wrong(self, name: str, expected: str, found: object) -> CorruptDataError:
        shown = repr(found)
        return CorruptDataError(
            f"{self._file}: manifest field {name}: expected {expected}, found {shown[:80]}",
            file=self._file, position=0, expected=expected, found=shown[:80], code="manifest")

    def member(self, owner: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        value = owner.get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "an object", value)
        return value

    def text(self, owner: Mapping[str, Any], name: str) -> str:
        value = owner.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "text", value)
        return value

    def number(self, owner: Mapping[str, Any], name: str, least: int, most: int) -> int:
        value = owner.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(name, f"a number from {least} to {most}", value)
        return value

    def base64(self, name: str, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            raise self.wrong(name, "base64", text) from None

    # ---- parts

    def chunk_index(self, owner: Mapping[str, Any]) -> ChunkIndex:
        kind = self.text(owner, "type")
        file_size = self.number(owner, "originalFileSize", 0, _INT32_MAX)
        chunk_size = self.number(owner, "originalChunkSize", 1 if file_size else 0, _INT32_MAX)
        count = max(1, -(-file_size // chunk_size)) if chunk_size else 1
        if kind == "fixed":
            size = self.number(owner, "transformedChunkSize", 0, _INT32_MAX)
            last = self.number(owner, "finalTransformedChunkSize", 0, _INT32_MAX)
            if count > _CHUNKS_MAX:
                raise self.wrong("originalChunkSize", f"at most {_CHUNKS_MAX} chunks", count)
            positions = array("q", (size * chunk for chunk in range(count)))
            positions.append(positions[-1] + last)
            return ChunkIndex(chunk_size, file_size, positions)
        if kind != "variable":
            raise self.wrong("type", "fixed or variable", kind)
        sizes = self.sizes(self.text(owner, "transformedChunks"))
        if len(sizes) != count:
            raise self.wrong("transformedChunks", f"{count} sizes", len(sizes))
        return ChunkIndex(chunk_size, file_size, array("q", accumulate(sizes, initial=0)))

    def sizes(self, text: str) -> list[int]:
        name = "transformedChunks"
        try:
            data = bytes(codecs.decompress(codecs.ZSTD, 2, self.base64(name, text),
                                           max_bytes=_SIZES_BYTES_MAX))
        except DecompressionError as error:
            raise self.wrong(name, "a zstd frame", str(error)) from None
        count = int.from_bytes(data[:4], "big", signed=True)
        if len(data) < 4 or count < 0:
            raise self.wrong(name, "a count", data[:4].hex())
        if count < 2:
            values = [int.from_bytes(data[4:8], "big", signed=True)] if count else []
            length = 4 + 4 * count
        else:
            width = data[8] if len(data) > 8 else 0
            length = 9 + width * (count - 1) + 4
            if not 1 <= width <= 4 or len(data) != length:
                raise self.wrong(name, f"{count} sizes", f"{len(data)} bytes of width {width}")
            base = int.from_bytes(data[4:8], "big", signed=True)
            values = [base + int.from_bytes(data[at:at + width], "big")
                      for at in range(9, length - 4, width)]
            values.append(int.from_bytes(data[-4:], "big", signed=True))
        if len(data) != length or any(not 0 <= value <= _INT32_MAX for value in values):
            raise self.wrong(name, "sizes from 0 to 2147483647", f"{len(data)} bytes")
        return values

    def indexes(self, owner: Mapping[str, Any]) -> dict[IndexType, tuple[int, int]]:
        found = {}
        for kind in IndexType:
            if kind is IndexType.TRANSACTION and owner.get(kind.value) is None:
                continue
            part = self.member(owner, kind.value)
            found[kind] = (self.number(part, "position", 0, _INT32_MAX),
                           self.number(part, "size", 0, _INT32_MAX))
        return found

    def encryption(self, owner: Mapping[str, Any]) -> Encryption:
        key_id, separator, wrapped = self.text(owner, "dataKey").partition(":")
        if not separator:
            raise self.wrong("dataKey", "KEY-ID:BASE64", key_id)
        return Encryption(key_id, self.base64("dataKey", wrapped),
                          self.base64("aad", self.text(owner, "aad")))

    def epochs(self, owner: Mapping[str, Any]) -> SegmentLeaderEpochs:
        found = []
        for epoch, offset in owner.items():
            if not _EPOCH.fullmatch(epoch) or int(epoch) > _INT32_MAX \
                    or isinstance(offset, bool) or not isinstance(offset, int) \
                    or not 0 <= offset <= _INT64_MAX:
                raise self.wrong("segmentLeaderEpochs", "epochs and offsets", {epoch: offset})
            found.append((int(epoch), offset))
        if not found:
            raise self.wrong("segmentLeaderEpochs", "an epoch", owner)
        return tuple(sorted(found))


def parse_manifest(content: bytes, file: str, start_offset: int,
                   segment_id: bytes | None = None) -> Manifest:
    """Parses a manifest. Ignores unknown fields.

    Raises CorruptDataError (code "manifest") that names the field, also if the manifest belongs to
    another segment than its name says.
    """
    reader = _Manifest(file)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"{file}: the manifest is not JSON: {error}", file=file,
                               position=getattr(error, "pos", 0), expected="JSON",
                               code="manifest") from None
    if not isinstance(value, dict):
        raise reader.wrong("(all)", "an object", value)
    if value.get("version") != _VERSION:
        raise reader.wrong("version", repr(_VERSION), value.get("version"))
    compression = value.get("compression")
    if not isinstance(compression, bool):
        raise reader.wrong("compression", "true or false", compression)
    encryption = None if value.get("encryption") is None else reader.encryption(
        reader.member(value, "encryption"))
    end = max_timestamp = epochs = None
    if value.get("remoteLogSegmentMetadata") is not None:
        known = reader.member(value, "remoteLogSegmentMetadata")
        start = reader.number(known, "startOffset", 0, _INT64_MAX)
        _check_id(reader, known, segment_id)
        if start != start_offset:
            raise reader.wrong("startOffset", str(start_offset), start)
        end = reader.number(known, "endOffset", start, _INT64_MAX)
        max_timestamp = reader.number(known, "maxTimestampMs", -1, _INT64_MAX)
        epochs = reader.epochs(reader.member(known, "segmentLeaderEpochs"))
    return Manifest(reader.chunk_index(reader.member(value, "chunkIndex")),
                    reader.indexes(reader.member(value, "segmentIndexes")), compression,
                    encryption, end, max_timestamp, epochs)


def _check_id(reader: _Manifest, known: Mapping[str, Any], segment_id: bytes | None) -> None:
    """Detects an object that was swapped for another segment's."""
    ids = known.get("remoteLogSegmentId")
    found = ids.get("id") if isinstance(ids, dict) else None
    if segment_id is None or not isinstance(found, str):
        return
    try:
        is_it = len(found) == 22 and id_of(found) == segment_id
    except ValueError:
        is_it = False
    if not is_it:
        raise reader.wrong("remoteLogSegmentId", "the id in the object's name", found)
