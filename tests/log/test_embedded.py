"""`seglog.open`: the log inside of a program, its locks, its crashes, and what a broker finds."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import seglog
from seglog import LogManager, PartitionLog, Record, TopicPartition
from seglog.config import LogConfig
from seglog.errors import (
    ConfigError, IllegalStateError, InvalidRecordError, InvalidTopicPartitionError,
    KafkaStorageError, LogDirLockedError, OffsetOutOfRangeError, RecordTooLargeError,
)
from seglog.log.following import AsyncRangeTail
from seglog.manager.directories import LogDirectory
from seglog.storage.checkpoint_files import read_offset_checkpoint
from seglog.storage.stream import RecordBatchStream
from tests.support.waiting import PATIENCE, wait_for

MARKER, LOCK = ".kafka_cleanshutdown", ".lock"
SECONDS = 120.0


def in_another_process(code: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def values(log: seglog.EmbeddedLog) -> list[bytes | None]:
    return [record.value for record in log.records()]


def checkpoint(data: Path, name: str) -> dict[TopicPartition, int]:
    return read_offset_checkpoint(data / f"{name}-offset-checkpoint")


def test_ten_lines(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "events-0") as log:
        assert log.append(b"one", key=b"k", headers=[("h", b"v")], timestamp=5) == 0
        assert log.append_many([b"two", (b"k", b"three"), None]) == range(1, 4)
        assert [value for batch in log.to_arrow() for value in batch.to_pylists()["value"]] == [
            b"one", b"two", b"three", None]
    with seglog.open(tmp_path / "events-0") as log:
        records = list(log.records(0, 3))
        assert records[0] == Record(0, 5, b"k", b"one", (("h", b"v"),))
        assert [record.offset for record in records] == [0, 1, 2]
        assert log.append_many(records) == range(4, 7)
        assert next(log.records(4)) == records[0]._replace(offset=4)
        assert log.offset_for_timestamp(6).offset == 1
        assert log.offset_for_timestamp(2**60) is None


def test_a_later_start_outlasts_a_checkpoint_that_was_begun_before(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is on the disk before the recovery point that it lifts."""
    written, begun, second = [], threading.Event(), threading.Event()
    write = LogDirectory.write_checkpoint

    def slow(self: LogDirectory, name: str, offsets: dict[TopicPartition, int]) -> None:
        if not begun.is_set():
            begun.set()
            second.wait(.3)  # time out: the second one has to wait for this one
        write(self, name, offsets)
        written.append((name, offsets[TopicPartition("t", 0)]))

    with seglog.open(tmp_path / "t-0") as log:
        log.append_many([b"x"] * 9)
        monkeypatch.setattr(LogDirectory, "write_checkpoint", slow)
        first = threading.Thread(target=log.delete_before, args=(3,))
        first.start()
        assert begun.wait(SECONDS)
        log.delete_before(7)
        second.set()
        first.join(SECONDS)
        starts, points = "log-start-offset-checkpoint", "recovery-point-offset-checkpoint"
        assert [name for name, _ in written] == [starts, points] * 2
        assert [offset for name, offset in written if name == starts] == [3, 7]
        assert checkpoint(tmp_path, "log-start") == {TopicPartition("t", 0): 7}


def test_where_it_is(tmp_path: Path) -> None:
    """A path whose name is no partition's is the data directory."""
    plain = tmp_path / "mine"
    with seglog.open(plain) as log:
        assert log.path == str(plain / "log-0")
        with seglog.open(plain, topic_partition=TopicPartition("other", 3)) as other:
            assert other.path == str(plain / "other-3")
            assert log.append(b"x") == other.append(b"x") == 0
        with pytest.raises(LogDirLockedError):
            seglog.open(plain)
        with pytest.raises(LogDirLockedError):
            seglog.open(plain / "log-0")
    assert sorted(path.name for path in plain.iterdir()) == sorted([
        "log-0", "other-3", MARKER, "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint"])
    with pytest.raises(InvalidTopicPartitionError):
        seglog.open(tmp_path / "t-0", topic_partition=TopicPartition("u", 0))
    with pytest.raises(InvalidTopicPartitionError):
        seglog.open(tmp_path / "t-0.0123456789abcdef0123456789abcdef-delete")
    assert not (tmp_path / "t-0").exists()


@pytest.mark.parametrize(("wrong", "error"), [
    ({"config": {"segment.bytes": "1"}}, ConfigError), ({"durability": "often"}, ValueError),
    ({"durability": 0}, ValueError), ({"durability": -1.0}, ValueError)])
def test_wrong_settings_touch_nothing(tmp_path: Path, wrong: dict[str, object],
                                      error: type[Exception]) -> None:
    with pytest.raises(error):
        seglog.open(tmp_path / "d" / "t-0", **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "d").exists()


def test_a_removed_log_leaves_nothing_to_a_new_one(tmp_path: Path) -> None:
    """Its lines in the checkpoints are not those of a new log of its name, also after a crash."""
    path, key = tmp_path / "a-0", TopicPartition("a", 0)
    with seglog.open(tmp_path / "b-0") as other:
        other.append_many([b"other"] * 10)
        other.delete_before(3)
        with seglog.open(path) as log:
            log.append_many([b"old"] * 10)
            log.delete_before(5)
    shutil.rmtree(path)
    with seglog.open(path) as log:
        for name in ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint"):
            assert read_offset_checkpoint(tmp_path / name)[key] == 0
        assert log.append(b"new") == 0 and values(log) == [b"new"]
    with seglog.open(tmp_path / "b-0") as other:
        assert (other.log_start_offset, other.log_end_offset) == (3, 10)


def test_columns_and_batches(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    with seglog.open(tmp_path / "t-0", config={"compression.type": "zstd"},
                     batch_bytes=2000) as log:
        count = 5000
        table = pa.table({"key": pa.array([str(n) for n in range(count)]),
                          "value": pa.array([b"v" * (n % 50) for n in range(count)])})
        assert log.append_columns(table) == range(count)
        assert log.append_columns({"value": np.array([b"a", b"b"])}) == range(count, count + 2)
        assert log.append_columns({"value": []}) == range(count + 2, count + 2)
        read = pa.RecordBatchReader.from_stream(log.to_arrow(columns=["key", "value"])).read_all()
        assert read["value"].to_pylist()[:count] == table["value"].to_pylist()
        with PartitionLog.open(log.path) as reader:
            headers = list(reader.batches())
            assert len(headers) > 50
            assert {batch.attributes & 7 for batch in headers} == {4}
        first = log.log.read(0, 1).records  # as a producer would send it
        before, records = log.log_end_offset, len(list(log.records(0, 200)))
        assert records == 200
        got = log.append_batches(first)
        assert got.start == before and len(got) > 1
        assert [record.value for record in log.records(got.start)] == [
            record.value for record in log.records(0, len(got))]
        with pytest.raises(InvalidRecordError, match="baseOffset"):
            log.append_batches(log.log.read(got.start, 1).records)


def test_refusals_leave_the_log_as_it_was(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "t-0", config={"max.message.bytes": "1000"}) as log:
        log.append(b"x")
        with pytest.raises(RecordTooLargeError):
            log.append(bytes(2000))
        with pytest.raises(TypeError):
            log.append("text")  # type: ignore[arg-type]
        for one in (b"value", "text", {b"key": b"value"}):
            with pytest.raises(TypeError, match="records must be several values, pairs"):
                log.append_many(one)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="encode 'key'"):
            log.latest("key")  # type: ignore[arg-type]
        with pytest.raises(OffsetOutOfRangeError):
            log.to_arrow(2)
        assert log.append(b"y") == 1
        assert values(log) == [b"x", b"y"]
        assert log.append_many([bytes(99)] * 50) == range(2, 52)  # no batch is larger than that
        assert log.append_columns({"value": [bytes(99)] * 50}) == range(52, 102)


def test_another_process_is_refused_and_told_who(tmp_path: Path) -> None:
    with in_another_process(
            "import seglog, sys\n"
            "with seglog.open(sys.argv[1]) as log:\n"
            "    log.append(b'theirs')\n"
            "    print('ready', flush=True)\n"
            "    sys.stdin.readline()\n", tmp_path / "t-0") as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        for name in ("t-0", "u-0"):  # the lock is that of the data directory
            with pytest.raises(LogDirLockedError, match=str(child.pid)) as caught:
                seglog.open(tmp_path / name)
            assert caught.value.holder_pid == child.pid
        with pytest.raises(LogDirLockedError):
            LogManager([tmp_path])
        child.communicate("\n", timeout=SECONDS)
    with seglog.open(tmp_path / "t-0") as log:
        assert values(log) == [b"theirs"]
        with pytest.raises(LogDirLockedError, match=str(os.getpid())):
            LogManager([tmp_path])


def test_a_broker_takes_over_and_gives_back(tmp_path: Path) -> None:
    """LogManager reads what a broker reads: the marker, the checkpoints."""
    data, key = tmp_path / "data", TopicPartition("t", 0)
    with seglog.open(data / "t-0", config={"segment.bytes": str(1 << 20)}) as log:
        log.append_many([bytes(1000)] * 3000)
        assert log.log.number_of_segments > 2
        assert log.delete_before(1500)
        start = log.log_start_offset
    assert not (data / LOCK).exists()
    assert json.loads((data / MARKER).read_text()) == {"version": 0, "brokerEpoch": -1}
    assert checkpoint(data, "recovery-point") == {key: 3000}
    assert checkpoint(data, "log-start") == {key: start} == {key: 1500}
    (data / MARKER).write_text('{"version":0,"brokerEpoch":17}')
    with LogManager([data]) as manager:
        found = manager.get_log(key)
        assert found is not None and (found.log_start_offset, found.log_end_offset) == (1500, 3000)
    epoch = json.loads((data / MARKER).read_text())["brokerEpoch"]
    with seglog.open(data / "t-0") as log:
        assert not (data / MARKER).exists()
        assert (log.log_start_offset, log.log_end_offset) == (1500, 3000)
        assert log.append(b"more") == 3000
    assert json.loads((data / MARKER).read_text())["brokerEpoch"] == epoch


def test_a_directory_of_logs_that_nobody_closed_gets_no_marker(tmp_path: Path) -> None:
    for name in ("t-0", "u-0"):
        with seglog.open(tmp_path / name) as log:
            log.append(b"x")
    (tmp_path / MARKER).unlink()  # the broker that had both has crashed
    with seglog.open(tmp_path / "t-0") as log:
        log.append(b"y")
    assert not (tmp_path / MARKER).exists()
    assert checkpoint(tmp_path, "recovery-point") == {
        TopicPartition("t", 0): 2, TopicPartition("u", 0): 1}
    with seglog.open(tmp_path / "t-0"), seglog.open(tmp_path / "u-0"):
        pass
    assert (tmp_path / MARKER).exists()


def test_a_process_that_is_killed_loses_nothing_it_appended(tmp_path: Path) -> None:
    with in_another_process(
            "import seglog, sys, os, signal\n"
            "log = seglog.open(sys.argv[1], durability='append')\n"
            "for n in range(200): log.append(b'%d' % n)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n", tmp_path / "t-0") as child:
        child.wait(SECONDS)
    assert (tmp_path / LOCK).exists() and not (tmp_path / MARKER).exists()
    size = (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size
    with open(tmp_path / "t-0" / f"{0:020d}.log", "ab") as torn:
        torn.write(bytes(range(70)))  # half a batch, as a crash leaves it
    with seglog.open(tmp_path / "t-0") as log:
        assert values(log) == [b"%d" % n for n in range(200)]
        assert log.append(b"on") == 200
        assert (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size > size
    assert (tmp_path / MARKER).exists()


@pytest.mark.parametrize(("durability", "flush_ms"), [
    ("none", None), ("append", None), (0.05, None), ("none", 50), (3600, 0), (0.05, 2**63 - 2)])
def test_durability(tmp_path: Path, durability: seglog.embedded.embedded_log.Durability,
                    flush_ms: int | None) -> None:
    """`flush.ms` was a setting without effect."""
    config = None if flush_ms is None else {"flush.ms": flush_ms}
    with seglog.open(tmp_path / "t-0", durability=durability, config=config) as log:
        log.append(b"x")
        if isinstance(durability, float) or flush_ms is not None:
            wait_for(lambda: log.log.recovery_point == 1)
        else:
            assert log.log.recovery_point == (durability == "append")
        log.flush()
        assert log.log.recovery_point == 1


def test_a_new_data_directory_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, fsync = set[int](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.add(os.fstat(fd).st_ino), fsync(fd)))
    with seglog.open(tmp_path / "a" / "b" / "t-0"):
        for above in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
            assert above.stat().st_ino in synced


def test_followers_in_threads_and_tasks(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "t-0") as log:
        log.append_many([b"%d" % n for n in range(10)])
        got: list[Record] = []
        follower = log.follow(5)
        thread = threading.Thread(target=lambda: got.extend(follower.records()))
        thread.start()
        log.append_many([b"%d" % n for n in range(10, 100)])
        wait_for(lambda: len(got) == 95)
        follower.close()
        thread.join(SECONDS)
        assert not thread.is_alive()
        assert [record.value for record in got] == [b"%d" % n for n in range(5, 100)]

        async def run() -> list[bytes]:
            found: list[bytes] = []
            async with log.follow_async(0, end_offset=103, columns=["value"]) as tail:
                asyncio.get_running_loop().call_later(
                    0.05, log.append_many, [b"x", b"y", b"z"])
                async for batch in tail:
                    found += batch.to_pylists()["value"]
            return found

        assert len(asyncio.run(asyncio.wait_for(run(), SECONDS))) == 103
        assert list(log.follow(timeout=0.0)) == []
        with pytest.raises(ValueError, match="records need the columns .*, and only value were"):
            next(log.follow(0, columns=["value"]).records())


@pytest.mark.parametrize(("of", "step"), [(AsyncRangeTail, "_poll"),
                                          (RecordBatchStream, "__next__")])
def test_a_task_that_is_cancelled_misses_no_record(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: type, step: str) -> None:
    """As by `asyncio.wait_for`, when a thread has found, or decoded, what it waits for."""
    done, cancelled, do = threading.Event(), threading.Event(), getattr(of, step)

    def tell(found_by: object) -> object:
        try:
            return do(found_by)
        finally:
            done.set()
            cancelled.wait(SECONDS)

    async def run(log: seglog.EmbeddedLog) -> None:
        async with log.follow_async(0, timeout=1.0) as follower:
            for n in range(3):
                log.append(b"%d" % n)
                done.clear()
                cancelled.clear()
                waiting = asyncio.ensure_future(anext(follower))
                await asyncio.to_thread(done.wait, SECONDS)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                cancelled.set()
                found = await anext(follower, None)
                assert found is not None and found.to_pylists()["offset"] == [n]

    monkeypatch.setattr(of, step, tell)
    with seglog.open(tmp_path / "t-0") as log:
        asyncio.run(run(log))


def test_records_for_a_task(tmp_path: Path) -> None:
    async def run(log: seglog.EmbeddedLog) -> list[Record]:
        async with log.follow_async(0, end_offset=5) as events:
            asyncio.get_running_loop().call_later(0.02, log.append_many, [b"d", b"e"])
            found = [await anext(events.records()) for _ in range(2)]
            return found + [event async for event in events.records()]

    with seglog.open(tmp_path / "t-0") as log:
        log.append_many([b"a", b"b", b"c"])
        assert asyncio.run(asyncio.wait_for(run(log), SECONDS)) == list(log.records())


def test_readers_beside_a_writer(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "t-0", config={"segment.bytes": str(1 << 20)}) as log:
        problems: list[BaseException] = []
        done = threading.Event()

        def read() -> None:
            try:
                while not done.is_set():
                    seen = [record.offset for record in log.records()]
                    assert seen == list(range(len(seen)))
            except BaseException as error:
                problems.append(error)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for _ in range(60):
            log.append_many([bytes(500)] * 100)
        done.set()
        for reader in readers:
            reader.join(SECONDS)
        assert not problems, problems
        assert log.log.number_of_segments > 2


def test_after_its_end(tmp_path: Path) -> None:
    log = seglog.open(tmp_path / "t-0")
    log.append(b"x")
    log.close()
    log.close()
    for use in (lambda: log.append(b"y"), log.flush, lambda: list(log.records()),
                lambda: log.append_many([]), lambda: log.append_batches(b""),
                lambda: log.append_columns({"value": []})):
        with pytest.raises(KafkaStorageError):
            use()
    assert "closed" in repr(log)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_stream_outlives_no_log(tmp_path: Path, threads: int) -> None:
    """It says that the log is closed; an end would look like an empty log."""
    with seglog.open(tmp_path / "t-0") as log:
        log.append(b"x")
        stream, records = log.to_arrow(threads=threads), log.records()
        empty = log.to_arrow(1)
    for rest in (stream, records):
        with pytest.raises(KafkaStorageError, match="The log of t-0 in .* is closed"):
            list(rest)
    assert list(empty) == []


def test_retention_by_its_settings(tmp_path: Path) -> None:
    settings = LogConfig().override({"segment.bytes": str(1 << 20), "retention.bytes": "1"})
    with seglog.open(tmp_path / "t-0", config=settings) as log:
        log.append_many([bytes(1000)] * 3000)
        assert log.log.delete_old_segments() > 0
        assert log.log_start_offset > 0
        first = next(log.records())
        assert first.offset == log.log_start_offset


def committed(log: seglog.EmbeddedLog) -> list[bytes | None]:
    return [record.value for record in log.records(isolation="read_committed")]


def test_transactions(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "t-0") as log:
        log.append(b"before")
        with log.transaction() as first:
            assert first.append_many([b"a", (b"k", b"b")]) == range(1, 3)
            log.append(b"beside")
            with log.transaction(7) as second:
                second.append(b"c", key=b"k", timestamp=5)
            assert committed(log) == [b"before"]
            with pytest.raises(IllegalStateError), log.transaction():
                pass
        assert committed(log) == [b"before", b"a", b"b", b"beside", b"c"]
        with pytest.raises(ZeroDivisionError), log.transaction() as failing:
            failing.append_many([bytes(40_000)] * 5)
            raise ZeroDivisionError
        with log.transaction():
            pass
        with log.transaction() as again:
            again.append(b"d")
        assert committed(log) == [b"before", b"a", b"b", b"beside", b"c", b"d"]
        assert len(values(log)) == 11
    with seglog.open(tmp_path / "t-0") as log, log.transaction() as later:
        later.append(b"e")


def test_a_transaction_that_has_ended_takes_no_record(tmp_path: Path) -> None:
    """No block would end the transaction that it began."""
    with seglog.open(tmp_path / "t-0") as log:
        with log.transaction() as committed_one:
            committed_one.append(b"a")
        with pytest.raises(ZeroDivisionError), log.transaction() as aborted_one:
            raise ZeroDivisionError
        for ended in (committed_one, aborted_one):
            with pytest.raises(IllegalStateError, match="producer 0 has ended with its block"):
                ended.append(b"late")
        assert values(log) == [b"a"] and log.last_stable_offset == log.log_end_offset


def test_a_transaction_begins_when_no_append_is_at_work(tmp_path: Path) -> None:
    """An append moves the producers in memory without the GIL."""
    with seglog.open(tmp_path / "t-0") as log:
        begun = threading.Event()

        def begin() -> None:
            with log.transaction():
                begun.set()

        beginning = threading.Thread(target=begin, daemon=True)
        with log.log.lock:
            beginning.start()
            assert not begun.wait(.2)
        assert begun.wait(PATIENCE)
        beginning.join()


def test_a_transaction_that_a_crash_left_open_is_aborted_by_the_next(tmp_path: Path) -> None:
    with in_another_process(
            "import seglog, sys, os, signal\n"
            "log = seglog.open(sys.argv[1])\n"
            "block = log.transaction()\n"
            "transaction = block.__enter__()\n"
            "transaction.append(b'lost')\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n", tmp_path / "t-0") as child:
        child.wait(SECONDS)
    with seglog.open(tmp_path / "t-0") as log:
        log.append(b"x")
        assert (values(log), committed(log)) == ([b"lost", b"x"], [])
        with log.transaction() as transaction:
            transaction.append(b"y")
        assert committed(log) == [b"x", b"y"]
