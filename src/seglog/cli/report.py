"""Common parts of `load` and `verify`: options, the load with its progress bar, the result."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace

from seglog.arguments import given_path
from seglog.cli.bar import LoadBar
from seglog.cli.document import document, print_document
from seglog.cli.option_numbers import thread_count
from seglog.cli.summary import Part, joined, print_summary
from seglog.config import BrokerConfig, LogConfig, read_properties
from seglog.recovery.loader import LoadOptions, load_directory
from seglog.recovery.partition_plan import LoadLevel
from seglog.recovery.load_report import LoadReport
from seglog.recovery.rows import exit_code
from seglog.storage.discover import split_partition

__all__ = [
    "add_load_options", "load_options", "load_part", "load_properties", "load_with_progress",
    "print_parts", "print_report", "setting",
]

_THREADS = "num.segment.loading.threads.per.data.dir"


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `load` and `verify` share."""
    parser.add_argument("path", nargs="+", type=given_path, help="data directories (each one entry "
                        "of log.dirs) or single partition directories")
    parser.add_argument("--threads", type=thread_count, metavar="N",
                        help=f"{_THREADS}, and for a recovery "
                        "num.recovery.threads.per.data.dir; default: one per CPU")
    parser.add_argument("--config", type=setting, action="append", default=[],
                        metavar="KEY=VALUE", help="a setting of the broker or the topics under "
                        "Kafka's name, such as index.interval.bytes=512; may be repeated")
    parser.add_argument("--properties", metavar="FILE", type=given_path,
                        help="a server.properties; --config and --threads go before it")
    parser.add_argument("--json", action="store_true", help="one JSON document (docs/json.md)")
    parser.add_argument("--all", action="store_true", help="every finding on a line of its own, "
                        "those of severity info too")


def setting(text: str) -> tuple[str, str]:
    """Parses `KEY=VALUE`. Raises ArgumentTypeError if KEY is not the name of a setting."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    if not (BrokerConfig.knows(name) or LogConfig.knows(name)):
        raise argparse.ArgumentTypeError(f"{name} is no setting of a log or of its broker")
    return name, value


def load_properties(args: argparse.Namespace, *threads: str) -> dict[str, object]:
    """The settings from `--properties`, `--config` and `--threads`; the last sets those named in
    `threads`. Raises as `read_properties` does."""
    properties: dict[str, object] = {name: os.cpu_count() or 1 for name in threads}
    if args.properties is not None:
        properties |= read_properties(args.properties)
    properties |= dict(args.config)
    if threads and args.threads is not None:
        properties |= dict.fromkeys(threads, args.threads)
    return properties


def load_options(args: argparse.Namespace) -> LoadOptions:
    """LoadOptions from the options of `add_load_options`. Raises ConfigError for an invalid value.
    """
    broker = BrokerConfig.from_properties(load_properties(args, _THREADS))
    return LoadOptions(LoadLevel(args.level), broker, broker.log_config(dict(args.config)))


def load_with_progress(path: str, options: LoadOptions) -> LoadReport:
    """One load, with a progress bar if stderr is a terminal. Raises as load_directory does.

    For a single partition's directory the checkpoints come from the data directory around it; the
    report omits everything else in that directory.
    """
    path, only = split_partition(path)
    reads = options.level is LoadLevel.VERIFY
    with LoadBar("verifying" if reads else "loading", reads=reads) as bar:
        report = load_directory(path, replace(options, only=only), bar).report
    return report if only is None else replace(report, directory_findings=())


def load_part(path: str, report: LoadReport) -> Part:
    """The rows of a load of `path`: a data directory, or a partition in it."""
    told = report.to_dict()
    partitions, findings = told.pop("partitions"), told.pop("findings")
    del told["totals"]
    return Part({**told, "path": os.path.abspath(path)}, partitions, findings)


def print_report(report: LoadReport) -> None:
    """Prints the summary of one load."""
    print_summary("load", [load_part(report.path, report)], show_all=False)


def print_parts(verb: str, parts: Sequence[Part], *, as_json: bool, show_all: bool) -> int:
    """Prints a run's result, as the document of docs/json.md or as text. Returns the exit code."""
    rows = joined(parts)
    code = exit_code(*rows)
    if as_json:
        print_document(document(verb, code, *rows))
    else:
        print_summary(verb, parts, show_all=show_all)
    return code
