"""Tiers in a store with faults: the right bytes after a retry, or one typed error that names the
object, the byte and the reason."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.errors import KafkaStorageError, RemoteResourceNotFoundError, RemoteStorageError
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogGap
from seglog.tiered import AivenWriter, LayoutStorageManager, RemoteTree, open_bucket
from tests.objects.faulty import Asked, Faulty
from tests.objects.server import options_of
from tests.objects.test_tiers_in_s3 import LAYOUTS, big_segment, check_big
from tests.tiered.conftest import Tiered, read
from tests.tiered.conftest import tiered as tiered  # the fixture
from tests.tiered.test_storage_manager import announced, check, data_of

pytestmark = pytest.mark.judge

URL = "s3://data"
Fault = int | str | None
READ_FAULTS = (500, 502, 503, 429, "reset", "cut", "short")
WRITE_FAULTS = (500, 502, 503, 429, "reset", "lost")


@pytest.fixture
def patient(faulty: Faulty) -> dict[str, str]:
    """Storage options for the faulty server: a loaded machine is no fault."""
    return {**options_of(faulty.port), "max_retries": "6", "request_timeout_seconds": "30"}


@pytest.fixture
def tier(faulty: Faulty, tiered: Tiered) -> Path:
    """What a broker tiered, on the faulty server."""
    root = faulty.root / "data" / "kafka-tiered-storage"
    shutil.copytree(tiered.remote / "kafka-tiered-storage", root)
    return root


def first_attempts(seed: int, kinds: tuple[int | str, ...]) -> Callable[[Asked], Fault]:
    """Of every request the first one fails, half of the time, in its own way."""
    def fault(asked: Asked) -> Fault:
        chance = random.Random(f"{seed} {asked.method} {asked.key} {asked.start}")
        return chance.choice(kinds) if not asked.number and chance.random() < 0.5 else None

    return fault


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["t-gzip-0", "t-txn-0"])
def test_reads_with_faults_that_pass(faulty: Faulty, patient: dict[str, str], tiered: Tiered,
                                     tier: Path, name: str, seed: int) -> None:
    faulty.fault = first_attempts(seed, READ_FAULTS)
    log = PartitionLog.open(tiered.data / name, remote=URL, storage_options=patient)
    for isolation in ("read_uncommitted", "read_committed"):
        assert read(log, isolation, threads=seed) == tiered.rows(name, isolation)
    topic, _, partition = name.rpartition("-")
    alone = open_bucket(URL, storage_options=patient).log(topic, int(partition))
    assert read(alone) == read(open_bucket(tiered.remote).log(topic, int(partition)))


@pytest.mark.parametrize("fault", READ_FAULTS)
def test_reads_with_a_fault_that_stays(faulty: Faulty, patient: dict[str, str], tiered: Tiered,
                                       tier: Path, fault: int | str) -> None:
    log = PartitionLog.open(tiered.data / "t-gzip-0", remote=URL,
                            storage_options={**patient, "max_retries": "1"})
    assert log.log_end_offset == 240
    key = tiered.objects("t-gzip-0")[2].relative_to(tiered.remote).as_posix()
    faulty.fault = lambda asked: fault if asked.key == key else None
    with pytest.raises(KafkaStorageError) as caught:
        read(log)
    assert (caught.value.code, caught.value.file) == ("object_read", f"{URL}/{key}")
    assert caught.value.position is not None and f"{URL}/{key}" in str(caught.value)
    assert patient["aws_secret_access_key"] not in str(caught.value)


def test_objects_that_are_listed_late(faulty: Faulty, patient: dict[str, str], tiered: Tiered,
                                      tier: Path) -> None:
    """The metadata topic names them, so nobody needs the list."""
    late = {path.relative_to(tiered.remote).as_posix()
            for log in tiered.objects("t-gzip-0")[1:3]
            for path in log.parent.glob(f"{log.stem}.*")}
    assert len(late) > 6
    faulty.is_listed = lambda key: key not in late
    log = PartitionLog.open(tiered.data / "t-gzip-0", remote=URL, storage_options=patient)
    assert read(log) == tiered.rows("t-gzip-0", "read_uncommitted")
    assert not log.where.findings
    manager = LayoutStorageManager(RemoteTree(f"{URL}/kafka-tiered-storage", patient))
    for metadata in announced(tiered, "t-gzip-0"):
        check(manager, metadata, data_of(tiered, metadata))
    # The bucket alone has only the list: a gap, by name, and no record that was not there.
    with pytest.raises(KafkaStorageError) as caught:
        read(open_bucket(URL, storage_options=patient).log("t-gzip", 0))
    assert caught.value.code == "remote_gap"
    # What is gone is not late.
    for key in late:
        (faulty.root / "data" / key).unlink()
    log = PartitionLog.open(tiered.data / "t-gzip-0", remote=URL, storage_options=patient)
    assert {one.code for one in log.where.findings} >= {"object_missing"}
    with pytest.raises(KafkaStorageError, match="its objects are not there"):
        read(log)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(2))
def test_writes_with_faults_that_pass(faulty: Faulty, patient: dict[str, str], tiered: Tiered,
                                      layout: str, seed: int) -> None:
    faulty.fault = first_attempts(seed, WRITE_FAULTS)
    manager = LayoutStorageManager(RemoteTree(URL, patient), LAYOUTS[layout])
    for metadata in announced(tiered, "t-gzip-0")[:3]:
        data = data_of(tiered, metadata)
        manager.copy_log_segment_data(metadata, data)
        check(manager, metadata, data)
        manager.delete_log_segment_data(metadata)
    assert not [path for path in (faulty.root / "data").rglob("*") if path.is_file()]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fault", [503, 403, "reset", "flip"])
def test_a_write_that_fails_leaves_nothing(faulty: Faulty, patient: dict[str, str], tiered: Tiered,
                                           layout: str, fault: int | str) -> None:
    """Also a byte that changed on its way: the signature has a SHA-256 of what was sent."""
    faulty.fault = lambda asked: fault if asked.method == "PUT" and asked.key.endswith(".log") \
        else None
    tree = RemoteTree(URL, {**patient, "max_retries": "1"})
    manager = LayoutStorageManager(tree, LAYOUTS[layout])
    metadata = announced(tiered, "t-gzip-0")[0]
    with pytest.raises(RemoteStorageError, match=r"not copied: .*s3://data/.*\.log"):
        manager.copy_log_segment_data(metadata, data_of(tiered, metadata))
    assert not [path for path in (faulty.root / "data").rglob("*") if path.is_file()]
    with pytest.raises(RemoteResourceNotFoundError):
        manager.fetch_log_segment(metadata, 0)


def test_a_store_that_does_not_answer(faulty: Faulty, patient: dict[str, str], tiered: Tiered
                                      ) -> None:
    faulty.fault = lambda asked: "stall" if asked.method == "PUT" else None
    faulty.stall_seconds = 3
    manager = LayoutStorageManager(RemoteTree(URL, {
        **patient, "max_retries": "1", "request_timeout_seconds": "1"}))
    metadata = announced(tiered, "t-gzip-0")[0]
    with pytest.raises(RemoteStorageError, match="not copied: .*s3://data/"):
        manager.copy_log_segment_data(metadata, data_of(tiered, metadata))


@pytest.mark.parametrize("fault", [None, *WRITE_FAULTS])
def test_an_upload_in_parts(faulty: Faulty, patient: dict[str, str], tmp_path: Path,
                            fault: Fault) -> None:
    """A part, its beginning and its end fail once; nothing unfinished is left."""
    faulty.fault = lambda asked: fault if asked.method in ("POST", "PUT") and asked.key.endswith(
        ".log") and not asked.number and asked.start in (0, 2) else None
    manager = LayoutStorageManager(RemoteTree(URL, patient), AivenWriter())
    metadata, data = big_segment(tmp_path / "source", 48 << 20)
    manager.copy_log_segment_data(metadata, data)
    check_big(manager, metadata, data)
    assert len([asked for asked in faulty.asked if asked.method == "PUT" and asked.start]) >= 4
    manager.delete_log_segment_data(metadata)
    assert not faulty.parts
    assert not [path for path in (faulty.root / "data").rglob("*") if path.is_file()]


def test_a_sweep_that_fails_is_logged(faulty: Faulty, patient: dict[str, str], tmp_path: Path,
                                      caplog: pytest.LogCaptureFixture) -> None:
    """A store that does not list uploads keeps them, and takes segments all the same."""
    metadata, data = big_segment(tmp_path / "source", 1 << 20)
    faulty.fault = lambda asked: 501 if asked == Asked("GET", "", 0, 0, asked.number) else None
    manager = LayoutStorageManager(RemoteTree(URL, patient))
    manager.copy_log_segment_data(metadata, data)
    assert "unfinished uploads may be left" in caplog.text and "501" in caplog.text
    with manager.fetch_log_segment(metadata, 0) as stream:
        assert stream.read() == Path(data.log_segment).read_bytes()


@pytest.mark.parametrize("with_metadata", [False, True])
@pytest.mark.parametrize("compress", [None, False, True])
def test_swapped_objects(faulty: Faulty, patient: dict[str, str], tiered: Tiered,
                         with_metadata: bool, compress: bool | None) -> None:
    """They are found when their first byte is read, without a request for it; in Kafka's layout
    and, plain and compressed, in Aiven's."""
    name = "t-gzip-0"
    root = faulty.root / "data" / "tier"
    if compress is None:
        shutil.copytree(tiered.remote, root)
    else:
        manager = LayoutStorageManager(RemoteTree(str(root)), AivenWriter(
            compression=compress, chunk_size=1000))
        for metadata in announced(tiered, name):
            manager.copy_log_segment_data(metadata, data_of(tiered, metadata))
    one, other = sorted(path for path in root.rglob("*.log") if "t-gzip" in str(path))[1:3]
    suffixes = (".log",) if compress is None else (".log", ".rsm-manifest", ".indexes")
    for suffix in suffixes:
        first, second = (path.with_suffix(suffix) for path in (one, other))
        first_bytes, second_bytes = first.read_bytes(), second.read_bytes()
        if suffix == ".rsm-manifest":  # each with its own name and offsets, and the other's chunks
            first_bytes, second_bytes = _exchanged(first_bytes, second_bytes)
        first.write_bytes(second_bytes)
        second.write_bytes(first_bytes)
    log = open_bucket("s3://data/tier", storage_options=patient,
                      metadata=tiered.data if with_metadata else ()).log("t-gzip", 0)
    with pytest.raises(KafkaStorageError):
        read(log)
    gaps: list[LogGap] = []
    offsets = [offset for batch in log.to_arrow(columns=["offset"], on_damage="skip",
                                                on_gap=gaps.append)
               for offset in batch.to_pylists()["offset"]]
    assert offsets == [row.offset for row in tiered.rows(name, "read_uncommitted")
                       if not 46 <= row.offset < 140 and row.offset < 234]
    assert gaps


def _exchanged(first: bytes, second: bytes) -> tuple[bytes, bytes]:
    """Two manifests with the chunks and indexes of the other."""
    one, other = json.loads(first), json.loads(second)
    for field in ("chunkIndex", "segmentIndexes"):
        one[field], other[field] = other[field], one[field]
    return json.dumps(other).encode(), json.dumps(one).encode()
