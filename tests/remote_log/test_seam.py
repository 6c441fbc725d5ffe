"""Reads and lookups at the borders of remote segments: of logs that were compacted before they were
tiered, that begin within a segment, or that lost the end of one."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seglog.log.watermarks import StartOffsetReason
from seglog.storage.isolation import Isolation
from tests.remote_log.support import NOW_MS
from tests.remote_log.tiering import KEY, Make, Tiering
from tests.remote_log.tiering import make as make  # the fixture


def without_last_batch(root: Path) -> int:
    """Removes what a compaction may remove: the last batch of the first segment. Returns its
    offset."""
    path = root / "data" / "orders-0" / f"{0:020d}.log"
    data = path.read_bytes()
    position = offset = 0
    while position < len(data):
        last, offset = position, int.from_bytes(data[position:position + 8])
        position += int.from_bytes(data[position + 8:position + 12]) + 12
    path.write_bytes(data[:last])
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).write_bytes(b"")
    return offset


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_end_of_a_compacted_segment_before_the_local_ones(
        make: Make, tmp_path: Path, isolation: Isolation) -> None:
    """The records after it are local: a consumer waited there for ever."""
    before = make()
    before.append(6)
    first = before.bases()[1]
    before.close()
    lost = without_last_batch(tmp_path)
    assert lost == first - 1
    one = make(topic={"local.retention.bytes": 1})
    one.log.update_high_watermark(6)
    one.copy()
    one.log.delete_old_segments()
    assert one.log.local_log_start_offset == first
    found = one.tiering.read(KEY, lost, 10_000, isolation)
    local = one.log.read(first, 10_000, isolation)
    assert found.records == local.records and found.records
    assert found.fetch_offset_metadata.message_offset == first
    assert found.aborted_transactions == local.aborted_transactions


def tiered(make: Make) -> Tiering:
    one = make(topic={"local.retention.bytes": 1, "retention.bytes": 10**9})
    one.append(30)
    one.copy()
    one.log.delete_old_segments()
    return one


@pytest.mark.parametrize("change", [
    lambda _: 1 << 30, lambda position: position + 170, lambda position: 3 * 170],
    ids=["after the end", "the next batch", "the last batch"])
def test_an_offset_index_that_leads_too_far(make: Make, change: object) -> None:
    """No record is passed over."""
    one = tiered(make)
    second = one.segments()[1]
    stored = one.storage.path(second, ".index")
    entries = list(struct.iter_unpack(">ii", stored.read_bytes()))
    stored.write_bytes(b"".join(struct.pack(">ii", offset, change(position))  # type: ignore
                                for offset, position in entries))
    for offset in range(second.start_offset, second.end_offset + 1):
        found = one.tiering.read(KEY, offset, 1)
        assert found.fetch_offset_metadata.message_offset == offset
        at = one.tiering.offset_for_timestamp(KEY, NOW_MS + offset)
        assert at is not None and at.offset == offset


def test_a_log_that_begins_after_the_latest_record_of_a_segment(make: Make) -> None:
    """The search continues in the next remote segment. (Kafka's continues on the disk.)"""
    one = make(topic={"local.retention.bytes": 1, "retention.bytes": 10**9})
    one.append(1, timestamp=NOW_MS + 1000)
    one.append(29)
    one.copy()
    one.log.delete_old_segments()
    one.log.maybe_increment_log_start_offset(1, StartOffsetReason.CLIENT_RECORD_DELETION)
    wanted = one.bases()[0] - 8
    found = one.tiering.offset_for_timestamp(KEY, NOW_MS + wanted)
    assert found is not None and found.offset == wanted


@pytest.mark.parametrize("length", [(1 << 31) - 1, 1 << 40, (1 << 63) - 1])
def test_a_length_beyond_all_records(make: Make, length: int) -> None:
    one = tiered(make)
    assert one.tiering.read(KEY, 0, length).records == one.tiering.read(KEY, 0, 850).records
