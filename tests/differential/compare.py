"""Where two answers about one directory differ. Everything is compared, byte for byte.

Only the order of producers in a snapshot is free: Kafka writes them as its hash map has them.
"""

from __future__ import annotations

import re
from typing import Any

from tests.oracle import files
from tests.oracle.wire import OracleError

State = dict[str, Any]
_FILES = ("files_loaded", "files_closed")


def differences(kafka: State, ours: State, *, partial: bool = False) -> list[str]:
    """One line per difference; `partial` compares only what `ours` has."""
    keys = [key for key in {**kafka, **ours} if key in ours or not partial]
    if ("error" in kafka) != ("error" in ours):
        return [f"error: Kafka {_failure(kafka)}, here {_failure(ours)}"]
    if "error" in kafka:
        # What the files are after a failure follows from where it was.
        keys = [key for key in keys if key not in _FILES or kafka.get(key) != ours.get(key)]
    if isinstance(ours.get("segments"), dict):
        # Ours ends at the first segment that cannot tell its end, as Oracle.java alone does.
        kafka = {**kafka, "segments": _first_error(kafka.get("segments") or [])}
        keys.remove("producers")
    found = []
    for key in keys:
        one, two = kafka.get(key), ours.get(key)
        if key in _FILES:
            found += [f"{key} {line}" for line in _files(one or {}, two or {})]
        elif isinstance(one, list) and isinstance(two, list):
            found += [f"{key} {line}" for line in _lists(one, two)]
        elif _plain(one) != _plain(two):
            found.append(f"{key}: Kafka {one!r}, here {two!r}")
    return found


def _plain(value: Any) -> Any:
    """Without the time at which a file was last modified, which some messages tell."""
    return re.sub(r"lastModifiedTime=\d+", "", value) if isinstance(value, str) else value


def _first_error(segments: list[State]) -> State | None:
    return next((value for segment in segments for value in segment.values()
                 if isinstance(value, dict)), None)


def _failure(state: State) -> str:
    return f"{state['error']}: {state['message']}" if "error" in state else "loads it"


def _lists(one: list[Any], two: list[Any]) -> list[str]:
    if len(one) != len(two):
        return [f"Kafka has {len(one)}, here {len(two)}: {one} and {two}"[:2000]]
    found = []
    for number, (mine, other) in enumerate(zip(one, two, strict=True)):
        if isinstance(mine, dict) and isinstance(other, dict):
            found += [f"[{number}].{key}: Kafka {mine.get(key)!r}, here {other.get(key)!r}"
                      for key in {**mine, **other} if mine.get(key) != other.get(key)]
        elif mine != other:
            found.append(f"[{number}]: Kafka {mine!r}, here {other!r}")
    return found


def _files(one: dict[str, State], two: dict[str, State]) -> list[str]:
    found = [f"{name}: only Kafka has it ({one[name]['size']} bytes)"
             for name in sorted(set(one) - set(two))]
    found += [f"{name}: Kafka has none ({two[name]['size']} bytes here)"
              for name in sorted(set(two) - set(one))]
    for name in sorted(set(one) & set(two)):
        mine, other = one[name], two[name]
        if mine["sha256"] != other["sha256"] and not _same_snapshot(mine, other):
            found.append(f"{name}: Kafka {mine['size']} bytes {mine['sha256'][:12]}, "
                         f"here {other['size']} bytes {other['sha256'][:12]}")
    return found


def _same_snapshot(one: State, two: State) -> bool:
    if "hex" not in one or "hex" not in two or one["size"] != two["size"]:
        return False
    try:
        mine, other = (files.decode_snapshot(bytes.fromhex(state["hex"])) for state in (one, two))
    except OracleError:
        return False
    return sorted(map(repr, mine)) == sorted(map(repr, other))
