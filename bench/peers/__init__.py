"""Other readers and writers of Kafka's batches. A missing one is skipped with the reason."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bench.harness import Timed

HERE = Path(__file__).resolve().parent


def aiokafka_reader() -> type | None:
    """aiokafka's MemoryRecords, if its Cython extension is active."""
    return _class("aiokafka.record._crecords", "MemoryRecords")


def kafka_python_reader() -> type | None:
    """kafka-python's MemoryRecords."""
    return _class("kafka.record.memory_records", "MemoryRecords")


def aiokafka_builder() -> type | None:
    """aiokafka's batch builder, if its Cython extension is active."""
    return _class("aiokafka.record._crecords", "DefaultRecordBatchBuilder")


def kafka_python_builder() -> type | None:
    """kafka-python's batch builder."""
    return _class("kafka.record.default_records", "DefaultRecordBatchBuilder")


def _class(module: str, name: str) -> type | None:
    try:
        return getattr(import_module(module), name)  # type: ignore[no-any-return]
    except ImportError:
        return None


def build(builder: type, timestamps: list[int], values: list[bytes],
          batch_bytes: int) -> list[bytes]:
    """Builds uncompressed batches of at most `batch_bytes`, each starting at offset 0."""
    def batch() -> Any:
        return builder(magic=2, compression_type=0, is_transactional=0, producer_id=-1,
                       producer_epoch=-1, base_sequence=-1, batch_size=batch_bytes)

    built, current, offset = [], batch(), 0
    for timestamp, value in zip(timestamps, values, strict=True):
        if current.append(offset, timestamp, None, value, []) is None:
            built.append(bytes(current.build()))
            current, offset = batch(), 0
            current.append(0, timestamp, None, value, [])
        offset += 1
    built.append(bytes(current.build()))
    return built


def count(reader: type, data: bytes) -> tuple[int, int]:
    """(records, last offset); checks every CRC and makes an object of every record."""
    records, number, last = reader(data), 0, -1
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            number, last = number + 1, record.offset
    return number, last


def values_sha256(reader: type, data: bytes) -> str:
    """The SHA-256 of all values, concatenated."""
    records, digest = reader(data), hashlib.sha256()
    while (batch := records.next_batch()) is not None:
        for record in batch:
            digest.update(record.value)
    return digest.hexdigest()


# Two features that krabka-log 1.0.8 expects to be stable, but Rust 1.95 does not.
_RUST = {"RUSTC_BOOTSTRAP": "1", "RUSTFLAGS":
         "-Zcrate-attr=feature(proc_macro_hygiene,result_option_map_or_default)"}


@cache
def krabka_program() -> Path:
    """The Rust peer, built with cargo in the cache directory. Skips with the reason if it cannot be
    built."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is missing: the Rust peer krabka-log is left out")
    cache_dir = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seglog-bench"
    done = subprocess.run(
        [cargo, "build", "--release", "--locked", "--quiet", "--ignore-rust-version",
         "--manifest-path", HERE / "krabka" / "Cargo.toml", "--target-dir", cache_dir / "krabka"],
        capture_output=True, text=True, check=False, env={**os.environ, **_RUST})
    if done.returncode:
        cause = [line for line in done.stderr.splitlines() if line.startswith("error")]
        pytest.skip(f"the Rust peer krabka-log does not build: {(cause or ['no reason'])[0]}")
    return cache_dir / "krabka" / "release" / "krabka-peer"


def _ask_krabka(*arguments: str | Path) -> dict[str, float]:
    told: dict[str, float] = json.loads(subprocess.run(
        [krabka_program(), *arguments], capture_output=True, text=True, check=True).stdout)
    return told


def krabka() -> Callable[[Path], Timed]:
    """A function that decodes a log with krabka: (records, bytes of values). It times itself."""
    krabka_program()

    def run(path: Path) -> Timed:
        told = _ask_krabka("decode", path)
        return Timed(told["seconds"], (told["records"], told["value_bytes"]))

    return run


def krabka_load(threads: int = 1, rounds: int = 5) -> Callable[[Path], Timed]:
    """A function that opens every partition of a data directory with krabka-log, which holds three
    descriptors of each segment. It returns the number of segments and times itself."""
    krabka_program()

    def run(root: Path) -> Timed:
        told = _ask_krabka("load", root, str(threads), str(rounds))
        return Timed(told["seconds"], told["segments"])

    return run


def krabka_append(rounds: int = 3) -> Callable[[Path, bytes, int], Timed] | None:
    """A function that appends a batch repeatedly to a new krabka-log in a directory. It returns the
    end offset and times itself. None if the peer cannot be built."""
    try:
        krabka_program()
    except pytest.skip.Exception:
        return None

    def run(folder: Path, batch: bytes, appends: int) -> Timed:
        given = folder / "krabka-batch"
        given.write_bytes(batch)
        told = _ask_krabka("append", folder, given, str(appends), str(rounds))
        return Timed(told["seconds"], told["end_offset"])

    return run
