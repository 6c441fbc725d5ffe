"""A Spark driver is killed at random moments of its jobs: each job is visible whole or not at all.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import seglog
from seglog.fragments import check_target
from tests.fragments.jobs import left_over
from tests.fragments.test_publish import check_sound
from tests.support import reading

pytestmark = pytest.mark.judge

pytest.importorskip("pyspark")

ROWS = 400
ROUNDS = int(os.environ.get("SEGLOG_CRASH_ROUNDS", "2"))
JOBS = """
import sys
from pyspark.sql import SparkSession
from seglog.spark import register
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1")
         .config("spark.driver.bindAddress", "127.0.0.1")
         .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
         .config("spark.driver.memory", "512m").getOrCreate())
register(spark)
number = int(sys.argv[2])
while True:
    (spark.range(0, 400, 1, 2).selectExpr(f"'{number}' AS value")
     .write.format("seglog").mode("append").option("topic", "a").option("num.partitions", "3")
     .save(sys.argv[1]))
    print(number, flush=True)
    number += 1
"""


def test_every_job_is_there_whole_or_not(spark: object, spark_home: Path, tmp_path: Path) -> None:
    """The fixture `spark` sets what workers need, and skips the test without Spark."""
    rng, data_dir = random.Random(5), tmp_path / "data"
    start, told = 0, set[int]()
    for _ in range(ROUNDS):
        with subprocess.Popen([sys.executable, "-c", JOBS, str(data_dir), str(start)],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              env={**os.environ, "SPARK_HOME": str(spark_home)},
                              start_new_session=True) as driver:
            assert driver.stdout is not None
            for _ in range(rng.randint(1, 2)):
                told.add(int(driver.stdout.readline()))
            time.sleep(rng.random() * 3)
            os.killpg(driver.pid, signal.SIGKILL)
            told.update(int(line) for line in driver.stdout.read().split())
        start = max(told) + 100
        deadline = time.monotonic() + 300
        while True:  # The driver is gone when its pid is.
            check_target(str(data_dir))
            if not left_over(data_dir) or time.monotonic() > deadline:
                break
            time.sleep(1)
        assert left_over(data_dir) == []
        check_sound(data_dir)
        with seglog.open_data_dir(data_dir) as opened:
            found = Counter(int(row["value"]) for log in opened.logs.values()
                            for row in reading.read_rows(log))
        assert told <= found.keys() and set(found.values()) == {ROWS}
