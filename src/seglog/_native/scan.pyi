from collections.abc import Iterable
from enum import IntEnum
from os import PathLike
from typing import Final

import numpy as np
import numpy.typing as npt

NO_END_OFFSET: Final[int]
PROBLEM_DTYPE: Final[np.dtype[np.void]]
HAS_LOG: Final[int]
HAS_INDEX: Final[int]
HAS_TIME_INDEX: Final[int]
HAS_TXN_INDEX: Final[int]
HAS_SNAPSHOT: Final[int]

class FileClass(IntEnum):
    LOG = 0
    INDEX = 1
    TIME_INDEX = 2
    TXN_INDEX = 3
    SNAPSHOT = 4
    DELETED = 5
    CLEANED = 6
    SWAP = 7
    LEADER_EPOCHS = 8
    PARTITION_METADATA = 9
    RAFT_CHECKPOINT = 10
    QUORUM_STATE = 11
    TEXT_TEMPORARY = 12
    OTHER_NUMBER = 13
    NOT_A_NUMBER = 14
    FOREIGN = 15
    DIRECTORY = 16
    LINK = 17
    SPECIAL = 18

class CheckLevel(IntEnum):
    KAFKA = 0
    FULL = 1

class PartitionListing:
    path: str
    base_offsets: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]
    snapshots: npt.NDArray[np.int64]
    orphans: npt.NDArray[np.int64]
    orphan_flags: npt.NDArray[np.uint8]
    def __init__(
        self, path: str, numbered: npt.NDArray[np.void], names: bytes, classes: bytes
    ) -> None: ...
    @property
    def others(self) -> list[tuple[str, FileClass]]: ...
    @property
    def other_count(self) -> int: ...

class SegmentChecks:
    log_size: npt.NDArray[np.int64]
    index_size: npt.NDArray[np.int64]
    time_index_size: npt.NDArray[np.int64]
    txn_index_size: npt.NDArray[np.int64]
    mtime_ms: npt.NDArray[np.int64]
    status: npt.NDArray[np.int32]
    problems: npt.NDArray[np.void]
    def __init__(self, log_size: npt.NDArray[np.int64], index_size: npt.NDArray[np.int64],
                 time_index_size: npt.NDArray[np.int64], txn_index_size: npt.NDArray[np.int64],
                 mtime_ms: npt.NDArray[np.int64], status: npt.NDArray[np.int32],
                 problems: npt.NDArray[np.void]) -> None: ...

def classify_name(name: str | bytes) -> tuple[FileClass, int | None]: ...
def list_names(path: str, names: Iterable[str]) -> PartitionListing: ...
def list_partition(path: str | PathLike[str]) -> PartitionListing: ...
def check_segments(path: str | PathLike[str], base_offsets: npt.NDArray[np.int64],
                   flags: npt.NDArray[np.uint8], level: int = ..., *, end_offset: int = ...
                   ) -> SegmentChecks: ...
def segment_ends(path: str | PathLike[str], base_offsets: npt.NDArray[np.int64],
                 flags: npt.NDArray[np.uint8]
                 ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
