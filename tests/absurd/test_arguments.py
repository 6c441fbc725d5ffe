"""Every public method with every absurd value for every parameter, one at a time.

Either it works, or it raises SeglogError, ValueError or TypeError with a sentence that names the
parameter or shows the value. The object works afterwards, and no refused call changes a file.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.config import BrokerConfig, LoadConfig, LogConfig
from seglog.embedded.embedded_log import EmbeddedLog
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.log.column_batches import encode_batches, encode_spans
from seglog.log.scheduler import Scheduler
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.manager.manager import LogManager
from seglog.storage.markers import ControlType
from seglog.storage.producer_state import encode_snapshot

ABSURD: list[Any] = [
    None, -1, -2**31 - 1, 2**31, 2**63, 2**64, -2**63 - 1, 10**30, 1.5, 1e300, math.nan, math.inf,
    True, "", "x", "1", "\ud800", b"", b"x", object(), [], {}, (1,), [None], [("a",)]]
#: Values of other kinds, for numeric parameters.
NO_NUMBERS = [1.5, math.nan, True, "", "x", b"", object()]
KEY = seglog.TopicPartition("t", 0)


def one_batch() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(time.time_ns() // 1_000_000, None, b"x")
    return builder.build()


#: What is not under test in a call.
SOUND: dict[str, Any] = {
    "value": b"v", "key": None, "headers": (), "data": {"value": [b"a"]}, "target_bytes": 100,
    "max_bytes": 10, "max_length": 10, "topic": "t", "partition": 0, "topic_partition": KEY,
    "offsets": {}, "properties": {}, "task": print,
    "name": "n", "leader_epoch": 0, "log_dir": "/nowhere",
    "directory": "t-0",
    "producer_id": 1, "topic_partitions": [], "log_config": LogConfig(), "timeout": 0.0,
    "reason": StartOffsetReason.SEGMENT_DELETION, "control_type": ControlType.COMMIT,
    "isolation": "read_uncommitted", "epochs": (), "snapshot": encode_snapshot([]),
    "assigned_to": lambda *_: None, "on_error": lambda *_: None, "callback": lambda: None}

# What ends an object, or is the business of its parts.
LEFT_OUT = {
    "close", "close_handlers", "shutdown", "startup", "delete", "retire",
    "rename_dir", "replace_segments", "guarded", "follow_async", "recover_segments",
    "handle_log_dir_failure", "assign_topic_id", "stop_tasks", "remove_log_metrics",
    "follow_appends", "append_as_follower"}


def drive(found: Any) -> None:
    """Consumes a few items of a lazy result."""
    if inspect.isgenerator(found) or hasattr(found, "__next__"):
        for _, _ in zip(range(3), found, strict=False):
            pass
        if hasattr(found, "close"):
            found.close()
    elif hasattr(found, "gen"):
        with found:
            pass


def calls(function: Callable[..., Any], sound: dict[str, Any]) -> Iterator[tuple[str, Any, dict]]:
    parameters = [one for one in inspect.signature(function).parameters.values()
                  if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    needed = {one.name: sound.get(one.name, 0) for one in parameters
              if one.default is one.empty or one.name == "timeout"}
    for one in parameters:
        for value in ABSURD:
            if one.name == "timeout" and (value is None or (
                    isinstance(value, int | float) and value >= 1)):
                continue  # it waits, as it was told
            yield one.name, value, {**needed, one.name: value}


def wrong_answers(where: str, function: Callable[..., Any], root: Path | None = None,
                  **sound: Any) -> list[str]:
    """Calls that end in an exception of another kind, in a sentence that says nothing, or that
    are refused and have changed a file."""
    wrong = []
    for name, value, arguments in calls(function, {**SOUND, **sound}):
        before = listing(root)
        try:
            drive(function(**arguments))
            continue
        except (seglog.SeglogError, ValueError, TypeError) as error:
            text = str(error)
            shown = repr(value)[:40]
            signs = {name, name.replace("_", " "), name.replace("_", "-"), name.rstrip("s"), shown,
                     str(value)[:40], type(value).__name__}
            if isinstance(value, list | tuple):
                signs |= set(map(repr, value))
            if not isinstance(error, seglog.SeglogError) and not any(
                    sign and sign in text for sign in signs):
                wrong.append(f"{where}({name}={shown}): {error!r}")
        except Exception as error:
            wrong.append(f"{where}({name}={value!r:.40}): {error!r}")
        if listing(root) != before:
            wrong.append(f"{where}({name}={value!r:.40}) was refused and changed files")
    return wrong


def expect_none(wrong: list[str]) -> None:
    assert not wrong, "\n" + "\n".join(wrong)


def listing(root: Path | None) -> dict[str, int]:
    return {} if root is None else {
        os.path.join(at, name): os.path.getsize(os.path.join(at, name))
        for at, _, names in os.walk(root) for name in names}


def methods(one: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in inspect.getmembers(type(one)):
        if (inspect.isfunction(inspect.unwrap(value)) and not name.startswith("_")
                and name not in LEFT_OUT):
            yield name, getattr(one, name)


def wrong_of(one: object, root: Path | None, **sound: Any) -> list[str]:
    return [line for name, method in methods(one)
            for line in wrong_answers(f"{type(one).__name__}.{name}", method, root, **sound)]


# ---- the objects -------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absurd values may be relative paths: what comes of them stays out of the tree."""
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))


def test_an_embedded_log(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "t-0") as log:
        log.append_many([b"1", b"2"])
        expect_none(wrong_of(log, tmp_path, records=one_batch()))
        assert log.append(b"after") == log.log_end_offset - 1
        assert list(log.records())[-1].value == b"after"
        expected = [one[:4] for one in log.records()]
        with log.transaction(7) as transaction:
            expect_none(wrong_of(transaction, tmp_path, records=[b"x"]))
        expect_none(check_numbers(log))
    with seglog.open(tmp_path / "t-0") as log:
        assert [one[:4] for one in log.records()][:len(expected)] == expected


def check_numbers(log: EmbeddedLog) -> list[str]:
    """A value that is not a number is refused where a number is required."""
    taken = []
    for value in NO_NUMBERS:
        for name, act in {
                "timestamp": lambda v: log.append(b"x", timestamp=v),
                "start_offset": log.to_arrow, "end_offset": lambda v: log.to_arrow(0, v),
                "delete_before": log.delete_before, "by time": log.offset_for_timestamp,
                "producer_id": lambda v: log.transaction(v).__enter__()}.items():
            try:
                act(value)
            except TypeError as error:
                assert "must be an integer" in str(error)
            else:
                taken.append(f"{name}={value!r}")
    return taken


def test_a_unified_log(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "t-0") as embedded:
        log: UnifiedLog = embedded.log
        embedded.append_many([b"1", b"2"])
        expect_none(wrong_of(log, None, records=one_batch()))
        before = log.log_end_offset
        assert embedded.append(b"after") == before


def test_a_log_manager(tmp_path: Path) -> None:
    with seglog.LogManager(tmp_path / "m") as manager:
        expect_none(wrong_of(manager, None))
        assert manager.get_or_create_log(KEY, is_new=True).log_end_offset == 0
        assert manager.live_log_dirs == [str(tmp_path / "m")]

    def started(**arguments: Any) -> None:
        with LogManager(**arguments):
            pass

    started.__signature__ = signature_of(LogManager)  # type: ignore[attr-defined]
    expect_none(wrong_answers("LogManager", started, log_dirs=tmp_path / "n"))


def signature_of(cls: type) -> inspect.Signature:
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc]
    return inspect.Signature([
        one.replace(kind=one.KEYWORD_ONLY, default=one.empty if one.name == "log_dirs"
                    else one.default) for one in parameters])


def test_a_partition_log_and_a_data_dir(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "t-0") as log:
        log.append_many([b"1", b"2"])
    reader = seglog.PartitionLog.open(tmp_path / "t-0")
    expect_none(wrong_of(reader, tmp_path))
    expect_none(wrong_answers("open", seglog.PartitionLog.open, tmp_path, path=tmp_path / "t-0"))
    with seglog.open_data_dir(tmp_path) as data:
        expect_none(wrong_of(data, tmp_path))
        assert [one.last_offset for one in data.log("t", 0).batches()] == [1]
    assert reader.to_arrow().__next__().num_rows == 2
    expect_none(wrong_answers("open_data_dir", seglog.open_data_dir, tmp_path, path=tmp_path))


def test_what_builds_batches() -> None:
    wrong = []
    for name, function in inspect.getmembers(RecordBatchBuilder, inspect.isfunction):
        if not name.startswith("_") and name != "append_kept":  # for the cleaner's native walks
            def call(_function: Callable[..., Any] = function, **arguments: Any) -> Any:
                return _function(RecordBatchBuilder(), **arguments)

            parameters = list(inspect.signature(function).parameters.values())[1:]
            call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
            wrong += wrong_answers(f"builder.{name}", call)

    def built(**arguments: Any) -> bytes:
        builder = RecordBatchBuilder(**arguments)
        builder.append(1, None, b"x")
        return builder.build()

    built.__signature__ = signature_of(RecordBatchBuilder)  # type: ignore[attr-defined]
    wrong += wrong_answers("RecordBatchBuilder", built)
    wrong += wrong_answers("end_transaction_marker", end_transaction_marker)
    wrong += wrong_answers("encode_spans", encode_spans)
    wrong += wrong_answers("encode_batches", encode_batches)
    expect_none(wrong)


def test_a_scheduler() -> None:
    scheduler = Scheduler()
    scheduler.startup()
    try:
        expect_none(wrong_answers("schedule", scheduler.schedule, task=lambda: None))
        expect_none(wrong_answers("resize", scheduler.resize_thread_pool))
        expect_none(wrong_answers("Scheduler", Scheduler))
    finally:
        scheduler.shutdown()


@pytest.mark.parametrize("cls", [LogConfig, LoadConfig, BrokerConfig])
def test_settings(cls: type[LogConfig | LoadConfig | BrokerConfig]) -> None:
    wrong = []
    for attribute, setting in cls.settings().items():
        for value in ABSURD:
            try:
                made = cls.from_properties({setting.name: value})
                # By their text: NaN, which Kafka takes for a number, is not equal to itself.
                assert repr(dataclasses.replace(made)) == repr(made)
            except seglog.SeglogError as error:
                if setting.name not in str(error):
                    wrong.append(f"{attribute}={value!r:.40}: {error}")
            except Exception as error:
                wrong.append(f"{attribute}={value!r:.40}: {error!r}")
    expect_none(wrong)


def test_open(tmp_path: Path) -> None:
    def opened(**arguments: Any) -> None:
        with seglog.open(**arguments) as log:
            log.append(b"x")

    opened.__signature__ = inspect.signature(seglog.open)  # type: ignore[attr-defined]
    expect_none(wrong_answers("open", opened, tmp_path, path=tmp_path / "d" / "t-0"))
