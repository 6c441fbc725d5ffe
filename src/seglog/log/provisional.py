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
from dataclasses import field

@dataclass
class Analysis:
    completed_txns: list = field(default_factory=list)
    duplicate: Any = None

class ProducerStateManager:
    def __init__(self, loading):
        self.loading = loading
        self.snapshots = loading.snapshots
        self.snapshots.adopt()
    @property
    def map_end_offset(self): return self.loading.state.map_end_offset
    def update_map_end_offset(self, offset): self.loading.state.map_end_offset = offset
    def take_snapshot(self, sync=True):
        end = self.map_end_offset
        if end <= self.loading.last_snapshot: return None
        self.loading.take_snapshot()
        return self.snapshots.names[end]
    @property
    def first_unstable_offset(self): return self.loading.state.first_unstable_offset
    def on_high_watermark_updated(self, offset):
        self.loading.state.on_high_watermark_updated(offset)
    def on_log_start_offset_incremented(self, offset):
        self.loading.state.map_end_offset = max(self.map_end_offset, offset)
        self.loading.last_snapshot = self.snapshots.latest(offset)
    def remove_expired(self, now_ms):
        self.loading.state.remove_expired(now_ms, self.loading.expiration_ms)
    def truncate_fully_and_start_at(self, offset):
        self.loading.truncate_fully(offset)
    def analyze(self, batches, records, **how): return Analysis()
    def update(self, analysis): pass
