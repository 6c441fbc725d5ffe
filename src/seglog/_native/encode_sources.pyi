from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

READ_COLUMNS: frozenset[str]

class ColumnSource: ...

def arrow_source(data: object, name: str | None = None) -> ColumnSource: ...
def selected_source(pieces: Iterable[tuple[tuple[object, object], NDArray[np.int32]]]
                    ) -> ColumnSource: ...
def buffer_source(name: str, format: str, length: int, arrays: Sequence[NDArray[Any]],
                  validity: NDArray[np.uint8] | None) -> ColumnSource: ...

def headers_source(
    lists: ColumnSource, keys: ColumnSource, values: ColumnSource
) -> ColumnSource: ...
