"""Writes segments in the layout of Aiven's plug-in, which refuses unknown fields."""

from __future__ import annotations

import base64
import json
import os
import struct
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from seglog.errors import IllegalArgumentError
from seglog.storage import codecs
from seglog.tiered.aiven_layout import INDEXES, MANIFEST, AivenLayout
from seglog.tiered.plain_layout import LOG, WritableLayout
from seglog.tiered.remote_records import RemoteLogSegmentMetadata, id_text
from seglog.tiered.remote_storage import IndexType, LogSegmentData
from seglog.tiered.remote_tree import RemoteTree

if TYPE_CHECKING:
    from seglog.tiered.aiven_cipher import DataKey

__all__ = ["AivenWriter", "encode_chunk_sizes", "zstd_frame"]

_CHUNK_BYTES_MAX: Final = 1_073_741_823
_SUFFIXES: Final = (MANIFEST, INDEXES, LOG)


class AivenWriter(AivenLayout, WritableLayout):
    """`chunk_size` (4 MiB) is the plug-in's `chunk.size`, `compression` its `compression.enabled`.
    With `key_id`, one of `keys`, segments are encrypted.

    Raises IllegalArgumentError for a chunk size that the plug-in refuses.
    """

    def __init__(self, keys: Mapping[str, str | bytes] | None = None, prefix: str = "", *,
                 chunk_size: int = 4 << 20, compression: bool = False,
                 key_id: str | None = None) -> None:
        super().__init__(keys, prefix)
        if not 1 <= chunk_size <= _CHUNK_BYTES_MAX:
            raise IllegalArgumentError(f"chunk_size {chunk_size} is not from 1 to "
                                       f"{_CHUNK_BYTES_MAX}")
        self.chunk_size, self.compression, self.key_id = chunk_size, compression, key_id

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with the keys."""
        return partial(AivenWriter, self.keys, self.prefix, chunk_size=self.chunk_size,
                       compression=self.compression, key_id=self.key_id), ()

    def keys_of(self, metadata: RemoteLogSegmentMetadata) -> list[str]:
        """See WritableLayout."""
        stem = self.stem(metadata)
        return [f"{stem}.{suffix}" for suffix in _SUFFIXES]

    def write(self, tree: RemoteTree, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
              ) -> bytes | None:
        """See WritableLayout: log, indexes, manifest. No custom metadata.

        A transformed log is written to a temporary file, chunk by chunk.
        """
        key, encryption = self._new_key()
        stem = self.stem(metadata)
        manifest: dict[str, Any] = {"version": "1"}
        if encryption is not None:  # a manifest of an earlier copy has another key
            tree.delete(f"{stem}.{MANIFEST}")
        manifest["chunkIndex"] = self._write_log(tree, f"{stem}.{LOG}", data.log_segment, key)
        manifest["segmentIndexes"] = self._write_indexes(tree, f"{stem}.{INDEXES}", data, key)
        manifest["compression"] = self.compression
        if encryption is not None:
            manifest["encryption"] = encryption
        manifest["remoteLogSegmentMetadata"] = _described(metadata)
        tree.write(f"{stem}.{MANIFEST}", json.dumps(manifest).encode())
        self._forget(tree.path(f"{stem}.{MANIFEST}"))
        return None

    def _new_key(self) -> tuple[DataKey | None, dict[str, str] | None]:
        if self.key_id is None:
            return None, None
        ring = self.ring()
        from seglog.tiered.aiven_cipher import DataKey

        data_key, aad = os.urandom(32), os.urandom(32)
        wrapped = base64.b64encode(ring.wrap(self.key_id, data_key)).decode()
        return DataKey(data_key, aad), {"dataKey": f"{self.key_id}:{wrapped}",
                                        "aad": base64.b64encode(aad).decode()}

    def _write_log(self, tree: RemoteTree, key: str, source: str, data_key: DataKey | None
                   ) -> dict[str, Any]:
        file_size = os.path.getsize(source)
        if not self.compression and data_key is None:
            tree.write(key, Path(source))
            sizes = [min(self.chunk_size, file_size - start)
                     for start in range(0, file_size, self.chunk_size)]
        else:
            with tempfile.NamedTemporaryFile(prefix="seglog-", suffix=".log") as out:
                sizes = self._transform(source, out, data_key)
                tree.write(key, Path(out.name))
        index: dict[str, Any] = {"originalChunkSize": self.chunk_size if file_size else 0,
                                 "originalFileSize": file_size}
        if self.compression and file_size:
            frame = zstd_frame(encode_chunk_sizes(sizes))
            return {"type": "variable", **index,
                    "transformedChunks": base64.b64encode(frame).decode()}
        return {"type": "fixed", **index, "transformedChunkSize": sizes[0] if sizes else 0,
                "finalTransformedChunkSize": sizes[-1] if sizes else 0}

    def _transform(self, source: str, out: IO[bytes], data_key: DataKey | None) -> list[int]:
        """Writes the chunks of a log as they are stored; their sizes."""
        sizes = []
        with open(source, "rb") as stream:
            while chunk := stream.read(self.chunk_size):
                stored = zstd_frame(chunk) if self.compression else chunk
                if data_key is not None:
                    stored = data_key.encrypt(stored)
                out.write(stored)
                sizes.append(len(stored))
        out.flush()
        return sizes

    def _write_indexes(self, tree: RemoteTree, key: str, data: LogSegmentData,
                       data_key: DataKey | None) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        joined = bytearray()
        for kind, content in ((IndexType.OFFSET, _content(data.offset_index)),
                              (IndexType.TIMESTAMP, _content(data.time_index)),
                              (IndexType.PRODUCER_SNAPSHOT, _content(data.producer_snapshot_index)),
                              (IndexType.LEADER_EPOCH, data.leader_epoch_index),
                              (IndexType.TRANSACTION, _content(data.transaction_index))):
            if content is None:
                parts[kind.value] = None
                continue
            if content and data_key is not None:
                content = data_key.encrypt(content)
            parts[kind.value] = {"position": len(joined), "size": len(content)}
            joined += content
        tree.write(key, bytes(joined))
        return parts


def encode_chunk_sizes(sizes: Sequence[int]) -> bytes:
    """Encodes the sizes of stored chunks, before compression: the smallest of all but the last, the
    differences of the others to it, and the last."""
    head = struct.pack(">i", len(sizes))
    if len(sizes) < 2:
        return head + b"".join(struct.pack(">i", size) for size in sizes)
    base = min(sizes[:-1])
    width = max(1, (max(sizes[:-1]) - base).bit_length() + 7 >> 3)
    return b"".join((head, struct.pack(">iB", base, width),
                     *((size - base).to_bytes(width, "big") for size in sizes[:-1]),
                     struct.pack(">i", sizes[-1])))


def _content(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


def _described(metadata: RemoteLogSegmentMetadata) -> dict[str, Any]:
    segment_id = metadata.remote_log_segment_id
    partition = segment_id.topic_id_partition
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": id_text(partition.topic_id),
                "topicPartition": {"topic": partition.topic, "partition": partition.partition}},
            "id": id_text(segment_id.id)},
        "startOffset": metadata.start_offset, "endOffset": metadata.end_offset,
        "maxTimestampMs": metadata.max_timestamp_ms, "brokerId": metadata.broker_id,
        "eventTimestampMs": metadata.event_timestamp_ms,
        "segmentLeaderEpochs": {str(epoch): offset
                                for epoch, offset in metadata.segment_leader_epochs}}


def zstd_frame(data: bytes | memoryview) -> bytes:
    """One zstd frame that states how many bytes it holds (RFC 8878, 3.1.1.1), of less than 4 GiB.

    The streaming encoder omits the size, so the flag and the field are put into its header.
    """
    frame = codecs.compress(codecs.ZSTD, data)
    descriptor = frame[4]
    if descriptor >> 6 or descriptor & 0x20:
        return frame
    window_end = 6
    return b"".join((frame[:4], bytes((descriptor | 0x80,)), frame[5:window_end],
                     memoryview(data).nbytes.to_bytes(4, "little"), frame[window_end:]))
