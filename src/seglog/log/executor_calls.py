"""Calls in a thread of an event loop's executor whose results outlive a cancelled wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["ExecutorCalls"]

_T = TypeVar("_T")


class ExecutorCalls(Generic[_T]):
    """One call at a time, for one task.

    A thread cannot be cancelled: a call whose task stops waiting (`asyncio.wait_for`) runs to its
    end and moves a reader's position. So its result is kept for the next `take`, in any loop.
    """

    def __init__(self) -> None:
        self._pending: Future[_T] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a call was begun and its result not taken."""
        return self._pending is not None

    async def take(self, call: Callable[[], _T]) -> _T:
        """The result, or the error, of the pending call; without one, of `call`."""
        if self._pending is None:
            self._pending = _begin(call)
        try:
            found = await asyncio.wrap_future(self._pending)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._pending = None
            raise
        self._pending = None
        return found


def _begin(call: Callable[[], _T]) -> Future[_T]:
    pending: Future[_T] = Future()
    pending.set_running_or_notify_cancel()  # from now on a cancelled wait cannot cancel it

    def run() -> None:
        try:
            pending.set_result(call())
        except BaseException as error:
            pending.set_exception(error)

    asyncio.get_running_loop().run_in_executor(None, run)
    return pending
