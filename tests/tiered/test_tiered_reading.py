"""Logs over a local directory and a remote tier, and from the tier alone: a real broker's."""

from __future__ import annotations

import pickle
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.errors import IllegalArgumentError, KafkaStorageError, UnknownTopicOrPartitionError
from seglog.model import TopicPartition
from seglog.objects.directory_store import DirectoryStore
from seglog.storage import log_store
from seglog.storage.isolation import Isolation
from seglog.storage.meta import encode_partition_metadata
from seglog.storage.partition_log import PartitionLog
from seglog.tiered import AivenWriter, Bucket, LayoutStorageManager, RemoteTree, open_bucket
from tests.support.verbs import run
from tests.tiered.conftest import Tiered, read
from tests.tiered.test_storage_manager import announced, data_of

ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
PARTITIONS = ["t-none-0", "t-gzip-0", "t-snappy-0", "t-lz4-0", "t-zstd-0", "t-txn-0", "t-txn-1",
              "t-start-0", "t-epochs-0", "t-both-0", "local-only-0"]
REMOTE = [name for name in PARTITIONS if name not in ("local-only-0", "t-lz4-0")]


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_disk_and_tier_give_what_consumers_got(tiered: Tiered, name: str, isolation: Isolation
                                               ) -> None:
    log = PartitionLog.open(tiered.data / name, remote=tiered.remote)
    assert (log.log_start_offset, log.log_end_offset) == tiered.marks()[name]
    assert read(log, isolation) == tiered.rows(name, isolation)
    assert read(log, isolation, threads=2) == tiered.rows(name, isolation)
    assert log.gaps == ()


@pytest.mark.parametrize("name", PARTITIONS)
def test_nothing_changes_when_local_segments_are_deleted(tiered_copy: Tiered, name: str) -> None:
    """With every remote segment still on the local disk too, as it was before retention."""
    with_local_copies(tiered_copy, name)
    for isolation in ISOLATIONS:
        log = PartitionLog.open(tiered_copy.data / name, remote=tiered_copy.remote)
        assert read(log, isolation) == tiered_copy.rows(name, isolation)
        local = PartitionLog.open(tiered_copy.data / name)
        assert read(local, isolation) == tiered_copy.rows(name, isolation)


def with_local_copies(tiered: Tiered, name: str) -> list[Path]:
    """Every remote segment is on the local disk too, as before local retention."""
    made = []
    for path in tiered.objects(name, ""):
        target = tiered.data / name / f"{path.name[:20]}{path.suffix}"
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex") and not target.exists():
            shutil.copy(path, target)
            made.append(target)
    return made


@pytest.mark.parametrize("name", ["t-txn-0", "t-gzip-0"])
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_local_segments_are_deleted_under_a_reader(tiered_copy: Tiered, name: str,
                                                   isolation: Isolation) -> None:
    """A log that was opened before, and a stream that began before, continue in the tier."""
    made = with_local_copies(tiered_copy, name)
    assert len(made) > 5
    log = PartitionLog.open(tiered_copy.data / name, remote=tiered_copy.remote,
                            max_open_segments=1)
    begun = PartitionLog.open(tiered_copy.data / name, remote=tiered_copy.remote,
                              max_open_segments=1).to_arrow(
        isolation=isolation, columns=["offset"], batch_rows=1)
    offsets = next(iter(begun)).to_pylists()["offset"]
    for path in made:
        path.unlink()
    rows = tiered_copy.rows(name, isolation)
    assert read(log, isolation) == rows
    for batch in begun:
        offsets += batch.to_pylists()["offset"]
    assert offsets == [row.offset for row in rows]
    assert log.offset_for_timestamp(rows[3].timestamp) == PartitionLog.open(
        tiered_copy.data / name, remote=tiered_copy.remote).offset_for_timestamp(rows[3].timestamp)
    assert log.fetch(0, 1 << 20).next_offset > 0


def test_a_transaction_index_that_vanishes_is_not_an_empty_one(tiered_copy: Tiered) -> None:
    """Without a tier: else the records of aborted transactions would be committed."""
    name = "t-txn-0"
    made = with_local_copies(tiered_copy, name)
    log = PartitionLog.open(tiered_copy.data / name)
    vanished = [path for path in made if path.suffix == ".txnindex"]
    assert vanished
    for path in vanished:
        path.unlink()
    assert read(log, "read_committed") == tiered_copy.rows(name, "read_committed")


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize("with_metadata", [False, True])
def test_the_bucket_alone_gives_what_was_tiered(tiered: Tiered, name: str, with_metadata: bool
                                                ) -> None:
    topic, _, partition = name.rpartition("-")
    bucket = open_bucket(tiered.remote, metadata=tiered.data if with_metadata else ())
    low, _ = tiered.marks()[name]
    log = bucket.log(topic, int(partition), log_start_offset=low)
    local = PartitionLog.open(tiered.data / name)
    first_local = int(local.segments.base_offsets[0])
    assert log.log_end_offset == first_local or first_local < log.log_end_offset
    assert log.topic_id == local.topic_id
    for isolation in ISOLATIONS:
        end = log.end_offset(isolation)
        assert read(log, isolation) == [
            row for row in tiered.rows(name, isolation) if row.offset < end]
    assert log.gaps == ()


@pytest.mark.parametrize("name", REMOTE)
def test_timestamps_are_found_in_the_tier(tiered: Tiered, name: str) -> None:
    log = PartitionLog.open(tiered.data / name, remote=tiered.remote)
    rows = tiered.rows(name, "read_uncommitted")
    for row in (rows[0], rows[len(rows) // 3], rows[-1]):
        found = log.offset_for_timestamp(row.timestamp)
        first = next(one for one in rows if one.timestamp >= row.timestamp)
        assert found is not None
        assert found.offset <= first.offset  # a marker may be earlier
        assert found.offset == first.offset or "txn" in name


def test_ranges_and_fetches_cross_the_border(tiered: Tiered) -> None:
    log = PartitionLog.open(tiered.data / "t-gzip-0", remote=tiered.remote)
    rows = tiered.rows("t-gzip-0", "read_uncommitted")
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.fetch(offset, 4096)
        assert fetched.next_offset > offset
        offset = fetched.next_offset
    starts = [planned.start_offset for planned in log.ranges(2048)]
    assert starts
    got = [row.offset for row in read(log)]
    assert got == [row.offset for row in rows]


def test_a_pickle_reads_the_same(tiered: Tiered) -> None:
    bucket = pickle.loads(pickle.dumps(open_bucket(tiered.remote)))
    log = pickle.loads(pickle.dumps(bucket.log("t-zstd", 0)))
    assert read(log) == [row for row in tiered.rows("t-zstd-0", "read_uncommitted")
                         if row.offset < log.log_end_offset]


def test_a_data_directory_with_its_tier(tiered: Tiered) -> None:
    with seglog.open_data_dir(tiered.data, remote=tiered.remote) as data:
        assert read(data.log("t-none", 0)) == tiered.rows("t-none-0", "read_uncommitted")
        assert data.log("t-txn", 0).log_start_offset == 0
        rows = sum(batch.num_rows for batch in data.to_arrow("t-*"))
    assert rows == sum(len(tiered.rows(name, "read_uncommitted")) for name in PARTITIONS
                       if name.startswith("t-"))


def test_the_metadata_topic_is_read_once_for_all_partitions(
        tiered: Tiered, monkeypatch: pytest.MonkeyPatch) -> None:
    from seglog.tiered import metadata_source

    reads = []
    whole = metadata_source.read_metadata_topic

    def counted(*data_dirs: str) -> object:
        reads.append(data_dirs)
        return whole(*data_dirs)

    monkeypatch.setattr(metadata_source, "read_metadata_topic", counted)
    bucket = open_bucket(tiered.remote)
    for name in REMOTE:
        assert len(PartitionLog.open(tiered.data / name, remote=bucket).segments)
    assert reads == [(str(tiered.data),)]


def test_what_is_not_there_is_said(tiered: Tiered, tmp_path: Path) -> None:
    bucket = open_bucket(tiered.remote)
    assert [str(one) for one in bucket.partitions] == sorted(REMOTE)
    with pytest.raises(UnknownTopicOrPartitionError, match="holds no segment of t-lz4-0"):
        bucket.log("t-lz4", 0)
    with pytest.raises(KafkaStorageError, match="no such directory"):
        open_bucket(tmp_path / "nothing")
    with pytest.raises(KafkaStorageError, match="not the remote segments of a known layout"):
        open_bucket(tiered.root)
    with pytest.raises(IllegalArgumentError, match="neither"):
        open_bucket(tiered.remote, layout="unknown")
    copy = tmp_path / "copied"
    shutil.copytree(tiered.data / "t-none-0", copy)
    with pytest.raises(IllegalArgumentError, match="does not say which partition"):
        PartitionLog.open(copy, remote=tiered.remote)


def test_other_names_by_a_pattern(tiered: Tiered, tmp_path: Path) -> None:
    """The same files under names of the user's own, and under Pinterest's."""
    for path in tiered.objects("t-gzip-0", ""):
        start, _, rest = path.name.partition("-")
        own = tmp_path / f"own/by-topic/t-gzip/0/{start}_{rest[:22]}.{rest[23:]}"
        own.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, own)
        if path.suffix in (".log", ".index", ".timeindex"):
            plain = tmp_path / f"pinterest/t-gzip-0/{start}{path.suffix}"
            plain.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, plain)
    pattern = "{any}/{topic}/{partition}/{start_offset}_{segment_id}.{kind}"
    expected = tiered.rows("t-gzip-0", "read_uncommitted")
    for bucket in (open_bucket(tmp_path / "own", layout=pattern),
                   open_bucket(tmp_path / "pinterest"),
                   open_bucket(tmp_path / "pinterest", layout="pinterest")):
        log = bucket.log("t-gzip", 0)
        assert read(log) == [row for row in expected if row.offset < log.log_end_offset]
        assert log.log_end_offset == 234
    for wrong, word in (("{topic}/{start_offset}.{kind}", "partition"), ("a{b}", "not a field"),
                        ("{topic}-{partition}-{start_offset}.{kind}", "last part")):
        with pytest.raises(IllegalArgumentError, match=word):
            open_bucket(tmp_path / "own", layout=wrong)


def test_one_name_in_several_directories(tiered: Tiered, tmp_path: Path) -> None:
    """Two clusters in one bucket, without topic ids: neither is chosen silently."""
    for cluster in ("east", "west"):
        for path in tiered.objects("t-gzip-0", ".log"):
            plain = tmp_path / cluster / "t-gzip-0" / f"{path.name[:20]}.log"
            plain.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, plain)
    bucket = open_bucket(tmp_path, layout="{any}/{topic}-{partition}/{start_offset}.{kind}")
    with pytest.raises(IllegalArgumentError, match="east/t-gzip-0, west/t-gzip-0; name one"):
        bucket.log("t-gzip", 0)
    log = open_bucket(tmp_path, layout="east/{topic}-{partition}/{start_offset}.{kind}").log(
        "t-gzip", 0)
    assert [row.offset for row in read(log)] == [
        row.offset for row in tiered.rows("t-gzip-0", "read_uncommitted") if row.offset < 234]


def test_segments_that_retention_deletes_meanwhile(
        tiered_copy: Tiered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the metadata topic and the list of objects: no gap, the log begins later."""
    name, announced = "t-gzip-0", Bucket.announced
    calls = []

    def deleting(self: Bucket, *which: Any) -> Any:
        found, skipped = announced(self, *which)
        assert found is not None
        calls.append(len(found))
        if len(calls) > 1:
            return found[1:], skipped  # its deletion is announced
        for path in tiered_copy.objects(name, "")[:]:
            if path.name.startswith(f"{found[0].start_offset:020d}-"):
                path.unlink()
        return found, skipped

    monkeypatch.setattr(Bucket, "announced", deleting)
    log = PartitionLog.open(tiered_copy.data / name, remote=tiered_copy.remote)
    assert len(calls) == 2
    assert log.log_start_offset == 46
    assert read(log) == [row for row in tiered_copy.rows(name, "read_uncommitted")
                         if row.offset >= 46]


def test_a_local_directory_that_is_gone(tiered_copy: Tiered) -> None:
    """The partition was moved or deleted: a typed error, as without a tier."""
    log = PartitionLog.open(tiered_copy.data / "t-gzip-0", remote=tiered_copy.remote)
    shutil.rmtree(tiered_copy.data / "t-gzip-0")
    with pytest.raises(KafkaStorageError):
        log.refresh()


def test_a_transaction_index_that_leaves_the_tier_after_it_was_listed(tiered_copy: Tiered) -> None:
    """No entries would make aborted records committed."""
    with PartitionLog.open(tiered_copy.data / "t-txn-0", remote=tiered_copy.remote) as log:
        indexes = [one.files.txn_index for one in log.segments.with_txn_index()
                   if one.files.txn_index is not None and "#" in one.files.txn_index]
        assert indexes
        for path in tiered_copy.objects("t-txn-0", ".txnindex"):
            path.unlink()
        for index in indexes:
            with pytest.raises(KafkaStorageError):
                log.where.aborted(index)


def test_the_local_directory_is_listed_once(tiered: Tiered, monkeypatch: pytest.MonkeyPatch
                                            ) -> None:
    listed, look = [], log_store._steadily

    def noted(path: str, *rest: Any) -> Any:
        listed.append(path)
        return look(path, *rest)

    monkeypatch.setattr(log_store, "_steadily", noted)
    with PartitionLog.open(tiered.data / "t-txn-0", remote=tiered.remote) as log:
        for _ in range(2):
            assert listed.count(log.path) == 1
            listed.clear()
            log.refresh()


def test_a_local_directory_that_takes_the_place_of_the_listed_one(tiered_copy: Tiered) -> None:
    """The partition was created again: none of its files is taken for a listed one."""
    folder = tiered_copy.data / "t-txn-0"
    with PartitionLog.open(folder, remote=tiered_copy.remote) as log:
        folder.rename(folder.with_name("t-txn-0.gone"))
        shutil.copytree(folder.with_name("t-txn-0.gone"), folder)
        file = str(log.segments[-1].files.log)
        index = f"{file.removesuffix('.log')}.txnindex"
        with pytest.raises(KafkaStorageError, match="took the place"):
            log.where.open_log(file, None)
        with pytest.raises(KafkaStorageError, match="took the place"):
            log.where.aborted(index)
        log.refresh()
        log.where.open_log(file, None).close()
        assert len(log.where.aborted(index)) == 1


def test_a_tier_is_not_listed_once_for_each_partition(
        tiered: Tiered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    """A list of all partitions takes a request for each topic."""
    manager = LayoutStorageManager(RemoteTree(tmp_path / "tier"), AivenWriter())
    names = ["t-gzip-0", "t-txn-0", "t-none-0", "t-zstd-0"]
    for name in names:
        for metadata in announced(tiered, name):
            manager.copy_log_segment_data(metadata, data_of(tiered, metadata))
    data = tmp_path / "data"
    for name in ("t-gzip-0", "t-start-0"):
        shutil.copytree(tiered.data / name, data / name)
    for number in range(8):
        made = data / f"untiered-{number}"
        made.mkdir()
        made.joinpath(f"{0:020}.log").touch()
        made.joinpath("partition.metadata").write_bytes(encode_partition_metadata(
            uuid.UUID(int=5)))
    listed: list[str] = []
    real = DirectoryStore.list

    def count(store: DirectoryStore, prefix: str) -> Any:
        listed.append(prefix)
        return real(store, prefix)

    monkeypatch.setattr(DirectoryStore, "list", count)
    assert run(capsys, "ls", data, "--remote", tmp_path / "tier")[0] == 0
    assert listed.count("") <= 2
    listed.clear()
    assert run(capsys, "ls", "--remote", tmp_path / "tier")[0] == 0
    assert listed.count("") <= 2
    bucket = open_bucket(tmp_path / "tier")
    assert bucket.find(TopicPartition("untiered", 0), uuid.UUID(int=5).bytes) is None
    later = announced(tiered, "t-start-0")
    for metadata in later:  # it is tiered after the bucket was opened
        manager.copy_log_segment_data(metadata, data_of(tiered, metadata))
    log = PartitionLog.open(data / "t-start-0", remote=bucket)
    assert log.log_start_offset == later[0].start_offset
