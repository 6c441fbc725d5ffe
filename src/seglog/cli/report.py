"""How `load` and `verify` show a load: the progress bar while it runs, the report behind it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from seglog.cli import render
from seglog.config import BrokerConfig, LogConfig, read_properties
from seglog.errors import InvalidTopicPartitionError
from seglog.recovery.callbacks import LoadListener
from seglog.recovery.findings import Finding, Severity
from seglog.recovery.loader import LoadOptions, load_directory
from seglog.recovery.plan import LoadLevel
from seglog.recovery.report import LoadReport
from seglog.storage.discover import is_partition_directory
from seglog.storage.paths import parse_directory_name

__all__ = [
    "add_load_options", "finding_line", "load_options", "load_properties", "load_with_progress",
    "print_json", "print_report",
]

_THREADS = "num.segment.loading.threads.per.data.dir"
_COLORS = {Severity.INFO: "dim", Severity.WARNING: "yellow", Severity.ERROR: "red",
           Severity.FATAL: "red"}


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """What `load` and `verify` have in common."""
    parser.add_argument("path", nargs="+", help="data directories (each one entry of log.dirs) or "
                        "single partition directories")
    parser.add_argument("--threads", type=_positive, metavar="N",
                        help=f"{_THREADS}; default: one per CPU")
    parser.add_argument("--config", type=_setting, action="append", default=[],
                        metavar="KEY=VALUE", help="a setting of the broker or the topics under "
                        "Kafka's name, such as index.interval.bytes=512; may be repeated")
    parser.add_argument("--properties", metavar="FILE", help="a server.properties; --config and "
                        "--threads go before it")
    parser.add_argument("--json", action="store_true", help="the whole report as JSON")
    parser.add_argument("--all", action="store_true", help="show findings of severity info too")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    if not (BrokerConfig.knows(name) or LogConfig.knows(name)):
        raise argparse.ArgumentTypeError(f"{name} is no setting of a log or of its broker")
    return name, value


def load_properties(args: argparse.Namespace, *threads: str) -> dict[str, object]:
    """What `--properties`, `--config` and `--threads` say; the latter about the settings that
    `threads` names. Raises what `read_properties` raises."""
    properties: dict[str, object] = {name: os.cpu_count() or 1 for name in threads}
    if args.properties is not None:
        properties |= read_properties(args.properties)
    properties |= dict(args.config)
    if args.threads is not None:
        properties |= dict.fromkeys(threads, args.threads)
    return properties


def load_options(args: argparse.Namespace) -> LoadOptions:
    """From the options of `add_load_options`; ConfigError for a value that Kafka refuses."""
    broker = BrokerConfig.from_properties(load_properties(args, _THREADS))
    return LoadOptions(LoadLevel(args.level), broker, broker.log_config(dict(args.config)))


def load_with_progress(path: str, options: LoadOptions) -> LoadReport:
    """One load, drawn on stderr when that is a terminal. Raises what load_directory raises.

    For a single partition's directory the data directory around it is asked for its checkpoints;
    what else lies there is left out of the report.
    """
    path = os.path.abspath(path)
    only = None
    if is_partition_directory(path):
        try:
            parse_directory_name(path)
            path, only = os.path.split(path)
        except InvalidTopicPartitionError:
            pass  # the loader says what is wrong with it
    with _Bar(options.level) as bar:
        report = load_directory(path, replace(options, only=only), bar).report
    if only is None:
        return report
    return replace(report, path=os.path.join(path, only), directory_findings=())


class _Bar(LoadListener):
    """Segments done of segments known, and how many a second each thread does."""

    def __init__(self, level: LoadLevel) -> None:
        self._verifies = level is LoadLevel.VERIFY
        self._progress = render.Progress("verifying" if self._verifies else "loading", 0,
                                         detail=self._rates)
        self._done: dict[int, int] = {}
        self._started = time.monotonic()

    def __enter__(self) -> _Bar:
        self._progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.__exit__(None, None, None)

    def _rates(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        rates = " ".join(f"{count / seconds:,.0f}" for _, count in sorted(self._done.items()))
        return f"segments, {rates} segments/s per thread"

    def segments_listed(self, directory: str, count: int) -> None:
        self._progress.total = (self._progress.total or 0) + count

    def segments_loaded(self, directory: str, count: int, thread: int) -> None:
        if not self._verifies:
            self._advance(count, thread)

    def segments_verified(self, directory: str, count: int, size: int, thread: int) -> None:
        self._advance(count, thread)

    def _advance(self, count: int, thread: int) -> None:
        self._done[thread] = self._done.get(thread, 0) + count
        self._progress.advance(count)


def print_json(reports: Iterable[LoadReport]) -> None:
    """One JSON document a report, one after the other."""
    out = render.stdout()
    for report in reports:
        out.write(report.to_json().encode("utf-8", "backslashreplace") + b"\n")


def print_report(report: LoadReport, show_all: bool) -> None:
    """The summary, then the findings worst first, then what Kafka could not load."""
    out = render.stdout()
    for line in _lines(report, show_all):
        out.write(line.encode("utf-8", "surrogateescape") + b"\n")
    out.flush()


def _lines(report: LoadReport, show_all: bool) -> Iterator[str]:
    shutdown = "clean" if report.clean_shutdown else "unclean"
    rate = report.segments / report.seconds if report.seconds > 0 else 0.0
    yield (f"{report.path}: {len(report.partitions)} partitions, {report.segments} segments, "
           f"{render.human_bytes(report.size)}, {shutdown} shutdown")
    shares = ", ".join(f"thread {number}: {count}"
                       for number, count in enumerate(report.thread_segments))
    yield (f"  checked at level {report.level} in {report.seconds:.3f} s, {rate:,.0f} segments/s"
           f" ({shares})")
    recover = [one for one in report.partitions if one.recovery_segments]
    if recover:
        size = sum(one.recovery_bytes for one in recover)
        yield (f"  a start would recover {sum(one.recovery_segments for one in recover)} segments, "
               f"{render.human_bytes(size)}, of {len(recover)} partitions")
    shown = sorted((found for found in report.findings
                    if show_all or found.severity > Severity.INFO),
                   key=lambda found: (-found.severity, found.directory or "", found.file or ""))
    for found in shown:
        yield "  " + finding_line(found)
    for one in report.partitions:
        if one.kafka_error:
            yield f"  Kafka does not load {one.directory}: {one.kafka_error}: {one.kafka_message}"
    counted = report.severity_counts
    hidden = "" if show_all or not counted["info"] else " (--all shows them)"
    yield (f"  {counted['fatal']} fatal, {counted['error']} errors, {counted['warning']} warnings, "
           f"{counted['info']} infos{hidden}")


def finding_line(found: Finding) -> str:
    """Severity, code, where, what, and what Kafka does about it."""
    where = "/".join(part for part in (found.directory, found.file) if part) or "."
    if found.position is not None:
        where += f"@{found.position}"
    facts = [f"{name} {value}" for name, value in (
        ("expected", found.expected), ("found", found.found), ("offset", found.offset),
        ("bytes", found.bytes), ("records", found.records)) if value is not None]
    label = render.paint(f"{found.severity.name.lower():7}", _COLORS[found.severity], sys.stdout)
    detail = f" ({', '.join(facts)})" if facts else ""
    return f"{label} {found.code}: {where}: {found.message}{detail}; Kafka: {found.action}"

