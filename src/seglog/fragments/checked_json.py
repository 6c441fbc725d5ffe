"""Small JSON files with a checksum: the journal of a commit, the record of micro-batches, and the
files of jobs.

A file is one object. Its last member, `crc32c`, is the CRC-32C of the object without it, as
`json.dumps` writes it. A file without it is accepted, because earlier releases wrote none. A member
with any other name is refused, because damage could have renamed the checksum.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from seglog._native.crc32c import crc32c
from seglog.arguments import shown
from seglog.errors import KafkaStorageError
from seglog.storage.textfile import read_beginning

__all__ = ["CheckedJson"]

_CHECKSUM: Final = "crc32c"


@dataclass(frozen=True, slots=True)
class CheckedJson:
    """A kind of file: its name and a user's way out for messages, its members with their types,
    and its largest size. A member `version` must be `version`."""

    title: str
    advice: str
    members: Mapping[str, type]
    bytes_max: int
    version: int = 0

    def encode(self, path: str, members: Mapping[str, Any]) -> bytes:
        """The content of the file `path`. Raises OSError if it would be too large to be read."""
        assert members.keys() == self.members.keys()
        text = json.dumps(members)
        content = f'{text[:-1]}, "{_CHECKSUM}": {crc32c(text.encode())}}}'.encode()
        if len(content) > self.bytes_max:
            raise OSError(errno.EFBIG, f"this {self.title} would have {len(content)} bytes, more "
                          f"than the {self.bytes_max} that are read", path)
        return content

    def read(self, path: str) -> dict[str, Any] | None:
        """The members, None if there is no file. Raises KafkaStorageError, also for contents that
        `encode` does not write."""
        beginning = read_beginning(path, self.bytes_max)
        if beginning is None:
            return None
        content, size = beginning
        if size > self.bytes_max:
            raise self.damaged(path, f"{size} bytes, at most {self.bytes_max} are read",
                               expected=self.bytes_max, found=size)
        try:
            return self._checked(path, json.loads(content))
        except (ValueError, RecursionError) as error:
            raise self.damaged(path, str(error), getattr(error, "pos", 0), "JSON") from None

    def _checked(self, path: str, found: Any) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise self.damaged(path, f"no object: {shown(found)}", 0, "an object", found)
        if _CHECKSUM in found:
            told = found.pop(_CHECKSUM)
            computed = crc32c(json.dumps(found).encode())
            if type(told) is not int or told != computed:
                raise self.damaged(path, f"its CRC-32C is {computed}, but it says {shown(told)}",
                                   0, told, computed)
        self._check_members(path, found)
        return found

    def _check_members(self, path: str, found: dict[str, Any]) -> None:
        if found.keys() != self.members.keys():
            raise self.damaged(path, f"its members are {shown(sorted(found))}, not "
                               f"{sorted(self.members)}", 0, sorted(self.members), sorted(found))
        for name, kind in self.members.items():
            if type(found[name]) is not kind:
                raise self.damaged(path, f"{name} is {shown(found[name])}", 0, kind.__name__,
                                   found[name])
        if found.get("version", self.version) != self.version:
            raise self.damaged(path, f"version {shown(found['version'])}, not {self.version}", 0,
                               self.version, found["version"])

    def damaged(self, path: str, text: str, position: int = 0, expected: object = None,
                found: object = None) -> KafkaStorageError:
        """The error for contents that `encode` does not write."""
        return KafkaStorageError(
            errno.EINVAL, f"this {self.title} cannot be read ({text}); {self.advice}", path,
            position=position, expected=expected, found=found)
