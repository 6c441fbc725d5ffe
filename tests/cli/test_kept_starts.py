"""Log starts of tiered topics: the verbs that write do not know which topics are tiered."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog.cli.main import main
from seglog.config import BrokerConfig, LogConfig
from seglog.model import TopicPartition
from seglog.storage.checkpoint_files import write_offset_checkpoint
from tests.cleaner.support import append
from tests.manager.support import entries

TIERED, LATE, GROUP, GONE = (TopicPartition(name, 0) for name in (
    "tiered", "late", "__consumer_offsets", "gone"))
STARTS, MARKER = "log-start-offset-checkpoint", ".kafka_cleanshutdown"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log whose first records are only in the tier, and one that starts inside of its first
    segment."""
    path = tmp_path / "data"
    with seglog.LogManager(path, log_config=LogConfig(internal_segment_bytes=1 << 20)) as manager:
        for key in (TIERED, LATE, GROUP):
            log = manager.get_or_create_log(key, is_new=True)
            for number in range(3):
                append(log, [(b"a", b"%d" % number), (b"b", b"")])
                log.roll()
            append(log, [(b"a", b"active")])
    for file in (path / "tiered-0").glob("0" * 20 + ".*"):
        file.unlink()
    write_offset_checkpoint(str(path / STARTS), {GONE: 7, LATE: 1, TIERED: 1})
    return path


@pytest.mark.parametrize(("verb", "is_clean"), [
    (("load", "--recover"), True), (("load", "--recover"), False), (("compact",), True)])
def test_a_start_below_the_first_segment_stays(root: Path, verb: tuple[str, ...], is_clean: bool
                                               ) -> None:
    """A broker would let the tiered log begin at 0: deleted records would come back."""
    if not is_clean:
        (root / MARKER).unlink()
    assert main([*verb, str(root)]) == 0
    assert entries(root / STARTS) == {LATE: 1, TIERED: 1}
    broker = BrokerConfig(remote_log_storage_system_enable=True)
    with seglog.LogManager(root, config=broker, topic_configs={
            "tiered": LogConfig(remote_storage_enable=True)}) as manager:
        starts = {key: log.log_start_offset for key, log in manager.current_logs.items()}
    assert starts == {TIERED: 1, LATE: 1, GROUP: 0}


def test_a_manager_that_knows_its_topics_drops_it(root: Path) -> None:
    """As Kafka does (LogManager.checkpointLogStartOffsetsInDir)."""
    with seglog.LogManager(root):
        pass
    assert entries(root / STARTS) == {LATE: 1}
