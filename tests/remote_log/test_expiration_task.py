"""What a leader deletes from remote storage: expired segments, and those below the log start or of
another lineage."""

from __future__ import annotations

import pytest

from seglog.errors import RemoteStorageError, RetriableRemoteStorageError
from seglog.log.watermarks import StartOffsetReason
from seglog.model import EpochEntry
from seglog.tiered import RemoteLogSegmentState as S
from tests.remote_log.tiering import ID_KEY, Make
from tests.remote_log.tiering import make as make  # the fixture


def test_retention_by_time(make: Make) -> None:
    one = make(topic={"retention.ms": 1000, "local.retention.ms": -2})
    one.append(18)
    one.copy()
    bases = one.bases()
    one.clock.sleep(1000 + bases[2])  # so that the newest record below bases[2] is 1,001 ms old
    one.expire()
    assert one.log.log_start_offset == bases[2]
    assert one.storage.starts() == bases[2:-1]
    assert one.gauge("RemoteDeleteRequestsPerSec") == 2
    assert (one.gauge("RemoteDeleteLagSegments"), one.gauge("RemoteDeleteLagBytes")) == (0, 0)


def test_retention_by_size(make: Make) -> None:
    one = make(topic={"retention.bytes": 2000, "local.retention.bytes": 1})
    one.append(30)
    one.copy()
    one.log.delete_old_segments()
    size = sum(found.segment_size_in_bytes for found in one.segments())
    assert size > 4000
    one.expire()
    left = sum(found.segment_size_in_bytes for found in one.segments()) \
        + one.log.only_local_segments()[1]
    assert 2000 <= left < 2000 + 850
    assert one.log.log_start_offset == one.segments()[0].start_offset
    percent = one.manager.metrics.get("kafka.log.remote:type=RemoteLogManager,"
                                      "name=RetentionSizeInPercent,topic=orders,partition=0")
    assert percent is not None and percent.attributes()["Value"] > 200
    one.expire()
    assert percent.attributes()["Value"] == left * 100 // 2000
    assert one.gauge("RemoteLogMetadataCount") == len(one.segments())


def test_the_local_share_of_a_topic_without_a_local_limit(make: Make) -> None:
    """local.retention.bytes=-2 means retention.bytes, in the gauge too."""
    one = make(topic={"retention.bytes": 2000, "local.retention.bytes": -2})
    one.append(9)
    one.expire()
    percent = one.manager.metrics.get("kafka.log.remote:type=RemoteLogManager,"
                                      "name=LocalRetentionSizeInPercent,topic=orders,partition=0")
    assert percent is not None
    assert percent.attributes()["Value"] == one.log.size * 100 // 2000 > 0


@pytest.mark.parametrize("is_known", [False, True])
def test_what_a_client_deleted_does_not_count_for_retention_by_size(make: Make, is_known: bool
                                                                    ) -> None:
    """Kafka deletes as many segments more as the log was too large before."""
    one = make(topic={"retention.bytes": 4000, "local.retention.bytes": 1})
    one.append(20)
    one.copy()
    one.log.delete_old_segments()
    if is_known:  # that all segments are of the log's lineage
        one.expire()
    one.append(20)
    one.copy()
    one.log.delete_old_segments()
    middle = one.segments()[-4].start_offset
    one.log.maybe_increment_log_start_offset(middle, StartOffsetReason.CLIENT_RECORD_DELETION)
    one.expire()
    assert one.log.log_start_offset == middle == one.segments()[0].start_offset


def test_records_deleted_by_a_client_go_from_remote_storage(make: Make) -> None:
    one = make()
    one.append(18)
    one.copy()
    bases = one.bases()
    one.log.maybe_increment_log_start_offset(bases[2] + 1, StartOffsetReason.CLIENT_RECORD_DELETION)
    one.expire()
    assert one.storage.starts() == bases[2:-1]
    assert one.log.log_start_offset == bases[2] + 1


def test_a_deletion_that_fails_is_tried_again(make: Make) -> None:
    one = make(topic={"retention.ms": 1000, "local.retention.ms": -2})
    one.append(12)
    one.copy()
    count = len(one.segments())
    one.clock.sleep(5000)
    one.storage.fail["delete"] = [RemoteStorageError("refused")]
    one.expire()
    assert one.states() == [S.DELETE_SEGMENT_STARTED] + [S.COPY_SEGMENT_FINISHED] * (count - 1)
    assert one.log.log_start_offset == one.bases()[-1], "before anything is deleted"
    assert one.gauge("RemoteDeleteErrorsPerSec", topic="orders") == 1
    one.expire()
    assert one.segments() == [] and one.storage.starts() == []


def test_another_leaders_segments_are_deleted(make: Make) -> None:
    """After an unclean election epochs of the log are gone; what only they wrote goes, too."""
    from tests.remote_log.support import segment

    one = make()
    one.append(12, epoch=7)
    one.copy()
    stray = segment(0, 5, key=ID_KEY, number=99, epochs={3: 0})
    one.tiering.metadata.add_remote_log_segment_metadata(stray).result(60)
    assert len(one.segments()) == len(one.bases())
    one.expire()
    assert stray not in one.segments() and len(one.segments()) == len(one.bases()) - 1


def test_segments_of_epochs_that_an_expiration_ends_go_with_it(make: Make) -> None:
    """The deletion moves the log's start, and with it the first leader epoch."""
    one = make(topic={"retention.bytes": 2000, "local.retention.bytes": -2})
    one.append(4, epoch=0)
    one.storage.fail["copy"] = [RetriableRemoteStorageError("503")]
    one.append(12, epoch=1)
    one.copy()  # leaves a segment that is never completed
    one.copy()
    assert [found.start_offset for found in one.segments()].count(0) == 2
    one.expire()
    assert one.log.leader_epochs.earliest == EpochEntry(1, 4)
    assert [found.start_offset for found in one.segments()].count(0) == 0


def test_segments_of_other_lineages_count_for_the_lag(make: Make) -> None:
    one = make()
    one.append(5, epoch=0)
    one.append(8, epoch=1)
    one.copy()
    first = one.segments()[0]
    assert [epoch for epoch, _ in first.segment_leader_epochs] == [0]
    one.log.maybe_increment_log_start_offset(6, StartOffsetReason.CLIENT_RECORD_DELETION)
    one.storage.fail["delete"] = [RemoteStorageError("503")]
    one.expire()
    assert one.states()[0] == S.DELETE_SEGMENT_STARTED
    assert one.gauge("RemoteDeleteLagSegments") == 1
    assert one.gauge("RemoteDeleteLagBytes") == first.segment_size_in_bytes
    one.expire()
    assert one.segments()[0] != first and one.gauge("RemoteDeleteLagSegments") == 0
