"""`seglog ls`: partitions, segments, sizes, offsets and leader epochs of directories."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seglog.arguments import given_path
from seglog.cli import render
from seglog.cli.document import directory_row, document, partition_row, print_document
from seglog.cli.kcat import add_topic_options, partitions_of, topics_of
from seglog.errors import SeglogError
from seglog.model import TopicPartition
from seglog.storage.checkpoint_files import CHECKPOINT_BYTES_MAX, read_offset_checkpoint
from seglog.storage.discover import FoundDirectory, find_directories
from seglog.storage.log_store import absolute, files_of, place_of, small_file
from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import (
    CLEAN_SHUTDOWN_FILE, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT, DirectoryKind,
)
from seglog.storage.selection import select_partitions

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
    parser.add_argument("path", nargs="+", type=given_path,
                        help="data directories or partition directories")
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
        found = _select(args)
    except ValueError as error:
        render.error(error)
        return 2
    facts = {path: _Checkpoints(path) for path in dict.fromkeys(one.data_dir for one in found)}
    rows = []
    with render.Progress("listing", len(found)) as progress:
        for one in found:
            rows.append(_row(one, facts[one.data_dir], args.segments))
            progress.advance()
    rows.sort(key=_SORTS[args.sort])
    if args.reverse:
        rows.reverse()
    failed = 0
    for row in rows:
        if row["error"] is not None:
            failed += 1
            render.error(f"{os.path.join(row['path'], row['directory'])}: {row['message']}")
    code = 1 if failed else 0
    if args.json:
        paths = dict.fromkeys([*facts, *map(os.path.abspath, args.path)]) if not found else facts
        print_document(document("ls", code, directories=[
            directory_row(path, clean_shutdown=os.path.lexists(
                os.path.join(path, CLEAN_SHUTDOWN_FILE))) for path in paths], partitions=rows))
        return code
    lines = _segment_lines(rows) if args.segments else rows
    render.stdout().writelines(_table(_columns(args, rows), lines))
    if len(rows) != 1:
        render.stdout().write(f"{_totals(rows, len(facts))}\n".encode())
    return code


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


def _row(one: FoundDirectory, checkpoints: _Checkpoints, with_segments: bool) -> Row:
    """A row of the document (docs/json.md). A log that does not open has `error` and `message`."""
    tp = one.topic_partition
    known: Row = {}
    if one.kind is DirectoryKind.LIVE:  # checkpoints speak of the partition in place
        known = {"high_watermark": checkpoints.high_watermarks.get(tp),
                 "recovery_point": checkpoints.recovery_points.get(tp)}
    start = checkpoints.log_start_offsets.get(tp, 0) if one.kind is DirectoryKind.LIVE else 0
    try:
        with PartitionLog.open(one.path, topic_partition=tp, log_start_offset=start) as log:
            epochs = list(log.leader_epochs)
            known |= {
                "segment_count": len(log.segments), "size": log.segments.size,
                "log_start_offset": log.log_start_offset, "log_end_offset": log.log_end_offset,
                "last_stable_offset": log.last_stable_offset, "topic_id": log.topic_id,
                "leader_epoch": epochs[-1].epoch if epochs else None,
                "leader_epochs": [[entry.epoch, entry.start_offset] for entry in epochs]}
            if with_segments:
                known["segments"] = [
                    {"base_offset": segment.base_offset, "size": segment.size,
                     "next_offset": segment.read_next_offset()} for segment in log.segments]
    except SeglogError as error:
        known |= {"error": type(error).__name__, "message": str(error)}
    return partition_row(one.data_dir, one.name, **known)


# ---- the table

_HEADS = {"path": "DIRECTORY", "directory": "PARTITION", "kind": "KIND",
          "segment_count": "SEGMENTS", "size": "BYTES"}


def _columns(args: argparse.Namespace, rows: Sequence[Row]) -> list[str]:
    shown = ["path"] if len({row["path"] for row in rows}) > 1 else []
    shown += ["directory", "kind"] if args.all else ["directory"]
    return shown + (["base_offset", "next_offset", "size"] if args.segments else [
        "segment_count", "size", "log_start_offset", "log_end_offset", "last_stable_offset",
        "leader_epoch"])


def _segment_lines(rows: Iterable[Row]) -> list[Row]:
    return [{**row, **segment} for row in rows
            for segment in ([{}] if row["segments"] is None else row["segments"])]


def _totals(rows: Sequence[Row], directories: int) -> str:
    counted = [(len(rows), "partition"), (sum(row["segment_count"] or 0 for row in rows),
                                          "segment")]
    size = sum(row["size"] or 0 for row in rows)
    text = ", ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in counted)
    where = f" in {directories} directories" if directories > 1 else ""
    failed = sum(row["error"] is not None for row in rows)
    return (f"{text}, {render.human_bytes(size)}{where}"
            + (f", {failed} not readable" if failed else ""))


def _table(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[bytes]:
    """Columns as wide as their widest cell, numbers to the right; an error takes the rest."""
    head = [_HEADS.get(column, column.upper().replace("_", " ")) for column in columns]
    cells = [[_cell(column, row) for column in columns] for row in rows]
    names = [at for at, column in enumerate(columns) if column in ("path", "directory", "kind")]
    widths = [max(len(line[at]) for line in [head, *cells]) for at in range(len(columns))]
    for line, error in zip([head, *cells], [None, *(row["error"] for row in rows)], strict=True):
        texts = [cell.ljust(widths[at]) if at in names else cell.rjust(widths[at])
                 for at, cell in enumerate(line)]
        if error is not None:
            texts = [*texts[:len(names)], error]
        yield "  ".join(texts).rstrip().encode("utf-8", "surrogateescape") + b"\n"


def _cell(column: str, row: Row) -> str:
    value = row.get(column)
    if value is None:
        return "-"
    return render.human_bytes(value) if column == "size" else str(value)
