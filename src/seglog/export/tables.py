"""Parquet and Arrow IPC sinks, through pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seglog._native.columns import RecordColumns
from seglog.arrow.schema import RecordSchema
from seglog.errors import ConfigError
from seglog.export.output_file import CountedFile

__all__ = ["make_table_sink"]

_GROUP_ROWS, _GROUP_BYTES = 1 << 18, 64 << 20  # of a Parquet row group or an Arrow batch
_PARQUET = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
_ARROW = ("none", "lz4", "zstd")


class _TableSink:
    """Combines batches into pieces of a good size for a pyarrow writer."""

    def __init__(self, writer: Any, schema: pa.Schema, output: CountedFile) -> None:
        self._writer, self._schema, self._output = writer, schema, output
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, columns: RecordColumns) -> None:
        """Buffers the rows until they fill a piece."""
        self._batches.append(pa.record_batch(columns))
        self._rows += columns.num_rows
        self._bytes += columns.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Writes buffered rows and the file's footer."""
        self._flush()
        self._writer.close()

    def discard(self) -> None:
        """Drops buffered rows and the writer, which writes no footer now or later."""
        self._output.is_cut = True
        with suppress(Exception):
            self._writer.close()

    def _flush(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches, self._schema)
            self._batches, self._rows, self._bytes = [], 0, 0
            self._writer.write_table(table.combine_chunks())


def make_table_sink(name: str, file: CountedFile, columns: Sequence[str], compression: str | None
                    ) -> _TableSink:
    """Makes the sink of parquet, arrow (IPC file format, Feather) or arrows (IPC stream format).

    Raises ConfigError for a codec that the format does not support.
    """
    known = _PARQUET if name == "parquet" else _ARROW
    codec = compression or ("zstd" if name == "parquet" else "lz4")
    if codec not in known:
        raise ConfigError(f"--compression of {name} is one of {', '.join(known)}, not {codec!r}")
    schema = pa.schema(RecordSchema(columns))
    if name == "parquet":
        return _TableSink(pq.ParquetWriter(file, schema, compression=codec), schema, file)
    options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
    new = pa.ipc.new_file if name == "arrow" else pa.ipc.new_stream
    return _TableSink(new(file, schema, options=options), schema, file)
