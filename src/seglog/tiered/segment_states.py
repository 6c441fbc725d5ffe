"""States of remote log segments and of remote partitions, with their valid transitions (KIP-405).

Kafka: RemoteLogSegmentState and RemotePartitionDeleteState. The numbers are those in the records.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["RemoteLogSegmentState", "RemotePartitionDeleteState"]


class RemoteLogSegmentState(IntEnum):
    """The state of one upload of a segment (KIP-405, Kafka: RemoteLogSegmentState)."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3

    @staticmethod
    def is_valid_transition(source: RemoteLogSegmentState | None,
                            target: RemoteLogSegmentState) -> bool:
        """Whether `target` may follow `source`; None stands for an unknown segment.

        A state may follow itself, because brokers publish again after a failure.
        """
        return target in (_FIRST if source is None else _ALLOWED[source])


class RemotePartitionDeleteState(IntEnum):
    """The progress of the deletion of a remote partition (KIP-405, Kafka:
    RemotePartitionDeleteState).
    """

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2

    @staticmethod
    def is_valid_transition(source: RemotePartitionDeleteState | None,
                            target: RemotePartitionDeleteState) -> bool:
        """Whether `target` may follow `source`; None stands for a partition without a deletion."""
        return target == source or target == (0 if source is None else source + 1)


_STARTED, _FINISHED, _DELETE_STARTED, _DELETE_FINISHED = RemoteLogSegmentState
_FIRST = (_STARTED,)
# By the number of the state; a hash of an enum's member is slow.
_ALLOWED: tuple[tuple[RemoteLogSegmentState, ...], ...] = (
    (_STARTED, _FINISHED, _DELETE_STARTED), (_FINISHED, _DELETE_STARTED),
    (_DELETE_STARTED, _DELETE_FINISHED), (_DELETE_FINISHED,))
