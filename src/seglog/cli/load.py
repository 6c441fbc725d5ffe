"""`seglog load`: what a broker would find at its start, and with `--recover` what it would do."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seglog.arguments import given_path, require_local
from seglog.cli import render
from seglog.cli.bar import LoadBar
from seglog.cli.document import print_document
from seglog.cli.imports import importing
from seglog.cli.report import (
    add_load_options, load_options, load_part, load_properties, load_with_progress, print_parts,
)
from seglog.cli.summary import joined
from seglog.config import BrokerConfig
from seglog.errors import ConfigError
from seglog.recovery.partition_plan import LoadLevel
from seglog.recovery.rows import exit_code
from seglog.storage.place import refuse_duplicates

if TYPE_CHECKING:
    from seglog.cli.recover import DirectoryOutcome

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
                        "entry too; verify: every batch too, and where a recovery would cut; with "
                        "--recover: segments that need no recovery are read too")
    parser.add_argument("--recover", action="store_true",
                        help="recover the directories of a stopped broker, so that it starts with "
                        "nothing to recover")
    parser.add_argument("--dry-run", action="store_true",
                        help="what --recover would cut, delete and rebuild; touches nothing")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="with --recover: Kafka's log messages on stderr")
    parser.add_argument("--quarantine", metavar="DIR", type=given_path,
                        help="with --recover: keep the bytes that are cut from logs here")
    parser.add_argument("--states", action="store_true",
                        help="with --recover or --dry-run: the state of each log as JSON by "
                        "directory name, under the keys of Kafka's own loader")


def run(args: argparse.Namespace) -> int:
    """Loads every path; 1 if a finding is an error or worse."""
    for path in args.path:
        require_local(path)
    if args.recover or args.dry_run:
        return _recover(args)
    for name in ("quarantine", "states"):
        if getattr(args, name):
            raise ConfigError(f"--{name} is for --recover and --dry-run")
    args.level = args.level or LoadLevel.KAFKA.value
    options = load_options(args)
    refuse_duplicates(args.path)
    parts = [load_part(path, load_with_progress(path, options)) for path in args.path]
    return print_parts(args.verb, parts, as_json=args.json, show_all=args.all)


def _recover(args: argparse.Namespace) -> int:
    # Only here: a load that reads has no use for a log manager.
    with importing():
        from seglog.cli.recover import (
            RecoverySettings, announce, dry_run, recover_directories, report_duplicates,
        )

    if args.verbose:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO,
                            format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)")
    properties = load_properties(args, *_THREADS)
    reads_all = args.level == LoadLevel.VERIFY
    if args.level is not None:
        properties[_SANITY_LEVEL] = LoadLevel.FULL.value if reads_all else args.level
    properties[_CHECK_ALL] = True  # nothing is left for later: the manager ends at once
    broker = BrokerConfig.from_properties(properties)
    settings = RecoverySettings(
        broker, broker.log_config(dict(args.config)),
        broker.producer_id_expiration_ms if _EXPIRATION in properties else None,
        None if args.quarantine is None else os.path.abspath(args.quarantine),
        args.json or args.states, reads_all)
    paths = [os.path.abspath(path) for path in args.path]
    refuse_duplicates(paths)
    with LoadBar("dry run" if args.dry_run else "recovering") as bar:
        if bar.is_visible:
            announce(paths, settings, bar)
        if args.dry_run:
            outcomes = [dry_run(path, settings, bar) for path in paths]
        else:
            outcomes = recover_directories(paths, settings, bar)
    report_duplicates(outcomes)
    parts = [outcome.part(settings) for outcome in outcomes]
    if args.states:
        print_document(states_of(outcomes))
        code = exit_code(*joined(parts))
    else:
        code = print_parts("dry-run" if args.dry_run else "recover", parts, as_json=args.json,
                           show_all=args.all)
    for outcome in outcomes:
        if outcome.error is not None:
            render.error(outcome.error)
    return code


def states_of(outcomes: Sequence[DirectoryOutcome]) -> dict[str, Any]:
    """For comparisons with Kafka's own loader: the state of each partition directory by its name;
    of several data directories one such object by their names, or paths where a name is twice."""
    shown: list[dict[str, Any]] = []
    for outcome in outcomes:
        states: dict[str, Any] = {name: {**outcome.states[name], "findings": []}
                                  for name in sorted(outcome.states)}
        for found in outcome.findings:
            if found.directory in states:
                states[found.directory]["findings"].append(found.to_dict())
        shown.append(states)
    if len(shown) == 1:
        return shown[0]
    names = [os.path.basename(outcome.path) for outcome in outcomes]
    if len(set(names)) < len(names):
        names = [outcome.path for outcome in outcomes]
    return dict(zip(names, shown, strict=True))
