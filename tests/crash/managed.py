"""A program with a LogManager over two data directories, a job of tests/faults: it creates, fills,
truncates, moves and deletes logs, runs the manager's tasks, and sometimes shuts down and starts
again."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from seglog.config import BrokerConfig, LogConfig
from seglog.log.scheduler import MockScheduler, MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.manager.manager import LogManager
from seglog.model import TopicPartition
from tests.crash.check import texts
from tests.crash.promises import Acknowledgements
from tests.crash.writer import NOW, Writer

ROOTS = ("a", "b")
KEYS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0),
        TopicPartition("v", 0)]
#: Longer than the interval of every task.
LONG_MS = 400_000


class LateScheduler(MockScheduler):
    """Runs tasks only when the clock moves: in a program, other threads run them later."""

    def _task_added(self, is_next: bool) -> None:
        pass


def topic_id(topic: str) -> uuid.UUID:
    return uuid.UUID(int=1000 + ord(topic[0]))


def open_manager(root: Path, seed: int) -> tuple[LogManager, MockTime]:
    """The manager of a program, not started, its tasks run by its clock alone."""
    source, time = random.Random(f"managed config {seed}"), MockTime(0, NOW)
    if source.random() < .5:
        time.scheduler = LateScheduler(time)
    logs = LogConfig.from_properties({
        "internal.segment.bytes": source.choice(["700", "2000", "8000"]),
        "index.interval.bytes": source.choice(["0", "100", "400"]),
        "segment.index.bytes": source.choice(["1500", "4096"]),
        "preallocate": source.choice(["false", "false", "true"]),
        "file.delete.delay.ms": source.choice(["0", "1000", "500000"]),
        "retention.ms": "-1", "retention.bytes": source.choice(["-1", "-1", "3000"]),
        "flush.ms": source.choice(["9223372036854775807", "9223372036854775807", "1000"]),
        "flush.messages": source.choice(["9223372036854775807", "9223372036854775807", "7"])})
    # By default the high watermarks are written every 5 s, 80 times in LONG_MS: most of the calls
    # that a power cut can follow, and of the syncs.
    broker = BrokerConfig.from_properties({
        "log.cleaner.enable": "false", "transaction.partition.verification.enable": "false",
        "replica.high.watermark.checkpoint.interval.ms": "60000"})
    return LogManager([str(root / name) for name in ROOTS], config=broker, log_config=logs,
                      scheduler=time.scheduler, time=time), time


class ManagedWriter(Writer):
    """Writes to one log of a manager, and truncates it by the manager."""

    def __init__(self, log: UnifiedLog, time: MockTime, manager: LogManager,
                 say: Callable[..., None], source: random.Random) -> None:
        self.log, self.time, self.random, self.manager = log, time, source, manager
        self.key = log.topic_partition
        self.say = partial(say, log=str(self.key))
        self.epoch = max((one.epoch for one in log.leader_epochs), default=0)
        found, _ = texts(Path(log.path), log.log_start_offset, log.log_end_offset)
        self.say("opened", end=log.log_end_offset, start=log.log_start_offset,
                 found=[*found.items()])

    def cut(self, offset: int) -> None:
        self.manager.truncate_to({self.key: offset})

    def start(self) -> None:
        super().start()
        self.say("start_is", at=self.log.log_start_offset)

    def retain(self) -> None:
        high = self.log.update_high_watermark(self.log.log_end_offset)
        self.say("starting", at=high)
        self.log.delete_old_segments()
        self.say("start_is", at=self.log.log_start_offset)

    def empty(self) -> None:
        """All records go, and the log begins elsewhere."""
        end = self.log.log_end_offset
        to = self.random.choice([end, end + 5, max(end - 5, 0)])
        self.say("emptying", to=to)
        self.manager.truncate_fully_and_start_at(self.key, to)
        self.say("emptied", to=to)


class ManagedProgram:
    """One life of the program."""

    def __init__(self, root: Path, seed: int, generation: int) -> None:
        self.random = random.Random(f"managed {seed} {generation}")
        self.root, self.seed = root, seed
        self.say = Acknowledgements(root).say

    def live(self, count: int) -> None:
        """`count` things, perhaps with a clean shutdown between some of them and at the end."""
        counts = [count] if self.random.random() < .5 else [count // 2, count - count // 2]
        for number, part in enumerate(counts):
            self.say("found", paths=[f"{name}/{path.name}" for name in ROOTS
                                     for path in (self.root / name).glob("*")])
            self.manager, self.time = open_manager(self.root, self.seed)
            self.manager.startup()
            self.say("started")
            self.writers: dict[TopicPartition, ManagedWriter] = {}
            self._work(part)
            if number + 1 < len(counts) or self.random.random() < .3:
                self.manager.shutdown()
                self.say("closed")

    def _work(self, count: int) -> None:
        weights = {"write": 20, "create": 2, "delete": 1, "move": 1.5, "empty": .7, "pass_time": 2,
                   "checkpoint": 1}
        for name in self.random.choices([*weights], [*weights.values()], k=count):
            getattr(self, name)()

    def _present(self) -> list[TopicPartition]:
        return [key for key in KEYS if any((self.root / name / str(key)).is_dir()
                                           for name in ROOTS)]

    def _writer(self) -> ManagedWriter | None:
        present = self._present()
        if not present:
            return None
        key = self.random.choice(present)
        log = self.manager.get_log(key)
        assert log is not None
        writer = self.writers.get(key)
        if writer is None or writer.log is not log:
            first = key not in self.writers
            writer = self.writers[key] = ManagedWriter(log, self.time, self.manager, self.say,
                                                       self.random)
            if first:
                writer.resend()
        return writer

    # ---- the things that it does

    def write(self) -> None:
        writer = self._writer()
        if writer is None:
            self.create()
            return
        names = {"append": 8, "produce": 6, "transact": 5, "flush": 3, "roll": 1.5, "tick": 1,
                 "lead": .5, "truncate": 1, "start": .6, "retain": .6}
        for name in self.random.choices([*names], [*names.values()], k=3):
            getattr(writer, name)()

    def create(self) -> None:
        missing = [key for key in KEYS if key not in self._present()]
        if not missing:
            return
        key, home = self.random.choice(missing), self.random.choice(ROOTS)
        self.manager.maybe_update_preferred_log_dir(key, self.root / home)
        self.say("creating", log=str(key), home=home)
        self.manager.get_or_create_log(key, is_new=True, topic_id=topic_id(key.topic))
        self.say("created", log=str(key))

    def delete(self) -> None:
        present = self._present()
        if not present:
            return
        key = self.random.choice(present)
        self.say("deleting", log=str(key))
        if self.random.random() < .5:
            self.manager.async_delete(key)
            self.manager.async_delete(key, is_future=True)
        else:
            self.manager.async_delete_all([key], on_error=_raise)
        self.writers.pop(key, None)
        self.say("deleted", log=str(key))

    def move(self) -> None:
        """To the other directory; some moves are left unfinished."""
        writer = self._writer()
        if writer is None:
            return
        home = Path(writer.log.path).parent.name
        target = ROOTS[1 - ROOTS.index(home)]
        mover = self.manager.resume_move(writer.key) \
            or self.manager.alter_replica_log_dir(writer.key, self.root / target)
        assert mover is not None
        writer.say("moving", to=target)
        end = writer.log.log_end_offset
        if self.random.random() < .3:
            mover.step(200)
            if mover.state.value == "copying":
                writer.say("copying")
                return
        else:
            assert mover.run().value == "promoted"
        writer.say("moved", to=target)
        writer.say("flushed", to=end)

    def empty(self) -> None:
        writer = self._writer()
        if writer is not None:
            writer.empty()

    def pass_time(self) -> None:
        """The manager's tasks run, and write all checkpoints."""
        logs = [*self.manager.current_logs.values()]
        for log in logs:
            self.say("starting", log=str(log.topic_partition), at=log.high_watermark)
        self.time.sleep(LONG_MS)
        self.time.sleep(LONG_MS)
        self._checkpointed(logs)

    def checkpoint(self) -> None:
        logs = self._opened()
        self.manager.checkpoint_log_recovery_offsets()
        self.manager.checkpoint_high_watermarks()
        self._checkpointed(logs)

    def _opened(self) -> list[UnifiedLog]:
        return [writer.log for writer in self.writers.values()]

    def _checkpointed(self, logs: list[UnifiedLog]) -> None:
        for log in logs:
            name = str(log.topic_partition)
            self.say("start_is", log=name, at=log.log_start_offset)
            self.say("started_at", log=name, at=log.log_start_offset)


def _raise(_: TopicPartition, error: Exception) -> None:
    raise error


def write_managed(root: str, seed: int, count: int, generation: int = 1
                  ) -> Callable[[], dict[str, Any]]:
    """A program with a manager, which does `count` things and is not always shut down."""
    def work() -> dict[str, Any]:
        ManagedProgram(Path(root), seed, generation).live(count)
        return {}
    return work
