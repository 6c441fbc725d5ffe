"""`seglog cat`: prints records in kcat's formats, from a directory instead of a broker."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from seglog.arguments import given_path
from seglog.cli import render
from seglog.cli.format import Columns, Formatter, compile_format, json_formatter
from seglog.cli.found_logs import found_logs
from seglog.cli.gaps import GapReport, add_skip_damaged, explain_damage
from seglog.cli.kcat import (
    Bounds, add_explained_options, add_topic_options, bounds_of, partitions_of, reached, topics_of,
)
from seglog.cli.option_numbers import number_from
from seglog.cli.tier_options import add_tier_options, tier_of
from seglog.cli.unpack import UnpackError, parse_deserializers
from seglog.errors import CorruptDataError, KafkaStorageError, UnknownTopicOrPartitionError
from seglog.model import TopicPartition
from seglog.storage.partition_log import PartitionLog
from seglog.storage.polling import Pauses, TopicWatch
from seglog.storage.selection import is_internal, select_partitions

__all__ = ["add_parser", "run"]

_POLL_SECONDS = 0.5  # between checks for new records when following a log


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds kcat's consumer options; those that need a broker print an explanation."""
    parser = subparsers.add_parser(
        "cat", help="print records (kcat's formats)",
        description="Prints the records of one or more partitions. Without -e it follows them, as "
                    "kcat does, until Ctrl-C or the time of e@TIMESTAMP.",
        epilog="Exit code 1 when an offset is out of range, or when -e finds no record at or after "
               "the time of s@MS, or when records are damaged.")
    parser.add_argument("path", type=given_path, nargs="?",
                        help="a data directory or one partition's directory")
    add_tier_options(parser)
    add_topic_options(parser, "all but Kafka's internal ones")
    parser.add_argument("-o", "--offset", action="append",
                        help="where to start: beginning (default), end, OFFSET, -COUNT from the "
                             "end, s@TIMESTAMP; where to stop: e@TIMESTAMP (ms); commas between, "
                             "or several times as in kcat")
    parser.add_argument("-c", "--count", type=number_from(0), help="stop after so many records")
    parser.add_argument("-e", "--exit", action="store_true", help="exit at the end of the log")
    parser.add_argument("-q", "--quiet", action="store_true", help="no messages on stderr")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-f", "--format", help="%%s value %%S length %%R length in 4 bytes %%k key "
                      "%%K length %%T timestamp %%h headers %%t topic %%p partition %%o offset")
    form.add_argument("-J", "--json", action="store_true", help="one JSON object a line")
    parser.add_argument("-s", "--deserializer", action="append", default=[], metavar="[key=]PACK",
                        help="print keys and values (or one of them) as numbers and text: <, > "
                        "byte order, b B h H i I q Q integers of 1, 2, 4, 8 bytes, c a byte, s the "
                        "rest, $ the end")
    parser.add_argument("-D", "--delimiter", default="\\n", help="between records, default \\n")
    parser.add_argument("-K", "--key-delimiter", help="print keys, with this after them")
    parser.add_argument("-O", "--print-offset", action="store_true",
                        help="print the offset before each record")
    parser.add_argument("-Z", "--null", action="store_true", help='print null as "NULL"')
    parser.add_argument("-u", "--unbuffered", action="store_true",
                        help="write each batch of records at once")
    parser.add_argument("--base64", action="store_true",
                        help="with -J: keys, payloads and header values in base64")
    parser.add_argument("--isolation", choices=("read_uncommitted", "read_committed"),
                        default="read_uncommitted",
                        help="read_committed leaves aborted and open transactions out, as kcat "
                        "does; default: read_uncommitted, as everywhere in seglog and as Kafka's "
                        "consumer")
    add_skip_damaged(parser)
    parser.add_argument("--threads", type=int, default=0, help="decode ahead with so many threads")
    add_explained_options(parser)


@dataclass(slots=True)
class _Source:
    """One partition to print, from the offset `next` on."""

    tp: TopicPartition
    log: PartitionLog
    bounds: Bounds
    formatter: Formatter
    topic: TopicWatch
    next: int
    is_reported: bool = False  # its end


class _NotOpenedError(Exception):
    """A partition that does not open; the cause says why."""


def run(args: argparse.Namespace) -> int:
    """Prints the records, then follows the logs unless `-e` is set.

    Returns 2 for invalid options and for a log that does not open, 1 for an offset out of range or
    a value that `-s` cannot unpack.
    """
    try:
        printing = _Printing(args)
    except ValueError as error:
        render.error(error)
        return 2
    try:
        printing.run()
    except _NotOpenedError as error:
        render.error(error.__cause__ or error)
        return 2
    except UnpackError as error:
        render.error(error)
        return 1
    except (CorruptDataError, KafkaStorageError) as error:
        explain_damage(args, error)
        return 1
    return printing.exit_code


def _remark(text: str) -> None:
    render.message(f"% {text}")


class _Printing:
    """One run. A partition is opened when it is its turn, so that the first record does not wait
    for the last of thousands of partitions."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Chooses the partitions. Raises ValueError."""
        self._args, self._left = args, args.count
        self._offset = "beginning" if args.offset is None else ",".join(args.offset)
        self._by_time = "s@" in self._offset
        self._place = place = args.path or args.remote
        self._found = found_logs(args.path, tier_of(args))
        topics = topics_of(args)
        self._chosen = select_partitions(self._found, topics, partitions_of(args), place)
        if topics is None and len(self._found) > 1:
            self._chosen = [tp for tp in self._chosen if not is_internal(tp.topic)]
        if not self._chosen:
            raise UnknownTopicOrPartitionError(
                f"{place}: there is no partition here" + (
                    " but those of Kafka's internal topics; name one with -t" if self._found
                    else ""))
        self._unpack = parse_deserializers(args.deserializer)
        if self._unpack and args.json:
            raise ValueError("-s does not go with -J, which shows text; use -f, or -J --base64")
        self._gaps = GapReport()
        self._opened = self._outside = 0
        self._is_said = False  # the isolation level

    @property
    def exit_code(self) -> int:
        """The exit code of a run that came to its end."""
        if self._gaps:
            return 1
        if self._by_time:
            return 1 if self._args.exit and self._outside == self._opened else 0
        return 1 if self._outside else 0

    def run(self) -> None:
        """Prints. Raises _NotOpenedError, and what reads raise."""
        followed = []
        for tp in self._chosen:
            source = self._open(tp)
            if source is None:
                continue
            self._print(source)
            if self._left == 0:
                return
            if self._args.exit or source.bounds.end is not None:
                source.log.close()
            else:
                followed.append(source)
        if not self._opened:
            raise UnknownTopicOrPartitionError(
                f"{self._place}: these partitions are gone since they were listed")
        pauses = Pauses(_POLL_SECONDS, [source.log for source in followed])
        while followed:
            time.sleep(pauses.next())
            for source in followed:
                source.log.refresh()
            for source in followed:
                before = source.next
                self._print(source)
                if self._left == 0:
                    return
                if source.next != before:
                    pauses.reset()
            followed = [source for source in followed if source.bounds.end is None]

    def _open(self, tp: TopicPartition) -> _Source | None:
        """None for a partition without a record to print or to wait for, or that is gone."""
        args, found = self._args, self._found[tp]
        try:
            log = found.open()
            formatter = _formatter(args, tp).with_unpacked(self._unpack)
            bounds = bounds_of(self._offset, log, str(tp), args.isolation, args.on_damage)
        except (ValueError, KafkaStorageError) as error:
            # Of many partitions a running broker may delete one meanwhile.
            if len(self._chosen) == 1 or not found.is_gone():
                raise _NotOpenedError from error
            if not args.quiet:
                _remark(f"{tp} is gone since it was listed")
            return None
        self._opened += 1
        self._outside += bounds.is_outside
        # A future time is a reason to wait; an offset after the log's end is a mistake.
        is_left = self._by_time or not bounds.is_outside
        if bounds.note and not is_left:
            render.error(bounds.note)
        elif bounds.note and not args.quiet:
            _remark(bounds.note)
        if is_left and not args.quiet and not self._is_said:
            _remark(f"isolation level {args.isolation}")
            self._is_said = True
        return _Source(tp, log, bounds, formatter, TopicWatch(), bounds.start) if is_left else None

    def _print(self, source: _Source) -> None:
        """Prints what is there of a partition."""
        args, out = self._args, render.stdout()
        if not args.exit:
            source.topic.check(source.log)
            source.bounds = reached(source.bounds, source.log, args.on_damage)
        for raw, rows, after in _batches(args, source, self._left, self._gaps):
            out.write(raw)
            if args.unbuffered:
                out.flush()
            source.next = after
            if rows:
                source.is_reported = False
            if self._left is not None:
                self._left -= rows
        out.flush()
        if self._left != 0 and not args.quiet and not source.is_reported:
            _report_end(args, source)
            source.is_reported = True


def _formatter(args: argparse.Namespace, tp: TopicPartition) -> Formatter:
    if args.json:
        return json_formatter(tp, "base64" if args.base64 else "text")
    text = args.format
    if text is None:
        offset = "%o: " if args.print_offset else ""
        key = "" if args.key_delimiter is None else "%k" + args.key_delimiter
        text = offset + key + "%s" + args.delimiter
    return compile_format(text, tp, b"NULL" if args.null else b"")


def _report_end(args: argparse.Namespace, source: _Source) -> None:
    """Prints kcat's line, and what the isolation level left out."""
    tp, log, offset = source.tp, source.log, source.next
    _remark(f"Reached end of topic {tp.topic} [{tp.partition}] at offset {offset}")
    aborted = sum(one.last_offset > source.bounds.start  # which is the marker's
                  for one in log.aborted_transactions(source.bounds.start, offset))
    told = [f"{count} {word}" for count, word in (
        (aborted, "aborted"), (len(log.open_transactions), "open")) if count]
    if told:
        done = ("among the records; --isolation read_committed leaves them out"
                if args.isolation == "read_uncommitted" else "left out")
        _remark(f"transactions of {tp.topic} [{tp.partition}]: {' and '.join(told)}, {done}")


def _batches(args: argparse.Namespace, source: _Source, left: int | None, gaps: GapReport
             ) -> Iterator[tuple[bytes, int, int]]:
    """(output, rows in it, next offset) for the records from the next on, at most `left` rows."""
    log, formatter, start, end = source.log, source.formatter, source.next, source.bounds.end
    last = log.end_offset(args.isolation, args.on_damage)
    stop = last if end is None else min(end, last)
    if left == 0 or start > log.end_offset(on_damage=args.on_damage):
        return
    columns = tuple(dict.fromkeys((*formatter.columns, "offset")))
    rows_at_once = 65536 if left is None else max(1, min(65536, left))
    # To the requested end, also if nothing precedes it: damage may be what `last` ends before.
    with log.to_arrow(start, end, columns, args.isolation,
                      threads=args.threads if start < stop else 0,
                      batch_rows=rows_at_once, on_damage=args.on_damage,
                      on_gap=partial(gaps.add, source.tp)) as stream:
        for batch in stream:
            lists = batch.to_pylists()
            count = batch.num_rows if left is None else min(batch.num_rows, left)
            yield from _rendered(formatter, lists, count)
            if left is not None:
                left -= count
                if left == 0:
                    return
    yield b"", 0, max(start, stop)


def _rendered(formatter: Formatter, lists: Columns, count: int) -> Iterator[tuple[bytes, int, int]]:
    """The first `count` rows. Raises UnpackError after yielding the rows before the bad one."""
    failure: UnpackError | None = None
    while count:
        try:
            yield formatter.render(lists, count), count, lists["offset"][count - 1] + 1
            break
        except UnpackError as error:
            failure, count = error, error.row
    if failure is not None:
        raise failure
