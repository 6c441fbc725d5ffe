"""Names of objects with fields in braces: `{topic}-{partition}/{start_offset}.{kind}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from seglog.errors import IllegalArgumentError
from seglog.objects.store import ObjectVersion
from seglog.tiered.remote_tree import RemoteTree

__all__ = ["NamePattern"]

_FIELDS: Final = {
    "topic": r"[a-zA-Z0-9._-]+?",
    "partition": r"\d{1,10}",
    "topic_id": r"[a-zA-Z0-9_-]{22}",
    "start_offset": r"\d{1,20}",
    "segment_id": r"[a-zA-Z0-9_-]{22}",
    "kind": r"[a-z_-]+",
    "any": r"[^/]*",
}
_FIELD: Final = re.compile(r"\{(\w+)\}")
_NEEDED: Final = frozenset(("topic", "partition", "start_offset", "kind"))


class NamePattern:
    """Keys of objects, part by part between slashes.

    Fields: topic, partition, topic_id, start_offset, segment_id, kind, and any, which matches any
    text. `{start_offset}` and `{kind}` must be in the last part, `{topic}` and `{partition}` before
    it. Raises IllegalArgumentError for an incomplete pattern.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        names = _FIELD.findall(text)
        unknown = sorted(set(names) - _FIELDS.keys())
        if unknown:
            raise IllegalArgumentError(f"pattern {text!r}: {{{unknown[0]}}} is not a field; the "
                                       f"fields are {', '.join(_FIELDS)}")
        missing = sorted(_NEEDED - set(names))
        if missing:
            raise IllegalArgumentError(f"pattern {text!r}: {{{missing[0]}}} is missing")
        *directories, file = text.strip("/").split("/")
        if not {"start_offset", "kind"} <= set(_FIELD.findall(file)) or not directories \
                or {"topic", "partition"} & set(_FIELD.findall(file)):
            raise IllegalArgumentError(
                f"pattern {text!r}: the last part must have {{start_offset}} and {{kind}}, the "
                "parts before it {topic} and {partition}")
        self._parent = "/".join(directories)
        self._directories = [_compiled(part) for part in directories]
        self._file = _compiled(file)

    def __reduce__(self) -> tuple[type[NamePattern], tuple[str]]:
        """Pickled by its text."""
        return NamePattern, (self.text,)

    def directory(self, fields: Mapping[str, str]) -> str | None:
        """The key of the directory that has these fields; None if they do not tell it."""
        if not set(_FIELD.findall(self._parent)) <= fields.keys():
            return None
        return _FIELD.sub(lambda field: fields[field[1]], self._parent)

    def directories(self, tree: RemoteTree) -> Iterator[tuple[str, Mapping[str, str]]]:
        """The keys that may hold segments, and the fields of each, with one list request per parent
        directory."""
        yield from self._below(tree, "", 0, {})

    def _below(self, tree: RemoteTree, key: str, depth: int, fields: Mapping[str, str]
               ) -> Iterator[tuple[str, Mapping[str, str]]]:
        if depth == len(self._directories):
            yield key, fields
            return
        for name in sorted(tree.list(key)[1]):
            found = _match(self._directories[depth], name, fields)
            if found is not None:
                yield from self._below(tree, f"{key}/{name}".strip("/"), depth + 1, found)

    def files(self, tree: RemoteTree, directory: str, fields: Mapping[str, str]
              ) -> Iterator[tuple[Mapping[str, str], str, ObjectVersion]]:
        """The fields, key and version of every object of a directory with a matching name."""
        for name, version in sorted(tree.list(directory)[0].items()):
            found = _match(self._file, name, fields)
            if found is not None:
                yield found, f"{directory}/{name}".strip("/"), version


def _compiled(part: str) -> re.Pattern[str]:
    seen: set[str] = set()

    def expression(name: str) -> str:
        if name in seen and name != "any":
            return f"(?P={name})"
        seen.add(name)
        return _FIELDS[name] if name == "any" else f"(?P<{name}>{_FIELDS[name]})"

    pieces = _FIELD.split(part)
    return re.compile("".join(expression(piece) if number % 2 else re.escape(piece)
                              for number, piece in enumerate(pieces)), re.ASCII)


def _match(pattern: re.Pattern[str], name: str, known: Mapping[str, str]
           ) -> Mapping[str, str] | None:
    """The fields of a name and those before it; None if they contradict each other."""
    match = pattern.fullmatch(name)
    if match is None:
        return None
    found = match.groupdict()
    if any(known.get(field, value) != value for field, value in found.items()):
        return None
    return {**known, **found}
