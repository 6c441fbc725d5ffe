"""The options that name a remote tier, for the verbs that read logs."""

from __future__ import annotations

import argparse
import binascii
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from seglog.arguments import given_path
from seglog.errors import ConfigError

if TYPE_CHECKING:
    from seglog.tiered.bucket import Bucket

__all__ = ["add_bucket_options", "add_layout_options", "add_partition_options", "add_tier_options",
           "bucket_of", "pairs_of", "tier_of"]

_ID_BYTES = 16


def add_tier_options(parser: argparse.ArgumentParser, does: str = "logs then begin with what only "
                     "the tier has; without PATH they are read from the tier alone") -> None:
    """`--remote`, and what it needs. `does` is what the verb does with it."""
    group = parser.add_argument_group("remote tier (docs/tiered.md)")
    group.add_argument("--remote", metavar="URL", type=given_path,
                       help=f"directory or URL of the remote segments: {does}")
    add_layout_options(group, "a pattern such as {topic}/{partition}/{start_offset}.{kind}")


def add_layout_options(parser: argparse._ActionsContainer, pattern: str = "a pattern") -> None:
    """`--layout` and `--key`, which tell how to read a tier."""
    parser.add_argument("--layout", help=f"local, aiven, pinterest, or {pattern}; default: "
                        "recognised")
    parser.add_argument("--key", action="append", default=[], metavar="ID=FILE",
                        help="a private key of Aiven's encryption, as PEM")


def tier_of(args: argparse.Namespace) -> Bucket | None:
    """The tier that the options name; None without one.

    Raises ConfigError for options that make no sense, and what `open_bucket` raises.
    """
    if args.remote is None:
        if args.layout or args.key:
            raise ConfigError("--layout and --key are for --remote")
        if not args.path:
            raise ConfigError("name a path, or a tier with --remote")
        return None
    from seglog.tiered.bucket import open_bucket

    return open_bucket(args.remote, layout=args.layout, keys=_keys_of(args))


def add_bucket_options(parser: argparse.ArgumentParser) -> None:
    """The tier that a verb of `tier` works on."""
    parser.add_argument("remote", type=given_path, metavar="URL",
                        help="directory or URL of the remote segments")
    parser.add_argument("--metadata", action="append", default=[], type=given_path, metavar="DIR",
                        help="a data directory with partitions of __remote_log_metadata")
    add_layout_options(parser)
    parser.add_argument("--topic-id", type=_topic_id, metavar="ID", help="the topic of this id, "
                        "where several had the same name")


def add_partition_options(parser: argparse.ArgumentParser) -> None:
    """The tier, one of its partitions or all, and `--json`."""
    add_bucket_options(parser)
    parser.add_argument("partition", nargs="?", metavar="TOPIC-PARTITION",
                        help="one partition; default: all")
    parser.add_argument("--json", action="store_true", help="one JSON object a partition")


def bucket_of(args: argparse.Namespace) -> Bucket:
    """The tier that the options of `add_bucket_options` name. What `open_bucket` raises."""
    from seglog.tiered.bucket import open_bucket

    return open_bucket(args.remote, layout=args.layout, keys=_keys_of(args),
                       metadata=args.metadata)


def _topic_id(text: str) -> bytes:
    try:
        raw = binascii.a2b_base64(text.translate({ord("-"): "+", ord("_"): "/"}) + "==",
                                  strict_mode=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _ID_BYTES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no topic id, such as SCh4E8VdQyakXnuXoblENg")
    return raw


def _keys_of(args: argparse.Namespace) -> dict[str, str | bytes]:
    """The keys that `--key` names. Raises ConfigError."""
    return {**pairs_of("--key", args.key, "ID=FILE")}


def pairs_of(option: str, texts: Iterable[str], expected: str,
             names: Container[str] | None = None) -> dict[str, str]:
    """The values of an option that takes NAME=VALUE, with one of `names` if given. Raises
    ConfigError."""
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or (names is not None and name not in names):
            raise ConfigError(f"{option} {text}: expected {expected}")
        found[name] = value
    return found
