"""What threads work on: a log alone, logs inside of a program, a manager with its directories."""

from __future__ import annotations

import faulthandler
import logging
import random
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import seglog
from seglog.config import BrokerConfig, LogConfig
from seglog.embedded.embedded_log import EmbeddedLog
from seglog.errors import KafkaStorageError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from seglog.log.context import LogContext
from seglog.log.log_dir_failures import CLOSED, LogDirFailureChannel
from seglog.log.scheduler import Scheduler, Time
from seglog.log.stats import BrokerTopicStats
from seglog.log.following import RangeTail
from seglog.log.unified_log import UnifiedLog, load_unified_log
from seglog.metrics import MetricsRegistry
from seglog.model import TopicPartition
from seglog.recovery.inputs import LoadInputs
from tests.manager.support import make_dir
from tests.stress.operations import Actor, Subject, decoded, may_be_gone, not_moved
from tests.stress.reading_process import ReadingProcess
from tests.stress.truth import Value

MARKER = ".kafka_cleanshutdown"
SETTINGS = {"internal.segment.bytes": "7000", "index.interval.bytes": "200",
             "segment.jitter.ms": "0", "file.delete.delay.ms": "0", "retention.ms": "-1"}
_JOIN_SECONDS = 120.0
Job = Callable[[Actor], object]


class World:
    """A mix of operations over some subjects. `jobs` are what one thread may do next."""

    #: Operations of `Actor` by how often they are drawn.
    WEIGHTS: ClassVar[dict[str, int]] = {
        "append": 12, "append_each": 4, "transaction": 4, "fetch": 6, "stream": 3, "follow": 2,
        "look_up_times": 6, "look_from_outside": 1, "follow_from_outside": 1, "ask": 3,
        "delete_before": 3, "retain": 2,
        "roll": 2, "flush": 2, "snapshot": 1, "truncate": 2, "replace": 2, "configure": 1}

    def __init__(self, root: Path, seed: str) -> None:
        self.root, self.seed = root, seed
        self.random = random.Random(seed)
        self.subjects: list[Subject] = []
        #: Another process that reads the directories meanwhile.
        self.reader: ReadingProcess | None = None

    def settings(self) -> dict[str, str]:
        """Of one log."""
        pick = self.random.choice
        return {**SETTINGS, "internal.segment.bytes": pick(["7000", "20000"]),
                "file.delete.delay.ms": pick(["0", "0", "5", "60000"]),
                "flush.messages": pick(["1", "100", str(2**62)]),
                "retention.bytes": pick(["-1", "-1", "20000"])}

    def subject(self, log: Callable[[], UnifiedLog], config: LogConfig, *,
                comes_again: bool = False) -> Subject:
        """One more log to work on."""
        made = Subject(log, config, cuts=not comes_again and self.random.random() < .5,
                       codec=self.random.choice([0, 0, "zstd"]), comes_again=comes_again)
        self.subjects.append(made)
        return made

    def extra(self) -> dict[str, Job]:
        """Operations of this world alone."""
        return {}

    def jobs(self, weights: dict[str, int]) -> list[Job]:
        found: list[Job] = []
        for name, weight in weights.items():
            found += [lambda actor, name=name: getattr(actor, name)(
                actor.random.choice(self.subjects))] * weight
        for job in self.extra().values():
            found += [job] * self.random.choice([0, 1, 3])
        return found

    def run(self, seconds: float) -> None:
        """Threads with a mix each until the time is over; then everything is checked."""
        heard = _Errors()
        errors: list[BaseException] = []
        until = time.monotonic() + seconds

        def work(number: int, jobs: list[Job]) -> None:
            actor = Actor(f"{self.seed} {number}")
            try:
                while time.monotonic() < until and not errors:
                    actor.random.choice(jobs)(actor)
            except BaseException as error:
                errors.append(error)

        mixes = []
        for _ in range(self.random.choice([3, 4, 6])):
            kept = {name: weight for name, weight in self.WEIGHTS.items()
                    if self.random.random() < .6}
            mixes.append(self.jobs({**kept, "append": 4}))
        threads = [threading.Thread(target=work, args=one) for one in enumerate(mixes)]
        with heard:
            if self.reader is not None:
                self.begin_reading(self.reader)
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(_JOIN_SECONDS)
                if thread.is_alive():
                    faulthandler.dump_traceback(sys.__stderr__)
                assert not thread.is_alive(), "a thread hangs"
            for error in errors:
                heard.add_notes(error)
                raise error
            if self.reader is not None:
                self.reader.end()
            for one in self.subjects:
                one.truth.check_seen()
                self.check_whole(one)
            self.close_and_reopen()
        heard.check()

    def begin_reading(self, reader: ReadingProcess) -> None:
        """Names the directories and subjects that another process reads: none."""
        reader.begin(self.seed, [], {})

    def check_whole(self, it: Subject) -> None:
        """A quiet log holds what it acknowledged."""
        check_whole(it)

    def close_and_reopen(self) -> None:
        """Closes in good order; what is opened again is the same, without a recovery."""
        raise RuntimeError("a world is one of those below")


def check_whole(it: Subject) -> None:
    """A quiet log holds what it acknowledged."""
    log = it.log()
    start = log.log_start_offset
    tail = RangeTail(log, start, isolation="log_end", timeout=0.0,
                     stop_offset=log.log_end_offset)
    it.truth.check_whole(start, list(decoded(tail)))


class _Errors(logging.Handler):
    """What tasks in the background could only tell the log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not (isinstance(error, KafkaStorageError) and error.code == CLOSED
                # Logs that are to be deleted are not closed in good order.
                or "-delete/" in record.getMessage()):
            self._found.append(record)

    def __enter__(self) -> None:
        logging.getLogger("seglog").addHandler(self)

    def __exit__(self, *exc: object) -> None:
        logging.getLogger("seglog").removeHandler(self)

    def add_notes(self, error: BaseException) -> None:
        for record in self._found[:3]:
            cause = "".join(traceback.format_exception(record.exc_info[1])[-6:]) \
                if record.exc_info else ""
            error.add_note(f"logged before: {record.getMessage()}\n{cause}")

    def check(self) -> None:
        for record in self._found:
            raise AssertionError(record.getMessage()) from (record.exc_info or (None, None))[1]


def _state(log: UnifiedLog) -> dict[str, Any]:
    """Of producers and epochs, but for what a snapshot leaves out."""
    state = log.state_without_files()
    for producer in state["producers"]:
        del producer["batches"], producer["first_data_offset"]
    return state


class LogWorld(World):
    """A UnifiedLog alone."""

    def __init__(self, root: Path, seed: str) -> None:
        super().__init__(root, seed)
        self._config = LogConfig.from_properties(self.settings())
        self._failures = LogDirFailureChannel()
        self._scheduler = Scheduler(2)
        self._scheduler.startup()
        self._log = self._open(True, 0, 0)
        self.subject(lambda: self._log, self._config)

    def _open(self, is_clean: bool, start: int, recovery_point: int) -> UnifiedLog:
        path = self.root / "t-0"
        path.mkdir(exist_ok=True)
        context = LogContext(self._scheduler, Time(), self._failures,
                             stats=BrokerTopicStats(MetricsRegistry()))
        return load_unified_log(str(path), LoadInputs(
            TopicPartition("t", 0), is_clean, start, recovery_point, self._config), context=context)

    def extra(self) -> dict[str, Job]:
        return {"rename": self._rename}

    def _rename(self, actor: Actor) -> None:
        future = f"t-0.{'0' * 32}-future"
        self._log.rename_dir(actor.random.choice(["t-0", future]))

    def close_and_reopen(self) -> None:
        log = self._log
        log.rename_dir("t-0")
        with log.lock:
            log.flush(True)
            log.close()
        assert not self._failures.failed
        state = _state(log)
        self._log = self._open(True, log.log_start_offset, log.recovery_point)
        assert (self._log.log_start_offset, self._log.log_end_offset) == (
            log.log_start_offset, log.log_end_offset)
        if log.log_start_offset < log.log_end_offset:  # Kafka forgets all producers of an empty one
            assert _state(self._log) == state
        check_whole(self.subjects[0])
        self._log.close()
        self._scheduler.shutdown()


class EmbeddedWorld(World):
    """Logs of `seglog.open` that share a data directory."""

    def __init__(self, root: Path, seed: str) -> None:
        super().__init__(root, seed)
        self._logs: list[EmbeddedLog] = []
        for number in range(2):
            settings = self.settings()
            log = self._open(number, settings)
            self._logs.append(log)
            self.subject(lambda number=number: self._logs[number].log, log.log.config)
        self._third = threading.Lock()

    def _open(self, number: int, settings: dict[str, str]) -> EmbeddedLog:
        return seglog.open(self.root / f"e-{number}", config=settings,
                           durability=self.random.choice(["none", "none", "append", .05]))

    def extra(self) -> dict[str, Job]:
        return {"append": self._append, "read": self._read, "third": self._open_and_close,
                "delete": self._delete, "times": self._times}

    def _pick(self, actor: Actor) -> tuple[EmbeddedLog, Subject]:
        number = actor.random.randrange(len(self._logs))
        return self._logs[number], self.subjects[number]

    def _append(self, actor: Actor) -> None:
        log, it = self._pick(actor)
        values = actor.writer.values(actor.random.choice([1, 10]))
        with it.writing():
            if actor.random.random() < .5:
                found = log.append_many([(None, value.timestamp, None, value.encode(), ())
                                         for value in values])
            else:
                found = log.append_columns({"value": [value.encode() for value in values],
                                            "timestamp": [value.timestamp for value in values]})
            assert len(found) == len(values)
            it.truth.appended(found.start, values)

    def _read(self, actor: Actor) -> None:
        log, it = self._pick(actor)
        with may_be_gone(it):
            last = -1
            for record in log.records(isolation=actor.random.choice(
                    ["read_committed", "read_uncommitted"])):
                assert record.offset > last
                last = record.offset
                it.truth.saw(record.offset, Value.decode(record.value))

    def _delete(self, actor: Actor) -> None:
        log, it = self._pick(actor)
        with may_be_gone(it):
            to = max(log.log_end_offset - 50, 0)
            it.truth.may_start_at = max(it.truth.may_start_at, to)
            log.delete_before(to)

    def _times(self, actor: Actor) -> None:
        log, _ = self._pick(actor)
        log.offset_for_timestamp(0)
        log.offset_for_timestamp(log.log.now_ms() - 500)

    def _open_and_close(self, actor: Actor) -> None:
        if self._third.acquire(blocking=False):
            try:
                with seglog.open(self.root / "third-0") as log:
                    assert log.append(b"value") == log.log_end_offset - 1
            finally:
                self._third.release()

    def close_and_reopen(self) -> None:
        ends = [(log.log_start_offset, log.log_end_offset) for log in self._logs]
        failed = self._logs[0].log.context.failures
        for log in self._logs:
            log.close()
        assert not failed.failed
        assert (self.root / MARKER).exists()
        self._logs = [self._open(number, {}) for number in range(len(ends))]
        assert [(log.log_start_offset, log.log_end_offset) for log in self._logs] == ends
        for one in self.subjects:
            check_whole(one)
        for log in self._logs:
            log.close()


class ManagerWorld(World):
    """A manager with its tasks, its partitions moving between directories."""

    def __init__(self, root: Path, seed: str) -> None:
        super().__init__(root, seed)
        self._roots = [make_dir(root / name, []) for name in ("k1", "k2")]
        self._keys = [TopicPartition(f"m{number}", 0) for number in range(3)]
        self._configs = {key.topic: LogConfig.from_properties(self.settings())
                         for key in self._keys}
        self._manager = self._open()
        self._manager.startup()
        for number, key in enumerate(self._keys):
            self._manager.get_or_create_log(key, topic_id=uuid.uuid4())
            it = self.subject(lambda key=key: self._get(key), self._configs[key.topic],
                              comes_again=number == 0)
            it.truth.may_retain = it.config.retention_bytes >= 0  # by the manager's own tasks
        self._moving = threading.Lock()
        self._volatile = TopicPartition("v", 0)

    def _open(self) -> seglog.LogManager:
        broker = BrokerConfig.from_properties({
            "log.dirs": ",".join(map(str, self._roots)), "log.initial.task.delay.ms": "20",
            "log.retention.check.interval.ms": "50", "log.flush.scheduler.interval.ms": "50",
            "log.flush.offset.checkpoint.interval.ms": "30",
            "log.flush.start.offset.checkpoint.interval.ms": "30",
            "replica.high.watermark.checkpoint.interval.ms": "30",
            "log.segment.delete.delay.ms": "0"})
        return seglog.LogManager(config=broker, topic_configs=self._configs,
                                 scheduler=Scheduler(2))

    def _get(self, key: TopicPartition) -> UnifiedLog:
        return found_log(self._manager, key)

    def begin_reading(self, reader: ReadingProcess) -> None:
        reader.begin(self.seed, self._roots, {
            key.topic: it for key, it in zip(self._keys, self.subjects, strict=True)})

    def extra(self) -> dict[str, Job]:
        return {"move": self._move, "read": self._read, "checkpoint": self._checkpoint,
                "volatile": self._create_and_delete, "configure": self._configure,
                "again": self._create_again}

    def _move(self, actor: Actor) -> None:
        if not self._moving.acquire(blocking=False):
            return
        try:
            number = actor.random.randrange(len(self._keys))
            it = self.subjects[number]
            mover = self._manager.alter_replica_log_dir(self._keys[number],
                                                        actor.random.choice(self._roots))
            if mover is None:
                return
            if actor.random.random() < .1:
                self._manager.async_delete(self._keys[number], is_future=True)
            with it.writing() if it.loses and actor.random.random() < .5 else not_moved():
                mover.run()
        except UnknownTopicOrPartitionError:
            assert it.comes_again
        finally:
            self._moving.release()

    def _read(self, actor: Actor) -> None:
        number = actor.random.randrange(len(self._keys))
        try:
            with self._manager.open_log(self._keys[number]) as reader:
                last = -1
                for batch in reader.to_arrow(columns=["offset"]):
                    for offset in batch.to_pylists()["offset"]:
                        assert offset > last
                        last = offset
        except (KafkaStorageError, OffsetOutOfRangeError):
            pass
        except seglog.errors.CorruptDataError:
            assert self.subjects[number].loses
        except UnknownTopicOrPartitionError:
            assert self.subjects[number].comes_again

    def _create_again(self, actor: Actor) -> None:
        """The first partition, while others read it, or it moves."""
        key, it = self._keys[0], self.subjects[0]
        if actor.random.random() < .8:
            return
        with it.writing(), it.truth.losing(lambda: 0):
            self._manager.async_delete_all([key], on_error=raise_it)
            if actor.random.random() < .5:
                self._manager.delete_logs()
            it.truth.may_start_at = 0
            self._manager.get_or_create_log(key, topic_id=uuid.uuid4())

    def _checkpoint(self, actor: Actor) -> None:
        manager = self._manager
        actor.random.choice([
            manager.checkpoint_log_recovery_offsets, manager.checkpoint_log_start_offsets,
            manager.checkpoint_high_watermarks, manager.flush_logs, manager.metrics.snapshot])()

    def _create_and_delete(self, actor: Actor) -> None:
        """A log that comes and goes while others read it."""
        try:
            log = self._manager.get_or_create_log(self._volatile)
            with not_moved():
                log.append_as_leader(actor_batch(actor), 0)
                log.maybe_increment_high_watermark(log.log_end_offset_metadata)
            if actor.random.random() < .3:
                self._manager.async_delete(self._volatile)
                self._manager.delete_logs()
            with not_moved():
                log.offset_for_timestamp(0)
                log.read(0, 1000)
        except (UnknownTopicOrPartitionError, OffsetOutOfRangeError):
            pass

    def _configure(self, actor: Actor) -> None:
        topic = actor.random.choice(self._keys).topic
        self._manager.update_topic_config(topic, {
            **SETTINGS, "internal.segment.bytes": "20000",
            "flush.messages": actor.random.choice(["1", "100"])})

    def close_and_reopen(self) -> None:
        ends = {key: (self._get(key).log_start_offset, self._get(key).log_end_offset)
                for key in self._keys}
        assert not self._manager.offline_log_dirs
        self._manager.shutdown()
        assert all((root / MARKER).exists() for root in self._roots)
        self._manager = self._open()
        with self._manager as manager:
            assert {key: (self._get(key).log_start_offset, self._get(key).log_end_offset)
                    for key in self._keys} == ends
            for one in self.subjects:
                check_whole(one)
            assert not manager.offline_log_dirs


def found_log(manager: seglog.LogManager, key: TopicPartition) -> UnifiedLog:
    """The log of a partition, perhaps a moment later: it is created again."""
    until = time.monotonic() + _JOIN_SECONDS
    while (found := manager.get_log(key)) is None:
        assert time.monotonic() < until
        time.sleep(.001)
    return found


def raise_it(_: TopicPartition, error: Exception) -> None:
    raise error


def actor_batch(actor: Actor) -> Any:
    from tests.stress.truth import batch_of

    return batch_of(actor.writer.values(1))


WORLDS: dict[str, type[World]] = {"log": LogWorld, "embedded": EmbeddedWorld,
                                  "manager": ManagerWorld}
