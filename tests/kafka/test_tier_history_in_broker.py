"""What a broker tiers in a life of restarts, retention and lost records, read by seglog."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path

import pytest

import seglog
from seglog.cli.main import main
from seglog.storage.isolation import Isolation
from seglog.storage.partition_log import PartitionLog
from seglog.tiered import RemoteLogSegmentState, open_bucket, read_metadata_topic
from seglog.tiered.remote_records import id_text
from tests.kafka import harness
from tests.kafka.tier_history import ISOLATIONS, PARTITIONS, TOPICS, History, live
from tests.support import reading

pytestmark = pytest.mark.judge


@pytest.fixture(scope="module")
def history(kafka_lib: Path, tmp_path_factory: pytest.TempPathFactory) -> History:
    """A broker's life. SEGLOG_HISTORY_SEED gives another one; how records fall into batches and
    segments differs each time."""
    return live(tmp_path_factory.mktemp("history") / "broker",
                int(os.environ.get("SEGLOG_HISTORY_SEED", "14")))


@pytest.mark.parametrize(("topic", "partition"), PARTITIONS)
def test_disk_and_bucket(history: History, topic: str, partition: int) -> None:
    truth = history.truth[topic, partition]
    path = history.data / f"{topic}-{partition}"
    log = PartitionLog.open(path, remote=history.remote)
    assert (log.log_start_offset, log.log_end_offset) == (truth.start, truth.end)
    for isolation in ISOLATIONS:
        for threads in (0, 2):
            assert reading.read_rows(
                log, isolation=isolation, threads=threads) == truth.rows[isolation]
    assert log.gaps == ()
    with seglog.open_data_dir(history.data, remote=history.remote) as data:
        assert reading.read_rows(data.log(topic, partition)) == truth.rows["read_uncommitted"]


@pytest.mark.parametrize(("topic", "partition"), PARTITIONS)
def test_times(history: History, topic: str, partition: int) -> None:
    """The first record at or after a time; where markers may be earlier, what the broker answers.

    The broker's answer is no truth for a log that starts inside of a segment: if the segment's
    largest timestamp lies below the start, Kafka 4.3.1 continues in the local log (RemoteLogManager
    .findOffsetByTimestamp), and passes over the remote segments between.
    """
    truth = history.truth[topic, partition]
    log = PartitionLog.open(history.data / f"{topic}-{partition}", remote=history.remote)
    rows = truth.rows["read_uncommitted"]
    for timestamp, answer in truth.times.items():
        expected = answer if topic == "txn" else next(
            ((row["offset"], row["timestamp"]) for row in rows if row["timestamp"] >= timestamp),
            None)
        one = log.offset_for_timestamp(timestamp)
        assert (None if one is None else (one.offset, one.timestamp)) == expected, timestamp


@pytest.mark.parametrize(("topic", "partition"), PARTITIONS)
@pytest.mark.parametrize("with_metadata", [False, True])
def test_the_bucket_alone(history: History, topic: str, partition: int, with_metadata: bool
                          ) -> None:
    truth = history.truth[topic, partition]
    bucket = open_bucket(history.remote, metadata=history.data if with_metadata else ())
    log = bucket.log(topic, partition, log_start_offset=truth.start)
    local = PartitionLog.open(history.data / f"{topic}-{partition}")
    assert log.log_end_offset == int(local.segments.base_offsets[0])
    for isolation in ISOLATIONS:
        end = log.end_offset(isolation)
        assert reading.read_rows(log, isolation=isolation) == [
            row for row in truth.rows[isolation] if row["offset"] < end]
    assert log.gaps == ()


def run(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """What a verb prints; it must find nothing wrong."""
    code = main([str(one) for one in args])
    out = capsys.readouterr()
    assert code == 0, (args, out.out[-2000:], out.err[-2000:])
    return out.out


def test_the_verbs(history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, remote = history.data, history.remote
    assert all(f"{topic}-{partition}" in run(capsys, "ls", "--remote", remote, data)
               for topic, partition in PARTITIONS)
    run(capsys, "verify", data, "--remote", remote)
    for topic, partition in (("many", 1), ("txn", 0), ("rolled-back", 0), ("expired", 0)):
        truth = history.truth[topic, partition]
        out = run(capsys, "cat", data, "--remote", remote, "-t", topic, "-p", partition, "-e",
                  "-q", "-f", "%o\\n")
        assert list(map(int, out.split())) == [
            row["offset"] for row in truth.rows["read_uncommitted"]]
        dumped = run(capsys, "dump", "--remote", remote, f"{topic}-{partition}",
                     "--deep-iteration")
        assert "payload" not in dumped and dumped.count("| offset: ") > 50
    for options in ((), ("--metadata", data)):
        assert run(capsys, "tier", "verify", remote, *options).count(": sound") == len(PARTITIONS)
        listed = run(capsys, "tier", "ls", remote, *options)
        assert "remote_gap" not in listed and "object_" not in listed
        for isolation in ISOLATIONS:
            target = tmp_path / f"{isolation}{len(options)}.jsonl"
            run(capsys, "tier", "export", remote, *options, "-o", target, "--binary", "base64",
                "--isolation", isolation, "-q")
            check_exported(history, target, isolation)
    check_orphans(history, capsys)
    main(["tier", "lint", str(data), "--remote", str(remote)])
    linted = capsys.readouterr().out.splitlines()  # a broker itself repeats deletions: a warning
    assert linted and not [line for line in linted if line.startswith("error")]
    assert run(capsys, "tier", "rebuild-indexes", remote, "--metadata", data).count(
        " 0 indexes written: sound") == len(PARTITIONS)


def check_orphans(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    """The objects of copies that a stop of the broker interrupted, and no others."""
    main(["tier", "orphans", str(history.remote), "--metadata", str(history.data)])
    store = read_metadata_topic(history.data).store
    broken = {id_text(one.remote_log_segment_id.id) for key in store.partitions
              for one in store.list_all_remote_log_segments(key)
              if one.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED}
    for line in capsys.readouterr().out.splitlines():
        assert any(name in line for name in broken), line


def check_exported(history: History, target: Path, isolation: Isolation) -> None:
    """The offsets and values of each partition, up to where its tier ends."""
    found: dict[tuple[str, int], list[tuple[int, str | None]]] = {}
    for line in target.read_text().splitlines():
        row = json.loads(line)
        found.setdefault((row["topic"], row["partition"]), []).append((row["offset"],
                                                                       row["value"]))
    assert set(found) == set(PARTITIONS)
    for key, rows in found.items():
        truth = history.truth[key]
        expected = [(row["offset"], None if row["value"] is None else
                     base64.b64encode(row["value"]).decode()) for row in truth.rows[isolation]]
        rows = [row for row in rows if row[0] >= truth.start]
        assert rows == expected[:len(rows)] and len(rows) > 20, key


def test_a_broker_opens_what_was_restored(history: History, tmp_path: Path,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    """Each log as a directory of a new broker, which knows nothing of tiers."""
    broker = harness.Broker(tmp_path / "other")
    with broker:
        with harness.Client(broker.bootstrap) as client:
            for topic, (count, _) in TOPICS.items():
                client.create_topic(topic, count, {"retention.ms": "-1"})
        broker.stop()
    ends = {}
    for topic, partition in PARTITIONS:
        local = broker.data_dir / f"{topic}-{partition}"
        identity = (local / "partition.metadata").read_bytes()
        shutil.rmtree(local)
        run(capsys, "tier", "restore", history.remote, f"{topic}-{partition}", local)
        (local / "partition.metadata").write_bytes(identity)
        ends[topic, partition] = PartitionLog.open(local).log_end_offset
    with broker, harness.Client(broker.bootstrap) as client:
        for key, end in ends.items():
            truth = history.truth[key]
            for isolation in ISOLATIONS:
                answer = client.ask("consume", topic=key[0], partition=key[1],
                                    isolation=isolation)
                assert answer["end"] == (end if isolation == "read_uncommitted" else
                                         PartitionLog.open(broker.data_dir / f"{key[0]}-{key[1]}"
                                                           ).last_stable_offset)
                rows = [row for row in harness.as_rows(answer["rows"])
                        if row["offset"] >= truth.start]
                assert rows == [row for row in truth.rows[isolation]
                                if row["offset"] < answer["end"]], key
