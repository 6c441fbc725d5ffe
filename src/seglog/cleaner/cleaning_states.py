"""Which partitions are being cleaned, and which must not be (Kafka: LogCleaningState)."""

from __future__ import annotations

from typing import Final, NamedTuple

from seglog.errors import IllegalStateError
from seglog.model import TopicPartition

__all__ = ["ABORTED", "IN_PROGRESS", "CleaningStates", "LogCleaningState", "paused"]


class LogCleaningState(NamedTuple):
    """In progress, aborted, or paused `count` times."""

    name: str
    paused_count: int = 0

    def __str__(self) -> str:
        count = f"{{pausedCount={self.paused_count}}}" if self.paused_count else ""
        return f"{self.name}{count}"


IN_PROGRESS: Final = LogCleaningState("LogCleaningInProgress")
ABORTED: Final = LogCleaningState("LogCleaningAborted")


def paused(count: int) -> LogCleaningState:
    """Paused `count` times: that many calls have to resume it."""
    return LogCleaningState("LogCleaningPaused", count)


class CleaningStates:
    """The state of each partition; one without a state is idle. The caller holds a lock.

    Raises IllegalStateError, with Kafka's text, for a step that the state does not allow.
    """

    def __init__(self) -> None:
        self._states: dict[TopicPartition, LogCleaningState] = {}

    def get(self, key: TopicPartition) -> LogCleaningState | None:
        """The state of a partition, None for an idle one."""
        return self._states.get(key)

    def is_idle(self, key: TopicPartition) -> bool:
        """Whether a round or a retention pass may begin."""
        return key not in self._states

    def is_paused(self, key: TopicPartition) -> bool:
        """Whether no round runs, and none may begin."""
        found = self._states.get(key)
        return found is not None and found.paused_count > 0

    def begin(self, key: TopicPartition) -> None:
        """Starts a round on an idle partition."""
        assert self.is_idle(key)
        self._states[key] = IN_PROGRESS

    def pause(self, key: TopicPartition) -> None:
        """Pauses an idle or paused partition; aborts a round in progress, which no other caller
        has aborted."""
        found = self._states.get(key)
        assert found != ABORTED
        self._states[key] = (ABORTED if found == IN_PROGRESS else
                             paused(1 if found is None else found.paused_count + 1))

    def withdraw(self, key: TopicPartition) -> None:
        """Takes back a pause for whose beginning its caller does not wait."""
        if self._states.get(key) == ABORTED:
            self._states[key] = IN_PROGRESS
        else:
            self.resume(key)

    def resume(self, key: TopicPartition) -> None:
        """Removes one pause."""
        found = self._states.get(key)
        if found is None:
            raise IllegalStateError(
                f"Compaction for partition {key} cannot be resumed since it is not paused.")
        if not found.paused_count:
            raise IllegalStateError(
                f"Compaction for partition {key} cannot be resumed since it is in {found} state.")
        if found.paused_count == 1:
            del self._states[key]
        else:
            self._states[key] = paused(found.paused_count - 1)

    def check_in_progress(self, key: TopicPartition) -> bool:
        """Whether the result of the partition's round counts; False if it was aborted."""
        found = self._states.get(key)
        if found is None:
            raise IllegalStateError(f"State for partition {key} should exist.")
        if found not in (IN_PROGRESS, ABORTED):
            raise IllegalStateError(
                f"In-progress partition {key} cannot be in {found} state.")
        return found == IN_PROGRESS

    def end(self, key: TopicPartition) -> None:
        """Ends the round: the partition is idle, or paused if the round was aborted."""
        if self.check_in_progress(key):
            del self._states[key]
        else:
            self._states[key] = paused(1)
