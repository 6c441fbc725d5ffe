"""The rows of the table `findings`: one row a finding, with the columns of docs/json.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from seglog.scrub import FINDING_FIELDS
from seglog.spark.table_columns import arrow_schema, row_batches

__all__ = ["FINDING_COLUMNS", "finding_batches"]

_TYPES = {"partition": "int", "position": "long", "offset": "long", "last_offset": "long",
          "bytes": "long", "records": "long", "batches": "long", "unread_bytes": "long"}
#: Name and type of each column, in order.
FINDING_COLUMNS: Final = tuple((name, _TYPES.get(name, "string")) for name in FINDING_FIELDS)


def finding_batches(rows: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Arrow batches of rows of `finding_row`."""
    return row_batches(({**row, "expected": _text(row["expected"]), "found": _text(row["found"])}
                        for row in rows), arrow_schema(FINDING_COLUMNS))


def _text(value: Any) -> str | None:
    """A number or name as text, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Sequence | dict):
        return json.dumps(value, default=str)
    return str(value)
