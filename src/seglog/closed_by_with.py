"""What a `with` block closes."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

__all__ = ["ClosedByWith"]


class ClosedByWith:
    """Base class of objects that the end of a `with` block closes."""

    __slots__ = ()

    if TYPE_CHECKING:
        def close(self) -> None:
            """Of each class."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()
