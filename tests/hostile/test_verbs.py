"""Every verb and every public way of reading, on bytes with right checksums and absurd values.

A verb ends with 0, 1 or 2 and no traceback, a method with a SeglogError, both in bounded time and
memory. SEGLOG_FUZZ_SECONDS makes it longer.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.arrow import DecodeOptions, decode_range
from seglog.cli.main import main
from seglog.errors import SeglogError
from tests.oracle.builder import Shape, build_data_dir
from tests.oracle.writer import LogConfig
from tests.support import damage_files, damage_records  # noqa: F401  (register their kinds)
from tests.support.absurd import make_absurd
from tests.support.damage import KINDS, damage
from tests.support.effort import how_many

SECONDS = min(float(how_many("SEGLOG_FUZZ_SECONDS", 10, 3)), 3600.0)
SEED = int(os.environ.get("SEGLOG_FUZZ_SEED", "0"))
SECONDS_PER_CALL = 120.0
MEMORY_BYTES = 3 << 30
#: Fifos and devices may block what reads them; tests/hostile/test_hostile.py has them in a process
#: of its own.
SLOW = {"decompression_bomb", "decompressed_size_lies", "sealed_old_message"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("verbs") / "data"
    config = LogConfig(segment_bytes=6000, index_interval_bytes=300, segment_index_bytes=2048)
    build_data_dir(root, 5, [Shape(batches=25, magics=magics, config=config)
                             for magics in ((2,), (0, 1, 2), (1,))])
    return root


@contextlib.contextmanager
def silence() -> Iterator[None]:
    with open(os.devnull, "w", encoding="utf-8", errors="replace") as nothing, \
            contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
        yield


def verbs(root: Path, partition: Path) -> list[list[str]]:
    files = sorted(str(path) for path in partition.iterdir() if path.is_file())
    logs = [name for name in files if name.endswith(".log")]
    dump = ["dump", "--files", ",".join(files)]
    return [
        ["ls", str(root)], ["ls", str(partition)],
        *(["load", str(root), "--level", level] for level in ("kafka", "full", "verify")),
        ["load", str(root), "--recover", "--dry-run"], ["verify", str(root)],
        ["compact", str(root), "--dry-run", "-t", partition.name.rpartition("-")[0],
         "--config", "cleanup.policy=compact"],
        dump, [*dump, "--print-data-log", "--verify-index-only"],
        ["dump", "--files", ",".join(logs), "--print-data-log", "--deep-iteration"],
        ["dump", "--files", ",".join(logs), "--offsets-decoder"],
        ["dump", "--files", ",".join(logs), "--transaction-log-decoder"],
        ["dump", "--files", ",".join(logs), "--cluster-metadata-decoder"],
        ["dump", "--files", ",".join(files), "--index-sanity-check"],
        *(["cat", str(partition), "-e", "-J", "--isolation", isolation, *skip]
          for isolation in ("read_committed", "read_uncommitted")
          for skip in ([], ["--skip-damaged"])),
        ["cat", str(partition), "-e", "-o", "s@4000000010000", "-c", "3"],
        ["cat", str(partition), "-e", "-o", "-5"],
    ]


def reads(root: Path, partition: Path) -> dict[str, Callable[[], Any]]:
    log = seglog.PartitionLog.open(partition)

    def stream(**options: Any) -> int:
        return sum(columns.num_rows for columns in log.to_arrow(**options))

    def ranges(on_damage: Any, isolation: Any) -> int:
        decoding = DecodeOptions(on_damage=on_damage)
        return sum(columns.num_rows
                   for planned in log.ranges(2000, isolation=isolation, on_damage=on_damage)
                   for columns in decode_range(planned, decoding, on_gap=lambda gap: None))

    def whole() -> None:
        with seglog.open_data_dir(root, level="verify") as found:
            for finding in found.report.findings:
                str(finding), finding.to_dict()
            for name in ("topics", "recovery_points", "log_start_offsets", "high_watermarks",
                         "meta_properties", "had_clean_shutdown"):
                getattr(found, name)

    calls: dict[str, Callable[[], Any]] = {
        "facts": lambda: (log.log_end_offset, log.last_stable_offset, log.open_transactions),
        "epochs": lambda: str(log.leader_epochs), "topic id": lambda: log.topic_id,
        "batches": lambda: [(b.compression_type, b.next_offset) for b in log.batches()],
        "unchecked batches": lambda: list(log.batches(check_crcs=False)),
        "data directory": whole,
    }
    for stamp in (0, 4_000_000_010_000, 2**62, 2**63 - 1, -1, -2, -3):
        calls[f"time {stamp}"] = partial(log.offset_for_timestamp, stamp)
    for isolation in ("read_uncommitted", "read_committed"):
        calls[f"fetch {isolation}"] = partial(
            log.fetch, log.log_start_offset, 10_000, isolation)
        for on_damage in ("raise", "skip"):
            calls[f"ranges {isolation} {on_damage}"] = partial(ranges, on_damage, isolation)
            for threads in (0, 2):
                calls[f"{isolation} {on_damage} {threads}"] = partial(
                    stream, isolation=isolation, on_damage=on_damage, threads=threads,
                    include_control=True, on_gap=str)
    return calls


def spark_plans(root: Path) -> dict[str, Callable[[], Any]]:
    try:
        from seglog.spark.read_options import parse_options
        from seglog.spark.plan import plan_partitions
    except ImportError:
        return {}
    options = [{}, {"failOnDataLoss": "false"}, {"kafka.isolation.level": "read_committed"},
               {"startingTimestamp": "4000000010000", "failOnDataLoss": "false"},
               {"endingOffsets": "latest", "minPartitions": "7"}]
    return {f"spark {given}": lambda given=given: plan_partitions(  # type: ignore[misc]
        parse_options({"path": str(root), "subscribePattern": ".*", **given}))
        for given in options}


def problem_of(name: str, call: Callable[[], Any], *, is_verb: bool) -> str | None:
    begin = time.monotonic()
    try:
        with silence():
            code = call()
        if is_verb and code not in (0, 1, 2):
            return f"{name} ended with {code}"
    except SystemExit as end:
        return None if end.code == 2 else f"{name} ended with {end.code}"
    except SeglogError:
        if is_verb:
            return f"{name}: {traceback.format_exc()}"
    except ValueError as error:
        # Options that Spark refuses (no offset for a time); anything else is a bug.
        if not name.startswith("spark") or type(error) is not ValueError or \
                "No offset matched" not in str(error):
            return f"{name}: {traceback.format_exc()}"
    except BaseException:
        return f"{name}: {traceback.format_exc()}"
    taken = time.monotonic() - begin
    return None if taken < SECONDS_PER_CALL else f"{name} took {taken:.0f} s"


def problems(root: Path, partition: Path, rnd: random.Random) -> Iterator[str | None]:
    for argv in rnd.sample(verbs(root, partition), 6):
        yield problem_of(" ".join(argv), lambda argv=argv: main(argv),  # type: ignore[misc]
                         is_verb=True)
    try:
        calls = reads(root, partition)
    except SeglogError:
        calls = {}
    calls |= spark_plans(root)
    for name in rnd.sample(sorted(calls), min(len(calls), 12)):
        yield problem_of(name, calls[name], is_verb=False)
    argv = ["load", str(root), "--recover"]
    if rnd.random() < .3:
        yield problem_of(" ".join(argv), lambda: main(argv), is_verb=True)


def test_verbs_and_methods_end_well_on_absurd_values(source: Path, tmp_path: Path) -> None:
    until, found, seed = time.monotonic() + SECONDS, [], SEED
    kinds = sorted(set(KINDS) - SLOW)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while time.monotonic() < until or seed < SEED + 5:
        rnd = random.Random(seed)
        root = tmp_path / str(seed)
        shutil.copytree(source, root)
        partition = rnd.choice(sorted(path for path in root.iterdir() if path.is_dir()))
        notes = make_absurd(root, partition.name, seed)
        if rnd.random() < .2:
            notes.append(str(damage(root, partition.name, rnd.choice(kinds), seed)))
        found += [f"seed {seed}, {notes}: {text}"
                  for text in problems(root, partition, rnd) if text is not None]
        shutil.rmtree(root)
        seed += 1
        if len(found) >= 5:
            break
    print(f"{seed - SEED} directories", file=sys.stderr)
    assert not found, "\n\n".join(found)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < MEMORY_BYTES, f"{grown} KiB more memory"
