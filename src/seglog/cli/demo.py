"""`seglog demo`: the main job, end to end, on directories that a real Kafka broker wrote.

An installed package has none, so it makes its own.
"""

from __future__ import annotations

import argparse
import errno
import json
import lzma
import os
import sys
import tarfile
import tempfile
import time
import zlib
from importlib.util import find_spec
from pathlib import Path

from seglog.cli import render
from seglog.cli.demo_data import DAMAGED, make_directories
from seglog.cli.report import load_with_progress, print_report
from seglog.config import LoadConfig
from seglog.datadir import open_data_dir
from seglog.errors import KafkaStorageError
from seglog.recovery.loader import LoadOptions
from seglog.recovery.partition_plan import LoadLevel

__all__ = ["add_parser", "run"]

_GOLDEN = Path("tests") / "golden" / "golden.tar.xz"
_TWO_THREADS = LoadConfig(num_segment_loading_threads_per_data_dir=2)
_VERIFY = LoadOptions(LoadLevel.VERIFY, _TWO_THREADS)
_GOLDEN_DAMAGED = "002-log_byte_flipped"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb's options."""
    parser = subparsers.add_parser(
        "demo", help="the main job on real directories",
        description="Loads what a killed broker left, in parallel; verifies what it left after a "
                    "clean shutdown; explains a damaged log beside Kafka's own answer; and reads "
                    "all records with Spark.")
    parser.add_argument("--golden", type=Path, metavar="FILE",
                        help="an archive of directories that a real broker wrote; default: that of "
                        "a clone of seglog, and without one directories are made for the demo")
    parser.add_argument("--no-spark", action="store_true", help="leave Spark out")


def run(args: argparse.Namespace) -> int:
    """Runs the demo in a temporary directory, which is removed at the end."""
    golden = args.golden or next(filter(Path.is_file, (
        folder / _GOLDEN for folder in (Path.cwd(), Path(__file__).resolve().parents[3]))), None)
    if golden is not None and not golden.is_file():
        raise KafkaStorageError(errno.ENOENT, "no such archive; run the demo in a clone of seglog, "
                                "or leave --golden out: then it makes directories", str(golden))
    with tempfile.TemporaryDirectory(prefix="seglog-demo-") as name:
        home = Path(name)
        if golden is None:
            return _made(home, args.no_spark)
        render.message(f"unpacking {golden}")
        _unpack(golden, home)
        _load(home / "real" / "unclean")
        _verify(home / "real" / "clean")
        _explain(home)
        _arrow(home / "real" / "clean")
        if not args.no_spark:
            _spark(home / "real" / "clean")
    return 0


def _unpack(golden: Path, home: Path) -> None:
    """Raises KafkaStorageError for a file that is not such an archive."""
    try:
        with tarfile.open(golden) as archive:
            archive.extractall(home, filter="data")
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error):
        names = []
    else:
        names = os.listdir(home)
    if not {"real", "damaged"}.issubset(names):
        raise KafkaStorageError(errno.EINVAL, "this is no archive of directories that a broker "
                                "wrote; leave --golden out: then the demo finds or makes them",
                                str(golden))


def _made(home: Path, no_spark: bool) -> int:
    """Runs the demo on directories that seglog itself writes."""
    render.message(f"making directories in {home}")
    done = make_directories(home)
    _load(home / "unclean")
    _verify(home / "clean")
    _title("3. Explain a damaged copy: what is wrong, and what a broker's start would cut")
    print(f"  done to it: {done}")
    print_report(load_with_progress(str(home / DAMAGED), _VERIFY))
    _arrow(home / "clean")
    if not no_spark:
        _spark(home / "clean")
    return 0


def _title(text: str) -> None:
    print(f"\n{render.paint(text, 'bold', sys.stdout)}", flush=True)


def _load(path: Path) -> None:
    _title("1. Load what a crash left behind, two threads, nothing written")
    options = LoadOptions(load=_TWO_THREADS)
    print_report(load_with_progress(str(path), options))


def _verify(path: Path) -> None:
    _title("2. Verify every batch and every index after a clean shutdown")
    print_report(load_with_progress(str(path), _VERIFY))


def _explain(home: Path) -> None:
    _title("3. Explain a damaged copy, and compare with what Kafka's own loader makes of it")
    done = json.loads((home / "damaged" / "cases.json").read_text())[_GOLDEN_DAMAGED]["done"]
    print(f"  done to it: {'; '.join(done)}")
    report = load_with_progress(str(home / "damaged" / _GOLDEN_DAMAGED), _VERIFY)
    print_report(report)
    kafka = json.loads((home / "damaged" / "loaded.json").read_text())[_GOLDEN_DAMAGED]
    for one in report.partitions:
        answer = kafka[one.directory]
        print(f"  {one.directory}: log end offset {one.log_end_offset} predicted, "
              f"{answer.get('log_end_offset', answer.get('error'))} by Kafka")


def _arrow(path: Path) -> None:
    _title("4. Read all records into Arrow columns")
    started = time.perf_counter()
    with open_data_dir(path) as data:
        rows = sum(batch.num_rows for batch in data.to_arrow())
    print(f"  {rows} records in {time.perf_counter() - started:.3f} s")


def _spark(path: Path) -> None:
    _title("5. The records as rows in Spark")
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        print("  left out: pyspark is not installed, see pip install 'seglog[spark]'")
        return
    from seglog.spark.java import why_no_jvm

    if (reason := why_no_jvm()) is not None:
        print(f"  left out: {reason}")
    else:
        _show_topics(str(path))


def _show_topics(path: str) -> None:
    """Starts a local Spark, reads every record below `path` and prints a table by topic."""
    from seglog.spark import session

    spark = session("local[2]", "seglog-demo", {"spark.ui.enabled": False,
                                                "spark.sql.shuffle.partitions": 2,
                                                "spark.sql.session.timeZone": "UTC"})
    try:
        spark.read.format("seglog").load(path).createOrReplaceTempView("records")
        spark.sql("""
            SELECT topic, count(DISTINCT partition) AS partitions, count(*) AS records,
                   sum(length(value)) AS value_bytes, min(timestamp) AS first,
                   max(timestamp) AS last
            FROM records GROUP BY topic ORDER BY topic""").show(50, truncate=False)
    finally:
        spark.stop()
