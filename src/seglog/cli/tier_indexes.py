"""`seglog tier rebuild-indexes`: indexes of remote segments, made again from their bytes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from seglog.cli import render
from seglog.cli.tier_options import add_partition_options, pairs_of
from seglog.config import LogConfig
from seglog.dump.topic_facts import read_topic_facts
from seglog.recovery.claims import counted
from seglog.storage.partition_log import PartitionLog
from seglog.tiered.tiered_files import TieredFiles

if TYPE_CHECKING:
    from seglog.remote_log.index_rebuild import RebuiltSegment

__all__ = ["add_options", "check_indexes"]

#: The settings on which the entries of an index depend.
_SETTINGS = ("index.interval.bytes", "segment.index.bytes")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the action."""
    add_partition_options(parser)
    parser.add_argument("--write", action="store_true",
                        help="replace absent and damaged indexes; without it nothing is written")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE",
                        help=f"{' or '.join(_SETTINGS)}; default: those of the topic in "
                        "__cluster_metadata of --metadata, else Kafka's")


def check_indexes(args: argparse.Namespace, logs: Iterator[PartitionLog]) -> int:
    """Rebuilds and compares the indexes of logs; 1 if one is not right in the end."""
    from seglog.remote_log.index_rebuild import rebuild_indexes  # with all of a LogManager

    given = pairs_of("--config", args.config, f"{' or '.join(_SETTINGS)}, = and a number",
                     _SETTINGS)
    known = cache(partial(_known, args.metadata))
    code = 0
    with render.Progress("rebuilding", detail=lambda room: "segments"[:room]) as progress:
        for log in logs:
            assert log.topic_partition is not None and isinstance(log.where, TieredFiles)
            config = LogConfig.from_properties(
                {**known(log.topic_partition.topic), **given})
            found = []
            for segment in rebuild_indexes(log, config, write=args.write):
                found.append(segment)
                progress.advance()
            # Of a gap that the listing found there are no indexes.
            gaps = [str(one) for one in log.where.findings if one.code in (
                "remote_gap", "object_missing")]
            code = 1 if gaps or not all(one.is_sound for one in found) else code
            _print(str(log.topic_partition), found, gaps, as_json=args.json)
    return code


def _print(name: str, found: list[RebuiltSegment], gaps: list[str], *, as_json: bool) -> None:
    out = render.stdout()
    rows = [(segment, one) for segment in found for one in segment.indexes if one.state != "same"]
    ok = not gaps and all(one.is_sound for one in found)
    errors = [f"{one.path}: {one.error}" for one in found if one.error is not None]
    written = sum(one.is_written for _, one in rows)
    if as_json:
        out.write(render.json_line({
            "partition": name, "segments": len(found), "ok": ok, "written": written,
            "errors": [*gaps, *errors],
            "indexes": [{"object": segment.path, "start_offset": segment.start_offset,
                         "kind": one.kind.value, "state": one.state, "message": one.message,
                         "size": len(one.content), "is_complete": one.is_complete,
                         "is_written": one.is_written} for segment, one in rows]}))
    else:
        lines = [f"{name}: {counted(len(found), 'segment')}, {counted(written, 'index')} written: "
                 f"{'sound' if ok else 'not sound'}", *(f"  {one}" for one in [*gaps, *errors]),
                 *(f"  {segment.path}: {one.kind.value} {one.state}: {one.message}"
                   f"{', written' if one.is_written else ''}"
                   f"{'' if one.is_complete else ', as far as the tier has its records'}"
                   for segment, one in rows)]
        out.writelines(map(render.text_line, lines))
    out.flush()


def _known(metadata: list[str], topic: str) -> dict[str, str]:
    """The settings of a topic that data directories with the cluster's metadata tell."""
    for path in metadata:
        facts = read_topic_facts(path, topic)
        if facts is not None:
            return {name: facts.config[name] for name in _SETTINGS if name in facts.config}
    return {}
