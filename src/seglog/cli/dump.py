"""`seglog dump`: kafka-dump-log of Apache Kafka 4.3.1, without a JVM.

Options, stdout and stderr are those of org.apache.kafka.tools.DumpLogSegments. Additions: files as
plain arguments, a partition directory for all its files, and `--json`.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterator

from seglog.arguments import given_path, require_local
from seglog.cli import render
from seglog.cli.option_numbers import number_from
from seglog.cli.tier_options import add_tier_options, tier_of
from seglog.dump import decoders
from seglog.dump.indexes import dump_index, dump_time_index, dump_transaction_index
from seglog.dump.logs import dump_log
from seglog.dump.dump_output import INT32_MAX, DumpOptions, Findings, Output
from seglog.dump.snapshots import dump_producer_snapshot
from seglog.errors import CorruptSnapshotError, KafkaStorageError, SeglogError, storage_errors
from seglog.storage.discover import find_directories
from seglog.storage.paths import offset_from_file_name, parse_directory_name
from seglog.storage.place import PlaceKind, identify

__all__ = ["add_parser", "run"]

_SUFFIXES = (".log", ".checkpoint", ".index", ".timeindex", ".txnindex", ".snapshot")
_MAX_MESSAGE_SIZE = 5 * 1024 * 1024

_EPILOG = f"""\
Exit code 0 as in Kafka also when the files disagree (stderr says how), 1 where Kafka's tool would
end with an exception: the same lines come out before, and one error names file and position.

Decoder classes: there is no JVM to load any. These are built in, under Kafka's names:
  {"  ".join(sorted(decoders.CLASS_DECODERS))}
"""

# As in Kafka the first of these counts, whatever the order of the options.
_DECODERS: dict[str, tuple[Callable[[], decoders.Decoder], str]] = {
    "offsets": (decoders.offsets_decoder, "parse as records of __consumer_offsets"),
    "transaction-log": (lambda: decoders.coordinator_decoder("transaction"),
                        "parse as records of __transaction_state"),
    "cluster-metadata": (decoders.cluster_metadata_decoder,
                         "parse as records of __cluster_metadata and its snapshots"),
    "remote-log-metadata": (decoders.remote_log_metadata_decoder,
                            "parse as records of __remote_log_metadata"),
    "share-group-state": (lambda: decoders.coordinator_decoder("share"),
                          "parse as records of __share_group_state"),
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `dump` with kafka-dump-log's options."""
    parser = subparsers.add_parser(
        "dump", help="print log, index and snapshot files as kafka-dump-log does",
        description="Prints segment, index and snapshot files as kafka-dump-log does.",
        epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="FILE", type=given_path,
                        help="files, or partition directories for all their files, by name")
    add_tier_options(parser, "FILEs are then names of partitions, such as orders-0")
    parser.add_argument("--files", metavar="FILE1,FILE2,...", type=given_path, action="append",
                        default=[], help="the same with commas between, as for kafka-dump-log")
    parser.add_argument("--print-data-log", action="store_true",
                        help="print keys and values too (implied by every decoder option)")
    parser.add_argument("--deep-iteration", action="store_true",
                        help="print records too (implied by --print-data-log)")
    parser.add_argument("--skip-record-metadata", action="store_true",
                        help="print keys and values only, no offsets, sizes and control records")
    parser.add_argument("--index-sanity-check", action="store_true",
                        help="only check indexes as a broker would before rebuilding them")
    parser.add_argument("--verify-index-only", action="store_true",
                        help="check indexes against their log without printing them")
    int32 = number_from(0, INT32_MAX)
    parser.add_argument("--max-message-size", type=int32, default=_MAX_MESSAGE_SIZE,
                        metavar="SIZE", help="size of the largest batch (default %(default)s)")
    parser.add_argument("--max-bytes", type=int32, default=INT32_MAX, metavar="SIZE",
                        help="read no more than this of each log (default %(default)s)")
    for name, (_, text) in _DECODERS.items():
        parser.add_argument(f"--{name}-decoder", action="store_true", help=text)
    for part in ("key", "value"):
        parser.add_argument(f"--{part}-decoder-class", nargs="?", metavar="CLASS", type=_decoder,
                            const=decoders.STRING_DECODER,
                            help=f"how to print {part}s: one of the classes below")
    parser.add_argument("--json", action="store_true",
                        help="print the facts as JSON lines instead, bytes in base64")


def _decoder(name: str) -> str:
    if name not in decoders.CLASS_DECODERS:
        raise argparse.ArgumentTypeError(
            f"{name} cannot be loaded, because seglog runs no Java classes; there are "
            f"{', '.join(sorted(decoders.CLASS_DECODERS))}")
    return name


def run(args: argparse.Namespace) -> int:
    """Dumps every file in turn; 1 at the first that Kafka's tool would die of."""
    if args.remote is None:
        return _dump(args, list(_paths(args)))
    tier = tier_of(args)
    assert tier is not None
    from seglog.tiered.restore import restore

    with tempfile.TemporaryDirectory(prefix="seglog-") as folder:
        paths = []
        for name in _names(args):
            key = parse_directory_name(name).topic_partition
            target = os.path.join(folder, str(key))
            restore(tier.log(key.topic, key.partition), target)
            paths += _files_of(target)
        return _dump(args, paths)


def _dump(args: argparse.Namespace, paths: list[str]) -> int:
    if not paths:
        render.error("no files: seglog dump FILE ..., seglog dump PARTITION_DIRECTORY, or --files")
        return 2
    options = _options(args)
    output, findings = Output(render.stdout().write, as_json=args.json), Findings()
    try:
        for path in paths:
            _dump_file(path, options, output, findings)
    except SeglogError as error:
        output.flush()
        render.stdout().flush()
        render.error(error)
        return 1
    if args.json:
        for facts in findings.facts():
            output.facts(facts)
    output.flush()
    render.stdout().flush()
    if not args.json:
        for line in findings.lines():
            render.message(line)
    return 0


def _names(args: argparse.Namespace) -> list[str]:
    """What the arguments and `--files` name."""
    # Java's String.split drops trailing empty strings, and no others.
    named = re.sub(",+$", "", ",".join(args.files))
    return [*(named.split(",") if named else ()), *args.paths]


def _paths(args: argparse.Namespace) -> Iterator[str]:
    """The files to dump. Raises KafkaStorageError, before anything is printed, for a path that does
    not exist or cannot hold logs."""
    for name in _names(args):
        require_local(name)
        path = _java_path(name)
        if os.path.isdir(path):
            yield from _files_of(path)
        else:
            _check_file(path)
            yield path


def _files_of(path: str) -> list[str]:
    """The files of a partition directory, by name."""
    place = identify(path)
    if place.kind is PlaceKind.DATA_DIRECTORY:
        names = sorted(one.name for one in find_directories(path))
        such = f", such as {os.path.join(path, names[-1])}" if names else ""
        raise KafkaStorageError(errno.EINVAL, "this is a data directory; name the directory of a "
                                f"partition{such}, or files in it", path)
    with storage_errors(path):
        found = [os.path.join(path, name) for name in sorted(os.listdir(path))
                 if name.endswith(_SUFFIXES)]
    if not found:
        raise KafkaStorageError(
            errno.ENOENT, "there is no file to dump here (.log, .index, .timeindex, .txnindex, "
            f".snapshot, .checkpoint); {place.describe()}", path)
    return found


def _check_file(path: str) -> None:
    """Raises KafkaStorageError if the file does not exist or cannot be reached, unless its name is
    a segment's.

    Kafka's tool reports a missing segment file itself, after the lines of earlier files.
    """
    folder = os.path.dirname(path) or "."
    if not path or (path.endswith(_SUFFIXES) and _has_offset(os.path.basename(path))):
        return
    with storage_errors(path):
        try:
            os.lstat(path)
            return
        except (FileNotFoundError, NotADirectoryError):
            pass
    try:
        near = difflib.get_close_matches(os.path.basename(path), os.listdir(folder), n=1)
    except OSError:
        near = []
    hint = f"; did you mean {os.path.join(os.path.dirname(path), near[0])}?" if near else \
        f" in {os.path.abspath(folder)}"
    raise KafkaStorageError(errno.ENOENT, f"no such file{hint}", path)


def _has_offset(name: str) -> bool:
    try:
        offset_from_file_name(name)
    except ValueError:
        return False
    return True


def _java_path(path: str) -> str:
    """The path as java.io.File normalizes it: no double slash, none at the end."""
    return re.sub("(?<=.)/$", "", re.sub("/+", "/", path))


def _options(args: argparse.Namespace) -> DumpOptions:
    classes = (args.key_decoder_class, args.value_decoder_class)
    decoder = next((make() for name, (make, _) in _DECODERS.items()
                    if getattr(args, f"{name.replace('-', '_')}_decoder")), None)
    gives_json = decoder is not None and not args.remote_log_metadata_decoder
    print_data = args.print_data_log or decoder is not None or any(classes)
    if decoder is None and set(classes) - {None, decoders.STRING_DECODER}:
        decoder = decoders.class_decoder(*(name or decoders.STRING_DECODER for name in classes))
    return DumpOptions(
        deep_iteration=args.deep_iteration or print_data, print_data_log=print_data,
        skip_record_metadata=args.skip_record_metadata,
        index_sanity_check=args.index_sanity_check, verify_index_only=args.verify_index_only,
        max_message_size=args.max_message_size, max_bytes=args.max_bytes, decoder=decoder,
        decoder_gives_json=gives_json)


def _dump_file(path: str, options: DumpOptions, output: Output, findings: Findings) -> None:
    output.line(f"Dumping {path}", type="file", path=path)
    name = os.path.basename(path)
    suffix = name[name.rfind("."):] if "." in name else ""
    if suffix in (".log", ".checkpoint"):
        dump_log(path, options, output, findings)
    elif suffix == ".index":
        dump_index(path, options, output, findings)
    elif suffix == ".timeindex":
        dump_time_index(path, options, output, findings)
    elif suffix == ".txnindex":
        dump_transaction_index(path, output)
    elif suffix == ".snapshot":
        try:
            dump_producer_snapshot(path, output)
        except CorruptSnapshotError as error:
            render.message(str(error))  # Kafka prints this and continues
    else:
        render.message(f"Ignoring unknown file {path}")
