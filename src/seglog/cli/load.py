"""`seglog load`: what a broker would find at its start, without changing anything."""

from __future__ import annotations

import argparse

from seglog.cli.report import (
    add_load_options, load_options, load_with_progress, print_json, print_report,
)
from seglog.recovery.findings import Severity
from seglog.recovery.plan import LoadLevel

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options of the verb."""
    parser = subparsers.add_parser(
        "load", help="load a data directory and report what is wrong",
        description="Loads data directories as a starting broker would, segments in parallel, and "
                    "reports what it would delete, repair, recover and refuse. Reads only. Exit "
                    "code 0: nothing lost; 1: a finding of severity error or fatal; 2: not loaded.")
    add_load_options(parser)
    parser.add_argument("--level", choices=[level.value for level in LoadLevel], default="kafka",
                        help="kafka: what Kafka checks at start (default); full: every index "
                        "entry too; verify: every batch too, and where a recovery would cut")


def run(args: argparse.Namespace) -> int:
    """Loads every path; 1 if a finding is an error or worse."""
    options = load_options(args)
    reports = [load_with_progress(path, options) for path in args.path]
    if args.json:
        print_json(reports)
    else:
        for report in reports:
            print_report(report, args.all)
    worst = max((report.severity for report in reports if report.severity is not None),
                default=Severity.INFO)
    return 1 if worst >= Severity.ERROR else 0
