"""A full disk in the middle of a batch, a read-only remount: Kafka's exception, the directory
offline, and after a restart the log with every batch that was whole, going on."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest

from tests.crash.check import recover
from tests.crash.promises import FILE, promised
from tests.crash.writer import Writer, open_log
from tests.faults.box import Box

REMOUNT = {"calls": "create,write,sync,truncate,rename,unlink,time", "at": 1, "sticky": 1,
           "action": errno.EROFS}
TROUBLES: dict[str, dict[str, Any]] = {
    "full disk": {"calls": "write", "at": 1, "action": "full", "name": "*.log"},
    "full disk at once": {"calls": "write", "at": 1, "action": errno.ENOSPC, "sticky": 1,
                          "name": "*.log"},
    "no room for an index entry": {"calls": "write", "at": 1, "action": "full",
                                   "name": "*index"},
    "remounted": {**REMOUNT, "name": "0*"},
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("trouble", sorted(TROUBLES))
def test_a_disk_that_refuses_takes_the_directory_offline(box: Box, tmp_path: Path, trouble: str,
                                                         seed: int) -> None:
    root = tmp_path / "data"
    (root / "t-0").mkdir(parents=True)
    answer = box.run("append_in_trouble", under=root, root=str(root), seed=seed,
                     faults=TROUBLES[trouble])
    told = answer["result"]
    if trouble == "no room for an index entry" and told["append"] == "done":
        return  # an append that is too near to the entry before
    assert told["append"] == told["again"] == told["flush"] == told["roll"] \
        == told["truncate"] == "KafkaStorageException"
    promises = promised((root / FILE).read_bytes())
    recover(root, seed, promises, random.Random(seed), everything=True)
    log, time = open_log(root, seed, recovery_point=promises.flushed, log_start_offset=0)
    Writer(log, time, root, random.Random(seed)).work(20)
    log.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_roll_on_a_full_disk(box: Box, tmp_path: Path, seed: int) -> None:
    root = tmp_path / "data"
    (root / "t-0").mkdir(parents=True)
    answer = box.run("append_in_trouble", under=root, root=str(root), seed=seed, rolls=True,
                     faults={"calls": "create,truncate", "at": 1, "action": errno.ENOSPC,
                             "sticky": 1, "name": "0*"})
    assert answer["result"]["append"] == answer["result"]["again"] == "KafkaStorageException"
    promises = promised((root / FILE).read_bytes())
    recover(root, seed, promises, random.Random(seed), everything=True)
