"""A disk that dies: after so many changes of the directory the process is as good as killed."""

from __future__ import annotations

from collections.abc import Iterable

from seglog.model import EpochEntry
from seglog.recovery.disk import RealDisk

class Killed(BaseException):
    """Nothing may catch it, as nothing catches a SIGKILL."""


class CutDisk(RealDisk):
    """Does the first `cut` changes and dies in the next one: before it, or, where a change can be
    half done, in the middle. `changes` counts them; without a cut it only does that."""

    def __init__(self, path: str, cut: int | None = None) -> None:
        super().__init__(path)
        self.cut, self.changes = cut, 0

    def _change(self) -> bool:
        """Whether this is the change that is not finished."""
        self.changes += 1
        return self.cut is not None and self.changes > self.cut

    def create(self, name: str, size: int = 0) -> None:
        """See Disk."""
        if self._change():
            raise Killed
        super().create(name, size)

    def resize(self, name: str, size: int) -> None:
        """See Disk."""
        if self._change():
            raise Killed
        super().resize(name, size)

    def write(self, name: str, position: int, data: bytes) -> None:
        """See Disk."""
        dies = self._change()
        super().write(name, position, data[:len(data) // 2] if dies else data)
        if dies:
            raise Killed

    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """See Disk."""
        if self._change():
            # What a real one leaves beside the file that it did not come to rename.
            super().write(name + ".new.deleted", 0, data[:len(data) // 2])
            raise Killed
        super().replace(name, data, sync=sync)

    def copy(self, source: str, start: int, end: int, name: str) -> None:
        """See Disk."""
        dies = self._change()
        super().copy(source, start, (start + end) // 2 if dies else end, name)
        if dies:
            raise Killed

    def rename(self, name: str, new_name: str) -> bool:
        """See Disk."""
        if self._change():
            raise Killed
        return super().rename(name, new_name)

    def delete(self, name: str) -> bool:
        """See Disk."""
        if self._change():
            raise Killed
        return super().delete(name)

    def write_epochs(self, epochs: Iterable[EpochEntry]) -> None:
        """See Disk."""
        if self._change():
            super().write("leader-epoch-checkpoint.tmp", 0, b"0\n1\n")
            raise Killed
        super().write_epochs(epochs)

    def copy_times(self, source: str, name: str) -> None:
        """See Disk."""
        if self._change():
            raise Killed
        super().copy_times(source, name)
