"""Who may begin a transaction on a partition: verification against the coordinator (KIP-890).

Kafka: VerificationGuard, VerificationStateEntry. Before the first batch of a transaction a broker
asks the coordinator whether there is such a transaction. The guard ties the answer to the question:
a marker that is written in between takes it away.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

__all__ = ["VerificationGuard", "VerificationStateEntry"]


@dataclass(frozen=True, slots=True)
class VerificationGuard:
    """One question to a coordinator. `SENTINEL` belongs to no question, and verifies nothing."""

    value: int

    SENTINEL: ClassVar[VerificationGuard]

    def __str__(self) -> str:
        return f"VerificationGuard(value={self.value})"

    def verify(self, other: VerificationGuard) -> bool:
        """Whether the other is this question."""
        return other.value != VerificationGuard.SENTINEL.value and other.value == self.value


VerificationGuard.SENTINEL = VerificationGuard(0)

_numbers = itertools.count(1)


def next_guard() -> int:
    """Not twice the same in a process."""
    return next(_numbers)  # atomic


@dataclass(frozen=True, slots=True)
class VerificationStateEntry:
    """A transaction under verification, made at `timestamp` (ms).

    `lowest_sequence` is that of all batches seen in `epoch`: a higher one is not taken before it.
    `supports_epoch_bump`: the producer uses transactions of version 2.
    """

    timestamp: int
    verification_guard: VerificationGuard
    lowest_sequence: int
    epoch: int
    supports_epoch_bump: bool
