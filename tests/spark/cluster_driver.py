"""The driver of tests/spark/test_cluster.py: reads jobs from stdin, writes JSON lines to stdout.

    python cluster_driver.py MASTER

A job is {"job": name, ...}. When some of its tasks are done and some are running it prints
{"middle": name}, and at its end the result.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import seglog.spark

#: For the job in which Spark runs one task twice.
TASKS, TWIN_SECONDS = 4, 300.0


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def slowed(frame: DataFrame) -> DataFrame:
    """The same rows, with half a second more in each task, so that a kill can hit it."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(0.5)
            yield batch

    return frame.mapInArrow(wait, frame.schema)


def rows(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("seglog").option("maxPartitionBytes", 32768).load(path)


def read(spark: SparkSession, path: str) -> Any:
    frame = slowed(rows(spark, path)).select("topic", "partition", "offset", "value")
    return sorted((*row[:3], bytes(row[3]).decode()) for row in frame.collect())


def write(spark: SparkSession, path: str, target: str) -> Any:
    frame = slowed(rows(spark, path)).select("key", "value")
    (frame.write.format("seglog").mode("append").option("topic", "copied")
     .option("num.partitions", 2).save(target))
    return True


def write_twins(spark: SparkSession, target: str, attempts: str) -> Any:
    """A write whose slow last task Spark starts twice; both attempts end at the same time."""

    def dawdle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is not None and context.partitionId() == TASKS - 1:
            mark = Path(attempts, str(context.attemptNumber()))
            mark.touch()
            end = time.monotonic() + TWIN_SECONDS
            while len(list(Path(attempts).iterdir())) < 2 and time.monotonic() < end:
                time.sleep(0.01)
        yield from batches

    numbers = spark.range(0, 1000, 1, TASKS).selectExpr("cast(id as string) AS value")
    for frame in (numbers.mapInArrow(dawdle, numbers.schema), numbers):
        (frame.write.format("seglog").mode("append").option("topic", "twins")
         .option("num.partitions", 2).save(target))
    return True


def scrub(spark: SparkSession, path: str) -> Any:
    return seglog.spark.verify(spark, path, task_bytes=4096).rows()


JOBS = {"read": read, "write": write, "write twins": write_twins, "scrub": scrub}


def watch(spark: SparkSession, name: str, over: threading.Event) -> None:
    """Prints once when a stage has completed and running tasks."""
    tracker = spark.sparkContext.statusTracker()
    while not over.wait(0.05):
        for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()):
            if stage is not None and stage.numCompletedTasks >= 3 and stage.numActiveTasks > 0:
                say(middle=name, tasks=stage.numTasks)
                return


def main(master: str) -> None:
    spark = seglog.spark.session(master, "seglog-cluster-tests", {
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],  # as the driver
        "spark.executor.memory": "512m", "spark.ui.enabled": False,
        "spark.sql.shuffle.partitions": 2, "spark.deploy.maxExecutorRetries": -1,
        # Spark starts a second attempt of a lone task after four seconds, in one job only.
        "spark.speculation": True, "spark.speculation.interval": "200ms",
        "spark.speculation.minTaskRuntime": "4s", "spark.speculation.quantile": 0.5,
    }, ship=True)
    say(ready=True)
    for line in sys.stdin:
        job = json.loads(line)
        over = threading.Event()
        watcher = threading.Thread(target=watch, args=(spark, job["job"], over))
        watcher.start()
        try:
            result = JOBS[job.pop("job")](spark, **job)
        finally:
            over.set()
            watcher.join()
        say(result=result)


if __name__ == "__main__":
    main(sys.argv[1])
