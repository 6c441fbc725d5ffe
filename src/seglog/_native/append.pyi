import enum
import os
from collections.abc import Callable, Iterable, Sized
from typing import Any, ParamSpec, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from seglog._native.log_lock import LogLock
from seglog._native.producers import ProducerTable

_P = ParamSpec("_P")
_T = TypeVar("_T")

class IndexRefusal(enum.IntEnum):
    TAKES = ...
    OFFSET_FULL = ...
    OFFSET_BACK = ...
    OFFSET_FAR = ...
    TIME_FULL = ...
    TIME_OFFSET_BACK = ...
    TIME_BACK = ...
    TIME_FAR = ...

@final
class LogAppendInfo:
    first_offset: int
    last_offset: int
    last_leader_epoch: int
    max_timestamp: int
    log_append_time: int
    log_start_offset: int
    source_compression: int
    valid_bytes: int
    last_offset_of_first_batch: int
    record_errors: list[Any]
    def __init__(
        self,
        first_offset: int = -1,
        last_offset: int = -1,
        last_leader_epoch: int = -1,
        max_timestamp: int = -1,
        log_append_time: int = -1,
        log_start_offset: int = -1,
        source_compression: int = 0,
        valid_bytes: int = 0,
        last_offset_of_first_batch: int = -1,
        record_errors: Iterable[Any] = (),
    ) -> None: ...
    @property
    def first_or_last_offset_of_first_batch(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class SegmentWriter:
    first_timestamp: int | None
    def __init__(
        self,
        log_path: str | os.PathLike[str],
        index_path: str | os.PathLike[str],
        time_index_path: str | os.PathLike[str],
        *,
        base_offset: int,
        size: int,
        index_interval_bytes: int,
        offset_entries: int,
        offset_slots: int,
        last_index_offset: int,
        time_entries: int,
        time_slots: int,
        last_time_entry: tuple[int, int],
        bytes_since_index_entry: int,
        max_timestamp: tuple[int, int],
        first_timestamp: int | None = None,
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def offset_entries(self) -> int: ...
    @property
    def last_index_offset(self) -> int: ...
    @property
    def time_entries(self) -> int: ...
    @property
    def last_time_entry(self) -> tuple[int, int]: ...
    @property
    def bytes_since_index_entry(self) -> int: ...
    @property
    def max_timestamp(self) -> tuple[int, int]: ...
    def append(self, data: Buffer, batches: NDArray[np.void]) -> tuple[int, int]: ...
    def configure(
        self,
        *,
        needs_key: bool,
        has_create_time: bool,
        timestamp_before_max_ms: int,
        timestamp_after_max_ms: int,
        max_message_bytes: int,
        segment_bytes: int,
        max_segment_ms: int,
        created_ms: int,
    ) -> None: ...
    def append_as_leader(
        self,
        data: Buffer,
        producers: ProducerTable,
        leader_epoch: int,
        next_offset: int,
        now_ms: int,
        log_start_offset: int = 0,
        is_span: bool = False,
    ) -> LogAppendInfo | None: ...

@final
class LogEnd:
    def __init__(self, offset: int, base_offset: int, size: int) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def fields(self) -> tuple[int, int, int]: ...
    def move(self, offset: int, base_offset: int, size: int) -> None: ...

class FastPath:
    def __init__(
        self,
        end: LogEnd,
        *,
        lock: LogLock,
        failed: set[str],
        waiting: Sized,
        wake: Callable[[], object],
        clock: Callable[[], int] | None,
        on_error: Callable[[OSError], object],
        flush_if_due: Callable[[], int],
    ) -> None: ...
    @property
    def messages_in(self) -> int: ...
    @property
    def bytes_in(self) -> int: ...
    def arm(
        self,
        writer: SegmentWriter,
        producers: ProducerTable,
        *,
        leader_epoch: int,
        log_start_offset: int,
        flush_at: int,
    ) -> None: ...
    def disarm(self) -> None: ...
    def append(self, records: Buffer, leader_epoch: int) -> LogAppendInfo | None: ...

def fast_path_first(reference: Callable[_P, _T]) -> Callable[_P, _T]: ...
