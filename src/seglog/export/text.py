"""JSON lines and CSV sinks, without any library."""

from __future__ import annotations

import json
from abc import abstractmethod
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Literal

from seglog._native.columns import RecordColumns
from seglog.errors import ConfigError
from seglog.export.output_file import CountedFile

__all__ = ["Binary", "CsvSink", "JsonLinesSink"]

#: How bytes become text: strict UTF-8, base64, or UTF-8 with U+FFFD for bad bytes.
Binary = Literal["utf8", "base64", "replace"]

Column = list[Any]


def _cell_text(binary: Binary) -> Callable[[bytes], str]:
    if binary == "base64":
        return lambda cell: b64encode(cell).decode()
    if binary == "replace":
        return lambda cell: cell.decode("utf-8", "replace")
    return bytes.decode


class _Texts:
    """Converts keys, values and headers to text."""

    def __init__(self, columns: Sequence[str], binary: Binary) -> None:
        self._names, self._text, self._rows = tuple(columns), _cell_text(binary), 0

    def columns(self, batch: RecordColumns) -> dict[str, Column]:
        """The columns of a batch with bytes converted to text. Raises ConfigError for bytes that
        are not text; it names the record and a remedy."""
        lists: dict[str, Column] = batch.to_pylists()
        for name in self._names:
            if name in ("key", "value"):
                lists[name] = self._each(name, lists, self._plain)
            elif name == "headers":
                lists[name] = self._each(name, lists, self._headers)
        self._rows += batch.num_rows
        return lists

    def _plain(self, cell: bytes | None) -> str | None:
        return None if cell is None else self._text(cell)

    def _headers(self, cell: list[tuple[str, bytes | None]]) -> list[dict[str, str | None]]:
        return [{"key": key, "value": self._plain(value)} for key, value in cell]

    def _each(self, name: str, lists: dict[str, Column], show: Callable[[Any], Any]) -> Column:
        shown: Column = []
        try:
            for cell in lists[name]:
                shown.append(show(cell))
        except UnicodeDecodeError:
            row = len(shown)
            what = "a header" if name == "headers" else f"the {name}"
            where = "".join(f", {column} {lists[column][row]}" for column in
                            ("topic", "partition", "offset") if column in lists)
            raise ConfigError(
                f"{what} of record {self._rows + row}{where}, is not UTF-8 text; --binary base64 "
                "keeps every byte, --binary replace shows U+FFFD, and parquet and arrow hold bytes "
                "as they are") from None
        return shown


class _LinesSink:
    """A sink with a line for each record."""

    def __init__(self, file: CountedFile, columns: Sequence[str], binary: Binary) -> None:
        self._file, self._columns = file, tuple(columns)
        self._texts = _Texts(columns, binary)

    def write(self, columns: RecordColumns) -> None:
        """Writes the rows."""
        lists = self._texts.columns(columns)
        lines = self._lines([lists[name] for name in self._columns])
        lines.append("")
        self._file.write("\n".join(lines).encode("utf-8", "replace"))

    @abstractmethod
    def _lines(self, cells: list[Column]) -> list[str]:
        """The lines of the rows. `cells` are the columns in order."""

    def close(self) -> None:
        """Does nothing: each batch is already written."""

    def discard(self) -> None:
        """Does nothing: no rows are buffered."""


class JsonLinesSink(_LinesSink):
    """One JSON object a line: timestamps in ms, headers as objects with key and value."""

    _encode = staticmethod(json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode)

    def _lines(self, cells: list[Column]) -> list[str]:
        names, encode = self._columns, self._encode
        return [encode(dict(zip(names, row, strict=True))) for row in zip(*cells, strict=True)]


class CsvSink(_LinesSink):
    """CSV with a header row. Text is quoted and null is an empty field without quotes, so null and
    empty text differ; headers are a JSON array in one field."""

    def __init__(self, file: CountedFile, columns: Sequence[str], binary: Binary) -> None:
        super().__init__(file, columns, binary)
        file.write((",".join(columns) + "\n").encode())

    def _lines(self, cells: list[Column]) -> list[str]:
        texts = map(_csv_column, self._columns, cells)
        return [",".join(row) for row in zip(*texts, strict=True)]


def _csv_column(name: str, cells: Column) -> list[str]:
    if name == "headers":
        return [_quoted(json.dumps(cell, ensure_ascii=False)) for cell in cells]
    if name in ("key", "value", "topic"):
        return ["" if cell is None else _quoted(cell) for cell in cells]
    if name in ("is_transactional", "is_control"):
        return ["true" if cell else "false" for cell in cells]
    return [str(cell) for cell in cells]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
