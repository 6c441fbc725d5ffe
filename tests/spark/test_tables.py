"""`option("table", ...)`: every table compared with the files, and the options it refuses."""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from seglog.dump.decoders import offsets_decoder
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.recovery.loader import LoadOptions, load_directory
from seglog.recovery.partition_plan import LoadLevel
from seglog.recovery.rows import finding_row
from seglog.spark import register
from seglog.spark.directory_tables import TableReader, table_schema
from seglog.storage.partition_log import PartitionLog
from seglog.storage.producer_state import read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.judge

KINDS = {".index": ("offset", struct.Struct(">ii")), ".timeindex": ("time", struct.Struct(">qi"))}


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def table(spark: SparkSession, name: str, path: object, **options: object) -> DataFrame:
    reader = spark.read.format("seglog").option("table", name)
    for option, value in options.items():
        reader = reader.option(option, str(value))
    return reader.load(str(path))


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.select(*columns).collect()), key=repr)


def partitions(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir())


def size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


def test_segments(tables: SparkSession, golden: Path) -> None:
    root = golden / "real" / "unclean"
    expected: list[tuple[Any, ...]] = []
    for folder in partitions(root):
        logs = sorted(folder.glob("*.log"))
        expected += [(str(root), folder.name, int(log.stem), size(log),
                      size(log.with_suffix(".index")), size(log.with_suffix(".timeindex")),
                      size(log.with_suffix(".txnindex")), log == logs[-1]) for log in logs]
    frame = table(tables, "segments", root)
    assert rows(frame, "path", "directory", "base_offset", "size", "index_size",
                "time_index_size", "txn_index_size", "is_active") == sorted(expected, key=repr)
    modified = frame.selectExpr("min(unix_millis(modified))").collect()[0][0]
    assert modified == min(log.stat().st_mtime_ns // 1_000_000 for log in root.glob("*/*.log"))


def test_batches(tables: SparkSession, golden: Path) -> None:
    """Compares with the headers that a log iterates, in every format, cut anywhere."""
    for root in (golden / "real" / "clean", golden / "old"):
        expected = []
        for folder in partitions(root):
            if not any(folder.glob("*.log")):
                continue
            with PartitionLog.open(folder) as log:
                expected += [(folder.name, one.base_offset, one.last_offset, one.position,
                              one.size, one.magic, one.compression_type, one.timestamp_type,
                              one.is_transactional, one.is_control, one.crc,
                              None if one.producer_id == -1 else one.producer_id)
                             for one in log.batches()]
        for task_bytes in (300_000, 1 << 30):
            frame = table(tables, "batches", root, maxPartitionBytes=task_bytes)
            found = rows(frame, "directory", "base_offset", "last_offset", "position", "size",
                         "magic", "codec", "timestamp_type", "is_transactional", "is_control",
                         "crc", "producer_id")
            assert len(found) > 20 and found == sorted(expected, key=repr)


def test_indexes(tables: SparkSession, golden: Path) -> None:
    root = golden / "real" / "clean"
    expected = []
    for folder in partitions(root):
        for suffix, (kind, entry) in KINDS.items():
            for index in folder.glob(f"*{suffix}"):
                base = int(index.stem)
                if not index.with_suffix(".log").exists():
                    continue
                entries = list(entry.iter_unpack(index.read_bytes()))
                while entries and entries[-1] == (0, 0):
                    entries.pop()  # a preallocated index that was never trimmed
                for number, (first, second) in enumerate(entries):
                    expected.append((folder.name, base, kind, number, *(
                        (base + first, second, None) if kind == "offset" else
                        (base + second, None, first))))
    frame = table(tables, "indexes", root).selectExpr(
        "directory", "base_offset", "index", "entry", "offset", "position",
        "unix_millis(timestamp) AS ms")
    found = rows(frame, *frame.columns)
    assert len(found) > 500 and found == sorted(expected, key=repr)


def test_producers(tables: SparkSession, golden: Path) -> None:
    root = golden / "real" / "unclean"
    expected = []
    for folder in partitions(root):
        for snapshot in sorted(folder.glob("*.snapshot"))[-1:]:
            expected += [(folder.name, int(snapshot.stem), one.producer_id, one.producer_epoch,
                          one.last_timestamp, one.current_txn_first_offset)
                         for one in read_snapshot(snapshot)]
    frame = table(tables, "producers", root).selectExpr(
        "directory", "snapshot_offset", "producer_id", "producer_epoch",
        "unix_millis(last_timestamp) AS ms", "current_txn_first_offset")
    assert len(expected) > 5 and rows(frame, *frame.columns) == sorted(expected, key=repr)


def test_transactions_and_epochs(tables: SparkSession, golden: Path) -> None:
    root = golden / "real" / "unclean"
    transactions: list[tuple[Any, ...]] = []
    epochs: list[tuple[Any, ...]] = []
    for folder in partitions(root):
        with PartitionLog.open(folder) as log:
            transactions += [(folder.name, "ongoing", *vars_of(one), None)
                             for one in log.open_transactions]
            end = log.log_end_offset
        for index in folder.glob("*.txnindex"):
            transactions += [(folder.name, "aborted", producer, first, last)
                             for _, producer, first, last, _ in struct.Struct(
                                 ">hqqqq").iter_unpack(index.read_bytes())]
        lines = (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        pairs = [tuple(map(int, line.split())) for line in lines]
        bounds = [*(start for _, start in pairs[1:]), *([end] if pairs else [])]
        epochs += [(folder.name, epoch, start, stop)
                   for (epoch, start), stop in zip(pairs, bounds, strict=True) if start < end]
    found = rows(table(tables, "transactions", root), "directory", "state", "producer_id",
                 "first_offset", "last_offset")
    # The indexes of an unclean log may be incomplete: a reader has at least their entries.
    assert len(transactions) > 20 and set(transactions) <= set(found)
    assert {row[1] for row in found} == {"aborted", "ongoing"}
    assert {*epochs} <= set(rows(table(tables, "epochs", root), "directory", "leader_epoch",
                                 "start_offset", "end_offset"))


def vars_of(transaction: Any) -> tuple[int, int]:
    return transaction.producer_id, transaction.first_offset


def as_rows(path: Path) -> Counter[str]:
    report = load_directory(str(path), LoadOptions(LoadLevel.VERIFY)).report
    return Counter(repr([text(value) for value in finding_row(report.path, one).values()])
                   for one in report.findings)


def text(value: Any) -> str | None:
    return None if value is None else str(value)


@pytest.mark.parametrize("task_bytes", [100_000, 1 << 30])
def test_findings(tables: SparkSession, golden: Path, task_bytes: int) -> None:
    """One row a finding of `seglog verify`, for any division of the work."""
    paths = sorted(path for path in (golden / "damaged").iterdir() if path.is_dir())[::3]
    frame = tables.read.format("seglog").option("table", "findings").option(
        "maxPartitionBytes", task_bytes).load([str(path) for path in paths])
    found = Counter(repr([text(value) for value in row]) for row in frame.collect())
    assert found == sum((as_rows(path) for path in paths), Counter())
    assert sum(found.values()) > 100


def test_a_scrub_is_one_query(tables: SparkSession, golden: Path) -> None:
    table(tables, "findings", golden / "damaged" / "002-log_byte_flipped").createOrReplaceTempView(
        "findings")
    counted = tables.sql("SELECT code, count(*) AS n FROM findings WHERE severity IN "
                         "('error', 'fatal') GROUP BY code").collect()
    assert counted and all(row.n >= 1 for row in counted)


# ---- committed offsets -------------------------------------------------------------------------

def string(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def commit_key(group: str, topic: str, partition: int, kind: int = 1) -> bytes:
    return struct.pack(">h", kind) + string(group) + string(topic) + struct.pack(">i", partition)


def commit_value(offset: int, epoch: int = 3) -> bytes:
    return struct.pack(">hqi", 3, offset, epoch) + string("meta") + struct.pack(">q", 1000)


def offsets_log(root: Path, records: Iterable[tuple[bytes, bytes | None]]) -> Path:
    builder = RecordBatchBuilder(base_offset=0)
    for key, value in records:
        builder.append(5, key, value)
    folder = root / "__consumer_offsets-7"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(builder.build())
    return root


def test_consumer_offsets(tables: SparkSession, tmp_path: Path) -> None:
    """The last commit of each partition counts, a tombstone deletes it, other keys are skipped."""
    root = offsets_log(tmp_path, [
        (commit_key("g", "t", 0), commit_value(5)), (commit_key("g", "t", 1), commit_value(6)),
        (struct.pack(">h", 2) + string("g"), b"members"),
        (commit_key("g", "t", 0), commit_value(9, -1)), (commit_key("g", "t", 1), None),
        (commit_key("old", "t", 2, kind=0),
         struct.pack(">hq", 0, 4) + string("") + struct.pack(">q", 7))])
    frame = table(tables, "consumer_offsets", root).selectExpr(
        "directory", "group_id", "topic", "partition", "offset", "leader_epoch", "metadata",
        "unix_millis(commit_timestamp) AS ms", "expire_timestamp", "record_offset")
    where = "__consumer_offsets-7"
    assert rows(frame, *frame.columns) == [
        (where, "g", "t", 0, 9, None, "meta", 1000, None, 3),
        (where, "old", "t", 2, 4, None, "", 7, None, 5)]


def test_consumer_offsets_of_a_broker(tables: SparkSession, golden: Path) -> None:
    """Compares with our --offsets-decoder, which other tests compare with Kafka's."""
    import json

    expected = {}
    decode = offsets_decoder()
    for folder in (golden / "real" / "unclean").glob("__consumer_offsets-*"):
        with PartitionLog.open(folder) as log:
            for batch in log.to_arrow(columns=["offset", "key", "value"]):
                held = batch.to_pylists()
                for row in zip(held["offset"], held["key"], held["value"], strict=True):
                    key, value = (json.loads(part) if part and part[0] == "{" else None
                                  for part in decode(*row))
                    if key and key["type"] in ("0", "1"):
                        data = key["data"]
                        name = (data["group"], data["topic"], data["partition"])
                        expected[name] = value and value["data"]["offset"]
    found = {row[:3]: row[3] for row in rows(
        table(tables, "consumer_offsets", golden / "real" / "unclean"),
        "group_id", "topic", "partition", "offset")}
    assert found == {name: offset for name, offset in expected.items() if offset is not None}


# ---- filters, replicas, columns ----------------------------------------------------------------

def test_filters_and_replicas(tables: SparkSession, golden: Path, tmp_path: Path) -> None:
    root = golden / "real" / "clean"
    topic = next(path.name.rpartition("-")[0] for path in partitions(root)
                 if not path.name.startswith("_"))
    for where in ("disk1", "disk2"):
        (tmp_path / where).mkdir()
        shutil.copytree(root / f"{topic}-0", tmp_path / where / f"{topic}-0")
    both = tables.read.format("seglog").option("table", "epochs").load(
        [str(tmp_path / "disk1"), str(tmp_path / "disk2")])
    assert {row.path for row in both.collect()} == {str(tmp_path / "disk1"),
                                                     str(tmp_path / "disk2")}
    for options in ({"subscribe": topic}, {"subscribePattern": f"\\Q{topic[1:]}\\E$"},
                    {"assign": f'{{"{topic}":[0]}}'}):
        for name in ("segments", "findings"):
            found = {row.directory for row in table(tables, name, root, **options).collect()}
            assert found - {None} <= {f"{topic}-0"}, options
        assert table(tables, "segments", root, **options).count() > 0


def test_times_that_spark_cannot_hold_are_null(tmp_path: Path) -> None:
    """A log holds 64 bits of ms, Spark as many of microseconds: 292 thousand years."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    largest = (2**63 - 1) // 1000
    stamps = [5, largest, largest + 1, 1 << 62]
    (folder / f"{0:020d}.log").write_bytes(b"".join(
        one_record(offset, stamp) for offset, stamp in enumerate(stamps)))
    given = {"path": str(tmp_path), "table": "batches", "columns": "base_timestamp,max_timestamp"}
    reader = TableReader(given, table_schema(given))
    found = [batch.column(number).cast(pa.int64()).to_pylist() for task in reader.partitions()
             for batch in reader.read(task) for number in range(2)]
    assert found == [[5000, largest * 1000, None, None]] * 2


@pytest.mark.parametrize("name", ["indexes", "consumer_offsets"])
def test_a_table_has_all_rows_of_a_large_file(tmp_path: Path, name: str) -> None:
    """The index of a segment of 1 GiB has a quarter of a million entries."""
    count = 70_000
    if name == "indexes":
        (tmp_path / "t-0").mkdir()
        (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(one_record(0, 5))
        pack = KINDS[".index"][1].pack
        (tmp_path / "t-0" / f"{0:020d}.index").write_bytes(
            b"".join(pack(number + 1, number) for number in range(count)))
    else:
        offsets_log(tmp_path, ((commit_key("g", "t", number), commit_value(number))
                               for number in range(count)))
    given = {"path": str(tmp_path), "table": name}
    reader = TableReader(given, table_schema(given))
    found = pa.Table.from_batches(
        [batch for task in reader.partitions() for batch in reader.read(task)])
    column, text = ("position", "index") if name == "indexes" else ("offset", "group_id")
    assert found.column(column).to_pylist() == list(range(count))
    assert found.column(text).unique().to_pylist() == ["offset" if name == "indexes" else "g"]


def one_record(offset: int, stamp: int) -> bytes:
    builder = RecordBatchBuilder(base_offset=offset)
    builder.append(stamp, None, b"value")
    return builder.build()


def test_columns(tables: SparkSession, golden: Path) -> None:
    root = golden / "real" / "clean"
    for name, columns in (("segments", "size,topic"), ("findings", "severity,code")):
        frame = table(tables, name, root, columns=columns)
        assert frame.columns == columns.split(",") and frame.collect()


def test_damaged_files(tables: SparkSession, golden: Path, tmp_path: Path) -> None:
    """Raises one typed error that names the file; failOnDataLoss=false reads all other files."""
    shutil.copytree(golden / "real" / "clean", tmp_path / "data")
    folders = [one for one in partitions(tmp_path / "data")
               if (one / "leader-epoch-checkpoint").exists()]
    (folders[0] / "leader-epoch-checkpoint").write_text("0\nnonsense\n")
    with pytest.raises(Exception, match="leader-epoch-checkpoint") as failed:
        table(tables, "epochs", tmp_path / "data").collect()
    assert "Traceback" not in str(failed.value)
    found = table(tables, "epochs", tmp_path / "data", failOnDataLoss="false").collect()
    assert {row.directory for row in found}.isdisjoint({folders[0].name}) and found


@pytest.mark.parametrize(("options", "said"), [
    ({"table": "rows"}, "no table 'rows'; there are records, segments"),
    ({"table": "segments", "startingOffsets": "earliest"}, "'startingOffsets' is about records"),
    ({"table": "findings", "includeHeaders": "true"}, "'includeHeaders' is about records"),
    ({"table": "epochs", "columns": "epoch"}, "table 'epochs' has no column 'epoch'"),
    ({"table": "epochs", "columns": "path,path"}, "names a column twice"),
    ({"table": "segments", "subscribe": "absent"}, "topic absent is not here"),
    ({"table": "findings", "assign": '{"absent":[0]}'}, "absent is not here; there are .*txn"),
])
def test_refusals(tables: SparkSession, golden: Path, options: dict[str, str], said: str) -> None:
    reader = tables.read.format("seglog").options(**options)
    with pytest.raises(Exception, match=said) as refused:
        reader.load(str(golden / "real" / "clean")).collect()
    assert "Traceback" not in str(refused.value)


@pytest.mark.parametrize("option", [
    {"subscribe": "t"}, {"subscribePattern": "^t"}, {"assign": '{"t":[2]}'}])
def test_topics_of_commits_are_a_column(tmp_path: Path, option: dict[str, str]) -> None:
    """The options name the topics that are read. An empty table looked like no commits."""
    root = offsets_log(tmp_path, [(commit_key("g", "t", 2), commit_value(5))])
    (root / "t-2").mkdir()
    (root / "t-2" / f"{0:020}.log").touch()
    options = {"path": str(root), "table": "consumer_offsets"}
    for one in ({}, {"subscribe": "__consumer_offsets,t"}, {"subscribePattern": "offsets"},
                {"assign": '{"__consumer_offsets":[7]}'}):
        assert len(TableReader(options | one, table_schema(options)).partitions()) == 1
    with pytest.raises(ValueError, match="leaves out. To select .* filter the column topic"):
        TableReader(options | option, table_schema(options)).partitions()


@pytest.mark.parametrize("name", ["segments", "findings"])
def test_a_table_refuses_a_remote_tier(tmp_path: Path, name: str) -> None:
    """Its rows would be those of the local files alone."""
    for option in ("remote", "remoteLayout"):
        with pytest.raises(ValueError, match=f"^Option '{option}' is about records; table"):
            table_schema({"path": str(tmp_path), "table": name, option: str(tmp_path)})


@pytest.mark.parametrize("name", ["segments", "findings"])
def test_a_path_without_logs(tables: SparkSession, tmp_path: Path, name: str) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "x.txt").write_text("x")
    with pytest.raises(Exception, match="notes"):
        table(tables, name, tmp_path / "notes").collect()
