"""A manager whose partitions are copied to remote storage, deleted here and there, led, followed,
moved and created again, while readers of both isolations read through all of it."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import seglog
from seglog._native.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, scan
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import (
    KafkaStorageError, OffsetOutOfRangeError, RemoteStorageError, ReplicaNotAvailableError,
    RetriableRemoteStorageError, UnknownTopicOrPartitionError,
)
from seglog.log.log_dir_failures import CLOSED
from seglog.log.read import FetchDataInfo
from seglog.log.scheduler import Scheduler
from seglog.model import TopicPartition
from seglog.remote_log.remote_config import RemoteLogManagerConfig
from seglog.remote_log.remote_log_manager import RemoteLogManager
from seglog.storage.isolation import Isolation
from tests.stress.operations import Actor, Subject
from tests.stress.truth import ABORTED, Value, values_of
from tests.stress.worlds import MARKER, SETTINGS, Job, World, found_log, raise_it
from tests.manager.support import make_dir
from tests.support.waiting import wait_for

_WAIT_MS = 60_000


class TieredWorld(World):
    """Three partitions; the first comes again under its name."""

    #: No truncation and no compaction: what is in remote storage stays as it is.
    WEIGHTS = {name: weight for name, weight in World.WEIGHTS.items()
               if name not in ("truncate", "replace", "configure")}

    def __init__(self, root: Path, seed: str) -> None:
        super().__init__(root, seed)
        self._roots = [make_dir(root / name, []) for name in ("k1", "k2")]
        self._keys = [TopicPartition(f"t{number}", 0) for number in range(3)]
        self._configs = {key.topic: LogConfig.from_properties(self._tiered_settings())
                         for key in self._keys}
        self._changing = threading.Lock()  # of one partition's tasks, directory or life at a time
        self._open(True)
        for number, key in enumerate(self._keys):
            it = self.subject(lambda key=key: found_log(self._manager, key),
                              self._configs[key.topic], comes_again=number == 0)
            it.cuts, it.codec, it.truth.may_retain = False, 0, True
            it.remote = str(root / "remote" / "kafka-tiered-storage")

    def _tiered_settings(self) -> dict[str, str]:
        pick = self.random.choice
        return {**SETTINGS, "remote.storage.enable": "true",
                "internal.segment.bytes": pick(["3000", "7000"]),
                "file.delete.delay.ms": pick(["0", "0", "5"]),
                "local.retention.bytes": pick(["1", "1", "9000", "-1"]), "local.retention.ms": "-1",
                "retention.bytes": pick(["-1", "-1", "40000"])}

    def _open(self, is_new: bool = False) -> None:
        properties = {
            "log.dirs": ",".join(map(str, self._roots)), "log.initial.task.delay.ms": "20",
            "log.retention.check.interval.ms": "30", "log.segment.delete.delay.ms": "0",
            "log.flush.offset.checkpoint.interval.ms": "50",
            "log.flush.start.offset.checkpoint.interval.ms": "50",
            "remote.log.storage.system.enable": "true", "node.id": "1",
            "remote.log.storage.manager.class.name":
                "seglog.tiered.storage_manager.LayoutStorageManager",
            "rsm.config.dir": str(self.root / "remote"), "remote.fetch.max.wait.ms": str(_WAIT_MS),
            "remote.log.manager.task.interval.ms": "10", "remote.log.reader.threads": "4",
            "remote.log.manager.copier.thread.pool.size": "2",
            "remote.log.manager.expiration.thread.pool.size": "2",
            "remote.log.index.file.cache.total.size.bytes": self.random.choice(["500", "100000"]),
            "rlmm.config.remote.log.metadata.topic.num.partitions": "2"}
        self._manager = seglog.LogManager(
            config=BrokerConfig.from_properties(properties), topic_configs=self._configs,
            scheduler=Scheduler(2))
        self._tiering = RemoteLogManager(self._manager,
                                         RemoteLogManagerConfig.from_properties(properties))
        self._manager.startup()
        wait_for(lambda: self._tiering.metadata.is_initialized)  # type: ignore[attr-defined]
        for key in self._keys:
            self._manager.get_or_create_log(key, topic_id=uuid.uuid4() if is_new else None)
        self._lead(self._keys)

    def _lead(self, keys: list[TopicPartition]) -> None:
        self._tiering.on_leadership_change(keys)
        wait_for(lambda: all(self._tiering.is_partition_ready(key) for key in keys))

    # ---- operations

    def extra(self) -> dict[str, Job]:
        return {"consume": self._consume, "consume more": self._consume, "times": self._times,
                "follow it": self._follow_and_lead, "move": self._move, "again": self._again}

    def _consume(self, actor: Actor) -> None:
        number = actor.random.randrange(len(self._keys))
        it, log = self.subjects[number], self.subjects[number].log()
        offset = actor.random.randint(log.log_start_offset,
                                      max(log.log_end_offset, log.log_start_offset))
        isolation: Isolation = actor.random.choice(["read_committed", "read_uncommitted"])
        for _ in range(6):
            cuts = it.truth.cuts
            try:
                found = self._tiering.read(self._keys[number], offset, actor.random.choice(
                    [1, 2000, 100_000]), isolation)
            except OffsetOutOfRangeError:
                now = it.log()
                assert (offset < now.log_start_offset or now is not log
                        or it.truth.cuts != cuts or cuts & 1), (offset, now)
                return
            except (RemoteStorageError, ReplicaNotAvailableError, UnknownTopicOrPartitionError):
                assert it.comes_again
                return
            except KafkaStorageError as error:
                if error.code != CLOSED:
                    raise
                return
            following = _saw(it, found, offset)
            if following == offset:
                return
            offset = following

    def _times(self, actor: Actor) -> None:
        """The first record at or after a time is not later than one that is known."""
        number = actor.random.randrange(len(self._keys))
        it, log = self.subjects[number], self.subjects[number].log()
        cuts, known = it.truth.cuts, it.truth.snapshot()
        offsets = [offset for offset in known if offset >= log.log_start_offset]
        if not offsets:
            return
        wanted = actor.random.choice(offsets)
        try:
            found = self._tiering.offset_for_timestamp(self._keys[number], known[wanted].timestamp,
                                                       timeout_ms=_WAIT_MS)
        except (KafkaStorageError, UnknownTopicOrPartitionError,
                RemoteStorageError) as error:
            assert it.comes_again or (isinstance(error, KafkaStorageError)
                                      and error.code == CLOSED), error
            return
        now = it.log()
        if (cuts & 1 or it.truth.cuts != cuts or now is not log or log.is_closed
                or log.log_start_offset > wanted):
            return
        time = known[wanted].timestamp
        if found is not None:
            assert found.timestamp >= time
        # As in Kafka, the first segment with that time decides, even if only deleted records of it
        # are late enough.
        if not any(value.timestamp >= time for offset, value in it.truth.snapshot().items()
                   if offset < log.log_start_offset):
            assert found is not None and found.offset <= wanted, (found, wanted, known[wanted])

    def _follow_and_lead(self, actor: Actor) -> None:
        if actor.random.random() < .7 or not self._changing.acquire(blocking=False):
            return
        try:
            key = actor.random.choice(self._keys)
            self._tiering.on_leadership_change([], [key])
            actor.append(actor.random.choice(self.subjects))
            self._lead([key])
        finally:
            self._changing.release()

    def _move(self, actor: Actor) -> None:
        if actor.random.random() < .7 or not self._changing.acquire(blocking=False):
            return
        try:
            mover = self._manager.alter_replica_log_dir(
                actor.random.choice(self._keys), actor.random.choice(self._roots))
            if mover is not None:
                mover.run()
        finally:
            self._changing.release()

    def _deleted(self, key: TopicPartition) -> bool:
        try:
            self._tiering.stop_partitions([key], delete_remote_log=True)
        except RetriableRemoteStorageError:
            return False  # it was created again just now
        return True

    def _again(self, actor: Actor) -> None:
        if actor.random.random() < .8 or not self._changing.acquire(blocking=False):
            return
        key, it = self._keys[0], self.subjects[0]
        try:
            with it.writing(), it.truth.losing(lambda: 0):
                wait_for(lambda: self._deleted(key))
                self._manager.async_delete_all([key], on_error=raise_it)
                it.truth.may_start_at = 0
                self._manager.get_or_create_log(key, topic_id=uuid.uuid4())
                self._lead([key])
        finally:
            self._changing.release()

    # ---- the end

    def check_whole(self, it: Subject) -> None:
        """Through remote storage."""
        key, log = self._keys[self.subjects.index(it)], it.log()
        seen: list[tuple[int, Value]] = []
        start = offset = log.log_start_offset
        while offset < log.high_watermark:
            try:
                found = self._tiering.read(key, offset, 10_000)
            except OffsetOutOfRangeError:
                assert offset < log.log_start_offset
                return self.check_whole(it)  # retention goes on
            seen += _values(found, offset)
            following = _end_of(found, offset)
            assert following > offset
            offset = following
        it.truth.check_whole(start, seen)
        return None

    def close_and_reopen(self) -> None:
        """The tier and the manager; both find what they left."""
        assert not self._manager.offline_log_dirs
        self._tiering.close()
        ends = {key: found_log(self._manager, key).log_end_offset for key in self._keys}
        self._manager.shutdown()
        assert all((root / MARKER).exists() for root in self._roots)
        self._open()
        assert {key: found_log(self._manager, key).log_end_offset for key in self._keys} == ends
        for one in self.subjects:
            self.check_whole(one)
        self._tiering.close()
        assert not self._manager.offline_log_dirs
        self._manager.shutdown()


def _saw(it: Subject, found: FetchDataInfo, start_offset: int) -> int:
    """Gives what a consumer takes of a fetch to the truth, and returns the offset behind it."""
    for offset, value in _values(found, start_offset):
        it.truth.saw(offset, value)
    return _end_of(found, start_offset)


def _end_of(found: FetchDataInfo, start_offset: int) -> int:
    whole = scan(found.records, check_crcs=True)
    return whole.last_offset + 1 if whole.batch_count else start_offset


def _values(found: FetchDataInfo, start_offset: int) -> list[tuple[int, Value]]:
    """The records that a consumer gets, as it leaves out aborted ones by the fetch's list."""
    rows = scan(found.records, check_crcs=False).batches
    waiting = sorted(found.aborted_transactions or (), key=lambda one: one.first_offset)
    active: set[int] = set()
    values: list[tuple[int, Value]] = []
    expected = start_offset
    for row in rows:
        base, last, producer = (int(row[name]) for name in (
            "base_offset", "last_offset", "producer_id"))
        assert base <= expected <= last, f"a fetch at {expected} gave a batch at {base}"
        expected = last + 1
        while waiting and waiting[0].first_offset <= last:
            active.add(waiting.pop(0).producer_id)
        attributes = int(row["attributes"])
        if attributes & ATTRIBUTE_CONTROL:
            active.discard(producer)
            continue
        is_out = bool(attributes & ATTRIBUTE_TRANSACTIONAL) and producer in active
        for offset, value in values_of(found.records, row):
            if found.aborted_transactions is not None:
                assert is_out == (value.kind == ABORTED), f"{value} at {offset}: {is_out}"
            if not is_out and offset >= start_offset:
                values.append((offset, value))
    return values
