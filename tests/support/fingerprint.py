"""Whether anything below a directory was touched."""

from __future__ import annotations

import hashlib
from pathlib import Path

#: Larger files are sparse, and known by their times and sizes.
_CONTENT_BYTES_MAX = 1 << 24


def fingerprint(root: Path) -> dict[str, tuple[object, ...]]:
    """A directory and everything below it: what each is, whose, its size, times and content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        has_content = path.is_file() and path.stat().st_size < _CONTENT_BYTES_MAX
        found[str(path.relative_to(root))] = (
            status.st_ino, status.st_mode, status.st_nlink, status.st_uid, status.st_gid,
            status.st_size, status.st_mtime_ns, status.st_ctime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if has_content else None)
    return found
