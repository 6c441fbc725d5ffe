"""`seglog load --dry-run` and `--recover` on damaged data directories: the same words, and only one
of the two changes anything."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seglog.cli.recover import dry_run, recover_directories
from seglog.recovery.callbacks import NullListener
from tests.differential.cases import plan
from tests.differential.sources import Sources
from tests.differential.told import settings_of, told
from tests.support.effort import how_many
from tests.support.fingerprint import fingerprint

SEED = 5
CASES = how_many("SEGLOG_DIFFERENTIAL_CASES", 120, 10)


@pytest.mark.parametrize("level", ["kafka", "full", "verify"])
def test_a_dry_run_says_what_the_recovery_does(golden: Path, home: Path, level: str) -> None:
    sources, wrong, compared = Sources(golden, home / "sources"), [], 0
    for number in range(CASES):
        case, root = plan(sources, SEED, number), home / "data"
        if case.build(sources, root):
            settings = settings_of(case.config, level)
            before = fingerprint(root)
            predicted = told(dry_run(str(root), settings, NullListener()), settings)
            if fingerprint(root) != before:
                wrong.append(f"{case.name} {case.damages}: the dry run changed something")
            [recovered] = recover_directories([str(root)], settings, NullListener())
            done = told(recovered, settings)
            wrong += [f"{case.name} {case.damages}: {key}: {predicted[key]}; {value}"
                      for key, value in done.items() if predicted[key] != value]
            compared += 1
        shutil.rmtree(root)
    assert compared > CASES * .8
    assert not wrong, f"{len(wrong)} of {compared} differ\n" + "\n".join(wrong)
