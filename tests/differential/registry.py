"""All kinds of damage: those of `tests.support`, and those that only a loader can tell apart."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

from tests.oracle.log import Entry
from tests.support import damage, damage_files, damage_records
from tests.support.damage import Kind, Target

#: Of `tests.support`, what a comparison of loaders cannot use.
UNUSED = {
    # Gigabytes, which would be hashed.
    "log_huge", "index_huge", "decompression_bomb",
    # Some of these make Kafka run out of memory; `old_message_resealed` leaves those out.
    "sealed_old_message",
    # Kafka's loader hangs, or dies of the operating system instead of the bytes.
    "log_is_no_file", "index_is_no_file", "state_is_no_file", "checkpoint_is_no_file",
    "partition_is_no_directory",
    # Not read by the loader of a log.
    "meta_properties_damaged",
}
_SHARED = (damage, damage_files, damage_records)

#: Name to damage, of the kinds below this package.
OWN: dict[str, Kind] = {}


def kind(function: Kind) -> Kind:
    """Registers a kind of this package under its name."""
    assert function.__name__ not in damage.KINDS and function.__name__ not in OWN
    OWN[function.__name__] = function
    return function


def kinds() -> dict[str, Kind]:
    """Every kind that cases are made of."""
    from tests.differential import (  # noqa: F401  (they register themselves)
        damage_crash, damage_log, damage_names, damage_state,
    )
    homes = {module.__name__ for module in _SHARED}
    shared = {name: function for name, function in damage.KINDS.items()
              if function.__module__ in homes and name not in UNUSED}
    return {**shared, **OWN}


def apply(name: str, root: Path, partition: str, seed: str) -> str | None:
    """Does one damage; what was done, or None when there was nothing to damage that way."""
    target = Target(root, partition, random.Random(f"{name}-{seed}"))
    try:
        return kinds()[name](target)
    except (AssertionError, OSError, IndexError, ValueError, struct.error):
        return None  # an earlier damage removed what this one needs


def base_of(entry: Entry) -> int:
    """The base offset of a batch, or the offset that an old message stores."""
    return int.from_bytes(entry.data[:8], "big", signed=True)


def last_of(entry: Entry) -> int:
    """The last offset that its header tells, as Kafka computes it."""
    delta = struct.unpack_from(">i", entry.data, 23)[0] if entry.magic >= 2 else 0
    wrapped = (base_of(entry) + delta) & (1 << 64) - 1
    return wrapped - (1 << 64) if wrapped >> 63 else wrapped


def timestamp_of(entry: Entry) -> int:
    """The largest timestamp that its header tells."""
    if entry.magic >= 2:
        return int.from_bytes(entry.data[35:43], "big", signed=True)
    return int.from_bytes(entry.data[18:26], "big", signed=True) if entry.magic == 1 else -1


def end_of(t: Target) -> int:
    """The log end offset as the batches tell it."""
    found = [last_of(entry) + 1 for path in t.files(".log")
             for entry in damage.whole_entries(path)]
    return max(found, default=0)


def pick(t: Target, *choices: Callable[[], object]) -> object:
    """What one of the choices gives."""
    return t.random.choice(choices)()
