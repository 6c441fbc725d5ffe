from collections.abc import Callable, Collection, Iterator, Sequence
from os import PathLike
from typing import Final, Self, final

from numpy.typing import ArrayLike

from seglog._native.columns import ColumnPool, RecordColumns
from seglog._native.window import WindowSource

MAX_ROWS_DEFAULT: Final[int]
MAX_BYTES_DEFAULT: Final[int]

@final
class RowFilter:
    def __new__(cls, *, first_timestamp: int | None = None, last_timestamp: int | None = None,
                timestamp_types: Collection[int] = ..., keys: Collection[bytes | None] | None = None
                ) -> Self: ...

@final
class RecordDecoder:
    def __init__(self, source: int | WindowSource, start: int, end: int, *,
                 columns: Sequence[str] = ..., start_offset: int | None = None,
                 end_offset: int | None = None, base_offset: int | None = None,
                 max_rows: int = 65536, max_bytes: int = 67108864, check_crcs: bool = True,
                 include_control: bool = False, aborted: ArrayLike | None = None,
                 decompress: Callable[..., memoryview],
                 direct: Sequence[Callable[..., int] | None] = (),
                 max_decompressed_bytes: int | None = None,
                 file: str | bytes | PathLike[str] | PathLike[bytes] | int | None = None,
                 pool: ColumnPool | None = None, layout: str = "kafka",
                 origin: tuple[str, int] | None = None, row_filter: RowFilter | None = None,
                 believe_headers: bool = True) -> None: ...
    @property
    def position(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def status_name(self) -> str: ...
    def __iter__(self) -> Iterator[RecordColumns]: ...
    def __next__(self) -> RecordColumns: ...
    def next(self) -> RecordColumns | None: ...
    def take(self, max_bytes: int) -> list[RecordColumns]: ...
    def restart(self, source: int | WindowSource, start: int, end: int, *,
                start_offset: int | None = None, end_offset: int | None = None,
                base_offset: int | None = None, aborted: ArrayLike | None = None,
                file: str | bytes | PathLike[str] | PathLike[bytes] | int | None = None
                ) -> None: ...
