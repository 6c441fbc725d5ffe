"""`seglog cat`: records to stdout in kcat's formats, from a directory instead of a broker."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

from seglog.cli import render
from seglog.cli.format import Formatter, compile_format, json_formatter
from seglog.errors import UnknownTopicOrPartitionError
from seglog.model import TopicPartition
from seglog.storage.discover import find_partitions
from seglog.storage.log import PartitionLog

__all__ = ["add_parser", "run"]

_POLL_SECONDS = 0.5  # how often a log is asked for new records when following it


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options of kcat that mean something without a broker."""
    parser = subparsers.add_parser(
        "cat", help="print records (kcat's formats)",
        description="Prints the records of one or more partitions. Without -e it follows them, as "
                    "kcat does, until Ctrl-C.")
    parser.add_argument("path", help="a data directory or one partition's directory")
    parser.add_argument("-t", "--topic", help="topic; default: all but Kafka's internal ones")
    parser.add_argument("-p", "--partition", type=int, help="partition; default: all")
    parser.add_argument("-o", "--offset", default="beginning",
                        help="where to start: beginning (default), end, OFFSET, -COUNT from the "
                             "end, s@TIMESTAMP; where to stop: e@TIMESTAMP (ms); commas between")
    parser.add_argument("-c", "--count", type=int, help="stop after so many records")
    parser.add_argument("-e", "--exit", action="store_true", help="exit at the end of the log")
    parser.add_argument("-q", "--quiet", action="store_true", help="no messages on stderr")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-f", "--format", help="%%s value %%S length %%R length in 4 bytes %%k key "
                      "%%K length %%T timestamp %%h headers %%t topic %%p partition %%o offset")
    form.add_argument("-J", "--json", action="store_true", help="one JSON object a line")
    parser.add_argument("-D", "--delimiter", default="\\n", help="between records, default \\n")
    parser.add_argument("-K", "--key-delimiter", help="print keys, with this behind them")
    parser.add_argument("-O", "--print-offset", action="store_true",
                        help="print the offset before each record")
    parser.add_argument("-Z", "--null", action="store_true", help='print null as "NULL"')
    parser.add_argument("--base64", action="store_true",
                        help="with -J: keys, payloads and header values in base64")
    parser.add_argument("--isolation", choices=("read_uncommitted", "read_committed"),
                        default="read_committed", help="default as in kcat: read_committed")
    parser.add_argument("--threads", type=int, default=0, help="decode ahead with so many threads")


def run(args: argparse.Namespace) -> int:
    """Prints, and follows unless told to exit. 2 for options that make no sense."""
    try:
        logs = _select(args)
        bounds = [_bounds(args.offset, log, args.isolation) for _, log in logs]
        formatters = [_formatter(args, tp) for tp, _ in logs]
    except ValueError as error:
        render.error(error)
        return 2
    _print(args, logs, bounds, formatters)
    return 0


def _select(args: argparse.Namespace) -> list[tuple[TopicPartition, PartitionLog]]:
    found = find_partitions(args.path)
    wanted = [(tp, path) for tp, path in sorted(found.items())
              if (args.topic in (None, tp.topic) and args.partition in (None, tp.partition))
              and (args.topic is not None or len(found) == 1 or not tp.topic.startswith("__"))]
    if not wanted:
        name = args.topic if args.topic is not None else "no topic"
        part = "" if args.partition is None else f", partition {args.partition}"
        raise UnknownTopicOrPartitionError(f"{args.path}: {name}{part} is not here")
    return [(tp, PartitionLog.open(path, topic_partition=tp)) for tp, path in wanted]


def _bounds(text: str, log: PartitionLog, isolation: str) -> tuple[int, int | None]:
    """kcat's -o to (first offset, end offset or None)."""
    last = log.log_end_offset if isolation == "read_uncommitted" else log.last_stable_offset
    start, end = log.log_start_offset, None
    for word in text.split(","):
        if word in ("beginning", "earliest"):
            start = log.log_start_offset
        elif word in ("end", "latest"):
            start = last
        elif word[:2] in ("s@", "e@"):
            hit = log.offset_for_timestamp(_integer(word[2:]))
            if word[0] == "s":
                start = last if hit is None else hit.offset
            else:
                end = None if hit is None else hit.offset
        elif _integer(word) < 0:
            start = max(log.log_start_offset, last + _integer(word))
        else:
            start = max(log.log_start_offset, _integer(word))
    return start, end


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"-o: expected beginning, end, an offset, -COUNT, s@MS or e@MS, "
                         f"got {text!r}") from None


def _formatter(args: argparse.Namespace, tp: TopicPartition) -> Formatter:
    if args.json:
        return json_formatter(tp, "base64" if args.base64 else "text")
    text = args.format
    if text is None:
        offset = "%o: " if args.print_offset else ""
        key = "" if args.key_delimiter is None else "%k" + args.key_delimiter
        text = offset + key + "%s" + args.delimiter
    return compile_format(text, tp, b"NULL" if args.null else b"")


def _print(args: argparse.Namespace, logs: Sequence[tuple[TopicPartition, PartitionLog]],
           bounds: Sequence[tuple[int, int | None]], formatters: Sequence[Formatter]) -> None:
    out = render.stdout()
    left = args.count
    nexts = [start for start, _ in bounds]
    reported = [False] * len(logs)
    while True:
        for number, (tp, log) in enumerate(logs):
            for raw, rows, after in _batches(args, log, nexts[number], bounds[number][1],
                                             formatters[number], left):
                out.write(raw)
                nexts[number] = after
                if rows:
                    reported[number] = False
                if left is not None:
                    left -= rows
            out.flush()
            if left == 0:
                return
            if not args.quiet and not reported[number]:
                render.message(f"% Reached end of topic {tp.topic} [{tp.partition}] "
                               f"at offset {nexts[number]}")
                reported[number] = True
        if args.exit:
            return
        time.sleep(_POLL_SECONDS)
        for _, log in logs:
            log.refresh()


def _batches(args: argparse.Namespace, log: PartitionLog, start: int, end: int | None,
             formatter: Formatter, left: int | None) -> Iterator[tuple[bytes, int, int]]:
    """(output, rows in it, next offset) for the records from `start` on, at most `left` rows."""
    last = log.log_end_offset if args.isolation == "read_uncommitted" else log.last_stable_offset
    stop = last if end is None else min(end, last)
    if left == 0 or start >= stop:
        return
    columns = tuple(dict.fromkeys((*formatter.columns, "offset")))
    rows_at_once = 65536 if left is None else max(1, min(65536, left))
    with log.to_arrow(start, stop, columns, args.isolation, threads=args.threads,
                      batch_rows=rows_at_once) as stream:
        for batch in stream:
            lists = batch.to_pylists()
            count = batch.num_rows if left is None else min(batch.num_rows, left)
            yield formatter.render(lists, count), count, lists["offset"][count - 1] + 1
            if left is not None:
                left -= count
                if left == 0:
                    return
    yield b"", 0, stop
