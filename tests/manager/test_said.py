"""What a manager says, every line from the first to the last. The words are Kafka's."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import seglog
from seglog.config import LoadConfig
from seglog.errors import AllLogDirsFailedError, IllegalStateError
from seglog.log.watermarks import StartOffsetReason
from seglog.model import TopicPartition
from tests.manager.moving import N0, begin, manager_of, new_log
from tests.manager.support import break_load, input_output_error, make_dir
from tests.support.said import said
from tests.support.waiting import wait_for

MARKER = ".kafka_cleanshutdown"
ID = "topicId=AAAAAAAAAE0AAAAAAAAAAA"  # of `new_log`


def text_of(place: str, mark: int, end: int) -> str:
    return (f"Log(dir=ROOT/{place}, {ID}, topic=new, partition=0, highWatermark={mark}, "
            f"lastStableOffset={mark}, logStartOffset=0, logEndOffset={end})")


def flush_of(topic: str, since: int) -> str:
    return (f"DEBUG Checking if flush is needed on {topic} flush interval 9223372036854775807 last "
            f"flushed 1700000000000 time since last flush: {since}")


def test_a_life(tmp_path: Path) -> None:
    roots = [tmp_path / "k1", make_dir(tmp_path / "k2", []), make_dir(tmp_path / "k3", [])]
    with said(tmp_path, "manager") as heard:
        manager, clock = manager_of(roots)
        assert heard.take() == ["INFO Log directory ROOT/k1 not found, creating it."]
        manager.startup()
        assert heard.take() == [
            "INFO Loading logs from log dirs ROOT/k1, ROOT/k2, ROOT/k3",
            "INFO No logs found to be loaded in ROOT/k1",
            "INFO No logs found to be loaded in ROOT/k2",
            "INFO No logs found to be loaded in ROOT/k3",
            "INFO Loaded 0 logs in 0ms",
            "INFO Starting log cleanup with a period of 300000 ms.",
            "INFO Starting log flusher with a default period of 9223372036854775807 ms."]
        manager.resize_recovery_thread_pool(3)
        manager.resize_segment_loading_thread_pool(4)
        manager.resize_recovery_thread_pool(5)
        manager.resize_segment_loading_thread_pool(6)
        assert heard.take() == [
            f"INFO Resizing {what} thread pool size for each data dir from {old} to {new}"
            for what, old, new in (("recovery", 2, 3), ("segment loading", 1, 4),
                                   ("recovery", 3, 5), ("segment loading", 4, 6))]
        new_log(manager, roots[0], 3).update_high_watermark(6)
        assert heard.take() == ["INFO Created log for partition new-0 in ROOT/k1/new-0 with "
                                "properties {}"]
        mover = begin(manager, roots[1])
        manager._tasks.cleanup_logs()
        manager._tasks.flush_dirty_logs()
        assert heard.take() == [
            "INFO Created log for partition new-0 in ROOT/k2/new-0.UNIQUE-future with properties "
            "{}", "DEBUG Beginning log cleanup...",
            "DEBUG Garbage collecting 'ROOT/k1/new-0'",
            "DEBUG Garbage collecting future log 'ROOT/k2/new-0.UNIQUE-future'",
            "DEBUG Log cleanup completed. 0 files deleted in 0 seconds",
            "DEBUG Checking for dirty logs to flush...", flush_of("new", 0), flush_of("new", 0)]
        mover.run()
        assert heard.take() == [
            f"INFO Attempting to replace current log {text_of('k1/new-0', 6, 9)} with "
            f"{text_of('k2/new-0.UNIQUE-future', 6, 9)} for new-0",
            "INFO The current replica is successfully replaced with the future replica for new-0"]
        clock.sleep(2_000)  # the log file is flushed at a time of its own
        manager._tasks.flush_dirty_logs()
        assert heard.take() == ["DEBUG Checking for dirty logs to flush...",
                                flush_of("new", 2_000)]
        clock.sleep(28_000)
        assert sorted(heard.take()) == sorted([
            "DEBUG Beginning log cleanup...", "DEBUG Garbage collecting 'ROOT/k2/new-0'",
            "DEBUG Log cleanup completed. 0 files deleted in 0 seconds",
            "DEBUG Checking for dirty logs to flush...", flush_of("new", 30_000),
            "INFO Deleted log for partition new-0 in ROOT/k1/new-0.UNIQUE-delete."])
        manager.async_delete(N0, is_stray=True)
        manager.get_or_create_log(N0)
        manager.async_delete(N0)
        assert heard.take() == [
            "WARNING Log for partition new-0 is marked as stray and renamed to "
            "ROOT/k2/new-0.UNIQUE-stray",
            "INFO Created log for partition new-0 in ROOT/k1/new-0 with properties {}",
            "INFO Log for partition new-0 is renamed to ROOT/k1/new-0.UNIQUE-delete and is "
            "scheduled for deletion"]
        manager.handle_log_dir_failure(roots[2])
        wait_for(lambda: len(heard.lines) == 2)
        assert heard.take() == [
            "WARNING Stopping serving logs in dir ROOT/k3",
            "WARNING Logs for partitions  are offline and logs for future partitions  are offline "
            "due to failure on log directory ROOT/k3"]
        manager.maybe_update_preferred_log_dir(TopicPartition("x", 0), roots[2])
        with pytest.raises(seglog.KafkaStorageError):
            manager.get_or_create_log(TopicPartition("x", 0), is_new=True)
        assert heard.take() == ["WARNING Can not create log x-0 because log directory ROOT/k3 is "
                                "offline"]
        manager.shutdown()
        assert heard.take() == [
            "INFO Shutting down.", "DEBUG Flushing and closing logs at ROOT/k1",
            "DEBUG Flushing and closing logs at ROOT/k2", *(
                f"DEBUG {what} at ROOT/{name}" for name in ("k1", "k2") for what in (
                    "Updating log start offsets", "Updating recovery points",
                    "Writing clean shutdown marker")),
            "INFO Shutdown complete."]


def test_moves(tmp_path: Path) -> None:
    """Into the middle of a batch; and what an interrupted one leaves."""
    roots = [make_dir(tmp_path / name, []) for name in ("k1", "k2")]
    with said(tmp_path, "manager.moves") as heard, manager_of(roots)[0] as manager:
        log = new_log(manager, roots[0], 9)
        log.update_high_watermark(27)
        log.maybe_increment_log_start_offset(4, StartOffsetReason.CLIENT_RECORD_DELETION)
        mover = begin(manager, roots[1])
        mover.step(1)
        assert heard.take() == [
            "INFO Unexpected offset in append to new-0. First offset 3 is less than log start "
            "offset 4. Since this is the first record to be appended to the future replica's log, "
            "will start the log from offset 3."]
        future = manager.future_logs[N0]
        with pytest.raises(IllegalStateError) as caught:
            mover._append(future, b"", 7)
        assert str(caught.value) == (
            "Offset mismatch for the future replica new-0: fetched offset = 7, log end offset = "
            "6.")
        for call, why in ((lambda: manager.recover_abandoned_future_logs(lambda *_: None), None),
                          (lambda: manager.recover_abandoned_future_logs(
                              lambda *_: manager.directory_id(roots[1])), "removed")):
            call()
            assert bool(heard.lines) is (why is not None)
        parts = text_of("k1/new-0", 27, 27), text_of("k2/new-0.UNIQUE-future", 6, 6)
        current, copy = (part.replace("StartOffset=0", f"StartOffset={start}")
                         for part, start in zip(parts, (4, 4), strict=True))
        assert heard.take() == [
            f"INFO Attempting to recover abandoned future log for new-0 at {copy} and removing "
            f"{current}", "INFO Successfully recovered abandoned future log for new-0"]
        begin(manager, roots[0])
        manager._state.table._current.clear()
        heard.take()
        manager.recover_abandoned_future_logs(lambda *_: manager.directory_id(roots[0]))
        lines = heard.take()
        assert len(lines) == 2 and " and removing " not in lines[0]
        future = manager.get_log(N0)
        assert future is not None
        future._metadata.topic_id = None
        manager._state.table._current.clear()
        manager._state.table.future[N0] = future
        with pytest.raises(IllegalStateError) as caught:
            manager.recover_abandoned_future_logs(lambda *_: None)
        assert str(caught.value) == (
            f"The log dir {future} does not have a topic ID, which is not allowed when running in "
            "KRaft mode.")


def loaded(place: str, topic: str, mark: int, done: str = "(1/1") -> str:
    return (f"INFO Completed load of Log(dir=ROOT/{place}, topicId=Sl08ZXU2QW6uF5hIoSzc8w, "
            f"topic={topic}, partition=0, highWatermark={mark}, lastStableOffset={mark}, "
            "logStartOffset=0, logEndOffset=106) with 1 segments, local-log-start-offset 0 and "
            f"log-end-offset 106 in 0ms {done} completed in ROOT/{place[:2]})")


def test_a_start(tmp_path: Path) -> None:
    roots = [make_dir(tmp_path / "k1", ["a-0"]), make_dir(tmp_path / "k2", ["b-0"], clean=False),
             make_dir(tmp_path / "k3", ["c-0.0123456789abcdef0123456789abcdef-stray"])]
    for name in ("recovery-point", "log-start", "replication"):
        (roots[0] / f"{name}-offset-checkpoint").write_text("0\n1\na 0 five\n")
        (roots[2] / f"{name}-offset-checkpoint").unlink()
    (roots[1] / "replication-offset-checkpoint").write_text("0\n1\nb 0 7\n")
    with said(tmp_path, "manager", level=logging.INFO) as heard:
        manager = seglog.LogManager(roots, is_stray=lambda log: log.path.endswith("k2/b-0"))
        manager.startup()
        assert sorted(heard.take()) == sorted([
            "INFO Loading logs from log dirs ROOT/k1, ROOT/k2, ROOT/k3", *(
                f"WARNING Error occurred while reading {name}-offset-checkpoint file of directory "
                f"ROOT/k1, resetting {what} <- MalformedCheckpointError" for name, what in (
                    ("recovery-point", "the recovery checkpoint to 0"),
                    ("log-start", "to the base offset of the first segment"),
                    ("replication", "the high watermarks to the log start offsets"))), *(
                f"INFO Skipping recovery of 1 logs from ROOT/{name} since clean shutdown file was "
                "found" for name in ("k1", "k3")),
            "INFO Recovering 1 logs from ROOT/k2 since no clean shutdown file was found",
            "INFO No checkpointed highwatermark is found for partition a-0",
            "INFO Log loaded for partition a-0 with initial high watermark 0",
            "WARNING Log in ROOT/k2/b-0 marked stray and renamed to ROOT/k2/b-0.UNIQUE-stray",
            "WARNING Loaded stray log: ROOT/k3/c-0.UNIQUE-stray",
            loaded("k1/a-0", "a", 0), loaded("k2/b-0.UNIQUE-stray", "b", 0),
            loaded("k3/c-0.UNIQUE-stray", "c", 0),
            "INFO Loaded 3 logs in 0ms (unclean log dirs = ROOT/k2)"])
        manager.shutdown()
        assert heard.take() == ["INFO Shutting down.", "INFO Shutdown complete."]


@pytest.mark.parametrize("of_disk", [False, True])
def test_a_start_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                            of_disk: bool) -> None:
    root = make_dir(tmp_path / "k1", ["a-0", "b-0"])
    break_load(monkeypatch, "a-0", input_output_error if of_disk else lambda path: ValueError(
        "no luck"))
    with said(tmp_path, "manager") as heard:
        manager = seglog.LogManager(root, config=LoadConfig(num_recovery_threads_per_data_dir=1))
        with pytest.raises(AllLogDirsFailedError if of_disk else ValueError) as caught:
            manager.startup()
        manager.shutdown()
        lines = heard.take()
    begun = ["INFO Loading logs from log dirs ROOT/k1",
             "INFO Skipping recovery of 2 logs from ROOT/k1 since clean shutdown file was found"]
    logs = ["INFO Error while loading logs in ROOT/k1/a-0 in 0ms (1/2 completed in ROOT/k1)",
            "INFO Log loaded for partition b-0 with initial high watermark 86",
            loaded("k1/b-0", "b", 86, "(2/2").replace("EndOffset=106", "EndOffset=86").replace(
                "end-offset 106", "end-offset 86").replace("StableOffset=86", "StableOffset=5")]
    if of_disk:
        assert lines == [
            *begun, "ERROR Error while loading log dir ROOT/k1 <- KafkaStorageError", *logs,
            "INFO Loaded 2 logs in 0ms", "WARNING Stopping serving logs in dir ROOT/k1",
            "CRITICAL No data directory is left: all log dirs in ROOT/k1 have failed",
            "WARNING Logs for partitions b-0 are offline and logs for future partitions  are "
            "offline due to failure on log directory ROOT/k1",
            "INFO Shutting down.", "INFO Shutdown complete."]
        assert str(caught.value) == (
            f"[Errno 5] No data directory is left: all log dirs in {root} have failed: "
            f"{root}/a-0: Input/output error")
    else:
        # The start ends at once: the other log may have been loaded by then, or not.
        assert [line for line in lines if "b-0" not in line] == [
            *begun, logs[0],
            "ERROR There was an error in one of the threads during logs loading: no luck",
            "INFO Shutting down.", "DEBUG Flushing and closing logs at ROOT/k1",
            "DEBUG Updating log start offsets at ROOT/k1",
            "DEBUG Updating recovery points at ROOT/k1",
            "DEBUG Writing clean shutdown marker at ROOT/k1", "INFO Shutdown complete."]
