"""A disk after a power cut: its possible contents, by the trace of earlier writes and syncs.

The trace is that of tests/faults/shim.c. Synced bytes are on the disk. Of other bytes any part may
be: whole writes from the first on, the last of them torn; or sectors in any order, with zeros where
the size came before the bytes; or nothing. Names (files created, renamed, removed) reach the disk
in their order, as in file systems with a journal, and at the latest with the sync of their
directory. The sync of a file alone does not make its name durable.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.box import Call

SECTOR = 512


@dataclass(frozen=True)
class Change:
    """A write, or a new size where `data` is None."""

    offset: int
    data: bytes | None = None

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            if self.offset < len(content):
                del content[self.offset:]
            else:
                content.extend(bytes(self.offset - len(content)))
            return
        if len(content) < self.offset:
            content.extend(bytes(self.offset - len(content)))
        content[self.offset:self.offset + len(self.data)] = self.data

    def sectors(self) -> Iterable[Change]:
        """The write by the sectors that it touches."""
        assert self.data is not None
        at, end = self.offset, self.offset + len(self.data)
        while at < end:
            until = min(end, (at // SECTOR + 1) * SECTOR)
            yield Change(at, self.data[at - self.offset:until - self.offset])
            at = until


@dataclass
class File:
    """A file, whatever its name: what is on the disk, and what was done to it since."""

    durable: bytes = b""
    pending: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        self.durable, self.pending = bytes(self.now()), []

    def now(self) -> bytearray:
        content = bytearray(self.durable)
        for change in self.pending:
            change.apply(content)
        return content

    def after(self, source: random.Random) -> bytes:
        """What may be on the disk after a cut."""
        kind, pending = source.random(), self.pending
        if kind < .1 or not pending:
            return self.durable
        content = bytearray(self.durable)
        if kind < .5:
            self._prefix(content, source)
        else:
            self._sectors(content, source)
        return bytes(content)

    def _prefix(self, content: bytearray, source: random.Random) -> None:
        count = source.randint(0, len(self.pending))
        for change in self.pending[:count]:
            change.apply(content)
        if count < len(self.pending):
            torn = self.pending[count]
            if torn.data is not None:
                size = source.randint(0, len(torn.data))
                Change(torn.offset, torn.data[:size]).apply(content)

    def _sectors(self, content: bytearray, source: random.Random) -> None:
        """The sizes up to some change are on the disk, and of the bytes below them some sectors."""
        kept, landed = source.randint(0, len(self.pending)), source.choice([0., .3, .7, .95])
        for change in self.pending[:kept]:
            if change.data is None:
                change.apply(content)
                continue
            end = change.offset + len(change.data)
            if len(content) < end:
                content.extend(bytes(end - len(content)))
            for sector in change.sectors():
                if source.random() < landed:
                    sector.apply(content)


@dataclass(frozen=True)
class Naming:
    """A name that came or went: of a file (made), a directory (`file` None), or moved."""

    kind: str
    path: str
    other: str = ""
    file: File | None = None

    @property
    def parents(self) -> set[str]:
        return {os.path.dirname(path) for path in (self.path, self.other) if path}

    def apply(self, names: dict[str, File | None]) -> None:
        if self.kind == "create":
            names[self.path] = self.file
        elif self.kind == "unlink":
            names.pop(self.path, None)
        else:
            inner = [name for name in names if name.startswith(self.path + "/")]
            for name in inner:
                names[self.other + name[len(self.path):]] = names.pop(name)
            if self.path in names:
                names[self.other] = names.pop(self.path)


class PowerDisk:
    """The files under `root`, of which everything that is there at first is on the disk."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.durable: dict[str, File | None] = {}
        for path in sorted(root.rglob("*")):
            self.durable[str(path)] = File(path.read_bytes()) if path.is_file() else None
        self.names = dict(self.durable)
        self.pending: list[Naming] = []

    def replay(self, calls: Iterable[Call]) -> None:
        """What a process did, in its order."""
        for call in calls:
            if call.path.endswith(" (deleted)"):
                continue
            self._do(call)

    def _do(self, call: Call) -> None:
        if call.kind == "create":
            self._create(call)
        elif call.kind == "write":
            self._file(call.path).pending.append(Change(call.offset, call.data))
        elif call.kind == "truncate":
            file = self._file(call.path)
            if call.other != "allocated" or call.length > len(file.now()):
                file.pending.append(Change(call.length))
        elif call.kind == "rename":
            self._name(Naming("rename", call.path, call.other))
        elif call.kind == "unlink":
            self._name(Naming("unlink", call.path))
        elif call.kind == "sync":
            self._sync(call.path)

    def _create(self, call: Call) -> None:
        if call.path not in self.names:
            file = None if call.other == "directory" else File()
            self._name(Naming("create", call.path, file=file))
        elif call.other == "truncated":
            self._file(call.path).pending.append(Change(0))

    def _file(self, path: str) -> File:
        file = self.names[path]
        assert file is not None, f"{path} is a directory"
        return file

    def _name(self, naming: Naming) -> None:
        naming.apply(self.names)
        self.pending.append(naming)

    def _sync(self, path: str) -> None:
        file = self.names.get(path)
        if file is not None:
            file.sync()
            return
        last = max((number for number, naming in enumerate(self.pending)
                    if path in naming.parents), default=-1)
        self._to_disk(last + 1, self.durable)
        del self.pending[:last + 1]

    def _to_disk(self, count: int, names: dict[str, File | None]) -> None:
        for naming in self.pending[:count]:
            naming.apply(names)

    def cut(self, source: random.Random, image: Path) -> None:
        """Writes what may be left after a cut of the power, as a tree at `image`."""
        names = dict(self.durable)
        count = len(self.pending) if source.random() < .5 else \
            source.randint(0, len(self.pending))
        self._to_disk(count, names)
        self._write(image, names, lambda file: file.after(source))

    def crash(self, image: Path) -> None:
        """Writes what is left after the end of the process alone."""
        self._write(image, self.names, lambda file: bytes(file.now()))

    def _write(self, image: Path, names: dict[str, File | None],
               content: Callable[[File], bytes]) -> None:
        image.mkdir(parents=True, exist_ok=True)
        for name in sorted(names):
            target, file = image / name[len(self.root) + 1:], names[name]
            if file is None:
                target.mkdir(parents=True, exist_ok=True)
            elif target.parent.is_dir():
                target.write_bytes(content(file))
