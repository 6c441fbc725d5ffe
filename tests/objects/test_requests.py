"""The number of requests of a plan and a read, for logs of any size."""

from __future__ import annotations

import importlib.util
import random
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from seglog import PartitionLog
from seglog.arrow import decode_range
from seglog.errors import InconsistentTopicIdError, KafkaStorageError
from seglog.objects import StorageOptions, open_store
from seglog.objects.store import ObjectInfo, ObjectVersion
from seglog.objects.urls import local_path, parse_url
from seglog.storage.blocks import BLOCK_BYTES
from seglog.storage.meta import write_partition_metadata
from seglog.storage.paths import PARTITION_METADATA
from tests.objects.faulty import Faulty
from tests.support.waiting import PATIENCE

URL = "s3://data/orders-0"
MIB = 1 << 20


@pytest.fixture
def log_dir(faulty: Faulty) -> Path:
    """Two segments of 24 MiB and a smaller one, in batches of 100 kB."""
    path = faulty.root / "data" / "orders-0"
    value = random.Random(1).randbytes(100_000)
    with seglog.open(path, config={"segment.bytes": str(24 * MIB)}) as log:
        for _ in range(600):
            log.append(value)
    assert len(list(path.glob("*.log"))) == 3
    return path


def counted(faulty: Faulty) -> Counter[tuple[str, str]]:
    """The requests since the last call, by file and kind of file."""
    found = Counter((asked.key.rpartition("/")[2] or "list", asked.method)
                    for asked in faulty.asked)
    faulty.asked.clear()
    return found


def test_a_plan_costs_an_index_and_a_few_looks_a_segment(
        faulty: Faulty, hasty: dict[str, str], log_dir: Path) -> None:
    log = PartitionLog.open(URL, storage_options=hasty)
    assert counted(faulty)["list", "GET"] == 1
    for target in (1 << 40, 4 * MIB):
        log.close()
        faulty.asked.clear()
        parts = log.ranges(target)
        looks = sum(asked.end - asked.start for asked in faulty.asked)
        for name, number in counted(faulty).items():
            cuts = sum(part.file.endswith(name[0]) for part in parts)
            assert number <= (1 if name[0].endswith("index") else 3 + 2 * cuts), name
        assert looks < 600_000 + len(parts) * 600_000


def test_a_read_costs_one_request_for_each_block(
        faulty: Faulty, hasty: dict[str, str], log_dir: Path) -> None:
    log = PartitionLog.open(URL, storage_options=hasty)
    parts = log.ranges(1 << 40)
    faulty.asked.clear()
    for part in parts:
        assert sum(columns.num_rows for columns in decode_range(part, where=log.where)) > 0
    asked = [one for one in faulty.asked if one.method == "GET"]
    assert len(asked) == sum(-(-part.size // BLOCK_BYTES) for part in parts)
    assert sum(one.end - one.start for one in asked) == sum(part.size for part in parts)


def test_a_walk_without_an_index_reads_large_blocks(
        faulty: Faulty, hasty: dict[str, str], log_dir: Path) -> None:
    for index in log_dir.glob("*.index"):
        index.unlink()
    log = PartitionLog.open(URL, storage_options=hasty)
    faulty.asked.clear()
    assert log.log_end_offset == 600
    assert sum(1 for _ in log.batches(check_crcs=False)) == 600
    size = sum(path.stat().st_size for path in log_dir.glob("*.log"))
    assert len(faulty.asked) < 60 + 4 * size // BLOCK_BYTES


def test_a_time_is_found_with_two_indexes_and_a_few_looks(
        faulty: Faulty, hasty: dict[str, str], log_dir: Path) -> None:
    local = PartitionLog.open(log_dir)
    stamp = next(local.batches(300)).max_timestamp
    log = PartitionLog.open(URL, storage_options=hasty)
    assert log.log_end_offset == 600
    faulty.asked.clear()
    assert log.offset_for_timestamp(stamp) == local.offset_for_timestamp(stamp)
    assert len(faulty.asked) < 25


# ---- values


def test_options_hide_their_values() -> None:
    options = StorageOptions({"AWS_Secret_Access_Key": "hush-hush", "max_requests": "3"})
    assert options.max_requests == 3 and options["aws_secret_access_key"] == "hush-hush"
    assert "hush" not in repr(options) and "hush" not in str({"options": options})
    with pytest.raises(ValueError, match="max_retries"):
        StorageOptions({"max_retries": "many"})


@pytest.mark.parametrize("url, said", [
    ("s3:///orders-0", "names no bucket"),
    ("s3://key:hush@bucket/orders-0", "a URL must not contain credentials"),
    ("file://host/data", "another machine"),
    ("s3://bucket/a//b", "empty part"),
])
def test_urls_that_are_none_are_refused_in_one_sentence(url: str, said: str) -> None:
    with pytest.raises(KafkaStorageError, match=said) as caught:
        PartitionLog.open(url)
    assert "hush" not in str(caught.value)


def test_an_unknown_scheme_is_refused_in_one_sentence() -> None:
    # Only fsspec knows its schemes.
    known = importlib.util.find_spec("fsspec") is not None
    said = ("neither obstore nor fsspec supports" if known
            else "reading nonsense:// needs fsspec: pip install")
    with pytest.raises(KafkaStorageError, match=said):
        PartitionLog.open("nonsense://bucket/data")


@pytest.mark.parametrize("act", [seglog.open, seglog.open_data_dir, seglog.LogManager])
def test_what_needs_a_local_directory_says_so(act: Callable[[str], object]) -> None:
    with pytest.raises(KafkaStorageError, match="only a local directory will do here"):
        act("s3://bucket/data/orders-0")


def test_a_url_names_container_and_key() -> None:
    assert parse_url("s3a://bucket/kafka/data/").key == "kafka/data"
    assert parse_url("s3a://bucket").scheme == "s3"
    assert local_path("file:///var/a%20b") == "/var/a b"
    assert local_path("s3://bucket") is None


def test_fsspec_serves_what_obstore_does_not(log_dir: Path) -> None:
    fsspec = pytest.importorskip("fsspec",
                                 reason="fsspec is not installed: pip install 'seglog[fsspec]'")
    system = fsspec.filesystem("memory")
    for path in log_dir.iterdir():
        if path.is_file():
            system.pipe_file(f"/place/orders-0/{path.name}", path.read_bytes())
    store = open_store("memory://place", StorageOptions())
    objects, prefixes = store.list("")
    assert not objects and prefixes == ["orders-0"]
    size = (log_dir / "00000000000000000000.log").stat().st_size
    assert ObjectInfo("orders-0/00000000000000000000.log", ObjectVersion(size)) in store.list(
        "orders-0")[0]
    with PartitionLog.open("memory://place/orders-0") as log:
        assert sum(columns.num_rows for columns in log.to_arrow(threads=1)) == 600


def test_a_follower_asks_for_the_topic_id_only_if_it_changed(
        faulty: Faulty, hasty: dict[str, str]) -> None:
    path = faulty.root / "data" / "orders-0"
    with seglog.open(path, topic_id=uuid.UUID(int=1 << 100)) as program, \
            PartitionLog.open(URL, storage_options=hasty) as log:
        program.append_many([b"old"] * 3)
        for timeout in (.5, 5, PATIENCE):  # longer where the machine was busy with something else
            counted(faulty)
            assert sum(1 for _ in log.follow(0, timeout=timeout).records()) == 3
            asked = counted(faulty)
            assert sum(n for (name, _), n in asked.items() if name == PARTITION_METADATA) <= 2
            if asked["list", "GET"] > 2:
                break
        else:
            pytest.fail("the follower did not look again")
        follower = log.follow(0, timeout=PATIENCE).records()
        assert [next(follower).value for _ in range(3)] == [b"old"] * 3
        write_partition_metadata(path / PARTITION_METADATA, uuid.UUID(int=1 << 101))
        with pytest.raises(InconsistentTopicIdError):
            next(follower)
