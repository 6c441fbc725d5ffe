import enum
import os
from typing import final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from seglog._native.producers import ProducerTable

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
        is_span: bool = False,
    ) -> tuple[int, int, int, int, int, int] | None: ...
