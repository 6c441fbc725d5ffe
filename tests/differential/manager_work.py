"""What is done to the logs of a manager once it has started: what a load left in memory shows."""

from __future__ import annotations

import random
import threading

import seglog
from seglog.errors import SeglogError
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from tests.manager.records import batch


def operations(rng: random.Random) -> list[str]:
    """Some operations, each to be done to each log. The first moves the high watermark, which
    Kafka's LogManager does not read at its start."""
    return [f"watermark {-rng.choice([0, 0, 3, 200])}",
            *(_operation(rng) for _ in range(rng.choice([3, 6, 12])))]


def _operation(rng: random.Random) -> str:
    what = rng.choices(("append", "watermark", "start", "truncate", "roll", "retain"),
                       (8, 3, 2, 2, 2, 1))[0]
    if what == "append":
        producer = rng.choice([-1, -1, 7, 2000])
        records = batch(rng.randint(1, 5), value=bytes(rng.randrange(300)),
                        timestamp=rng.choice([1_600_000_000_000, 1_761_000_000_000, 5])
                        + rng.randrange(10**6), producer_id=producer,
                        sequence=-1 if producer < 0 else rng.choice([0, 5]))
        return f"append {records.hex()}"
    if what in ("watermark", "start", "truncate"):
        away = rng.choice([0, 1, 2, 5, 40, 300, 2000])
        return f"{what} {away if what == 'start' else -away}"
    return what


def run_all(manager: seglog.LogManager, scheduler: seglog.Scheduler, lines: tuple[str, ...]
            ) -> dict[str, list[str]]:
    """{path of a log: what came of each}, as Manager.java says it."""
    found: dict[str, list[str]] = {}
    logs = [manager.get_log(key) for key in manager._state.table.current_keys()]
    for log in sorted((one for one in logs if one is not None), key=lambda one: one.path):
        answers = found[log.path] = []
        for line in lines:
            try:
                answers.append(str(_run(manager, log, line.split(" "))).lower())
            except SeglogError as error:
                answers.append(error.kafka_name)
            flushed = threading.Event()  # a flush is done before it continues
            scheduler.schedule_once("await", flushed.set)
            assert flushed.wait(60)
    return found


def _run(manager: seglog.LogManager, log: UnifiedLog, op: list[str]) -> int | None:
    what = op[0]
    if what == "append":
        epoch = log.leader_epochs.latest
        return log.append_as_leader(bytes.fromhex(op[1]), 0 if epoch is None else epoch.epoch
                                    ).last_offset
    if what == "watermark":
        return log.update_high_watermark(log.log_end_offset + int(op[1]))
    if what == "start":
        return log.maybe_increment_log_start_offset(
            log.log_start_offset + int(op[1]), StartOffsetReason.CLIENT_RECORD_DELETION)
    if what == "truncate":
        manager.truncate_to({log.topic_partition: log.log_end_offset + int(op[1])})
        return log.log_end_offset
    if what == "roll":
        log.roll()
        return log.number_of_segments
    return log.delete_old_segments()
