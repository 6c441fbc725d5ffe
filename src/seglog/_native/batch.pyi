from os import PathLike
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from seglog._native.window import WindowSource

BATCH_DTYPE: Final[np.dtype[np.void]]
ATTRIBUTE_CODEC: Final[int]
ATTRIBUTE_LOG_APPEND_TIME: Final[int]
ATTRIBUTE_TRANSACTIONAL: Final[int]
ATTRIBUTE_CONTROL: Final[int]
ATTRIBUTE_DELETE_HORIZON: Final[int]

@final
class BatchScan:
    @property
    def batches(self) -> NDArray[np.void]: ...
    @property
    def status(self) -> int: ...
    @property
    def status_name(self) -> str: ...
    @property
    def position(self) -> int: ...
    @property
    def next_position(self) -> int | None: ...
    @property
    def expected(self) -> int: ...
    @property
    def found(self) -> int: ...
    @property
    def batch_count(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def offset_of_max_timestamp(self) -> int: ...
    def raise_for_status(
        self, file: str | bytes | PathLike[str] | PathLike[bytes] | int | None
    ) -> None: ...

@final
class BatchColumns:
    batches: NDArray[np.void]
    file: str
    def __init__(self, batches: NDArray[np.void], file: str) -> None: ...
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...

def scan(
    data: Buffer,
    *,
    position: int = 0,
    end: int | None = None,
    check_crcs: bool = True,
    strict: bool = False,
    max_batches: int | None = None,
) -> BatchScan: ...
def scan_file(
    source: int | WindowSource,
    start: int,
    end: int,
    *,
    check_crcs: bool = True,
    strict: bool = False,
    collect: bool = True,
    max_batches: int | None = None,
    until: int | None = None,
    window_bytes: int | None = None,
) -> BatchScan: ...
def find_batch(
    source: int | WindowSource, start: int, until: int, end: int
) -> int | None: ...
def resync(
    source: int | WindowSource,
    start: int,
    until: int,
    end: int,
    *,
    budget: int,
    file: object = None,
) -> tuple[int | None, int]: ...
