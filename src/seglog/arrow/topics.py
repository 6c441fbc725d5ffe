"""Whole topics as one stream of Arrow record batches, one partition after another."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, UTC
from typing import Any

from seglog._native.columns import (
    DEFAULT_COLUMNS, ORIGIN_COLUMNS, Projection, RecordColumns, RecordOrigin,
)
from seglog.arguments import count, int32, int64, names
from seglog.arguments import threads as at_once
from seglog.errors import OffsetOutOfRangeError
from seglog.model import TopicPartition
from seglog.storage.isolation import Isolation, check_isolation
from seglog.storage.log_reader import BATCH_BYTES, BATCH_ROWS
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogGap
from seglog.storage.stream import (
    ColumnStream, DecodeOptions, OnDamage, Pass, RecordBatchStream,
)

__all__ = ["TOPIC_COLUMNS", "OffsetBound", "TimeBound", "TopicStream", "to_millis"]

#: The default columns of a topic's records.
TOPIC_COLUMNS = (*ORIGIN_COLUMNS, *DEFAULT_COLUMNS)

#: One offset for every partition, or one for some of them.
OffsetBound = int | Mapping[TopicPartition, int] | None
#: Milliseconds since 1970 UTC, or a datetime with a time zone.
TimeBound = int | datetime | None
#: Opens the log of a partition when it is read.
OpenLog = Callable[[], PartitionLog]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS_MAX = 1 << 20  # so that the names of a topic stay below 2 GiB


class TopicStream(ColumnStream):
    """A lazy stream of the records of some partitions, one partition after another.

    Iterate it for `RecordColumns`, or pass it to any consumer of the Arrow C stream interface. It
    can be read again: a new iteration and every consumer of the C stream interface start over,
    except that an unfinished pass continues. It uses the memory of one partition's stream. Corrupt
    bytes raise CorruptDataError after all records before them.

    `partitions` are the partitions read, in order; `isolation` is their isolation level. Made by
    `DataDir.to_arrow`.
    """

    def __init__(self, logs: Sequence[tuple[TopicPartition, OpenLog]],
                 columns: Sequence[str] | None = None, *, start_offset: OffsetBound = None,
                 end_offset: OffsetBound = None, start_timestamp: TimeBound = None,
                 end_timestamp: TimeBound = None, isolation: Isolation = "read_uncommitted",
                 threads: int = 0, batch_rows: int = BATCH_ROWS, batch_bytes: int = BATCH_BYTES,
                 include_control: bool = False, check_crcs: bool = True,
                 on_damage: OnDamage = "raise", on_gap: Callable[[LogGap], None] | None = None,
                 on_partition: Callable[[TopicPartition], None] = lambda tp: None) -> None:
        check_isolation(isolation)
        _check_offsets("start_offset", start_offset)
        _check_offsets("end_offset", end_offset)
        wanted = tuple(TOPIC_COLUMNS if columns is None else names("columns", columns))
        Projection(wanted, origin=True)  # a wrong name is an error now
        DecodeOptions(on_damage=on_damage)  # as is another value
        self.isolation = isolation
        self.partitions = tuple(tp for tp, _ in logs)
        options = {
            "isolation": isolation, "threads": at_once("threads", threads),
            "batch_rows": min(int32("batch_rows", batch_rows, 1), _ROWS_MAX),
            "batch_bytes": count("batch_bytes", batch_bytes), "include_control": include_control,
            "check_crcs": check_crcs, "on_damage": on_damage, "on_gap": on_gap}
        reader = _Reader(tuple(logs), wanted, start_offset, end_offset, to_millis(start_timestamp),
                         to_millis(end_timestamp), options, on_partition)
        reader.check_bounds()
        super().__init__(wanted, reader.begin)

    def __repr__(self) -> str:
        topics = ", ".join(dict.fromkeys(tp.topic for tp in self.partitions))
        return (f"<TopicStream {topics}: {len(self.partitions)} partitions, {self.isolation}, "
                f"{', '.join(self.columns)}>")


@dataclass(frozen=True, slots=True)
class _Reader:
    """The state shared by the passes of a stream. It has no reference to the stream, so a dropped
    stream ends its threads at once, without the cyclic garbage collector."""

    logs: tuple[tuple[TopicPartition, OpenLog], ...]
    columns: tuple[str, ...]
    start_offset: OffsetBound
    end_offset: OffsetBound
    start_timestamp: int | None
    end_timestamp: int | None
    options: Mapping[str, Any]
    on_partition: Callable[[TopicPartition], None]

    def begin(self) -> Pass:
        """One pass over all partitions."""
        running: list[RecordBatchStream] = []

        def join() -> None:
            for stream in running:
                stream.close()

        return Pass(self._batches(running), join)

    def _batches(self, running: list[RecordBatchStream]) -> Generator[RecordColumns]:
        for tp, open_log in self.logs:
            self.on_partition(tp)
            origin = RecordOrigin(
                self.columns, topic=tp.topic, partition=tp.partition,
                start_timestamp=self.start_timestamp, end_timestamp=self.end_timestamp)
            stream = self._stream(tp, open_log(), origin.decoded)
            if stream is None:
                continue
            running[:] = [stream]
            for decoded in stream:
                found = origin.apply(decoded)
                del decoded  # frees its memory for the next batch
                if found is not None:
                    yield found
                    del found
            running.clear()

    def _stream(self, tp: TopicPartition, log: PartitionLog, columns: Sequence[str]
                ) -> RecordBatchStream | None:
        """The records that may be in the bounds, None if there are none."""
        start = max(_of(self.start_offset, tp) or 0, log.log_start_offset)
        end = _of(self.end_offset, tp)
        skips = self.options["on_damage"] == "skip"
        if self.start_timestamp is not None and self.start_timestamp >= 0:
            # All records before the first match are too early. There is no such bound at the
            # other end: a record may be older than those before it.
            found = log.offset_for_timestamp(
                self.start_timestamp, on_damage="skip" if skips else "raise")
            if found is None:
                return None
            start = max(start, found.offset)
        log_end = log.end_offset(self.options["isolation"], "skip") if skips else log.log_end_offset
        if start > log_end or (end is not None and end <= start):
            return None
        return log.to_arrow(start, end, columns, **self.options)

    def check_bounds(self) -> None:
        """Raises OffsetOutOfRangeError if the offsets leave nothing to read in any partition."""
        if self.start_offset is None and self.end_offset is None:
            return
        read = {tp for tp, _ in self.logs}
        for bound in (self.start_offset, self.end_offset):
            for tp in bound if isinstance(bound, Mapping) else ():
                if tp not in read:
                    raise ValueError(f"an offset is given for {tp}, which is not read here")
        texts = []
        for tp, open_log in self.logs:
            log = open_log()
            first = log.log_start_offset
            last = log.end_offset(on_damage=self.options.get("on_damage", "raise"))
            start, end = _of(self.start_offset, tp), _of(self.end_offset, tp)
            if (start is None or start <= last) and (end is None or end >= first):
                return
            texts.append(f"{tp} holds offsets {first} to {last - 1}" if last > first
                         else f"{tp} holds no record, and its log end offset is {last}")
        if texts:
            bounds = [f"{name} {value}" for name, value in
                      (("start_offset", self.start_offset), ("end_offset", self.end_offset))
                      if value is not None]
            more = f", and {len(texts) - 5} more partitions" if len(texts) > 5 else ""
            raise OffsetOutOfRangeError(
                f"nothing to read with {' and '.join(bounds)}: {'; '.join(texts[:5])}{more}")


def _of(bound: OffsetBound, tp: TopicPartition) -> int | None:
    return bound.get(tp) if isinstance(bound, Mapping) else bound


def _check_offsets(name: str, bound: OffsetBound) -> None:
    for offset in bound.values() if isinstance(bound, Mapping) else (bound,):
        if offset is not None:
            int64(name, offset)


def to_millis(moment: TimeBound) -> int | None:
    """Milliseconds since 1970, rounded up: the first millisecond not before `moment`.

    Raises TypeError unless `moment` is an int or a datetime, ValueError for a datetime without a
    time zone.
    """
    if moment is None:
        return None
    if isinstance(moment, int) and not isinstance(moment, bool):
        return int64("a time", moment)
    if not isinstance(moment, datetime):
        raise TypeError(f"a time is milliseconds (int) or a datetime, not {moment!r}")
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; add one, such as "
                         "tzinfo=datetime.timezone.utc")
    return -((_EPOCH - moment) // timedelta(milliseconds=1))
