"""The differences between two answers about one directory. Compares everything, byte for byte.

Ignored are the partial results of a load that Kafka abandoned in passes that handle files in the
order of the file system or of a hash map (`is_free`), and what `plain` removes from messages.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from tests.support.transcript import not_kafkas

State = dict[str, Any]
_FILES = ("files_loaded", "files_closed")
#: What only we have, and what both log.
OWN = ("where", "found", "said")
_OF_LZ4 = re.compile(r"(?<=LZ4Exception: ).*", re.DOTALL)


def differences(kafka: State, ours: State, *, partial: bool = False, root: str = "") -> list[str]:
    """One line per difference; `partial` compares only what `ours` has. `root` is Kafka's."""
    keys = [key for key in {**kafka, **ours}
            if (key in ours or not partial) and key not in OWN]
    if ("error" in kafka) != ("error" in ours):
        return [f"error: Kafka {_failure(kafka)}, here {_failure(ours)}"]
    if isinstance(ours.get("segments"), dict):
        # Ours ends at the first segment that cannot tell its end, as Oracle.java alone does.
        kafka = {**kafka, "segments": _first_error(kafka.get("segments") or [])}
        keys.remove("producers")
    found = [f"said: {line}" for line in not_kafkas(ours.get("said", []), kafka.get("said", []),
                                                    root)]
    for key in keys:
        one, two = kafka.get(key), ours.get(key)
        if key in _FILES:
            found += [f"{key} {line}" for line in _files(one or {}, two or {}, kafka.get("error"))]
        elif isinstance(one, list) and isinstance(two, list):
            found += [f"{key} {line}" for line in _lists(one, two)]
        elif plain(one) != plain(two):
            found.append(f"{key}: Kafka {one!r}, here {two!r}")
    return found


def plain(value: Any) -> Any:
    """A value without what depends on more than the bytes: the time of a file's last modification,
    which some messages tell, and how a library of lz4 puts its complaint."""
    if isinstance(value, dict) and value.get("error") == "KafkaException":
        return {**value, "message": plain(value["message"])}
    if not isinstance(value, str):
        return value
    return re.sub(r"lastModifiedTime=\d+", "", _OF_LZ4.sub("", value))


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


def _files(one: dict[str, State], two: dict[str, State], error: str | None) -> list[str]:
    found = []
    for name in sorted({*one, *two}):
        mine, other = one.get(name), two.get(name)
        if mine is None or other is None:
            size = (mine or other or {})["size"]
            if not is_free(name, mine or other or {}, error):
                found.append(f"{name}: only Kafka has it ({size} bytes)" if mine else
                             f"{name}: Kafka has none ({size} bytes here)")
        elif mine["sha256"] != other["sha256"]:
            found.append(f"{name}: Kafka {mine['size']} bytes {mine['sha256'][:12]}, "
                         f"here {other['size']} bytes {other['sha256'][:12]}")
    return found


def is_free(name: str, file: State, error: str | None) -> bool:
    """Tells whether one of them may have the file, and the other not.

    Kafka deletes `.deleted` files in the order of the file system, until a name has no number. It
    opens swapped segments in the order of a hash map until one is bad, which creates their missing
    offset indexes as files of zeros.
    """
    if name.endswith(".deleted"):
        return error == "NumberFormatException"
    return (error is not None and name.endswith(".index.swap")
            and file["sha256"] == hashlib.sha256(bytes(file["size"])).hexdigest())
