"""A RemoteStorageManager over a directory, in the layout of Kafka's LocalTieredStorage."""

from __future__ import annotations

import shutil
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from seglog.errors import RemoteResourceNotFoundError, RemoteStorageError
from seglog.tiered import RemoteLogSegmentMetadata
from seglog.tiered.remote_storage import IndexType, LogSegmentData

SUFFIXES = {IndexType.OFFSET: ".index", IndexType.TIMESTAMP: ".timeindex",
            IndexType.TRANSACTION: ".txnindex", IndexType.PRODUCER_SNAPSHOT: ".snapshot",
            IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint"}


def text(raw: bytes) -> str:
    return urlsafe_b64encode(raw)[:22].decode()


class LocalTieredStorage:
    """`fail` (what a call raises, by its name) is for tests; `calls` counts them."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root
        self.fail: dict[str, list[Exception]] = {}
        self.calls: dict[str, int] = {}
        self.custom: bytes | None = None
        self.is_closed = False

    def configure(self, properties: Mapping[str, object]) -> None:
        self.root = Path(str(properties["dir"])) / "kafka-tiered-storage"

    def close(self) -> None:
        self.is_closed = True

    def _called(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.fail.get(name):
            raise self.fail[name].pop(0)

    def path(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> Path:
        assert self.root is not None
        key = metadata.topic_id_partition
        return (self.root / f"{key.topic}-{key.partition}-{text(key.topic_id)}" /
                f"{metadata.start_offset:020d}-{text(metadata.remote_log_segment_id.id)}{suffix}")

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata,
                              data: LogSegmentData) -> bytes | None:
        sources = {".log": data.log_segment, ".index": data.offset_index,
                   ".timeindex": data.time_index, ".snapshot": data.producer_snapshot_index}
        if data.transaction_index is not None:
            sources[".txnindex"] = data.transaction_index
        self.path(metadata, "").parent.mkdir(parents=True, exist_ok=True)
        for suffix, source in sources.items():
            shutil.copyfile(source, self.path(metadata, suffix))
        self.path(metadata, ".leader_epoch_checkpoint").write_bytes(data.leader_epoch_index)
        self._called("copy")  # fails behind the work, as an upload does that breaks off
        return self.custom

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start_position: int,
                          end_position: int | None = None) -> BinaryIO:
        self._called("fetch")
        found = self._open(self.path(metadata, ".log"))
        found.seek(start_position)
        return found

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        self._called("index")
        return self._open(self.path(metadata, SUFFIXES[index_type]))

    def _open(self, path: Path) -> BinaryIO:
        try:
            return open(path, "rb")
        except FileNotFoundError as error:
            raise RemoteResourceNotFoundError(f"{path} is not there") from error

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._called("delete")
        for suffix in (".log", *SUFFIXES.values()):
            self.path(metadata, suffix).unlink(missing_ok=True)

    def starts(self) -> list[int]:
        """First offsets of the stored segments."""
        assert self.root is not None
        return sorted(int(path.name[:20]) for path in self.root.rglob("*.log"))


def refused(message: str) -> RemoteStorageError:
    return RemoteStorageError(message)
