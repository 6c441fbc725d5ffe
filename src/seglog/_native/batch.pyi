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
    batches: Final[NDArray[np.void]]
    status: Final[int]
    status_name: Final[str]
    position: Final[int]
    next_position: Final[int | None]
    expected: Final[int]
    found: Final[int]
    batch_count: Final[int]
    record_count: Final[int]
    first_offset: Final[int]
    last_offset: Final[int]
    max_timestamp: Final[int]
    offset_of_max_timestamp: Final[int]
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

def scan(data: Buffer, *, position: int = 0, end: int | None = None, check_crcs: bool = True,
         strict: bool = False, max_batches: int | None = None) -> BatchScan: ...
def scan_file(source: int | WindowSource, start: int, end: int, *, check_crcs: bool = True,
              strict: bool = False, collect: bool = True, max_batches: int | None = None,
              until: int | None = None, window_bytes: int | None = None) -> BatchScan: ...
def find_batch(
    source: int | WindowSource, start: int, until: int, end: int
) -> int | None: ...
def resync(source: int | WindowSource, start: int, until: int, end: int, *, budget: int,
           file: object = None) -> tuple[int | None, int]: ...
