from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from typing import Any, Final, Self, final

from numpy.typing import ArrayLike

COLUMNS: Final[tuple[str, ...]]
DEFAULT_COLUMNS: Final[tuple[str, ...]]
MAX_ROWS_DEFAULT: Final[int]
MAX_BYTES_DEFAULT: Final[int]

def live_columns() -> int: ...
def schema_capsule(columns: Iterable[str] = ...) -> object: ...
def export_stream(iterator: Iterable[RecordColumns], columns: Iterable[str] = ...) -> object: ...

@final
class ColumnPool:
    def __new__(cls, *, keep: int = 2) -> Self: ...

@final
class RecordColumns:
    @property
    def num_rows(self) -> int: ...
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...
    def to_pylists(self) -> dict[str, list[Any]]: ...

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
