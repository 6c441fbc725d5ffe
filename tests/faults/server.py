"""The process in which things go wrong: it has the shim, and forks a child for each job.

A job is a line of JSON on standard input: `job` (a function below), its arguments, and `faults`
(what the shim is told once the job is prepared). The answer is a line on standard output: `signal`
where the child was killed, `calls` (how many matched), and what the job returned or raised.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import seglog
from seglog._native.fetch import SegmentReader
from seglog.cli.main import main
from seglog.config import LoadConfig, LogConfig
from seglog.errors import KafkaStorageError, SeglogError
from seglog.manager.manager import LogManager
from seglog.recovery.loaded import LoadedLog
from seglog.recovery.open_log import load_log
from seglog.storage.partition_log import PartitionLog
from tests.crash.anything import write_anything
from tests.crash.compacted import write_compacted
from tests.crash.embedded import write_embedded
from tests.crash.managed import write_managed
from tests.crash.tiered import write_tiered
from tests.crash.writer import append_in_trouble, write
from tests.differential.ours import EXPIRATION_MS, inputs_of
from tests.faults.operations import operate_log, operate_manager

Answer = dict[str, Any]
Job = Callable[[], Answer]
_TIMEOUT_S = 600


def load(root: str, config: dict[str, str]) -> Job:
    """Loads and closes every partition as a starting broker would, the marker removed first."""
    partitions = list(inputs_of(Path(root), config))

    def work() -> Answer:
        Path(root, ".kafka_cleanshutdown").unlink(missing_ok=True)
        states = {}
        for path, inputs in partitions:
            assert not isinstance(inputs, str)
            log = load_log(str(path), inputs)
            states[path.name] = state_of(log)
            log.close()
        return states
    return work


def manage(roots: list[str], config: dict[str, str], threads: int = 1) -> Job:
    """A log manager from start to shutdown: what it holds in between, and which directories
    failed, by its listener and at the end."""
    logs = LogConfig.from_properties(config)
    settings = LoadConfig(num_recovery_threads_per_data_dir=threads,
                          num_segment_loading_threads_per_data_dir=threads,
                          producer_id_expiration_ms=EXPIRATION_MS)

    def work() -> Answer:
        told: list[str] = []
        manager = LogManager(roots, config=settings, log_config=logs,
                             on_log_dir_failure=lambda failure: told.append(failure.log_dir))
        with manager:
            states = {log.path: state_of(log) for log in manager.all_logs}
            offline_at_start = manager.offline_log_dirs
        return {"states": states, "told": told, "offline_at_start": offline_at_start,
                "offline": manager.offline_log_dirs}
    return work


def check(root: str, level: Literal["kafka", "full", "verify"]) -> Job:
    """The report of a load that only reads: its findings, and the ends of the logs."""
    def work() -> Answer:
        with seglog.open_data_dir(root, level=level) as data:
            return {"found": [[one.code, one.directory, one.file, one.message]
                              for one in data.report.findings],
                    "ends": {one.directory: one.log_end_offset
                             for one in data.report.partitions}}
    return work


def read(path: str, threads: int, on_damage: Literal["raise", "skip"]) -> Job:
    """The offsets that a reader gets of a partition, the gaps, and the error that ends it."""
    def work() -> Answer:
        found: Answer = {"offsets": []}
        with PartitionLog.open(path) as log:
            try:
                for batch in log.to_arrow(columns=["offset"], threads=threads, on_damage=on_damage):
                    found["offsets"] += batch.to_pylists()["offset"]
            except SeglogError as error:
                found |= told(error)
            return {**found, "gaps": [
                (gap.kind, gap.position, gap.size, gap.first_offset, gap.last_offset)
                for gap in log.gaps]}
    return work


def fetch(path: str, size: int, max_length: int) -> Job:
    """The offsets whose batches reads of a segment without indexes deliver one after the other, the
    error that ends them, and the same of fetches that each begin with an offset."""
    Path(f"{path}.index").touch()
    reader = SegmentReader(path, f"{path}.index", 0)

    def by_offset() -> Iterator[int]:
        offset = 0
        while (one := reader.fetch(offset, size, 0, max_length, size, True)) is not None:
            yield from (offsets := offsets_of(one.records))
            offset = offsets[-1] + 1

    def by_position() -> Iterator[int]:
        position = 0
        while position < size:
            data, first, after = reader.read_batches(position, size, max_length)
            yield from range(first, after)
            position += len(data)

    def work() -> Answer:
        return {"fetch": until_error(by_offset()), "read_batches": until_error(by_position())}
    return work


def offsets_of(data: bytes) -> list[int]:
    """The first offsets of the whole batches."""
    found, at = [], 0
    while at + 12 <= len(data) and (end := at + 12 + int.from_bytes(data[at + 8:at + 12])) <= len(
            data):
        found.append(int.from_bytes(data[at:at + 8]))
        at = end
    return found


def until_error(offsets: Iterator[int]) -> Answer:
    """What an iterator delivers, and the error that ends it."""
    found: Answer = {"offsets": []}
    try:
        found["offsets"].extend(offsets)
    except SeglogError as error:
        found |= told(error)
    return found


def command(arguments: list[str]) -> Job:
    """A command line, its output thrown away."""
    def work() -> Answer:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return {"status": main(arguments)}
    return work


def write_fragments(**how: Any) -> Job:
    """Jobs of fragments, which need pyarrow (tests/crash/fragments.py)."""
    from tests.crash import fragments

    return fragments.write_fragments(**how)


def state_of(log: LoadedLog) -> Answer:
    """What has to be the same whenever a log was loaded."""
    return {"log_start_offset": log.log_start_offset, "recovery_point": log.recovery_point,
            "log_end_offset": log.log_end_offset, "high_watermark": log.high_watermark,
            "leader_epochs": [[one.epoch, one.start_offset] for one in log.leader_epochs],
            "producers": sorted(repr(one) for one in log.producers.entries)}


JOBS: dict[str, Callable[..., Job]] = {
    one.__name__: one for one in (load, manage, check, read, fetch, command, write,
                                  append_in_trouble, write_anything, write_compacted,
                                  write_embedded, write_fragments, write_managed, write_tiered,
                                  operate_log, operate_manager)}


def told(error: BaseException) -> Answer:
    """An error as JSON; `crash` is the trace of one that is not seglog's own."""
    found: Answer = {"error": type(error).__name__, "message": str(error)}
    if isinstance(error, KafkaStorageError):
        found |= {"errno": error.errno, "file": error.filename, "position": error.position}
    elif not isinstance(error, SeglogError):
        found["crash"] = "".join(traceback.format_exception(error))
    return found


def run(request: dict[str, Any], shim: ctypes.CDLL) -> Answer:
    """In the child."""
    os.environ.update({f"FAULT_{name}": str(value) for name, value in request["faults"].items()})
    del request["faults"]
    work = JOBS[request.pop("job")](**request)
    shim.fault_arm()
    try:
        answer: Answer = {"result": work()}
    except Exception as error:
        answer = told(error)
    os.environ["FAULT_UNDER"] = ""
    answer["calls"] = shim.fault_count()
    shim.fault_arm()
    return answer


def serve() -> None:
    """Until standard input ends."""
    shim = ctypes.CDLL(None)
    shim.fault_count.restype = ctypes.c_long
    logging.getLogger("seglog").addHandler(logging.NullHandler())
    logging.getLogger("seglog").propagate = False
    # Each child would import the verb of `command` again, and copy the pages of all objects that
    # are here: a search for garbage writes to them.
    importlib.import_module("seglog.cli.load")
    gc.freeze()
    for line in sys.stdin:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            signal.alarm(_TIMEOUT_S)
            with os.fdopen(writer, "w") as out:
                json.dump(run(json.loads(line), shim), out)
                out.flush()
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as child:
            text = child.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        answer = json.loads(text) if text else {"signal": -status}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
