"""Generated operations on the logs of two data directories, by Kafka's LogManager and by ours: the
same answers, and the same files with the same bytes."""

from __future__ import annotations

import random
import re
import threading
from pathlib import Path

import pytest

import seglog
from seglog.config import LoadConfig, LogConfig
from seglog.errors import SeglogError
from seglog.log.watermarks import StartOffsetReason
from seglog.model import TopicPartition
from tests.kafka import harness
from tests.kafka.test_manager_in_kafka import files
from tests.manager.records import batch
from tests.support.effort import how_many
from tests.support.waiting import wait_for

CONFIG = {"internal.segment.bytes": "3000", "index.interval.bytes": "300",
          "segment.index.bytes": "4096", "retention.bytes": "5000", "retention.ms": "-1"}
SEEDS = range(1, how_many("SEGLOG_OPERATION_SEEDS", 4, 1) + 1)
KEYS = ("a-0", "a-1", "b-0", "c-9")
UNIQUE = re.compile(r"\.[0-9a-f]{32}-")


def operations(seed: int, roots: list[Path]) -> list[str]:
    """What to do. The places are named so that both sides have the same to choose from."""
    chance = random.Random(seed)
    lines = [f"create {key}" for key in KEYS]
    for _ in range(120):
        key = chance.choice(KEYS)
        what = chance.choices(
            ("create", "append", "watermark", "start", "truncate", "empty", "move", "delete",
             "stray", "roll", "retain", "restart", "crash", "fail"),
            (6, 30, 8, 4, 4, 1, 6, 3, 1, 3, 4, 2, 1, 1))[0]
        if what == "append":
            producer = chance.random() < 0.3
            records = batch(
                chance.randint(1, 5), value=bytes(chance.randrange(300)),
                timestamp=1_600_000_000_000 + chance.randrange(10**6),
                producer_id=7 if producer else -1, sequence=0 if producer else -1)
            lines.append(f"append {key} {records.hex()}")
        elif what in ("watermark", "start", "truncate", "empty"):
            lines.append(f"{what} {key} {chance.randrange(60)}")
        elif what in ("move", "fail") or (what == "create" and chance.random() < 0.5):
            lines.append(f"{what} {key} {chance.choice(roots)}")
        else:
            lines.append(f"{what} {key}")
    return [*lines, f"restart {KEYS[0]}"]  # with all directories


class Ours:
    """The same operations by a manager of ours."""

    def __init__(self, roots: list[Path]) -> None:
        self.roots, self.scheduler = roots, seglog.Scheduler()
        self.scheduler.startup()
        self.manager = self.start()

    def start(self) -> seglog.LogManager:
        manager = seglog.LogManager(
            self.roots, log_config=LogConfig.from_properties(CONFIG), config=LoadConfig(
                producer_id_expiration_ms=2**31 - 1), scheduler=self.scheduler)
        manager.startup()
        return manager

    def end(self) -> None:
        self.manager.shutdown(broker_epoch=5)

    def fail(self, log_dir: str) -> int:
        self.manager.checkpoint_log_recovery_offsets()
        self.manager.handle_log_dir_failure(log_dir)
        wait_for(lambda: not self.manager.is_log_dir_online(log_dir)
                 and not self.manager._state.table.opened(log_dir))
        return len(self.manager.live_log_dirs)

    def restart(self, *, clean: bool) -> bool:
        self.end()
        for root in self.roots:
            # Kafka's LogManager knows no high watermarks at its start.
            (root / "replication-offset-checkpoint").unlink(missing_ok=True)
            if not clean:
                (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
        self.manager = self.start()
        return True

    def run(self, line: str) -> object:
        what, name, *rest = line.split(" ")
        topic, partition = name.rsplit("-", 1)
        key, manager = TopicPartition(topic, int(partition)), self.manager
        is_whole = not manager.offline_log_dirs
        if what == "create":
            if rest:
                manager.maybe_update_preferred_log_dir(key, rest[0])
            return manager.get_or_create_log(key, is_new=is_whole).parent_dir
        if what == "fail":
            return self.fail(rest[0]) if is_whole else "failed"
        if what in ("restart", "crash"):
            return self.restart(clean=what == "restart")
        if what in ("delete", "stray"):
            return manager.async_delete(key, is_stray=what == "stray") is not None
        log = manager.get_log(key)
        if log is None or (what == "move" and not is_whole):
            return "none"
        if what == "append":
            return log.append_as_leader(bytes.fromhex(rest[0]), 0).last_offset
        if what == "watermark":
            return log.update_high_watermark(int(rest[0]))
        if what == "start":
            return log.maybe_increment_log_start_offset(
                int(rest[0]), StartOffsetReason.CLIENT_RECORD_DELETION)
        if what == "truncate":
            manager.truncate_to({key: int(rest[0])})
        elif what == "empty":
            manager.truncate_fully_and_start_at(key, int(rest[0]))
        elif what == "move":
            mover = manager.alter_replica_log_dir(key, rest[0])
            if mover is None:
                return "there"
            mover.run()
            moved = manager.get_log(key)
            assert moved is not None
            return moved.log_end_offset
        elif what == "roll":
            log.roll()
            return log.number_of_segments
        else:
            return log.delete_old_segments()
        return log.log_end_offset


def by_us(roots: list[Path], lines: list[str]) -> list[str]:
    answers, ours = list[str](), Ours(roots)
    try:
        for line in lines:
            try:
                answers.append(str(ours.run(line)))
            except SeglogError as error:
                answers.append(error.kafka_name)
            flushed = threading.Event()  # a log's flush is done before it continues
            ours.scheduler.schedule_once("await", flushed.set)
            assert flushed.wait(60)
    finally:
        ours.scheduler.shutdown()
        ours.end()
    return answers


def by_kafka(roots: list[Path], lines: list[str]) -> list[str]:
    said = harness.run("Operations", *map(str, roots),
                       *(f"{key}={value}" for key, value in CONFIG.items()),
                       given="".join(f"{line}\n" for line in lines))
    return [{"true": "True", "false": "False"}.get(one, one) for one in said.splitlines()]


def contents(root: Path) -> list[tuple[str, list[tuple[str, bytes]]]]:
    """(directory, its files) in an order that what is unique in a name does not change."""
    found: dict[str, list[tuple[str, bytes]]] = {}
    for name, content in files(root).items():
        directory, _, file = name.rpartition("/")
        if file:
            found.setdefault(directory, []).append((file, content))
    return sorted((UNIQUE.sub(".X-", directory), sorted(held))
                  for directory, held in found.items())


@pytest.mark.usefixtures("kafka_lib")
@pytest.mark.parametrize("seed", SEEDS)
def test_answers_and_files_are_kafkas(tmp_path: Path, seed: int) -> None:
    roots = {who: [tmp_path / who / name for name in ("k1", "k2")] for who in ("kafka", "ours")}
    lines = {who: operations(seed, roots[who]) for who in roots}
    # Only calls that both have: there is no log to append to in a missing partition.
    ours = by_us(roots["ours"], lines["ours"])
    asked = [number for number, answer in enumerate(ours) if answer not in ("none", "there")]
    kafka = by_kafka(roots["kafka"], [lines["kafka"][number] for number in asked])
    text = str(tmp_path / "kafka"), str(tmp_path / "ours")
    assert [one.replace(*text) for one in kafka] == [ours[number] for number in asked], [
        lines["ours"][number][:60] for number in asked]
    assert len(asked) > 60
    for mine, theirs in zip(roots["ours"], roots["kafka"], strict=True):
        found, wanted = contents(mine), contents(theirs)
        assert [one[0] for one in found] == [one[0] for one in wanted]
        assert [one for one in found if one not in wanted] == []
