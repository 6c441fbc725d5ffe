"""Which formats there are, and the sink of each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import BinaryIO, Final, Literal, Protocol

from seglog._native.columns import RecordColumns
from seglog.errors import ConfigError
from seglog.export.text import Binary, CsvSink, JsonLinesSink

__all__ = ["FORMATS", "Sink", "format_of", "make_sink"]

#: Formats by name, with the suffixes that stand for them.
FORMATS: Final[dict[str, tuple[str, ...]]] = {
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "arrows": (".arrows",),
    "csv": (".csv",),
    "jsonl": (".jsonl", ".ndjson", ".json"),
}
_TABLES = ("parquet", "arrow", "arrows")


class Sink(Protocol):
    """Takes record batches and writes them to a file."""

    def write(self, columns: RecordColumns) -> None:
        """Writes the rows, or keeps them until a file's next piece is full."""

    def close(self) -> None:
        """Writes what is left. The file itself stays open."""

    def discard(self) -> None:
        """Ends without the rest, after a failure. Never raises."""


def format_of(path: str) -> str:
    """The format that a file's suffix stands for. Raises ConfigError for any other."""
    name = os.path.basename(path).lower()
    for known, suffixes in FORMATS.items():
        if name.endswith(suffixes):
            return known
    every = ", ".join(suffix for suffixes in FORMATS.values() for suffix in suffixes)
    raise ConfigError(f"the name of {path} does not say a format; use one of {every}, or --format")


def make_sink(name: str, file: BinaryIO, columns: Sequence[str], *, binary: Binary = "utf8",
              compression: Literal["none"] | str | None = None) -> Sink:
    """A sink of a format for record batches of these columns.

    `binary` says how JSON lines and CSV show bytes; `compression` is a codec of Parquet or Arrow
    (default: zstd and lz4). Raises ConfigError where pyarrow is missing, or for a codec that the
    format does not have.
    """
    if name in _TABLES:
        if binary != "utf8":
            raise ConfigError(f"--binary is for csv and jsonl; {name} holds bytes as they are")
        try:
            from seglog.export import tables
        except ImportError:
            raise ConfigError(f"{name} needs pyarrow, which is not installed: pip install "
                              "'seglog[export]', or use csv or jsonl") from None
        return tables.make_table_sink(name, file, columns, compression)
    if compression is not None:
        raise ConfigError(f"--compression is for parquet and arrow; pipe {name} into a compressor")
    return CsvSink(file, columns, binary) if name == "csv" else JsonLinesSink(file, columns, binary)
