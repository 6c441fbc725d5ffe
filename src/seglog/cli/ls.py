"""`seglog ls`: partitions, segments, sizes, offsets and leader epochs of a path."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from seglog.cli import render
from seglog.errors import SeglogError, UnknownTopicOrPartitionError
from seglog.model import TopicPartition
from seglog.storage.discover import find_partitions
from seglog.storage.log import PartitionLog

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options of the verb."""
    parser = subparsers.add_parser(
        "ls", help="list partitions, segments, sizes, offsets, epochs",
        description="Lists the partitions of a data directory (or one partition's directory): "
                    "segments, bytes, first and next offset, last stable offset, leader epoch. "
                    "Reads only.")
    parser.add_argument("path", nargs="+", help="data directories or partition directories")
    parser.add_argument("-t", "--topic", help="only this topic")
    parser.add_argument("--segments", action="store_true", help="one line a segment")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(args: argparse.Namespace) -> int:
    """Lists; 1 if a partition could not be opened."""
    found = {tp: path for tp, path in sorted(find_partitions(args.path).items())
             if args.topic in (None, tp.topic)}
    if args.topic is not None and not found:
        raise UnknownTopicOrPartitionError(f"{', '.join(args.path)}: topic {args.topic} "
                                           "is not here")
    rows: list[dict[str, Any]] = []
    failed = 0
    for tp, path in found.items():
        try:
            with PartitionLog.open(path) as log:
                rows.extend(_segment_rows(tp, log) if args.segments else [_row(tp, log)])
        except SeglogError as error:
            failed += 1
            render.error(error)
            rows.append({"partition": str(tp), "error": type(error).__name__})
    out = render.stdout()
    if args.json:
        out.writelines(render.json_line(row) for row in rows)
    else:
        out.writelines(_table(_SEGMENT_COLUMNS if args.segments else _COLUMNS, rows))
    return 1 if failed else 0


_COLUMNS = ("partition", "segments", "bytes", "log_start_offset", "log_end_offset",
            "last_stable_offset", "leader_epoch")
_SEGMENT_COLUMNS = ("partition", "base_offset", "next_offset", "bytes")


def _row(tp: TopicPartition, log: PartitionLog) -> dict[str, Any]:
    epochs = list(log.leader_epochs)
    return {
        "partition": str(tp), "segments": len(log.segments), "bytes": log.segments.size,
        "log_start_offset": log.log_start_offset, "log_end_offset": log.log_end_offset,
        "last_stable_offset": log.last_stable_offset,
        "leader_epoch": epochs[-1].epoch if epochs else None,
        "topic_id": log.topic_id,
        "leader_epochs": [[entry.epoch, entry.start_offset] for entry in epochs],
    }


def _segment_rows(tp: TopicPartition, log: PartitionLog) -> Iterator[dict[str, Any]]:
    for segment in log.segments:
        yield {"partition": str(tp), "base_offset": segment.base_offset,
               "next_offset": segment.read_next_offset(), "bytes": segment.size}


def _table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Iterator[bytes]:
    """Columns as wide as their widest cell, numbers to the right; an error takes the rest."""
    shown = [column for column in columns if any(column in row for row in rows)] or list(columns)
    cells = [[_cell(column, row) for column in shown] for row in rows]
    head = [column.upper().replace("_", " ") for column in shown]
    widths = [max(len(line[at]) for line in [head, *cells]) for at in range(len(shown))]
    for line, row in zip([head, *cells], [{}, *rows], strict=True):
        if "error" in row:
            text = f"{line[0]:<{widths[0]}}  {row['error']}"
        else:
            text = "  ".join(cell.ljust(width) if at == 0 else cell.rjust(width)
                             for at, (cell, width) in enumerate(zip(line, widths, strict=True)))
        yield text.rstrip().encode("utf-8", "surrogateescape") + b"\n"


def _cell(column: str, row: dict[str, Any]) -> str:
    value = row.get(column)
    if value is None:
        return "-"
    return render.human_bytes(value) if column.endswith("bytes") else str(value)
