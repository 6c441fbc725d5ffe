"""Appends with the native path and without: the same answers, errors, states and files."""

from __future__ import annotations

import base64
import errno
import os
import random
import resource
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog._native.append import FastPath
from seglog._native.batch import scan
from seglog.config import LogConfig
from seglog.errors import (
    InvalidRecordError, KafkaStorageError, RecordTooLargeError, RecordValidationError, SeglogError,
)
from seglog.log import active_segment, local_log
from seglog.log.append_info import AppendOrigin, LogAppendInfo
from seglog.log.appends import Appends
from seglog.log.scheduler import MockTime, Time
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from tests.kafka.drive import run_sequence
from tests.oracle import batch as v2
from tests.sequences.generator import generate

NOW = 1_700_000_000_000
SEED, COUNT = 20, 40


def open_log(path: Path, **config: str) -> UnifiedLog:
    time = MockTime(current_time_ms=NOW)
    settings = LogConfig.from_properties({
        "internal.segment.bytes": "8192", "index.interval.bytes": "300",
        **{key.replace("_", "."): value for key, value in config.items()}})
    return UnifiedLog.create(path, settings, scheduler=time.scheduler, time=time)


def batch(count: int = 1, *, size: int = 10, timestamp: int = NOW, producer: int = -1,
          sequence: int = -1, **fields: Any) -> bytes:
    records = [v2.Record(n, timestamp + n, b"k%d" % n, b"v" * size) for n in range(count)]
    return v2.encode(v2.Batch(
        0, count - 1, records, base_timestamp=timestamp, max_timestamp=timestamp + count - 1,
        producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence,
        **fields))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each append took the fast path."""
    found: list[bool] = []
    append_fast = Appends.append_fast

    def spy(*args: Any, **how: Any) -> LogAppendInfo | None:
        info = append_fast(*args, **how)
        found.append(info is not None)
        return info

    class Spied(FastPath):
        def append(self, records: Any, leader_epoch: int) -> LogAppendInfo | None:
            info = super().append(records, leader_epoch)
            if info is not None:  # else `append_fast` is asked next
                found.append(True)
            return info

    monkeypatch.setattr(local_log, "FastPath", Spied)
    monkeypatch.setattr(Appends, "append_fast", spy)
    yield found


def without_native_path(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Appends, "append_fast", lambda *args, **how: None)


@pytest.mark.judge
def test_sequences_with_and_without(tmp_path: Path, taken: list[bool]) -> None:
    """The oracle's sequences: every operation in between the appends."""
    for sequence in generate(SEED, range(COUNT)):
        fast = run_sequence(tmp_path / "fast", sequence)
        with pytest.MonkeyPatch.context() as patch:
            without_native_path(patch)
            slow = run_sequence(tmp_path / "slow", sequence)
        assert fast == slow
    assert any(taken) and not all(taken)


def outcome(log: UnifiedLog, data: bytes, epoch: int, **how: Any) -> Any:
    try:
        return log.append_as_leader(data, epoch, **how)
    except SeglogError as error:
        return error.kafka_name, str(error)


def producing(rng: random.Random) -> bytes:
    """A batch that is mostly plain, of one of three producers that go wrong now and then."""
    kind = rng.random()
    if kind < .5:
        return batch(rng.choice([1, 3, 20]), size=rng.choice([0, 10, 70, 300]),
                     timestamp=NOW + rng.randint(-5000, 5000))
    producer = rng.randrange(3)
    state = PRODUCERS.setdefault(producer, [0])
    count = rng.choice([1, 4])
    sequence = state[0]
    if kind < .9:
        state[0] += count
    elif kind < .95:
        sequence = max(0, sequence - count)
    else:
        sequence += 7
    return batch(count, producer=producer, sequence=sequence)


PRODUCERS: dict[int, list[int]] = {}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("config", [
    {}, {"message_timestamp_type": "LogAppendTime"}, {"cleanup_policy": "compact"},
    {"message_timestamp_before_max_ms": "3000"}, {"segment_ms": "4000"},
    {"segment_index_bytes": "100"}, {"preallocate": "true"}, {"flush_messages": "7"},
    {"index_interval_bytes": "0"}, {"max_message_bytes": "500"}], ids=str)
def test_appends_with_and_without(tmp_path: Path, taken: list[bool], seed: int,
                                  config: dict[str, str]) -> None:
    rng = random.Random(seed)
    PRODUCERS.clear()
    given = [producing(rng) for _ in range(150)]
    fast, slow = open_log(tmp_path / "fast" / "t-0", **config), \
        open_log(tmp_path / "slow" / "t-0", **config)
    assert slow._appends.messages_in == slow._appends.bytes_in == 0
    for number, data in enumerate(given):
        mine = outcome(fast, data, number // 60)
        with pytest.MonkeyPatch.context() as patch:
            without_native_path(patch)
            assert mine == outcome(slow, data, number // 60)
        assert fast.log_end_offset_metadata == slow.log_end_offset_metadata
        assert fast.recovery_point == slow.recovery_point
    assert sum(taken) > 20
    assert ((fast._appends.messages_in, fast._appends.bytes_in)
            == (slow._appends.messages_in, slow._appends.bytes_in))
    assert {**fast.state(), "path": 0} == {**slow.state(), "path": 0}
    for log in (fast, slow):
        log.close()
    theirs = {path.name: path.read_bytes() for path in (tmp_path / "slow" / "t-0").iterdir()}
    assert {path.name: path.read_bytes()
            for path in (tmp_path / "fast" / "t-0").iterdir()} == theirs


def test_each_of_a_span(tmp_path: Path) -> None:
    """A span is its batches one by one, rolls and all."""
    rng = random.Random(5)
    PRODUCERS.clear()
    given = [producing(rng) for _ in range(200)]
    log, other = open_log(tmp_path / "a" / "t-0"), open_log(tmp_path / "b" / "t-0")
    good = []
    for data in given:
        before = other.log_end_offset
        if not isinstance(outcome(other, data, 0), tuple) and other.log_end_offset > before:
            good.append(data)
    one_by_one = open_log(tmp_path / "c" / "t-0")
    for data in good:
        one_by_one.append_as_leader(data, 0)
    info = log.append_each_as_leader(b"".join(good), 0)
    assert (info.first_offset, info.last_offset) == (0, one_by_one.log_end_offset - 1)
    assert info.valid_bytes == sum(map(len, good))
    for one in (log, one_by_one):
        one.close()
    assert {path.name: path.read_bytes() for path in (tmp_path / "a" / "t-0").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "c" / "t-0").iterdir()}


def test_a_span_ends_at_a_batch_that_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    bad = batch(2, is_control=True)
    with pytest.raises(InvalidRecordError, match="control records") as caught:
        log.append_each_as_leader(batch(3) + batch(4) + bad + batch(5), 0)
    assert caught.value.appended.last_offset == 6
    assert log.log_end_offset == 7
    assert log.append_each_as_leader(batch(1)[:-3], 0).valid_bytes == 0
    assert log.log_end_offset == 7


def test_a_duplicate_in_a_span(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    first, second = (batch(2, producer=1, sequence=n) for n in (0, 2))
    info = log.append_each_as_leader(first + second + first + batch(1), 0)
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (0, 4, 5)
    assert info.valid_bytes == 2 * len(first) + len(second) + len(batch(1))


def test_the_callers_bytes_are_not_changed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    data = bytearray(batch(3))
    before = bytes(data)
    for _ in range(5):
        log.append_as_leader(data, 4)
    assert bytes(data) == before


def test_transactions_with_and_without(tmp_path: Path, taken: list[bool]) -> None:
    """Batches of an open transaction take the fast path; its first and its marker do not."""
    rng = random.Random(9)
    fast, slow = open_log(tmp_path / "fast" / "t-0"), open_log(tmp_path / "slow" / "t-0")
    sequences = [0, 0, 0]
    for _ in range(300):
        producer = rng.randrange(3)
        if rng.random() < .15:
            data = v2.encode(v2.marker(0, producer, 0, rng.randint(0, 1), NOW))
            how: dict[str, Any] = {"origin": AppendOrigin.COORDINATOR, "transaction_version": 1}
        else:
            sequence = sequences[producer] + rng.choice([0] * 20 + [1, -1])
            data = batch(2, producer=producer, sequence=max(sequence, 0),
                         timestamp=NOW + rng.randint(0, 900),
                         is_transactional=rng.random() < .95)
            how = {}
        mine = outcome(fast, data, 0, **how)
        with pytest.MonkeyPatch.context() as patch:
            without_native_path(patch)
            assert mine == outcome(slow, data, 0, **how)
        if not how and not isinstance(mine, tuple):
            sequences[producer] += 2
        end = rng.randint(0, fast.log_end_offset)
        for log in (fast, slow):
            log.update_high_watermark(end)
        assert fast.last_stable_offset == slow.last_stable_offset
        assert [log.has_late_transaction(NOW + 1_200_500) for log in (fast, slow)] in (
            [False, False], [True, True])
    assert sum(taken) > 100 and fast.state() | {"path": 0} == slow.state() | {"path": 0}
    for log in (fast, slow):
        log.close()


def test_what_comes_before_a_refused_batch_of_a_span(tmp_path: Path) -> None:
    """A producer's late mistake causes no second check of the batches before it."""
    log = open_log(tmp_path / "t-0", internal_segment_bytes="1000000")
    log.append_as_leader(batch(1, producer=1, sequence=0), 0)
    good = [batch(1, producer=1, sequence=n) for n in range(1, 30)]
    wrong = batch(1, producer=1, sequence=99)
    info = log._appends.append_fast(b"".join([*good, wrong, *good]), 0, is_span=True)
    assert info is not None and info.valid_bytes == sum(map(len, good))
    assert log.log_end_offset == 30
    assert log._appends.append_fast(wrong, 0, is_span=True) is None


@pytest.mark.parametrize("is_fast", [True, False], ids=["native", "slow"])
def test_a_full_disk_in_the_middle_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                              is_fast: bool) -> None:
    """The directory is offline, as in Kafka; the log file ends with its last whole batch."""
    if not is_fast:
        without_native_path(monkeypatch)
    log = open_log(tmp_path / "t-0")
    for _ in range(3):
        log.append_as_leader(batch(2, size=100), 0)
    file = next((tmp_path / "t-0").glob("*.log"))
    before, end = file.read_bytes(), log.log_end_offset
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, hard))
        with pytest.raises(KafkaStorageError):
            log.append_as_leader(batch(2, size=100), 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (file.read_bytes(), log.log_end_offset) == (before, end)
    with pytest.raises(KafkaStorageError):
        log.append_as_leader(batch(2, size=100), 0)
    log.close_handlers()
    again = open_log(tmp_path / "t-0")
    assert again.log_end_offset == end
    assert again.append_as_leader(batch(2, size=100), 0).first_offset == end


def armed(path: Path, **config: str) -> UnifiedLog:
    """A log whose next plain append of epoch 0 takes the native fast path."""
    log = open_log(path, **config)
    for _ in range(3):
        log.append_as_leader(batch(), 0)
    assert log.fast_path.append(batch(), 0) is not None
    return log


def test_another_epoch_is_not_taken(tmp_path: Path) -> None:
    log = armed(tmp_path / "t-0")
    assert log.fast_path.append(batch(), 1) is None
    log.append_as_leader(batch(), 1)
    assert [one.epoch for one in log.leader_epochs] == [0, 1]
    log.append_as_leader(batch(), 1)
    log.append_as_leader(batch(), 1)
    assert log.fast_path.append(batch(), 0) is None and log.fast_path.append(batch(), 1) is not None
    log.assign_epoch_start_offset(3, log.log_end_offset)
    assert log.fast_path.append(batch(), 1) is None
    log.close()


def test_an_append_after_the_epochs_were_cleared(tmp_path: Path) -> None:
    """As a log that is to be deleted does."""
    log = open_log(tmp_path / "t-0")
    for _ in range(3):
        log.append_as_leader(batch(), 0)
    log.rename_dir(f"t-0.{'a' * 32}-delete", reinitialize=False)
    log.append_as_leader(batch(), 0)
    assert [(one.epoch, one.start_offset) for one in log.leader_epochs] == [(0, 3)]
    log.close()


def test_what_an_append_must_notice(tmp_path: Path) -> None:
    """Everything that the fast path was armed with, changed one by one."""
    log = armed(tmp_path / "t-0")
    log.update_config(LogConfig.from_properties({"max.message.bytes": "10"}))
    with pytest.raises(RecordTooLargeError):
        log.append_as_leader(batch(), 0)
    log.update_config(LogConfig())
    end = log.log_end_offset
    log.roll()
    assert log.append_as_leader(batch(), 0).first_offset == end == log.active.base_offset
    log.truncate_to(end)
    assert log.append_as_leader(batch(), 0).first_offset == end
    log.update_high_watermark(log.log_end_offset)
    log.append_as_leader(batch(), 0)
    log.maybe_increment_log_start_offset(2, StartOffsetReason.CLIENT_RECORD_DELETION)
    assert log.append_as_leader(batch(), 0).log_start_offset == 2
    log.append_as_leader(batch(), 0)
    topic_id = uuid.uuid4()
    log.assign_topic_id(topic_id)
    (tmp_path / "t-0" / "partition.metadata").unlink(missing_ok=True)
    log._metadata.is_dirty = True  # as if the task had not run yet
    log.append_as_leader(batch(), 0)
    assert str(base64.urlsafe_b64encode(topic_id.bytes)[:22], "ascii") in (
        tmp_path / "t-0" / "partition.metadata").read_text()
    log.append_as_leader(batch(), 0)
    log.retire("moved away")
    with pytest.raises(KafkaStorageError, match="moved away"):
        log.append_as_leader(batch(), 0)
    log.close()
    with pytest.raises(KafkaStorageError, match="closed"):
        log.append_as_leader(batch(), 0)


def test_a_directory_that_fails_takes_no_append(tmp_path: Path) -> None:
    log = armed(tmp_path / "t-0")
    log.context.failures.maybe_add_offline_log_dir(str(tmp_path), "the disk is gone")
    end = log.log_end_offset
    with pytest.raises(KafkaStorageError, match="offline"):
        log.append_as_leader(batch(), 0)
    assert log.log_end_offset == end
    log.close_handlers()


def test_flush_messages_counts_from_the_last_flush(tmp_path: Path) -> None:
    log = armed(tmp_path / "t-0", flush_messages="10")
    assert (log.recovery_point, log.log_end_offset) == (0, 4)
    log.flush()
    for end in range(5, 14):
        log.append_as_leader(batch(), 0)
        assert (log.recovery_point, log.log_end_offset) == (4, end)
    log.append_as_leader(batch(), 0)
    assert log.recovery_point == log.log_end_offset == 14
    for _ in range(9):
        log.append_as_leader(batch(), 0)
    assert log.recovery_point == 14
    log.append_as_leader(batch(), 0)
    assert log.recovery_point == 24
    log.close()


def test_the_clock_of_the_system_is_read_in_c(tmp_path: Path) -> None:
    log = UnifiedLog.create(tmp_path / "t-0", LogConfig(message_timestamp_type="LogAppendTime"),
                            scheduler=MockTime().scheduler)
    for _ in range(3):
        log.append_as_leader(batch(), 0)
    before = Time().milliseconds()
    info = log.fast_path.append(batch(), 0)
    assert info is not None and before <= info.log_append_time <= Time().milliseconds()
    log.close()


def test_another_clock_than_the_systems_is_asked(tmp_path: Path) -> None:
    log = armed(tmp_path / "t-0", message_timestamp_type="LogAppendTime")
    info = log.fast_path.append(batch(), 0)
    assert info is not None and info.log_append_time == NOW
    log.close()


def test_a_record_of_this_moment_is_never_from_the_future(tmp_path: Path) -> None:
    """C reads a clock that is some ms behind: it declines such a record, and nobody refuses it."""
    log = UnifiedLog.create(tmp_path / "t-0", LogConfig(message_timestamp_after_max_ms=0),
                            scheduler=MockTime().scheduler)
    for n in range(300):
        assert log.append_as_leader(batch(timestamp=Time().milliseconds()), 0).first_offset == n
    with pytest.raises(RecordValidationError, match="invalid timestamp"):
        log.append_as_leader(batch(timestamp=Time().milliseconds() + 60_000), 0)
    log.close()


def test_keywords_reach_the_fast_path_and_the_reference(tmp_path: Path) -> None:
    log = armed(tmp_path / "t-0")
    end = log.log_end_offset
    for how in ({}, {"origin": AppendOrigin.CLIENT}, {"transaction_version": 2},
                {"verification_guard": None}):
        assert log.append_as_leader(records=batch(), leader_epoch=0, **how).first_offset == end
        end += 1
    assert log.fast_path.messages_in == end - 2
    assert log.append_as_leader(batch(), 0, origin=AppendOrigin.COORDINATOR).first_offset == end
    assert log.fast_path.messages_in == end - 2
    log.close()


def test_followers_are_woken_and_the_lock_is_taken(tmp_path: Path) -> None:
    log = armed(tmp_path / "t-0")
    woken: list[int] = []
    log.followers.waiting.append(lambda: woken.append(log.log_end_offset))
    log.append_as_leader(batch(), 0)
    assert woken == [5] and not log.followers.waiting
    done = threading.Event()
    thread = threading.Thread(target=lambda: (log.append_as_leader(batch(), 0), done.set()))
    with log.lock:
        thread.start()
        assert not done.wait(0.2) and log.log_end_offset == 5
        log.append_as_leader(batch(), 0)  # the lock is reentrant
    thread.join()
    assert log.log_end_offset == 7
    log.close()


def test_files_are_closed_once_even_if_that_fails(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their descriptors' numbers may be those of other files by then."""
    log, close, closed = open_log(tmp_path / "t-0"), os.close, list[str]()
    for _ in range(2):
        log.append_as_leader(batch(), 0)
    assert log.fast_path.append(batch(), 0) is not None

    def failing(descriptor: int) -> None:
        closed.append(os.readlink(f"/proc/self/fd/{descriptor}").rpartition(".")[2])
        close(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", failing)
        log.close_handlers()  # abandons the files, and says nothing about them
    assert log.fast_path.append(batch(), 0) is None
    assert closed == ["log", "index", "timeindex"]


@pytest.mark.parametrize("is_fast", [False, True])
def test_no_offset_is_used_again_after_an_interrupt(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fast: bool) -> None:
    """A signal that comes during the write raises as soon as the write is done."""
    log, set_end = open_log(tmp_path / "t-0"), local_log.LocalLog.set_end

    def interrupt(local: local_log.LocalLog, offset: int) -> None:
        monkeypatch.setattr(local_log.LocalLog, "set_end", set_end)
        raise KeyboardInterrupt

    if is_fast:  # the first append opens the writer
        log.append_as_leader(batch(), 0)
    monkeypatch.setattr(local_log.LocalLog, "set_end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        log.append_as_leader(batch(3), 0)
    assert log.log_end_offset == 3 + is_fast
    assert log.append_as_leader(batch(2), 0).first_offset == 3 + is_fast
    log.close()
    data = (tmp_path / "t-0" / f"{0:020d}.log").read_bytes()
    assert scan(data).batches["base_offset"].tolist() == ([0, 1, 4] if is_fast else [0, 3])


def test_jitter_shortens_a_segment_of_the_fast_path_too(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_segment, "_random_jitter", lambda config: 300)
    log = armed(tmp_path / "t-0", segment_ms="1000")
    end = log.log_end_offset
    log.append_as_leader(batch(timestamp=NOW + 700), 0)
    assert log.number_of_segments == 1
    log.append_as_leader(batch(timestamp=NOW + 701), 0)
    assert log.segments.base_offsets.tolist() == [0, end + 1]
