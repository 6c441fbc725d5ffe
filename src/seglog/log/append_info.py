"""What an append is told and what it answers (Kafka: AppendOrigin, LogAppendInfo)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from seglog._native.append import LogAppendInfo

__all__ = ["AppendOrigin", "LogAppendInfo", "RecordError"]


class AppendOrigin(enum.Enum):
    """Who appends, which decides what is checked (Kafka: AppendOrigin).

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
