"""`seglog tier`: what a remote tier holds, whether it is sound, and a log directory made of it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from seglog.arguments import given_path
from seglog.cli import render
from seglog.cli.tier_options import keys_of
from seglog.errors import ConfigError
from seglog.model import TopicPartition
from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import parse_directory_name
from seglog.tiered.bucket import Bucket, open_bucket
from seglog.tiered.restore import restore
from seglog.tiered.segment_selection import TierFinding
from seglog.tiered.tier_check import check_partition, find_orphans
from seglog.tiered.tiered_files import TieredFiles

__all__ = ["add_parser", "check_tier", "run"]

Row = dict[str, Any]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options of the verb."""
    parser = subparsers.add_parser(
        "tier", help="list, check and restore remote segments (KIP-405)",
        description="Works on the remote segments of a broker, without the broker. Exit code 1: "
                    "something is damaged or missing (verify), or an object is not announced "
                    "(orphans). Deletes nothing.")
    parser.add_argument("action", choices=("ls", "verify", "orphans", "restore"),
                        help="list partitions; check every batch and index; list objects that no "
                        "announcement names; make a log directory of one partition")
    parser.add_argument("remote", type=given_path, help="directory or URL of the remote segments")
    parser.add_argument("partition", nargs="?", metavar="TOPIC-PARTITION",
                        help="one partition; restore needs it")
    parser.add_argument("target", nargs="?", type=given_path,
                        help="restore: the directory to make, such as TOPIC-PARTITION")
    parser.add_argument("--metadata", action="append", default=[], type=given_path, metavar="DIR",
                        help="a data directory with partitions of __remote_log_metadata")
    parser.add_argument("--layout", help="local, aiven, pinterest, or a pattern; default: "
                        "recognised")
    parser.add_argument("--key", action="append", default=[], metavar="ID=FILE",
                        help="a private key of Aiven's encryption, as PEM")
    parser.add_argument("--json", action="store_true", help="one JSON object a partition")


def run(args: argparse.Namespace) -> int:
    """Does it. 0: nothing wrong; 1: findings."""
    bucket = open_bucket(args.remote, layout=args.layout, keys=keys_of(args),
                         metadata=args.metadata)
    if args.action == "restore":
        return _restore(args, bucket)
    if args.action == "orphans" and not args.metadata:
        raise ConfigError("orphans needs --metadata: only the metadata topic says what is live")
    if args.action == "verify":
        return check_tier(_logs(bucket, args.partition), as_json=args.json)
    code = 0
    for log in _logs(bucket, args.partition):
        where = log.where
        assert isinstance(where, TieredFiles)
        if args.action == "orphans":
            orphans = find_orphans(where)
            code = 1 if orphans else code
            _print({"partition": str(log.topic_partition),
                    "orphans": [_finding(one) for one in orphans]},
                   [one.message for one in orphans], args.json)
            continue
        segments = [remote for remote, _ in where.pieces_of(log.segments)]
        first = segments[0].start_offset if segments else log.log_start_offset
        row = {"partition": str(log.topic_partition), "topic_id": log.topic_id,
               "segments": len(segments), "first_offset": first,
               "last_offset": log.log_end_offset - 1,
               "size": sum(one.size or 0 for one in segments),
               "leader_epochs": [[one.epoch, one.start_offset] for one in log.checkpointed_epochs],
               "findings": [_finding(one) for one in where.findings]}
        _print(row, [f"{row['partition']}  {row['topic_id'] or '-'}  {row['segments']} segments, "
                     f"offsets {first} to {row['last_offset']}, {row['size']} bytes",
                     *(f"  {one}" for one in where.findings)], args.json)
    return code


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
               [f"{found.name}: {found.segments} segments, {found.batches} batches, "
                f"{found.size} bytes: {'sound' if found.is_sound else 'damaged'}",
                *(f"  {one}" for one in found.findings)], as_json)
    return code


def _restore(args: argparse.Namespace, bucket: Bucket) -> int:
    if args.partition is None or args.target is None:
        raise ConfigError("restore needs TOPIC-PARTITION and the directory to make")
    log, = _logs(bucket, args.partition)
    count = restore(log, args.target)
    _print({"partition": args.partition, "target": args.target, "segments": count,
            "log_end_offset": log.log_end_offset},
           [f"{args.target}: {count} segments, offsets {log.log_start_offset} to "
            f"{log.log_end_offset - 1}"], args.json)
    return 0


def _logs(bucket: Bucket, name: str | None) -> Iterator[PartitionLog]:
    if name is not None:
        key = parse_directory_name(name).topic_partition
        yield bucket.log(key.topic, key.partition)
        return
    for one in bucket.partitions:
        key = TopicPartition(one.topic, one.partition)
        yield bucket.log(key.topic, key.partition, topic_id=one.topic_id)


def _finding(one: TierFinding) -> Row:
    return {"code": one.code, "message": one.message, "object": one.object,
            "first_offset": one.first_offset, "last_offset": one.last_offset}


def _print(row: Row, lines: list[str], as_json: bool) -> None:
    out = render.stdout()
    text = [json.dumps(row)] if as_json else lines
    out.writelines(f"{line}\n".encode() for line in text)
    out.flush()
