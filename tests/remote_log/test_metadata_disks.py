"""The metadata topic on several disks, one of which fails: the others' metadata is followed."""

from __future__ import annotations


import pytest

from seglog.log.unified_log import UnifiedLog
from seglog.model import TopicPartition
from seglog.tiered import TopicIdPartition
from seglog.tiered.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from tests.remote_log.test_topic_based_manager import PARTITIONER, Stepped
from tests.remote_log.test_topic_based_manager import stepped as stepped  # the fixture

BROKEN = TopicPartition(REMOTE_LOG_METADATA_TOPIC, 1)


def user_of(metadata_partition: int, number: int = 0) -> TopicIdPartition:
    """A partition whose metadata is in that metadata partition."""
    every = (TopicIdPartition(bytes([9]) * 16, "others", at) for at in range(1000))
    return [one for one in every if PARTITIONER.metadata_partition(one) == metadata_partition][
        number]


def lose_a_disk(stepped: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of a directory that goes offline are gone."""
    get_log = stepped.logs.get_log

    def found(key: TopicPartition, is_future: bool = False) -> UnifiedLog | None:
        return None if key == BROKEN else get_log(key, is_future)

    monkeypatch.setattr(stepped.logs, "get_log", found)


def test_events_on_the_other_disks_are_read(stepped: Stepped, monkeypatch: pytest.MonkeyPatch
                                            ) -> None:
    users = [user_of(number) for number in range(3)]
    stepped.task.add_assignments(users)
    stepped.task.step()
    lose_a_disk(stepped, monkeypatch)
    for user in (users[0], users[2]):
        stepped.write(user, 0)
    for _ in range(3):
        stepped.task.step()
    assert [stepped.starts(user) for user in users] == [[0], [], [0]]
    monkeypatch.undo()
    stepped.write(users[1], 0)
    stepped.task.step()
    assert stepped.starts(users[1]) == [0] and stepped.task.failure is None


def test_partitions_of_the_other_disks_are_followed(stepped: Stepped,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are new get ready; those of the failed disk do once it is back."""
    stepped.task.add_assignments([user_of(1)])
    stepped.task.step()
    users = [user_of(0), user_of(1, 1), user_of(2)]
    for user in users:
        stepped.write(user, 0)
    lose_a_disk(stepped, monkeypatch)
    stepped.task.add_assignments(users)
    for _ in range(3):
        stepped.task.step()
    assert [stepped.store.is_initialized(user) for user in users] == [True, False, True]
    monkeypatch.undo()
    stepped.clock.sleep(300_001)
    for _ in range(3):
        stepped.task.step()
    assert [stepped.starts(user) for user in users] == [[0], [0], [0]]
