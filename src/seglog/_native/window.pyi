from collections.abc import Callable
from typing import final

from typing_extensions import Buffer

@final
class WindowSource:
    def __init__(self, load: Callable[[int, int], tuple[int, Buffer]]) -> None: ...
    def close(self) -> None: ...
