"""`--skip-damaged` of the verbs that read records: reports lost records on stderr."""

from __future__ import annotations

import argparse

from seglog.cli import render
from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.model import TopicPartition
from seglog.storage.ranges import LogGap

__all__ = ["GapReport", "add_skip_damaged", "explain_damage"]


class GapReport:
    """Prints the gaps that reads find, each once, even if a log is read again."""

    def __init__(self) -> None:
        self._told: set[tuple[str, int, int | None]] = set()
        self.found: list[tuple[TopicPartition, LogGap]] = []

    def __bool__(self) -> bool:
        return bool(self.found)

    def add(self, tp: TopicPartition, gap: LogGap) -> None:
        """Adds a gap of a partition; an overlap loses no record."""
        # Transactions in doubt have no position of their own.
        begins = gap.first_offset if gap.kind == "transaction_in_doubt" else None
        where = (gap.file, gap.position, begins)
        if gap.kind != "overlap" and where not in self._told:
            self._told.add(where)
            self.found.append((tp, gap))
            render.message(f"% {tp.topic} [{tp.partition}]: {gap}")


def add_skip_damaged(parser: argparse.ArgumentParser) -> None:
    """Adds the option, stored as `on_damage`."""
    parser.add_argument("--skip-damaged", action="store_const", const="skip", default="raise",
                        dest="on_damage", help="continue after damaged batches, say on stderr what "
                        "each gap cost, and exit with 1 if there was one")


def explain_damage(args: argparse.Namespace, error: CorruptDataError | KafkaStorageError) -> None:
    """Prints the error that ended a read, and how to continue after it."""
    render.error(error)
    if args.on_damage == "raise":
        render.message("seglog: --skip-damaged continues after the damage and reports what it cost")
