"""The history of leader epochs of one partition (Kafka: LeaderEpochFileCache)."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Iterator

from seglog.errors import MalformedCheckpointError
from seglog.model import EpochEntry
from seglog.java.numbers import parse_int32, parse_int64
from seglog.storage.checkpoint_files import encode_checkpoint, read_checkpoint, write_checkpoint

__all__ = ["LeaderEpochs", "encode_leader_epochs", "parse_epoch_entry", "read_leader_epochs",
           "write_leader_epochs"]

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """Epochs and the first offset of each, both strictly increasing. In memory only.

    Not thread-safe: a writer copies it for readers.
    """

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        """Assigns the entries one by one, so that disorder is resolved as in Kafka.

        Raises ValueError with Kafka's text for a negative epoch or offset.
        """
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    def __len__(self) -> int:
        return len(self._epochs)

    def __iter__(self) -> Iterator[EpochEntry]:
        return map(EpochEntry, self._epochs, self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeaderEpochs) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LeaderEpochs({list(self)})"

    @property
    def latest(self) -> EpochEntry | None:
        """The newest epoch."""
        return EpochEntry(self._epochs[-1], self._starts[-1]) if self._epochs else None

    @property
    def earliest(self) -> EpochEntry | None:
        """The oldest epoch that the log still knows."""
        return EpochEntry(self._epochs[0], self._starts[0]) if self._epochs else None

    def is_latest(self, epoch: int, offset: int) -> bool:
        """Whether a batch at `offset` would belong to this epoch already, so that `assign` changes
        nothing."""
        return bool(self._epochs) and epoch == self._epochs[-1] and offset >= self._starts[-1]

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Records that `epoch` began at `start_offset`. Returns whether that changed anything.

        Removes contradicting entries: all at or above the epoch or the offset. A later start of the
        latest epoch changes nothing. Raises ValueError for a negative number.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError("Received invalid partition leader epoch entry "
                             f"{EpochEntry(epoch, start_offset)}")
        if self.is_latest(epoch, start_offset):
            return False
        keep = min(bisect.bisect_left(self._epochs, epoch),
                   bisect.bisect_left(self._starts, start_offset))
        self._epochs[keep:] = [epoch]
        self._starts[keep:] = [start_offset]
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Removes the epochs that began at or above `end_offset`. Returns whether any did."""
        if end_offset < 0 or not self._starts or self._starts[-1] < end_offset:
            return False
        keep = bisect.bisect_left(self._starts, end_offset)
        del self._epochs[keep:], self._starts[keep:]
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Moves the epoch in force at `start_offset` up to it, and removes earlier ones.

        Returns whether any entry began at or below it.
        """
        drop = bisect.bisect_right(self._starts, start_offset)
        if start_offset < 0 or not drop:
            return False
        del self._epochs[:drop - 1], self._starts[:drop - 1]
        self._starts[0] = start_offset
        return True

    def clear(self) -> None:
        """Removes all entries."""
        self._epochs.clear()
        self._starts.clear()

    def copy(self) -> LeaderEpochs:
        """An independent copy."""
        return LeaderEpochs(self)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest epoch at or below `epoch`, its end offset); (-1, -1) if that is unknown.

        An epoch below all known epochs yields itself and the start of the first one.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        higher = bisect.bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        return (self._epochs[higher - 1] if higher else epoch), self._starts[higher]

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in force at `offset`; None below the first entry."""
        index = bisect.bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else None

    def entry(self, epoch: int) -> EpochEntry | None:
        """The entry of exactly this epoch."""
        index = bisect.bisect_left(self._epochs, epoch)
        if index < len(self._epochs) and self._epochs[index] == epoch:
            return EpochEntry(epoch, self._starts[index])
        return None

    def next_epoch(self, epoch: int) -> int | None:
        """The smallest epoch above `epoch`."""
        index = bisect.bisect_right(self._epochs, epoch)
        return self._epochs[index] if index < len(self._epochs) else None

    def entries_in_range(self, start_offset: int, end_offset: int) -> list[EpochEntry]:
        """The history of [start_offset, end_offset), as it is stored with a remote segment."""
        part = self.copy()
        part.truncate_from_start(start_offset)
        part.truncate_from_end(end_offset)
        return list(part)


def parse_epoch_entry(fields: list[bytes]) -> EpochEntry:
    """Parses one line of the file without further checks. Raises ValueError for a field that is not
    a number."""
    epoch, start_offset = fields
    return EpochEntry(parse_int32(epoch.decode()), parse_int64(start_offset.decode()))


def read_leader_epochs(path: str | os.PathLike[str], content: bytes | None = None
                       ) -> LeaderEpochs:
    """Reads a `leader-epoch-checkpoint`; no epochs if the file is missing or empty. `content` is
    the file's content if the caller has read it already.

    Raises MalformedCheckpointError (codes of `storage.checkpoint_files`, and `epoch_negative`) and
    KafkaStorageError.
    """
    entries = read_checkpoint(path, parse_epoch_entry, 2, content)
    try:
        return LeaderEpochs(entries)
    except ValueError as error:
        raise MalformedCheckpointError(str(error), file=os.fspath(path), expected=0,
                                       code="epoch_negative") from None


def write_leader_epochs(path: str | os.PathLike[str], epochs: Iterable[EpochEntry]) -> None:
    """Replaces a `leader-epoch-checkpoint` atomically and durably. Raises KafkaStorageError.

    A file with the same content is not written: a start rewrites that of every partition, and a
    thousand syncs take seconds.
    """
    write_checkpoint(path, _lines(epochs), spare_same=True)


def encode_leader_epochs(epochs: Iterable[EpochEntry]) -> bytes:
    """The bytes of a `leader-epoch-checkpoint`."""
    return encode_checkpoint(_lines(epochs))


def _lines(epochs: Iterable[EpochEntry]) -> list[str]:
    return [f"{entry.epoch} {entry.start_offset}" for entry in epochs]
