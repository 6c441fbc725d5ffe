"""Jobs that write to a broker's data directory while it is down, and the broker that serves it."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest

from seglog.cli.main import main
from seglog.errors import KafkaStorageError, LogDirLockedError
from seglog.fragments import Job, check_target
from seglog.model import TopicPartition
from seglog.storage.partition_log import PartitionLog
from tests.fragments.jobs import Truth, Written, make_rows
from tests.kafka import harness, workload
from tests.kafka.harness import Broker, Client

TOPICS = {"small": 2, "large": 2, "empty": 1}


def job(data_dir: Path, rng: random.Random, truth: Truth, segment_bytes: int, codec: str) -> None:
    written = Written(data_dir, segment_bytes=segment_bytes, codec=codec, batch_bytes=2000)
    for _ in range(2):
        written.task({TopicPartition("small", rng.randrange(2)): make_rows(rng, 20),
                      TopicPartition("large", 0): make_rows(rng, 1500),
                      TopicPartition("large", 1): make_rows(rng, 700)})
    written.publish()
    for key, rows in written.rows.items():
        truth.setdefault(key, []).extend(rows)


@pytest.mark.judge
def test_a_broker_serves_what_jobs_wrote(kafka_lib: Path, tmp_path: Path) -> None:
    """Segments that were appended to and new ones; nothing is recovered or rebuilt, both isolation
    levels and Kafka's tools agree, and the broker's own records are continued."""
    rng, truth = random.Random(11), Truth()
    broker = Broker(tmp_path)
    with broker, Client(broker.bootstrap) as client:
        for topic, count in TOPICS.items():
            # The records are older than a broker keeps by default.
            client.create_topic(topic, count, {"retention.ms": "-1"})
        first = workload.records(rng, 30)
        client.produce("small", first)
        client.produce("large", first, producer="t", config={"transactional.id": "t"})
        client.end_transaction("t", commit=False)
        # The marker comes later than the answer; a stop before it would leave it to the next start.
        end = time.monotonic() + 300
        while PartitionLog.open(broker.data_dir / "large-0").log_end_offset <= len(first):
            assert time.monotonic() < end, "no marker of the aborted transaction"
            time.sleep(.05)
        with pytest.raises(LogDirLockedError, match=rf"process {broker.pid} \(java kafka.Kafka\)"):
            check_target(str(broker.data_dir))
        broker.stop()
    data_dir = broker.data_dir
    for codec, segment_bytes in (("none", 1 << 30), ("zstd", 30_000), ("lz4", 1 << 30)):
        job(data_dir, rng, truth, segment_bytes, codec)
    # What jobs leave at the top is no matter to a broker: a living job, a stream's marker, and a
    # partition that was about to be made.
    living = Job.begin(str(data_dir), os.getpid())
    (data_dir / living.name("fragment", "-1-0")).write_bytes(b"half")
    (data_dir / ".seglog-streams").write_text(json.dumps({"version": 0, "streams": {"q": 1}}))
    (data_dir / f"half-0.{living.id}-delete").mkdir()
    logs = sorted(path for topic, count in TOPICS.items() for number in range(count)
                  for path in (data_dir / f"{topic}-{number}").iterdir()
                  if path.suffix in (".log", ".index", ".timeindex") and path.stat().st_size)
    said = harness.dump_log([path for path in logs if path.suffix != ".log"],
                            "--index-sanity-check")
    assert said.count("passed sanity check") == sum(path.suffix != ".log" for path in logs) > 10
    said = harness.dump_log(logs, "--deep-iteration")
    for complaint in ("Mismatches in", "Non-consecutive offsets", "isvalid: false",
                      "Found timestamp mismatch", "Index timestamp", "corrupt", "invalid"):
        assert complaint not in said, complaint
    with broker, Client(broker.bootstrap) as client:
        assert not broker.rebuilt("half-0")
        for key, rows in sorted(truth.items()):
            for isolation in ("read_uncommitted", "read_committed"):
                found = client.consume(key.topic, key.partition, isolation)
                own = found[:-len(rows)]
                assert len(own) == (30 if key == TopicPartition("small", 0)
                                    or (key == TopicPartition("large", 0)
                                        and isolation == "read_uncommitted") else 0)
                assert [{name: row[name] for name in ("key", "value", "timestamp", "headers")}
                        for row in found[len(own):]] == rows, (key, isolation)
            end = client.consume(key.topic, key.partition)[-1]["offset"] + 1
            assert client.produce(key.topic, workload.records(rng, 2), partition=key.partition) \
                == [end, end + 1]
        broker.stop()
    job(data_dir, rng, {}, 1 << 30, "none")  # and back


@pytest.mark.judge
def test_a_broker_refuses_half_of_a_commit(kafka_lib: Path, tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    with broker:
        broker.stop()
    (broker.data_dir / "seglog_unfinished_commit").mkdir()
    with pytest.raises(RuntimeError, match="seglog_unfinished_commit"):
        broker.start()
    # The broker has removed its marker before it looked into the directory.
    with pytest.raises(KafkaStorageError, match="load --recover"):
        check_target(str(broker.data_dir))
    assert main(["load", "--recover", str(broker.data_dir)]) == 0
    check_target(str(broker.data_dir))
    with broker:
        broker.stop()
