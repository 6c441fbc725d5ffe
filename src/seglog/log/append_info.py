"""What an append is told and what it answers (Kafka: AppendOrigin, LogAppendInfo)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

__all__ = ["AppendOrigin", "LogAppendInfo", "RecordError"]


class AppendOrigin(enum.Enum):
    """Who appends, which decides what is checked (reference 2.2).

    A follower's records are taken as they are, a Raft leader's have their offsets already, a
    coordinator may write control records, and a client's are trusted least.
    """

    REPLICATION = "REPLICATION"
    COORDINATOR = "COORDINATOR"
    CLIENT = "CLIENT"
    RAFT_LEADER = "RAFT_LEADER"


@dataclass(frozen=True, slots=True)
class RecordError:
    """Why the record at `batch_index` of a batch was refused."""

    batch_index: int
    message: str


@dataclass(slots=True)
class LogAppendInfo:
    """What became of an append. Offsets and times (ms) are -1 where there is none.

    `first_offset` is -1 for the first batch of an old format whose offsets were given.
    `source_compression` is the id of the last codec among the batches, 0 for none.
    `log_append_time` is that of a topic with LogAppendTime, or the timestamp of the batch that a
    duplicate repeats. `valid_bytes` are the whole, valid batches at the beginning of what was
    given.
    """

    first_offset: int = -1
    last_offset: int = -1
    last_leader_epoch: int = -1
    max_timestamp: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    source_compression: int = 0
    valid_bytes: int = 0
    last_offset_of_first_batch: int = -1
    record_errors: list[RecordError] = field(default_factory=list)

    @property
    def first_or_last_offset_of_first_batch(self) -> int:
        """The first offset; where it is not known, the last one of the first batch."""
        return self.first_offset if self.first_offset >= 0 else self.last_offset_of_first_batch
