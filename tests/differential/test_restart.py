"""A load that is killed at any change of the directory can be started again.

What a killed load leaves is a directory like any other: Kafka's loader and this one arrive at the
same log from it, byte for byte, and that is the log at which the load that was not killed arrives.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from seglog.recovery.open_log import load_log
from tests.differential.cases import Case, plan
from tests.differential.compare import differences
from tests.differential.cut_disk import CutDisk, Killed
from tests.differential.kafka import Oracle
from tests.differential.ours import inputs_of, load
from tests.differential.sources import Sources

pytestmark = pytest.mark.judge

SEED = 77
CASES = 80
CUTS = 3
#: What a log is, whatever its files are called and which of them a crash made anew.
_LOG = ("error", "message", "log_start_offset", "log_end_offset", "last_stable_offset",
        "producer_state_end_offset", "leader_epochs")

State = dict[str, Any]


def changes(root: Path, config: Mapping[str, str], cut: int | None) -> int | None:
    """How many changes a load makes; None when it died of the cut."""
    made = 0
    for path, inputs in inputs_of(root, config):
        if isinstance(inputs, str):
            continue
        disk = CutDisk(str(path), None if cut is None else cut - made)
        try:
            load_log(str(path), inputs, disk=disk).close()
        except Killed:
            return None
        except Exception:  # Kafka abandons this log too
            pass
        made += disk.changes
    return made


def logs(states: Mapping[str, State]) -> dict[str, State]:
    """Only what the logs are: offsets, producers, epochs, and the bytes of their segments.

    Of a producer that comes out of a snapshot only the last batch is known.
    """
    return {name: {**{key: state.get(key) for key in _LOG},
                   "producers": [{**one, "batches": None, "first_data_offset": None}
                                 for one in state.get("producers", ())],
                   "logs": {file: facts["sha256"] for file, facts in state["files_closed"].items()
                            if file.endswith(".log")}}
            for name, state in states.items()}


def cut_loads(case: Case, sources: Sources, home: Path) -> Iterator[tuple[int, Path, Path]]:
    """(changes before the cut, the directory that it left, one that was loaded undisturbed)."""
    rng, config = random.Random(case.name), dict(case.config)
    pristine, whole = home / "pristine" / "data", home / "whole" / "data"
    if not case.build(sources, pristine):
        return
    # A clean shutdown counts once: a load that begins takes the marker away.
    (pristine / ".kafka_cleanshutdown").unlink(missing_ok=True)
    shutil.copytree(pristine, whole)
    count = changes(whole, config, None)
    assert count is not None
    for cut in sorted(rng.sample(range(count), min(count, CUTS))):
        left = home / f"cut-{cut}" / "data"
        shutil.copytree(pristine, left)
        assert changes(left, config, cut) is None
        yield cut, left, pristine


@pytest.mark.usefixtures("kafka_lib")
def test_a_killed_load_starts_again(golden: Path, home: Path) -> None:
    sources = Sources(golden, home / "sources")
    wrong, cuts = [], 0
    with Oracle() as oracle:
        for number in range(CASES):
            case = plan(sources, SEED, number)
            work, config = home / str(number), dict(case.config)
            for cut, left, pristine in cut_loads(case, sources, work):
                cuts += 1
                again = left.parent / "again" / "data"
                shutil.copytree(left, again)
                oracle.ask(left, config)
                ours = load(again, config)
                kafka = oracle.answer()
                where = f"{case.name} {case.damages} cut at {cut}"
                wrong += [f"{where}: {name}: {line}" for name, state in kafka.items()
                          for line in differences(state, ours[name])]
                undisturbed = left.parent / "undisturbed" / "data"
                shutil.copytree(pristine, undisturbed)
                # A second load finds indexes that the first one made before Kafka gave it up.
                expected = [logs(load(undisturbed, config)) for _ in range(2)]
                if logs(ours) not in expected:
                    wrong.append(f"{where}: {logs(ours)} after the cut, {expected[0]} without")
            shutil.rmtree(work, ignore_errors=True)
    assert cuts > CASES
    assert not wrong, f"{len(wrong)} differences\n" + "\n".join(wrong)
