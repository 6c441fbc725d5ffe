"""Drives seglog's UnifiedLog through sequences of operations: our side of Driver.java, which says
what the lines are.

    python -m tests.kafka.drive WORK_DIR < sequences.jsonl > results.jsonl
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from seglog.cleaner import Cleaner, LogToClean, OffsetMap, cleanable_offsets
from seglog.config import LogConfig
from seglog.log.append_info import AppendOrigin, LogAppendInfo
from seglog.log.context import LogContext, RemoteLookups
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.scheduler import ScheduledTask, Scheduler, Time
from seglog.log.read import FetchDataInfo
from seglog.log.unified_log import UnifiedLog, load_unified_log
from seglog.log.watermarks import StartOffsetReason
from seglog.model import TopicPartition
from seglog.recovery.inputs import LoadInputs
from tests.kafka.drive_tier import ISOLATION_OF, Tier
from tests.oracle.wire import crc32c
from tests.support.transcript import held, listening

Json = dict[str, Any]


class StillTime(Time):
    """A clock that only an operation moves."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def milliseconds(self) -> int:
        return self.now

    def nanoseconds(self) -> int:
        return self.now * 1_000_000


class SettlingScheduler(Scheduler):
    """Runs what is to run at once when it is told to. Kafka's scheduler goes by the real clock, so
    that here nothing that is to run later ever does."""

    def __init__(self) -> None:
        super().__init__(0)
        self.startup()
        self._due: list[ScheduledTask] = []

    def schedule(self, name: str, task: Callable[[], object], delay_ms: int = 0,
                 period_ms: int = -1) -> ScheduledTask:
        scheduled = ScheduledTask(name, task, 0, -1)
        if delay_ms <= 0 and period_ms <= 0:
            self._due.append(scheduled)
        return scheduled

    def run_due(self) -> None:
        while self._due:
            self._due.pop(0)._execute()


class Driver:
    """One sequence."""

    def __init__(self, path: Path, config: Json, *, tiered: bool = False,
                 remote: bool = False) -> None:
        self.tiered = tiered
        self.tier = Tier(self) if remote else None
        self.path, self.config = path, {key: _text(value) for key, value in config.items()}
        self.time, self.scheduler = StillTime(), SettlingScheduler()
        self.failures, self.is_left_closed = LogDirFailureChannel(), False
        self.last_clean: int | None = None
        self.rounds = 0  # every other one in several threads
        self.own: list[str] = []  # what only our answers have
        path.mkdir(parents=True, exist_ok=True)
        self.log = self._open(True, 0, 0)
        if self.tier is not None:
            self.tier.open()

    def _open(self, clean: bool, recovery_point: int, start_offset: int) -> UnifiedLog:
        if self.tiered:
            return self._open_tiered(LoadInputs(
                TopicPartition("t", 0), clean, start_offset, recovery_point,
                LogConfig.from_properties(self.config), clock=self.time.milliseconds))
        return UnifiedLog.create(
            self.path, LogConfig.from_properties(self.config), log_start_offset=start_offset,
            recovery_point=recovery_point, scheduler=self.scheduler, time=self.time,
            failures=self.failures, clean_shutdown=clean)

    def _open_tiered(self, inputs: LoadInputs) -> UnifiedLog:
        """As a log manager with tiering opens it."""
        context = LogContext(
            self.scheduler, self.time, self.failures, remote_storage=True, remote=RemoteLookups(
                None if self.tier is None else self.tier.find_offset))
        is_remote = context.is_remote(inputs.config, "t")
        return load_unified_log(str(self.path), replace(inputs, is_remote=is_remote),
                                context=context)

    # ---- operations ---------------------------------------------------------------------------

    def run(self, op: Json) -> Json:
        """What it returned."""
        run = getattr(self, f"_{op['op']}", None)
        if run is None and self.tier is None:
            raise ValueError(f"unknown op {op}")
        found: Json | None = self.tier.run(op) if run is None else run(op)
        return found or {}

    def _append(self, op: Json) -> Json:
        return self._appended(self.log.append_as_leader(
            base64.b64decode(op["records"]), op["epoch"],
            origin=AppendOrigin[op.get("origin", "CLIENT")],
            transaction_version=op.get("txn_version", 0)))

    def _append_follower(self, op: Json) -> Json:
        return self._appended(self.log.append_as_follower(
            base64.b64decode(op["records"]), op["epoch"]))

    def _appended(self, info: LogAppendInfo) -> Json:
        self.own.append(f"  {info}")
        return {"first_offset": info.first_offset, "last_offset": info.last_offset,
                "max_timestamp": info.max_timestamp, "log_append_time": info.log_append_time,
                "valid_bytes": info.valid_bytes}

    def _roll(self, op: Json) -> Json:
        return {"base_offset": self.log.roll()}

    def _flush(self, op: Json) -> None:
        self.log.flush(True)

    def _retention(self, op: Json) -> Json:
        return {"deleted": self.log.delete_old_segments()}

    def _expire_producers(self, op: Json) -> None:
        self.log.remove_expired_producers(self.time.milliseconds())

    def _clock(self, op: Json) -> None:
        self.time.now = op["ms"]

    def _truncate_to(self, op: Json) -> Json:
        truncated = self.log.truncate_to(op["offset"])
        self._truncated()
        return {"truncated": truncated}

    def _truncate_fully(self, op: Json) -> None:
        self.log.truncate_fully_and_start_at(op["offset"])
        self._truncated()

    def _truncated(self) -> None:
        if self.last_clean is not None:
            self.last_clean = min(self.last_clean, self.log.log_end_offset)

    def _clean(self, op: Json) -> Json:
        if "modified" in op:
            for path in Path(self.log.path).glob("*.log"):
                at = (op["modified"] + int(path.stem) % 3) * 1_000_000
                os.utime(path, ns=(at, at))
        self.last_clean = op.get("checkpoint", self.last_clean)
        bounds = cleanable_offsets(self.log, self.last_clean, self.time.milliseconds())
        what = LogToClean(self.log, *bounds[:2])
        cleaner = Cleaner(offset_map=OffsetMap(op.get("dedupe_bytes", 1 << 20)),
                          io_buffer_size=op.get("io_bytes", 64 * 1024),
                          max_io_buffer_size=op.get("max_io_bytes", 1024 * 1024),
                          load_factor=op.get("load_factor", .9),
                          threads=1 + 2 * (self.rounds % 2))
        self.rounds += 1
        end, stats = cleaner.clean(what)
        self.last_clean = end
        return {"first_dirty": bounds.first_dirty_offset,
                "first_uncleanable": bounds.first_uncleanable_dirty_offset,
                "clean_bytes": what.clean_bytes, "cleanable_bytes": what.cleanable_bytes,
                "total_bytes": what.total_bytes, "end": end,
                "map_messages_read": stats.map_messages_read,
                "messages_read": stats.messages_read,
                "invalid_messages_read": stats.invalid_messages_read,
                "messages_written": stats.messages_written,
                "bytes_written": stats.bytes_written}

    def _spoil(self, op: Json) -> None:
        bases = self.log.segments.base_offsets.tolist()[:-1]
        if not bases:
            return
        of_log = op["kind"] == ".log"
        path = self.path / f"{bases[op['segment'] % len(bases)]:020d}{op['kind']}"
        data = bytearray(path.read_bytes() if path.exists() else b"")
        frames = _frames(data, of_log)
        if len(frames) < 2:
            return
        number = op["batch"] % (len(frames) - 1)
        start, end = frames[number:number + 2]
        offset_at = start + (0 if of_log else 10)
        offset, = struct.unpack_from(">Q", data, offset_at)
        struct.pack_into(">Q", data, offset_at, (offset + op["add"]) % 2**64)
        at = start + op["at"] % (end - start)
        raw = base64.b64decode(op["bytes"])[:len(data) - at]
        data[at:at + len(raw)] = raw
        if op["seal"] and data[start + 16] == 2:
            struct.pack_into(">I", data, start + 17, crc32c(bytes(data[start + 21:end])))
        with path.open("r+b") as file:
            file.write(data)

    def _high_watermark(self, op: Json) -> Json:
        return {"high_watermark": self.log.update_high_watermark(op["offset"])}

    def _start_offset(self, op: Json) -> Json:
        return {"changed": self.log.maybe_increment_log_start_offset(
            op["offset"], StartOffsetReason.CLIENT_RECORD_DELETION)}

    def _remote_end(self, op: Json) -> None:
        self.log.update_highest_offset_in_remote_storage(op["offset"])

    def _remote_start(self, op: Json) -> None:
        self.log.update_log_start_offset_from_remote_tier(op["offset"])

    def _epoch_start(self, op: Json) -> None:
        self.log.assign_epoch_start_offset(op["epoch"], op["offset"])

    def _config(self, op: Json) -> None:
        self.config.update({key: _text(value) for key, value in op["set"].items()})
        self.log.update_config(LogConfig.from_properties(self.config))

    def _read(self, op: Json) -> Json:
        return self.read(self.log.read(op["offset"], op["max_bytes"],
                                       ISOLATION_OF[op["isolation"]], op["min_one"]))

    def read(self, found: FetchDataInfo) -> Json:
        """What a read returned."""
        where, data = found.fetch_offset_metadata, bytes(found.records)
        self.own.append(f"  {where} {found.first_entry_incomplete} {found.aborted_transactions}")
        return {"offset": where.message_offset, "segment": where.segment_base_offset,
                "position": where.relative_position_in_segment, "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
                "aborted": [[one.producer_id, one.first_offset]
                            for one in found.aborted_transactions or ()]}

    def _timestamp(self, op: Json) -> Json:
        found = self.log.offset_for_timestamp(op["ts"])
        self.own.append(f"  {found}")
        return {} if found is None else {"timestamp": found.timestamp, "offset": found.offset}

    def _reopen(self, op: Json) -> None:
        recovery_point, start_offset = self.log.recovery_point, self.log.log_start_offset
        self._close(op["clean"])
        self.log = self._open(op["clean"], recovery_point, start_offset)
        self.is_left_closed = False
        if self.tier is not None:
            self.tier.open()

    def _crash(self, op: Json) -> None:
        start_offset = op["start_offset"]
        if start_offset is None:
            start_offset = self.log.log_start_offset
        self._close(op["clean"])
        for suffix in op["gone"]:
            for path in self.path.glob(f"*{suffix}"):
                path.unlink()
        last = max(self.path.glob("*.log"))
        os.truncate(last, max(0, last.stat().st_size - op["cut"]))
        self.log = self._open(op["clean"], op["recovery_point"], start_offset)
        self.is_left_closed = False

    def _close(self, clean: bool) -> None:
        if clean:
            self.log.close()
        else:
            self.log.close_handlers()
        self.scheduler.run_due()
        self.own += held(self.path)
        self.is_left_closed = True

    # ---- where it ends ------------------------------------------------------------------------

    def state(self) -> Json:
        """The log, opened for it: every index is. Of one that could not be opened again what it was
        when it was closed, because its files may have changed since."""
        log = self.log
        found = self._closed_state() if self.is_left_closed else self._open_state()
        of_tier = {"local_log_start_offset": log.local_log_start_offset,
                   "highest_remote_offset": log.highest_offset_in_remote_storage}
        return {
            **(of_tier if self.tiered else {}),
            **({} if self.tier is None else {"remote": self.tier.state()}),
            "log_start_offset": log.log_start_offset, "recovery_point": log.recovery_point,
            "log_end_offset": log.log_end_offset, "high_watermark": log.high_watermark,
            "last_stable_offset": log.last_stable_offset,
            "segments": found["segments"],
            "producers": [{key: one[key] for key in (
                "producer_id", "epoch", "coordinator_epoch", "first_data_offset",
                "last_data_offset", "last_timestamp", "batches")} | {
                    "current_txn_first_offset": -1 if one["current_txn_first_offset"] is None
                    else one["current_txn_first_offset"]} for one in found["producers"]],
            "leader_epochs": found["leader_epochs"],
        }

    def _open_state(self) -> Json:
        """Reads no record: a batch that does not decompress has a place in a log, too."""
        log, segments = self.log, []
        with log.lock:
            log.update_files()
            for base in log.segments.base_offsets.tolist():
                segment = log.segments.get(base)
                segment.open_indexes()
                segments.append({
                    "base_offset": base, "size": segment.size,
                    "offset_index_entries": segment.offset_index.entries,
                    "time_index_entries": segment.time_index.entries,
                    "aborted_txns": segment.txn_index.entries})
                log.segments.release(segment)
        return {**log.state_without_files(), "segments": segments}

    def _closed_state(self) -> Json:
        segments = self.log.segments
        return {**self.log.state_without_files(), "segments": [
            {"base_offset": base, "size": size, "offset_index_entries": offsets // 8,
             "time_index_entries": times // 12, "aborted_txns": self._aborted(base)}
            for base, size, offsets, times in zip(*(column.tolist() for column in (
                segments.base_offsets, segments.log_size, segments.index_size,
                segments.time_index_size)), strict=True)]}

    def _aborted(self, base_offset: int) -> int:
        path = self.path / f"{base_offset:020d}.txnindex"
        return path.stat().st_size // 34 if path.exists() else 0

    def files(self) -> Json:
        """Sizes and hashes of all files."""
        return {path.name: {"size": path.stat().st_size,
                            "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
                for path in sorted(self.path.iterdir()) if path.is_file()}


def _frames(data: bytearray, of_log: bool) -> list[int]:
    """Where the batches, or entries, of a file begin, and its end."""
    found, at = [], 0
    while at + (17 if of_log else 34) <= len(data):
        size = struct.unpack_from(">i", data, at + 8)[0] if of_log else 22
        if size < 14 or size > len(data) - at - 12:
            break
        found.append(at)
        at += 12 + size
    return [*found, at]


def _text(value: Any) -> str:
    """As Jackson prints a value."""
    return value if isinstance(value, str) else json.dumps(value)


def _error(error: Exception) -> Json:
    return {"error": getattr(error, "kafka_name", None) or type(error).__name__}


def _texts_of(error: Exception) -> list[str]:
    """An exception in Kafka's words, and what only ours tells."""
    own = [str(getattr(error, name, None))
           for name in ("code", "file", "position", "expected", "found")]
    return [f"{_error(error)['error']}: {error}", f"  {own}"]


def run_sequence(work_dir: Path, sequence: Json) -> Json:
    """The answer to one line."""
    with listening(work_dir / sequence["name"]) as said:
        driver = Driver(work_dir / sequence["name"] / "t-0", sequence["config"],
                        tiered=sequence.get("tiered", False),
                        remote=sequence.get("remote", False))
        results, lines = [], [said.taken()]
        for op in sequence["ops"]:
            try:
                results.append(driver.run(op))
                lines.append([])
            except Exception as error:
                results.append(_error(error))
                lines.append([*map(said.plain, _texts_of(error))])
            driver.scheduler.run_due()
            lines[-1] += [*driver.own, *said.taken()]
            driver.own.clear()
        try:
            state = driver.state()
            driver.log.close()
            driver.scheduler.run_due()
        except Exception as error:  # Driver.java ends here; the next lines have their answers
            state = _error(error)
        lines.append([*said.taken(), *held(driver.path)])
    return {"name": sequence["name"], "results": results, "state": state,
            "files": driver.files(), "said": lines}


def main() -> None:
    work_dir = Path(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(run_sequence(work_dir, json.loads(line)), separators=(",", ":")),
              flush=True)


if __name__ == "__main__":
    main()
