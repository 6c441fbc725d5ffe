"""A durable key-value store: a compacted log keeps the last value of each key.

    python examples/key_value.py [DIRECTORY]

A broker can take the directory over, as a compacted topic.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import seglog

COMPACT = {"cleanup.policy": "compact"}


def main(directory: Path) -> None:
    """Puts, gets and deletes."""
    with seglog.open(directory / "users-0", config=COMPACT, durability="append") as store:
        store.append(b"ada@example.org", key=b"ada")    # put
        store.append(b"bob@example.org", key=b"bob")
        store.append(b"ada@example.com", key=b"ada")
        store.append(None, key=b"bob")                  # delete
        assert store.latest(b"ada") == b"ada@example.com" and store.latest(b"bob") is None
        store.compact()                                 # also automatic when half of it is old
        print(f"{store.keys()} after {store.end_offset} records, "
              f"{len(list(store.records()))} of them kept")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
