"""Passes one to three of Kafka's loader, without touching anything: temporaries and swaps.

The outcome is the set of segments that pass four would open, and under which names their files
are now (reference 7.1 to 7.3).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from seglog._native.scan import HAS_LOG, HAS_SNAPSHOT, FileClass, PartitionListing
from seglog.recovery.failures import LoaderFailure
from seglog.recovery.findings import Finding, finding
from seglog.recovery.tail import log_next_offset
from seglog.storage.paths import FileKind, FileState, file_name, parse_file_name
from seglog.storage.swaps import FLAGS, Swaps, find_swaps, java_class

__all__ = ["LogFiles", "tidy"]

Report = Callable[[Finding], None]


@dataclass(slots=True)
class LogFiles:
    """The files of a partition as pass four finds them. `renamed`: those that were .swap files;
    `created`: segments whose log file Kafka creates, because `5.log` made it look for it."""

    path: str
    base_offsets: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]
    snapshots: npt.NDArray[np.int64]
    orphans: list[tuple[int, int]]
    renamed: dict[tuple[int, FileKind], str] = field(default_factory=dict)
    created: set[int] = field(default_factory=set)

    def name_of(self, base_offset: int, kind: FileKind) -> str:
        """The file's name on disk now."""
        return self.renamed.get((base_offset, kind)) or file_name(base_offset, kind)

    def path_of(self, base_offset: int, kind: FileKind) -> str:
        """Where it is on disk now."""
        return os.path.join(self.path, self.name_of(base_offset, kind))

    def has(self, base_offset: int, flag: int) -> bool:
        """Whether the segment has the file of this flag."""
        row = int(np.searchsorted(self.base_offsets, base_offset))
        return (row < len(self.base_offsets) and int(self.base_offsets[row]) == base_offset
                and bool(self.flags[row] & flag))


def tidy(listing: PartitionListing, report: Report) -> LogFiles:
    """What passes one to three leave; LoaderFailure where they or the listing of snapshots die."""
    files = LogFiles(listing.path, listing.base_offsets, listing.flags, listing.snapshots,
                     list(zip(listing.orphans.tolist(), listing.orphan_flags.tolist(),
                              strict=True)))
    others = [(name, java_class(name, kind)) for name, kind in listing.others]
    directory = os.path.basename(listing.path)
    for name, kind in others:
        _report_other(listing.path, directory, name, kind, report)
        if kind is FileClass.NOT_A_NUMBER:
            # A later number does not help: nothing of the directory is loaded.
            prefix = name.partition(".")[0]
            raise LoaderFailure("NumberFormatException", f'For input string: "{prefix}"', file=name)
    _swap(files, find_swaps(others), directory, report)
    _open_other_numbers(files, others)
    return files


_REPORTED = {
    FileClass.DELETED: "temporary-deleted", FileClass.CLEANED: "temporary-cleaned",
    FileClass.OTHER_NUMBER: "name-not-canonical", FileClass.NOT_A_NUMBER: "name-not-a-number",
    FileClass.FOREIGN: "file-foreign",
}
_NOT_FILES = {FileClass.DIRECTORY: "a directory", FileClass.LINK: "a symbolic link",
              FileClass.SPECIAL: "a fifo, socket or device"}


def _report_other(path: str, directory: str, name: str, kind: FileClass, report: Report) -> None:
    code = _REPORTED.get(kind)
    if code is not None:
        report(finding(code, directory=directory, file=name, bytes=_size(path, name)))
    elif kind in _NOT_FILES:
        parsed = parse_file_name(name)
        kafkas = parsed.kind is not FileKind.OTHER or parsed.state is not FileState.LIVE
        report(finding("file-kind" if kafkas else "file-foreign", directory=directory, file=name,
                       expected="a regular file", found=_NOT_FILES[kind]))


def _size(path: str, name: str) -> int | None:
    try:
        return os.lstat(os.path.join(path, name)).st_size
    except OSError:
        return None


def _swap(files: LogFiles, swaps: Swaps, directory: str, report: Report) -> None:
    for name in swaps.incomplete:
        report(finding("swap-incomplete", directory=directory, file=name,
                       bytes=_size(files.path, name)))
    for name in swaps.complete.values():
        report(finding("swap-complete", directory=directory, file=name,
                       bytes=_size(files.path, name)))

    def next_offset(base_offset: int, log: str, index: str | None) -> int:
        return log_next_offset(os.path.join(files.path, log), base_offset,
                               None if index is None else os.path.join(files.path, index))

    covered = swaps.covered(next_offset)
    if covered is not None:
        _remove_range(files, *covered, directory, report)
    files.renamed = swaps.complete
    for offset, kind in swaps.complete:
        if kind in FLAGS:
            _add(files, offset, FLAGS[kind])
        elif kind is FileKind.SNAPSHOT:
            files.snapshots = np.union1d(files.snapshots, [offset])


def _remove_range(files: LogFiles, start: int, end: int, directory: str, report: Report) -> None:
    """Kafka deletes every numbered file in [start, end), snapshots as well."""
    inside = (files.base_offsets >= start) & (files.base_offsets < end)
    for base, flags in zip(files.base_offsets[inside].tolist(), files.flags[inside].tolist(),
                           strict=True):
        for kind, flag in FLAGS.items():
            if flags & flag:
                name = file_name(base, kind)
                report(finding("swap-replaced", directory=directory, file=name,
                               bytes=_size(files.path, name)))
    gone = (files.snapshots >= start) & (files.snapshots < end)
    for offset in files.snapshots[gone].tolist():
        name = file_name(offset, FileKind.SNAPSHOT)
        report(finding("swap-replaced", directory=directory, file=name,
                       bytes=_size(files.path, name)))
    files.base_offsets, files.flags = files.base_offsets[~inside], files.flags[~inside]
    files.snapshots = files.snapshots[~gone]
    files.orphans = [orphan for orphan in files.orphans if not start <= orphan[0] < end]


def _add(files: LogFiles, offset: int, flag: int) -> None:
    """One more file; a log takes the indexes that were orphans before, an index may become one."""
    row = int(np.searchsorted(files.base_offsets, offset))
    if row < len(files.base_offsets) and files.base_offsets[row] == offset:
        files.flags = files.flags.copy()
        files.flags[row] |= flag
        return
    known = sum(flags for base, flags in files.orphans if base == offset) | flag
    files.orphans = [orphan for orphan in files.orphans if orphan[0] != offset]
    if known & HAS_LOG:
        files.base_offsets = np.insert(files.base_offsets, row, offset)
        files.flags = np.insert(files.flags, row, known & ~HAS_SNAPSHOT)
    else:
        files.orphans.append((offset, known))


def _open_other_numbers(files: LogFiles, others: list[tuple[str, FileClass]]) -> None:
    for name, kind in others:
        parsed = parse_file_name(name)
        if (kind is FileClass.OTHER_NUMBER and parsed.kind is FileKind.LOG
                and parsed.offset is not None and parsed.offset >= 0
                and not files.has(parsed.offset, HAS_LOG)):
            _add(files, parsed.offset, HAS_LOG)
            files.created.add(parsed.offset)
