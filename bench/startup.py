"""Measures one start-up of a LogManager in a separate process: memory and descriptors, as JSON.

    python -m bench.startup DIRECTORY WARM_UP_DIRECTORY manager|read resident|traced DESCRIPTORS

`read` opens the directory read-only instead. A separate process keeps memory freed by an earlier
load from hiding the memory of this one, and has its own limit of descriptors.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
import tracemalloc
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import seglog
from bench.data import last_base_offset
from seglog.config import LoadConfig
from seglog.manager.manager import LogManager

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


def start(root: Path, config: LoadConfig | None = None) -> tuple[float, LogManager]:
    """The seconds from the constructor to the end of the load, and the running manager."""
    started = time.perf_counter()
    manager = LogManager(root, config=config)
    manager.startup()
    return time.perf_counter() - started, manager


def segments_of(manager: LogManager, root: Path, partitions: int) -> int:
    """The number of loaded segments; asserts the state of every log of `data.write_segments`."""
    logs = manager.current_logs
    assert not manager.offline_log_dirs, manager.offline_log_dirs
    assert len(logs) == partitions, len(logs)
    assert not (root / CLEAN_SHUTDOWN).exists()
    for log in logs.values():
        end = last_base_offset(len(log.segments))
        assert (log.log_start_offset, log.recovery_point, log.log_end_offset,
                log.high_watermark, log.producers.map_end_offset) == (0, end, end, end, end), log
        assert [(one.epoch, one.start_offset) for one in log.leader_epochs] == [(0, 0)], log
    return sum(len(log.segments) for log in logs.values())


def _memory(traced: bool) -> int:
    gc.collect()
    if traced:
        return tracemalloc.get_traced_memory()[0]
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _opened(root: Path, what: str) -> AbstractContextManager[Any]:
    return seglog.open_data_dir(root) if what == "read" else LogManager(root)


def measure(root: Path, warm_up: Path, what: str, traced: bool) -> dict[str, float]:
    """One load and shutdown: segments, bytes kept, descriptors held, and the seconds of both."""
    with _opened(warm_up, what):
        pass
    descriptors = len(os.listdir("/proc/self/fd"))
    if traced:
        tracemalloc.start()
    before, started = _memory(traced), time.perf_counter()
    with _opened(root, what) as found:
        loaded = time.perf_counter() - started
        kept = _memory(traced) - before
        held = len(os.listdir("/proc/self/fd")) - descriptors
        segments = (found.report.segments if what == "read" else
                    segments_of(found, root, len(found.current_logs)))
        started = time.perf_counter()
    closed = time.perf_counter() - started
    assert (root / CLEAN_SHUTDOWN).exists()
    return {"segments": segments, "kept": kept, "descriptors": held, "startup_seconds": loaded,
            "shutdown_seconds": closed}


def main() -> None:
    """The command line."""
    root, warm_up, what, memory, descriptors = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(descriptors), int(descriptors)))
    print(json.dumps(measure(Path(root), Path(warm_up), what, memory == "traced")))


if __name__ == "__main__":
    main()
