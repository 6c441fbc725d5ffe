"""Real loads of damaged directories: every state, and every file's name and bytes, is Kafka's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seglog.config import LogConfig
from seglog.errors import SeglogError
from seglog.recovery.loaded import LoadedLog, error_state
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.open_log import load_log
from seglog.recovery.root import read_root
from seglog.storage.paths import DirectoryKind

# The settings under which Kafka loaded them (tests/golden/README.md).
SETTINGS = LogConfig(internal_segment_bytes=16384, index_interval_bytes=512,
                     segment_index_bytes=16384)
CASES = [f"{number:03d}" for number in range(70)]


def inputs_of(root: Path) -> dict[str, LoadInputs]:
    """What the checkpoints of a data directory say of each partition, producers never expiring."""
    found = read_root(str(root), lambda finding: None)
    return {one.name: LoadInputs(
        one.topic_partition, found.clean_shutdown,
        found.log_start_offsets.get(one.topic_partition, 0),
        found.recovery_points.get(one.topic_partition, 0), SETTINGS,
        is_deleted=one.kind is DirectoryKind.DELETED, producer_id_expiration_ms=None)
        for one in found.partitions}


def files_of(path: Path) -> dict[str, dict[str, Any]]:
    """Sizes and hashes, as Kafka's answers have them; removed segments are there as .deleted."""
    return {one.name: {"size": one.stat().st_size,
                       "sha256": hashlib.sha256(one.read_bytes()).hexdigest()}
            for one in sorted(path.iterdir())
            if one.is_file()}


def load(path: Path, inputs: LoadInputs) -> dict[str, Any]:
    """Loads and closes a partition; what Oracle.java prints of it."""
    try:
        log: LoadedLog = load_log(str(path), inputs)
        state = log.state()
    except SeglogError as error:
        state = error_state(error)
    if "error" in state:
        return {**state, "message": state["message"].replace(str(path.parent), ""),
                "files_closed": files_of(path)}
    loaded = files_of(path)
    log.close()
    return {**state, "files_loaded": loaded, "files_closed": files_of(path)}


@pytest.fixture(scope="module")
def truth(golden: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((golden / "damaged/loaded.json").read_text())
    return loaded


@pytest.mark.parametrize("case", CASES)
def test_a_damaged_directory_is_left_as_kafka_leaves_it(
        golden: Path, golden_copy: Callable[[str], Path], truth: dict[str, Any],
        case: str) -> None:
    [path] = (golden / "damaged").glob(f"{case}-*")
    copy = golden_copy(f"damaged/{path.name}")
    for name, inputs in inputs_of(copy).items():
        assert load(copy / name, inputs) == truth[path.name][name]


@pytest.mark.parametrize("which", ["clean", "unclean"])
def test_every_golden_partition_is_left_as_kafka_leaves_it(
        golden: Path, golden_copy: Callable[[str], Path], which: str) -> None:
    truth = json.loads((golden / "real/loaded.json").read_text())[which]
    copy = golden_copy(f"real/{which}")
    for name, inputs in inputs_of(copy).items():
        assert load(copy / name, inputs) == truth[name], name
