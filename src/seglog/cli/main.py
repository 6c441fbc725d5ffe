"""`seglog VERB ...`: finds the verb's module, imports only that one, and runs it.

A verb module has `add_parser(subparsers)`, which adds its argparse parser under the verb's name,
and `run(args) -> int`, which gives the exit code. Exit codes of every verb:

0    done, nothing wrong
1    done, and something is wrong with the data (what exactly, the verb says)
2    not done: wrong usage, or an error that stopped the verb
130  Ctrl-C (128 + SIGINT), without a traceback; while a verb is imported the process ends by the
     signal, which a shell shows as 130
141  the reader of the output went away (128 + SIGPIPE, as for `cat`), without a message
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from seglog import __version__
from seglog.cli import render
from seglog.cli.imports import importing
from seglog.errors import SeglogError

TYPE_CHECKING = False  # `seglog --help` imports no typing
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["EXIT_BROKEN_PIPE", "EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_OK", "EXIT_PROBLEMS",
           "VERBS", "main"]

EXIT_OK, EXIT_PROBLEMS, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 0, 1, 2, 130, 141

# The summaries are here and not in the modules, so that `seglog --help` imports none of them.
VERBS: dict[str, str] = {
    "ls": "list partitions, segments, sizes, offsets, epochs",
    "load": "load a data directory and report what is wrong",
    "verify": "check every batch and every index",
    "dump": "print log, index and snapshot files as kafka-dump-log does",
    "compact": "compact the logs of a stopped broker",
    "cat": "print records (kcat's formats)",
    "export": "write records as Parquet, Arrow, CSV or JSON lines",
    "tier": "list, check, export and restore remote segments (KIP-405)",
    "demo": "the main job on real directories",
}


def build_parser(verb: str | None) -> argparse.ArgumentParser:
    """The parser of `verb` alone in full; the other verbs are only listed."""
    parser = argparse.ArgumentParser(
        prog="seglog", description="Apache Kafka's partition log without the broker.",
        formatter_class=_formatter)
    parser.add_argument("--version", action="version", version=f"seglog {__version__}")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, summary in VERBS.items():
        if name == verb:
            _module(name).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary, add_help=False)  # never parses
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit code. Raises only SystemExit (wrong usage, `--help`)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = next((argument for argument in arguments if not argument.startswith("-")), None)
    if sys.stderr is None:  # closed: print(file=None) would write messages among the data
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
    try:
        with importing():
            args = build_parser(verb).parse_args(arguments)
        if sys.stdout is None:
            render.error("standard output is closed; redirect it to /dev/null")
            return EXIT_FAILED
        code = int(_module(args.verb).run(args))
        sys.stdout.flush()
    except BrokenPipeError:
        render.abandon(sys.stdout)
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        render.abandon(sys.stdout)  # a reader that stands still must not hold the end up
        return EXIT_INTERRUPTED
    except SeglogError as error:
        render.error(error)
        return EXIT_FAILED
    except OSError as error:
        # What reads and writes logs raises SeglogError, so this is the output.
        render.error(f"{error.filename or 'standard output'}: {error.strerror or error}")
        render.abandon(sys.stdout)
        return EXIT_FAILED
    finally:
        render.end_messages()
    return code


def _formatter(prog: str) -> argparse.HelpFormatter:
    """argparse's formatter at argparse's width. Without a width it imports shutil, which loads the
    compression libraries."""
    return argparse.HelpFormatter(prog, width=render.terminal_columns() - 2)


def _module(verb: str) -> ModuleType:
    return import_module(f"seglog.cli.{verb}")

