"""Records for logs that tests write to."""

from __future__ import annotations

from pathlib import Path

from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.unified_log import UnifiedLog

NOW_MS = 1_700_000_000_000


def batch(count: int = 3, *, value: bytes = b"v" * 100, timestamp: int = NOW_MS,
          producer_id: int = -1, sequence: int = -1) -> bytes:
    """One batch, as a producer sends it."""
    builder = RecordBatchBuilder(
        producer_id=producer_id, producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence)
    for number in range(count):
        builder.append(timestamp, str(number).encode(), value)
    return bytes(builder.build())


def fill(log: UnifiedLog, batches: int, **how: object) -> int:
    """Appends so many batches; the log's end."""
    for _ in range(batches):
        log.append_as_leader(batch(**how), 0)  # type: ignore[arg-type]
    return log.log_end_offset


def payload(log: UnifiedLog) -> bytes:
    """What all of its log files hold, one after the other."""
    with log.lock:
        return b"".join(Path(log.path, f"{base:020d}.log").read_bytes()
                        for base in log.segments.base_offsets.tolist())
