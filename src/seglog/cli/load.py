"""`seglog load`: what a broker would find at its start, and with `--recover` what it would do."""

from __future__ import annotations

import argparse
import logging
import os
import sys

from seglog.cli import render
from seglog.cli.report import (
    add_load_options, load_options, load_properties, load_with_progress, print_json, print_report,
)
from seglog.config import BrokerConfig
from seglog.errors import ConfigError
from seglog.recovery.findings import Severity
from seglog.recovery.plan import LoadLevel

__all__ = ["add_parser", "run"]

_THREADS = ("num.segment.loading.threads.per.data.dir", "num.recovery.threads.per.data.dir")
_EXPIRATION = "producer.id.expiration.ms"
_CHECK_ALL = "sanity.check.all.logs.enabled"
_SANITY_LEVEL = "sanity.check.level"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options of the verb."""
    parser = subparsers.add_parser(
        "load", help="load a data directory and report what is wrong; --recover repairs it",
        description="Loads data directories as a starting broker would, segments in parallel, and "
                    "reports what it would delete, repair, recover and refuse. Reads only, unless "
                    "--recover is given. Exit code 0: nothing lost; 1: a finding of severity error "
                    "or fatal, or a log that does not load; 2: not done.")
    add_load_options(parser)
    parser.add_argument("--level", choices=[level.value for level in LoadLevel],
                        help="kafka: what Kafka checks at start (default); full: every index "
                        "entry too; verify: every batch too, and where a recovery would cut (not "
                        "with --recover)")
    parser.add_argument("--recover", action="store_true",
                        help="recover the directories of a stopped broker, so that it starts with "
                        "nothing to recover")
    parser.add_argument("--dry-run", action="store_true",
                        help="what --recover would cut, delete and rebuild; touches nothing")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="with --recover: Kafka's log messages on stderr")
    parser.add_argument("--quarantine", metavar="DIR",
                        help="with --recover: keep the bytes that are cut from logs here")


def run(args: argparse.Namespace) -> int:
    """Loads every path; 1 if a finding is an error or worse."""
    if args.recover or args.dry_run:
        return _recover(args)
    if args.quarantine is not None:
        raise ConfigError("--quarantine is for --recover")
    args.level = args.level or LoadLevel.KAFKA.value
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


def _recover(args: argparse.Namespace) -> int:
    # Only here: a load that reads has no use for a log manager.
    from seglog.cli.recover import (
        RecoverySettings, recover_directories, rehearse, report_duplicates,
    )
    from seglog.cli.recovery_report import RecoveryBar, print_outcomes, print_states

    if args.verbose:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO,
                            format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)")
    properties = load_properties(args, *_THREADS)
    if args.level is not None:
        properties[_SANITY_LEVEL] = args.level
    properties[_CHECK_ALL] = True  # nothing is left for later: the manager ends at once
    broker = BrokerConfig.from_properties(properties)
    settings = RecoverySettings(
        broker, broker.log_config(dict(args.config)),
        broker.producer_id_expiration_ms if _EXPIRATION in properties else None,
        None if args.quarantine is None else os.path.abspath(args.quarantine), args.json)
    paths = [os.path.abspath(path) for path in args.path]
    with RecoveryBar("rehearsing" if args.dry_run else "recovering") as bar:
        if args.dry_run:
            outcomes = [rehearse(path, settings, bar) for path in paths]
        else:
            outcomes = recover_directories(paths, settings, bar)
    report_duplicates(outcomes)
    if args.json:
        print_states(outcomes)
    else:
        print_outcomes(outcomes, is_rehearsal=args.dry_run, show_all=args.all)
    stopped = [one.error for one in outcomes if one.error is not None]
    for error in stopped:
        render.error(error)
    if stopped:
        return 2
    return 1 if any(one.severity >= Severity.ERROR for one in outcomes) else 0
