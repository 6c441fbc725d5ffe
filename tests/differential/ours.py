"""seglog's loader on a data directory, answering as Oracle.java does."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seglog.config import LogConfig
from seglog.errors import (
    CorruptDataError, InvalidTopicPartitionError, KafkaStorageError, LogLoadError,
)
from seglog.model import TopicPartition
from seglog.recovery.callbacks import NullListener
from seglog.recovery.loaded import LoadedLog
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.open_log import load_log
from seglog.storage.checkpoint_files import read_offset_checkpoint
from seglog.storage.paths import DirectoryKind, parse_directory_name
from tests.support.transcript import held, listening, plain

State = dict[str, Any]


def files(directory: Path) -> dict[str, State]:
    """Size and hash of every file."""
    found = {}
    for path in sorted(directory.iterdir()):
        if path.is_file():
            data = path.read_bytes()
            found[path.name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return found


def checkpoint(root: Path, name: str) -> dict[TopicPartition, int]:
    """As a starting broker reads it: one that cannot be read counts as empty."""
    try:
        return read_offset_checkpoint(root / name)
    except (CorruptDataError, KafkaStorageError):
        return {}


#: As Oracle.java keeps producers.
EXPIRATION_MS = 2**31 - 1


def inputs_of(root: Path, config: Mapping[str, str]) -> Iterator[tuple[Path, LoadInputs | str]]:
    """What is known of each partition directory before its load, or why its name is none."""
    clean = (root / ".kafka_cleanshutdown").exists()
    recovery_points = checkpoint(root, "recovery-point-offset-checkpoint")
    start_offsets = checkpoint(root, "log-start-offset-checkpoint")
    log_config = LogConfig.from_properties(config)
    for path in sorted(root.iterdir()):
        if not path.is_dir():
            continue
        try:
            name = parse_directory_name(str(path))
        except InvalidTopicPartitionError as error:
            yield path, str(error)
            continue
        key = name.topic_partition
        yield path, LoadInputs(key, clean, start_offsets.get(key, 0), recovery_points.get(key, 0),
                               log_config, name.kind is DirectoryKind.DELETED,
                               producer_id_expiration_ms=EXPIRATION_MS)


def load(root: Path, config: Mapping[str, str], **options: Any) -> dict[str, State]:
    """{partition directory: state} as Oracle.java gives it; the directories are changed. `options`
    are those of `load_log`."""
    return {path.name: _state(root, path, inputs, **options)
            for path, inputs in inputs_of(root, config)}


def _state(root: Path, path: Path, inputs: LoadInputs | str, **options: Any) -> State:
    if isinstance(inputs, str):
        state: State = {"error": "KafkaException", "message": inputs}
    else:
        state = load_one(path, inputs, **options)
    for told in (state, state.get("segments")):
        if isinstance(told, dict) and "message" in told:
            told["message"] = told["message"].replace(str(root), "")
    return {**state, "files_closed": files(path)}


def load_aloud(root: Path, config: Mapping[str, str]) -> dict[str, State]:
    """`load` with the lines that each load logs, as `said`, and its findings, as `found`."""
    found: list[str] = []
    listener = NullListener()
    listener.finding = lambda one: found.append(
        plain(json.dumps(one.to_dict(), default=str), str(root)))
    with listening(root) as said:
        states = {}
        for path, inputs in inputs_of(root, config):
            states[path.name] = {**_state(root, path, inputs, listener=listener),
                                 "said": [*said.taken(), *held(path)], "found": found[:]}
            found.clear()
    return states


def load_one(path: Path, inputs: LoadInputs, **options: Any) -> State:
    """One partition, up to its close."""
    try:
        log = load_log(str(path), inputs, **options)
    except LogLoadError as error:
        return {"error": error.kafka_name, "message": str(error), "where": _where(error)}
    except KafkaStorageError as error:
        return {"error": error.kafka_name, "message": str(error.strerror), "where": _where(error)}
    state = {**state_of(log), "files_loaded": files(path)}
    log.close()
    return state


def _where(error: LogLoadError | KafkaStorageError) -> str:
    file = error.file and os.path.basename(error.file)
    return f"{error.code} {file} {error.position} {error.expected} {error.found}"


def state_of(log: LoadedLog) -> State:
    """What a log says of itself. Where it cannot say all, what it says of segments is the error
    that it met."""
    state = log.state()
    if "error" not in state:
        return state
    for base in log.segments.base_offsets.tolist():
        # Oracle.java then opens every index, and a close trims open ones.
        segment = log.segments.get(base)
        segment.time_index.open()
        segment.offset_index.open()
        log.segments.release(segment)
    return {
        "log_start_offset": log.log_start_offset, "recovery_point": log.recovery_point,
        "log_end_offset": log.log_end_offset, "last_stable_offset": log.last_stable_offset,
        "producer_state_end_offset": log.producers.map_end_offset,
        "leader_epochs": [[one.epoch, one.start_offset] for one in log.leader_epochs],
        "segments": {"error": state["error"], "message": state["message"]},
    }
