"""The reader of a streaming query: offsets and tasks on the driver, records on the executors.

Its rules are those of KafkaMicroBatchStream, with two differences that make a restart safe. Lost
data fails the query before the batch is written to the checkpoint, not after. Spark gives a Python
source no access to the place where KafkaMicroBatchStream stores its initial offsets. So the first
batch of a query that starts at the latest offsets is empty, and its checkpoint stores them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from seglog.errors import OffsetOutOfRangeError, UnsupportedOperationError
from seglog.model import TopicPartition
from seglog.spark.executors import CheckedOnArrival
from seglog.spark.failures import in_one_sentence
from seglog.spark.read_options import OffsetBound
from seglog.spark.plan import plan_partitions, require_all_named
from seglog.spark.source_reader import SeglogReader
from seglog.spark.streaming.bounds import LogBounds, WatchedLogs
from seglog.spark.streaming.limits import BatchDelay, limit_ends
from seglog.spark.streaming.positions import Offsets, OffsetDict, as_dict, from_checkpoint
from seglog.spark.streaming.start import InitialOffsets, resolve_initial
from seglog.spark.streaming.stream_options import StreamOptions

if TYPE_CHECKING:
    class SupportsTriggerAvailableNow:
        """Spark's mixin, in PySpark since 4.2."""
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:
        class SupportsTriggerAvailableNow:
            """A substitute before PySpark 4.2, where Trigger.AvailableNow runs as one batch."""

__all__ = ["SeglogStreamReader"]

_log = logging.getLogger("seglog.spark")

_Bounds = dict[TopicPartition, LogBounds]


@dataclass(slots=True)
class _Driver:
    """The driver's state between two calls; executors have none.

    Spark 4.0 and 4.1 do not pass their position: `position` is the end of the last planned batch,
    and `guess` is the end returned to them before it was known. `target` is the end of a query with
    Trigger.AvailableNow.
    """

    logs: WatchedLogs
    delay: BatchDelay | None
    initial: InitialOffsets | None = None
    has_begun: bool = False
    position: dict[TopicPartition, int] | None = None
    guess: dict[TopicPartition, int] | None = None
    target: dict[TopicPartition, int] | None = None
    latest: dict[TopicPartition, int] | None = None


class SeglogStreamReader(CheckedOnArrival, SupportsTriggerAvailableNow, DataSourceStreamReader):
    """Reads micro-batches of the columns `names`. Spark calls the methods; see docs/spark.md.

    The driver's methods raise as `plan_partitions` does, ValueError for another source's
    checkpoint, and OffsetOutOfRangeError for lost data while failOnDataLoss is true.
    """

    def __init__(self, options: StreamOptions, names: Sequence[str]) -> None:
        self._options = options
        self._rows = SeglogReader(options.read, names)
        self._state: _Driver | None = None

    # ---- offsets

    @in_one_sentence
    def initialOffset(self) -> OffsetDict:
        """Where a new query starts. Spark calls it again if the first batch did not finish."""
        return as_dict(self._initial().offsets)

    @in_one_sentence
    def latestOffset(self, start: Any = None, limit: Any = None) -> OffsetDict:
        """Where the next batch ends. Spark passes its start since 4.2."""
        driver = self._driver
        is_limited = limit is None or type(limit).__name__ != "ReadAllAvailable"
        if start is not None:
            position = from_checkpoint(start)
        elif driver.position is not None:
            position = driver.position
        else:
            position = dict(self._initial().offsets)
        ends = self._next_ends(position, is_limited)
        if start is None and driver.position is None:
            driver.guess = ends
        return as_dict(ends)

    def getDefaultReadLimit(self) -> Any:
        """The limit that Spark should report; `latestOffset` applies both limits."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> OffsetDict | None:
        """The log ends at the last trigger, without limits: `latestOffset` in the query's progress.
        None before the first trigger."""
        latest = self._driver.latest
        return as_dict(latest) if latest else None

    @in_one_sentence
    def prepareForTriggerAvailableNow(self) -> None:
        """Limits this run to the records that exist now."""
        driver = self._driver
        driver.target = {tp: bounds.end for tp, bounds in driver.logs.look().items()}

    def commit(self, end: Any) -> None:
        """Does nothing: a log stores no read position."""

    def stop(self) -> None:
        """Drops the driver's state. No file is open between two calls."""
        self._state = None

    # ---- tasks

    @in_one_sentence
    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        """The tasks of `[start, end)`. When a query restarts, Spark 4.0 and 4.1 also call it with
        the checkpoint's end as both bounds."""
        driver = self._driver
        begin, until = from_checkpoint(start), from_checkpoint(end)
        if driver.guess is not None and begin == until:
            _refuse_going_back(driver.guess, until)
        driver.guess, driver.position = None, until
        if begin == until:
            return []
        begin = self._forgive_initial(begin, until)
        driver.has_begun = True
        bounds = driver.logs.look()
        starts = self._starts(begin, until, bounds)
        for tp in begin.keys() - until.keys():
            self._lost(f"{tp} is gone")
        ranges = {}
        for tp, last in until.items():
            first = starts.get(tp)
            if first is None or tp not in bounds:
                self._lost(f"{tp} is gone")
            elif last < first:
                self._lost(f"the offset of {tp} was changed from {first} to {last}")
            elif last > first:
                ranges[tp] = (first, last)
        if not ranges:
            return []
        return plan_partitions(replace(
            self._options.read, assign=frozenset(ranges), subscribe=None, subscribe_pattern=None,
            starting=OffsetBound(offsets={tp: first for tp, (first, _) in ranges.items()}),
            ending=OffsetBound(offsets={tp: last for tp, (_, last) in ranges.items()})))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task, which needs no other state. As `SeglogReader.read`."""
        return self._rows.read(partition)

    # ---- inside

    @property
    def _driver(self) -> _Driver:
        if self._state is None:
            options = self._options
            self._state = _Driver(WatchedLogs(options), None if options.min_offsets is None else
                                  BatchDelay(options.min_offsets, options.max_trigger_delay_ms))
        return self._state

    def _initial(self) -> InitialOffsets:
        driver = self._driver
        if driver.initial is None:
            driver.initial = resolve_initial(self._options.read, driver.logs)
        return driver.initial

    def _next_ends(self, position: dict[TopicPartition, int], is_limited: bool
                   ) -> dict[TopicPartition, int]:
        driver = self._driver
        bounds = self._look(position)
        ends: dict[TopicPartition, int] = {}
        for tp, log in bounds.items():
            known, end = position.get(tp), log.end
            if driver.target is not None:
                # Records newer than this query's start are left for the next query.
                if tp not in driver.target and known is None:
                    continue
                end = min(end, driver.target.get(tp, end if known is None else known))
            # The high watermark and the last stable offset may be below the query's start.
            ends[tp] = end if known is None or log.log_end < known else max(end, known)
        driver.latest = ends
        starts = self._starts(position, ends, bounds)
        initial, is_first = driver.initial, not driver.has_begun
        driver.has_begun = True
        if initial is not None and is_first and position == initial.offsets:
            require_all_named(self._options.read.starting, bounds, "start")
            ends = {tp: starts[tp] if tp in initial.pinned else end for tp, end in ends.items()}
        if not is_limited:
            return ends
        if driver.delay is not None and driver.target is None \
                and driver.delay.holds_back(starts, ends):
            return position
        if self._options.max_offsets is not None:
            return limit_ends(self._options.max_offsets, starts, ends)
        return ends

    def _look(self, position: Offsets) -> _Bounds:
        """The log bounds, read again until no log ends before `position` or the retries are used
        up."""
        for attempt in range(self._options.retries + 1):
            if attempt:
                time.sleep(min(self._options.retry_interval_ms / 1000, threading.TIMEOUT_MAX))
            bounds = self._driver.logs.look()
            losses = list(_losses(position, bounds))
            if not losses:
                break
        for loss in losses:
            self._lost(loss)
        return bounds

    def _starts(self, position: Offsets, ends: Offsets, bounds: _Bounds
                ) -> dict[TopicPartition, int]:
        """Where a batch starts in each partition of `ends`; a new partition starts at its earliest
        offset."""
        starts = {}
        for tp in ends:
            if tp in position:
                starts[tp] = position[tp]
            elif tp in bounds:
                starts[tp] = bounds[tp].start
                if starts[tp] > 0:
                    self._lost(f"the new partition {tp} starts at offset {starts[tp]} instead of 0")
        return starts

    def _forgive_initial(self, begin: dict[TopicPartition, int], until: Offsets
                         ) -> dict[TopicPartition, int]:
        """The start of a first batch that a restart repeats. The initial offsets were resolved
        again, so an offset beyond the batch's end is limited to that end."""
        initial = self._driver.initial
        if initial is None or self._driver.has_begun or begin != initial.offsets:
            return begin
        return {tp: min(offset, until[tp]) if tp in initial.movable else offset
                for tp, offset in begin.items() if tp in until}

    def _lost(self, what: str) -> None:
        if self._options.read.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{what}: some data may have been lost. Set failOnDataLoss to false to continue "
                "with what is there.")
        _log.warning("failOnDataLoss is false: %s; some data may have been lost", what)


def _losses(position: Offsets, bounds: _Bounds) -> Iterator[str]:
    for tp, offset in position.items():
        log = bounds.get(tp)
        if log is None:
            yield f"{tp} is gone"
        elif log.log_end < offset:
            yield (f"{tp} was read up to offset {offset}, and its log now ends at {log.log_end}: "
                   "it was truncated, or deleted and created again")
        elif offset < log.start and log.start > 0:
            yield (f"{tp} is to be read from offset {offset}, and its log now starts at "
                   f"{log.start}")


def _refuse_going_back(guess: Offsets, checkpoint: Offsets) -> None:
    """Raises UnsupportedOperationError for a guess before the checkpoint, which would read records
    twice: Spark 4.0's wrapper for Trigger.AvailableNow takes an end before it passes the position.
    """
    for tp, offset in checkpoint.items():
        if guess.get(tp, offset) < offset:
            raise UnsupportedOperationError(
                "maxOffsetsPerTrigger with Trigger.AvailableNow needs Spark 4.2; leave the option "
                "out, or set spark.sql.streaming.triggerAvailableNowWrapper.enabled to false")
