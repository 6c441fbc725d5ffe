"""Passes one to three of Kafka's loader: temporary files and interrupted swaps (LogLoader.load).

The result is the files that pass four works on.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from seglog._native.scan import FileClass, PartitionListing
from seglog.config import LogConfig
from seglog.recovery.disk import Disk
from seglog.recovery.loader_failures import LoaderFailure
from seglog.recovery.findings import Report, finding
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.snapshot_files import SnapshotNames
from seglog.storage.paths import (
    FileKind, FileState, file_name, offset_from_file_name, parse_file_name,
)
from seglog.storage.swaps import FLAGS, find_swaps, java_class

__all__ = ["ListedFiles", "list_snapshots", "number_failure", "tidy"]

_logger = logging.getLogger("seglog.LogLoader")

_INDEX_KINDS: Final = (FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
_NOT_FILES: Final = {FileClass.DIRECTORY: "a directory", FileClass.LINK: "a symbolic link",
                     FileClass.SPECIAL: "a fifo, socket or device"}
_REPORTED: Final = {
    FileClass.DELETED: "temporary-deleted", FileClass.CLEANED: "temporary-cleaned",
    FileClass.OTHER_NUMBER: "name-not-canonical", FileClass.NOT_A_NUMBER: "name-not-a-number",
    FileClass.FOREIGN: "file-foreign",
}


@dataclass(slots=True)
class ListedFiles:
    """The files that pass four works on.

    `base_offsets` are the listed logs that still exist. `opened` are log files, by name, that
    changed since the listing (swapped into place, or under a name such as `5.log`). `orphans` are
    names of index files without a log, `unreadable` names of logs and indexes without a number, and
    `listed_snapshots` the snapshots before any was removed."""

    base_offsets: npt.NDArray[np.int64]
    opened: dict[str, int] = field(default_factory=dict)
    orphans: dict[str, int] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    snapshots: SnapshotNames = field(default_factory=SnapshotNames)
    listed_snapshots: SnapshotNames = field(default_factory=SnapshotNames)


def number_failure(name: str) -> LoaderFailure:
    """Kafka's exception for a name such as `foo.log`."""
    return LoaderFailure("NumberFormatException", f'For input string: "{name.partition(".")[0]}"',
                         file=name)


def list_snapshots(listing: PartitionListing) -> SnapshotNames:
    """The producer snapshots. Raises LoaderFailure for a name without a number."""
    found = SnapshotNames(listing.snapshots)
    for name, listed in listing.others:
        kind = java_class(name, listed)
        parsed = parse_file_name(name)
        if parsed.kind is not FileKind.SNAPSHOT or parsed.state is not FileState.LIVE:
            continue
        if kind is FileClass.NOT_A_NUMBER:
            raise number_failure(name)
        if kind is FileClass.OTHER_NUMBER and parsed.offset is not None:
            found.add(parsed.offset, name)
    return found


def tidy(listing: PartitionListing, disk: Disk, config: LogConfig, report: Report) -> ListedFiles:
    """Removes or renames temporary files. Raises LoaderFailure where Kafka abandons the log."""
    return _Tidying(listing, disk, config, report).run()


class _Tidying:
    def __init__(self, listing: PartitionListing, disk: Disk, config: LogConfig,
                 report: Report) -> None:
        self.listing, self.disk, self.config = listing, disk, config
        self._report_finding = report
        self.directory = os.path.basename(listing.path)
        self.others = {name: java_class(name, kind) for name, kind in listing.others}
        snapshots = list_snapshots(listing)
        self.files = ListedFiles(listing.base_offsets, snapshots=snapshots,
                              listed_snapshots=snapshots.copy())
        self.files.orphans = {
            file_name(offset, kind): offset
            for offset, flags in zip(listing.orphans.tolist(), listing.orphan_flags.tolist(),
                                     strict=True)
            for kind in _INDEX_KINDS if flags & FLAGS[kind]}

    def run(self) -> ListedFiles:
        """Runs all three passes, and classifies the remaining names for the fourth."""
        for name, kind in self.others.items():
            self._report_other(name, kind)
        swaps = self._remove_temporaries()
        self._complete_swaps(swaps)
        for name, kind in self.others.items():
            self._classify(name, kind)
        # Kafka takes a directory with the name of the log for the log here.
        self.files.orphans = {
            name: offset for name, offset in self.files.orphans.items()
            if self.others.get(file_name(offset, FileKind.LOG)) is not FileClass.DIRECTORY}
        return self.files

    def _report(self, code: str, name: str) -> None:
        self._report_finding(finding(code, directory=self.directory, file=name,
                                     bytes=self.disk.size(name)))

    def _report_other(self, name: str, kind: FileClass) -> None:
        if kind in _REPORTED:
            self._report(_REPORTED[kind], name)
        elif kind in _NOT_FILES:
            parsed = parse_file_name(name)
            kafkas = parsed.kind is not FileKind.OTHER or parsed.state is not FileState.LIVE
            self._report_finding(finding(
                "file-kind" if kafkas else "file-foreign", directory=self.directory, file=name,
                expected="a regular file", found=_NOT_FILES[kind]))

    def _path(self, name: str) -> str:
        return os.path.join(os.path.abspath(self.disk.path), name)

    # ---- pass one -----------------------------------------------------------------------------

    def _remove_temporaries(self) -> list[str]:
        """Removes temporary files. Returns the `.swap` files that count."""
        self._delete(FileClass.DELETED, [one for one, kind in self.others.items()
                                         if kind is FileClass.DELETED])
        for name, kind in self.others.items():
            if kind is FileClass.NOT_A_NUMBER and parse_file_name(name).state in (
                    FileState.CLEANED, FileState.SWAP):
                raise number_failure(name)
        incomplete = find_swaps(self.others.items()).incomplete
        for name in incomplete:
            self._report("swap-incomplete", name)
        self._delete(FileClass.SWAP, incomplete)
        self._delete(FileClass.CLEANED, [one for one, kind in self.others.items()
                                         if kind is FileClass.CLEANED])
        return [name for name, kind in self.others.items() if kind is FileClass.SWAP]

    def _delete(self, kind: FileClass, names: list[str]) -> None:
        for name in names:
            _logger.debug("Deleting %s %s", _DELETED[kind], self._path(name))
            self.disk.delete(name)
            del self.others[name]

    # ---- passes two and three -----------------------------------------------------------------

    def _complete_swaps(self, names: list[str]) -> None:
        bounds, found = [], set(names)  # opening a segment creates files, which join the names
        for name in names:
            self._report("swap-complete", name)
            parsed = parse_file_name(name)
            if parsed.kind is FileKind.LOG and parsed.offset is not None and name in found:
                _logger.info("Found log file %s from interrupted swap operation, which is "
                             "recoverable from %s files by renaming.", self._path(name),
                             FileState.SWAP.value)
                bounds.append((parsed.offset, self._swap_end(parsed.offset, names)))
        if bounds:
            self._remove_range(min(base for base, _ in bounds), max(end for _, end in bounds))
        # Logs first. Otherwise a load that is killed in between would later find a `.log.swap`
        # whose index is already in place, mistake that for the index of a replaced segment, and
        # empty it.
        for name in sorted(names, key=lambda one: (FileKind.LOG.value not in one, one)):
            target = name.removesuffix(FileState.SWAP.value)
            _logger.info("Recovering file %s by renaming from %s files.", name,
                         FileState.SWAP.value)
            self.disk.rename(name, target)
            self.others.pop(name, None)
            self._renamed(target)

    def _swap_end(self, base: int, names: list[str]) -> int:
        """The next offset of a swapped segment. Files that opening it creates are swapped with
        it."""
        segment = SegmentFiles(self.disk, base, self.config, FileState.SWAP)
        if self.disk.size(segment.log_name) is None:
            self.disk.create(segment.log_name)
        end = segment.read_next_offset()
        for name in (segment.log_name, segment.offset_index.name):
            if name not in self.others:
                self.others[name] = FileClass.SWAP
                names.append(name)
        return end

    def _remove_range(self, start: int, end: int) -> None:
        """Deletes every numbered file in [start, end), as Kafka does, including snapshots."""
        files = self.files
        inside = (files.base_offsets >= start) & (files.base_offsets < end)
        flags = self.listing.flags[inside].tolist()
        for base, has in zip(files.base_offsets[inside].tolist(), flags, strict=True):
            for kind, flag in FLAGS.items():
                if has & flag:
                    self._remove(file_name(base, kind))
        files.base_offsets = files.base_offsets[~inside]
        for name in [one for one, offset in files.orphans.items() if start <= offset < end]:
            self._remove(name)
            del files.orphans[name]
        for offset in files.snapshots.between(start, end):
            self._remove(files.snapshots.remove(offset))
        for name in list(self.others):
            if self.others[name] not in _NOT_FILES and self._in_range(name, start, end):
                self._remove(name)
                del self.others[name]

    def _in_range(self, name: str, start: int, end: int) -> bool:
        try:
            return (not name.endswith(FileState.SWAP.value)
                    and start <= offset_from_file_name(name) < end)
        except ValueError:
            return False

    def _remove(self, name: str) -> None:
        if self.disk.size(name) is None:
            return
        self._report("swap-replaced", name)
        _logger.info("Deleting segment files %s that is compacted but has not been deleted yet.",
                     name)
        self.disk.delete(name)

    def _renamed(self, name: str) -> None:
        """Notes a file that came into place: of a segment to be checked again, or a snapshot."""
        parsed = parse_file_name(name)
        offset = parsed.offset
        if offset is None or parsed.state is not FileState.LIVE:
            return
        if parsed.kind is FileKind.SNAPSHOT:
            self.files.snapshots.add(offset, name)
        elif not parsed.canonical or parsed.kind not in FLAGS:
            self.others[name] = FileClass.OTHER_NUMBER
        elif parsed.kind is FileKind.LOG:
            self._check_again(offset)
        elif not self._has_log(offset):
            self.files.orphans[name] = offset
        else:
            self._check_again(offset)

    def _has_log(self, offset: int) -> bool:
        return self.disk.size(file_name(offset, FileKind.LOG)) is not None

    def _check_again(self, offset: int) -> None:
        files = self.files
        files.base_offsets = files.base_offsets[files.base_offsets != offset]
        files.opened[file_name(offset, FileKind.LOG)] = offset
        for kind in _INDEX_KINDS:
            files.orphans.pop(file_name(offset, kind), None)

    # ---- for pass four ------------------------------------------------------------------------

    def _classify(self, name: str, kind: FileClass) -> None:
        parsed = parse_file_name(name)
        if parsed.state is not FileState.LIVE or parsed.kind not in FLAGS:
            return
        if kind is FileClass.NOT_A_NUMBER:
            self.files.unreadable.append(name)
        elif kind is FileClass.OTHER_NUMBER and parsed.offset is not None:
            if parsed.kind is FileKind.LOG:
                if parsed.offset < 0 or not self._has_log(parsed.offset):
                    self.files.opened[name] = parsed.offset
            elif not self._has_log(parsed.offset):
                self.files.orphans[name] = parsed.offset


_DELETED: Final = {FileClass.DELETED: "stray temporary file", FileClass.SWAP: "invalid swap file",
                   FileClass.CLEANED: "stray .clean file"}

