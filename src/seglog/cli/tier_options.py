"""The options that name a remote tier, for the verbs that read logs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from seglog.arguments import given_path
from seglog.errors import ConfigError

if TYPE_CHECKING:
    from seglog.tiered.bucket import Bucket

__all__ = ["add_tier_options", "keys_of", "tier_of"]


def add_tier_options(parser: argparse.ArgumentParser) -> None:
    """`--remote`, and what it needs."""
    group = parser.add_argument_group("remote tier (docs/tiered.md)")
    group.add_argument("--remote", metavar="URL", type=given_path,
                       help="directory or URL of the remote segments: logs then begin with what "
                       "only the tier has; without PATH they are read from the tier alone")
    group.add_argument("--layout", help="local, aiven, pinterest, or a pattern such as "
                       "{topic}/{partition}/{start_offset}.{kind}; default: recognised")
    group.add_argument("--key", action="append", default=[], metavar="ID=FILE",
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

    return open_bucket(args.remote, layout=args.layout, keys=keys_of(args))


def keys_of(args: argparse.Namespace) -> dict[str, str | bytes]:
    """The keys that `--key` names. Raises ConfigError."""
    keys: dict[str, str | bytes] = {}
    for text in args.key:
        name, separator, file = text.partition("=")
        if not separator:
            raise ConfigError(f"--key {text}: expected ID=FILE")
        keys[name] = file
    return keys
