from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

class Source: ...

def arrow_source(data: object, name: str | None = None) -> Source: ...
def selected_source(
    pieces: Iterable[tuple[tuple[object, object], NDArray[np.int32]]],
) -> Source: ...
def buffer_source(
    name: str,
    format: str,
    length: int,
    arrays: Sequence[NDArray[Any]],
    validity: NDArray[np.uint8] | None,
) -> Source: ...

def headers_source(lists: Source, keys: Source, values: Source) -> Source: ...
