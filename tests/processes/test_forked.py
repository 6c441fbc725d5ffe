"""What a forked child may do with what its parent opened: nothing, and it is told so at once."""

from __future__ import annotations

import atexit
import gc
import inspect
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.config import BrokerConfig
from seglog.embedded.embedded_log import EmbeddedLog
from seglog.errors import ForkedProcessError, LogDirLockedError
from seglog.forks import ProcessBound
from seglog.log.scheduler import Scheduler
from seglog.log.following import SpanTail
from seglog.recovery.worker_pool import WorkerPool
from seglog.metrics import MetricsRegistry
from tests.processes.children import contents, fork, in_child, outcome
from tests.support.waiting import wait_for

KEY = seglog.TopicPartition("t", 0)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[dict[str, ProcessBound]]:
    """One of each kind of object that belongs to its process."""
    log = seglog.open(tmp_path / "d" / "t-0")
    log.append_many([b"1", b"2"])
    scheduler = Scheduler()
    scheduler.startup()
    manager = seglog.LogManager(tmp_path / "m", scheduler=scheduler)
    manager.startup()
    managed = manager.get_or_create_log(KEY, is_new=True)
    pool = WorkerPool(1, "jobs")
    entered = log.transaction()
    found: dict[str, Any] = {
        "EmbeddedLog": log, "UnifiedLog": log.log, "LogManager": manager, "managed": managed,
        "Scheduler": scheduler, "Follower": log.follow(0), "AsyncFollower": log.follow_async(0),
        "Transaction": entered.__enter__(), "SharedDirectory": log._directory,
        "LogDirFailureChannel": log.log.context.failures, "SpanTail": SpanTail(log.log, 0),
        "ScheduledTask": scheduler.schedule("later", print, 1_000_000), "WorkerPool": pool,
        "job": pool.submit(lambda: 1)}
    yield found
    entered.__exit__(None, None, None)
    pool.shutdown()
    log.close()
    manager.shutdown()
    scheduler.shutdown()


def endings(one: ProcessBound) -> set[str]:
    return {name for name, value in inspect.getmembers(type(one))
            if hasattr(value, "_is_ending")}


def test_every_attribute_of_every_kind_refuses_and_every_ending_is_silent(
        opened: dict[str, ProcessBound]) -> None:
    """Bound methods that were taken before the fork as well."""
    before = {kind: [(name, getattr(one, name)) for name, value in inspect.getmembers(type(one))
                     if not name.startswith("_") and inspect.isfunction(inspect.unwrap(value))
                     and name != "thread_number"]  # a static method, of no object
              for kind, one in opened.items()}

    def act() -> list[str]:
        wrong = []
        for kind, one in opened.items():
            assert f"of process {os.getppid()}>" in repr(one)
            ends = endings(one)
            for name in dir(type(one)):
                if name.startswith("__") or name in ("_called", "_is_foreign"):
                    continue
                if name in ends:
                    wrong += [f"{kind}.{name}"] * (getattr(one, name)() is not None)
                elif (found := outcome(lambda: getattr(one, name))) != "ForkedProcessError":
                    wrong.append(f"{kind}.{name}: {found}")
            for name, method in before[kind]:
                if (name in ends) != ((found := outcome(lambda: bound_call(method))) == "none"):
                    wrong.append(f"{kind}.{name}, bound before: {found}")
        return wrong

    assert in_child(act) == []
    assert {"close"} <= endings(opened["EmbeddedLog"])
    log = opened["EmbeddedLog"]
    assert isinstance(log, EmbeddedLog) and log.append(b"3") == 2


def bound_call(method: Callable[..., Any]) -> None:
    """Calls it with something for each argument that it needs; generators are begun."""
    needed = [one for one in inspect.signature(method).parameters.values()
              if one.default is one.empty and one.kind is not one.VAR_KEYWORD
              and one.kind is not one.VAR_POSITIONAL]
    found = method(*[None for one in needed if one.kind is not one.KEYWORD_ONLY],
                   **{one.name: None for one in needed if one.kind is one.KEYWORD_ONLY})
    if hasattr(found, "__enter__"):
        found.__enter__()
    elif inspect.isgenerator(found) or hasattr(found, "__next__"):
        next(found)


def test_the_message_says_what_to_do(opened: dict[str, Any]) -> None:
    def act() -> tuple[str, int, int]:
        with pytest.raises(ForkedProcessError) as refused:
            opened["EmbeddedLog"].append(b"x")
        copy = pickle.loads(pickle.dumps(refused.value))
        assert str(copy) == str(refused.value) and isinstance(copy, seglog.SeglogError)
        return str(refused.value), refused.value.owner_pid, os.getpid()

    text, owner, child = in_child(act)
    assert owner == os.getpid()
    assert text == (f"This EmbeddedLog was opened by process {owner} and belongs to it; this is "
                    f"process {child}, forked from it. That process has the lock of the data "
                    "directory: read it here with seglog.PartitionLog or seglog.open_data_dir, or "
                    "open a log in another data directory, after the fork.")

    def without_a_lock() -> list[str]:
        found = []
        for kind, one in opened.items():
            with pytest.raises(ForkedProcessError) as refused:
                repr(one._called)
            if str(refused.value).endswith("Open it again in this process, after the fork."):
                found.append(kind)
        return found

    assert in_child(without_a_lock) == [
        "Scheduler", "LogDirFailureChannel", "ScheduledTask", "WorkerPool", "job"]


def test_grandchildren_name_the_process_that_opened(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "t-0") as log:
        def innermost() -> int:
            with pytest.raises(ForkedProcessError) as refused:
                log.append(b"x")
            return refused.value.owner_pid

        def act() -> list[int]:
            with seglog.open(tmp_path / "other" / "t-0") as own:
                assert own.append(b"x") == 0

                def deepest() -> int:
                    with pytest.raises(ForkedProcessError) as refused:
                        own.append(b"x")
                    return refused.value.owner_pid

                return [in_child(innermost), in_child(deepest), os.getpid()]

        first, second, child = in_child(act)
        assert first == os.getpid() and second == child


# ---- ends --------------------------------------------------------------------------------------


def _with_block(log: EmbeddedLog) -> None:
    log.__exit__(None, None, None)


def _exception(log: EmbeddedLog) -> None:
    try:
        raise KeyError("of the child")
    except KeyError as error:
        log.__exit__(type(error), error, error.__traceback__)


def _collected(log: EmbeddedLog) -> None:
    del log
    gc.collect()


def _closed(log: EmbeddedLog) -> None:
    log.close()
    log.close()


@pytest.mark.parametrize("leave", [_with_block, _exception, _collected, _closed])
def test_a_child_that_leaves_touches_nothing(tmp_path: Path, leave: Callable[..., None]) -> None:
    log = seglog.open(tmp_path / "d" / "t-0", durability=3600.0)
    # The parent's own tasks write checkpoints, which a slow child would take for its doing.
    seldom = BrokerConfig(replica_high_watermark_checkpoint_interval_ms=3_600_000)
    scheduler = Scheduler()
    manager = seglog.LogManager(tmp_path / "m", config=seldom, scheduler=scheduler)
    manager.startup()
    first_tasks = scheduler.schedule_once("after the tasks of the start", lambda: None)
    wait_for(lambda: first_tasks.done)
    manager.get_or_create_log(KEY, is_new=True)
    log.append(b"1")
    before = contents(tmp_path)
    in_child(lambda: (leave(log), manager.shutdown(), manager.__exit__(None, None, None), None)[-1])
    assert contents(tmp_path) == before
    with pytest.raises(LogDirLockedError):  # the lock is still the parent's, for everybody
        in_child_raising(lambda: seglog.LogManager(tmp_path / "d"))
    assert log.append(b"2") == 1
    log.close()
    manager.shutdown()
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "m" / ".kafka_cleanshutdown").exists()


def in_child_raising(act: Callable[[], object]) -> None:
    """Raises here what `act` raises in a child."""
    def caught() -> Exception | None:
        try:
            act()
        except Exception as error:
            return error
        return None
    error = in_child(caught)
    if error is not None:
        raise error


@pytest.mark.parametrize("how", ["fall", "raise", "exit", "_exit", "atexit"])
def test_a_parent_keeps_its_promises_whatever_its_child_does(tmp_path: Path, how: str) -> None:
    """The child leaves the `with` block, the parent appends more and is killed."""
    promised = tmp_path / "promised"
    pid = fork()
    if pid == 0:
        _parent(tmp_path, promised, how)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -9
    assert not (tmp_path / "d" / ".kafka_cleanshutdown").exists()
    wanted = [eval(line) for line in promised.read_text().splitlines()]
    assert len(wanted) == 60
    with seglog.open(tmp_path / "d" / "t-0") as log:
        assert [(one.offset, one.value) for one in log.records()] == wanted


def _parent(tmp_path: Path, promised: Path, how: str) -> None:
    try:
        sys.stderr = open(os.devnull, "w")
        with seglog.open(tmp_path / "d" / "t-0") as log, promised.open("w") as promises:
            def append(value: bytes) -> None:
                print((log.append(value), value), file=promises, flush=True)

            for number in range(30):
                append(b"before %d" % number)
            if how == "atexit":
                atexit.register(log.close)
            if (child := fork()) == 0:
                _leave(log, how)
            if child:
                os.waitpid(child, 0)
                for number in range(30):
                    append(b"after %d" % number)
                os.kill(os.getpid(), 9)
    finally:
        os._exit(3)


def _leave(log: EmbeddedLog, how: str) -> None:
    assert outcome(lambda: log.append(b"lost")) == "ForkedProcessError"
    if how == "raise":
        raise KeyError("of the child")
    if how == "exit":
        sys.exit(0)
    if how == "_exit":
        os._exit(0)
    if how == "atexit":
        atexit._run_exitfuncs()
        os._exit(0)


def test_a_transaction_that_is_open_at_the_fork_is_the_parents(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "t-0") as log:
        def commit() -> str:
            return outcome(lambda: block.__exit__(None, None, None))

        def abort() -> str:
            return outcome(lambda: block.__exit__(KeyError, KeyError("x"), None))

        block = log.transaction()
        transaction = block.__enter__()
        transaction.append(b"1")
        before = contents(tmp_path)
        assert in_child(commit) == "ForkedProcessError"  # it did not commit, and says so
        assert in_child(abort) == "none"  # the KeyError propagates
        assert contents(tmp_path) == before
        transaction.append(b"2")
        block.__exit__(None, None, None)
        assert [one.value for one in log.records(isolation="read_committed")] == [b"1", b"2"]


# ---- what a child opens itself -----------------------------------------------------------------


def test_a_child_opens_its_own(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "d" / "t-0") as log:
        log.append(b"1")

        def act() -> int:
            for path in (tmp_path / "d" / "t-0", tmp_path / "d" / "u-0"):
                with pytest.raises(LogDirLockedError, match=f"process {os.getppid()}") as refused:
                    seglog.open(path)
                assert refused.value.holder_pid == os.getppid()
            with pytest.raises(LogDirLockedError, match=f"process {os.getppid()}"):
                seglog.LogManager(tmp_path / "d")
            with seglog.open(tmp_path / "child" / "t-0") as own:
                own.append(b"1")
                own.flush()
            with seglog.LogManager(tmp_path / "child", scheduler=Scheduler()) as manager:
                return len(manager.all_logs)

        assert in_child(act) == 1
        assert (tmp_path / "child" / ".kafka_cleanshutdown").exists()

        def later() -> int:
            sys.stdin.close()
            with seglog.open(tmp_path / "d" / "t-0") as own:
                return own.append(b"2")

        log.close()
        assert in_child(later) == 1


def test_metrics_that_were_registered_before_can_be_read(tmp_path: Path) -> None:
    registry = MetricsRegistry()
    meter = registry.group("g", "t").meter("m", "events")
    meter.mark()
    meter._lock.acquire()
    registry._lock.acquire()
    try:
        found = in_child(lambda: (meter.mark(), registry.snapshot())[1])
        assert found["g:type=t,name=m"]["Count"] == 2
    finally:
        meter._lock.release()
        registry._lock.release()
