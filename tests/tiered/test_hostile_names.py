"""Names in a tier that no writer gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import RemoteStorageError
from seglog.tiered import (
    LayoutStorageManager, LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteTree,
    TopicIdPartition,
)
from seglog.tiered.plain_layout import LOCAL_TIERED_STORAGE, PINTEREST, PlainLayout
from seglog.tiered.remote_records import id_text


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(name.encode())


def keys(layout: PlainLayout, root: Path) -> list[dict[str, str]]:
    tree = RemoteTree(root)
    partition, = layout.partitions(tree)
    return [{kind: one.key for kind, one in segment.objects.items()}
            for segment in layout.listed(tree, partition)]


def test_two_names_of_one_offset(tmp_path: Path) -> None:
    """The one had the index of the other, or was not listed at all."""
    write(tmp_path, "t-0/0.log", "t-0/00.log", "t-0/0.index", "t-0/1.log")
    assert keys(PINTEREST, tmp_path) == [
        {"log": "t-0/0.log", "index": "t-0/0.index"}, {"log": "t-0/00.log"}, {"log": "t-0/1.log"}]


def test_two_names_of_one_segment(tmp_path: Path) -> None:
    """The last digit of an id in a name has four bits that are not the id's."""
    name, start = id_text(bytes(16)), f"{0:020d}"
    other = name[:-1] + "B"
    write(tmp_path, *(f"t-0-{name}/{start}-{one}.{kind}" for one in (name, other)
                      for kind in ("log", "index")))
    assert keys(LOCAL_TIERED_STORAGE, tmp_path) == [
        {kind: f"t-0-{name}/{start}-{one}.{kind}" for kind in ("index", "log")}
        for one in (name, other)]


def test_two_names_that_differ_in_what_the_pattern_ignores(tmp_path: Path) -> None:
    write(tmp_path, "t-0/a-5.log", "t-0/b-5.log", "t-0/b-5.index")
    assert len(keys(PlainLayout("own", "{topic}-{partition}/{any}-{start_offset}.{kind}"),
                    tmp_path)) == 2


@pytest.mark.parametrize("topic", ["../../outside", "/outside", "a\0b", "x/../../../outside"])
def test_a_topic_that_leaves_the_tree(tmp_path: Path, topic: str) -> None:
    """Topic names in records of the metadata topic are any text."""
    root = tmp_path / "remote" / "tree"
    root.mkdir(parents=True)
    log = tmp_path / "log"
    log.write_bytes(b"content")
    before = sorted(tmp_path.rglob("*"))
    storage = LayoutStorageManager(RemoteTree(root))
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(TopicIdPartition(bytes(16), topic, 0), bytes(16)), 0, 9, 0, 1, 0, 7,
        {0: 0})
    data = LogSegmentData(str(log), str(log), str(log), None, str(log), b"0\n0\n")
    for act in (lambda: storage.copy_log_segment_data(metadata, data),
                lambda: storage.delete_log_segment_data(metadata),
                lambda: storage.fetch_log_segment(metadata, 0)):
        with pytest.raises(RemoteStorageError, match="not the name of an object"):
            act()
    assert sorted(tmp_path.rglob("*")) == before
