"""Remote log metadata (KIP-405): filling the cache by leader epoch, its memory, and lookups."""

from __future__ import annotations

import bisect
import random
import statistics
import tracemalloc
from collections.abc import Iterator
from functools import partial

from bench.harness import Against, Compare, Row, equals, pick, timed
from seglog.tiered import (
    RemoteLogMetadataCache, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, TopicIdPartition, deserialize,
    serialize,
)

SEGMENTS = pick(2_000, 100_000, 1_000_000)
LOOKUPS = pick(1_000, 100_000, 500_000)
PARTITION = TopicIdPartition(bytes(range(16)), "orders", 7)
_CHUNK = 1000
#: The goals: a million segments in 10 s, 400 bytes each, 2 us a lookup.
SEGMENTS_GOAL, BYTES_GOAL, LOOKUPS_GOAL = 100_000, 400, 500_000

Events = list[tuple[RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate]]


def events(count: int) -> Iterator[Events]:
    """The start and end event of each segment's copy, in chunks."""
    rng = random.Random(1)
    for chunk in range(0, count, _CHUNK):
        made: Events = []
        for number in range(chunk, min(chunk + _CHUNK, count)):
            segment_id = RemoteLogSegmentId(PARTITION, rng.randbytes(16))
            made.append((
                RemoteLogSegmentMetadata(segment_id, 100 * number, 100 * number + 99, 10**12, 1,
                                         10**12, 1 << 30, {number // 10_000: 100 * number}),
                RemoteLogSegmentMetadataUpdate(segment_id, 10**12, None,
                                               RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 1)))
        yield made


def fill(cache: RemoteLogMetadataCache, chunk: Events) -> None:
    """Adds both events of every segment."""
    for started, finished in chunk:
        cache.add_copy_in_progress_segment(started)
        cache.update_remote_log_segment_metadata(finished)


def test_cache(compare: Compare) -> None:
    """Adds segments to the cache in the order of a broker's events, then looks up random ones."""
    cache = RemoteLogMetadataCache(PARTITION)
    seconds = sum(timed(partial(fill, cache, chunk))[0] for chunk in events(SEGMENTS))
    assert len(cache) == SEGMENTS
    rate = SEGMENTS / seconds
    compare.add(Row("segments into the metadata cache, two events each", "segments", rate,
                    "goal: 1,000,000 in 10 s", SEGMENTS_GOAL, rate / SEGMENTS_GOAL, goal=1.0))
    rng = random.Random(2)
    wanted = [(offset // 1_000_000, offset) for offset in
              (rng.randrange(100 * SEGMENTS) for _ in range(LOOKUPS))]
    # The minimum in Python: no epochs and no metadata objects.
    starts = list(range(0, 100 * SEGMENTS, 100))

    def start_of(epoch: int, offset: int) -> int:
        found = cache.remote_log_segment_metadata(epoch, offset)
        assert found is not None
        return found.start_offset

    def look() -> list[int]:
        # A fetch uses its answer and drops it.
        return [start_of(epoch, offset) for epoch, offset in wanted]

    check = equals([offset // 100 * 100 for _, offset in wanted])
    measure = f"lookup among {SEGMENTS:,} remote segments"
    compare(measure, look, [
        Against("Python's bisect on a list", lambda: [
            starts[bisect.bisect_right(starts, offset) - 1] for _, offset in wanted])],
            work=LOOKUPS, unit="lookups", check=check)

    def only_look() -> None:
        for epoch, offset in wanted:
            lookup(epoch, offset)

    lookup = cache.remote_log_segment_metadata
    rate = LOOKUPS / statistics.median(timed(only_look)[0] for _ in range(5))
    compare.add(Row(measure, "lookups", rate, "goal: 2 us each", LOOKUPS_GOAL,
                    rate / LOOKUPS_GOAL, goal=1.0))


def test_cache_memory(compare: Compare) -> None:
    """The memory of one segment, by Python's allocations."""
    count = SEGMENTS // 10
    cache = RemoteLogMetadataCache(PARTITION)
    tracemalloc.start()
    for chunk in events(count):
        fill(cache, chunk)
    del chunk
    each = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()
    compare.add(Row("memory of a remote segment", "B each", each, "goal", BYTES_GOAL,
                    each / BYTES_GOAL, goal=1.0, at_most=True))
    compare.run_once(lambda: cache.list_remote_log_segments(0))


def test_records(compare: Compare) -> None:
    """Decodes values of the metadata topic to records, two a segment."""
    values = [serialize(event) for chunk in events(SEGMENTS // 10) for pair in chunk
              for event in pair]
    seconds, _ = timed(lambda: [deserialize(value) for value in values])
    rate = len(values) / seconds
    compare.add(Row("records of the metadata topic decoded", "records", rate,
                    "goal of the cache: two events a segment", 2 * SEGMENTS_GOAL,
                    rate / (2 * SEGMENTS_GOAL)))
    compare.run_once(lambda: [deserialize(value) for value in values[:1000]])
