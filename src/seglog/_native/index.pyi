from collections.abc import Callable
from os import PathLike
from typing import Final, final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from seglog._native.window import WindowSource

OFFSET_ENTRY_DTYPE: Final[np.dtype[np.void]]
TIME_ENTRY_DTYPE: Final[np.dtype[np.void]]
STORED_OFFSET_DTYPE: Final[np.dtype[np.void]]
STORED_TIME_DTYPE: Final[np.dtype[np.void]]
ABORTED_TXN_DTYPE: Final[np.dtype[np.void]]
COPY_MAX: Final[int]

@final
class IndexReader:
    path: Final[str]
    base_offset: Final[int]
    def __init__(self, path: str | PathLike[str], base_offset: int, *, times: bool = False,
                 mapped: int = 0) -> None: ...
    @property
    def entries(self) -> int: ...
    @property
    def mapped_bytes(self) -> int: ...
    def detach(self) -> None: ...
    def lookup(self, target: int, entries: int = -1) -> tuple[int, int]: ...
    def upper_bound(self, position: int, entries: int = -1) -> tuple[int, int] | None: ...

def search_entries(
    source: WindowSource, entries: int, base_offset: int, target: int, *, times: bool = False,
    by_value: bool = False,
) -> tuple[int, int, int]: ...

class _IndexView:
    path: str
    base_offset: int
    def __init__(self, path: str | PathLike[str], base_offset: int, *,
                 fetch: Callable[[], Buffer] | None = None) -> None: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def holds_descriptor(self) -> bool: ...
    @property
    def entries(self) -> int: ...
    @property
    def file_size(self) -> int | None: ...
    @property
    def last_entry(self) -> tuple[int, int]: ...
    def lookup(self, target: int) -> tuple[int, int]: ...
    def close(self) -> None: ...

class OffsetIndexView(_IndexView):
    def upper_bound(self, position: int) -> tuple[int, int] | None: ...
    def to_numpy(self) -> npt.NDArray[np.void]: ...

class TimeIndexView(_IndexView):
    def to_numpy(self) -> npt.NDArray[np.void]: ...

def read_aborted(
    path: str | PathLike[str], content: Buffer | None = None
) -> npt.NDArray[np.void]: ...
