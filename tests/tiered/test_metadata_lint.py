"""`seglog tier lint`: a real broker's metadata topic, and every way in which a record can be wrong.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from seglog.tiered import (
    RemoteLogMetadata, RemoteLogMetadataTopicPartitioner, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState,
    RemotePartitionDeleteMetadata, RemotePartitionDeleteState, open_bucket, serialize,
)
from seglog.tiered.metadata_finding import METADATA_CODES
from seglog.tiered.metadata_lint import MetadataLint, check_topic_config, lint_metadata
from tests.cli.test_json import violations
from tests.support import verbs
from tests.tiered.conftest import Tiered
from tests.tiered.test_metadata_topic import PARTITION, copied, finished, segment, write

STATES = RemoteLogSegmentState
DELETE_STATES = RemotePartitionDeleteState
NOW = 10_000_000
DOCS = Path(__file__).resolve().parents[2] / "docs"


def update(number: int, state: RemoteLogSegmentState) -> RemoteLogSegmentMetadataUpdate:
    return finished(number)._replace(state=state)


def deletion(state: RemotePartitionDeleteState) -> RemotePartitionDeleteMetadata:
    return RemotePartitionDeleteMetadata(PARTITION, state, 5, 2)


def lint(data_dir: Path, *values: RemoteLogMetadata | bytes | None, key: bytes | None = None
         ) -> MetadataLint:
    """Of a topic with one partition that has these records from offset 0 on."""
    write(data_dir, [one if one is None or isinstance(one, bytes) else serialize(one)
                     for one in values], key=key)
    return lint_metadata(data_dir, partition_count=1, now_ms=NOW)


def found(result: MetadataLint) -> list[tuple[str, int | None]]:
    return [(one.code, one.offset) for one in result.findings]


# ---- a real broker's

def test_a_brokers_topic_is_sound_but_for_the_copy_that_was_broken_off(tiered: Tiered) -> None:
    result = lint_metadata(tiered.data, bucket=open_bucket(tiered.remote))
    assert (result.metadata_partitions, result.partition_count) == ((0, 1, 2), 3)
    assert (result.records, result.user_partitions, result.segments) == (73, 9, 35)
    one, = result.findings
    assert (one.code, one.severity, one.partition) == ("unfinished_copy", "warning", 0)
    assert "offsets 187 to 233" in one.message and (one.age_ms or 0) > 0
    young = lint_metadata(tiered.data, grace_ms=1 << 62)
    assert young.is_sound and young.findings[0].severity == "info"


def test_objects_that_are_absent_cut_or_not_whole(tiered_copy: Tiered) -> None:
    first, second, third = tiered_copy.objects("t-gzip-0")[:3]
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    third.write_bytes(third.read_bytes() + b"x")
    result = lint_metadata(tiered_copy.data, bucket=open_bucket(tiered_copy.remote))
    rows = [(one.code, one.segment_id) for one in result.findings if one.segment_id]
    assert [row for row in rows if row[0].startswith("object")] == [
        ("object_missing", first.name[21:43]), ("object_size", second.name[21:43]),
        ("object_size", third.name[21:43])]
    missing = next(one for one in result.findings if one.code == "object_missing")
    assert "of its objects only index, leader_epoch_checkpoint, snapshot, timeindex" in str(missing)


# ---- records

def test_copied_and_deleted_segments_are_sound(tmp_path: Path) -> None:
    result = lint(tmp_path, *copied(3), update(0, STATES.DELETE_SEGMENT_STARTED),
                  update(0, STATES.DELETE_SEGMENT_FINISHED), segment(3), segment(3), finished(3),
                  finished(3))
    assert result.findings == () and result.is_sound
    assert (result.records, result.segments) == (12 - 0, 3)


def with_tag(value: bytes, tag: int, content: bytes) -> bytes:
    """With one more tagged field of the message, which Kafka does not know."""
    assert value[-1] == 0
    return value[:-1] + bytes((1, tag, len(content))) + content


def test_values_that_kafka_refuses(tmp_path: Path) -> None:
    good = serialize(segment(0))
    result = lint(tmp_path, b"", b"\x00\x00\x00", b"\x01\x63\x00", good[:-5], good + b"x", None,
                  good, with_tag(serialize(finished(0)), 9, b"abc"))
    assert found(result) == [
        ("undecodable", 0), ("undecodable", 1), ("unknown_type", 2), ("undecodable", 3),
        ("undecodable", 4), ("null_value", 5), ("unknown_tag", 7)]
    assert "api key 99" in result.findings[2].message
    assert result.findings[4].position == len(good)
    assert result.findings[6].position == len(serialize(finished(0)))
    assert not result.is_sound


def test_a_newer_version_and_other_bytes(tmp_path: Path) -> None:
    values = [serialize(one) for one in copied(1)]
    snapshot = serialize(RemoteLogSegmentMetadataSnapshot.create(segment(5)))
    newer = bytearray(snapshot[:2] + b"\x01" + snapshot[3:])
    # The count of custom metadata as a varint of two bytes.
    longer = values[1][:-3] + b"\x80\x00" + values[1][-2:]
    result = lint(tmp_path, values[0], longer, bytes(newer))
    codes = [code for code, _ in found(result)]
    assert codes[0] == "not_canonical"
    assert result.findings[0].position == len(values[1]) - 3
    assert set(codes[1:]) <= {"unknown_version", "refused_event", "undecodable"} and codes[1:]


def test_a_record_with_a_key(tmp_path: Path) -> None:
    result = lint(tmp_path, *copied(1), key=b"key")
    assert found(result) == [("keyed_record", 0), ("keyed_record", 1)]


@pytest.mark.parametrize(("events", "expected"), [
    ([finished(0)], ("unknown_segment", 0)),
    ([*copied(1), update(0, STATES.DELETE_SEGMENT_FINISHED)], ("invalid_transition", 2)),
    ([*copied(1), segment(0)], ("invalid_transition", 2)),
    ([segment(0), update(0, STATES.COPY_SEGMENT_STARTED), finished(0)], ("refused_event", 1)),
    ([segment(0)._replace(state=STATES.COPY_SEGMENT_FINISHED)], ("refused_event", 0)),
    ([RemoteLogSegmentMetadataSnapshot.create(segment(0))], ("refused_event", 0)),
    ([segment(0), update(0, STATES.DELETE_SEGMENT_STARTED),
      update(0, STATES.DELETE_SEGMENT_FINISHED), finished(0)], ("invalid_transition", 3)),
    ([deletion(DELETE_STATES.DELETE_PARTITION_STARTED)], ("invalid_transition", 0)),
    ([*copied(1), *map(deletion, DELETE_STATES)], ("segments_left", 4)),
    ([segment(0)._replace(segment_leader_epochs=((0, 0), (1, 90))), finished(0)],
     ("epochs_outside", 0)),
])
def test_states_that_may_not_follow(tmp_path: Path, events: list[RemoteLogMetadata],
                                    expected: tuple[str, int]) -> None:
    assert found(lint(tmp_path, *events)) == [expected]


def test_what_is_unfinished_has_an_age(tmp_path: Path) -> None:
    result = lint(tmp_path, segment(0), *copied(2)[2:], update(1, STATES.DELETE_SEGMENT_STARTED),
                  deletion(DELETE_STATES.DELETE_PARTITION_MARKED))
    assert [(one.code, one.offset, one.age_ms, one.severity) for one in result.findings] == [
        ("unfinished_copy", 0, NOW - 3, "warning"), ("unfinished_delete", 3, NOW - 5, "warning"),
        ("unfinished_delete", 4, NOW - 5, "warning")]


def placed(number: int, start: int, end: int, epochs: dict[int, int]) -> list[RemoteLogMetadata]:
    metadata = RemoteLogSegmentMetadata(segment(number).remote_log_segment_id, start, end, 1, 2, 3,
                                        4, epochs)
    return [metadata, finished(number)]


@pytest.mark.parametrize(("spans", "expected"), [
    ([(0, 9), (20, 29)], [("segment_gap", 3, "offsets 10 to 19")]),
    ([(0, 9), (5, 29)], [("segment_overlap", 3, "offsets 5 to 9")]),
    ([(0, 29), (5, 9), (30, 39)], [("segment_overlap", 3, "5 to 9 too")]),
    ([(10, 19), (0, 9)], []),
])
def test_lineages(tmp_path: Path, spans: list[tuple[int, int]],
                  expected: list[tuple[str, int, str]]) -> None:
    events = [event for number, (start, end) in enumerate(spans)
              for event in placed(number, start, end, {0: start})]
    result = lint(tmp_path, *events)
    assert [(one.code, one.offset) for one in result.findings] == [row[:2] for row in expected]
    assert all(text in one.message
               for one, (_, _, text) in zip(result.findings, expected, strict=True))


def test_an_unclean_election_is_no_damage(tmp_path: Path) -> None:
    result = lint(tmp_path, *placed(0, 0, 50, {0: 0}), *placed(1, 35, 90, {0: 35, 1: 40}))
    assert {code for code, _ in found(result)} <= {"outside_lineage", "segment_overlap"}
    assert found(result) and result.is_sound


# ---- the topic

def test_records_on_the_wrong_partition(tmp_path: Path) -> None:
    home = RemoteLogMetadataTopicPartitioner(50).metadata_partition(PARTITION)
    values = [serialize(one) for one in copied(2)]
    write(tmp_path, values, number=home)
    right = lint_metadata(tmp_path, now_ms=NOW)  # the default fits
    assert (right.findings, right.partition_count) == ((), 50)
    wrong = lint_metadata(tmp_path, partition_count=51, now_ms=NOW)
    one, = wrong.findings
    other = RemoteLogMetadataTopicPartitioner(51).metadata_partition(PARTITION)
    assert (one.code, one.partition, one.offset) == ("wrong_partition", home, 0)
    assert f"metadata partition {other} of 51" in one.message
    write(tmp_path / "unknown", values, number=home + 50)
    assert lint_metadata(tmp_path / "unknown", now_ms=NOW).partition_count is None


def test_records_that_were_deleted(tmp_path: Path) -> None:
    write(tmp_path, [serialize(one) for one in copied(1)], base_offset=7)
    result = lint_metadata(tmp_path, partition_count=1, now_ms=NOW)
    assert found(result) == [("records_missing", 0)]
    assert "offsets 0 to 6 are absent" in result.findings[0].message


def test_a_damaged_batch(tmp_path: Path) -> None:
    values = [serialize(one) for one in copied(3)]
    write(tmp_path, values[:3])
    path, = tmp_path.glob("*/*.log")
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF
    path.write_bytes(content)
    write(tmp_path, values[3:], base_offset=3)
    result = lint_metadata(tmp_path, partition_count=1, now_ms=NOW)
    assert found(result) == [("damaged_batch", 2), ("unknown_segment", 3), ("segment_gap", 5)]
    assert result.findings[0].position is not None


@pytest.mark.parametrize(("config", "is_complete", "names"), [
    ({}, False, []), ({}, True, ["retention.ms"]),
    ({"cleanup.policy": "delete", "retention.ms": "-1"}, True, []),
    ({"cleanup.policy": "compact,delete", "retention.ms": "1000", "retention.bytes": "5"}, False,
     ["cleanup.policy", "retention.ms", "retention.bytes"]),
    ({"remote.storage.enable": "true"}, False, ["remote.storage.enable"]),
])
def test_settings_that_lose_records(config: dict[str, str], is_complete: bool, names: list[str]
                                    ) -> None:
    findings = check_topic_config(config, is_complete=is_complete)
    assert [one.message.split()[1] for one in findings] == names
    assert {one.code for one in findings} <= {"topic_config"}


# ---- the verb

def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    return verbs.run(capsys, "tier", "lint", *args)


def test_the_verb(tiered: Tiered, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, tiered.data, "--remote", tiered.remote)
    assert code == 1 and out.startswith("warning unfinished_copy 0@10: ")
    assert out.splitlines()[-1].endswith(
        "3 of 3 partitions, 73 records of 9 partitions, 35 segments: not sound")
    code, out, _ = run(capsys, tiered.data, "--grace", 1 << 40, "--json")
    row = json.loads(out)
    assert (code, row["ok"]) == (0, True)
    code, out, _ = run(capsys, tiered.data, "--json", "--config", "retention.ms=1000")
    row = json.loads(out)
    assert (code, row["findings"][0]["code"]) == (1, "topic_config")
    assert violations(row, "Tier lint") == []
    for one in row["findings"]:
        assert violations(one, "Metadata findings") == []
    for args, sentence in ((("--config", "x"), "expected KEY=VALUE"),
                           (("--layout", "local"), "are for --remote"),
                           (("--remote", tmp_path / "none"), "none")):
        code, _, err = run(capsys, tiered.data, *args)
        assert code == 2 and sentence in err and err.count("\n") == 1
    assert run(capsys, tmp_path)[0] == 2
    with pytest.raises(SystemExit):
        run(capsys, tiered.data, "--partitions", "0")


def test_every_code_is_described() -> None:
    page = (DOCS / "tiered.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (error|warning|info) \| ", page, re.MULTILINE)
    assert rows == [(code, severity) for code, (severity, _) in METADATA_CODES.items()]
