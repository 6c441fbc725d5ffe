"""Parses option values, which Spark passes as text.

Every function raises ValueError with the option, the expected value and the value found. It refuses
what Spark's Kafka source refuses (Scala's toInt, toLong and toBoolean).
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from seglog.model import TopicPartition
from seglog.objects import StorageOptions

__all__ = ["INT_MAX", "LONG_MAX", "STORE_PREFIXES", "boolean", "is_int", "java_pattern",
           "json_object", "listed", "long_number", "option_texts", "per_partition", "positive",
           "query_options", "storage_options"]

INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
#: Prefixes of options for an object store's client; all others need the prefix `storage.`.
STORE_PREFIXES = ("aws_", "azure_", "google_", "storage.")


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Options given in Python as Spark passes them: true and false in lower case."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in options.items()}


def query_options(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
                  options: Mapping[str, object]) -> dict[str, str]:
    """The options of `load(path)` given in Python, as Spark passes them."""
    places = [path] if isinstance(path, str | os.PathLike) else list(path)
    where = {"path": os.fspath(places[0])} if len(places) == 1 else \
        {"paths": json.dumps([os.fspath(place) for place in places])}
    return {**option_texts(options), **where}


def listed(text: str, name: str) -> tuple[str, ...]:
    """The items of a comma-separated list. Raises ValueError for an empty list."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise ValueError(f"Option '{name}' is empty.")
    return parts


def json_object(text: str, option: str, example: str) -> dict[str, Any]:
    """Parses a JSON object."""
    try:
        parsed = json.loads(text)
        json.dumps(parsed, ensure_ascii=False).encode()  # refuses half a surrogate pair
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise _not_like(option, example, text)
    return parsed


def per_partition(text: str, option: str) -> dict[TopicPartition, int]:
    """Parses Spark's JSON with one number a partition: offsets, or timestamps in ms."""
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    found = {}
    for topic, partitions in json_object(text, option, example).items():
        if not isinstance(partitions, dict):
            raise _not_like(option, example, text)
        for partition, value in partitions.items():
            if not re.fullmatch(r"\d{1,10}", partition, re.ASCII) or int(partition) > INT_MAX \
                    or not is_int(value) or not -LONG_MAX <= value <= LONG_MAX:
                raise _not_like(option, example, text)
            found[TopicPartition(topic, int(partition))] = value
    return found


def _not_like(option: str, example: str, text: str) -> ValueError:
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    return ValueError(f"Option '{option}' expects e.g. {example}, got {shown}")


def is_int(value: object) -> bool:
    """Whether a JSON value is an integer; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    """A boolean option. `given` holds lower-case names."""
    text = given.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"Option '{name}' must be true or false, got '{text}'.")
    return text.lower() == "true"


def positive(given: Mapping[str, str], name: str, most: int = INT_MAX) -> int | None:
    """An integer from 1 to `most`, None if the option is not set. `given` holds lower-case names.
    """
    text = given.get(name.lower())
    if text is None:
        return None
    value = long_number(text)
    if value is None or not 0 < value <= most:
        raise ValueError(f"Option '{name}' must be a positive number"
                         f"{'' if value is None or value <= most else f' of at most {most}'}, "
                         f"got '{text}'.")
    return value


def long_number(text: str) -> int | None:
    """Parses a number as Java's Long.parseLong; None where that fails."""
    if not re.fullmatch(r"[+-]?[0-9]{1,40}", text):
        return None
    value = int(text)
    return value if -LONG_MAX - 1 <= value <= LONG_MAX else None


def java_pattern(text: str, option: str) -> re.Pattern[str]:
    """Compiles a Java regular expression for topic names, which are ASCII.

    Translates syntax that differs in Python (`(?<name>...)`, `\\Q...\\E`, `\\z`) and refuses syntax
    that has another meaning there.
    """
    translated = re.sub(r"\\Q(.*?)(?:\\E|$)", lambda quoted: re.escape(quoted[1]), text,
                        flags=re.DOTALL)
    translated = re.sub(r"(?<!\\)((?:\\\\)*)\(\?<(?![=!])", r"\1(?P<", translated)
    translated = re.sub(r"(?<!\\)((?:\\\\)*)\\[zZ]", r"\1\\Z", translated)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # [a&&b], [[a]b]: nested sets
            return re.compile(translated, re.ASCII)
    except (re.error, FutureWarning, RecursionError, OverflowError) as error:
        raise ValueError(f"Option '{option}': invalid regular expression {text!r}: "
                         f"{error}") from None


def storage_options(given: Mapping[str, str]) -> StorageOptions:
    """The options of the object store (names in lower case): `aws_*`, `azure_*`, `google_*`, and
    those after the prefix `storage.`."""
    return StorageOptions({name.removeprefix("storage."): text for name, text in given.items()
                           if name.startswith(STORE_PREFIXES)})
