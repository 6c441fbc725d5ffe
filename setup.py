"""Extensions only; everything else is in pyproject.toml.

csrc is built once as a static library (it has no mutable globals) and linked into every extension.
"""

import os
from glob import glob

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

STEMS = ("crc32c", "status")  # one .pyx per stem in src/seglog/_native
C_SOURCES = ("crc32c", "crc32c_portable", "crc32c_x86", "status")  # files of csrc/src

cflags = ["-std=c11", "-O3", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden"]
if os.environ.get("SEGLOG_WERROR"):
    cflags.append("-Werror")

headers = glob("csrc/include/seglog/*.h") + glob("csrc/src/*.h")


class BuildWithLibrary(build_ext):
    """`build_ext` alone does not build the library that the extensions link."""

    def run(self):
        self.run_command("build_clib")
        super().run()


library = ("seglog_core", {
    "obj_deps": {"": headers},
    "sources": [f"csrc/src/{name}.c" for name in C_SOURCES],
    "include_dirs": ["csrc/include"],
    "cflags": cflags,
})
extensions = [
    Extension(f"seglog._native.{stem}", [f"src/seglog/_native/{stem}.pyx"],
              include_dirs=["csrc/include", numpy.get_include()],
              depends=[*headers, *library[1]["sources"]],
              define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")])
    for stem in STEMS
]

setup(
    cmdclass={"build_ext": BuildWithLibrary},
    libraries=[library] if C_SOURCES else [],
    ext_modules=cythonize(extensions, compiler_directives={
        "language_level": 3, "boundscheck": False, "wraparound": False, "freethreading_compatible": True,
    }) if extensions else [],
)
