"""The result of a load: the plain state of one log, and LoadedLog, which only flushes and
closes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any


from seglog.errors import KafkaStorageError, SeglogError
from seglog.forks import ProcessBound, ending
from seglog.recovery.deferred_checks import DeferredChecks
from seglog.recovery.loader_failures import LoaderFailure, public_errors
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.log_files import LogFiles
from seglog.recovery.loading_producers import LoadingProducers
from seglog.recovery.loaded_segments import LoadedSegments
from seglog.storage.epochs import LeaderEpochs
from seglog.storage.producer_state import ProducerState

__all__ = ["LoadedLog", "LoadedState", "error_state", "first_unstable_offset", "log_state",
           "state_without_files"]


@dataclass(frozen=True, slots=True)
class LoadedState:
    """The result that Kafka's loader reaches: the values and parts that a log is built from.

    The high watermark is not included: it is the log start offset until a caller sets it.
    """

    inputs: LoadInputs
    files: LogFiles
    leader_epochs: LeaderEpochs
    producers: LoadingProducers
    log_start_offset: int
    local_log_start_offset: int
    high_watermark: int
    recovery_point: int
    log_end_offset: int
    first_unstable_offset: int | None
    topic_id: uuid.UUID | None


def error_state(error: SeglogError) -> dict[str, Any]:
    """What Kafka reports instead of a state for a log that is not loaded."""
    message = error.strerror if isinstance(error, KafkaStorageError) else str(error)
    return {"error": error.kafka_name, "message": message}


def first_unstable_offset(producers: ProducerState, segments: LoadedSegments, log_start_offset: int,
                          log_end_offset: int) -> int | None:
    """The base offset of the batch in which the earliest transaction is open, or the log start
    offset if that is later. Kafka searches that batch, and abandons a log if it cannot."""
    unstable = producers.first_unstable_offset
    if unstable is None:
        return None
    offset = max(unstable, log_start_offset)
    row = segments.floor_row(offset)
    if row < 0 or offset >= log_end_offset:
        return offset
    for base in segments.bases(range(row, len(segments))):
        segment = segments.get(base)
        found = segment.find(offset)
        segments.release(segment)
        if found is not None:
            return found[0]
    return log_end_offset


def log_state(files: LogFiles, producers: ProducerState, epochs: LeaderEpochs,
              **offsets: int) -> dict[str, Any]:
    """The state of a log under the keys of Kafka's answers (tests/kafka/Oracle.java); `offsets`
    come first. If a segment cannot be read to its end, only `error` (Kafka's exception) and
    `message`.
    """
    try:
        segments = list(files.segment_states())
    except LoaderFailure as failure:
        return {"error": failure.kafka_error, "message": failure.message}
    return {**offsets, "producer_state_end_offset": producers.map_end_offset,
            "segments": segments, **state_without_files(producers, epochs)}


def state_without_files(producers: ProducerState, epochs: LeaderEpochs) -> dict[str, Any]:
    """The part of `log_state` that reads no file: `producers` and `leader_epochs`."""
    return {
        "producers": [{
            "producer_id": one.producer_id, "epoch": one.producer_epoch,
            "coordinator_epoch": one.coordinator_epoch,
            "first_data_offset": one.batches[0].first_offset if one.batches else -1,
            "last_data_offset": one.last_data_offset, "last_seq": one.last_sequence,
            "last_timestamp": one.last_timestamp, "batches": len(one.batches),
            "current_txn_first_offset": one.current_txn_first_offset,
        } for one in producers.entries],
        "leader_epochs": [[one.epoch, one.start_offset] for one in epochs],
    }


class LoadedLog(ProcessBound):
    """One partition after its load, which is only flushed and closed again.

    `segments` are columns; offsets are those that Kafka reaches. For one thread at a time: the
    caller holds `lock`.
    """

    def __init__(self, state: LoadedState) -> None:
        files = self._files = state.files
        self._producers = state.producers
        self.topic_partition, self.lock = files.topic_partition, files.lock
        self.segments, self.disk = files.segments, files.disk
        self.leader_epochs = state.leader_epochs
        self.log_start_offset = state.log_start_offset
        self.local_log_start_offset = state.local_log_start_offset
        self.recovery_point = state.recovery_point
        self.log_end_offset = state.log_end_offset
        self.high_watermark = state.high_watermark
        self.first_unstable_offset = state.first_unstable_offset
        self.topic_id = state.topic_id
        self.remote_log_enabled = state.inputs.is_remote

    def __repr__(self) -> str:
        return (f"LoadedLog({self.path!r}, log_start_offset={self.log_start_offset}, "
                f"log_end_offset={self.log_end_offset}, segments={len(self.segments)})")

    @property
    def path(self) -> str:
        """The path of its directory."""
        return self._files.path

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._files.is_closed

    @property
    def deferred_checks(self) -> DeferredChecks | None:
        """The checks that the load deferred (KIP-263); None if it made all."""
        return self._files.deferred_checks

    @deferred_checks.setter
    def deferred_checks(self, checks: DeferredChecks | None) -> None:
        self._files.deferred_checks = checks

    @property
    def producers(self) -> ProducerState:
        """The state of the producers up to the end of the log."""
        return self._producers.state

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction is open, at most the high watermark."""
        if self.first_unstable_offset is None:
            return self.high_watermark
        return min(self.first_unstable_offset, self.high_watermark)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark, limited to the log. Returns the new one.

        Searches the first open transaction. Raises KafkaStorageError and LogLoadError.
        """
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producers.table.replicated(self.high_watermark)
        with public_errors(self.path):
            self.first_unstable_offset = first_unstable_offset(
                self.producers, self.segments, self.log_start_offset, self.log_end_offset)
        return self.high_watermark

    def flush(self, force_flush_active_segment: bool = False) -> None:
        """Makes everything from the recovery point on durable: logs, their indexes (created if they
        are missing), and the names of new files. The recovery point is then the log's end. With
        `force_flush_active_segment` also syncs an empty active segment, as a clean shutdown
        requires.

        Raises KafkaStorageError.
        """
        end = self.log_end_offset
        if end + force_flush_active_segment > self.recovery_point:
            self._files.flush(self.recovery_point, end + force_flush_active_segment)
            self.recovery_point = end

    def delete_removed(self) -> None:
        """Deletes the `.deleted` files of segments that the load removed.

        Kafka does so after `file.delete.delay.ms`, and the next load deletes what is left. Raises
        KafkaStorageError.
        """
        self._files.delete_removed()

    @ending
    def close(self) -> None:
        """Closes the log and its files as Kafka does; a second call does nothing.

        Writes a durable producer snapshot at the end of the log, if the state moved. Trims every
        index that was opened, and the preallocated part of the log. Does not touch unused segments.
        Tries all segments, then raises the first KafkaStorageError.
        """
        self._files.close(self._producers)

    @ending
    def close_handlers(self) -> None:
        """Abandons the log without writing anything, because its directory has failed."""
        self._files.abandon()

    def rename_dir(self, name: str) -> None:
        """Renames the log's directory within its data directory, durably.

        Raises KafkaStorageError.
        """
        self._files.rename(name)

    def recover_segments(self, base_offsets: list[int]) -> None:
        """See LogFiles."""
        self._files.recover_segments(base_offsets)

    def state(self) -> dict[str, Any]:
        """See `log_state`. The next close trims the indexes that this opens."""
        return log_state(
            self._files, self.producers, self.leader_epochs,
            log_start_offset=self.log_start_offset, recovery_point=self.recovery_point,
            log_end_offset=self.log_end_offset, last_stable_offset=self.last_stable_offset)

    def state_without_files(self) -> dict[str, Any]:
        """The part of `state` that reads no file."""
        return state_without_files(self.producers, self.leader_epochs)
