"""Records what is made durable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

#: A file with its bytes or a directory with its names, each as a sync finds it.
Synced = tuple[Path, bytes | list[str]]


@contextmanager
def syncs() -> Iterator[list[Synced]]:
    """What Python syncs inside, in order."""
    found: list[Synced] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        found.append((path, path.read_bytes() if path.is_file() else sorted(os.listdir(path))))
        fsync(descriptor)

    with mock.patch.object(os, "fsync", recorded):
        yield found
