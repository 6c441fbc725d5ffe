"""`seglog tier lint`: the records of __remote_log_metadata against Kafka's rules."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from seglog.arguments import given_path
from seglog.cli import render
from seglog.cli.option_numbers import number_from
from seglog.cli.tier_options import add_layout_options, pairs_of, tier_of
from seglog.dump.topic_facts import read_topic_facts
from seglog.recovery.claims import counted
from seglog.tiered.metadata_lint import check_topic_config, lint_metadata
from seglog.tiered.metadata_topic import REMOTE_LOG_METADATA_TOPIC

__all__ = ["add_options", "run"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the action."""
    parser.add_argument("path", nargs="+", type=given_path, metavar="DIR",
                        help="the data directories of a broker, with partitions of "
                        f"{REMOTE_LOG_METADATA_TOPIC}")
    parser.add_argument("--remote", metavar="URL", type=given_path,
                        help="directory or URL of the remote segments: finds absent objects too")
    add_layout_options(parser)
    parser.add_argument("--partitions", type=number_from(1), metavar="N",
                        help="partitions of the topic; default: those of __cluster_metadata, else "
                        "what fits most records")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE",
                        help="a setting of the topic; default: those of __cluster_metadata")
    parser.add_argument("--grace", type=number_from(0), default=3600, metavar="SECONDS",
                        help="a copy or deletion that is younger may be under way; default: 3600")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints the findings. 1 if one of them is an error or a warning."""
    given = {name.strip(): value for name, value in
             pairs_of("--config", args.config, "KEY=VALUE").items()}
    known = [facts for path in args.path
             if (facts := read_topic_facts(path, REMOTE_LOG_METADATA_TOPIC)) is not None]
    count = args.partitions or (known[0].partitions if known else 0) or None
    lint = lint_metadata(*args.path, partition_count=count, bucket=tier_of(args),
                         grace_ms=args.grace * 1000)
    config = {**(known[0].config if known else {}), **given}
    findings = [*check_topic_config(config, is_complete=bool(known)), *lint.findings]
    is_sound = all(one.severity == "info" for one in findings)
    out = render.stdout()
    if args.json:
        out.write(render.json_line({
            "metadata_partitions": list(lint.metadata_partitions),
            "partition_count": lint.partition_count, "records": lint.records,
            "partitions": lint.user_partitions, "segments": lint.segments, "ok": is_sound,
            "findings": [asdict(one) for one in findings]}))
    else:
        compared = "an unknown number" if lint.partition_count is None else lint.partition_count
        out.writelines(render.text_line(str(one)) for one in findings)
        out.write(f"{REMOTE_LOG_METADATA_TOPIC}: {len(lint.metadata_partitions)} of {compared} "
                  f"partitions, {counted(lint.records, 'record')} of "
                  f"{counted(lint.user_partitions, 'partition')}, "
                  f"{counted(lint.segments, 'segment')}: "
                  f"{'sound' if is_sound else 'not sound'}\n".encode())
    out.flush()
    return 0 if is_sound else 1
