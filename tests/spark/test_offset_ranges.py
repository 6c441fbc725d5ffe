"""Offsets divided among tasks: none lost, none twice, and no task too large."""

from __future__ import annotations

import random

import pytest

from seglog.model import TopicPartition
from seglog.spark.offset_ranges import OffsetRange, divide

A, B, C = (TopicPartition("t", number) for number in range(3))


def sizes(ranges: list[OffsetRange]) -> list[int]:
    return [one.size for one in ranges]


def test_known_divisions() -> None:
    """The cases of KafkaOffsetRangeCalculatorSuite."""
    one, ten, hundred = OffsetRange(A, 1, 2), OffsetRange(B, 1, 11), OffsetRange(C, 1, 101)
    assert divide([one, ten], None, None) == [one, ten]
    assert sizes(divide([OffsetRange(A, 1, 5)], 3, None)) == [1, 1, 2]
    assert sizes(divide([one, OffsetRange(B, 1, 2)], 6, None)) == [1, 1]
    assert sizes(divide([hundred, OffsetRange(B, 1, 2)], 10, None)) == [11] * 8 + [12, 1]
    assert sizes(divide([hundred], None, 20)) == [20] * 5
    assert sizes(divide([ten, hundred], 3, 50)) == [10, 50, 50]
    assert divide([OffsetRange(A, 5, 5), OffsetRange(B, 9, 3)], 4, 1) == []


@pytest.mark.parametrize(("least", "most", "option"), [
    (None, 1, "'maxRecordsPerPartition' of 1"), (1 << 31, None, "'minPartitions' of 2147483648")])
def test_more_tasks_than_spark_can_run(least: int | None, most: int | None, option: str) -> None:
    """The end of a damaged log may be any number; it took all memory."""
    end = 1 << 62
    with pytest.raises(ValueError, match=f"^Option {option} divides the offsets 1 to {end - 1} of "
                                         r"t-1 into [\d,]+ tasks, and all into "):
        divide([OffsetRange(A, 1, 11), OffsetRange(B, 1, end)], least, most)
    assert sizes(divide([OffsetRange(A, 1, 11)], 1 << 31, None)) == [1] * 10


@pytest.mark.parametrize("seed", range(200))
def test_divisions_cover_each_offset_once(seed: int) -> None:
    rnd = random.Random(seed)
    whole = []
    for number in range(rnd.randint(1, 6)):
        start = rnd.randint(0, 1 << 40)
        whole.append(OffsetRange(TopicPartition("t", number), start,
                                 start + rnd.choice([0, 1, 7, rnd.randint(0, 10_000)])))
    wanted = rnd.choice([None, 1, 3, 20, 200])
    most = rnd.choice([None, 100, 999, 1 << 62])
    parts = divide(whole, wanted, most)
    assert all(part.size > 0 and (most is None or part.size <= most) for part in parts)
    joined: dict[TopicPartition, OffsetRange] = {}
    for part in parts:
        before = joined.get(part.topic_partition)
        if before is not None:
            assert part.start == before.end
        joined[part.topic_partition] = OffsetRange(
            part.topic_partition, part.start if before is None else before.start, part.end)
    assert list(joined.values()) == [one for one in whole if one.size]
    if wanted is not None and most is None:
        assert len(parts) >= min(wanted, sum(one.size for one in whole)) // 2
