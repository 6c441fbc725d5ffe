"""Stands in for the validator and the producers for the hours until they land."""
# mypy: ignore-errors
from __future__ import annotations
import struct
from dataclasses import dataclass
from typing import Any
import numpy as np
from seglog._native.batch import scan
from seglog.errors import RecordTooLargeError
from seglog.log.append_info import AppendOrigin, LogAppendInfo

def analyze_and_validate_records(records, *, origin, leader_epoch, max_message_bytes,
                                 ignore_record_size, **how):
    found = scan(records)
    batches = found.batches
    info = LogAppendInfo()
    if len(batches):
        keep = len(batches)
        if origin is AppendOrigin.REPLICATION:
            higher = np.flatnonzero((batches["partition_leader_epoch"] > leader_epoch))
            keep = int(higher[0]) if len(higher) else keep
        batches = batches[:keep]
    if len(batches):
        info.first_offset = int(batches["base_offset"][0])
        info.last_offset = int(batches["last_offset"][-1])
        info.last_offset_of_first_batch = int(batches["last_offset"][0])
        info.max_timestamp = int(batches["max_timestamp"].max())
        info.valid_bytes = int(batches["size"].sum())
        for b in batches:
            if not ignore_record_size and b["size"] > max_message_bytes:
                raise RecordTooLargeError("")
    return info, batches

@dataclass
class ValidationResult:
    records: Any
    batches: Any
    log_append_time_ms: int
    max_timestamp: int
    message_size_maybe_changed: bool

def validate_messages_and_assign_offsets(records, batches, *, next_offset, leader_epoch, **how):
    made = bytearray(records)
    batches = batches.copy()
    for b in batches:
        count = int(b["last_offset"] - b["base_offset"]) + 1
        b["base_offset"], b["last_offset"] = next_offset, next_offset + count - 1
        b["partition_leader_epoch"] = leader_epoch
        struct.pack_into(">q", made, int(b["position"]), next_offset)
        struct.pack_into(">i", made, int(b["position"]) + 12, leader_epoch)
        next_offset += count
    return ValidationResult(made, batches, -1, int(batches["max_timestamp"].max()), False)
