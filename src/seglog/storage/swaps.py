"""Decides which `.swap` files count, for readers, the loader and the dry run.

A compaction or a split writes `.cleaned` files, renames them to `.swap`, and then puts them in
place (LogLoader.load). A `.swap` file whose base offset is at or above that of a `.cleaned` file
belongs to an incomplete swap: the old segments are the log. All other `.swap` files are complete,
and segments inside the range that they cover are stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from seglog._native.scan import HAS_INDEX, HAS_LOG, HAS_TIME_INDEX, HAS_TXN_INDEX, FileClass
from seglog.storage.paths import FileKind, FileState, parse_file_name

__all__ = ["FLAGS", "Swaps", "find_swaps", "java_class"]

#: The flag of a listing for each file of a segment.
FLAGS: Final = {FileKind.LOG: HAS_LOG, FileKind.INDEX: HAS_INDEX,
                FileKind.TIME_INDEX: HAS_TIME_INDEX, FileKind.TXN_INDEX: HAS_TXN_INDEX}

# Kafka returns Long.MAX_VALUE for the minimum of an empty list, so a .swap file of this number
# never counts.
_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Swaps:
    """Names of the `.swap` files to be renamed, by number and kind, and of the others."""

    complete: dict[tuple[int, FileKind], str]
    incomplete: list[str]

    def covered(self, next_offset: Callable[[int, str, str | None], int]
                ) -> tuple[int, int] | None:
        """The range [start, end) of offsets that the complete segments replace; None if there are
        none.

        `next_offset(base offset, name of the log, name of its index or None)` returns where a
        segment ends.
        """
        bounds = [(offset, next_offset(offset, name, self.complete.get((offset, FileKind.INDEX))))
                  for (offset, kind), name in self.complete.items() if kind is FileKind.LOG]
        if not bounds:
            return None
        return min(base for base, _ in bounds), max(end for _, end in bounds)


def java_class(name: str, kind: FileClass) -> FileClass:
    """Classifies names with non-ASCII digits, which Java reads as numbers and the native listing
    does not."""
    if kind is not FileClass.NOT_A_NUMBER:
        return kind
    parsed = parse_file_name(name)
    if parsed.offset is None:
        return kind
    return {FileState.SWAP: FileClass.SWAP, FileState.CLEANED: FileClass.CLEANED}.get(
        parsed.state, FileClass.OTHER_NUMBER)


def find_swaps(others: Iterable[tuple[str, FileClass]]) -> Swaps:
    """Decides about the listed files that belong to no segment."""
    found: dict[FileClass, list[tuple[int, FileKind, str]]] = {
        FileClass.SWAP: [], FileClass.CLEANED: []}
    for name, listed in others:
        kind = java_class(name, listed)
        if kind in found:
            parsed = parse_file_name(name)
            if parsed.offset is not None:
                found[kind].append((parsed.offset, parsed.kind, name))
    first_cleaned = min((offset for offset, _, _ in found[FileClass.CLEANED]),
                        default=_OFFSET_MAX)
    swaps = Swaps({}, [])
    for offset, kind_of_file, name in found[FileClass.SWAP]:
        if offset >= first_cleaned:
            swaps.incomplete.append(name)
        else:
            swaps.complete[offset, kind_of_file] = name
    return swaps
