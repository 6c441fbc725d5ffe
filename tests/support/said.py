"""What the log has from a part of the package: every line, with its level, the exception that it
carries, and without what differs from run to run."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Said", "said"]


class Said(logging.Handler):
    """The lines since the last `take`."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root, self.lines = str(root), list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().replace(self._root, "ROOT")
        text = re.sub(r"\b[0-9a-f]{32}\b", "UNIQUE", re.sub(r"\bin \d+ms\b", "in 0ms", text))
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(f"{record.levelname} {text}"
                          + ("" if error is None else f" <- {type(error).__name__}"))

    def take(self) -> list[str]:
        """The lines since the last call."""
        taken, self.lines = self.lines, []
        return taken


@contextmanager
def said(root: Path, *names: str, level: int = logging.DEBUG) -> Iterator[Said]:
    """Listens to the loggers `names` below `seglog`. Paths below `root` begin with ROOT."""
    handler, loggers = Said(root), [logging.getLogger(f"seglog.{name}") for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(level)
    try:
        yield handler
    finally:
        for logger, its in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(its)
