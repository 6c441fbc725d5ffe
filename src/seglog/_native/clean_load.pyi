from collections.abc import Sequence
from os import PathLike
from typing import Final

import numpy as np
import numpy.typing as npt

CLEAN_DTYPE: Final[np.dtype[np.void]]

def load_clean(root: str | PathLike[str], names: Sequence[str], log_start_offsets: npt.ArrayLike,
               *, segments_max: int = 0, will_write: bool = True, check_crcs: bool = False,
               after_crash: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike] | None = None,
               now_ms: int = 0, producer_idle_ms: int = 0
               ) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int64], bytes]: ...
def write_indexes(
    root: str | PathLike[str], names: Sequence[str], rows: npt.NDArray[np.void],
    contents: bytes) -> None: ...
def sync_clean(
    root: str | PathLike[str], names: Sequence[str], rows: npt.NDArray[np.void], *,
    logs: bool = False) -> None: ...
def largest_timestamps(
    root: str | PathLike[str], names: Sequence[str], base_offsets: npt.ArrayLike
) -> npt.NDArray[np.int64]: ...
