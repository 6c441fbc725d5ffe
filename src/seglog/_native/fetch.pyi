from os import PathLike
from typing import Any, Final, final

from seglog._native.index import IndexReader
from seglog.model import AbortedTxn

@final
class LogOffsetMetadata:
    message_offset: Final[int]
    segment_base_offset: Final[int]
    relative_position_in_segment: Final[int]
    def __init__(self, message_offset: int, segment_base_offset: int = -1,
                 relative_position_in_segment: int = -1) -> None: ...
    @property
    def message_offset_only(self) -> bool: ...
    def on_older_segment(self, other: LogOffsetMetadata) -> bool: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class FetchDataInfo:
    fetch_offset_metadata: Final[LogOffsetMetadata]
    records: Final[bytes]
    first_entry_incomplete: Final[bool]
    aborted_transactions: list[AbortedTxn] | None
    def __init__(self, fetch_offset_metadata: LogOffsetMetadata, records: bytes = b"",
                 first_entry_incomplete: bool = False,
                 aborted_transactions: list[AbortedTxn] | None = None) -> None: ...

@final
class SegmentReader:
    path: Final[str]
    base_offset: Final[int]
    index: Final[IndexReader]
    size: Final[int]
    def __init__(
        self, path: str | PathLike[str], index_path: str | PathLike[str], base_offset: int, *,
        mapped: int = 0,
    ) -> None: ...
    def fileno(self) -> int: ...
    def find(
        self, offset: int, size: int, entries: int = -1
    ) -> tuple[int, int, int] | None: ...
    def fetch(self, offset: int, size: int, entries: int, max_length: int, max_position: int,
              min_one_message: bool) -> FetchDataInfo | None: ...
    def read(self, position: int, length: int) -> bytes: ...
    def read_batches(
        self, position: int, end: int, max_bytes: int, stop_offset: int = ...
    ) -> tuple[bytes, int, int]: ...
