"""Blocks of an object, fetched ahead of a native reader as a WindowSource."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

from seglog.objects.requests import in_background, result_of
from seglog.objects.store import Block

__all__ = ["BLOCK_BYTES", "BlockReader"]

#: Bytes of a request: large enough that its latency is small compared with its transfer.
BLOCK_BYTES: Final = 4 * 1024 * 1024
#: A reader that skips at most this many bytes counts as sequential.
_STEP_MAX: Final = BLOCK_BYTES
_AHEAD_FIRST: Final = 2


class BlockReader:
    """Blocks in order, for one reader. Sizes double from `first_bytes` up to BLOCK_BYTES. After
    that requests run ahead: one more each time that the reader had to wait, up to `ahead_max`.

    `look` fetches the first block for a reader that begins at another position. Nothing at or after
    `end` is fetched. Holds at most `ahead_max` + 1 blocks in memory.
    """

    def __init__(self, fetch: Callable[[int, int], Block], end: int, ahead_max: int, *,
                 first_bytes: int, look: Callable[[int], tuple[int, Block]] | None = None) -> None:
        self._fetch, self._end, self._ahead_max = fetch, end, ahead_max
        self._first_bytes, self._look = first_bytes, look
        self._bytes = first_bytes
        self._ahead = min(_AHEAD_FIRST, ahead_max)
        self._next = -1  # where the block after all wanted blocks begins
        self._wanted: list[tuple[int, int, Future[Block]]] = []  # in order, without gaps

    def begin(self, position: int) -> None:
        """Requests the first blocks in advance."""
        self._next = position
        self._request(self._ahead)

    def close(self) -> None:
        """Drops requested blocks that are no longer needed."""
        for _, _, future in self._wanted:
            future.cancel()
        self._wanted.clear()

    def block(self, position: int, least: int) -> tuple[int, Block]:
        """The block that holds a position. Raises the errors of `fetch`."""
        if position >= self._end:
            return position, b""
        self._drop_before(position)
        if not self._wanted:
            if self._next < 0 or not self._next <= position < self._next + _STEP_MAX:
                self._bytes = self._first_bytes
                if self._look is not None:
                    start, block = self._look(position)
                    self._next = start + len(block)
                    return start, block
            else:
                self._bytes = min(2 * self._bytes, BLOCK_BYTES)
            self._next = position
        self._request(self._ahead if self._bytes == BLOCK_BYTES else 1)
        start, end, future = self._wanted[0]
        if not future.done() and len(self._wanted) > 1:
            self._ahead = min(self._ahead + 1, self._ahead_max)
            self._request(self._ahead)
        return start, result_of(future)

    def _drop_before(self, position: int) -> None:
        if self._wanted and not self._wanted[0][0] <= position < self._wanted[-1][1]:
            self.close()
        while self._wanted and self._wanted[0][1] <= position:
            self._wanted.pop(0)

    def _request(self, most: int) -> None:
        """Requests blocks until `most` are wanted."""
        while len(self._wanted) < most and self._next < self._end:
            start, end = self._next, min(self._end, self._next + self._bytes)
            self._wanted.append((start, end, in_background(partial(self._fetch, start, end))))
            self._next = end
