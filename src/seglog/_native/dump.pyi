from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

RECORDS: Final[int]
METADATA: Final[int]
STRINGS: Final[int]
CALLER: Final[int]

_Decompress: TypeAlias = Callable[[int, int, bytes, bytearray | None], memoryview]
_Contents: TypeAlias = Callable[[int, bytes | None, bytes | None, int], bytes]

def java_utf8(data: Buffer) -> bytes: ...
def last_offset_at(
    fd: int, size: int, position: int, limit: int, *, file: str | None = None
) -> int | None: ...
def batch_chain(
    fd: int, size: int, position: int, *, file: str | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]: ...

@final
class LogDump:
    gaps: dict[int, int]
    def __init__(self, fd: int, size: int, *, what: int, decompress: _Decompress,
                 end: int | None = None, file: str | None = None) -> None: ...
    @property
    def position(self) -> int: ...
    def run(
        self, write: Callable[[memoryview], object], contents: _Contents | None = None
    ) -> None: ...

@final
class LogWalk:
    def __init__(self, fd: int, size: int, *, decompress: _Decompress, end: int | None = None,
                 window_size: int = ..., file: str | None = None) -> None: ...
    @property
    def position(self) -> int: ...
    def seek(self, position: int) -> None: ...
    def next_batch(self) -> dict[str, Any] | None: ...
    def enter(self) -> None: ...
    def next_record(self) -> dict[str, Any] | None: ...
    def max_record_timestamp(self) -> int: ...
