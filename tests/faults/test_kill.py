"""A load that is killed at any change, even in the middle of one, and repeated, has the same result
as an undisturbed one: the same bytes in every file, the same state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.differential.sources import GOLDEN_CONFIG
from tests.faults.box import CHANGES, Box, points, snapshot
from tests.faults.directories import Damaged, names
from tests.faults.managed import make_directory
from tests.support.effort import quick_each

End = tuple[str | None, str, Any, dict[str, str]]
SIGKILL = 9


def load(box: Box, case: Damaged, root: Path, **faults: Any) -> dict[str, Any]:
    return box.run("load", under=root, faults={"calls": CHANGES, **faults}, root=str(root),
                   config=case.config)


def end_of(answer: dict[str, Any], root: Path) -> End:
    return (answer.get("error"), answer.get("message", "").replace(str(root), ""),
            answer.get("result"), snapshot(root))


@pytest.mark.parametrize("name", quick_each(names(), 4))
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


def kept_in(aside: Path) -> set[bytes]:
    return {path.read_bytes() for path in aside.rglob("*") if path.is_file()}


def test_a_killed_recovery_is_begun_again(box: Box, golden: Path, tmp_path: Path) -> None:
    """`seglog load --recover`, with what it cuts kept aside, whenever it was killed."""
    root, aside = tmp_path / "data", tmp_path / "aside"

    def make() -> None:
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)
        make_directory(golden, root, "unclean", "txn-0", "dots.and_under-scores-2")
        with open(max((root / "txn-0").glob("*.log")), "r+b") as log:
            log.seek(-1, 2)
            log.write(b"\0\0")  # the last batch has a wrong CRC, and something follows it

    def recover(**faults: Any) -> dict[str, Any]:
        arguments = ["load", "--recover", "--threads", "1", "--quarantine", str(aside)]
        for key, value in GOLDEN_CONFIG.items():
            arguments += ["--config", f"{key}={value}"]
        return box.run("command", under=tmp_path, faults={"calls": CHANGES, **faults},
                       arguments=[*arguments, str(root)])

    make()
    undisturbed = recover()
    expected, kept = snapshot(root), kept_in(aside)
    assert undisturbed["result"]["status"] == 1 and kept, "records were cut, and are kept"
    for number, point in enumerate(points(undisturbed["calls"], 12)):
        make()
        answer = recover(at=point, action="torn" if number % 2 else "kill")
        assert answer == {"signal": SIGKILL}
        assert recover()["result"]["status"] in (0, 1)
        assert snapshot(root) == expected, f"killed at {point}"
        assert kept <= kept_in(aside), f"killed at {point}: cut bytes are lost"
