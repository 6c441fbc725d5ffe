"""The examples of docs/log.md, docs/manager.md and docs/tiered-metadata.md run as they stand, but
for their directories, and a follower's loop, which ends."""

from __future__ import annotations

import asyncio
import re
import shutil
import textwrap
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import InvalidTxnStateError
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from tests.support.documents import examples_of
from tests.support.readme import ROOT
from tests.support.waiting import wait_for


def batch(value: bytes = b"value", **options: Any) -> bytes:
    builder = RecordBatchBuilder(**options)
    builder.append(time.time_ns() // 1_000_000, b"key", value)
    return builder.build()


def test_a_log_inside_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    opened, transaction, tasks, compacted = examples_of("log.md")["A log inside a program"]
    ends = opened.replace("in events.records():\n            ...",
                          "in events.records():\n            break")
    latest = compacted.replace("    store.latest(", "    found = store.latest(")
    first = tasks.replace("in events.records():\n        ...",
                          "in events.records():\n        break")
    assert ends != opened and latest != compacted and first != tasks
    table = pyarrow.table({"value": pyarrow.array([b"x", b"y"])})
    names: dict[str, Any] = {"seglog": seglog, "table": table}
    exec(ends + transaction, names)
    with seglog.open("data/events-0") as log:
        values = [record.value for record in log.records(isolation="read_committed")]
        exec(f"async def run():\n{textwrap.indent(first, '    ')}\n    return event",
             names | {"log": log}, names)
        assert asyncio.run(names["run"]()) == next(log.records())
    assert values == [b"value", b"a", b"b", b"x", b"y", b"debit", b"credit"]
    exec(latest, names)
    assert names["found"] == b"ada@example.org"


def test_a_guard_of_a_transaction(tmp_path: Path) -> None:
    [example] = examples_of("log.md")["Producers and transactions"]
    log = UnifiedLog.create(tmp_path / "t-0", LogConfig(), scheduler=MockTime().scheduler,
                            transaction_verification=True)
    records = batch(producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True)
    names = {"log": log, "producer_id": 7, "sequence": 0, "epoch": 1, "leader_epoch": 0,
             "records": records}
    with pytest.raises(InvalidTxnStateError):
        log.append_as_leader(records, 0)
    exec(example, names)
    assert log.log_end_offset == 1
    log.close()


def test_a_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = examples_of("manager.md")
    [start], [life], [compaction], [metrics] = (
        pages[title] for title in ("", "The life of logs", "Compaction", "Metrics"))
    monkeypatch.chdir(tmp_path)
    users = [seglog.TopicPartition("users", n) for n in range(2)]
    (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path}/k1,{tmp_path}/k2\n")
    names: dict[str, Any] = {"seglog": seglog, "BrokerConfig": BrokerConfig, "records": batch()}

    def run(example: str) -> None:
        exec(example.replace("/data/", f"{tmp_path}/"), names)

    run(start)
    run(life)
    assert names["log"].log_end_offset == 1
    with seglog.LogManager([tmp_path / "k1", tmp_path / "k2"]) as manager:
        assert manager.all_logs == []  # moved, then deleted
    with seglog.LogManager([tmp_path / "k1"], scheduler=seglog.Scheduler(1)) as manager:
        manager.update_topic_config("users", {"cleanup.policy": "compact"})
        names["manager"] = manager
        logs = [manager.get_or_create_log(partition) for partition in users]
        for log in logs:
            for _ in range(3):
                log.append_as_leader(batch(), 0)
        run(compaction)
        assert [log.log_end_offset for log in logs] == [3, 3]
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    monkeypatch.setattr(prometheus, "REGISTRY", registry)
    assert "(9404)" in metrics
    names["scraped"] = lambda: prometheus.generate_latest(registry)
    assert metrics.endswith("    ...\n")  # while the manager runs
    run(metrics.replace("start_http_server(9404)", "served = start_http_server(0)").replace(
        "    ...\n", "    page = scraped()\n"))
    assert b'kafka_log_log_logendoffset{partition="1",topic="users"} 3.0' in names["page"]
    server, thread = names["served"]
    server.shutdown()
    thread.join()
    server.server_close()


def test_tiering_a_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager of the page tiers a log, whose disk is lost; another one continues it."""
    page = (ROOT / "docs/tiered-metadata.md").read_text()
    manager, lost = (textwrap.dedent(example) for example in re.findall(
        r"^ *```python\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL))
    monkeypatch.chdir(tmp_path)
    Path("server.properties").write_text("\n".join([
        f"log.dirs={tmp_path}/data",
        "log.segment.bytes=1048576",
        "remote.log.storage.system.enable=true",
        "remote.log.storage.manager.class.name=seglog.tiered.LayoutStorageManager",
        "remote.log.manager.task.interval.ms=50",
        f"rsm.config.url={tmp_path}/tier",
    ]))
    partition = seglog.TopicPartition("t", 0)
    names: dict[str, Any] = {"partition": partition, "topic_id": uuid.uuid4(),
                             "wait_for": wait_for}
    settings = 'manager.update_topic_config("t", {"remote.storage.enable": "true"})\n'
    tier = """
log = manager.get_or_create_log(partition, topic_id=topic_id)
tiering.on_leadership_change([partition])
for _ in range(2):
    log.append_as_leader(records, 0)
log.update_high_watermark(log.log_end_offset)
wait_for(lambda: log.highest_offset_in_remote_storage == 0)
"""
    waits = lost.replace("# wait for ", "wait_for(lambda: ").replace("ready(partition)\n",
                                                                     "ready(partition))\n")
    names["records"] = batch(value=bytes(700_000))
    for inside in (tier, waits + "end = manager.get_log(partition).log_end_offset"):
        assert "    ...\n" in manager
        exec(manager.replace("    ...\n", textwrap.indent(settings + inside + "\n", "    ")),
             names)
        shutil.rmtree(tmp_path / "data" / "t-0")
    assert names["end"] == 1  # the record of the closed segment
