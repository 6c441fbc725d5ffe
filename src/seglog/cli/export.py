"""`seglog export`: the records of topics as Parquet, Arrow, CSV or JSON lines."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime

from seglog.arguments import given_path
from seglog.arrow import COLUMNS, ORIGIN_COLUMNS, TOPIC_COLUMNS, TopicStream
from seglog.arrow.topics import to_millis
from seglog.cli import render
from seglog.cli.found_logs import FoundLog, found_logs
from seglog.cli.gaps import GapReport, add_skip_damaged, explain_damage
from seglog.cli.kcat import add_topic_options, partitions_of, topics_of
from seglog.cli.tier_options import add_tier_options, tier_of
from seglog.errors import (
    ConfigError, CorruptDataError, KafkaStorageError, UnknownTopicOrPartitionError,
)
from seglog.export import FORMATS, CountedFile, OutputFile, format_of, make_sink
from seglog.model import TopicPartition
from seglog.storage.selection import is_internal, select_partitions

__all__ = ["add_export_options", "add_parser", "export", "run"]

_BATCH_ROWS, _BATCH_BYTES = 65536, 32 << 20


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb's options."""
    parser = subparsers.add_parser(
        "export", help="write records as Parquet, Arrow, CSV or JSON lines",
        description="Writes the records of topics to one file, partition after partition, in "
                    "bounded memory. The file appears when it is complete. Parquet and Arrow need "
                    "pyarrow: pip install 'seglog[export]'.")
    parser.add_argument("path", type=given_path, nargs="?",
                        help="a data directory or one partition's directory")
    add_tier_options(parser)
    add_export_options(parser)


def add_export_options(parser: argparse.ArgumentParser) -> None:
    """Which records are written, and how."""
    add_topic_options(parser, "all but Kafka's internal ones")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", type=given_path,
                        help="where to write; - is stdout (with --format)")
    parser.add_argument("--format", choices=sorted(FORMATS),
                        help="default: by the suffix of FILE; arrow is the IPC file format "
                        "(Feather), arrows the IPC stream format")
    parser.add_argument("--columns", metavar="NAME,...", help="of "
                        f"{', '.join((*ORIGIN_COLUMNS, *COLUMNS))}; default: the first eight")
    parser.add_argument("--start-offset", type=int, metavar="N", help="first offset of each "
                        "partition")
    parser.add_argument("--end-offset", type=int, metavar="N", help="offset to stop before")
    for side, text in (("start", "at or after"), ("end", "before")):
        parser.add_argument(f"--{side}-time", type=_moment, metavar="TIME",
                            help=f"records {text} this: ms since 1970, or ISO 8601 with a time "
                            "zone (2026-01-31T12:00:00Z)")
    parser.add_argument("--isolation", choices=("read_uncommitted", "read_committed"),
                        default="read_uncommitted", help="read_committed leaves aborted and open "
                        "transactions out; default: read_uncommitted, as everywhere")
    parser.add_argument("--binary", choices=("utf8", "base64", "replace"), default="utf8",
                        help="keys, values and headers in csv and jsonl: text (bytes that are not "
                        "UTF-8 end the export), base64, or text with U+FFFD")
    parser.add_argument("--compression", metavar="CODEC",
                        help="of parquet (default zstd) or arrow (default lz4); none for none")
    add_skip_damaged(parser)
    parser.add_argument("--threads", type=int, default=min(4, os.cpu_count() or 1), metavar="N",
                        help="decode ahead with so many threads; default: one per CPU, up to 4")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no messages on stderr")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def _moment(text: str) -> int:
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        found = to_millis(datetime.fromisoformat(text))
    except ValueError as error:
        if "time zone" in str(error):
            raise argparse.ArgumentTypeError(
                f"{text} has no time zone; add one, such as "
                f"{text if 'T' in text else text + 'T00:00:00'}Z") from None
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither milliseconds nor ISO 8601, such as 2026-01-31T12:00:00Z"
        ) from None
    assert found is not None
    return found


def run(args: argparse.Namespace) -> int:
    """Writes the file. Returns 2 if no file was written, 1 if damaged records are missing in it."""
    return export(args, lambda: found_logs(args.path, tier_of(args)), args.path or args.remote)


def export(args: argparse.Namespace, find: Callable[[], Mapping[TopicPartition, FoundLog]],
           place: str) -> int:
    """Writes records of the partitions that `find` finds at `place`; the exit code as `run`."""
    found = None
    try:
        found = find()
        return _export(args, found, place)
    except CorruptDataError as error:
        explain_damage(args, error)
        return 2
    except KafkaStorageError as error:
        if found is None or error.code == KafkaStorageError.code:
            render.error(error)  # no logs, or a failed call: no other option avoids that
        else:
            explain_damage(args, error)
        return 2
    except (ConfigError, ValueError) as error:
        render.error(error)
        return 2


def _export(args: argparse.Namespace, found: Mapping[TopicPartition, FoundLog], place: str) -> int:
    columns = TOPIC_COLUMNS if args.columns is None else tuple(
        name.strip() for name in args.columns.split(","))
    if args.output == "-" and args.format is None:
        raise ConfigError("-o - needs --format: stdout has no suffix")
    if args.output == "-" and args.json:
        raise ConfigError("--json and the records would both be on stdout; name a file with -o")
    name = args.format or format_of(args.output)
    chosen = select_partitions(found, topics_of(args), partitions_of(args), place)
    if args.topic is None and len(found) > 1:
        chosen = [tp for tp in chosen if not is_internal(tp.topic)]
    if not chosen:
        raise UnknownTopicOrPartitionError(f"{place}: there is no partition to export" + (
            "; -t names one of Kafka's internal topics" if found else ""))
    _refuse_source(args.output, (one.directory for one in found.values()))
    counts, reading, gaps = dict.fromkeys(chosen, 0), [chosen[0]], GapReport()

    def on_partition(tp: TopicPartition) -> None:
        reading[0] = tp

    def on_rows(count: int) -> None:
        counts[reading[0]] += count
        progress.advance(count)

    stream = TopicStream(
        [(tp, found[tp].open) for tp in chosen],
        columns, start_offset=args.start_offset, end_offset=args.end_offset,
        start_timestamp=args.start_time, end_timestamp=args.end_time,
        isolation=args.isolation, threads=args.threads, batch_rows=_BATCH_ROWS,
        batch_bytes=_BATCH_BYTES, on_partition=on_partition, on_damage=args.on_damage,
        on_gap=lambda gap: gaps.add(reading[0], gap))
    with render.Progress("exporting", detail=lambda room: _position(reading[0], chosen)[:room]
                         ) as progress:
        size = _write(args, name, columns, stream, on_rows)
    if args.json:
        _print_row(args, name, counts, size, gaps)
    if not args.quiet:
        render.message(
            f"{progress.done} records of {len(chosen)} partition{'s' if len(chosen) > 1 else ''} "
            f"({args.isolation}), {render.human_bytes(size)}: "
            f"{'stdout' if args.output == '-' else args.output}")
        if not progress.done:
            render.warning("no record is within these bounds; seglog ls shows the offsets")
    return 1 if gaps else 0


def _position(reading: TopicPartition, chosen: Sequence[TopicPartition]) -> str:
    return f"records, {reading} ({chosen.index(reading) + 1} of {len(chosen)})"


def _print_row(args: argparse.Namespace, name: str, counts: Mapping[TopicPartition, int],
               size: int, gaps: GapReport) -> None:
    out = render.stdout()
    out.write(render.json_line({
        "output": args.output, "format": name, "isolation": args.isolation, "size": size,
        "records": sum(counts.values()),
        "partitions": [{"partition": str(tp), "records": count} for tp, count in counts.items()],
        "gaps": [{"partition": str(tp), "code": gap.kind, "message": str(gap), "object": gap.file,
                  "first_offset": gap.first_offset, "last_offset": gap.last_offset}
                 for tp, gap in gaps.found]}))
    out.flush()


def _write(args: argparse.Namespace, name: str, columns: Sequence[str], stream: TopicStream,
           on_rows: Callable[[int], None]) -> int:
    """Writes the whole stream. Returns the size of the file in bytes."""
    with nullcontext(render.stdout()) if args.output == "-" else OutputFile(
            args.output, force=args.force) as output:
        file = CountedFile(output)
        sink = make_sink(name, file, columns, binary=args.binary, compression=args.compression)
        try:
            with stream:
                for batch in stream:
                    sink.write(batch)
                    on_rows(batch.num_rows)
            sink.close()
        except BaseException:
            sink.discard()
            raise
        return file.size


def _refuse_source(output: str, sources: Iterable[str]) -> None:
    """Raises ConfigError if the output is inside a partition directory that the export reads."""
    target = os.path.dirname(os.path.realpath(output))
    for source in sources:
        if target == os.path.realpath(source):
            raise ConfigError(f"{output} is inside of {source}, which is Kafka's; write elsewhere")
