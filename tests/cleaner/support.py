"""Small logs to clean, and what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from seglog.config import LogConfig
from seglog.log.append_info import AppendOrigin
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record

NOW = 1_700_000_000_000
SLOT = 24
_COLLIDING = bytes.fromhex(
    "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f89"
    "55ad340609f4b30283e488832571415a085125e8f7cdc99fd91dbdf280373c5b"
    "d8823e3156348f5bae6dacd436c919c6dd53e2b487da03fd02396306d248cda0"
    "e99f33420f577ee8ce54b67080a80d1ec69821bcb6a8839396f9652b6ff72a70")
#: Two keys with one MD5; the highest bits of six bytes differ (Wang et al., "Collisions for
#: Hash Functions MD4, MD5, HAVAL-128 and RIPEMD", 2004).
COLLIDING = (_COLLIDING, bytes(byte ^ (0x80 if at in (19, 45, 59, 83, 109, 123) else 0)
                               for at, byte in enumerate(_COLLIDING)))
Rows = Iterable[tuple[bytes | None, bytes | None]]


def opened(path: Path, *, clean: bool = True, recovery_point: int = 0, **config: Any) -> UnifiedLog:
    time = MockTime(current_time_ms=NOW)
    settings = {"cleanup.policy": "compact", "segment.index.bytes": "1200",
                "delete.retention.ms": "50000"}
    settings |= {key.replace("_", "."): str(value) for key, value in config.items()}
    return UnifiedLog.create(path, LogConfig.from_properties(settings), clean_shutdown=clean,
                             scheduler=time.scheduler, time=time, recovery_point=recovery_point)


def batch(rows: Rows, *, producer: int = -1, sequence: int = -1, transactional: bool = False,
          base: int = 0, **fields: Any) -> bytes:
    records = [Record(base + number, NOW, key, value) for number, (key, value) in enumerate(rows)]
    return v2.encode(Batch(
        base, len(records) - 1, records, base_timestamp=NOW, max_timestamp=NOW,
        producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence,
        is_transactional=transactional, **fields))


def append(log: UnifiedLog, rows: Rows, **how: Any) -> None:
    log.append_as_leader(batch(rows, **how), 0)


def end_transaction(log: UnifiedLog, producer: int, *, commit: bool) -> None:
    marker = v2.marker(0, producer, 0, v2.COMMIT if commit else v2.ABORT, NOW)
    log.append_as_leader(v2.encode(marker), 0, origin=AppendOrigin.COORDINATOR,
                         transaction_version=0)


def roll(log: UnifiedLog) -> None:
    """Makes everything cleanable."""
    log.update_high_watermark(log.log_end_offset)
    log.roll()


def batches(log: UnifiedLog) -> Iterator[Batch]:
    """All of them, from the files."""
    for base in log.segments.base_offsets.tolist():
        data = (Path(log.path) / f"{base:020d}.log").read_bytes()
        while data:
            size = 12 + int.from_bytes(data[8:12], "big")
            yield v2.decode(data[:size])
            data = data[size:]


def records(log: UnifiedLog) -> list[Record]:
    return [record for one in batches(log) for record in one.records]


def leftovers(log: UnifiedLog) -> list[str]:
    return [path.name for path in Path(log.path).iterdir() if path.suffix in (".cleaned", ".swap")]
