"""`seglog verify`: the CRC of every batch, every index against its log."""

from __future__ import annotations

import argparse

from seglog.cli import load
from seglog.cli.report import add_load_options

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options of the verb."""
    parser = subparsers.add_parser(
        "verify", help="check every batch and every index",
        description="Reads every batch of every segment and checks length, CRC and header, and "
                    "every index entry against the log. Reads only. Exit code 0: sound (warnings "
                    "are what Kafka repairs at its start without losing a record); 1: something "
                    "is damaged; 2: not checked.")
    add_load_options(parser)
    parser.set_defaults(level="verify", recover=False, dry_run=False, quarantine=None)


def run(args: argparse.Namespace) -> int:
    """A load at the level that reads everything."""
    return load.run(args)
