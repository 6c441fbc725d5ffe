"""The export formats and their sinks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, Literal, Protocol

from seglog._native.columns import RecordColumns
from seglog.errors import ConfigError
from seglog.export.output_file import CountedFile
from seglog.export.text import Binary, CsvSink, JsonLinesSink

__all__ = ["FORMATS", "Sink", "format_of", "make_sink"]

#: File suffixes by format.
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
        """Writes the rows, or buffers them until the next piece of the file is full."""

    def close(self) -> None:
        """Writes buffered rows and the end of the format. Leaves the file open."""

    def discard(self) -> None:
        """Drops buffered rows after a failure. Never raises."""


def format_of(path: str) -> str:
    """The format of a file by its suffix. Raises ConfigError for an unknown suffix."""
    name = os.path.basename(path).lower()
    for known, suffixes in FORMATS.items():
        if name.endswith(suffixes):
            return known
    every = ", ".join(suffix for suffixes in FORMATS.values() for suffix in suffixes)
    raise ConfigError(f"the suffix of {path} names no format; use one of {every}, or --format")


def make_sink(name: str, file: CountedFile, columns: Sequence[str], *, binary: Binary = "utf8",
              compression: Literal["none"] | str | None = None) -> Sink:
    """Makes the sink of a format for record batches of these columns.

    `binary` is how JSON lines and CSV encode bytes; `compression` is a Parquet or Arrow codec
    (default: zstd and lz4). Raises ConfigError if pyarrow is not installed or the format does not
    support the codec.
    """
    if name in _TABLES:
        if binary != "utf8":
            raise ConfigError(f"--binary is for csv and jsonl; {name} stores bytes unchanged")
        try:
            from seglog.export import tables
        except ImportError:
            raise ConfigError(f"{name} needs pyarrow, which is not installed: pip install "
                              "'seglog[export]', or use csv or jsonl") from None
        return tables.make_table_sink(name, file, columns, compression)
    if compression is not None:
        raise ConfigError(f"--compression is for parquet and arrow; pipe {name} into a compressor")
    return CsvSink(file, columns, binary) if name == "csv" else JsonLinesSink(file, columns, binary)
