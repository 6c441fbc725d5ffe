"""Several threads for one log: they work ahead, and one takes the results in order."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["in_order"]

Item = TypeVar("Item")
T = TypeVar("T")
_Work = Callable[[], T]


class _Task(Generic[Item, T]):
    """Some items, and what gives their results."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.works: list[_Work[T]] = []
        self.results: list[T] = []
        self.failure: Exception | None = None
        self.future: Future[None] = Future()

    def run(self) -> None:
        try:
            for work in self.works:
                self.results.append(work())
        except Exception as error:
            self.failure = error


@dataclass(frozen=True, slots=True)
class _End:
    """Why a task has fewer items: there are no more, a failure, or one item for `alone`."""

    failure: Exception | None = None
    alone: bool = False


def in_order(items: Iterable[Item], threads: int, count: int,
             prepare: Callable[[Item], _Work[T] | None], alone: Callable[[Item], T],
             stop: Callable[[], object] = lambda: None) -> Generator[tuple[Item, T]]:
    """Yields each item with its result, in the order of the items.

    The calling thread iterates over `items` and runs `prepare` in their order. What `prepare`
    returns gives the result, and runs in any of `threads` threads, of which the caller is one, with
    `count` items at a time. If it returns None, or with one thread, `alone` gives the result when
    all before it are taken, and before the next item is read. At most (threads + 2) * count items
    are ahead or just taken. Raises the first error in the order of the items, as one thread would.
    Whatever ends it early, `stop` is called and the threads are awaited.
    """
    if threads < 2:
        for item in items:
            yield item, alone(item)
        return
    source, pending = iter(items), deque[_Task[Item, T]]()
    end: _End | None = None
    with ThreadPoolExecutor(threads - 1, "seglog-cleaner") as pool:
        try:
            while end is None or end.alone:
                task, end, single = _next(source, count, prepare)
                if task.items:
                    task.future = pool.submit(task.run)
                    pending.append(task)
                yield from _taken(pending, threads + 1 if end is None else 0)
                for item in single:
                    yield item, alone(item)
        finally:
            stop()
            wait([task.future for task in pending if not task.future.cancel()])
    if end.failure is not None:
        raise end.failure


def _next(source: Iterator[Item], count: int, prepare: Callable[[Item], _Work[T] | None]
          ) -> tuple[_Task[Item, T], _End | None, list[Item]]:
    """A task of the next `count` items, why there are fewer, and the item for `alone`."""
    task = _Task[Item, T]()
    try:
        for item in itertools.islice(source, count):
            work = prepare(item)
            if work is None:
                return task, _End(alone=True), [item]
            task.items.append(item)
            task.works.append(work)
    except Exception as error:  # an earlier item may have one, too
        return task, _End(error), []
    return task, _End() if len(task.items) < count else None, []


def _taken(pending: deque[_Task[Item, T]], most: int) -> Iterator[tuple[Item, T]]:
    """Takes the results of the first tasks, until at most `most` are left."""
    while len(pending) > most:
        task = pending[0]
        if task.future.cancel():
            task.run()
        else:
            _help(pending)
            task.future.result()
        yield from zip(task.items, task.results, strict=False)
        if task.failure is not None:
            raise task.failure
        pending.popleft()


def _help(pending: deque[_Task[Item, T]]) -> None:
    """Runs tasks that no thread has begun, until the first one is done or there is none."""
    for task in itertools.islice(pending, 1, None):
        if pending[0].future.done():
            break
        if task.future.cancel():
            task.run()
            task.future = Future()
            task.future.set_result(None)
