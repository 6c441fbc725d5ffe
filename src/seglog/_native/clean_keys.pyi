from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

@final
class PlainRecords:
    def __init__(self, direct: tuple[Callable[..., int] | None, ...]) -> None: ...

@final
class BatchKeys:
    def __init__(self, direct: tuple[Callable[..., int] | None, ...]) -> None: ...
    def read(self, data: Buffer, rows: NDArray[np.void], start: int) -> None: ...
