"""Deletes a leader's remote segments that break retention (Kafka: RLMExpirationTask)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from seglog.log.retention import retention_bytes
from seglog.log.unified_log import UnifiedLog
from seglog.remote_log.lineage import (
    Lineage, epochs_of, epochs_with_records, has_lost_epochs, is_within_leader_epochs,
)
from seglog.remote_log.remote_task import RemoteLogTask, TaskContext
from seglog.tiered.remote_records import RemoteLogSegmentMetadata, TopicIdPartition
from seglog.tiered.segment_states import RemoteLogSegmentState

__all__ = ["ExpirationTask", "RetentionRules"]

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_PERCENT = ("RetentionSizeInPercent", "LocalRetentionSizeInPercent")


@dataclass(slots=True)
class RetentionRules:
    """Which segments break retention. `breach_bytes` is the excess of the log's size, `until_ms`
    the time before which records expire; None: no such rule."""

    lineage: Lineage
    log_start_offset: int
    log_end_offset: int
    breach_bytes: int
    until_ms: int | None
    #: The log's start after the chosen segments are deleted.
    new_start_offset: int | None = None

    def breaks(self, segment: RemoteLogSegmentMetadata) -> tuple[str | None, bool]:
        """(the rule that the segment breaks, whether it is within the lineage). Must get the
        segments in order; each that breaks a rule counts as deleted."""
        if (self.lineage and segment.end_offset < self.log_start_offset and all(
                epoch <= self.lineage[0][0] for epoch, _ in segment.segment_leader_epochs)):
            return "log-start-offset", False
        if not is_within_leader_epochs(segment, self.log_end_offset, self.lineage):
            return None, False
        size = segment.segment_size_in_bytes
        if self.until_ms is not None and segment.max_timestamp_ms < self.until_ms:
            self.breach_bytes = max(0, self.breach_bytes - size)
            rule = "retention time"
        elif 0 < self.breach_bytes >= size:
            self.breach_bytes -= size
            rule = "retention size"
        else:
            return None, True
        self.new_start_offset = max(self.new_start_offset or 0, segment.end_offset + 1)
        return rule, True


class ExpirationTask(RemoteLogTask):
    """Applies `retention.ms`, `retention.bytes` and the log's start to remote segments."""

    def __init__(self, context: TaskContext, key: TopicIdPartition) -> None:
        super().__init__(context, key)
        # Path and truncations of the log when all copied segments were of its lineage: those that
        # its leader copies later are, too.
        self._all_valid: tuple[str, int] | None = None
        # The values of its gauges, once they are registered; the lock is held for that.
        self._percent: dict[str, int] | None = None
        self._gauges: list[str] = []
        self._registering = threading.Lock()

    def execute(self, log: UnifiedLog) -> None:
        """See RemoteLogTask."""
        self._register()
        metadata, config = self.context.metadata, log.config
        every = metadata.list_all_remote_log_segments(self.key)
        self.record("RemoteLogMetadataCount", len(every))
        self.record("RemoteLogSizeBytes", sum(
            one.segment_size_in_bytes for one in every if one.state in (_FINISHED, _DELETING)))
        if not every:
            self._set_percent(log.size, log)
            return
        epochs = epochs_of(log)
        lineage = epochs_with_records((one.epoch, one.start_offset) for one in epochs)
        now, until = self.context.time.milliseconds(), None
        if config.retention_ms > -1 and now - config.retention_ms >= 0:
            until = now - config.retention_ms
        rules = RetentionRules(lineage, log.log_start_offset, log.log_end_offset,
                               self._breach_bytes(log, every, lineage), until)
        chosen = self._choose(rules)
        if chosen is None:
            return
        if rules.new_start_offset is not None:  # before the deletion, so that readers see no gap
            log.update_log_start_offset_from_remote_tier(rules.new_start_offset)
        if not self._delete(chosen):
            return
        epochs = epochs_of(log)  # a new start of the log has removed those before it
        earliest = epochs.earliest
        if has_lost_epochs(epochs, log.log_start_offset):
            self.say(logging.WARNING, "The leader epochs of the first records of %s are lost: no "
                     "remote log segment of earlier epochs is deleted.", self.key)
        elif earliest is not None:
            self._delete_unreferenced(earliest.epoch)

    def _delete(self, segments: Sequence[RemoteLogSegmentMetadata]) -> bool:
        """Deletes segments, which are the lag until then; False if the task was cancelled."""
        left = list(segments)
        self._record_lag(left)
        for segment in segments:
            if not self.delete_segment(segment):
                self.say(logging.INFO, "The following remote segments could not be deleted: %s",
                         ",".join(str(one.remote_log_segment_id) for one in left))
                return False
            left.remove(segment)
            self._record_lag(left)
        return True

    def _choose(self, rules: RetentionRules) -> list[RemoteLogSegmentMetadata] | None:
        """The segments to delete, from the oldest up to the first that stays; None if the task was
        cancelled."""
        chosen: dict[bytes, RemoteLogSegmentMetadata] = {}
        for epoch, _ in rules.lineage:
            for segment in self.context.metadata.list_remote_log_segments(self.key, epoch):
                if self.is_cancelled:
                    self.say(logging.INFO, "Returning from remote log segments cleanup for the "
                             "remaining segments as the task state is changed.")
                    return None
                segment_id = segment.remote_log_segment_id
                if segment_id in self.context.being_copied:
                    return list(chosen.values())
                if segment.state == _DELETING:
                    chosen[segment_id.id] = segment
                if segment_id.id in chosen:
                    continue
                rule, is_valid = rules.breaks(segment)
                if rule is not None:
                    self.say(logging.INFO, "About to delete remote log segment %s due to %s "
                             "breach.", segment_id, rule)
                    chosen[segment_id.id] = segment
                elif is_valid:
                    return list(chosen.values())
        return list(chosen.values())

    def _breach_bytes(self, log: UnifiedLog, every: Sequence[RemoteLogSegmentMetadata],
                      lineage: Lineage) -> int:
        """By how many bytes the log exceeds `retention.bytes` (buildRetentionSizeData). Segments
        below the log's start, which are deleted anyhow, do not count. (In Kafka they do, so that
        others are deleted for them.)"""
        limit = log.config.retention_bytes
        if limit < 0:
            return 0
        only_local = log.only_local_segments()[1]
        start = log.log_start_offset
        finished = [one for one in every if one.state == _FINISHED and one.end_offset >= start]
        remote = sum(one.segment_size_in_bytes for one in finished)
        state = log.path, log.truncations
        if only_local + remote > limit and self._all_valid != state:
            started, end = self.context.time.milliseconds(), log.log_end_offset
            valid = [one for one in finished if is_within_leader_epochs(one, end, lineage)]
            self._all_valid = state if len(valid) == len(finished) else None
            remote = sum(one.segment_size_in_bytes for one in valid)
            self.record("RemoteLogSizeComputationTime",
                        self.context.time.milliseconds() - started)
        total = only_local + remote
        self._set_percent(total, log)
        return max(total - limit, 0)

    def _delete_unreferenced(self, earliest_epoch: int) -> None:
        """Deletes segments whose epochs the log no longer has."""
        found = [one for one in self.context.metadata.list_all_remote_log_segments(self.key)
                 if all(epoch < earliest_epoch for epoch, _ in one.segment_leader_epochs)
                 and one.remote_log_segment_id not in self.context.being_copied]
        for segment in found:
            epochs = [epoch for epoch, _ in segment.segment_leader_epochs]
            self.say(logging.INFO, "About to delete remote log segment %s due to "
                     "leader-epoch-cache truncation. Current earliest epoch: %d, "
                     "segment-end-offset: %d and segment-epochs: %s",
                     segment.remote_log_segment_id, earliest_epoch, segment.end_offset, epochs)
        self._delete(found)

    # ---- metrics

    def _record_lag(self, left: Sequence[RemoteLogSegmentMetadata]) -> None:
        self.record("RemoteDeleteLagSegments", len(left))
        self.record("RemoteDeleteLagBytes", sum(one.segment_size_in_bytes for one in left))

    def _register(self) -> None:
        with self._registering:
            if self._percent is not None or self.is_cancelled:
                return
            self._percent = dict.fromkeys(_PERCENT, 0)
            group = self.context.stats.registry.group("kafka.log.remote", "RemoteLogManager")
            self._gauges = group.gauges(
                {name: partial(self._percent.get, name) for name in _PERCENT},
                {"topic": self.key.topic, "partition": self.key.partition})

    def _set_percent(self, total: int, log: UnifiedLog) -> None:
        percent = self._percent
        if percent is not None:
            for name, size, limit in zip(
                    _PERCENT, (total, log.size),
                    (retention_bytes(log.config, is_local=False),
                     retention_bytes(log.config, is_local=True)), strict=True):
                percent[name] = size * 100 // limit if limit > 0 else 0

    def cancel(self) -> None:
        """See RemoteLogTask; also removes the gauges."""
        super().cancel()
        with self._registering:
            self.context.stats.registry.remove_all(self._gauges)
            self._percent, self._gauges = None, []
