"""`seglog ls`: partitions, segments, sizes, offsets and leader epochs of directories."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from seglog.arguments import given_path
from seglog.cli import render
from seglog.cli.document import directory_row, document, partition_row, print_document
from seglog.cli.kcat import add_topic_options, partitions_of, topics_of
from seglog.cli.tier_options import add_tier_options, tier_of
from seglog.errors import SeglogError
from seglog.model import TopicPartition
from seglog.recovery.claims import counted
from seglog.recovery.clean_rows import PART_PARTITIONS, CleanRows, is_clean_candidate
from seglog.storage.checkpoint_files import CHECKPOINT_BYTES_MAX, read_offset_checkpoint
from seglog.storage.discover import FoundDirectory, find_directories, is_gone
from seglog.storage.epochs import read_leader_epochs
from seglog.storage.log_store import LOCAL, absolute, files_of, place_of, small_file
from seglog.storage.meta import format_uuid
from seglog.storage.paths import (
    CLEAN_SHUTDOWN_FILE, HIGH_WATERMARK_CHECKPOINT, LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, DirectoryKind,
)
from seglog.storage.selection import select_partitions

if TYPE_CHECKING:
    from seglog.storage.partition_log import PartitionLog
    from seglog.storage.segments import Segments
    from seglog.tiered.bucket import Bucket
    from seglog.tiered.remote_segment import RemotePartition

__all__ = ["add_parser", "run"]

Row = dict[str, Any]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options of the verb."""
    parser = subparsers.add_parser(
        "ls", help="list partitions, segments, sizes, offsets, epochs",
        description="Lists the partitions of data directories (or of partition directories): "
                    "segments, size of the log files, log start, log end and last stable offset, "
                    "leader epoch. A reader of isolation level read_uncommitted, the default "
                    "everywhere, gets the records up to the log end offset; read_committed ends "
                    "at the last stable offset. Reads only.")
    parser.add_argument("path", nargs="*", type=given_path,
                        help="data directories or partition directories")
    add_tier_options(parser)
    add_topic_options(parser, "all")
    parser.add_argument("--sort", choices=sorted(_SORTS), default="name",
                        help="names ascend, numbers descend; default: name")
    parser.add_argument("-r", "--reverse", action="store_true", help="the other way round")
    parser.add_argument("--all", action="store_true",
                        help="also directories that are deleted, future copies or strays")
    parser.add_argument("--segments", action="store_true", help="one line a segment")
    parser.add_argument("--json", action="store_true",
                        help="one JSON document (docs/json.md); with --segments also the segments")


_SORTS: Mapping[str, Callable[[Row], Any]] = {
    "name": lambda row: (),
    "size": lambda row: -(row["size"] or 0),
    "segments": lambda row: -(row["segment_count"] or 0),
    "offsets": lambda row: (row["log_start_offset"] or 0) - (row["log_end_offset"] or 0),
    "start": lambda row: -(row["log_start_offset"] or 0),
    "end": lambda row: -(row["log_end_offset"] or 0),
    "epoch": lambda row: -(-1 if row["leader_epoch"] is None else row["leader_epoch"]),
}


def run(args: argparse.Namespace) -> int:
    """Lists; 1 if a partition could not be opened."""
    try:
        tier = tier_of(args)
        found = _select(args) if tier is None or args.path else _in_tier(args, tier)
    except ValueError as error:
        render.error(error)
        return 2
    facts = {path: _Checkpoints(path) for path in dict.fromkeys(one.data_dir for one in found)}
    rows: list[Row] = []
    failures: dict[str, str] = {}
    with render.Progress("listing", len(found)) as progress:
        clean = {} if tier is not None else {
            path: row for data_dir, checkpoints in facts.items() for path, row in _clean_rows(
                [one for one in found if one.data_dir == data_dir], checkpoints, progress)}
        for one in found:
            row = clean.get(one.path) or _row(one, facts[one.data_dir])
            try:
                if one.path in clean:
                    _complete(row, one, args)
                else:
                    progress.advance()
                    _open(row, one, facts[one.data_dir], args.segments, tier)
            except SeglogError as error:
                if is_gone(one.path):
                    continue
                row |= {"error": type(error).__name__, "message": str(error)}
                failures[one.path] = render.text_of(error)
            rows.append(row)
    rows.sort(key=_SORTS[args.sort])
    if args.reverse:
        rows.reverse()
    for path in [os.path.join(row["path"], row["directory"]) for row in rows]:
        if path in failures:
            text = failures[path]
            render.error(text if path in text else f"{path}: {text}")
    code = 1 if failures else 0
    if args.json:
        for row in rows:
            row["segments"] = row["segments"] and [
                dict(zip(_SEGMENT_FIELDS, one, strict=True)) for one in row["segments"]]
        paths = dict.fromkeys([*facts, *map(absolute, args.path)]) if not found else facts
        print_document(document("ls", code, directories=[
            directory_row(path, clean_shutdown=_had_clean_shutdown(path, tier))
            for path in paths], partitions=rows))
        return code
    lines = partial(_segment_lines, rows) if args.segments else lambda: rows
    render.stdout().writelines(_table(_columns(args, rows), lines))
    if len(rows) != 1:
        render.stdout().write(f"{_totals(rows, len(facts))}\n".encode())
    return code


def _had_clean_shutdown(path: str, tier: Bucket | None) -> bool | None:
    """Whether the marker is there; None for a tier, which has none, and for a store, where a
    request would have to ask for it."""
    if files_of(path) is not LOCAL or (tier is not None and path == tier.tree.root):
        return None
    return os.path.lexists(os.path.join(path, CLEAN_SHUTDOWN_FILE))


def _select(args: argparse.Namespace) -> list[FoundDirectory]:
    """The directories to list, by topic, partition and path."""
    found: dict[str, FoundDirectory] = {}
    for path in args.path:
        here = find_directories(path)
        is_itself = len(here) == 1 and here[0].path == absolute(place_of(path))
        for one in here:
            if args.all or is_itself or one.kind is DirectoryKind.LIVE:
                place = replace(one, data_dir=absolute(one.data_dir))
                found.setdefault(place.path, place)
    chosen = set(select_partitions((one.topic_partition for one in found.values()),
                                   topics_of(args), partitions_of(args), ", ".join(args.path)))
    return sorted((one for one in found.values() if one.topic_partition in chosen),
                  key=lambda one: (one.topic_partition, one.data_dir, one.name))


class _Checkpoints:
    """What a data directory's checkpoint files say; nothing where one does not parse."""

    def __init__(self, path: str) -> None:
        self.high_watermarks = _read(path, HIGH_WATERMARK_CHECKPOINT)
        self.recovery_points = _read(path, RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = _read(path, LOG_START_OFFSET_CHECKPOINT)


def _read(path: str, name: str) -> Mapping[TopicPartition, int]:
    try:
        file = os.path.join(path, name)
        return read_offset_checkpoint(
            file, small_file(files_of(path), file, CHECKPOINT_BYTES_MAX) or b"")
    except SeglogError:
        return {}  # `load` reports it


def _in_tier(args: argparse.Namespace, tier: Bucket) -> list[FoundDirectory]:
    """The partitions of a tier that is listed without a local directory."""
    found = [FoundDirectory(TopicPartition(one.topic, one.partition), tier.tree.root,
                            one.directory, DirectoryKind.LIVE)
             for one in _partitions(tier).values()]
    chosen = set(select_partitions((one.topic_partition for one in found), topics_of(args),
                                   partitions_of(args), args.remote))
    return [one for one in found if one.topic_partition in chosen]


def _log(one: FoundDirectory, start: int, tier: Bucket | None) -> PartitionLog:
    from seglog.storage.partition_log import PartitionLog  # most directories need no reader

    tp = one.topic_partition
    if tier is not None and one.data_dir == tier.tree.root:
        return tier.log(tp.topic, tp.partition, topic_id=_partitions(tier)[one.name].topic_id)
    return PartitionLog.open(one.path, topic_partition=tp, log_start_offset=start,
                             remote=tier if one.kind is DirectoryKind.LIVE else None)


@lru_cache(maxsize=1)
def _partitions(tier: Bucket) -> dict[str, RemotePartition]:
    """The partitions of a tier by their directories, listed once."""
    return {one.directory: one for one in tier.partitions}


def _clean_rows(found: Sequence[FoundDirectory], checkpoints: _Checkpoints,
                progress: render.Progress) -> Iterator[tuple[str, Row]]:
    """(path, row) of the directories that C reads many at a time: those of logs as a clean
    shutdown leaves them, of one data directory. The rows have no `leader_epochs`."""
    candidates = [one for one in found if is_clean_candidate(
        one.name, one.topic_partition, one.kind) and files_of(one.data_dir) is LOCAL]
    for at in range(0, len(candidates), PART_PARTITIONS):
        some = candidates[at:at + PART_PARTITIONS]
        rows = CleanRows.read(
            some[0].data_dir, [one.topic_partition for one in some],
            start_offsets=checkpoints.log_start_offsets,
            recovery_points=checkpoints.recovery_points,
            high_watermarks=checkpoints.high_watermarks, check_crcs=True)
        columns = [rows.files[name].tolist() for name in (
            "segments", "size", "log_start_offset", "log_end_offset", "leader_epoch",
            "has_topic_id")]
        for row in np.flatnonzero(rows.is_plain).tolist():
            one, key = some[row], rows.keys[row]
            segments, size, start, end, epoch, has_topic_id = (column[row] for column in columns)
            yield one.path, partition_row(
                one.data_dir, one.name, segment_count=segments, size=size, log_start_offset=start,
                log_end_offset=end, last_stable_offset=end,
                high_watermark=checkpoints.high_watermarks.get(key),
                recovery_point=checkpoints.recovery_points.get(key),
                leader_epoch=epoch if epoch >= 0 else None,
                topic_id=format_uuid(rows.topic_id(row)) if has_topic_id else None)
            progress.advance()


def _complete(row: Row, one: FoundDirectory, args: argparse.Namespace) -> None:
    """Adds to a row of C its leader epochs, which only the JSON document shows, and its segments.
    Raises SeglogError: another process changed them meanwhile."""
    if args.json:
        epochs = read_leader_epochs(os.path.join(one.path, LEADER_EPOCH_CHECKPOINT))
        epochs.truncate_from_end(row["log_end_offset"])
        epochs.truncate_from_start(row["log_start_offset"])
        row["leader_epochs"] = [[entry.epoch, entry.start_offset] for entry in epochs]
    if args.segments:
        from seglog.storage.handles import shared_cache
        from seglog.storage.partition_files import read_directory

        row["segments"] = _segments_of(read_directory(one.path, shared_cache()).segments)


def _row(one: FoundDirectory, checkpoints: _Checkpoints) -> Row:
    """A row of the document (docs/json.md) before its log is opened."""
    if one.kind is not DirectoryKind.LIVE:  # checkpoints speak of the partition in place
        return partition_row(one.data_dir, one.name)
    return partition_row(
        one.data_dir, one.name,
        high_watermark=checkpoints.high_watermarks.get(one.topic_partition),
        recovery_point=checkpoints.recovery_points.get(one.topic_partition))


def _open(row: Row, one: FoundDirectory, checkpoints: _Checkpoints, with_segments: bool,
          tier: Bucket | None) -> None:
    """Adds what the log says to its row. Raises SeglogError."""
    start = checkpoints.log_start_offsets.get(one.topic_partition, 0) \
        if one.kind is DirectoryKind.LIVE else 0
    with _log(one, start, tier) as log:
        epochs = list(log.leader_epochs)
        row |= {
            "segment_count": len(log.segments), "size": log.segments.size,
            "log_start_offset": log.log_start_offset, "log_end_offset": log.log_end_offset,
            "last_stable_offset": log.last_stable_offset, "topic_id": log.topic_id,
            "leader_epoch": epochs[-1].epoch if epochs else None,
            "leader_epochs": [[entry.epoch, entry.start_offset] for entry in epochs]}
        if with_segments:
            row["segments"] = _segments_of(log.segments)


def _segments_of(segments: Segments) -> list[tuple[int, ...]]:
    """The `_SEGMENT_FIELDS` of each."""
    return list(zip(segments.base_offsets.tolist(), *segments.ends(), strict=True))


# ---- the table

_SEGMENT_FIELDS = ("base_offset", "size", "next_offset")
_HEADS = {"path": "DIRECTORY", "directory": "PARTITION", "kind": "KIND",
          "segment_count": "SEGMENTS", "size": "BYTES"}


def _columns(args: argparse.Namespace, rows: Sequence[Row]) -> list[str]:
    shown = ["path"] if len({row["path"] for row in rows}) > 1 else []
    shown += ["directory", "kind"] if args.all else ["directory"]
    return shown + (["base_offset", "next_offset", "size"] if args.segments else [
        "segment_count", "size", "log_start_offset", "log_end_offset", "last_stable_offset",
        "leader_epoch"])


def _segment_lines(rows: Iterable[Row]) -> Iterator[Row]:
    """A line for each segment; for a partition without segments, one that says so."""
    for row in rows:
        where = {name: row[name] for name in ("path", "directory", "kind", "error")}
        for segment in row["segments"] if row["segments"] is not None else [()]:
            yield where | dict(zip(_SEGMENT_FIELDS, segment, strict=False))


def _totals(rows: Sequence[Row], directories: int) -> str:
    segments = counted(sum(row["segment_count"] or 0 for row in rows), "segment")
    size = sum(row["size"] or 0 for row in rows)
    where = f" in {directories} directories" if directories > 1 else ""
    failed = sum(row["error"] is not None for row in rows)
    return (f"{counted(len(rows), 'partition')}, {segments}, {render.human_bytes(size)}{where}"
            + (f", {failed} not readable" if failed else ""))


def _table(columns: Sequence[str], lines: Callable[[], Iterable[Row]]) -> Iterator[bytes]:
    """Columns as wide as their widest cell, numbers to the right; an error takes the rest. `lines`
    is called twice, for the widths and for the text: a million lines are not kept."""
    def cells() -> Iterator[tuple[list[str], str | None]]:
        yield [_HEADS.get(column, column.upper().replace("_", " ")) for column in columns], None
        for row in lines():
            yield [_cell(column, row) for column in columns], row["error"]

    names = [at for at, column in enumerate(columns) if column in ("path", "directory", "kind")]
    widths = [0] * len(columns)
    for line, _ in cells():
        widths = list(map(max, widths, map(len, line)))
    for line, error in cells():
        texts = [cell.ljust(widths[at]) if at in names else cell.rjust(widths[at])
                 for at, cell in enumerate(line)]
        if error is not None:
            texts = [*texts[:len(names)], error]
        yield render.text_line("  ".join(texts).rstrip())


def _cell(column: str, row: Row) -> str:
    value = row.get(column)
    if value is None:
        return "-"
    return render.human_bytes(value) if column == "size" else str(value)
