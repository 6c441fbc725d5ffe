"""examples/pipeline.py: every step, also without Kafka and without Java."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from seglog.datadir import open_data_dir
from tests.kafka.harness import KafkaUnavailable, library
from tests.spark.environments import DRIVER, clean, environment
from tests.support.readme import ROOT

pytestmark = [pytest.mark.judge, pytest.mark.slow]


def run(work: Path, path: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    python = work / "venv" / "bin" / "python"
    if not python.exists():
        environment(work / "venv", DRIVER)
    return subprocess.run([python, ROOT / "examples" / "pipeline.py", work], capture_output=True,
                          text=True, timeout=1800, check=False, env=clean(path, **more))


def test_it_runs_twice_with_a_broker_and_without(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("java is missing: Spark needs a JDK of at least 17")
    done = run(tmp_path, SEGLOG_KAFKA_LIB="/no/such/directory")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "no broker: SEGLOG_KAFKA_LIB=/no/such/directory holds no" in done.stdout
    table = pq.read_table(tmp_path / "summary.parquet").to_pydict()
    with open_data_dir(tmp_path / "copy") as data:
        expected = {topic: sum(batch.num_rows for batch in data.to_arrow(topic))
                    for topic in {tp.topic for tp in data.logs} if not topic.startswith("__")}
    assert dict(zip(table["topic"], table["records"], strict=True)) == \
        {topic: count for topic, count in expected.items() if count}
    picture = ElementTree.parse(tmp_path / "records.svg").getroot()
    assert len([node for node in picture if node.tag.endswith("rect")]) == len(table["topic"])
    largest = max(expected.values())
    assert f"  {largest} records written\n  verified: 0 findings" in done.stdout
    try:
        library()
    except KafkaUnavailable as error:
        pytest.skip(str(error))
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(rf"^  a consumer got {largest} records, the same$", done.stdout, re.M), \
        done.stdout


def test_without_java_it_ends_with_one_sentence(tmp_path: Path) -> None:
    environment(tmp_path / "venv", DRIVER)
    done = run(tmp_path, str(tmp_path / "venv" / "bin"))
    assert done.returncode == 1 and "2. A copy, recovered" in done.stdout
    assert done.stderr == ("The rest is left out. Spark needs Java 17 or newer on the driver, but "
                           "no java is on the PATH: install a JDK, or set JAVA_HOME.\n")
