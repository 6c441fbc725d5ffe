"""One result, however it is come by: by one thread or several, on an overlay or on the disk."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from seglog._native.scan import PartitionListing
from seglog.errors import SeglogError
from seglog.recovery.callbacks import NullListener
from seglog.recovery.disk import Disk, RealDisk
from seglog.recovery.findings import Finding
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.open_log import load_log
from seglog.recovery.overlay import OverlayDisk
from seglog.recovery.partition_plan import LoadLevel, PartitionPlan, check_chunk, join_chunks
from seglog.recovery.scans import SegmentScans
from tests.differential.cases import Case, plan
from tests.differential.ours import inputs_of, load
from tests.differential.sources import Sources
from tests.support.effort import how_many

SEED = 4
CASES = how_many("SEGLOG_DIFFERENTIAL_CASES", 200, 30)
THREADS = 3
#: Far below what a segment of these logs has, so that pieces of one segment are scanned apart.
PIECE_BYTES = 700


def cases(golden: Path, home: Path) -> Iterator[tuple[Case, Path, Path]]:
    """Each case, in two copies of one name."""
    sources = Sources(golden, home / "sources")
    for number in range(CASES):
        case, one = plan(sources, SEED, number), home / "one" / "data"
        if case.build(sources, one):
            shutil.copytree(one, home / "two" / "data")
            yield case, one, home / "two" / "data"
            shutil.rmtree(home / "two")
        shutil.rmtree(home / "one")


def check_in_pool(pool: Executor, listing: PartitionListing) -> PartitionPlan:
    """Phase one, a task for each segment, and one if there is none."""
    rows = range(max(len(listing.base_offsets), 1))
    return join_chunks(listing, list(pool.map(
        lambda row: check_chunk(listing, row, row + 1, LoadLevel.KAFKA), rows)))


def test_threads_change_nothing(golden: Path, home: Path) -> None:
    wrong = []
    with ThreadPoolExecutor(THREADS) as pool:
        for case, one, two in cases(golden, home):
            alone = load(one, dict(case.config))
            with SegmentScans(pool, THREADS, chunk_bytes=PIECE_BYTES) as scans:
                together = load(two, dict(case.config), check=partial(check_in_pool, pool),
                                scans=scans)
            if alone != together:
                wrong.append(f"{case.name}: {alone} by one thread, {together} by several")
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong)


class Heard(NullListener):
    """All findings of a load."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def finding(self, found: Finding) -> None:
        self.findings.append(found)


def outcome(path: Path, inputs: LoadInputs, disk: Disk) -> dict[str, Any]:
    """What a load comes to, and what it says on the way."""
    heard = Heard()
    found: dict[str, Any] = {"findings": heard.findings}
    try:
        log = load_log(str(path), inputs, disk=disk, listener=heard)
    except SeglogError as error:
        return {**found, "error": error.kafka_name, "message": str(error)}
    return {**found, "offsets": (log.log_start_offset, log.recovery_point, log.log_end_offset,
                                 log.last_stable_offset),
            "segments": log.segments.base_offsets.tolist(),
            "sizes": log.segments.log_size.tolist(), "epochs": list(log.leader_epochs),
            "producers": log.producers.entries}


def touched(root: Path) -> dict[str, tuple[int, str]]:
    """Times and bytes of everything."""
    return {str(path.relative_to(root)): (
        path.stat().st_mtime_ns,
        hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
        for path in [root, *root.rglob("*")]}


def test_a_dry_run_says_what_a_real_one_does(golden: Path, home: Path) -> None:
    wrong, cut = [], 0
    for case, one, two in cases(golden, home):
        before = touched(one)
        given = zip(inputs_of(one, dict(case.config)), inputs_of(two, dict(case.config)),
                    strict=True)
        for (dry, inputs), (real, _) in given:
            if isinstance(inputs, str):
                continue
            planned = outcome(dry, inputs, OverlayDisk(str(dry)))
            made = outcome(real, inputs, RealDisk(str(real)))
            cut += sum(found.bytes or 0 for found in planned["findings"]
                       if found.code in ("log-truncated", "segments-removed", "segment-emptied"))
            if str(planned).replace(str(one), "") != str(made).replace(str(two), ""):
                wrong.append(f"{case.name} {dry.name}: {planned} on an overlay, {made} on the disk")
        if touched(one) != before:
            wrong.append(f"{case.name}: the dry run touched something")
    assert cut > 100 * CASES
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong)
