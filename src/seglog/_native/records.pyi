from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Final, final

from numpy.typing import ArrayLike

from seglog._native.columns import ColumnPool, RecordColumns

MAX_ROWS_DEFAULT: Final[int]
MAX_BYTES_DEFAULT: Final[int]

@final
class RecordDecoder:
    def __init__(
        self,
        fd: int,
        start: int,
        end: int,
        *,
        columns: Sequence[str] = ...,
        start_offset: int | None = None,
        end_offset: int | None = None,
        base_offset: int | None = None,
        max_rows: int = 65536,
        max_bytes: int = 67108864,
        check_crcs: bool = True,
        include_control: bool = False,
        aborted: ArrayLike | None = None,
        decompress: Callable[..., memoryview],
        direct: Sequence[Callable[..., int] | None] = (),
        max_decompressed_bytes: int | None = None,
        file: str | bytes | PathLike[str] | PathLike[bytes] | int | None = None,
        pool: ColumnPool | None = None,
    ) -> None: ...
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
    def restart(
        self,
        fd: int,
        start: int,
        end: int,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        base_offset: int | None = None,
        aborted: ArrayLike | None = None,
        file: str | bytes | PathLike[str] | PathLike[bytes] | int | None = None,
    ) -> None: ...
