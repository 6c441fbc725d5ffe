"""Callbacks for when the manager is ready (Kafka: BrokerReadyCallback)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["StartupCallbackFailure", "StartupCallbacks"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartupCallbackFailure:
    """A callback that raised."""

    callback: Callable[[], object]
    error: Exception


class StartupCallbacks:
    """Callables that run once each, in order of registration, never before `fire`."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._failures: list[StartupCallbackFailure] = []
        self._fired = False
        self._running = False
        self._lock = threading.Lock()

    @property
    def failures(self) -> tuple[StartupCallbackFailure, ...]:
        """The callbacks that raised, in the order in which they ran."""
        with self._lock:
            return tuple(self._failures)

    def register(self, callback: Callable[[], object]) -> None:
        """Adds one. After `fire` it runs at once, after those that are still running."""
        with self._lock:
            self._waiting.append(callback)
        self._run()

    def fire(self) -> None:
        """Everything is loaded: runs what was registered, and later registrations at once."""
        with self._lock:
            self._fired = True
        self._run()

    def _run(self) -> None:
        """Runs waiting callbacks, unless another thread (or a callback's own frame) is running
        them."""
        while True:
            with self._lock:
                if not self._fired or self._running or not self._waiting:
                    return
                callback = self._waiting.popleft()
                self._running = True
            try:
                callback()
            except Exception as error:
                _log.error("The startup callback %r failed; the others run", callback,
                           exc_info=error)
                with self._lock:
                    self._failures.append(StartupCallbackFailure(callback, error))
            finally:
                with self._lock:
                    self._running = False
