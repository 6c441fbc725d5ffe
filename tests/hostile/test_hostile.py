"""Damaged directories of every kind: typed errors, right rows, no crash, no hang, no write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import cases
from tests.oracle.builder import Shape, build_data_dir
from tests.support import damage_files, damage_records  # noqa: F401  (they register their kinds)
from tests.support import effort
from tests.support.damage import KINDS
from tests.support.effort import how_many, quick_first
from tests.support.fingerprint import fingerprint

SEEDS = how_many("SEGLOG_HOSTILE_SEEDS", 2, 1)
#: Every kind damages so many of the logs: the first that it finds something in, from another one on
#: for each kind; one log if it is a bomb, which takes seconds to go off.
LOGS = 1 if effort.IS_QUICK else 6
GROUPS = 8
GOLDEN = ("txn-0", "compacted-0", "preallocated-0")


@pytest.fixture(scope="module")
def sources(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, str]]:
    """(data directory, partition) of damaged logs: built ones and some of a real broker."""
    root = tmp_path_factory.mktemp("sources")
    build_data_dir(root / "built", 1, [Shape(batches=90)])
    build_data_dir(root / "mixed", 2, [Shape(batches=90, magics=(0, 1, 2))])
    build_data_dir(root / "crashed", 3, [Shape(batches=60, clean=False, preallocated=True)],
                   clean=False)
    found = [(root / name, "built-0") for name in ("built", "mixed", "crashed")]
    return found + [(golden / "real" / "unclean", name) for name in GOLDEN]


@pytest.mark.slow
@pytest.mark.parametrize("group", quick_first(range(GROUPS), 3))
def test_damage_is_survived_and_told(sources: list[tuple[Path, str]], tmp_path: Path,
                                     group: int) -> None:
    made = []
    for turn, kind in enumerate(sorted(KINDS)[group::GROUPS]):
        found = 0
        for step in range(len(sources)):
            number = (turn + step) % len(sources)
            source, partition = sources[number]
            if found >= SEEDS * (1 if "bomb" in kind else LOGS):
                break
            for seed in range(SEEDS):
                name = f"{kind}-{number}-{seed}"
                case = cases.make(source, partition, tmp_path / name, kind, seed + 10 * number)
                if case is not None:
                    made.append(case)
                    found += 1
    states = {case.root.name: fingerprint(case.root) for case in made}
    outcomes = cases.run(made, tmp_path / "outcomes")
    wrong = [text for case in made for text in cases.problems(case, outcomes[case.root.name])]
    wrong += [f"{case}: something was written" for case in made
              if fingerprint(case.root) != states[case.root.name]]
    counts = [outcomes[case.root.name]["descriptors"].value for case in made]
    assert not wrong, f"{len(wrong)} problems in {len(made)} cases:\n" + "\n".join(wrong[:40])
    # A reader thread that ends after its log was closed leaves a file in the bounded cache.
    assert max(counts) - min(counts) <= 32, f"descriptors leak: {counts}"
