"""kcat's syntax for offsets and topics, and explanations of its options that need a broker."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from seglog.model import EARLIEST_TIMESTAMP, MAX_TIMESTAMP

if TYPE_CHECKING:  # a verb that only lists needs no reader
    from seglog.storage.isolation import Isolation
    from seglog.storage.partition_log import PartitionLog
    from seglog.storage.stream import OnDamage

__all__ = ["Bounds", "add_explained_options", "add_topic_options", "bounds_of", "partitions_of",
           "reached", "topics_of"]

_LIST = "lists topics and partitions of a cluster; here that is: seglog ls PATH"
_PRODUCE = ("produces records, and this command only reads; seglog.open in Python appends to a log "
            "of its own")
_EXPLAINED: dict[str, str] = {
    "-b": "names a broker, and this command reads a directory without one: give its path instead",
    "-L": _LIST,
    "-P": _PRODUCE,
    "-G": "joins a consumer group, which needs a broker; choose topics with -t and offsets with -o",
    "-Q": "asks a broker for offsets by time; here that is: seglog cat PATH -t TOPIC -o s@MS -c 1 "
          "-f '%%o\\n'",
    "-M": "starts a mock cluster, which this command does not have",
    "-X": "sets a property of a Kafka client, and there is none here; for isolation.level use "
          "--isolation",
    "-F": "reads properties of a Kafka client, and there is none here",
    "-d": "shows what a Kafka client does, and there is none here",
    "-m": "limits how long a broker may take, and there is none here",
    "-r": "names a schema registry, which this command does not use; print the bytes with -s, or "
          "with -J --base64, and decode them elsewhere",
}
_LONG = {"-b": "--bootstrap-server"}  # the console consumer's


class _Explain(argparse.Action):
    """Prints one sentence and exits with 2, "not done"."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace,
                 values: str | Sequence[Any] | None, option_string: str | None = None) -> None:
        sentence = _EXPLAINED[self.option_strings[0]].replace("%%", "%")
        parser.exit(2, f"seglog cat: {option_string} {sentence}\n")


def add_explained_options(parser: argparse.ArgumentParser) -> None:
    """Adds kcat's options that have no meaning here, or no effect."""
    for option in _EXPLAINED:
        names = [option, _LONG[option]] if option in _LONG else [option]
        parser.add_argument(*names, nargs="?", action=_Explain, dest="explained",
                            help=argparse.SUPPRESS)
    parser.add_argument("-C", action="store_true", dest="consumer",
                        help="accepted as in kcat: this command always consumes")
    parser.add_argument("-v", action="count", dest="verbose", help=argparse.SUPPRESS)


def add_topic_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds `-t` and `-p`."""
    parser.add_argument("-t", "--topic", action="append", metavar="TOPIC[,TOPIC...]",
                        help="topics: names, patterns of the shell ('orders-*') or regular "
                        f"expressions ('^orders'), with commas between; default: {default}")
    parser.add_argument("-p", "--partition", action="append", metavar="N[,N...]",
                        help="partitions, with commas between; default: all")


def topics_of(args: argparse.Namespace) -> list[str] | None:
    """The values of `-t`, or None. Raises ValueError for an empty one."""
    if args.topic is None:
        return None
    words: list[str] = []
    for text in args.topic:
        # A regular expression may hold commas.
        parts = [text] if text.startswith("^") else text.split(",")
        words += [part.strip() for part in parts]
    if not all(words):
        raise ValueError("-t: a topic is empty; is a variable not set?")
    return words


def partitions_of(args: argparse.Namespace) -> list[int] | None:
    """The values of `-p`, or None. Raises ValueError for one that is not a number."""
    if args.partition is None:
        return None
    found = []
    for word in ",".join(args.partition).split(","):
        if not word.strip().isdecimal():
            raise ValueError(f"-p: expected partition numbers with commas between, got {word!r}")
        found.append(int(word))
    return found


class Bounds(NamedTuple):
    """The meaning of `-o` for one partition: the first offset, and the end offset or None.

    `note` reports what the user may not expect; `is_outside` means that no record is in range.
    `until` is the time of `e@`; there is no end offset before a record reaches it.
    """

    start: int
    end: int | None
    note: str | None = None
    is_outside: bool = False
    until: int | None = None


def bounds_of(text: str, log: PartitionLog, name: str, isolation: Isolation,
              on_damage: OnDamage = "raise") -> Bounds:
    """Resolves kcat's `-o` for one log, called `name` in notes. Raises ValueError if invalid."""
    first, last = log.log_start_offset, log.end_offset(on_damage=on_damage)
    reach = log.end_offset(isolation, on_damage)
    found = Bounds(first, None)
    for word in text.split(","):
        if word in ("beginning", "earliest"):
            found = found._replace(start=first)
        elif word in ("end", "latest"):
            found = found._replace(start=reach)
        elif word == "stored":
            raise ValueError("-o: stored offsets are those of a consumer group, which needs a "
                             "broker; give beginning, end, an offset, -COUNT, s@MS or e@MS")
        elif word[:2] == "s@":
            found = _since(_integer(word[2:]), found, log, name, reach, on_damage)
        elif word[:2] == "e@":
            found = reached(found._replace(end=None, until=_millis(word[2:])), log,
                            on_damage)
        else:
            found = _at(_integer(word), found, name, first, last, reach)
    return found


def reached(bounds: Bounds, log: PartitionLog, on_damage: OnDamage) -> Bounds:
    """The bounds, with an end offset if a record has reached the time of `e@` by now."""
    if bounds.until is None or bounds.end is not None:
        return bounds
    hit = log.offset_for_timestamp(bounds.until, on_damage=on_damage)
    return bounds if hit is None else bounds._replace(end=hit.offset)


def _since(stamp: int, found: Bounds, log: PartitionLog, name: str, reach: int,
           on_damage: OnDamage) -> Bounds:
    hit = log.offset_for_timestamp(_millis(str(stamp)), on_damage=on_damage)
    if hit is not None:
        return found._replace(start=hit.offset)
    latest = log.offset_for_timestamp(MAX_TIMESTAMP, on_damage=on_damage)
    told = "" if latest is None else f"; the latest has timestamp {latest.timestamp}"
    return found._replace(start=reach, is_outside=True,
                          note=f"no record of {name} is at or after timestamp {stamp}{told}")


def _at(offset: int, found: Bounds, name: str, first: int, last: int, reach: int) -> Bounds:
    if offset < 0:
        return found._replace(start=max(first, reach + offset))
    if offset > last:
        return found._replace(
            start=offset, is_outside=True,
            note=f"offset {offset} of {name} is out of range: the log starts at {first} and ends "
                 f"at {last}")
    if offset < first:
        return found._replace(
            start=first, note=f"offset {offset} of {name} is gone: the log starts at {first}")
    return found._replace(start=offset)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"-o: expected beginning, end, an offset, -COUNT, s@MS or e@MS, "
                         f"got {text!r}") from None


def _millis(text: str) -> int:
    """A timestamp, or one of Kafka's special values."""
    stamp = _integer(text)
    if stamp < 0 and stamp not in (EARLIEST_TIMESTAMP, MAX_TIMESTAMP):
        raise ValueError(f"-o: timestamps are milliseconds since 1970, got {text!r}")
    return stamp
