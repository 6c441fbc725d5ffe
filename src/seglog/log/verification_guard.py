"""Verification of transactions against the coordinator (KIP-890).

Kafka: VerificationGuard, VerificationStateEntry. Before the first batch of a transaction a broker
asks the coordinator whether that transaction exists. The guard ties the answer to the question: a
marker written in between invalidates it.
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
        """Whether the other is the guard of the same question."""
        return other.value != VerificationGuard.SENTINEL.value and other.value == self.value


VerificationGuard.SENTINEL = VerificationGuard(0)

_numbers = itertools.count(1)


def next_guard() -> int:
    """A number that is unique in the process."""
    return next(_numbers)  # atomic


@dataclass(frozen=True, slots=True)
class VerificationStateEntry:
    """A transaction under verification, created at `timestamp` (ms).

    `lowest_sequence` is the lowest of all batches seen in `epoch`: a higher one is not accepted
    before it. `supports_epoch_bump`: the producer uses transactions of version 2.
    """

    timestamp: int
    verification_guard: VerificationGuard
    lowest_sequence: int
    epoch: int
    supports_epoch_bump: bool
