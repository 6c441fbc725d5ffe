"""A log embedded in a program: appends events, reads them back, and follows them in a thread.

    python examples/embedded.py [DIRECTORY]

The directory is then a Kafka data directory that a broker can take over.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

import seglog


def follow(log: seglog.EmbeddedLog, end_offset: int, seen: list[bytes | None]) -> None:
    """Another part of the program, which receives each event as it is appended."""
    with log.follow(0, end_offset=end_offset) as events:
        for event in events.records():
            seen.append(event.value)


def main(directory: Path) -> None:
    """Writes a few events, closes the log, and opens it again."""
    seen: list[bytes | None] = []
    with seglog.open(directory / "events-0", durability="append") as log:
        first = log.log_end_offset
        follower = threading.Thread(target=follow, args=(log, first + 4, seen))
        follower.start()
        log.append(b"signed in", key=b"ada")
        log.append_many([(b"ada", b"bought a book"), (b"bob", b"signed in")])
        log.append_columns({"key": [b"bob"], "value": [b"signed out"]})
        follower.join()
        print(f"appended {first} to {log.log_end_offset - 1}, followed {len(seen)} events")

    with seglog.open(directory / "events-0") as log:
        for batch in log.to_arrow(first, columns=["offset", "key", "value"]):
            rows = batch.to_pylists()
            for offset, key, value in zip(rows["offset"], rows["key"], rows["value"], strict=True):
                print(offset, key.decode(), value.decode())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
