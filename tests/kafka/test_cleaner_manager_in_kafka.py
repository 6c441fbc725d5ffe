"""Kafka's LogCleanerManager and ours choose the same logs, and keep the same checkpoints."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seglog.cleaner import LogCleanerManager
from seglog.config import LogConfig
from seglog.errors import SeglogError
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.manager.directories import LogDirectory
from tests.cleaner.support import NOW, append, end_transaction
from tests.cleaner.world import Logs
from tests.kafka import harness
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.support.effort import how_many

CASES = how_many("CLEANER_MANAGER_CASES", 6, 2)


def settings_of(drawn: random.Random) -> dict[str, str]:
    return {"cleanup.policy": drawn.choice(["compact", "compact", "compact,delete", "delete"]),
            "min.cleanable.dirty.ratio": drawn.choice(["0", "0.3", "0.5", "1"]),
            "min.compaction.lag.ms": drawn.choice(["0", "0", "1500"]),
            "max.compaction.lag.ms": drawn.choice(["9223372036854775807", "3000", "6000"]),
            "segment.ms": "100000000"}


def make_log(path: Path, drawn: random.Random) -> int:
    """Segments of any sizes and times, sometimes with an open transaction; its end."""
    clock = MockTime(current_time_ms=NOW)
    log = UnifiedLog.create(path, LogConfig.from_properties({"cleanup.policy": "compact"}),
                            scheduler=clock.scheduler, time=clock)
    for number in range(drawn.randrange(0, 9)):
        rows = [(b"k", bytes(drawn.randrange(300))) for _ in range(drawn.randrange(1, 4))]
        if drawn.random() < .2:
            append(log, rows, producer=9 + number, sequence=0, transactional=True)
            if drawn.random() < .7:
                end_transaction(log, 9 + number, commit=True)
        else:
            when = NOW + drawn.randrange(-4000, 4000)
            log.append_as_leader(v2.encode(Batch(
                0, len(rows) - 1, [Record(at, when, *row) for at, row in enumerate(rows)],
                base_timestamp=when, max_timestamp=when)), 0)
        if drawn.random() < .8:
            log.roll()
    end = log.log_end_offset
    log.close()
    return end


def commands(drawn: random.Random, ends: dict[str, int]) -> list[str]:
    found = []
    for _ in range(40):
        name = drawn.choice(list(ends))
        offset = drawn.randrange(ends[name] + 2)
        found.append(drawn.choice([
            "grab", "grab", "grab", f"done {name} {offset}", f"done {name} {offset}",
            f"pause {name}", f"resume {name}", f"truncate {name} {offset}", "points",
            f"start {name} {min(offset, ends[name])}", f"now {NOW + drawn.randrange(12_000)}",
            f"mark {name}" if drawn.random() < .3 else "points"]))
    return [*found, "points"]


class Ours:
    """The same commands with our manager."""

    def __init__(self, root: Path, settings: dict[str, dict[str, str]]) -> None:
        self.clock, self.logs = MockTime(current_time_ms=NOW), Logs()
        self.dir = LogDirectory(str(root), None, LogDirFailureChannel())
        for name, own in settings.items():
            log = UnifiedLog.create(root / name, LogConfig.from_properties(own), time=self.clock,
                                    scheduler=self.clock.scheduler)
            log.update_high_watermark(log.log_end_offset)
            self.logs.of[log.topic_partition] = log
        self.manager = LogCleanerManager([self.dir], self.logs)

    def answer(self, line: str) -> str:
        verb, *args = line.split()
        try:
            found = getattr(self, verb)(*args)
        except SeglogError as error:
            return f"{error.kafka_name}: {error}"
        return "ok" if found is None else str(found)

    def log(self, name: str) -> UnifiedLog:
        return next(log for key, log in self.logs.of.items() if str(key) == name)

    def grab(self) -> str:
        found, stats = self.manager.grab_filthiest_compacted_log(self.clock.milliseconds())
        counts = (f"{stats.cleanable_partitions} {stats.delayed_partitions} "
                  f"{stats.max_compaction_delay_ms}")
        if found is None:
            return f"none {counts}"
        return (f"{found.topic_partition} {found.first_dirty_offset} "
                f"{found.first_uncleanable_offset} {found.clean_bytes} {found.cleanable_bytes} "
                f"{found.cleanable_ratio} {counts}")

    def done(self, name: str, offset: str) -> None:
        self.manager.done_cleaning(self.log(name), self.dir.path, int(offset))

    def pause(self, name: str) -> None:
        self.manager.abort_and_pause_cleaning(self.log(name).topic_partition)

    def resume(self, name: str) -> None:
        self.manager.resume_cleaning([self.log(name).topic_partition])

    def mark(self, name: str) -> None:
        self.manager.mark_partition_uncleanable(self.dir.path, self.log(name).topic_partition)

    def truncate(self, name: str, offset: str) -> None:
        if self.log(name).config.compact:  # ours lowers those of other logs, too
            self.manager.maybe_truncate_checkpoint(self.log(name), int(offset))

    def start(self, name: str, offset: str) -> None:
        self.log(name).maybe_increment_log_start_offset(
            int(offset), StartOffsetReason.CLIENT_RECORD_DELETION)

    def now(self, ms: str) -> None:
        self.clock.set_current_time_ms(int(ms))

    def points(self) -> str:
        points = {str(key): offset for key, offset in
                  self.manager.all_cleaner_checkpoints().items()}
        return "{" + ", ".join(f"{key}={points[key]}" for key in sorted(points)) + "}"


def comparable(line: str) -> list[str]:
    """Of two logs with the same ratio either may be grabbed: the order of a map decides."""
    words = line.replace("IllegalStateException: ", "").split(" ")
    if len(words) == 9:
        words[5] = f"{float(words[5]):.9f}"
    # Kafka prints a state without a name as an object's address.
    return ["STATE" if "LogCleaning" in word else word for word in words]


def ask(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline().rstrip("\n")


def run_case(home: Path, seed: int) -> list[str]:
    """One case; the answers, for what the test wants to know of them."""
    drawn = random.Random(seed)
    names = [f"t{number}-0" for number in range(4)]
    (home / "ours").mkdir(parents=True)
    ends = {name: make_log(home / "ours" / name, drawn) for name in names}
    settings = {name: settings_of(drawn) for name in names}
    shutil.copytree(home / "ours", home / "kafka")
    given = [name + ":" + ",".join(f"{key}={value.replace(',', '+')}" for key, value in own.items())
             for name, own in settings.items()]
    ours, answers = Ours(home / "ours", settings), []
    process = subprocess.Popen(
        harness.command("CleanerManager", str(home / "kafka"), str(NOW), *given),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    states: dict[str, Any] = {}
    try:
        for line in commands(drawn, ends):
            verb, *args = line.split()
            if verb == "pause" and states.get(args[0]) == "in progress":
                continue  # it would wait for the round
            theirs, mine = ask(process, line), ours.answer(line)
            if verb == "grab" and comparable(theirs) != comparable(mine):
                assert theirs.split()[5:] == mine.split()[5:], (seed, line, theirs, mine)
                return answers  # equally dirty logs: they may differ now
            assert comparable(theirs) == comparable(mine), (seed, line, theirs, mine)
            answers.append(mine)
            if verb == "grab" and not mine.startswith("none"):
                states[mine.split()[0]] = "in progress"
            elif verb == "done" and mine == "ok":
                states.pop(args[0], None)
    finally:
        process.kill()
        process.communicate()
    return answers


def test_the_same_choices_and_checkpoints(
        kafka_lib: Path, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    seen: list[str] = []
    for seed in range(CASES):
        seen += run_case(tmp_path / str(seed), int(os.environ.get("SEED", "0")) + seed)
    record_property("answers", len(seen))
    grabbed = [line for line in seen if len(line.split()) == 9]
    assert len(grabbed) > CASES and any("IllegalStateException" in line for line in seen)
