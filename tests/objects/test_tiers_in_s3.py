"""Tiers in a bucket of a real S3 server: written, read, verified and swept there."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seglog.cli.main import main
from seglog.datadir import open_data_dir
from seglog.errors import KafkaStorageError, RemoteResourceNotFoundError
from seglog.objects.s3_uploads import S3Uploads
from seglog.objects.store_options import StorageOptions
from seglog.objects.urls import parse_url
from seglog.storage.isolation import Isolation
from seglog.storage.partition_log import PartitionLog
from seglog.tiered import (
    LOCAL_TIERED_STORAGE, AivenWriter, LayoutStorageManager, LogSegmentData, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteTree, TopicIdPartition, open_bucket,
)
from seglog.tiered.plain_layout import WritableLayout
from tests.tiered.conftest import Tiered, read
from tests.tiered.conftest import tiered as tiered  # the fixture
from tests.tiered.test_storage_manager import announced, check, data_of

pytestmark = pytest.mark.judge

ROOT = Path(__file__).resolve().parents[2]
PARTITION = TopicIdPartition(bytes(range(16)), "big", 0)
LEVELS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
LAYOUTS: dict[str, WritableLayout] = {
    "local": LOCAL_TIERED_STORAGE, "aiven": AivenWriter(chunk_size=1000),
    "aiven, zstd": AivenWriter(chunk_size=1000, compression=True)}


@pytest.fixture(scope="module")
def tier(bucket: Path, tiered: Tiered) -> str:
    """What a broker tiered, in a bucket."""
    shutil.copytree(tiered.remote, bucket / "tier")
    return "s3://tier"


@pytest.fixture
def empty(bucket: Path, tmp_path: Path) -> Iterator[Path]:
    """A bucket of one test."""
    path = bucket / f"b-{tmp_path.name.replace('_', '-')[:40].lower().strip('-')}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def environment(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The options as variables, for the command line."""
    for name, value in s3.items():
        monkeypatch.setenv(name.upper(), value)


def test_every_record_of_disk_and_bucket(tiered: Tiered, tier: str, s3: dict[str, str]) -> None:
    remote = open_bucket(tier, storage_options=s3)
    data = open_data_dir(tiered.data, remote=remote)
    assert len(tiered.marks()) > 5
    for name, (start, end) in tiered.marks().items():
        topic, _, partition = name.rpartition("-")
        log = data.log(topic, int(partition))
        assert (log.log_start_offset, log.log_end_offset) == (start, end)
        for isolation in LEVELS:
            assert read(log, isolation) == tiered.rows(name, isolation), name
        assert read(PartitionLog.open(tiered.data / name, remote=tier, storage_options=s3),
                    threads=2) == tiered.rows(name, "read_uncommitted")


def test_the_bucket_alone(tiered: Tiered, tier: str, s3: dict[str, str]) -> None:
    remote = pickle.loads(pickle.dumps(open_bucket(tier, storage_options=s3)))
    names = {str(one) for one in remote.partitions}
    assert len(names) > 5
    for name in sorted(names):
        topic, _, partition = name.rpartition("-")
        log = pickle.loads(pickle.dumps(remote.log(topic, int(partition))))
        there = open_bucket(tiered.remote).log(topic, int(partition))
        for isolation in LEVELS:
            assert read(log, isolation) == read(there, isolation), name
        assert (log.log_start_offset, log.log_end_offset, list(log.leader_epochs)) == (
            there.log_start_offset, there.log_end_offset, list(there.leader_epochs))
        for stamp in (0, *(row.timestamp for row in read(there)[::50])):
            assert log.offset_for_timestamp(stamp) == there.offset_for_timestamp(stamp)


@pytest.mark.usefixtures("environment")
def test_the_command_line(tiered: Tiered, tier: str, tmp_path: Path,
                          capsys: pytest.CaptureFixture[str]) -> None:
    def run(*args: object) -> tuple[int, str]:
        code = main([str(one) for one in args])
        return code, re.sub(r"\S*/seglog-\w+/", "", capsys.readouterr().out)  # dump's copies

    def both(*args: object) -> tuple[int, str]:
        """Of the bucket, after the same of the directory."""
        code, out = run(*(tiered.remote if one is tier else one for one in args))
        found = run(*args)
        assert found == (code, out.replace(str(tiered.remote), tier))
        return found

    code, out = both("tier", "ls", tier, "--metadata", tiered.data)
    assert code == 0 and "t-gzip-0  SCh4E8VdQyakXnuXoblENg  5 segments" in out
    assert both("tier", "verify", tier)[0] == 0
    assert both("tier", "orphans", tier, "--metadata", tiered.data)[0] == 1
    assert both("ls", "--remote", tier, "--json", tiered.data)[0] == 0
    assert both("cat", tiered.data, "--remote", tier, "-t", "t-zstd", "-e", "-q", "-f",
                "%o %T\\n")[0] == 0
    assert both("verify", tiered.data, "--remote", tier)[0] == 0
    assert both("dump", "--remote", tier, "t-zstd-0", "--deep-iteration")[0] == 0
    code, _ = run("tier", "restore", tier, "t-txn-0", tmp_path / "t-txn-0")
    assert code == 0 and PartitionLog.open(tmp_path / "t-txn-0").log_end_offset == 201
    code, out = run("tier", "ls", tier, "--json")
    assert code == 0 and json.loads(out.splitlines()[0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_segments_are_written_read_and_deleted(
        tiered: Tiered, empty: Path, s3: dict[str, str], layout: str) -> None:
    options = {**s3, "aws_checksum_algorithm": "sha256"} if layout == "aiven" else s3
    tree = RemoteTree(f"s3://{empty.name}/deep/er", options)
    manager = LayoutStorageManager(tree, LAYOUTS[layout])
    segments = announced(tiered, "t-txn-0")
    written = []
    for _ in range(2):  # once more: the same objects with the same bytes
        for metadata in segments:
            data = data_of(tiered, metadata)
            assert manager.copy_log_segment_data(metadata, data) is None
            check(manager, metadata, data)
        written.append({path: path.read_bytes() for path in objects(empty)})
    assert written[0] == written[1] and len(written[0]) >= 3 * len(segments)
    log = open_bucket(tree.root, storage_options=s3).log("t-txn", 0)
    assert read(log, "read_committed") == [
        row for row in tiered.rows("t-txn-0", "read_committed")
        if row.offset < log.last_stable_offset]
    for metadata in segments:
        manager.delete_log_segment_data(metadata)
        manager.delete_log_segment_data(metadata)
        with pytest.raises(RemoteResourceNotFoundError):
            manager.fetch_log_segment(metadata, 0)
    assert not objects(empty)


@pytest.mark.parametrize("compress", [False, True])
def test_encrypted_segments(tiered: Tiered, empty: Path, s3: dict[str, str], compress: bool
                            ) -> None:
    """AES-GCM: every byte and record comes back with the private key, none without it, and an
    object that was changed is named."""
    pytest.importorskip("cryptography", reason="needs cryptography (the extra [aiven])")
    pytest.importorskip("Crypto", reason="needs pycryptodome (the extra [aiven])")
    from tests.tiered.aiven_by_hand import key_pair

    pem = key_pair()[1]
    url = f"s3://{empty.name}/deep"
    manager = LayoutStorageManager(RemoteTree(url, s3), AivenWriter(
        {"k1": pem}, chunk_size=1000, compression=compress, key_id="k1"))
    segments = announced(tiered, "t-txn-0")
    for metadata in segments:
        manager.copy_log_segment_data(metadata, data_of(tiered, metadata))
        check(manager, metadata, data_of(tiered, metadata))
    manager.copy_log_segment_data(segments[0], data_of(tiered, segments[0]))  # under another key
    manager.layout = AivenWriter({"k1": pem})  # a reader that has seen no manifest
    check(manager, segments[0], data_of(tiered, segments[0]))
    log = open_bucket(url, storage_options=s3, keys={"k1": pem}).log("t-txn", 0)
    for level in LEVELS:
        end = log.end_offset(level)
        expected = [row for row in tiered.rows("t-txn-0", level) if row.offset < end]
        assert expected and read(log, level) == read(log, level, threads=2) == expected
    for keys in ({}, {"k1": key_pair()[1]}):
        with pytest.raises(KafkaStorageError) as caught:
            read(open_bucket(url, storage_options=s3, keys=keys).log("t-txn", 0))
        assert caught.value.code == "encryption_key"
    changed = next(path for path in objects(empty) if path.suffix == ".log")
    content = bytearray(changed.read_bytes())
    content[len(content) // 2] ^= 1
    changed.write_bytes(content)
    with pytest.raises(KafkaStorageError, match="does not decode") as caught:
        read(open_bucket(url, storage_options=s3, keys={"k1": pem}).log("t-txn", 0))
    assert caught.value.code == "chunk" and str(caught.value.file).endswith(changed.name)
    for metadata in segments:
        manager.delete_log_segment_data(metadata)
    assert not objects(empty)


def objects(bucket: Path) -> list[Path]:
    """The files of a bucket, without the server's own."""
    return sorted(path for path in bucket.rglob("*")
                  if path.is_file() and ".sgwtmp" not in path.parts)


# ---- a large segment, in parts

def big_segment(directory: Path, size: int) -> tuple[RemoteLogSegmentMetadata, LogSegmentData]:
    """Files of a segment; its log is noise, which no compression shrinks."""
    directory.mkdir(parents=True, exist_ok=True)
    chance = random.Random(14)
    (directory / "log").write_bytes(b"".join(chance.randbytes(1 << 20)
                                             for _ in range(size >> 20)))
    for name in ("index", "time", "snapshot"):
        (directory / name).write_bytes(name.encode())
    return (RemoteLogSegmentMetadata(RemoteLogSegmentId(PARTITION, bytes(range(16))), 0, 99, 1, 1,
                                     1, size, {0: 0}),
            LogSegmentData(str(directory / "log"), str(directory / "index"),
                           str(directory / "time"), None, str(directory / "snapshot"),
                           b"0\n1\n0 0\n"))


def uploads(bucket: Path, s3: dict[str, str]) -> S3Uploads:
    return S3Uploads(parse_url(f"s3://{bucket.name}"), StorageOptions(s3))


#: Copies a segment again and again until it is killed; each copy deletes the one before.
_COPIER = """
import json
import sys
from pathlib import Path
from seglog.tiered import LayoutStorageManager, RemoteTree
from tests.objects.test_tiers_in_s3 import LAYOUTS, big_segment
url, options, layout, directory = sys.argv[1:]
manager = LayoutStorageManager(RemoteTree(url, json.loads(options)), LAYOUTS[layout])
metadata, data = big_segment(Path(directory), 48 << 20)
print("begins", flush=True)
while True:
    manager.copy_log_segment_data(metadata, data)
    manager.delete_log_segment_data(metadata)
"""


def kill_a_copy(arguments: list[str], is_time: Callable[[], bool]) -> None:
    """Runs the copier up to that moment."""
    copier = subprocess.Popen([sys.executable, "-c", _COPIER, *arguments], stdout=subprocess.PIPE,
                              cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert copier.stdout is not None
    try:
        assert copier.stdout.readline() == b"begins\n"
        deadline = time.monotonic() + 120
        while not is_time():
            assert copier.poll() is None and time.monotonic() < deadline
    finally:
        copier.send_signal(signal.SIGKILL)
        copier.wait()
        copier.stdout.close()


def check_big(manager: LayoutStorageManager, metadata: RemoteLogSegmentMetadata,
              data: LogSegmentData) -> None:
    content = Path(data.log_segment).read_bytes()
    with manager.fetch_log_segment(metadata, 0) as stream:
        assert stream.read() == content
    with manager.fetch_log_segment(metadata, 30_000_001, 40_000_000) as stream:
        assert stream.read() == content[30_000_001:40_000_001]


@pytest.mark.parametrize("layout", ["local", "aiven"])
@pytest.mark.parametrize("place", ["s3", "directory"])
@pytest.mark.parametrize("then", ["copied", "deleted"])
def test_a_process_that_is_killed_while_it_copies(
        empty: Path, s3: dict[str, str], tmp_path: Path, layout: str, place: str, then: str
        ) -> None:
    """The next copy of the same segment begins anew: the same objects as a copy that nobody
    disturbed, and no part or temporary file of the killed ones. The deletion of the segment, which
    the expiration of a broken copy calls, leaves nothing either."""
    directory = tmp_path / "tier"
    directory.mkdir()
    url = f"s3://{empty.name}" if place == "s3" else str(directory)
    metadata, data = big_segment(tmp_path / "source", 48 << 20)
    manager = LayoutStorageManager(RemoteTree(url, s3), LAYOUTS[layout])
    root = empty if place == "s3" else directory

    def has_leftovers() -> bool:
        return bool(uploads(empty, s3).unfinished("")) if place == "s3" else any(
            path.suffix == ".part" for path in objects(directory))

    for _ in range(20):
        kill_a_copy([url, json.dumps(s3), layout, str(tmp_path / "source")], has_leftovers)
        if has_leftovers():
            break
    assert has_leftovers(), "no kill came in the midst of an upload"
    with pytest.raises(RemoteResourceNotFoundError):
        manager.fetch_log_segment(metadata, 0)
    if then == "deleted":
        manager.delete_log_segment_data(metadata)
        assert not has_leftovers() and not objects(root)
        return
    manager.copy_log_segment_data(metadata, data)
    assert not has_leftovers()
    check_big(manager, metadata, data)
    suffixes = sorted(path.name.rpartition(".")[2] for path in objects(root))
    assert suffixes == sorted(key.rpartition(".")[2] for key in manager.layout.keys_of(metadata)
                              if not key.endswith(".txnindex"))
    manager.delete_log_segment_data(metadata)
    assert not objects(root)
