"""Ships missing packages to executors: packed from this environment, unpacked by Spark."""

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

#: Directories that executors never import, up to half of some packages.
_LEFT_OUT = {"tests", "include", "__pycache__"}


def ship_packages(context: SparkContext, names: Iterable[str]) -> None:
    """Makes every executor unpack packages into its directory and search them first.

    Only new workers find them. Spark does not reuse a running worker with a different PYTHONPATH.
    """
    name = f"seglog-{__version__}-packages"
    path = os.path.join(tempfile.mkdtemp(prefix="seglog-spark-"), f"{name}.zip")
    pack(names, path)
    context.addArchive(f"{path}#{name}")
    # Relative to an executor's working directory, where Spark unpacks archives.
    before = context.environment.get("PYTHONPATH", "")
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (name, before)))


def pack(names: Iterable[str], path: str) -> None:
    """Writes a zip of packages of this environment, including native libraries.

    It must be unpacked before use, because zipimport cannot load native libraries.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for package in names:
            for file, inside in _files(package):
                archive.write(file, inside)


def _files(package: str) -> Iterator[tuple[Path, str]]:
    """Every file of a package, and its name relative to a directory of `sys.path`."""
    roots = (package, f"pyspark_{package}") if package == "seglog" else (package,)
    for root in roots:
        spec = find_spec(root)
        assert spec is not None and spec.origin is not None, f"the driver has {root}"
        folder = Path(spec.origin).parent
        yield from _tree(folder)
        # Where wheels keep their bundled libraries.
        yield from _tree(folder.with_name(f"{root}.libs"))


def _tree(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder.parent)
        if path.is_file() and not _LEFT_OUT & set(inside.parts):
            yield path, str(inside)
