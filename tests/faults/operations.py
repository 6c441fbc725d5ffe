"""Everything that can be done with a log and with a manager's logs, once, where files may fail."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seglog.config import LogConfig
from seglog.storage.isolation import ISOLATIONS
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.manager.manager import LogManager
from seglog.model import TopicPartition
from tests.crash.writer import NOW, Writer, attempt, open_log
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.support.held import open_files

Answer = dict[str, Any]
MOVED, CUT, GONE, KEPT, ELSEWHERE, LATE = (TopicPartition(name, 0) for name in (
    "moved", "cut", "gone", "kept", "elsewhere", "late"))
SMALL = LogConfig(internal_segment_bytes=1_000, index_interval_bytes=100,
                  file_delete_delay_ms=500, retention_bytes=2_500)


def operate_log(root: str, seed: int) -> Callable[[], Answer]:
    """All operations of a log with segments, epochs, producers and transactions."""
    log, time = open_log(Path(root), seed, recovery_point=0, log_start_offset=0)
    writer = Writer(log, time, Path(root), random.Random(f"operate {seed}"))
    for _ in range(12):
        for step in (writer.append, writer.produce, writer.transact, writer.transact):
            step()
    log.flush()

    def questions() -> dict[str, Callable[[], object]]:
        middle = (log.log_start_offset + log.log_end_offset) // 2
        reads: dict[str, Callable[[], object]] = {
            f"read {isolation} {offset}":
                lambda isolation=isolation, offset=offset: log.read(offset, 4000, isolation, True)
            for isolation in ISOLATIONS
            for offset in (log.log_start_offset, middle, log.log_end_offset - 1)}
        return {
            "high watermark": lambda: log.update_high_watermark(middle),
            "offsets": log.fetch_offset_snapshot, **reads,
            "position": lambda: log.convert_to_offset_metadata(middle),
            **{f"time {at}": lambda at=at: log.offset_for_timestamp(at)
               for at in (NOW + middle, -1, -2, -3, -4, -5)},
            "state": log.state, "size": lambda: log.size,
            "epoch": lambda: log.end_offset_for_epoch(writer.epoch),
            "no segment": lambda: log.split_overflowed_segment(1 << 40)}

    def work() -> Answer:
        told = {name: attempt(step) for name, step in questions().items()}
        steps: dict[str, Callable[[], object]] = {
            "topic id": lambda: log.assign_topic_id(uuid.UUID(int=1)),
            "metadata": log.flush_metadata,
            "new epoch": writer.lead, "append": writer.append, "transact": writer.transact,
            "produce": writer.produce, "roll": writer.roll, "tick": writer.tick,
            "expire": lambda: log.remove_expired_producers(0), "start": writer.start,
            "retain": writer.retain, "truncate": writer.truncate, "flush": writer.flush,
            "append again": writer.append, "removed": log.delete_removed, "tock": writer.tick}
        told |= {name: attempt(step) for name, step in steps.items()}
        told["close"] = attempt(log.close)
        log.close_handlers()
        return {"told": told, "offline": log.context.failures.is_any_offline,
                "held": open_files(log.path)}
    return work


def payload(number: int) -> bytes:
    """One batch of one record."""
    record = Record(0, NOW + number, b"k", b"%d " % number + b"." * 200)
    return v2.encode(Batch(0, 0, [record], base_timestamp=NOW + number,
                           max_timestamp=NOW + number))


def operate_manager(roots: list[str]) -> Callable[[], Answer]:
    """Create, move, truncate, delete, and the tasks, of logs in two directories of which the
    first may fail. `flushed` are offsets up to which partitions must be there afterwards."""
    time = MockTime(0, NOW)
    manager = LogManager(roots, scheduler=time.scheduler, time=time, log_config=SMALL)
    manager.__enter__()
    flushed: dict[str, int] = {}

    def make(key: TopicPartition, root: str) -> None:
        manager.maybe_update_preferred_log_dir(key, root)
        fill(manager.get_or_create_log(key, is_new=True, topic_id=uuid.UUID(int=7)))

    def fill(log: UnifiedLog | None) -> None:
        if log is not None:
            for number in range(8):
                log.append_as_leader(payload(number), 0)
            log.update_high_watermark(log.log_end_offset)
            log.flush()
            flushed[str(log.topic_partition)] = log.log_end_offset

    def move() -> None:
        mover = manager.alter_replica_log_dir(MOVED, roots[0])
        if mover is not None:
            mover.run()

    def cut(key: TopicPartition, offset: int) -> None:
        flushed[str(key)] = min(flushed[str(key)], offset)
        manager.truncate_to({key: offset})

    def empty() -> None:
        flushed.pop(str(CUT))
        manager.truncate_fully_and_start_at(CUT, 100)

    def delete() -> None:
        flushed.pop(str(GONE))
        manager.async_delete(GONE)

    for key, root in ((MOVED, roots[1]), (CUT, roots[0]), (GONE, roots[0]), (KEPT, roots[0]),
                      (ELSEWHERE, roots[1])):
        make(key, root)

    def work() -> Answer:
        steps: dict[str, Callable[[], object]] = {
            "create": lambda: make(LATE, roots[0]), "fill": lambda: fill(manager.get_log(KEPT)),
            "move": move, "truncate": lambda: cut(CUT, 5), "empty": empty, "delete": delete,
            "tasks": lambda: time.sleep(400_000), "delete now": manager.delete_logs,
            "settings": lambda: manager.update_topic_config("kept", {"flush.messages": "2"}),
            "fill again": lambda: fill(manager.get_log(KEPT)),
            "tasks again": lambda: time.sleep(400_000),
            "elsewhere": lambda: fill(manager.get_log(ELSEWHERE))}
        told = {name: attempt(step) for name, step in steps.items()}
        told["shutdown"] = attempt(lambda: manager.__exit__(None, None, None))
        return {"told": told, "flushed": flushed, "offline": manager.offline_log_dirs,
                "held": open_files(os.path.dirname(roots[0]))}
    return work
