"""A streaming query for tests that kill it: `stream_job.py DATA CHECKPOINT OUT STOP`.

Each batch writes one file named by its number. So a repeated batch replaces its own rows, and a
record in two batches is visible. A failed query starts again until STOP exists; then the program
reads the remaining records and ends.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    data, checkpoint, out, stop = map(Path, sys.argv[1:])
    from pyspark.sql import SparkSession

    from seglog.spark.source import SeglogDataSource

    spark = (SparkSession.builder.master("local[2,8]").appName("seglog-killed")
             .config("spark.ui.enabled", "false").config("spark.driver.memory", "700m")
             .config("spark.driver.host", "127.0.0.1")
             .config("spark.driver.bindAddress", "127.0.0.1")
             .config("spark.driver.extraJavaOptions",
                     "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
             .config("spark.sql.session.timeZone", "UTC").getOrCreate())
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(SeglogDataSource)

    def keep(frame: Any, batch: int) -> None:
        rows = [list(row) for row in frame.select("topic", "partition", "offset").collect()]
        fresh = out / f".{batch}"
        fresh.write_text(json.dumps(rows))
        os.replace(fresh, out / f"{batch}.json")
        print("batch", batch, len(rows), flush=True)

    def query(**trigger: Any) -> Any:
        return (spark.readStream.format("seglog").option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", "2000").load(str(data))
                .writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
                .trigger(**trigger).start())
    while not stop.exists():
        try:
            running = query(processingTime="0 seconds")
            while not running.awaitTermination(1):
                if stop.exists():
                    running.stop()
        except Exception as error:
            print("again:", str(error).splitlines()[0][:200], flush=True)
    while True:  # the test has a time limit
        try:
            before = len(list(out.glob("*.json")))
            query(availableNow=True).awaitTermination()
            if len(list(out.glob("*.json"))) == before:
                print("done", flush=True)
                break
        except Exception as error:
            print("again:", str(error).splitlines()[0][:200], flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
