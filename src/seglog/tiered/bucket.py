"""A remote tier that is opened for reading, with or without its data directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from typing import Any

from seglog.arguments import given_path
from seglog.errors import (
    IllegalArgumentError, KafkaStorageError, UnknownTopicOrPartitionError,
)
from seglog.forks import SurvivesFork
from seglog.model import TopicPartition
from seglog.objects.urls import is_url
from seglog.storage.log_store import Files
from seglog.storage.handles import shared_cache
from seglog.storage.partition_log import PartitionLog
from seglog.tiered.aiven_layout import AivenLayout
from seglog.tiered.metadata_source import MetadataSource
from seglog.tiered.plain_layout import (
    LOCAL_TIERED_STORAGE, LOCAL_TIERED_STORAGE_DIRECTORY, PINTEREST, PlainLayout, id_of,
)
from seglog.tiered.remote_records import RemoteLogSegmentMetadata
from seglog.tiered.remote_segment import RemotePartition
from seglog.tiered.remote_tree import ListedTree, RemoteTree
from seglog.tiered.segment_selection import TierFinding
from seglog.tiered.tiered_files import TieredFiles

__all__ = ["Bucket", "open_bucket", "tiered_files"]


def open_bucket(path: str | os.PathLike[str], *, layout: str | PlainLayout | None = None,
                keys: Mapping[str, str | bytes] | None = None,
                metadata: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
                storage_options: Mapping[str, str] | None = None) -> Bucket:
    """Opens the place of a broker's remote segments: a directory, or the URL of one.

    `layout` is "local" (Kafka's LocalTieredStorage), "aiven", "pinterest", or a pattern such as
    `{topic}/{partition}/{start_offset}-{segment_id}.{kind}` (see NamePattern); by default it is
    detected. `keys` are the private keys of Aiven's encryption: PEM text, or the path of a file, by
    key id. `metadata` are data directories whose `__remote_log_metadata` says which segments count;
    without them names, manifests and leader epochs decide.

    Raises KafkaStorageError (not readable, or an unknown layout) and IllegalArgumentError (an
    invalid layout or pattern).
    """
    dirs = [metadata] if isinstance(metadata, str | os.PathLike) else list(metadata)
    tree = RemoteTree(path, storage_options)
    source = MetadataSource(*(given_path(one, "metadata") for one in dirs)) if dirs else None
    if layout is not None and not isinstance(layout, str):
        return Bucket(tree, layout, source)
    listed = ListedTree(tree)
    place, chosen = _layout(listed, layout, keys)
    return Bucket(tree, chosen, source, listed) if place is listed else \
        Bucket(place, chosen, source)


def tiered_files(remote: object, directory: str, local: Files,
                 topic_partition: TopicPartition | None,
                 storage_options: Mapping[str, str] | None) -> TieredFiles:
    """The files of a local partition directory and of its tier, for `PartitionLog.open`."""
    if topic_partition is None:
        raise IllegalArgumentError(
            f"{directory} does not say which partition it is: give topic_partition with remote")
    data_dir = os.path.dirname(directory)
    if isinstance(remote, Bucket):
        bucket = remote
    elif isinstance(remote, str | os.PathLike):
        bucket = open_bucket(remote, storage_options=storage_options)
    else:
        raise TypeError(f"remote must be a path, a URL or a Bucket, not {type(remote).__name__}")
    if not is_url(data_dir):
        bucket = bucket.with_metadata_of(data_dir)
    return TieredFiles(bucket, topic_partition, None, directory, local)


class Bucket(SurvivesFork):
    """The remote segments of many partitions, read-only. Picklable, for any thread.

    `log` reads a partition from the bucket alone. `PartitionLog.open(path, remote=bucket)` and
    `open_data_dir(path, remote=bucket)` also read local segments.
    """

    def __init__(self, tree: RemoteTree, layout: PlainLayout, metadata: MetadataSource | None,
                 listed: ListedTree | None = None) -> None:
        self.tree, self.layout, self.metadata = tree, layout, metadata
        self._listed = listed
        self._partitions: list[RemotePartition] | None = None
        self._with_metadata: dict[str, Bucket] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickling lists it again."""
        return type(self), (self.tree, self.layout, self.metadata)

    def __repr__(self) -> str:
        return f"Bucket({self.tree.root!r}, {self.layout.name})"

    def with_metadata_of(self, data_dir: str) -> Bucket:
        """The bucket with the metadata topic of a data directory, unless it has one. Returns the
        same bucket for the same directory, so that all its partitions share one read of the
        topic."""
        if self.metadata is not None:
            return self
        with self._lock:
            found = self._with_metadata.get(data_dir)
            if found is None:
                found = self._with_metadata[data_dir] = Bucket(
                    self.tree, self.layout, MetadataSource(data_dir), self._listed)
            return found

    @property
    def partitions(self) -> list[RemotePartition]:
        """The partitions that have objects, in order, listed now. Raises KafkaStorageError."""
        found = self.layout.partitions(self.tree)
        with self._lock:
            self._partitions = found
        return found

    def log(self, topic: str, partition: int, *, topic_id: str | bytes | None = None,
            log_start_offset: int | None = None) -> PartitionLog:
        """A partition, from the bucket alone.

        `topic_id` chooses between topics that had the same name. A bucket does not contain the log
        start offset: without `log_start_offset`, segments that wait for their deletion are read
        too.

        Raises UnknownTopicOrPartitionError if there is none, IllegalArgumentError if there are
        several of that name, KafkaStorageError.
        """
        wanted = id_of(topic_id) if isinstance(topic_id, str) else topic_id
        key = TopicPartition(topic, partition)
        found = self.find(key, wanted)
        if found is None:
            names = ", ".join(map(str, self.partitions[:8]))
            raise UnknownTopicOrPartitionError(
                f"{self.tree.root} holds no segment of {key}; it holds {names or 'no partition'}")
        where = TieredFiles(self, key, found.topic_id, self.tree.path(found.directory), None)
        return PartitionLog(where.directory, shared_cache(), log_start_offset, key, None, where)

    def find(self, topic_partition: TopicPartition, topic_id: bytes | None
             ) -> RemotePartition | None:
        """The directory of a partition; None if it has none."""
        with self._lock:
            if self._partitions is None and self._listed is not None:
                self._partitions = self.layout.partitions(self._listed)
            self._listed = None
            known = self._partitions
        if known is None:
            return self._one_of(self.partitions, topic_partition, topic_id)
        found = self._one_of(known, topic_partition, topic_id)
        if found is not None:
            return found
        # It may be tiered since. To list all partitions takes a request for each topic.
        named = None if topic_id is None else self.layout.partition_named(topic_partition, topic_id)
        if named is None:
            return self._one_of(self.partitions, topic_partition, topic_id)
        if not self.tree.list(named.directory)[0]:
            return None
        with self._lock:
            self._partitions = [*(self._partitions or ()), named]
        return named

    def _one_of(self, partitions: Sequence[RemotePartition], topic_partition: TopicPartition,
                topic_id: bytes | None) -> RemotePartition | None:
        """Raises IllegalArgumentError for several."""
        found = [one for one in partitions
                 if TopicPartition(one.topic, one.partition) == topic_partition
                 and (topic_id is None or one.topic_id in (None, topic_id))]
        if len(found) > 1:
            names = ", ".join(sorted(one.directory for one in found))
            advice = "give topic_id" if len({one.topic_id for one in found}) > 1 else \
                "name one directory in the path or in the pattern"
            raise IllegalArgumentError(f"{self.tree.root} holds several topics of the name "
                                       f"{topic_partition.topic}: {names}; {advice}")
        return found[0] if found else None

    def announced(self, topic_partition: TopicPartition, topic_id: bytes | None
                  ) -> tuple[list[RemoteLogSegmentMetadata] | None, tuple[TierFinding, ...]]:
        """The metadata topic's segments of a partition; None without the topic."""
        return (None, ()) if self.metadata is None else self.metadata.announced(
            topic_partition, topic_id)


def _layout(tree: RemoteTree, name: str | None, keys: Mapping[str, str | bytes] | None
            ) -> tuple[RemoteTree, PlainLayout]:
    """The layout of that name, or the one detected from the names in the tree."""
    if name is not None and "{" in name:
        return tree, PlainLayout("pattern", name)
    layouts = (LOCAL_TIERED_STORAGE, AivenLayout(keys), PINTEREST)
    known: dict[str, PlainLayout] = {one.name: one for one in layouts}
    if name is not None and name not in known:
        raise IllegalArgumentError(f"layout {name!r} is neither {', '.join(known)} nor a pattern "
                                   "with fields in braces")
    objects, directories = tree.list()
    if name in (None, LOCAL_TIERED_STORAGE.name) and LOCAL_TIERED_STORAGE_DIRECTORY in directories:
        return tree.below(LOCAL_TIERED_STORAGE_DIRECTORY), LOCAL_TIERED_STORAGE
    if name is not None:
        return tree, known[name]
    for layout in known.values():
        if layout.recognises(tree):
            return tree, layout
    if not objects and not directories:
        raise KafkaStorageError(errno.ENOENT, "no such directory: there is no object below this "
                                "path", tree.root)
    shown = ", ".join(repr(one) for one in sorted([*directories, *objects])[:3])
    raise KafkaStorageError(
        errno.EINVAL, f"these are not the remote segments of a known layout ({', '.join(known)}): "
        f"found {shown}; name the layout, or give a pattern of the names", tree.root)

