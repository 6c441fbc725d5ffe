"""Packages for executors that lack them: packed from this environment, unpacked by Spark."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from seglog import __version__

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["pack", "ship_packages"]

#: What no executor imports, and what half of some packages is.
_LEFT_OUT = {"tests", "include", "__pycache__"}


def ship_packages(context: SparkContext, names: Iterable[str]) -> None:
    """Has every executor unpack packages into its directory and search them first.

    Workers that start from now on find them: PYTHONPATH is part of what tells Spark that a running
    worker will not do.
    """
    name = f"seglog-{__version__}-packages"
    path = os.path.join(tempfile.mkdtemp(prefix="seglog-spark-"), f"{name}.zip")
    pack(names, path)
    context.addArchive(f"{path}#{name}")
    # Relative to the directory in which an executor runs, which is where archives are unpacked.
    before = context.environment.get("PYTHONPATH", "")
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (name, before)))


def pack(names: Iterable[str], path: str) -> None:
    """Writes a zip of packages of this environment, native libraries included.

    zipimport cannot load a native library, so it must be unpacked before it is on `sys.path`.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for package in names:
            for file, inside in _files(package):
                archive.write(file, inside)


def _files(package: str) -> Iterator[tuple[Path, str]]:
    """Every file of a package, and its name below a directory of `sys.path`."""
    roots = (package, f"pyspark_{package}") if package == "seglog" else (package,)
    for root in roots:
        spec = find_spec(root)
        assert spec is not None and spec.origin is not None, f"the driver has {root}"
        folder = Path(spec.origin).parent
        yield from _tree(folder)
        # Where wheels keep the libraries that they bring along.
        yield from _tree(folder.with_name(f"{root}.libs"))


def _tree(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder.parent)
        if path.is_file() and not _LEFT_OUT & set(inside.parts):
            yield path, str(inside)
