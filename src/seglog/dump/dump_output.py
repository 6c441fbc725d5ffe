"""The output of a dump: lines on stdout as Kafka's tool prints them, or JSON lines.

Also collects what Kafka's tool prints on stderr after all files: mismatches and offset gaps.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from seglog.dump.decoders import Decoder
from seglog.errors import CorruptDataError
from seglog.java.hash_order import spread_hash
from seglog.java.numbers import parse_int64

__all__ = ["INT32_MAX", "ByFile", "DumpOptions", "Findings", "Output", "absolute",
           "leading_number"]

INT32_MAX = 2**31 - 1
_MAX_MESSAGE_SIZE = 5 << 20
_FLUSH_SIZE = 1 << 18

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The options of kafka-dump-log. A `decoder` of None prints Java strings.

    With `decoder_gives_json`, `--json` contains a decoder's output as JSON, not as a string.
    """

    deep_iteration: bool = False
    print_data_log: bool = False
    skip_record_metadata: bool = False
    index_sanity_check: bool = False
    verify_index_only: bool = False
    max_message_size: int = _MAX_MESSAGE_SIZE
    max_bytes: int = INT32_MAX
    decoder: Decoder | None = None
    decoder_gives_json: bool = False


class Output:
    """Buffers lines of text, or of JSON. Flush it before other code prints."""

    def __init__(self, write: Callable[[Any], object], *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._write = write
        self._lines: list[bytes] = []
        self._size = 0

    def line(self, text: str, **facts: Any) -> None:
        """Prints `text`, without its line end. In JSON prints the facts, if they have a `type`."""
        if not self.as_json:
            self._add(os.fsencode(text) + b"\n")
        elif facts:
            self.facts(facts)

    def facts(self, facts: dict[str, Any]) -> None:
        """Prints one JSON line; bytes become base64. The bytes of a path that are not UTF-8 become
        escapes of surrogates, which os.fsencode turns back."""
        text = json.dumps(facts, separators=(",", ":"), ensure_ascii=False,
                          default=lambda value: b64encode(value).decode())
        self._add(text.encode("utf-8", "backslashreplace") + b"\n")

    def write(self, data: memoryview) -> None:
        """Prints rendered text after all lines so far."""
        self.flush()
        self._write(data)

    def flush(self) -> None:
        """Writes the buffered lines."""
        if self._lines:
            self._write(b"".join(self._lines))
            self._lines, self._size = [], 0

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size >= _FLUSH_SIZE:
            self.flush()


class ByFile(dict[str, V], Generic[V]):
    """Findings by absolute path, iterated as the java.util.HashMap that Kafka's tool fills with
    computeIfAbsent: by bucket, the newest of a bucket first."""

    def __init__(self) -> None:
        super().__init__()
        self._buckets = 16

    def of(self, path: str, empty: Callable[[], V]) -> V:
        """The findings in `path`, initially `empty()`."""
        path = absolute(path)
        if len(self) > self._buckets * 3 // 4:
            self._buckets *= 2
        if path not in self:
            self[path] = empty()
        return self[path]

    def in_java_order(self) -> list[tuple[str, V]]:
        """All of them."""
        return sorted(reversed(self.items()),
                      key=lambda item: spread_hash(item[0]) & (self._buckets - 1))


@dataclass(slots=True)
class Findings:
    """Findings in all files, by absolute path, in the data structures of Kafka's tool."""

    index_mismatches: ByFile[dict[int, int]] = field(default_factory=ByFile)
    timestamp_mismatches: ByFile[list[tuple[int, int]]] = field(default_factory=ByFile)
    timestamps_out_of_order: ByFile[list[tuple[int, int]]] = field(default_factory=ByFile)
    offsets_not_found: ByFile[list[tuple[int, int]]] = field(default_factory=ByFile)
    offset_gaps: ByFile[dict[int, int]] = field(default_factory=ByFile)

    def lines(self) -> Iterable[str]:
        """The lines that Kafka's tool finally prints on stderr."""
        for path, mismatches in self.index_mismatches.in_java_order():
            yield f"Mismatches in :{path}"
            for index_offset, log_offset in sorted(mismatches.items(), reverse=True):
                yield f"  Index offset: {index_offset}, log offset: {log_offset}"
        for title, found, texts in (
                ("Found timestamp mismatch in :", self.timestamp_mismatches,
                 ("  Index timestamp: ", ", log timestamp: ")),
                ("Found out of order timestamp in :", self.timestamps_out_of_order,
                 ("  Index timestamp: ", ", Previously indexed timestamp: ")),
                ("The following indexed offsets are not found in :", self.offsets_not_found,
                 ("Indexed offset: ", ", found log offset: "))):
            for path, pairs in found.in_java_order():
                yield title + path
                yield from (f"{texts[0]}{one}{texts[1]}{other}" for one, other in pairs)
        for path, gaps in self.offset_gaps.in_java_order():
            yield f"Non-consecutive offsets in {path}"
            for previous, following in sorted(gaps.items()):
                yield f"  {previous} is followed by {following}"

    def facts(self) -> Iterable[dict[str, Any]]:
        """The same facts for JSON."""
        kinds: tuple[tuple[str, ByFile[Any], str, str], ...] = (
            ("index_mismatch", self.index_mismatches, "index_offset", "log_offset"),
            ("timestamp_mismatch", self.timestamp_mismatches, "index_timestamp", "log_timestamp"),
            ("timestamp_out_of_order", self.timestamps_out_of_order, "index_timestamp",
             "previous_index_timestamp"),
            ("offset_not_found", self.offsets_not_found, "index_offset", "log_offset"),
            ("non_consecutive_offsets", self.offset_gaps, "previous_offset", "next_offset"))
        for kind, found, first, second in kinds:
            for path, pairs in found.items():
                items = sorted(pairs.items()) if isinstance(pairs, dict) else pairs
                for one, other in items:
                    yield {"type": kind, "file": path, first: one, second: other}


def absolute(path: str) -> str:
    """Java's File.getAbsolutePath, which resolves no links."""
    return path if path.startswith("/") else f"{os.getcwd()}/{path}"


def leading_number(path: str) -> int:
    """The number before the first dot of a file name, parsed as by Java's Long.parseLong."""
    text = os.path.basename(path).split(".")[0]
    try:
        return parse_int64(text)
    except ValueError:
        raise CorruptDataError(f"{path}: the name does not begin with an offset", file=path,
                               expected="an offset", found=text, code="file_name") from None
