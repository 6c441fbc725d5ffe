"""Extensions only; everything else is in pyproject.toml.

csrc is built once as a static library (it has no mutable globals) and linked into every extension.
"""

import os

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

STEMS = ()  # one .pyx per stem in src/seglog/_native
C_SOURCES = ()  # files of csrc/src

cflags = ["-std=c11", "-O3", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden"]
if os.environ.get("SEGLOG_WERROR"):
    cflags.append("-Werror")

library = ("seglog_core", {
    "sources": [f"csrc/src/{name}.c" for name in C_SOURCES],
    "include_dirs": ["csrc/include"],
    "cflags": cflags,
})
extensions = [
    Extension(f"seglog._native.{stem}", [f"src/seglog/_native/{stem}.pyx"],
              include_dirs=["csrc/include", numpy.get_include()],
              define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")])
    for stem in STEMS
]

setup(
    libraries=[library] if C_SOURCES else [],
    ext_modules=cythonize(extensions, compiler_directives={
        "language_level": 3, "boundscheck": False, "wraparound": False, "freethreading_compatible": True,
    }) if extensions else [],
)
