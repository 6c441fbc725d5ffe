# Two commands for everybody: `make demo` and `make test`. Each makes its own environment out of
# Python 3.11+, a C compiler and (for Spark) Java 17; a second run does only what changed.
#   PYTHON=/path/to/python3   another Python        ARGS="..."   more arguments for the command

.DELETE_ON_ERROR:
# pip is the only one at work in an environment.
.NOTPARALLEL:
.PHONY: demo test test-all test-oldest-spark bench wheel lint format typecheck fuzz stress differential sequences \
        sanitize portability clean

# What runs is what was installed, whatever the shell around us exports.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

SOURCES := $(shell find src csrc -name '*.py' -o -name '*.py[xi]' -o -name '*.pxd' \
                   -o -name '*.[ch]') src/seglog/py.typed setup.py pyproject.toml MANIFEST.in README.md LICENSE
PIP := -m pip --disable-pip-version-check --quiet --no-input

demo: .venv/ready
	@.ci/need java || true
	@.venv/bin/seglog demo $(ARGS)
	@if .ci/need java 2>/dev/null; then .venv/bin/python examples/pipeline.py; fi

# A file is one process's, for what its tests share (a JVM, a broker, Spark), and files start in the
# order of their names, so that the short ones of tests/unit come last and fill the processes.
PYTEST_WORKERS := -n auto --dist loadfile --no-loadscope-reorder

# Without the judges, which take long (tests/support/effort.py), and in memory where there is enough:
# most of the time of the tests on a disk is its syncs. ALL=1 runs the judges too, and crashes and
# faults first, on the disk; tests that ARGS names are all on the disk then.
PYTEST = SEGLOG_INSTALLED=1 SEGLOG_QUICK=$(if $(ALL),,1) .venv-test/bin/pytest $(PYTEST_WORKERS)
NAMED = $(findstring tests/,$(ARGS))
ON_DISK := tests/crash tests/faults
test: .venv-test/ready
	@.ci/need java || true
	$(if $(ALL),TMPDIR=$${TMPDIR:-/tmp} $(PYTEST) $(if $(NAMED),,$(ON_DISK)) $(ARGS))
	$(if $(and $(ALL),$(NAMED)),,TMPDIR=$$(.ci/need scratch) $(PYTEST) $(if $(ALL),$(ON_DISK:%=--ignore=%)) $(ARGS))

test-all: ALL := 1
test-all: test

# What touches PySpark's interfaces, on the oldest one that is supported; `make test` has the newest.
OLDEST_SPARK_TESTS := $(addprefix tests/spark/test_,read.py sink.py stream.py \
    stream_reader.py functions.py counts.py)
test-oldest-spark: .venv-spark/ready
	@.ci/need java || true
	# PySpark 4.0 leaves sockets to the garbage collector.
	SEGLOG_INSTALLED=1 SEGLOG_QUICK=1 .venv-spark/bin/pytest -W ignore::ResourceWarning \
	    -W ignore::pytest.PytestUnraisableExceptionWarning $(OLDEST_SPARK_TESTS) $(ARGS)

bench: .venv-bench/ready
	.venv-bench/bin/python -m bench $(ARGS)

# The rules are in pyproject.toml, .clang-format and .clang-tidy; tests/test_house_rules.py has those
# of this house.
C_FILES = $(shell find csrc tests/c tests/fuzz -name '*.[ch]')
lint: .venv-test/ready
	.venv-test/bin/ruff check
	.venv-test/bin/clang-format --dry-run --Werror $(C_FILES)
	@mkdir -p build
	printf '%s\n' csrc/src/*.c | xargs -P "$$(getconf _NPROCESSORS_ONLN)" -n 6 sh -c \
	    '.venv-test/bin/clang-tidy --quiet "$$@" -- -std=c11 -Icsrc/include' tidy 2> build/tidy.log \
	    || { tail -n 20 build/tidy.log; exit 1; }
	.venv-test/bin/python tools/make_capi.py --check

format: .venv-test/ready
	.venv-test/bin/clang-format -i $(C_FILES)

# mypy over the package as it was installed, so that py.typed and the stubs are what users get.
typecheck: .venv-test/ready
	.venv-test/bin/mypy
	.venv-test/bin/mypy tests/typing
	.venv-test/bin/mypy bench
	.venv-test/bin/stubtest seglog._native --mypy-config-file pyproject.toml \
	    --allowlist tests/typing/stubtest_allowlist.txt --ignore-unused-allowlist \
	    --ignore-disjoint-bases

# Longer than the few seconds that `make test` gives each target of the C core.
fuzz: .venv-test/ready
	SEGLOG_FUZZ_SECONDS=$(or $(FUZZ_SECONDS),60) .venv-test/bin/pytest tests/fuzz $(ARGS)

# Threads with mixes of operations against each kind of log; SEGLOG_STRESS_SEED draws a mix again.
stress: .venv-test/ready
	SEGLOG_STRESS_SECONDS=$(or $(STRESS_SECONDS),60) .venv-test/bin/pytest tests/stress $(ARGS)

# Any cases of the comparison with Kafka's own loader; a difference is shown with how to make it.
differential: .venv-test/ready
	@.ci/need java
	.venv-test/bin/python -m tests.differential --seed $(or $(SEED),1) --cases $(or $(CASES),1000) \
	    $(ARGS)

# Any sequences of operations through Kafka's UnifiedLog and through seglog's, made short.
sequences: .venv-test/ready
	@.ci/need java
	.venv-test/bin/python -m tests.sequences --seed $(or $(SEED),1) --cases $(or $(CASES),1000) \
	    $(ARGS)

# The tests of the extensions once more, built with AddressSanitizer and UndefinedBehaviorSanitizer.
# Python itself is not, so the runtime is preloaded, Python's memory comes from malloc where the
# sanitizer sees it, and what the interpreter leaks at its end is not looked for. GCC 12 or newer on
# Linux.
sanitize: .venv-sanitize/ready
	SEGLOG_INSTALLED=1 LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" PYTHONMALLOC=malloc \
	    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
	    .venv-sanitize/bin/pytest -q -rsfE -m 'not kafka and not spark and not slow' \
	    $(or $(ARGS),tests/native)

# The C tests on aarch64 and on big-endian s390x, emulated, and the core tests on the Python of Debian
# unstable; as root on Debian it installs what they need, elsewhere it says what is left out.
portability: .venv-test/ready
	@.ci/need cross || true
	SEGLOG_INSTALLED=1 .venv-test/bin/pytest -rs tests/c/test_portability.py
	.ci/unstable build/unstable $(or $(ARGS),tests/native tests/unit tests/golden)

wheel: build/wheel
	@ls dist/*.tar.gz dist/*.whl

build/sdist: $(SOURCES) | .venv-build/ready
	@rm -rf dist && mkdir -p build
	.venv-build/bin/python -m build --sdist --outdir dist . > build/sdist.log 2>&1 || { \
	    tail -n 40 build/sdist.log; echo "seglog: no sdist (build/sdist.log)." >&2; exit 1; }
	@touch $@

# Out of the sdist: a tree may hold more than a clone does.
build/wheel: build/sdist
	.venv-build/bin/python $(PIP) wheel --no-deps -w dist dist/*.tar.gz > build/wheel.log 2>&1 || { \
	    tail -n 40 build/wheel.log; echo "seglog: the build failed (build/wheel.log)." >&2; exit 1; }
	@touch $@

.venv-build/ready: .ci/need
	@python=$$(.ci/need python) && rm -rf .venv-build && "$$python" -m venv .venv-build
	.venv-build/bin/python $(PIP) install 'build>=1.2'
	@touch $@

# One environment per purpose, each with the wheel and some of its extras.
.venv/ready: EXTRAS := spark
.venv-test/ready: EXTRAS := test,interop,spark,connect,s3,hdfs,kafka,bench,dev
.venv-bench/ready: EXTRAS := bench,spark,s3
.venv-spark/ready: EXTRAS := test,spark
.venv-spark/ready: PINNED := 'pyspark==4.0.*' 'pandas<3'

.venv/ready .venv-test/ready .venv-bench/ready .venv-spark/ready: build/wheel
	@python=$$(.ci/need python) && { [ -d $(@D) ] || "$$python" -m venv $(@D); }
	$(@D)/bin/python $(PIP) install --force-reinstall --no-deps dist/*.whl
	$(@D)/bin/python $(PIP) install "seglog[$(EXTRAS)] @ file://$$(ls "$(CURDIR)"/dist/*.whl)" \
	    $(PINNED)
	@touch $@

.venv-sanitize/ready: build/sdist
	@python=$$(.ci/need python) && { [ -d $(@D) ] || "$$python" -m venv $(@D); }
	rm -rf build/sanitize
	CC=gcc SEGLOG_SANITIZE=1 $(@D)/bin/python $(PIP) wheel --no-deps -w build/sanitize dist/*.tar.gz
	$(@D)/bin/python $(PIP) install --force-reinstall --no-deps build/sanitize/*.whl
	$(@D)/bin/python $(PIP) install "seglog[test,export] @ file://$$(ls "$(CURDIR)"/build/sanitize/*.whl)"
	@touch $@

clean:
	rm -rf build dist .venv .venv-* .mypy_cache .pytest_cache .hypothesis .benchmarks src/*.egg-info
	find src -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
