"""meta.properties, partition.metadata and .kafka_cleanshutdown."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from seglog.errors import KafkaStorageError, MalformedCheckpointError
from seglog.storage import meta, paths
from tests.support.metadata import LONG_METADATA

ID = "Sl08ZXU2QW6uF5hIoSzc8w"
V1 = b"version=1\ncluster.id=c\nnode.id=7\n"


def test_meta_properties(tmp_path: Path) -> None:
    path = tmp_path / paths.META_PROPERTIES
    assert meta.read_meta_properties(path) is None
    path.write_bytes(b"#\n#Sat Oct 25 10:00:00 UTC 2024\n" + V1 + b"directory.id=" + ID.encode())
    found = meta.read_meta_properties(path)
    assert found is not None
    assert (found.version, found.cluster_id, found.node_id) == (1, "c", 7)
    assert found.directory_id is not None and meta.format_uuid(found.directory_id) == ID
    path.write_bytes(b"version= 1 \t\n" + V1[10:])  # MetaPropertiesVersion.fromNumberString trims
    found = meta.read_meta_properties(path)
    assert found is not None and (found.version, found.node_id) == (1, 7)
    path.write_bytes(b"broker.id=3\nx=y\n")
    old = meta.read_meta_properties(path)
    assert old is not None and (old.version, old.cluster_id, old.node_id) == (0, None, 3)
    assert old.extra["x"] == "y"


@pytest.mark.parametrize(("content", "message"), [
    (b"version=x\n", "Invalid meta.properties version string 'x'"),
    (b"version=2\n", "Unknown meta.properties version number 2"),
    (b"version=1\nnode.id=1\n", "cluster.id was not found."),
    (b"version=1\ncluster.id=c\n", "Failed to find node.id"),
    (b"version=1\ndirectory.id=abc\n", "Failed to find node.id"),
    (b"version=1\ncluster.id=c\nnode.id=1 \n", "Unable to read node.id as a base-10 number."),
    (b"broker.id=x", "Unable to read broker.id as a base-10 number."),
    (V1 + b"directory.id=abc", "Unable to read directory.id as a Uuid: Input string `abc` decoded"),
    (b"a=\\u1", "Malformed \\uxxxx encoding."),
])
def test_meta_properties_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / paths.META_PROPERTIES
    path.write_bytes(content)
    with pytest.raises(MalformedCheckpointError) as caught:
        meta.read_meta_properties(path)
    assert str(caught.value).startswith(message) and caught.value.file == str(path)
    assert caught.value.code.startswith("meta_properties")


def test_uuids() -> None:
    for value in (uuid.UUID(int=0), uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)):
        assert meta.parse_uuid(meta.format_uuid(value)) == value
    assert meta.format_uuid(uuid.UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert meta.parse_uuid(ID + "==") == meta.parse_uuid(ID)
    for bad in ("", "abc", ID + "A", ID[:20], "!" * 22, ID[:21] + "/", ID + " ", "A" * 34,
                "A" * 20 + "=A", ID + "="):
        with pytest.raises(ValueError):
            meta.parse_uuid(bad)


@pytest.mark.parametrize(("text", "message"), [
    ("=", "Input byte[] should at least have 2 bytes for base64 bytes"),
    ("==", "Input byte array has wrong 4-byte ending unit"),
    ("A", "Input byte[] should at least have 2 bytes for base64 bytes"),
    ("A=", "Last unit does not have enough valid bits"),
    ("AA=", "Input byte array has wrong 4-byte ending unit"),
    ("AA=A", "Input byte array has wrong 4-byte ending unit"),
    ("AA==", "Input string `AA==` decoded as 1 bytes"),
    ("AA==A", "Input byte array has incorrect ending byte at 4"),
    ("AAA=", "Input string `AAA=` decoded as 2 bytes"),
    ("AAA==", "Input byte array has incorrect ending byte at 4"),
    ("AAAA=", "Input byte array has wrong 4-byte ending unit"),
    ("AAAAA", "Last unit does not have enough valid bits"),
    ("AAAAA=", "Last unit does not have enough valid bits"),
    ("AAAAAA=", "Input byte array has wrong 4-byte ending unit"),
    ("AAAAAA=A", "Input byte array has wrong 4-byte ending unit"),
    ("AAAAAA==", "Input string `AAAAAA==` decoded as 4 bytes"),
    ("A" * 14 + "=", "Input byte array has wrong 4-byte ending unit"),
    ("A" * 15 + "=", f"Input string `{'A' * 15}=` decoded as 11 bytes"),
    ("AA\x7f", "Illegal base64 character 7f"),
    ("AA\x80", "Illegal base64 character -80"),
    ("AA\xff", "Illegal base64 character -1"),
    ("A" * 24, f"Input string `{'A' * 24}` decoded as 18 bytes"),
    ("A" * 24 + "B", f"Input string with prefix `{'A' * 24}` is too long to be decoded as"),
])
def test_padding_of_ids(text: str, message: str) -> None:
    """The messages are those of Kafka's Uuid and of java.util.Base64.Decoder."""
    with pytest.raises(ValueError) as caught:
        meta.parse_uuid(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("content", "found"), [
    (b"version=x\n", "x"), (b"version=2\n", 2), (b"version=-1\n", -1), (b"version=1\n", None),
    (b"version=1\ncluster.id=c\nnode.id=1x\n", "1x"), (b"broker.id=", ""),
    (V1 + b"directory.id=abc", "abc")])
def test_what_is_wrong_in_meta_properties(tmp_path: Path, content: bytes, found: object) -> None:
    (tmp_path / "meta").write_bytes(content)
    with pytest.raises(MalformedCheckpointError) as caught:
        meta.read_meta_properties(tmp_path / "meta")
    assert caught.value.found == found and caught.value.position is None


@pytest.mark.parametrize(("content", "found"), [
    ("", 0), ("version: 0", 1), ("version: 0\n", 1), (f"version: -1\nid: {ID}\n", -1),
    (f"version: x\nid: {ID}", "version: x"), (f"version:0\nid: {ID}", "version:0"),
    ("version: 0\nid: \nrest", "id: "), ("version: 0\nid: " + "A" * 22, "id: " + "A" * 22),
    ("version: 0\nid: abc\nrest\n", "id: abc"), ("version: 0\nid: abc", "id: abc")])
def test_what_is_wrong_in_partition_metadata(tmp_path: Path, content: str, found: object) -> None:
    for path, given in ((tmp_path / "meta", None), (tmp_path / "none", content.encode())):
        (tmp_path / "meta").write_text(content)
        with pytest.raises(MalformedCheckpointError) as caught:
            meta.read_partition_metadata(path, given)
        assert caught.value.found == found and caught.value.file == str(path)


NO_LINE = 'Cannot invoke "java.lang.CharSequence.length()" because "this.text" is null'


@pytest.mark.parametrize(("content", "version"), [
    (f"version: 0\ntopic_id: {ID}", 0), (f"a: 5\nb: {ID}\nrest", 5),
    (f"version:  \t0\r\ntopic_id:   {ID}\r\n", 0), (f": 0\n: {ID}", 0),
])
def test_partition_metadata(tmp_path: Path, content: str, version: int) -> None:
    path = tmp_path / paths.PARTITION_METADATA
    assert meta.read_partition_metadata(path) is None
    path.write_bytes(content.encode())
    found = meta.read_partition_metadata(path)
    assert found == meta.PartitionMetadata(version, meta.parse_uuid(ID))


@pytest.mark.parametrize(("content", "code", "message"), [
    ("", "partition_metadata_short", NO_LINE),
    ("version: 0", "partition_metadata_short", NO_LINE),
    ("version: 0\n", "partition_metadata_short", NO_LINE),
    (f"version: -1\ntopic_id: {ID}", "partition_metadata_version",
     "Unrecognized version of partition metadata file ({path}): -1"),
    (f"version: x\ntopic_id: {ID}", "partition_metadata_line",
     "Malformed line in partition metadata file [{path}]: version: x"),
    (f"version:0\ntopic_id: {ID}", "partition_metadata_line",
     "Malformed line in partition metadata file [{path}]: version:0"),
    (f"version: 0: 1\ntopic_id: {ID}", "partition_metadata_line",
     "Malformed line in partition metadata file [{path}]: version: 0: 1"),
    ("version: 0\ntopic_id: ", "partition_metadata_line",
     "Malformed line in partition metadata file [{path}]: topic_id: "),
    ("version: 0\ntopic_id: " + "A" * 22, "partition_metadata_id",
     "Invalid topic ID in partition metadata file ({path})"),
    ("version: 0\ntopic_id: abc", "partition_metadata_uuid", "Input string `abc` decoded as 2 bytes"
     ", which is not equal to the expected 16 bytes of a base64-encoded UUID"),
])
def test_partition_metadata_refused(tmp_path: Path, content: str, code: str, message: str) -> None:
    path = tmp_path / paths.PARTITION_METADATA
    path.write_bytes(content.encode())
    with pytest.raises(MalformedCheckpointError) as caught:
        meta.read_partition_metadata(path)
    assert (caught.value.code, str(caught.value)) == (code, message.format(path=path))
    if code in ("partition_metadata_id", "partition_metadata_uuid"):
        assert caught.value.found == content.splitlines()[1]


@pytest.mark.parametrize("before", ["", "version: 0\n", "\u00e9: "])
def test_partition_metadata_that_is_no_text(before: str) -> None:
    with pytest.raises(MalformedCheckpointError) as caught:
        meta.read_partition_metadata("f", before.encode() + b"\xff: 0\n")
    assert (caught.value.code, caught.value.position) == (
        "checkpoint_encoding", len(before.encode()))


@pytest.mark.parametrize(("content", "epoch"), [
    (b'{"version":0,"brokerEpoch":10}', 10), (b'{"brokerEpoch":-1,"more":[]}', -1), (b"", None),
    (b"x", None), (b"[]", None), (b"{}", None), (b'{"brokerEpoch":"1"}', None), (b"\xff", None),
    (b'{"brokerEpoch":true}', None), (b'{"brokerEpoch":1e400}', None), (b"[" * 100_000, None),
    (b'{"brokerEpoch":9223372036854775807}', 2**63 - 1),
    (b'{"brokerEpoch":9223372036854775808}', None),
    (b'{"brokerEpoch":-9223372036854775808}', -2**63),
    (b'{"brokerEpoch":-9223372036854775809}', None),
])
def test_clean_shutdown_epoch(tmp_path: Path, content: bytes, epoch: int | None) -> None:
    path = tmp_path / paths.CLEAN_SHUTDOWN_FILE
    assert meta.read_clean_shutdown_epoch(path) is None
    path.write_bytes(content)
    assert meta.read_clean_shutdown_epoch(path) == epoch


def test_partition_metadata_is_two_lines(tmp_path: Path) -> None:
    """Kafka reads two lines and ignores the rest (PartitionMetadataReadBuffer.read);
    tests/kafka/test_storage_in_kafka.py gives it these files."""
    for name, content, code in LONG_METADATA:
        path = tmp_path / "partition.metadata"
        path.write_bytes(content)
        if code is None:
            found = meta.read_partition_metadata(path)
            assert found is not None and meta.format_uuid(found.topic_id) == ID, name
        else:
            with pytest.raises(MalformedCheckpointError) as caught:
                meta.read_partition_metadata(path)
            assert caught.value.code == code, name


def test_no_file_is_an_error(tmp_path: Path) -> None:
    for read in (meta.read_meta_properties, meta.read_partition_metadata):
        with pytest.raises(KafkaStorageError):
            read(tmp_path)
    with open(tmp_path / "big", "wb") as stream:
        stream.truncate(meta.META_BYTES_MAX + 1)
    with pytest.raises(MalformedCheckpointError):
        meta.read_meta_properties(tmp_path / "big")


def test_golden(golden: Path) -> None:
    found = meta.read_meta_properties(golden / "real/clean/meta.properties")
    assert found is not None and found.version == 1 and found.node_id == 1
    assert found.directory_id is not None
    text = (golden / "real/clean/txn-0/partition.metadata").read_text()
    metadata = meta.read_partition_metadata(golden / "real/clean/txn-0/partition.metadata")
    assert metadata is not None
    assert text.endswith(f"topic_id: {meta.format_uuid(metadata.topic_id)}")
    epoch = meta.read_clean_shutdown_epoch(golden / "real/clean/.kafka_cleanshutdown")
    assert epoch is not None and epoch > 0
