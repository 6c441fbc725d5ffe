"""What a LogManager tiers is read without it: from its disk and the tier, and from the tier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.log.watermarks import StartOffsetReason
from seglog.remote_log import RemoteLogManager
from seglog.tiered import LayoutStorageManager, open_bucket
from seglog.tiered.tier_check import check_partition
from tests.remote_log.tiering import KEY, Tiering

#: Inside the second segment.
CUT = 6


def values(log: Any, **options: Any) -> list[bytes]:
    return [value for batch in log.to_arrow(columns=["value"], **options)
            for value in batch.to_pylists()["value"]]


@pytest.mark.parametrize("layout", ["local", "aiven"])
def test_a_tier_of_layouts(tmp_path: Path, layout: str) -> None:
    tier = tmp_path / "tier"
    one = Tiering(tmp_path, storage=LayoutStorageManager(), topic={"local.retention.bytes": 1},
                  settings={"rsm.config.url": str(tier), "rsm.config.layout": layout})
    one.append(33)
    one.copy()
    one.log.delete_old_segments()
    assert one.log.local_log_start_offset > one.log.log_start_offset == 0
    written = [b"v" * 100] * 33
    end = one.segments()[-1].end_offset + 1
    remote = one.tiering.read(KEY, 0, 1 << 20)
    assert remote.records
    one.close()
    bucket = open_bucket(tier, metadata=tmp_path / "data")
    with seglog.PartitionLog.open(tmp_path / "data" / "orders-0", remote=bucket) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, 33)
        assert values(log) == written and values(log, start_offset=7, end_offset=9) == written[:2]
    for metadata in (tmp_path / "data", ()):
        with open_bucket(tier, metadata=metadata).log("orders", 0) as log:
            assert (log.log_start_offset, log.log_end_offset) == (0, end)
            assert values(log) == written[:end]


@pytest.mark.parametrize("layout", ["local", "aiven"])
@pytest.mark.parametrize("start", [0, CUT])
def test_a_tail_that_the_log_lost(tmp_path: Path, layout: str, start: int) -> None:
    """An unclean election: the log has other records where a copied segment ends. So it is too if
    the lineage begins with them, because the log's start moved."""
    tier = tmp_path / "tier"
    one = Tiering(tmp_path, storage=LayoutStorageManager(), topic={"local.retention.bytes": 1},
                  settings={"rsm.config.url": str(tier), "rsm.config.layout": layout})
    one.append(11)
    one.copy()
    copied = one.segments()[-1]
    assert copied.start_offset < CUT < copied.end_offset
    one.tiering.on_leadership_change([], [KEY])
    one.manager.truncate_to({KEY: CUT})
    one.log.roll()
    one.tiering.on_leadership_change([KEY])
    for number in range(CUT, 33):
        one.append(1, epoch=1, value=b"%d" % number)
    one.copy()
    one.log.delete_old_segments()
    if start:
        one.log.maybe_increment_log_start_offset(start, StartOffsetReason.CLIENT_RECORD_DELETION)
    one.close()
    written = [*[b"v" * 100] * CUT, *(b"%d" % number for number in range(CUT, 33))]
    with seglog.PartitionLog.open(tmp_path / "data" / "orders-0", remote=open_bucket(
            tier, layout=layout)) as log:
        assert values(log, start_offset=start) == written[start:]
        assert {one.code for one in check_partition(log).findings} <= {"outside_lineage"}


def test_a_plug_in_by_its_class(tmp_path: Path) -> None:
    one = Tiering(tmp_path, storage=None, settings={
        "remote.log.storage.manager.class.name": "seglog.tiered.LayoutStorageManager"})
    assert isinstance(one.tiering, RemoteLogManager)
    one.append(11)
    one.copy()
    assert len(one.segments()) == 2
    one.close()
    assert open_bucket(tmp_path / "remote").partitions
