"""Faulty stores: every read returns the right records, or one typed error that names the object."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog import PartitionLog
from seglog.arrow import decode_range
from seglog.errors import ForkedProcessError, KafkaStorageError
from tests.objects.faulty import Asked, Faulty
from tests.objects.server import options_of
from tests.support.effort import quick_first
from tests.support.reading import rows_of
from tests.support.waiting import PATIENCE, wait_for
from tests.tiered.conftest import Tiered
from tests.tiered.conftest import tiered as tiered  # the fixture

URL = "s3://data/orders-0"
FAULTS = (500, 502, 503, 429, "reset", "cut", "short", "stall")


@pytest.fixture
def log_dir(faulty: Faulty) -> Path:
    """A log of three segments, of about 1.5 MiB each, and its records."""
    path = faulty.root / "data" / "orders-0"
    config = {"segment.bytes": "1500000", "max.message.bytes": "1000000"}
    with seglog.open(path, config=config) as log:
        chance = random.Random(5)
        for number in range(300):
            log.append(chance.randbytes(14_000), key=b"%d" % number)
    assert len(list(path.glob("*.log"))) == 3
    return path


def read(storage: dict[str, str], **options: Any) -> list[Any]:
    with PartitionLog.open(URL, storage_options=storage) as log:
        return [row for columns in log.to_arrow(**options) for row in rows_of(columns)]


def local(path: Path) -> list[Any]:
    with PartitionLog.open(path) as log:
        return [row for columns in log.to_arrow() for row in rows_of(columns)]


@pytest.mark.parametrize("seed", range(6))
def test_faults_that_pass_cost_time_and_no_record(
        faulty: Faulty, hasty: dict[str, str], log_dir: Path, seed: int) -> None:
    """A third of all requests fail, each in its own way, and succeed at the second attempt."""
    chance = random.Random(seed)
    drawn: dict[Asked, int | str | None] = {}

    def fault(asked: Asked) -> int | str | None:
        if asked.number or not asked.key:
            return None
        with faulty.lock:
            kinds = FAULTS if chance.random() < 0.05 else FAULTS[:-1]
            drawn[asked] = chance.choice(kinds) if chance.random() < 0.4 else None
            return drawn[asked]

    faulty.fault = fault
    assert read(hasty, threads=seed % 3, isolation=("read_uncommitted", "read_committed")[seed % 2]
                ) == local(log_dir)
    assert any(drawn.values())


@pytest.mark.parametrize("fault", quick_first(FAULTS, len(FAULTS) - 1))  # a stall is waited for
def test_faults_that_stay_are_one_error_with_object_and_reason(
        faulty: Faulty, hasty: dict[str, str], log_dir: Path, fault: int | str) -> None:
    segments = sorted(path.name for path in log_dir.glob("*.log"))
    key, rows = f"orders-0/{segments[1]}", []
    log = PartitionLog.open(URL, storage_options={**hasty, "max_retries": "1"})
    first = log.segments[1].base_offset
    assert log.log_end_offset == 300
    parts = log.ranges(1 << 40)
    faulty.fault = lambda asked: fault if asked.key == key else None
    began = time.monotonic()
    with pytest.raises(KafkaStorageError) as caught:
        for part in parts:
            for columns in decode_range(part, where=log.where):
                rows += rows_of(columns)
    assert time.monotonic() - began < 100
    assert rows == local(log_dir)[:first]  # all records before
    assert caught.value.code == "object_read" and caught.value.file == f"s3://data/{key}"
    assert f"s3://data/{key}" in str(caught.value)
    for secret in (hasty["aws_access_key_id"], hasty["aws_secret_access_key"]):
        assert secret not in str(caught.value)


def test_a_refusal_is_not_asked_again(
        faulty: Faulty, hasty: dict[str, str], log_dir: Path) -> None:
    log = PartitionLog.open(URL, storage_options=hasty)
    part, = log.ranges(1 << 40)[:1]
    faulty.fault = lambda asked: 403 if asked.key.endswith(".log") else None
    faulty.asked.clear()
    with pytest.raises(KafkaStorageError, match="403"):
        list(decode_range(part, where=log.where))
    assert len([asked for asked in faulty.asked if asked.method == "GET"]) <= 2


def test_missing_credentials_are_said_to_be_missing(
        faulty: Faulty, hasty: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's message is about a service of the machine that its user may not know."""
    for name in list(os.environ):
        if name.upper().startswith("AWS_"):
            monkeypatch.delenv(name)
    options = {name: value for name, value in hasty.items() if "key" not in name}
    faulty.fault = lambda asked: 403
    with pytest.raises(KafkaStorageError, match="no credentials are in the environment or in the "
                       "storage options, and the machine's metadata service gave none: .*403"):
        PartitionLog.open(URL, storage_options={
            **options, "aws_metadata_endpoint": options["aws_endpoint"]})


@pytest.mark.parametrize("topic", ["orders", "connect-offsets", "orders-500"])
def test_an_empty_object_costs_one_refused_request(
        faulty: Faulty, hasty: dict[str, str], topic: str) -> None:
    """Whatever words and numbers its name has in common with failures that may pass."""
    path = faulty.root / "data" / f"{topic}-0"
    with seglog.open(path) as log:
        log.append(b"a value")
    assert not next(path.glob("*.index")).stat().st_size
    with PartitionLog.open(f"s3://data/{topic}-0", storage_options=hasty) as remote:
        assert [record.value for record in remote.records()] == [b"a value"]
    asked = [one.method for one in faulty.asked if one.key.endswith("0.index")]
    assert asked == ["GET", "HEAD"]


@pytest.mark.parametrize("change, code", [
    ("gone", "file_missing"), ("grown", "object_changed"), ("cut", "object_changed"),
    ("emptied", "object_changed"), ("rewritten", "object_changed"),
])
def test_an_object_that_changes_between_plan_and_read(
        faulty: Faulty, hasty: dict[str, str], log_dir: Path, change: str, code: str) -> None:
    """After retention or any other change, a read never mixes two versions."""
    log = PartitionLog.open(URL, storage_options=hasty)
    parts, skipping = log.ranges(1 << 40), log.ranges(1 << 40, on_damage="skip")
    victim = log_dir / os.path.basename(parts[1].file)
    content = victim.read_bytes()
    if change == "gone":
        victim.unlink()
    else:
        victim.write_bytes({"grown": content + content[:100], "cut": content[:-5000],
                            "emptied": b"", "rewritten": content[::-1]}[change])
        os.utime(victim, ns=(1, 2))
    with pytest.raises(KafkaStorageError) as caught:
        list(decode_range(parts[1], where=log.where))
    assert caught.value.code == code and caught.value.file == parts[1].file
    assert parts[1].file in str(caught.value)
    if change == "gone":
        assert caught.value.errno == errno.ENOENT  # as for a local file
    # failOnDataLoss=false: the segment is a gap, and the records around it are read.
    gaps, offsets = [], []
    for part in skipping:
        for columns in decode_range(part, seglog.arrow.DecodeOptions(on_damage="skip"),
                                    on_gap=gaps.append, where=log.where):
            offsets += columns.to_pylists()["offset"]
    lost = range(log.segments[1].base_offset, log.segments[2].base_offset)
    assert offsets == [offset for offset in range(300) if offset not in lost]
    assert {(gap.file, gap.kind) for gap in gaps} == {(parts[1].file, code)}


def test_an_index_that_vanishes_makes_a_read_slow_and_not_wrong(
        faulty: Faulty, hasty: dict[str, str], log_dir: Path) -> None:
    faulty.fault = lambda asked: 404 if asked.key.endswith("index") else None
    assert read(hasty) == local(log_dir)


def test_a_stream_that_is_left_stops_asking(faulty: Faulty, hasty: dict[str, str]) -> None:
    config = {"internal.segment.bytes": "20000"}
    with seglog.open(faulty.root / "data" / "orders-0", config=config) as local_log:
        for _ in range(100):
            local_log.append(bytes(5000))
    with PartitionLog.open(URL, storage_options=hasty) as log:
        stream = log.to_arrow(batch_rows=1, threads=2)
        next(stream)
        stream.close()

    def is_quiet() -> bool:
        before = len(faulty.asked)
        time.sleep(0.5)
        return len(faulty.asked) == before

    wait_for(is_quiet)
    asked = len(faulty.asked)
    faulty.asked.clear()
    read(hasty, batch_rows=1, threads=2)
    assert 0 < asked < len(faulty.asked)


def ends_at_once(faulty: Faulty, *command: str) -> None:
    """Ctrl-C ends a command that waits for the first request whose fault is a stall."""
    options = {name.upper(): value for name, value in options_of(faulty.port).items()}
    faulty.stall_seconds = 2 * PATIENCE
    with subprocess.Popen([sys.executable, "-m", "seglog", *command],
                          env={**os.environ, **options}, stderr=subprocess.PIPE) as reader:
        try:
            wait_for(lambda: any(map(faulty.fault, faulty.asked)))
            reader.send_signal(signal.SIGINT)
            began = time.monotonic()
            assert reader.communicate(timeout=PATIENCE) == (None, b"")
        finally:
            reader.kill()
    assert reader.returncode == 130 and time.monotonic() - began < 40


@pytest.mark.parametrize("silent", ["", "0.log", "0.index"], ids=["list", "log", "index"])
def test_ctrl_c_while_a_store_is_silent(faulty: Faulty, silent: str) -> None:
    """It does not wait until the client has given up."""
    with seglog.open(faulty.root / "data" / "orders-0") as log:
        log.append(b"a value")
    faulty.fault = lambda asked: "stall" if asked.key.endswith(silent) and (
        bool(asked.key) == bool(silent)) else None
    ends_at_once(faulty, "cat", "-e", URL)


def test_ctrl_c_while_a_tier_is_silent(faulty: Faulty, tiered: Tiered) -> None:
    """The ends of its segments are asked for in threads."""
    shutil.copytree(tiered.remote, faulty.root / "data" / "tier")
    faulty.fault = lambda asked: "stall" if asked.key.endswith(".log") else None
    ends_at_once(faulty, "tier", "ls", "s3://data/tier", "t-gzip-0")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_the_threads_of_its_parent(
        faulty: Faulty, hasty: dict[str, str]) -> None:
    with seglog.open(faulty.root / "data" / "orders-0") as log:
        log.append(b"a value")
    remote = PartitionLog.open(URL, storage_options=hasty)
    for read_again in (remote.records, lambda: PartitionLog.open(URL, storage_options=hasty)):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                list(read_again())
            except ForkedProcessError as error:
                os._exit(7 if "spawn or forkserver" in str(error) else 8)
            except BaseException:
                os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(list(remote.records())) == 1
