"""What seglog logs, a line each, in the form in which slf4j prints Kafka's; and beside that what it
does to the files of a partition, in lines that begin with two blanks."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from seglog.recovery.disk import RealDisk
from tests.support.held import open_files

_LEVELS = {"WARNING": "WARN", "CRITICAL": "ERROR"}
#: Options of a JVM whose program keeps what is logged.
JVM_OPTIONS = [f"-Dorg.slf4j.simpleLogger.{name}={value}" for name, value in (
    ("defaultLogLevel", "off"), ("log.org.apache.kafka.storage", "debug"),
    ("log.LogFutureTimestampLogger", "debug"), ("showThreadName", "false"),
    ("showShortLogName", "true"))]
#: Of a disk, what a crash could come between.
_CHANGES = ("create", "preallocate", "resize", "write", "replace", "copy", "rename", "delete",
            "keep", "write_epochs", "sync", "open_for_sync", "sync_directory")
_WHOLE = (str, bytes, bytearray, memoryview)


class Said(logging.Handler):
    """Keeps the lines until they are taken; `home` is left out of them."""

    def __init__(self, home: str) -> None:
        super().__init__()
        self._home = home
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        level, name = record.levelname, record.name.rpartition(".")[2]
        self.add(f"{_LEVELS.get(level, level)} {name} - {record.getMessage()}")

    def add(self, line: str) -> None:
        """Keeps another line."""
        self._lines.append(self.plain(line))

    def plain(self, text: str) -> str:
        """See `plain`."""
        return plain(text, self._home)

    def taken(self) -> list[str]:
        """The lines since the last call."""
        found, self._lines = self._lines, []
        return found


def plain(text: str, home: str) -> str:
    """A text without the home and without what depends on more than the bytes: the time of a file,
    and the words of lz4's library."""
    text = re.sub(r"(?<=LZ4Exception: ).*", "", text.replace(home, ""), flags=re.DOTALL)
    return re.sub(r"lastModifiedTime=\d+", "", text)


#: What the lines of both need not share: Kafka also tells the milliseconds of a step, and more of a
#: batch or a segment; what the flush of a roll finds depends on when it runs, and a cleaned segment
#: is of the age that the system's clock says.
_BESIDE = re.compile(
    r" in \d+ ?ms\.?$|\.$| minCleanedFileOffset: \d+$|(?<=Closing log).*|(?<=unflushed: ).*"
    r"|(?<=inactive_time_ms = )-?\d+"
    r"|(?<=nextSegmentOpt=)(\d+|None|Optional(\.empty|\[LogSegment\(.*?\)\]))"
    r"|(?<=/)0+(?=\d)|(?<=log recovery: ).*|(?<=with split segments ).*"
    r"| in segment LogSegment\(.*?\)"
    r"|(?<=AbortedTxn\(version=)\d+|(?<=Skipping batch ).* from an origin of"
    r"|org\.apache\.kafka\.common\.[\w.]*: ", re.DOTALL)
_PREFIX = re.compile(r"(\w+) [\w$]+ - (\[[^\]]*(partition|dir)=[^\]]*\] )?")
#: Loggers of which Kafka's lines are others, and the beginnings of lines that differ from Kafka's.
#: docs/differences.md says how.
OTHERS = ("LogCleaner", "scheduler")
OURS = ("Found invalid messages in log segment", "Failed to rename producer state snapshot",
        "maybeAppend:")
_OURS = tuple([f" {one} - " for one in OTHERS] + [f"{one} " for one in OURS])


def not_kafkas(ours: list[str], kafkas: list[str], home: str) -> list[str]:
    """Our lines that are not among Kafka's, which hold `home`."""
    def shared(line: str) -> str:
        line = line.partition("\n")[0]  # of a name with a newline Kafka's side keeps the beginning
        return _BESIDE.sub("", _PREFIX.sub(r"\1 ", line, count=1))

    mine = [line for line in ours if line[:1] != " " and not any(
        one in line for one in _OURS)]
    rest = Counter(map(shared, mine)) - Counter(shared(plain(line, home)) for line in kafkas)
    return [line for line in mine if shared(line) in rest]


def held(path: Path) -> list[str]:
    """A line for each file below `path` that is open, where the system tells: a closed log has
    none."""
    return [f"  holds {name}" for name in (open_files(path) if os.path.isdir("/proc/self/fd")
                                           else ())]


@contextmanager
def listening(home: object) -> Iterator[Said]:
    """Keeps all that is logged and done inside; nothing else gets what is logged."""
    logger, handler = logging.getLogger("seglog"), Said(str(home))
    before = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        with ExitStack() as patches:
            for name in _CHANGES:
                patches.enter_context(mock.patch.object(
                    RealDisk, name, _traced(getattr(RealDisk, name), name, handler)))
            yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def _traced(real: Any, name: str, said: Said) -> Any:
    def change(disk: RealDisk, *given: Any, **how: Any) -> Any:
        kept = [list(one) if isinstance(one, Iterable) and not isinstance(one, _WHOLE) else one
                for one in given]
        told = [f"{len(one)} bytes" if isinstance(one, bytes) else str(one) for one in kept]
        said.add(f"  {name} {' '.join([*told, *map(str, how.values())])}")
        return real(disk, *kept, **how)

    return change
