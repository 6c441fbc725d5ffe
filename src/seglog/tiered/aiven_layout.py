"""The layout of Aiven's tiered storage for Apache Kafka: three objects a segment (log, indexes,
manifest)."""

from __future__ import annotations

import errno
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from seglog.errors import CorruptDataError, DecompressionError, KafkaStorageError
from seglog.forks import SurvivesFork
from seglog.objects.store import Block, ObjectVersion
from seglog.storage import codecs
from seglog.storage.log_store import LogFile
from seglog.tiered.aiven_manifest import Encryption, Manifest, parse_manifest
from seglog.tiered.chunked_log import ChunkedLog, chunk_error
from seglog.tiered.plain_layout import LOG, PlainLayout
from seglog.tiered.remote_records import RemoteLogSegmentMetadata, id_text
from seglog.tiered.remote_segment import (
    RemotePartition, RemoteSegment, StoredObject, announced_segment, check_index_size,
)
from seglog.tiered.remote_storage import IndexType
from seglog.tiered.remote_tree import RemoteTree

if TYPE_CHECKING:
    from seglog.tiered.aiven_cipher import DataKey, KeyRing

__all__ = ["AivenLayout"]

INDEXES: Final = "indexes"
MANIFEST: Final = "rsm-manifest"
_MANIFEST_BYTES_MAX: Final = 16 << 20
_MANIFESTS_KEPT: Final = 1024
#: Of all kept manifests together: of segments of 2 GiB in chunks of 4 MiB, eight times as many.
_CHUNKS_KEPT: Final = 1 << 22

#: The path of a manifest, and the versions of its segment's objects.
_Key = tuple[str, tuple[ObjectVersion, ...]]


class AivenLayout(SurvivesFork, PlainLayout):
    """`keys` are RSA keys in PEM, or paths of such files, by their id; private ones decrypt.
    `prefix` is put before the topic, without a separator.

    A segment counts if its manifest exists, which is written last.
    """

    def __init__(self, keys: Mapping[str, str | bytes] | None = None, prefix: str = "") -> None:
        if "{" in prefix or "}" in prefix:
            raise ValueError(f"prefix {prefix!r}: braces are not supported")
        super().__init__("aiven", prefix + "{topic}-{topic_id}/{partition}/"
                         "{start_offset}-{segment_id}.{kind}", (INDEXES, MANIFEST))
        self.keys, self.prefix = dict(keys or {}), prefix
        self._manifests: OrderedDict[_Key, Manifest] = OrderedDict()
        self._chunks_kept = 0
        self._data_keys: dict[Encryption, DataKey] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with the keys."""
        return type(self), (self.keys, self.prefix)

    def __repr__(self) -> str:
        return f"AivenLayout({sorted(self.keys)}, {self.prefix!r})"

    def segments(self, tree: RemoteTree, partition: RemotePartition) -> list[RemoteSegment]:
        """See PlainLayout."""
        return [replace(one, size=None) for one in super().segments(tree, partition)]

    def stem(self, metadata: RemoteLogSegmentMetadata) -> str:
        """The keys of a segment's objects, but for their suffix."""
        partition = metadata.topic_id_partition
        return (f"{self.prefix}{partition.topic}-{id_text(partition.topic_id)}/"
                f"{partition.partition}/{metadata.start_offset:020d}-"
                f"{id_text(metadata.remote_log_segment_id.id)}")

    def named(self, tree: RemoteTree, metadata: RemoteLogSegmentMetadata) -> RemoteSegment:
        """See PlainLayout. Reads the manifest, unless it is known."""
        stem = self.stem(metadata)
        manifest = StoredObject(f"{stem}.{MANIFEST}", ObjectVersion(0))  # read at any size
        objects = {kind: StoredObject(f"{stem}.{kind}", tree.version(f"{stem}.{kind}"))
                   for kind in (LOG, INDEXES)}
        segment = announced_segment(metadata, {MANIFEST: manifest, **objects}, None)
        self.manifest(tree, segment)
        return segment

    def described(self, tree: RemoteTree, segment: RemoteSegment) -> RemoteSegment:
        """See PlainLayout: from the manifest."""
        manifest = self.manifest(tree, segment)
        return replace(
            segment, size=manifest.chunks.file_size,
            end_offset=segment.end_offset if manifest.end_offset is None else manifest.end_offset,
            max_timestamp_ms=manifest.max_timestamp_ms, epochs=manifest.epochs)

    def open_log(self, tree: RemoteTree, segment: RemoteSegment) -> LogFile:
        """See PlainLayout. A log that is neither compressed nor encrypted is read directly."""
        manifest, log = self.manifest(tree, segment), segment.objects[LOG]
        chunks, path = manifest.chunks, tree.path(log.key)
        announced = segment.announced
        if announced is not None and announced.segment_size_in_bytes != chunks.file_size:
            raise chunk_error(
                tree.path(segment.objects[MANIFEST].key), 0, "object_size",
                f"the manifest says that the log has {chunks.file_size} bytes, "
                f"{announced.segment_size_in_bytes} were announced",
                announced.segment_size_in_bytes, chunks.file_size)
        if log.version.size > chunks.positions[-1]:
            raise chunk_error(path, chunks.positions[-1], "object_size",
                              f"the object has {log.version.size} bytes, the manifest has chunks "
                              f"for {chunks.positions[-1]}", chunks.positions[-1], log.version.size)
        if not manifest.compression and manifest.encryption is None and \
                log.version.size == chunks.file_size:
            return tree.files.open_log(path, log.version)
        key = self._data_key(manifest, path)
        return ChunkedLog(tree, log, chunks, partial(_decode, key, manifest.compression))

    def has_index(self, segment: RemoteSegment, kind: IndexType) -> bool:
        """See PlainLayout: only the manifest or the metadata topic know whether there is a
        transaction index."""
        return kind is not IndexType.TRANSACTION or segment.announced is None or \
            not segment.announced.txn_idx_empty

    def index(self, tree: RemoteTree, segment: RemoteSegment, kind: IndexType) -> Block | None:
        """See PlainLayout."""
        manifest, stored = self.manifest(tree, segment), segment.objects[INDEXES]
        part = manifest.indexes.get(kind)
        if part is None:
            return None
        position, size = part
        if not size:
            return b""
        path = tree.path(stored.key)
        check_index_size(path, kind, size, position)
        if position + size > stored.version.size:
            raise chunk_error(path, position, "object_size",
                              f"the manifest says that the {kind.value} index ends at byte "
                              f"{position + size}, the object has {stored.version.size}",
                              position + size, stored.version.size)
        data = tree.read(stored.key, position, position + size, stored.version)
        key = self._data_key(manifest, path)
        if key is None:
            return data
        try:
            return key.decrypt(memoryview(data).cast("B"))
        except ValueError as error:
            raise chunk_error(path, position, "chunk",
                              f"the {kind.value} index does not decode: {error}") from None

    def replace_indexes(self, tree: RemoteTree, segment: RemoteSegment,
                        contents: Mapping[IndexType, bytes]) -> None:
        """Replaces these indexes, encrypted as the segment is: the object of all indexes, then the
        manifest, which says where each lies. KafkaStorageError."""
        manifest, stored = self.manifest(tree, segment), segment.objects[INDEXES]
        key = self._data_key(manifest, tree.path(stored.key))
        parts: dict[str, Any] = {}
        joined = bytearray()
        for kind in IndexType:
            part = manifest.indexes.get(kind)
            content = contents.get(kind)
            if content is not None:
                data = content if key is None or not content else key.encrypt(content)
            elif part is None:
                parts[kind.value] = None
                continue
            else:
                data = bytes(memoryview(tree.read(
                    stored.key, part[0], sum(part), stored.version))) if part[1] else b""
            parts[kind.value] = {"position": len(joined), "size": len(data)}
            joined += data
        name = segment.objects[MANIFEST].key
        text, _ = tree.beginning(name, _MANIFEST_BYTES_MAX) or (b"", 0)
        described = json.loads(bytes(memoryview(text)))
        described["segmentIndexes"] = parts
        tree.write(stored.key, bytes(joined))
        tree.write(name, json.dumps(described).encode())
        self._forget(tree.path(name))

    # ---- parts

    def manifest(self, tree: RemoteTree, segment: RemoteSegment) -> Manifest:
        """The manifest of a segment, cached as long as the segment's objects have these versions:
        indexes may be rebuilt. Raises KafkaStorageError, with code "manifest" for an invalid
        one."""
        stored = segment.objects[MANIFEST]
        path = tree.path(stored.key)
        key = path, tuple(one.version for _, one in sorted(segment.objects.items()))
        with self._lock:
            known = self._manifests.get(key)
            if known is not None:
                self._manifests.move_to_end(key)
                return known
        found = tree.beginning(stored.key, _MANIFEST_BYTES_MAX)
        if found is None:
            raise KafkaStorageError(errno.ENOENT, "no such object, or no longer", path, position=0,
                                    code="file_missing")
        content, size = found
        if size > _MANIFEST_BYTES_MAX:
            raise chunk_error(path, 0, "manifest", f"the manifest has {size} bytes",
                              _MANIFEST_BYTES_MAX, size)
        try:
            manifest = parse_manifest(bytes(memoryview(content)), path, segment.start_offset,
                                      segment.segment_id)
        except CorruptDataError as error:
            raise chunk_error(path, error.position or 0, error.code, str(error), error.expected,
                              error.found) from None
        self._keep(key, manifest)
        return manifest

    def _keep(self, key: _Key, manifest: Manifest) -> None:
        with self._lock:
            self._drop(key)
            self._manifests[key] = manifest
            self._chunks_kept += manifest.chunks.count
            while len(self._manifests) > _MANIFESTS_KEPT or \
                    self._chunks_kept > _CHUNKS_KEPT and self._manifests:
                self._drop(next(iter(self._manifests)))

    def _forget(self, path: str) -> None:
        """Drops the manifest of an object that was written."""
        with self._lock:
            for key in [one for one in self._manifests if one[0] == path]:
                self._drop(key)

    def _drop(self, key: _Key) -> None:
        gone = self._manifests.pop(key, None)
        if gone is not None:
            self._chunks_kept -= gone.chunks.count

    def ring(self) -> KeyRing:
        """The keys. Raises KafkaStorageError if `cryptography` is not installed, ValueError for an
        invalid PEM."""
        try:
            from seglog.tiered.aiven_cipher import KeyRing
        except ModuleNotFoundError as error:
            raise KafkaStorageError(
                errno.EINVAL, f"encrypted segments need {error.name}: pip install "
                "'seglog[aiven]'") from None
        return KeyRing(self.keys)

    def _data_key(self, manifest: Manifest, path: str) -> DataKey | None:
        encryption = manifest.encryption
        if encryption is None:
            return None
        with self._lock:
            known = self._data_keys.get(encryption)
        if known is not None:
            return known
        ring = self.ring()
        from seglog.tiered.aiven_cipher import DataKey

        try:
            key = DataKey(ring.unwrap(encryption.key_id, encryption.wrapped_key), encryption.aad)
        except ValueError as error:
            raise chunk_error(path, 0, "encryption_key", str(error)) from None
        with self._lock:
            if len(self._data_keys) >= _MANIFESTS_KEPT:
                self._data_keys.clear()
            self._data_keys[encryption] = key
        return key


def _decode(key: DataKey | None, is_compressed: bool, data: memoryview, into: memoryview) -> int:
    """See Decode."""
    plain: Block = data if key is None else key.decrypt(data)
    if not is_compressed:
        view = memoryview(plain)
        if len(view) == len(into):
            into[:] = view
        return len(view)
    try:
        return len(codecs.decompress(codecs.ZSTD, 2, memoryview(plain), into=into,
                                     max_bytes=len(into)))
    except DecompressionError as error:
        raise ValueError(str(error)) from None
