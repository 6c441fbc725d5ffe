"""The golden data itself: complete, unpacked once, and safe to share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support import golden as golden_data


def test_every_folder_is_there(golden: Path) -> None:
    assert {entry.name for entry in golden.iterdir()} == {"real", "old", "damaged", "dump"}
    cases = json.loads((golden / "damaged" / "cases.json").read_text())
    loaded = json.loads((golden / "damaged" / "loaded.json").read_text())
    assert len(cases) == 70 and set(cases) == set(loaded)
    for name in cases:
        assert (golden / "damaged" / name).is_dir()


def test_every_truth_has_its_partition(golden: Path) -> None:
    partitions = golden_data.real_partitions()
    assert len(partitions) > 40
    for name, partition in partitions:
        assert (golden / "real" / name / partition).is_dir()
        marks = json.loads((golden / "real" / "truth" / name / "watermarks.json").read_text())
        rows = golden_data.read_truth(golden / "real" / "truth" / name / f"{partition}.jsonl")
        start, end = marks[partition]
        assert all(start <= row["offset"] < end for row in rows)


def test_a_copy_is_the_callers(golden: Path, golden_copy: Callable[[str], Path]) -> None:
    first, second = golden_copy("real/clean"), golden_copy("real/clean")
    assert first != second
    log = first / "txn-0" / "00000000000000000000.log"
    log.write_bytes(b"changed")
    assert (second / "txn-0" / log.name).read_bytes() == \
        (golden / "real" / "clean" / "txn-0" / log.name).read_bytes()


def test_processes_that_unpack_together_share_one_tree(tmp_path: Path) -> None:
    program = ("import sys; from pathlib import Path; from tests.support.golden import unpack; "
               "print(unpack(Path(sys.argv[1])))")
    root = Path(__file__).resolve().parents[2]
    running = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=root,
                                stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {process.communicate()[0].strip() for process in running}
    assert all(process.returncode == 0 for process in running)
    assert len(answers) == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(
        [Path(answers.copy().pop()).name, Path(answers.pop()).name + ".json"])


def test_a_changed_tree_is_made_anew(tmp_path: Path) -> None:
    root = golden_data.unpack(tmp_path, golden_data.TIERED_ARCHIVE)  # the smaller one
    log = next(path for path in sorted(root.rglob("*.log")) if path.stat().st_size)
    good = log.read_bytes()
    log.write_bytes(b"")
    assert golden_data.unpack(tmp_path, golden_data.TIERED_ARCHIVE) == root
    assert log.read_bytes() == good
