"""What a controller's log says of a topic, against a real broker's."""

from __future__ import annotations

from pathlib import Path

from seglog.dump.topic_facts import read_topic_facts
from tests.support import golden as golden_data


def test_a_real_controllers_log(tmp_path: Path) -> None:
    data = golden_data.unpack(archive_path=golden_data.TIERED_ARCHIVE) / "tiered" / "data"
    facts = read_topic_facts(data, "__remote_log_metadata")
    assert facts is not None and facts.partitions == 3
    assert facts.config == {"cleanup.policy": "delete", "remote.storage.enable": "false",
                            "min.insync.replicas": "2", "retention.ms": "-1"}
    two = read_topic_facts(data, "t-txn")
    assert two is not None and two.partitions == 2
    assert read_topic_facts(data, "no-such-topic") is None
    assert read_topic_facts(tmp_path, "t-txn") is None
