"""Ctrl-C while a verb imports its modules."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager

TYPE_CHECKING = False  # `seglog --help` imports no typing
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["importing"]


@contextmanager
def importing() -> Iterator[None]:
    """Meanwhile Ctrl-C ends the process at once, by the signal (130 in a shell). Afterwards it
    raises KeyboardInterrupt, as Python's default is.

    Python loses a KeyboardInterrupt that arrives in importlib's own code, and the lock of all
    imports with it: threads that import something later would wait forever. Changes nothing if the
    signal is ignored (a job in the background) or has the handler of a program.
    """
    ours = (signal.SIG_DFL, signal.default_int_handler)
    is_ours = (threading.current_thread() is threading.main_thread()
               and signal.getsignal(signal.SIGINT) in ours)
    if not is_ours:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
