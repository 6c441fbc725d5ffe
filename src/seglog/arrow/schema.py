"""The columns of a record, and their Arrow schema.

| column | Arrow type | meaning |
|---|---|---|
| offset | int64 | |
| timestamp | timestamp[ms, UTC] | never null; -1 ms where a record has none |
| timestamp_type | int8 | -1 none (magic 0), 0 create time, 1 log append time |
| key, value | binary | null as in the log |
| headers | list<struct<key: utf8, value: binary>> | bad UTF-8 replaced as Java does |
| producer_id | int64 | -1 without one, as for all below |
| producer_epoch | int16 | |
| sequence | int32 | of the record, not of its batch |
| partition_leader_epoch | int32 | |
| is_transactional, is_control | bool | |
| position | int64 | byte of the log file where the record's batch begins |

Streams of whole topics (`DataDir.to_arrow`) also have ORIGIN_COLUMNS:

| column | Arrow type | meaning |
|---|---|---|
| topic | utf8 | |
| partition | int32 | |
"""

from __future__ import annotations

from collections.abc import Sequence

from seglog._native.columns import COLUMNS, DEFAULT_COLUMNS, ORIGIN_COLUMNS, schema_capsule

__all__ = ["COLUMNS", "DEFAULT_COLUMNS", "ORIGIN_COLUMNS", "RecordSchema"]


class RecordSchema:
    """The schema of a projection: `pyarrow.schema(RecordSchema(["offset", "value"]))`."""

    def __init__(self, columns: Sequence[str] = DEFAULT_COLUMNS) -> None:
        schema_capsule(columns)  # ValueError for an unknown name
        self.columns = tuple(columns)

    def __arrow_c_schema__(self) -> object:
        return schema_capsule(self.columns)

    def __repr__(self) -> str:
        return f"RecordSchema({', '.join(self.columns)})"
