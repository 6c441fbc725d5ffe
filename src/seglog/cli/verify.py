"""`seglog verify`: the CRC of every batch, every index against its log."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from seglog.arguments import require_local
from seglog.cli import load
from seglog.cli.bar import LoadBar
from seglog.cli.report import add_load_options, load_options, load_part, print_parts
from seglog.cli.tier_options import add_tier_options, tier_of
from seglog.errors import ConfigError
from seglog.model import TopicPartition
from seglog.storage.discover import find_partitions
from seglog.storage.partition_log import PartitionLog
from seglog.storage.place import refuse_duplicates

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb's options."""
    parser = subparsers.add_parser(
        "verify", help="check every batch and every index",
        description="Reads every batch of every segment and checks length, CRC and header, and "
                    "every index entry against the log. Reads only. Exit code 0: sound (warnings "
                    "are what Kafka repairs at its start without losing a record); 1: something "
                    "is damaged; 2: not checked.")
    add_load_options(parser)
    parser.add_argument("--spark", metavar="MASTER", help="spread the work over the executors of "
                        "this Spark master, such as spark://host:7077 or local[4]; every executor "
                        "sees the directories under the same names")
    add_tier_options(parser, "the tier of the partitions below PATH is checked instead of their "
                     "files")
    parser.set_defaults(level="verify", recover=False, dry_run=False, quarantine=None,
                        states=False)


def run(args: argparse.Namespace) -> int:
    """A load at the level that reads everything."""
    refuse_duplicates(args.path)
    if args.remote is not None and (args.spark is not None or args.threads is not None):
        raise ConfigError("--spark and --threads are for the files of a directory; with --remote "
                          "the tier is checked, one partition after the other")
    tier = None if args.remote is None else tier_of(args)
    if tier is not None:
        from seglog.cli.tier import check_tier

        return check_tier((PartitionLog.open(path, topic_partition=key, remote=tier)
                           for key, path in found_in(args.path)), as_json=args.json)
    return load.run(args) if args.spark is None else _run_on_spark(args)


def found_in(paths: list[str]) -> Iterator[tuple[TopicPartition, str]]:
    """The partitions below paths, and where each lies."""
    for path in paths:
        yield from sorted(find_partitions(path).items())


def _run_on_spark(args: argparse.Namespace) -> int:
    for path in args.path:
        require_local(path)
    if not args.spark:
        raise ConfigError("--spark: the master is empty (is a variable not set?); one is local[4]")
    if args.threads is not None:
        raise ConfigError("--threads is for a run on this machine; with --spark the master says "
                          "how many cores there are, such as local[4]")
    options = load_options(args)
    try:
        from seglog.spark.verification import verify_on
    except ImportError as error:
        raise ConfigError(f"--spark: {error}") from None
    with LoadBar("verifying", reads=True) as bar:
        reports = verify_on(args.spark, args.path, options, bar)
    parts = [load_part(path, report) for path, report in zip(args.path, reports, strict=True)]
    return print_parts(args.verb, parts, as_json=args.json, show_all=args.all)
