"""A program with a LogManager that tiers a log to a local directory, a job of tests/faults, and
what is found again after a crash: every flushed record, on the disk or in the tier."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import seglog
from seglog.errors import LogLoadError
from seglog.storage.paths import PARTITION_METADATA
from seglog.tiered import LayoutStorageManager, RemoteLogSegmentState, open_bucket
from tests.crash.managed_check import is_refused, whole_texts
from tests.crash.promises import Acknowledgements, Promises
from tests.remote_log.tiering import Tiering

PARTITION = "orders-0"


def open_tiering(root: Path, seed: int) -> Tiering:
    """The manager of a program; each layout, and hardly anything stays on the disk."""
    source = random.Random(f"tiered {seed}")
    return Tiering(root, storage=LayoutStorageManager(), topic={"local.retention.bytes": 1},
                   settings={"rsm.config.url": str(root / "tier"),
                             "rsm.config.layout": source.choice(["local", "aiven"])})


def write_tiered(root: str, seed: int, count: int, generation: int = 1
                 ) -> Callable[[], dict[str, Any]]:
    """Opens the log, does `count` things to it and its tier, and does not always close it."""
    source = random.Random(f"tiered {seed} {generation}")
    shutil._USE_CP_SENDFILE = False  # type: ignore[attr-defined] # the shim traces writes

    def work() -> dict[str, Any]:
        say = Acknowledgements(Path(root)).say
        tiering = open_tiering(Path(root), seed)
        log = tiering.log
        say("opened", end=log.log_end_offset, start=log.log_start_offset)
        for kind in source.choices(["append", "flush", "copy", "retain"], [5, 2, 2, 2], k=count):
            end = log.log_end_offset
            if kind == "append":
                tiering.append(source.randint(1, 8))
            elif kind == "flush":
                log.flush()
                say("flushed", to=end)
            elif kind == "copy":
                tiering.copy()
            else:
                log.delete_old_segments()
        if source.random() < .3:
            end = log.log_end_offset
            tiering.close()
            say("flushed", to=end)
        return {}
    return work


def gaps(root: Path) -> set[int]:
    """The offsets between those of the local records: what a cut took of segments that were not
    flushed, and what Kafka's LogLoader leaves out too."""
    logs = [*(root / "data" / PARTITION).glob("*.log")]
    found = {offset for path in logs for offset in whole_texts(path)}
    bases = {int(path.stem) for path in logs}
    return {*range(min(bases, default=0), max(bases | found, default=0))} - found


def starts(root: Path, promises: Promises) -> bool:
    """Whether the log is there: a cut while it is created leaves it without its topic id."""
    is_there = (root / "data" / PARTITION / PARTITION_METADATA).exists()
    assert is_there or promises.flushed == 0
    return is_there


def check_tiered(root: Path, seed: int, promises: Promises, lost: set[int]) -> None:
    """Every flushed record but those that an earlier cut took before, and every segment that is
    copied by the metadata."""
    if not starts(root, promises):
        return
    try:
        tiering = open_tiering(root, seed)
    except LogLoadError as error:
        assert is_refused(type(error).__name__, str(error)), error
        assert not gaps(root) & {*range(promises.flushed)} - lost
        return
    segments = [one for one in tiering.segments()
                if one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    for one in segments:
        with tiering.storage.fetch_log_segment(one, 0) as stream:
            assert len(stream.read()) == one.segment_size_in_bytes
    assert tiering.log.log_start_offset == 0
    assert tiering.log.log_end_offset >= promises.flushed
    tiering.copy()
    tiering.append(30)
    tiering.copy()
    tiering.close()
    bucket = open_bucket(root / "tier", metadata=root / "data")
    with seglog.PartitionLog.open(root / "data" / PARTITION, remote=bucket) as log:
        damage: Literal["skip", "raise"] = "skip" if lost else "raise"
        found = {int(key or b"-1") for batch in log.to_arrow(columns=["key"], on_damage=damage)
                 for key in batch.to_pylists()["key"]}
        gone = {*range(promises.flushed)} - found - lost
        assert not gone, f"{sorted(gone)} are gone"
