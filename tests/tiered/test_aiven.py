"""Aiven's layout against a writer and a reader made from its description."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs cryptography (the extra [aiven])")
pytest.importorskip("Crypto", reason="needs pycryptodome (the extra [aiven])")
pytest.importorskip("pyarrow", reason="needs pyarrow, whose zstd is independent")

from seglog.errors import CorruptDataError, KafkaStorageError, SeglogError
from seglog.tiered import (
    AivenWriter, LayoutStorageManager, RemoteTree, aiven_layout, chunked_log, open_bucket,
)
from seglog.tiered.aiven_layout import AivenLayout
from seglog.tiered.aiven_manifest import parse_manifest
from seglog.tiered.remote_storage import IndexType
from seglog.tiered.tier_check import check_partition
from seglog.tiered.tiered_files import TieredFiles
from seglog.storage.partition_log import PartitionLog
from tests.tiered import aiven_by_hand as by_hand
from tests.tiered.conftest import Tiered, read
from tests.tiered.test_storage_manager import announced, data_of

KEY, PEM = by_hand.key_pair()
OTHER_KEY, OTHER_PEM = by_hand.key_pair()
FORMS = [pytest.param(compress, encrypt, id=f"{'zstd' if compress else 'raw'}-"
                      f"{'encrypted' if encrypt else 'plain'}")
         for compress in (False, True) for encrypt in (False, True)]


def build(tiered: Tiered, root: Path, name: str, *, compress: bool = False, encrypt: bool = False,
          chunk_size: int = 1000, metadata: bool = True, prefix: str = "") -> list[Path]:
    """The tiered segments of a partition in Aiven's layout; the manifests by start offset."""
    logs = tiered.objects(name)
    starts = {int(path.stem[:20]) for path in logs}
    found = []
    for path in logs:
        end = min((one for one in starts if one > int(path.stem[:20])), default=None)
        if end is None:
            end = PartitionLog.open(tiered.data / name, remote=tiered.remote).segments[
                -1].base_offset
        found.append(by_hand.write_segment(
            root, path, chunk_size=chunk_size, compress=compress, metadata=metadata, prefix=prefix,
            key=("k1", KEY) if encrypt else None, end_offset=end - 1))
    return found


@pytest.mark.parametrize(("compress", "encrypt"), FORMS)
@pytest.mark.parametrize("name", ["t-gzip-0", "t-txn-0", "t-epochs-0"])
@pytest.mark.parametrize("with_local", [False, True])
def test_every_form_gives_what_consumers_got(tiered: Tiered, tmp_path: Path, name: str,
                                             compress: bool, encrypt: bool, with_local: bool
                                             ) -> None:
    build(tiered, tmp_path, name, compress=compress, encrypt=encrypt)
    bucket = open_bucket(tmp_path, keys={"k1": PEM})
    assert bucket.layout.name == "aiven"
    topic, _, partition = name.rpartition("-")
    log = PartitionLog.open(tiered.data / name, remote=bucket) if with_local \
        else bucket.log(topic, int(partition))
    for isolation in ("read_uncommitted", "read_committed"):
        end = log.end_offset(isolation)
        expected = [row for row in tiered.rows(name, isolation) if row.offset < end]
        assert expected
        assert read(log, isolation) == expected
        assert read(log, isolation, threads=2) == expected
    if with_local:
        assert log.log_end_offset == tiered.marks()[name][1]
    found = log.offset_for_timestamp(expected[len(expected) // 2].timestamp)
    assert found is not None


@pytest.mark.parametrize("chunk_size", [1, 7, 4096, 1 << 20, (1 << 30) - 1])
@pytest.mark.parametrize("metadata", [False, True])
def test_any_chunk_size_with_and_without_metadata(tiered: Tiered, tmp_path: Path, chunk_size: int,
                                                  metadata: bool) -> None:
    """Down to a last chunk of one byte, up to a chunk larger than the file."""
    build(tiered, tmp_path, "t-zstd-0", compress=chunk_size > 6, metadata=metadata,
          chunk_size=chunk_size)
    log = open_bucket(tmp_path).log("t-zstd", 0)
    assert read(log) == [row for row in tiered.rows("t-zstd-0", "read_uncommitted")
                         if row.offset < log.log_end_offset]
    assert log.log_end_offset == 200


@pytest.mark.parametrize(("compress", "encrypt"), FORMS)
def test_many_runs_of_chunks(tiered: Tiered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                             compress: bool, encrypt: bool) -> None:
    """Each chunk is a request of its own, and its buffer is used again: in order, by two threads,
    and by ranges that skip chunks."""
    monkeypatch.setattr(chunked_log, "BLOCK_BYTES", 1)
    build(tiered, tmp_path, "t-gzip-0", compress=compress, encrypt=encrypt, chunk_size=300)
    log = open_bucket(tmp_path, keys={"k1": PEM}).log("t-gzip", 0)
    expected = [row for row in tiered.rows("t-gzip-0", "read_uncommitted")
                if row.offset < log.log_end_offset]
    assert len(expected) > 100
    assert read(log) == read(log, threads=2) == expected
    for start in range(0, log.log_end_offset, 17):
        found = next(iter(log.to_arrow(start, columns=["offset", "value"]))).to_pylists()
        assert list(zip(found["offset"], found["value"], strict=True)) == [
            (row.offset, row.value) for row in expected if row.offset >= start][
                :len(found["offset"])]


def test_a_prefix_without_a_slash(tiered: Tiered, tmp_path: Path) -> None:
    build(tiered, tmp_path, "t-zstd-0", prefix="pre_")
    log = open_bucket(tmp_path, layout=AivenLayout(prefix="pre_")).log("t-zstd", 0)
    assert log.log_end_offset == 200


def test_vectors_of_chunk_sizes() -> None:
    """Known answers of the writer that the package is held against."""
    for sizes, text in (([7], "0000000100000007"),
                        ([100, 101, 350, 7], "0000000400000064010001fa00000007"),
                        ([100, 1000, 5], "0000000300000064020000038400000005")):
        assert by_hand.packed_sizes(sizes).hex() == text


def change(path: Path, **fields: Any) -> None:
    manifest = json.loads(path.read_text())
    for name, value in fields.items():
        owner = manifest
        *parents, last = name.split("__")
        for parent in parents:
            owner = owner[parent]
        owner[last] = value
    path.write_text(json.dumps(manifest))


LIES: list[tuple[str, dict[str, Any], str]] = [
    ("version", {"version": "2"}, "manifest"),
    ("chunk size past 2^31", {"chunkIndex__originalChunkSize": 1 << 31}, "manifest"),
    ("file size past 2^31", {"chunkIndex__originalFileSize": 1 << 31}, "manifest"),
    ("chunk size 0", {"chunkIndex__originalChunkSize": 0}, "manifest"),
    ("negative", {"chunkIndex__transformedChunkSize": -1}, "manifest"),
    ("not a number", {"chunkIndex__transformedChunkSize": "1000"}, "manifest"),
    ("a boolean", {"chunkIndex__originalFileSize": True}, "manifest"),
    ("unknown type", {"chunkIndex__type": "other"}, "manifest"),
    ("no indexes", {"segmentIndexes": None}, "manifest"),
    ("an index past the object", {"segmentIndexes__leaderEpoch__size": 1 << 20}, "object_size"),
    ("no compression flag", {"compression": None}, "manifest"),
    ("another start", {"remoteLogSegmentMetadata__startOffset": 5}, "manifest"),
    ("an end before the start", {"remoteLogSegmentMetadata__endOffset": 1}, "manifest"),
    ("no epochs", {"remoteLogSegmentMetadata__segmentLeaderEpochs": {}}, "manifest"),
    ("a wrong epoch", {"remoteLogSegmentMetadata__segmentLeaderEpochs": {"x": 1}}, "manifest"),
    ("an epoch of 5000 digits", {"remoteLogSegmentMetadata__segmentLeaderEpochs": {
        "9" * 5000: 46}}, "manifest"),
    ("an epoch twice", {"remoteLogSegmentMetadata__segmentLeaderEpochs": {
        "0": 46, "00": 50}}, "manifest"),
    ("file larger than its chunks", {"chunkIndex__originalFileSize": 1 << 30}, "object_size"),
]


@pytest.mark.parametrize(("fields", "code"), [pytest.param(fields, code, id=name)
                                              for name, fields, code in LIES])
def test_manifests_that_lie(tiered: Tiered, tmp_path: Path, fields: dict[str, Any], code: str
                            ) -> None:
    """The segment cannot be read: an error that names the object for a strict reader, a gap for one
    that skips damage, and everything else is there."""
    name = "t-gzip-0"
    manifests = build(tiered, tmp_path, name, chunk_size=1000)
    change(manifests[1], **fields)
    log = open_bucket(tmp_path).log("t-gzip", 0)
    rows = [row for row in tiered.rows(name, "read_uncommitted")
            if row.offset < log.log_end_offset]
    if code == "object_size" and "segmentIndexes__leaderEpoch__size" in fields:
        assert read(log) == rows
        return
    with pytest.raises(SeglogError, match="00000000000000000046|offsets? 46") as caught:
        read(log)
    assert manifests[1].stem in str(caught.value)
    gaps: list[Any] = []
    got = []
    for batch in log.to_arrow(on_damage="skip", on_gap=gaps.append, columns=["offset"]):
        got += batch.to_pylists()["offset"]
    assert got == [row.offset for row in rows if not 46 <= row.offset < 93]
    assert len(gaps) == 1
    assert manifests[1].stem in str(gaps[0])


def test_text_that_is_no_manifest() -> None:
    for content in (b"", b"{", b"[]", b"\xff", b"null", b"[" * 100_000):
        with pytest.raises(CorruptDataError) as caught:
            parse_manifest(content, "m", 0)
        assert (caught.value.code, caught.value.file) == ("manifest", "m")


def test_kept_manifests_are_bounded_by_their_chunks(
        tiered: Tiered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest of 300 bytes may have millions of chunks, and a bucket thousands of manifests."""
    build(tiered, tmp_path, "t-gzip-0", chunk_size=100)
    log = open_bucket(tmp_path).log("t-gzip", 0)
    expected = read(log)
    layout = log.where.bucket.layout  # type: ignore[attr-defined]
    counts = [one.chunks.count for one in layout._manifests.values()]
    assert len(counts) == 5 and layout._chunks_kept == sum(counts)
    assert {one.chunks.positions.itemsize for one in layout._manifests.values()} == {8}
    monkeypatch.setattr(aiven_layout, "_CHUNKS_KEPT", counts[-1])
    again = open_bucket(tmp_path)
    assert read(again.log("t-gzip", 0)) == expected
    assert isinstance(again.layout, AivenLayout)
    assert sum(one.chunks.count for one in again.layout._manifests.values()) \
        == again.layout._chunks_kept <= counts[-1]


@pytest.mark.parametrize("by_name", [False, True])
def test_indexes_that_another_process_rebuilds(tiered: Tiered, tmp_path: Path, by_name: bool
                                               ) -> None:
    """Their places in their object are in the manifest, which a reader keeps."""
    manager = LayoutStorageManager(RemoteTree(tmp_path), AivenWriter())
    first = announced(tiered, "t-txn-0")[0]
    manager.copy_log_segment_data(first, data_of(tiered, first))
    log = open_bucket(tmp_path).log("t-txn", 0)
    assert check_partition(log).is_sound

    def last_index() -> bytes:
        return manager.fetch_index(first, IndexType.LEADER_EPOCH).read()

    content = last_index()
    other = open_bucket(tmp_path).log("t-txn", 0).where
    assert isinstance(other, TieredFiles)
    layout, tree = other.bucket.layout, other.bucket.tree
    assert isinstance(layout, AivenLayout)
    (segment,) = layout.segments(tree, other.bucket.partitions[0])
    layout.replace_indexes(tree, segment, {IndexType.OFFSET: b""})
    if by_name:
        assert last_index() == content
    else:
        log.refresh()
        assert check_partition(log).findings == ()


def test_unknown_fields_and_hostile_sizes(tiered: Tiered, tmp_path: Path) -> None:
    path = build(tiered, tmp_path, "t-zstd-0", compress=True)[0]
    start = int(path.name[:20])
    good = parse_manifest(path.read_bytes(), "m", start)
    change(path, added={"x": [1]}, chunkIndex__more=1)
    assert parse_manifest(path.read_bytes(), "m", start) == good
    import pyarrow as pa
    for data in (b"", b"\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\2\0\0\0\0\5",
                 b"\x7f\xff\xff\xff" + bytes(9), b"\0\0\0\1\xff\xff\xff\xff", bytes(11 << 20)):
        frame = pa.compress(data, codec="zstd", asbytes=True)
        change(path, chunkIndex__transformedChunks=base64.b64encode(frame).decode())
        with pytest.raises(CorruptDataError, match="transformedChunks"):
            parse_manifest(path.read_bytes(), "m", start)
    for text in ("!", base64.b64encode(b"no frame").decode()):
        change(path, chunkIndex__transformedChunks=text)
        with pytest.raises(CorruptDataError, match="transformedChunks"):
            parse_manifest(path.read_bytes(), "m", start)


@pytest.mark.parametrize("damage", ["cut", "absent", "flipped", "swapped", "longer"])
@pytest.mark.parametrize(("compress", "encrypt"), FORMS)
def test_damaged_log_objects(tiered: Tiered, tmp_path: Path, damage: str, compress: bool,
                             encrypt: bool) -> None:
    manifests = build(tiered, tmp_path, "t-gzip-0", compress=compress, encrypt=encrypt)
    log_object = manifests[1].with_suffix(".log")
    content = log_object.read_bytes()
    if damage == "cut":
        log_object.write_bytes(content[:-1500])
    elif damage == "absent":
        log_object.unlink()
    elif damage == "flipped":
        log_object.write_bytes(content[:1500] + bytes((content[1500] ^ 1,)) + content[1501:])
    elif damage == "longer":
        log_object.write_bytes(content + b"x")
    else:
        shutil.copy(manifests[2].with_suffix(".log"), log_object)
    log = open_bucket(tmp_path, keys={"k1": PEM}).log("t-gzip", 0)
    rows = [row for row in tiered.rows("t-gzip-0", "read_uncommitted")
            if row.offset < log.log_end_offset]
    with pytest.raises((KafkaStorageError, CorruptDataError)) as caught:
        read(log)
    if damage != "absent":
        assert log_object.name in str(caught.value)
        assert caught.value.file is not None
        assert caught.value.position is not None
    got = []
    for batch in log.to_arrow(on_damage="skip", on_gap=lambda gap: None, columns=["offset"]):
        got += batch.to_pylists()["offset"]
    outside = [row.offset for row in rows if not 46 <= row.offset < 93]
    assert [offset for offset in got if not 46 <= offset < 93] == outside


def test_wrong_and_missing_keys(tiered: Tiered, tmp_path: Path) -> None:
    build(tiered, tmp_path / "b", "t-gzip-0", encrypt=True)
    (tmp_path / "key.pem").write_bytes(PEM)
    (tmp_path / "none.pem").write_text("-----BEGIN PRIVATE KEY-----\nno\n-----END PRIVATE KEY-----")
    log = open_bucket(tmp_path / "b", keys={"k1": str(tmp_path / "key.pem")}).log("t-gzip", 0)
    assert len(read(log)) == 234
    for keys, words in (({}, "was not given"), ({"k2": PEM}, "keys given: k2"),
                        ({"k1": OTHER_PEM}, "does not unwrap")):
        with pytest.raises(SeglogError, match=words) as caught:
            read(open_bucket(tmp_path / "b", keys=keys).log("t-gzip", 0))
        assert "BEGIN" not in str(caught.value)
    with pytest.raises(ValueError, match="not a PEM"):
        AivenLayout({"k1": str(tmp_path / "none.pem")}).ring()
