"""`seglog tier`: what a remote tier holds, whether it is sound, and what can be made of it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from seglog.arguments import given_path, shown
from seglog.cli import render, tier_indexes, tier_lint
from seglog.cli.export import add_export_options, export
from seglog.cli.found_logs import found_in
from seglog.cli.tier_options import add_bucket_options, add_partition_options, bucket_of
from seglog.errors import ConfigError, KafkaStorageError
from seglog.model import TopicPartition
from seglog.recovery.claims import counted
from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import directory_name_or_none
from seglog.tiered.restore import restore
from seglog.tiered.segment_selection import TierFinding
from seglog.tiered.tier_check import check_partition, find_orphans
from seglog.tiered.tiered_files import TieredFiles

__all__ = ["add_parser", "check_tier", "run"]

Row = dict[str, Any]


class _Action(NamedTuple):
    """What follows `seglog tier`."""

    summary: str
    description: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options of the verb and its actions."""
    parser = subparsers.add_parser(
        "tier", help="list, check, export and restore remote segments (KIP-405)",
        description="Works on the remote segments of a broker, without the broker.")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, action in _ACTIONS.items():
        action.add_options(actions.add_parser(name, help=action.summary,
                                              description=action.description))


def run(args: argparse.Namespace) -> int:
    """Does it. 0: nothing wrong; 1: findings; 2: not done."""
    return _ACTIONS[args.action].run(args)


# ---- actions

def _ls(args: argparse.Namespace) -> int:
    for log in _logs(args):
        where = log.where
        assert isinstance(where, TieredFiles)
        segments = [remote for remote, _ in where.pieces_of(log.segments)]
        first = segments[0].start_offset if segments else log.log_start_offset
        row = {"partition": str(log.topic_partition), "topic_id": log.topic_id,
               "segments": len(segments), "first_offset": first,
               "last_offset": _end_of(log) - 1,
               "size": sum(one.size or 0 for one in segments),
               "leader_epochs": [[one.epoch, one.start_offset] for one in log.checkpointed_epochs],
               "findings": [_finding(one) for one in where.findings]}
        _print(row, [f"{row['partition']}  {row['topic_id'] or '-'}  "
                     f"{counted(len(segments), 'segment')}, offsets {first} to "
                     f"{row['last_offset']}, {row['size']} bytes",
                     *(f"  {one}" for one in where.findings)], args.json)
    return 0


def _end_of(log: PartitionLog) -> int:
    """The offset after the last record; of a lost last segment, its first offset."""
    try:
        return log.log_end_offset
    except KafkaStorageError:
        return log.end_offset(on_damage="skip")


def _orphans(args: argparse.Namespace) -> int:
    if not args.metadata:
        raise ConfigError("orphans needs --metadata: only the metadata topic says what is live")
    code = 0
    for log in _logs(args):
        where = log.where
        assert isinstance(where, TieredFiles)
        orphans = find_orphans(where)
        code = 1 if orphans else code
        _print({"partition": str(log.topic_partition),
                "orphans": [_finding(one) for one in orphans]},
               [one.message for one in orphans], args.json)
    return code


def _restore(args: argparse.Namespace) -> int:
    log, = _logs(args)
    count = restore(log, args.target)
    _print({"partition": args.partition, "target": args.target, "segments": count,
            "log_end_offset": log.log_end_offset},
           [f"{args.target}: {counted(count, 'segment')}, offsets {log.log_start_offset} to "
            f"{log.log_end_offset - 1}"], args.json)
    return 0


def _export(args: argparse.Namespace) -> int:
    return export(args, lambda: found_in(bucket_of(args), args.topic_id), args.remote)


def _add_restore(parser: argparse.ArgumentParser) -> None:
    add_bucket_options(parser)
    parser.add_argument("partition", metavar="TOPIC-PARTITION")
    parser.add_argument("target", metavar="DIR", type=given_path,
                        help="the directory to make, such as TOPIC-PARTITION")
    parser.add_argument("--json", action="store_true", help="one JSON object a partition")


def _add_export(parser: argparse.ArgumentParser) -> None:
    add_bucket_options(parser)
    add_export_options(parser)


_ACTIONS = {
    "ls": _Action("list partitions", "Lists the partitions of a tier: segments, offsets, bytes, "
                  "and what is wrong with them.", add_partition_options, _ls),
    "verify": _Action("check every batch and index", "Reads every batch, index and snapshot. Exit "
                      "code 1: something is damaged or missing.", add_partition_options,
                      lambda args: check_tier(_logs(args), as_json=args.json)),
    "orphans": _Action("list objects that no announcement names", "Lists objects that no "
                       "announcement names, and deletes none. Exit code 1: there are some.",
                       add_partition_options, _orphans),
    "restore": _Action("make a log directory of one partition", "Makes a log directory "
                       "of one partition, which a broker opens.", _add_restore, _restore),
    "export": _Action("write records as Parquet, Arrow, CSV or JSON lines", "As seglog export, "
                      "from the tier alone: the file needs no broker and no seglog. It appears "
                      "when it is complete.", _add_export, _export),
    "rebuild-indexes": _Action(
        "rebuild indexes from the bytes of segments", "Rebuilds offset, time and transaction "
        "indexes, producer snapshots and leader epochs as a recovery would, and compares them with "
        "what is there. Writes only with --write. Exit code 1: something is not right in the end.",
        tier_indexes.add_options, lambda args: tier_indexes.check_indexes(args, _logs(args))),
    "lint": _Action("check the records of __remote_log_metadata", "Checks each record of the "
                    "metadata topic in a broker's data directories, and what they amount to. Exit "
                    "code 1: an error or a warning.", tier_lint.add_options, tier_lint.run),
}


def check_tier(logs: Iterator[PartitionLog], *, as_json: bool) -> int:
    """Checks the tier of logs and prints a line each; 1 if one is not sound."""
    code = 0
    for log in logs:
        found = check_partition(log)
        if not found.segments and not found.findings:
            continue  # a partition that is not tiered
        code = code if found.is_sound else 1
        _print({"partition": found.name, "segments": found.segments, "batches": found.batches,
                "size": found.size, "ok": found.is_sound,
                "findings": [_finding(one) for one in found.findings]},
               [f"{found.name}: {counted(found.segments, 'segment')}, "
                f"{counted(found.batches, 'batch')}, {found.size} bytes: "
                f"{'sound' if found.is_sound else 'damaged'}",
                *(f"  {one}" for one in found.findings)], as_json)
    return code


def _logs(args: argparse.Namespace) -> Iterator[PartitionLog]:
    bucket = bucket_of(args)
    if args.partition is not None:
        parsed = directory_name_or_none(args.partition)
        if parsed is None or "/" in args.partition:
            raise ConfigError(f"expected TOPIC-PARTITION, such as orders-0, got "
                              f"{shown(args.partition)}; seglog tier ls URL lists the partitions")
        key = parsed.topic_partition
        yield bucket.log(key.topic, key.partition, topic_id=args.topic_id)
        return
    for one in bucket.partitions:
        if args.topic_id in (None, one.topic_id):
            key = TopicPartition(one.topic, one.partition)
            yield bucket.log(key.topic, key.partition, topic_id=one.topic_id)


def _finding(one: TierFinding) -> Row:
    return {"code": one.code, "message": one.message, "object": one.object,
            "first_offset": one.first_offset, "last_offset": one.last_offset}


def _print(row: Row, lines: list[str], as_json: bool) -> None:
    out = render.stdout()
    out.writelines([render.json_line(row)] if as_json else map(render.text_line, lines))
    out.flush()
