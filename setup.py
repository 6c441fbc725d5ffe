"""Extensions only; everything else is in pyproject.toml.

csrc is built once as a static library and linked into every extension. That is safe because it has
no mutable globals (tests/test_house_rules.py looks at its symbols).

Switches, from the environment:
    SEGLOG_WERROR=1    warnings are errors (in CI alone: a newer compiler must not stop an install)
    SEGLOG_DEBUG=1     no optimisation, C asserts and Cython's bounds checks on
    SEGLOG_SANITIZE=1  AddressSanitizer and UndefinedBehaviorSanitizer (`make sanitize`)
"""

import os
from pathlib import Path

import numpy
from Cython.Build import cythonize
from Cython.Compiler import Options
from setuptools import Extension, setup
from setuptools.command.build_clib import build_clib
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer

# One name per concept: src/seglog/_native/<stem>.pyx, and csrc/src/<name>.c.
STEMS = [
    "append",
    "batch",
    "checksums",
    "clean",
    "clean_keys",
    "clean_load",
    "columns",
    "crc32c",
    "dump",
    "encode",
    "encode_columns",
    "encode_sources",
    "fetch",
    "file",
    "index",
    "log_lock",
    "murmur2",
    "producers",
    "rebuild",
    "records",
    "remote_segments",
    "scan",
    "snappy",
    "status",
    "validate",
    "window",
]
C_SOURCES = [
    "append",
    "append_leader",
    "arrow",
    "batch",
    "batch_find",
    "checksums",
    "clean",
    "clean_batches",
    "clean_keys",
    "clean_load",
    "clean_load_files",
    "clean_load_producers",
    "clean_load_recovered",
    "columns",
    "columns_layout",
    "columns_select",
    "crc32_x86",
    "crc32c",
    "crc32c_armv8",
    "crc32c_portable",
    "crc32c_x86",
    "dump",
    "encode",
    "encode_sources",
    "encode_columns",
    "fetch",
    "file",
    "framing",
    "index",
    "index_file",
    "index_search",
    "lz4",
    "md5",
    "md5_x86",
    "message",
    "murmur2",
    "offset_map",
    "producers",
    "producers_append",
    "producers_snapshot",
    "producers_state",
    "rebuild",
    "records",
    "records_batch",
    "records_explain",
    "records_legacy",
    "scan",
    "scan_check",
    "scan_ends",
    "snappy",
    "status",
    "utf8",
    "validate",
    "validate_records",
    "walk",
    "window",
]

HEADERS = sorted(str(path) for path in Path("csrc").rglob("*.h"))


def switch(name):
    """Is the environment variable set to anything but nothing and 0?"""
    return os.environ.get(name, "0") not in ("", "0")


WERROR, DEBUG, SANITIZE = map(switch, ("SEGLOG_WERROR", "SEGLOG_DEBUG", "SEGLOG_SANITIZE"))

COMMON = ["-std=c11", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
LINK = []
if WERROR:
    COMMON.append("-Werror")
    Options.warning_errors = True
if SANITIZE:
    # What a variable holds before it is set shows: with what the stack happens to hold it shows on
    # some days.
    COMMON += ["-O1", "-g", "-UNDEBUG", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
               "-fno-sanitize-recover=undefined", "-ftrivial-auto-var-init=pattern"]
    LINK += ["-fsanitize=address,undefined"]
elif DEBUG:
    COMMON += ["-O0", "-g", "-UNDEBUG"]
else:
    COMMON += ["-O3", "-g0", "-DNDEBUG"]

# Our own C is held to more than what Cython writes can pass. clang counts sign conversions to
# -Wconversion and gcc does not; both are told not to.
CORE = [*COMMON, "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wvla", "-Wundef",
        "-Wold-style-definition", "-Wpointer-arith", "-Wcast-qual", "-Wwrite-strings",
        "-Wconversion", "-Wno-sign-conversion"]
CYTHON = [*COMMON, "-Wno-unused-function", "-Wno-unused-parameter",
          "-Wno-missing-field-initializers"]
if SANITIZE:
    CYTHON.append("-O0")  # the optimiser takes five times as long over what the sanitizers add

# Cython directives are set here once, never in a source file.
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG or SANITIZE,
    "wraparound": False,
    "freethreading_compatible": True,
    # No methods or names that nobody wrote and no stub declares.
    "auto_pickle": False,
    "autotestdict": False,
}


def flags_stamp(build_temp):
    """A file that changes with compiler and flags, so that what others built is built again."""
    stamp = Path(build_temp, "flags.txt")
    wanted = "\n".join([os.environ.get("CC", ""), *CORE, *CYTHON, *LINK, repr(DIRECTIVES),
                        numpy.__version__])
    if not stamp.exists() or stamp.read_text() != wanted:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(wanted)
    return str(stamp)


class BuildCore(build_clib):
    """The static library; an edited header or a changed flag compiles it again."""

    def build_libraries(self, libraries):
        for _, info in libraries:
            info["obj_deps"] = {"": [*HEADERS, flags_stamp(self.build_temp)]}
        super().build_libraries(libraries)


class BuildExtensions(build_ext):
    """The extensions, after the library that they link; generated C stays out of `src`."""

    def finalize_options(self):
        super().finalize_options()
        if self.parallel is None:
            self.parallel = os.cpu_count()

    def run(self):
        self.run_command("build_clib")
        core = self.get_finalized_command("build_clib")
        archives = [core.compiler.library_filename(name, output_dir=core.build_clib)
                    for name in core.get_library_names()]
        stamp, folder = flags_stamp(self.build_temp), Path(self.build_temp, "cython")
        # Cython is no friend of threads: all of it comes before the compilers, side by side.
        for extension in self.extensions:
            written = folder / Path(extension.sources[0]).with_suffix(".c")
            stale = self.force or not written.exists() or newer(stamp, written)
            generated, = cythonize([extension], build_dir=str(folder), quiet=True, force=stale,
                                   compiler_directives=DIRECTIVES)
            extension.sources = generated.sources
            extension.depends = [*HEADERS, *archives, stamp]
        super().run()


setup(
    libraries=[("seglog_core", {
        "sources": [f"csrc/src/{name}.c" for name in C_SOURCES],
        "include_dirs": ["csrc/include"],
        "cflags": CORE,
    })],
    ext_modules=[
        Extension(f"seglog._native.{stem}", [f"src/seglog/_native/{stem}.pyx"],
                  include_dirs=["csrc/include", numpy.get_include()],
                  define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
                  extra_compile_args=CYTHON, extra_link_args=LINK)
        for stem in STEMS
    ],
    cmdclass={"build_clib": BuildCore, "build_ext": BuildExtensions},
)
