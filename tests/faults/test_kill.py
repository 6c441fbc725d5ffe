"""A load that is killed at any change, even in the middle of one, and begun again, ends where one
that nobody disturbed does: the same bytes in every file, the same state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.faults.box import CHANGES, Box, points, snapshot
from tests.faults.directories import Damaged, names

End = tuple[str | None, str, Any, dict[str, str]]
SIGKILL = 9


def load(box: Box, case: Damaged, root: Path, **faults: Any) -> dict[str, Any]:
    return box.run("load", under=root, faults={"calls": CHANGES, **faults}, root=str(root),
                   config=case.config)


def end_of(answer: dict[str, Any], root: Path) -> End:
    return (answer.get("error"), answer.get("message", "").replace(str(root), ""),
            answer.get("result"), snapshot(root))


@pytest.mark.parametrize("name", names())
def test_a_killed_load_is_begun_again(box: Box, damaged: dict[str, Damaged], tmp_path: Path,
                                      name: str) -> None:
    case, root = damaged[name], tmp_path / "data"
    case.make(root)
    was_clean = (root / ".kafka_cleanshutdown").exists()
    undisturbed = load(box, case, root)
    expected = end_of(undisturbed, root)
    if was_clean:
        # The marker went first, as Kafka removes it: what is begun again is a load after a crash.
        expected = end_of(load(box, case, root), root)
    assert undisturbed["calls"] > 0
    for number, point in enumerate(points(undisturbed["calls"], 6)):
        shutil.rmtree(root)
        case.make(root)
        action = "torn" if number % 2 else "kill"
        assert load(box, case, root, at=point, action=action) == {"signal": SIGKILL}
        if was_clean and (root / ".kafka_cleanshutdown").exists():
            continue  # killed before anything was done
        assert end_of(load(box, case, root), root) == expected, f"{action} at change {point}"
