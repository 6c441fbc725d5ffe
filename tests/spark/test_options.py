"""Options as in Spark's Kafka source: which are accepted and refused, and the error messages."""

from __future__ import annotations

import pytest

from seglog.errors import IllegalArgumentError, KafkaStorageError
from seglog.model import TopicPartition
from seglog.spark import verify
from seglog.spark.option_values import java_pattern
from seglog.spark.read_options import EARLIEST, LATEST, OffsetBound, parse_options

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_defaults() -> None:
    options = parse_options({"path": "/data"})
    assert options.paths == ("/data",)
    assert options.starting == OffsetBound(special=EARLIEST)
    assert options.ending == OffsetBound(special=LATEST)
    assert options.isolation == "read_uncommitted"
    assert options.fail_on_data_loss and options.check_crcs and not options.include_headers
    assert options.assign is options.subscribe is options.subscribe_pattern is None


def test_names_are_case_insensitive_and_paths_may_be_several() -> None:
    options = parse_options({"PATH": "/a, /b", "INCLUDEHEADERS": "True", "minpartitions": "7",
                             "Kafka.Isolation.Level": "READ_COMMITTED", "failondataloss": "FALSE"})
    assert options.paths == ("/a, /b",)  # locations.directories divides it
    assert options.include_headers and options.min_partitions == 7
    assert options.isolation == "read_committed" and not options.fail_on_data_loss
    assert parse_options({"paths": '["/x,y", "/z"]'}).paths == ("/x,y", "/z")


def test_strategies() -> None:
    assert parse_options({"path": "/d", "assign": '{"a":[0,1],"b":[0]}'}).assign == {A0, A1, B0}
    assert parse_options({"path": "/d", "subscribe": "a, b"}).subscribe == {"a", "b"}
    assert parse_options({"path": "/d", "subscribePattern": "a.*"}).subscribe_pattern == "a.*"


def test_offsets_and_timestamps() -> None:
    options = parse_options({"path": "/d", "startingOffsets": '{"a":{"0":5,"1":-2}}',
                             "endingOffsets": '{"a":{"0":9,"1":-1}}'})
    assert options.starting.offsets == {A0: 5, A1: EARLIEST}
    assert options.ending.offsets == {A0: 9, A1: LATEST}
    assert options.starting.partitions() == {A0, A1}
    # One timestamp for all overrides timestamps by partition, which override offsets.
    every = {"path": "/d", "startingOffsets": "earliest", "startingTimestamp": "12",
             "startingOffsetsByTimestamp": '{"a":{"0":1}}'}
    assert parse_options(every).starting == OffsetBound(timestamps={None: 12})
    del every["startingTimestamp"]
    assert parse_options(every).starting == OffsetBound(timestamps={A0: 1})


def test_options_of_kafka_and_spark_pass() -> None:
    """Options that Spark's Kafka source takes or Spark itself adds pass in upper and lower case."""
    parse_options({"path": "/d", "kafka.bootstrap.servers": "b:9092", "KAFKA.Group.Id": "g",
                   "kafka.security.protocol": "SSL", "groupIdPrefix": "p", "failOnDataLoss": "true",
                   "kafkaConsumer.pollTimeoutMs": "512", "fetchOffset.numRetries": "3",
                   "fetchOffset.retryIntervalMs": "10", "topic": "t", "mergeSchema": "true",
                   "recursiveFileLookup": "true", "spark.custom": "x", "_internal": "y",
                   "endAt": "logEnd"})


def test_options_of_streams_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    parse_options({"path": "/d", "maxOffsetsPerTrigger": "10", "maxTriggerDelay": "5m"})
    assert [record.getMessage() for record in caplog.records] == [
        "maxOffsetsPerTrigger option ignored in batch queries",
        "maxTriggerDelay option ignored in batch queries"]


@pytest.mark.parametrize(("pattern", "found", "passed_over"), [
    (r"(?<kind>or)d\Qer\E", "orders", "od"),
    (r"\Qa.b\E", "xa.b", "axb"),
    (r"^orders\z", "orders", "orders2"),
    (r"(?<!x)a", "ba", "xa"),
    (r"rde", "orders", "rd"),
])
def test_patterns_are_javas_and_match_anywhere(pattern: str, found: str, passed_over: str) -> None:
    compiled = java_pattern(pattern, "subscribePattern")
    assert compiled.search(found) and not compiled.search(passed_over)


@pytest.mark.parametrize(("given", "words"), [
    ({}, "needs a path"),
    ({"path": " , "}, "path"),
    ({"subscribe": "a", "assign": '{"a":[0]}'}, "Only one of the following options"),
    ({"subscribe": ","}, "No topics to subscribe to"),
    ({"subscribePattern": " "}, "empty"),
    ({"subscribePattern": "("}, "invalid regular expression"),
    ({"assign": "{"}, "expects e.g."),
    ({"assign": '{"a":0}'}, "expects e.g."),
    ({"assign": "a:0"}, "No topicpartitions to assign"),
    ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
    ({"startingOffsets": '{"a":{"0":-1}}'}, "can't be latest for batch queries"),
    ({"startingOffsets": '{"a":{"0":-3}}'}, "below -2"),
    ({"startingOffsets": '{"a":{"x":1}}'}, "expects e.g."),
    ({"startingOffsets": '{"a":{"0":true}}'}, "expects e.g."),
    ({"startingOffsets": "soon"}, "expects e.g."),
    ({"endingOffsets": "earliest"}, "ending offset can't be earliest"),
    ({"endingOffsets": '{"a":{"0":-2}}'}, "can't be earliest for batch queries"),
    ({"startingTimestamp": "noon"}, "Expecting a timestamp"),
    ({"endingOffsetsByTimestamp": '{"a":{"0":-5}}'}, "negative timestamp"),
    ({"startingOffsetsByTimestampStrategy": "guess"}, "'error' or 'latest'"),
    ({"minPartitions": "0"}, "positive"),
    ({"includeHeaders": "yes"}, "true or false"),
    ({"kafka.isolation.level": "read_all"}, "read_uncommitted or read_committed"),
    ({"startingTimestamp": "-5"}, "negative timestamp, -5"),
    ({"startingTimestamp": "9223372036854775808"}, "Expecting a timestamp"),
    ({"maxRecordsPerPartition": "0"}, "positive"),
    ({"minPartitions": " 5"}, "positive"),
    ({"minPartitions": "2147483648"}, "at most 2147483647"),
    ({"failOnDataLoss": " true"}, "true or false"),
    ({"paths": "/a"}, "JSON array"),
    ({"subscribe": "a", "subscribePattern": ""}, "got subscribe, subscribePattern"),
    ({"subscribePattern": "[a&&b]"}, "invalid regular expression"),
    ({"kafka.auto.offset.reset": "earliest"}, "'auto.offset.reset' is not supported"),
    ({"kafka.Key.Deserializer": "x"}, "'key.deserializer' is not supported"),
    ({"kafka.enable.auto.commit": "true"}, "'enable.auto.commit' is not supported"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is higher than"),
    ({"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"0":5}}'},
     "start offset 9 is greater than the end offset 5"),
    ({"startingOffsetsByTimestamp": '{"a":{"0":9}}', "endingOffsetsByTimestamp": '{"a":{"0":5}}'},
     "start timestamp 9 is greater than the end timestamp 5"),
    ({"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"b":{"0":10}}'},
     "should have the same topic-partitions"),
    ({"startingOffsets": '{"a":{"2147483648":9}}'}, "expects e.g."),
    ({"startingOffsets": '{"a":{"0":9223372036854775808}}'}, "expects e.g."),
    ({"startingOffsets": "[" * 100_000}, "expects e.g."),
    ({"assign": '{"\\ud800":[0]}'}, "expects e.g."),
    ({"endAt": "highWatermark"}, "a batch query ends at the high watermarks with"),
    ({"colums": "offset"}, "'colums' is unknown; did you mean 'columns'"),
    ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
    ({"kafka.isolation.levl": "read_committed"}, "did you mean 'kafka.isolation.level'"),
    ({"somethingElse": "1"}, "'somethingelse' is unknown to format"),
    ({"location": "/d", "option.path": "/d"}, "use CREATE TEMPORARY VIEW ... USING seglog"),
])
def test_what_is_refused(given: dict[str, str], words: str) -> None:
    base = {"path": "/d"} if given else {}
    with pytest.raises(ValueError, match=words):
        parse_options(base | given)


def test_verify_refuses_a_null_byte_before_it_needs_spark() -> None:
    with pytest.raises(IllegalArgumentError) as refused:
        verify(None, ["/data", "/d\0"])  # type: ignore[arg-type]
    assert str(refused.value) == r"path is no name of a file: '/d\x00'"


@pytest.mark.parametrize("path", ["s3://bucket/data", "file:///var/lib/kafka/data"])
def test_verify_refuses_a_url_before_it_needs_spark(path: str) -> None:
    with pytest.raises(KafkaStorageError, match="only a local directory will do") as refused:
        verify(None, ["/data", path])  # type: ignore[arg-type]
    assert refused.value.filename == path
