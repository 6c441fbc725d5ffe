"""The generator itself: the same seed makes the same bytes, and every kind of damage comes up."""

from __future__ import annotations

import collections
import shutil
from pathlib import Path

import pytest

from tests.differential import registry
from tests.differential.cases import plan
from tests.differential.sources import SHAPES, Sources

CASES = 400


def _bytes(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*")) if path.is_file()}


def test_a_case_is_the_same_whenever_it_is_made(golden: Path, home: Path) -> None:
    one, two = (Sources(golden, home / name / "sources") for name in "ab")
    for number in range(25):
        first, second = home / "a" / f"{number}", home / "b" / f"{number}"
        case = plan(one, 7, number)
        assert case == plan(two, 7, number)
        assert case.build(one, first) == case.build(two, second)
        assert _bytes(first) == _bytes(second)


@pytest.mark.judge
def test_every_kind_and_every_source_comes_up(golden: Path, home: Path) -> None:
    sources = Sources(golden, home / "sources")
    cases = [plan(sources, 1, number) for number in range(1000)]
    planned = {kind for case in cases for kind, _ in case.damages}
    assert planned == set(registry.kinds())
    assert len({case.source.partition for case in cases}) > len(SHAPES) + 25
    assert len({case.config for case in cases}) > 20
    done: set[str] = set()
    for case in cases[:CASES]:
        root = home / case.name
        done |= {line.partition(":")[0] for line in case.build(sources, root)}
        shutil.rmtree(root)
    often = collections.Counter(kind for case in cases[:CASES] for kind, _ in case.damages)
    # Old messages and markers are in few of the sources.
    missing = {kind for kind, times in often.items() if times > 9} - done
    assert not missing, f"never possible: {missing}"
