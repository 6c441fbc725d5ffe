"""An archive of the classes that a JVM loads (JEP 350): with it, Spark and a broker of a test start
in half of the processor's time.

A JVM of another Java, or with other jars, does without it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.locks import locked

#: What a JVM says about an archive would be among a program's output.
_QUIET = ("-Xlog:disable", "-XX:+IgnoreUnrecognizedVMOptions")


def path_of(folder: Path, name: str, java: str, jars: str) -> Path:
    """Where the archive for a `java` command and some jars is, or would be."""
    said = subprocess.run([java, "-version"], capture_output=True, check=False).stderr
    digest = hashlib.sha256(said + jars.encode()).hexdigest()[:16]
    return folder / "archives" / f"{name}-{digest}.jsa"


def using(archive: Path | None) -> list[str]:
    """A JVM's options for an archive; none if there is no archive."""
    if archive is None or not archive.is_file():
        return []
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET]


def make(archive: Path, run: Callable[[Sequence[str]], object]) -> None:
    """Makes an archive once of what `run` loads, which starts a JVM with the options that it is
    given. Leaves it out if that fails: it is there for speed alone."""
    if archive.is_file():
        return
    try:
        with locked(archive.parent):
            fresh = archive.with_suffix(f".{os.getpid()}")
            if not archive.is_file():
                run([f"-XX:ArchiveClassesAtExit={fresh}", *_QUIET])
                os.replace(fresh, archive)
    except (OSError, RuntimeError, subprocess.SubprocessError):
        pass
