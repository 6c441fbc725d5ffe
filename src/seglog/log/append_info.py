"""Arguments and results of an append (Kafka: AppendOrigin, LogAppendInfo)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from seglog._native.append import LogAppendInfo

__all__ = ["AppendOrigin", "LogAppendInfo", "RecordError"]


class AppendOrigin(enum.Enum):
    """The source of an append, which decides what is checked (Kafka: AppendOrigin).

    A follower's records are appended unchanged, and a Raft leader's have offsets already. A
    coordinator may write control records. A client's records are checked most strictly.
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
