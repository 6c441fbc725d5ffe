from enum import IntEnum
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

PRODUCER_BATCHES: Final[int]
PRODUCER_BATCH_DTYPE: Final[np.dtype[np.void]]
PRODUCER_DTYPE: Final[np.dtype[np.void]]

ORIGIN_REPLICATION: Final[int]
ORIGIN_COORDINATOR: Final[int]
ORIGIN_CLIENT: Final[int]
ORIGIN_RAFT_LEADER: Final[int]

class Verdict(IntEnum):
    OK = 0
    DUPLICATE = 1
    MARKER = 2
    TXN_EPOCH = 3
    EPOCH = 4
    UNVERIFIED = 5
    TXN_STATE = 6
    SEQUENCE_FIRST = 7
    SEQUENCE_LOWEST = 8
    SEQUENCE_EPOCH = 9
    SEQUENCE = 10
    TXN_VERSION = 11
    COORDINATOR_EPOCH = 12

@final
class ProducerTable:
    map_end_offset: int
    def __len__(self) -> int: ...
    def load(self, producers: NDArray[np.void]) -> None: ...
    def apply(
        self, batches: NDArray[np.void], start: int = 0, *, fd: int = -1
    ) -> tuple[int, int, list[tuple[int, int, int, int, int]]]: ...
    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        offset: int,
        coordinator_epoch: int,
        timestamp: int,
        is_abort: bool = False,
    ) -> tuple[int, int, bool] | None: ...
    def touch(self, producer_id: int) -> None: ...
    def first_unstable_offset(self) -> int | None: ...
    def first_unstable(self) -> tuple[int, int, int] | None: ...
    def oldest_txn_timestamp(self) -> int: ...
    def replicated(self, high_watermark: int) -> None: ...
    def expire(self, now_ms: int, idle_ms: int) -> None: ...
    def clear(self) -> None: ...
    def find(self, producer_id: int) -> NDArray[np.void] | None: ...
    def to_numpy(self) -> NDArray[np.void]: ...
    def snapshot(self) -> bytes: ...
    def verification(self, producer_id: int) -> tuple[int, int, int, int, bool] | None: ...
    def verify(
        self,
        producer_id: int,
        now_ms: int,
        guard: int,
        sequence: int,
        epoch: int,
        supports_epoch_bump: bool,
    ) -> tuple[int, int, int, int, bool]: ...
    @property
    def spans(self) -> int: ...
    def begin(self) -> int: ...
    def next_rows(self) -> None: ...
    def check(
        self,
        batches: NDArray[np.void],
        data: Buffer | None,
        origin: int,
        transaction_version: int,
        guard: int = -1,
        segment_base: int = -1,
        segment_position: int = -1,
        *,
        log_fd: int = -1,
    ) -> tuple[int, int, int, int]: ...
    def check_marker(
        self,
        batches: NDArray[np.void],
        origin: int,
        transaction_version: int,
        coordinator_epoch: int,
        timestamp: int,
        is_abort: bool,
        is_empty: bool = False,
    ) -> tuple[int, int, int, int]: ...
    def duplicate(self) -> tuple[int, int, int, int]: ...
    def notes(self) -> list[tuple[int, int, int, int]]: ...
    def completed(self) -> list[tuple[int, int, int, bool]]: ...
    def drop_verified(self) -> None: ...
    def commit(self) -> None: ...
    def last_stable_offset(self, producer_id: int, marker_offset: int) -> int: ...
    def complete_txn(self, first_offset: int, last_offset: int) -> bool: ...
