"""What tests need that run as another user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


def make_reachable(path: Path) -> None:
    """Every user may enter the directories above: those of pytest are its own user's alone."""
    for parent in path.parents:
        if parent.stat().st_uid == 0 and parent not in (Path("/"), Path("/tmp")):
            parent.chmod(parent.stat().st_mode | 0o055)


@contextmanager
def without_rights(path: Path) -> Iterator[None]:
    """Root, which reads and writes everything, is another user inside, who may enter `path`. What
    it imports must have been imported before: that user need not be able to read it."""
    if os.geteuid() != 0:
        yield
        return
    make_reachable(path / "x")
    with acting_as(_NOBODY):
        yield


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Root is another user inside, who is in no group but its own. As to imports see
    `without_rights`."""
    groups = os.getgroups()
    os.setgroups([])
    os.setresgid(user, user, 0)
    os.setresuid(user, user, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)
