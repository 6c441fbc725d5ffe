"""What an append checks, writes and counts, for leaders and followers."""

from __future__ import annotations

import logging
import threading
import uuid
from pathlib import Path

import pytest

from seglog.config import LogConfig
from seglog.errors import RecordTooLargeError, UnexpectedAppendOffsetError
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.context import LogContext
from seglog.log.scheduler import MockTime, Scheduler
from seglog.log.stats import BrokerTopicStats
from seglog.log.unified_log import UnifiedLog, load_unified_log
from seglog.log.watermarks import StartOffsetReason
from seglog.metrics import MetricsRegistry
from seglog.model import TopicPartition
from seglog.recovery.inputs import LoadInputs
from seglog.storage.paths import PARTITION_METADATA
from tests.log.test_fast_path import NOW, batch, open_log
from tests.oracle import legacy


def compressed(size: int) -> bytes:
    builder = RecordBatchBuilder(codec="gzip")
    builder.append(NOW, None, bytes(size))
    return builder.build()


def counted(path: Path, **config: str) -> tuple[UnifiedLog, BrokerTopicStats]:
    clock, stats = MockTime(current_time_ms=NOW), BrokerTopicStats(MetricsRegistry())
    path.mkdir()
    inputs = LoadInputs(TopicPartition("t", 0), True, 0, 0, LogConfig.from_properties(
        {key.replace("_", "."): value for key, value in config.items()}))
    context = LogContext(clock.scheduler, clock, stats=stats)
    return load_unified_log(str(path), inputs, context=context, topic_id=None), stats


def test_records_and_bytes_are_counted_once(tmp_path: Path) -> None:
    """On every path of an append, also after the metrics were registered again."""
    log, stats = counted(tmp_path / "t-0")
    log.new_metrics()
    sent = [batch(3), batch(3), batch(2) + batch(4)]
    for data in sent:
        log.append_each_as_leader(data, 0)
    log.append_as_leader(compressed(100), 0)
    follower = (13).to_bytes(8, "big") + batch(5)[8:]
    log.append_as_follower(follower, 0)
    for meters in (stats.topic_stats("t"), stats.all_topics_stats):
        assert meters.meter("MessagesInPerSec").count == 13
        assert meters.meter("BytesInPerSec").count == sum(map(len, (*sent, compressed(100))))
        assert meters.meter("ProduceMessageConversionsPerSec").count == 0
    assert stats.all_topics_stats.meter("ReplicationBytesInPerSec").count == len(follower)
    log.close()


def test_a_batch_that_the_topics_codec_makes_too_large_is_refused(tmp_path: Path) -> None:
    """UnifiedLog.append, after messageSizeMaybeChanged."""
    log, stats = counted(tmp_path / "t-0", max_message_bytes="500",
                         compression_type="uncompressed")
    with pytest.raises(RecordTooLargeError, match="in append topartition t-0 which exceeds the "
                                                  "maximum configured size of 500"):
        log.append_as_leader(compressed(1000), 0)
    assert log.log_end_offset == 0
    assert stats.topic_stats("t").meter("BytesRejectedPerSec").count == len(compressed(1000))
    assert log.append_as_leader(compressed(300), 0).last_offset == 0
    log.close()


def test_a_follower_skips_batches_of_a_later_epoch(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = open_log(tmp_path / "t-0")
    later = batch(2)[:12] + (3).to_bytes(4, "big") + batch(2)[16:]
    assert log.append_as_follower(later, 2).valid_bytes == log.log_end_offset == 0
    assert ("Skipping batch with offsets [0, 1] from an origin of REPLICATION because its "
            "partition leader epoch 3 is higher than the replica's current leader epoch 2"
            in caplog.messages)
    log.close()


def test_an_append_knows_the_start_that_no_epoch_knows(tmp_path: Path) -> None:
    """The first epoch begins later, after messages of an old format."""
    log = open_log(tmp_path / "t-0")
    for offset in range(2):
        log.append_as_follower(legacy.encode(legacy.Message(offset, 1, b"k", b"v", NOW)), 0)
    for _ in range(2):
        log.append_as_leader(batch(), 0)
    log.update_high_watermark(4)
    log.maybe_increment_log_start_offset(1, StartOffsetReason.CLIENT_RECORD_DELETION)
    assert log.append_as_leader(batch(), 0).log_start_offset == 1
    log.close()


def test_the_id_of_the_topic_is_written_once(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.assign_topic_id(uuid.UUID(int=5))
    (metadata := tmp_path / "t-0" / PARTITION_METADATA).unlink()
    log.append_as_leader(batch(), 0)
    log.close()
    assert not metadata.exists()


def test_the_result_of_batches_on_different_paths(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(batch(), 0)
    parts = compressed(100), batch(2, timestamp=NOW - 5)
    for data, first in (b"".join(parts), 1), (b"".join(parts[::-1]), 4):
        info = log.append_each_as_leader(data, 0)
        assert (info.first_offset, info.last_offset, info.max_timestamp) == (first, first + 2, NOW)
    log.close()


@pytest.mark.parametrize("name", ["t-0", "t-1"])
def test_a_close_and_a_new_name_write_the_id_of_the_topic(tmp_path: Path, name: str) -> None:
    log = open_log(tmp_path / "t-0")
    log.context.scheduler.shutdown()
    log.assign_topic_id(uuid.UUID(int=5))
    assert not (tmp_path / "t-0" / PARTITION_METADATA).exists()
    if name == "t-0":
        log.close()
    else:
        log.rename_dir(name)
    assert (tmp_path / name / PARTITION_METADATA).exists()


def test_a_follower_takes_a_batch_of_any_size(tmp_path: Path) -> None:
    """Its leader took it, under another setting (UnifiedLog.appendAsFollower)."""
    log = open_log(tmp_path / "t-0", max_message_bytes="100")
    with pytest.raises(RecordTooLargeError):
        log.append_as_leader(batch(size=500), 0)
    assert log.append_as_follower(batch(size=500), 0).last_offset == 0
    log.close()


def test_a_followers_batch_that_begins_below_offset_minus_one(tmp_path: Path) -> None:
    """UnifiedLog.append: any first offset but -1 is one that is known, also for the error."""
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(batch(4), 0)
    for base, what, shown in ((-2, "First offset 2", "-2, -1, 0, 1, 2"),
                              (-1, "Last offset of the first batch 3", "-1, 0, 1, 2, 3")):
        sent = base.to_bytes(8, "big", signed=True) + batch(5)[8:]
        with pytest.raises(UnexpectedAppendOffsetError, match=(
                f"{what} is less than the next offset 4. First 10 offsets in append: {shown}, "
        )) as caught:
            log.append_as_follower(sent, 0)
        assert caught.value.first_offset == base
    old = legacy.encode(legacy.Message(2, 1, b"k", b"v", NOW))
    with pytest.raises(UnexpectedAppendOffsetError, match="Last offset of the first batch 2") \
            as caught:
        log.append_as_follower(old, 0)
    assert caught.value.first_offset == 2
    log.close()


def test_the_topic_id_is_written_before_the_first_record(tmp_path: Path) -> None:
    """UnifiedLog.append flushes partition.metadata: the task that writes it may come later."""
    scheduler, free = Scheduler(1), threading.Event()
    scheduler.startup()
    scheduler.schedule_once("busy", free.wait)
    log = UnifiedLog.create(tmp_path / "t-0", LogConfig(), scheduler=scheduler)
    log.assign_topic_id(uuid.UUID(int=5))
    metadata = tmp_path / "t-0" / "partition.metadata"
    assert not metadata.exists()
    log.append_as_leader(batch(), 0)
    assert metadata.read_text().endswith("topic_id: AAAAAAAAAAAAAAAAAAAABQ")
    free.set()
    log.close()
    scheduler.shutdown()


def test_old_messages_are_compressed_at_the_topics_level(tmp_path: Path) -> None:
    """LogValidator converts them with LogConfig.compression."""
    message, sizes = legacy.encode(legacy.Message(
        0, 1, b"k", b"".join(b"%d" % n**2 for n in range(900)), NOW)), []
    for level in ("1", "9"):
        log = open_log(tmp_path / f"t{level}-0", compression_type="gzip",
                       compression_gzip_level=level)
        log.append_as_leader(message, 0)
        sizes.append(log.size)
        log.close()
    assert sizes[0] > sizes[1]
