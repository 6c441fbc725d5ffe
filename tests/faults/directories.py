"""Damaged data directories that the sweeps load: golden ones, and generated ones of each kind that
makes a loader change much."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.differential.cases import Case
from tests.differential.sources import GOLDEN_CONFIG, Source, Sources
from tests.faults.box import FULL

#: Of tests/golden/damaged: one of each way that a load goes.
_GOLDEN = ("000", "003", "004", "011", "012", "018", "020", "021", "024", "028", "031", "032",
           "033", "036", "039", "043", "048", "055", "060", "063", "067")
#: Source, seed of its log, kinds of damage.
_MADE: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("built-1", 3, ("crash_in_compaction",)),
    ("built-3", 5, ("crash_in_compaction",)),
    ("built-12", 2, ("crash_in_split",)),
    ("built-11", 4, ("crash_in_split_of_overflow",)),
    ("built-4", 7, ("offsets_overflow_often", "marker_gone")),
    ("built-1", 8, ("offsets_overflow_often",)),
    ("built-12", 6, ("offset_backwards",)),
    ("built-15", 1, ("suffixes_left",)),
    ("built-11", 9, ("every_index_gone", "log_truncated")),
    ("built-10", 2, ("every_index_gone",)),
    ("built-5", 3, ("both_offsets_moved", "log_byte_flipped")),
    ("built-8", 4, ("no_files_around",)),
)


@dataclass(frozen=True)
class Damaged:
    """`make(root)` makes the data directory anew; `config` are Kafka's settings of its logs."""

    name: str
    config: dict[str, str]
    make: Callable[[Path], object]


def _copy(source: Path, root: Path) -> None:
    shutil.copytree(source, root)


def damaged_directories(golden: Path, work: Path) -> list[Damaged]:
    """All of them; more golden ones for a full sweep."""
    found = [Damaged(path.name[:3], dict(GOLDEN_CONFIG), partial(_copy, path))
             for path in sorted((golden / "damaged").iterdir())
             if path.is_dir() and (FULL or path.name[:3] in _GOLDEN)]
    sources = Sources(golden, work)
    for number, (source, seed, kinds) in enumerate(_MADE):
        origin = Source("built", source, seed)
        case = Case(seed, number, origin, tuple((kind, f"{seed}-{number}") for kind in kinds),
                    tuple(sources.config(origin).items()))
        prepared = work / case.name
        if len(case.build(sources, prepared)) != len(kinds):
            raise AssertionError(f"{case}: nothing to damage")
        found.append(Damaged(f"{number}-{'-'.join(kinds)}", dict(case.config),
                             partial(_copy, prepared)))
    return found


def names() -> list[str]:
    """The names of the cases, known before the data are unpacked."""
    made = [f"{number}-{'-'.join(kinds)}" for number, (_, _, kinds) in enumerate(_MADE)]
    return [*([f"{number:03d}" for number in range(70)] if FULL else _GOLDEN), *made]

