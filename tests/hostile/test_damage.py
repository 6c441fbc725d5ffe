"""The generator itself: every kind does damage, the same seed the same one, and only where told."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.oracle.builder import Shape, build_data_dir
from tests.support import damage_files, damage_records  # noqa: F401  (they register their kinds)
from tests.support.damage import KINDS, damage
from tests.support.effort import quick_each


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source") / "data"
    build_data_dir(root, 5, [Shape(magics=(0, 1, 2), batches=90)])
    return root


def _state(root: Path) -> dict[str, bytes]:
    found = {}
    for folder, directories, names in os.walk(os.fsencode(root)):
        for name in [*directories, *names]:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                found[os.fsdecode(path)] = b"->" + os.readlink(path).replace(folder, b"")
            elif os.path.isfile(path):
                size = os.stat(path).st_size
                found[os.fsdecode(path)] = b"%d" % size if size > 1 << 24 else \
                    Path(os.fsdecode(path)).read_bytes()
            else:
                found[os.fsdecode(path)] = b"%o" % os.lstat(path).st_mode
    return {name.removeprefix(str(root)): content for name, content in found.items()}


@pytest.mark.parametrize("kind", quick_each(sorted(KINDS), 3))
def test_a_kind_does_its_damage_again(source: Path, tmp_path: Path, kind: str) -> None:
    undamaged, states, said = _state(source), [], []
    for number in range(2):
        for seed in range(3):
            root = tmp_path / f"{number}-{seed}"
            shutil.copytree(source, root)
            said.append(damage(root, "built-0", kind, seed))
            states.append(_state(root))
    assert said[:3] == said[3:] and states[:3] == states[3:]
    assert any(said)
    changed = [state != undamaged for state, note in zip(states, said, strict=True) if note]
    assert any(changed) or kind == "untouched"
