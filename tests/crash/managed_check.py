"""Starts a LogManager on what a crash left, and holds its logs against what was promised."""

from __future__ import annotations

import contextlib
import copy
import shutil
from pathlib import Path

from seglog.errors import LogLoadError
from seglog.log.unified_log import UnifiedLog
from seglog.storage.paths import (
    CLEAN_SHUTDOWN_FILE, HIGH_WATERMARK_CHECKPOINT, temporary_name,
)
from tests.crash.check import records_of, texts
from tests.crash.managed import KEYS, LONG_MS, ROOTS, open_manager, topic_id
from tests.crash.managed_promises import LogPromises, ManagedPromises
from tests.faults.operations import payload
from tests.oracle.wire import OracleError

#: (log start offset, log end offset, text by offset) by name.
States = dict[str, tuple[int, int, dict[int, str]]]


def check_managed(root: Path, seed: int, promises: ManagedPromises) -> None:
    """A start keeps what was promised, and so does the one after it; a log that was being moved may
    be in both directories (Kafka: LogManager.replaceCurrentWithFutureLog)."""
    for name in map(str, KEYS):
        homes = [home for home in ROOTS if (root / home / name).is_dir()]
        log = promises.logs.get(name)
        if log is None:
            assert not homes, f"{name} is there again"
        elif len(homes) == 2:
            assert log.state == "moving", f"{name} is there twice"
            for gone in ROOTS:
                one = root.with_name(f"{root.name}-without-{gone}")
                shutil.copytree(root, one)
                shutil.rmtree(one / gone / name)
                check_managed(one, seed, copy.deepcopy(promises))
                shutil.rmtree(one)
            return
        else:
            assert homes in homes_of(log), f"{name} is in {homes}"
    try:
        _check_markers(root, seed, promises)
        states = look(root, seed, promises, goes_on=True)
    except LogLoadError as error:
        _check_refusal(root, promises, error)
        return
    for name, (start, end, found) in states.items():
        promises.logs[name].check(found, start, end)
    again = look(root, seed, promises)
    for name, (start, end, found) in states.items():
        _, end_again, found_again = again[name]
        assert end_again == end + 1, f"{name} ends at {end_again}, not {end + 1}"
        kept = {at: text for at, text in found_again.items() if at < end}
        assert kept == {at: text for at, text in found.items() if at in kept}
    left = [path for path in root.rglob("*") if path.name.endswith((
        "-delete", ".deleted", ".cleaned", ".swap", ".tmp"))]
    # Kafka (ReplicaManager.checkpointHighWatermarks) writes none where there is no log.
    assert not [path for path in left if path.name != temporary_name(HIGH_WATERMARK_CHECKPOINT)
                or [*path.parent.glob("*-?")]], left


def homes_of(log: LogPromises) -> list[list[str]]:
    """Where a log may be."""
    return {"there": [[log.home]], "creating": [[], [log.home]], "deleting": [[], [log.home]],
            "moving": [[log.home], [log.target]]}[log.state]


def _check_markers(root: Path, seed: int, promises: ManagedPromises) -> None:
    """A marker says that nothing is to be recovered: without it the logs are the same."""
    markers = [root / home / CLEAN_SHUTDOWN_FILE for home in ROOTS]
    if not any(path.exists() for path in markers):
        return
    found = []
    for marked in (True, False):
        one = root.with_name(f"{root.name}-marked-{marked}")
        shutil.copytree(root, one)
        for home in ROOTS:
            if not marked:
                (one / home / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
        found.append(look(one, seed, promises))
        shutil.rmtree(one)
    assert found[0] == found[1], "a clean shutdown marker beside a log that was not flushed"


def _check_refusal(root: Path, promises: ManagedPromises, error: LogLoadError) -> None:
    """The start may refuse a log with zeros at the end of a segment that is not its last: they are
    where bytes were not synced, and Kafka reads them to rebuild the producers' state
    (LogLoader.recoverSegment, FileLogInputStream.nextBatch). It may also refuse one with zeros in
    place of the offset of a batch, which no CRC covers: Kafka takes that for an overflow
    (LocalLog.splitOverflowedSegment). Nothing flushed is lost."""
    assert is_refused(type(error).__name__, str(error)), error
    if error.kafka_name == "CorruptRecordException":
        file = Path(str(error).split(" in file ")[1].removesuffix("."))
        assert file.name != max(path.name for path in file.parent.glob("*.log"))
    else:
        assert error.kafka_name == "IllegalArgumentException", error
        file = Path(str(error).split("problem path is ")[1])
    end = max(whole_texts(file), default=int(file.stem) - 1) + 1
    for name, log in promises.logs.items():
        path = next((one for home in ROOTS if (one := root / home / name).is_dir()), None)
        if path is None:
            continue
        found = {offset: text for one in sorted(path.glob("*.log"))
                 for offset, text in whole_texts(one).items()}
        for offset, text in log.texts.items():
            if log.start_at_most <= offset < log.flushed:
                assert found.get(offset) == text
        if path == file.parent:
            assert end >= log.flushed, f"zeros at {end}, {log.flushed} was promised"


def whole_texts(log: Path) -> dict[int, str]:
    """The texts before the first torn batch: no recovery has cut it."""
    found = {}
    with contextlib.suppress(OracleError):
        for offset, text in records_of(log.read_bytes()):
            if offset < int(log.stem):
                break
            found[offset] = text
    return found


def is_refused(error: str, message: str) -> bool:
    """Whether a start refused a log because of zeros."""
    return error == "LogLoadError" and message.startswith((
        "Found record size 0 smaller than minimum record overhead (14) in file ",
        "Split operation is only permitted for segments with overflow, "))


def look(root: Path, seed: int, promises: ManagedPromises, *, goes_on: bool = False) -> States:
    """The logs of a manager that is started, completes its moves, runs its tasks and is shut down;
    with `goes_on` one more record is appended to each at the end."""
    manager, time = open_manager(root, seed)
    with manager:
        found = {str(key): state_of(log) for key, log in manager.current_logs.items()}
        for key in [*manager.future_logs]:
            mover = manager.resume_move(key)
            if mover is None:
                manager.async_delete(key, is_future=True)
                continue
            mover.run()
            log = manager.get_log(key)
            assert log is not None
            start, end, kept = state_of(log)
            before, _, texts_before = found[str(key)]
            assert before <= start <= max(before, promises.logs[str(key)].start_at_most)
            assert kept == {at: text for at, text in texts_before.items() if at >= start}
            # Without the segments at the end that a power cut emptied.
            found[str(key)] = before, end, texts_before
        for log in [*manager.current_logs.values()] if goes_on else []:
            log.assign_topic_id(topic_id(log.topic_partition.topic))
            assert log.append_as_leader(payload(1), 1 << 20).first_offset == log.log_end_offset - 1
        time.sleep(LONG_MS)
        time.sleep(LONG_MS)
    return found


def state_of(log: UnifiedLog) -> tuple[int, int, dict[int, str]]:
    start = log.log_start_offset
    found, end = texts(Path(log.path), start, log.log_end_offset)
    return start, end, found
