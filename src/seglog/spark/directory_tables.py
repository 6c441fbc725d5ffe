"""`option("table", ...)`: the contents of data directories besides records, as Spark tables.

A table covers every partition directory below the paths, including all replicas, internal topics
and copies, each with its `path` (the data directory) and `directory`. The driver plans; executors
open files read-only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from seglog.arrow import contents
from seglog.dump.consumer_offsets import committed_offsets
from seglog.errors import SeglogError
from seglog.model import TopicPartition
from seglog.objects import StorageOptions
from seglog.scrub import DirectoryScrub, LoadLevel, LoadOptions, SegmentsPiece, finding_row
from seglog.spark.executors import CheckedOnArrival
from seglog.spark.failures import in_one_sentence, without_traceback
from seglog.spark.finding_rows import FINDING_COLUMNS, finding_batches
from seglog.spark.locations import directories, require_local, require_seen
from seglog.spark.option_values import java_pattern
from seglog.spark.read_options import SPLIT_BYTES, ReadOptions, parse_options
from seglog.spark.table_columns import Columns, alternate, arrow_schema, struct_type, text_array
from seglog.storage.discover import FoundDirectory, find_directories
from seglog.storage.log_store import files_of
from seglog.storage.isolation import Isolation
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogRange, pack
from seglog.storage.selection import unknown_partition, unknown_topic

__all__ = ["TABLES", "TableReader", "table_schema"]

_log = logging.getLogger("seglog.spark")

OFFSETS_TOPIC = "__consumer_offsets"
#: The largest time in ms that Spark's microseconds in 64 bits hold.
_MS_MAX: Final = (2**63 - 1) // 1000
_WHERE: Final = (("path", "string"), ("directory", "string"), ("topic", "string"),
                 ("partition", "int"))
#: Directories whose small files one task reads.
_DIRECTORIES_PER_TASK = 64
#: Options of a table; all other read options concern records.
_OPTIONS = {"table", "path", "paths", "assign", "subscribe", "subscribepattern", "columns",
            "failondataloss", "maxpartitionbytes"}
_OF_RECORDS = {name.lower(): name for name in (
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "includeHeaders", "minPartitions", "maxRecordsPerPartition", "batchRows", "checkCrcs",
    "kafka.isolation.level", "remote", "remoteLayout")}

#: What a CommittedOffset has, as columns.
_COMMITTED = ("group_id", "topic", "partition", "offset", "leader_epoch", "metadata",
              "commit_timestamp_ms", "expire_timestamp_ms", "record_offset")

Rows = Callable[[FoundDirectory, ReadOptions], Iterable[contents.Table]]


# ---- what the tables hold ----------------------------------------------------------------------

def _chunks(read: Callable[[str, StorageOptions], Iterable[contents.Table]]) -> Rows:
    """The rows of a directory that are read in chunks."""
    return lambda found, options: read(found.path, options.storage)


def _whole(read: Callable[[str, StorageOptions], contents.Table]) -> Rows:
    """The rows of a directory that are read at once."""
    return lambda found, options: [read(found.path, options.storage)]


def _consumer_offsets(found: FoundDirectory, options: ReadOptions) -> Iterator[contents.Table]:
    committed: Isolation = "read_committed"
    with PartitionLog.open(found.path, storage_options=options.storage) as log:
        stream = log.to_arrow(columns=["offset", "key", "value"], isolation=committed,
                              on_damage=options.on_damage)
        commits = committed_offsets(
            row for batch in stream for held in [batch.to_pylists()]
            for row in zip(held["offset"], held["key"], held["value"], strict=True))
    yield dict(zip(_COMMITTED, zip(*commits, strict=True), strict=False))


@dataclass(frozen=True, slots=True)
class _Table:
    """A table: its columns, and a function for the rows of one partition directory. In `missing`
    columns -1 becomes null. A table without `rows` has its own plan."""

    columns: Columns
    rows: Rows | None
    missing: frozenset[str] = frozenset()
    topic: str | None = None


TABLES: Final[Mapping[str, _Table]] = {
    "segments": _Table(
        (*_WHERE, ("kind", "string"), ("base_offset", "long"), ("size", "long"),
         ("index_size", "long"), ("time_index_size", "long"), ("txn_index_size", "long"),
         ("modified", "timestamp"), ("is_active", "boolean")),
        _chunks(contents.segments),
        frozenset({"size", "index_size", "time_index_size", "txn_index_size", "modified"})),
    "batches": _Table(
        (*_WHERE, ("segment_base_offset", "long"), ("position", "long"), ("size", "int"),
         ("base_offset", "long"), ("last_offset", "long"), ("record_count", "int"),
         ("magic", "int"), ("codec", "string"), ("timestamp_type", "int"),
         ("base_timestamp", "timestamp"), ("max_timestamp", "timestamp"),
         ("leader_epoch", "int"), ("is_transactional", "boolean"), ("is_control", "boolean"),
         ("producer_id", "long"), ("producer_epoch", "int"), ("base_sequence", "int"),
         ("crc", "long")), None,
        frozenset({"base_timestamp", "max_timestamp", "record_count", "leader_epoch",
                   "producer_id", "producer_epoch", "base_sequence"})),
    "indexes": _Table(
        (*_WHERE, ("base_offset", "long"), ("index", "string"), ("entry", "long"),
         ("offset", "long"), ("position", "long"), ("timestamp", "timestamp")),
        _chunks(contents.index_entries),
        frozenset({"position", "timestamp"})),
    "producers": _Table(
        (*_WHERE, ("snapshot_offset", "long"), ("producer_id", "long"), ("producer_epoch", "int"),
         ("last_sequence", "int"), ("last_offset", "long"), ("offset_delta", "int"),
         ("last_timestamp", "timestamp"), ("coordinator_epoch", "int"),
         ("current_txn_first_offset", "long")), _whole(contents.producers),
        frozenset({"last_sequence", "last_offset", "last_timestamp", "coordinator_epoch"})),
    "transactions": _Table(
        (*_WHERE, ("state", "string"), ("producer_id", "long"), ("first_offset", "long"),
         ("last_offset", "long")), _whole(contents.transactions)),
    "epochs": _Table(
        (*_WHERE, ("leader_epoch", "int"), ("start_offset", "long"), ("end_offset", "long")),
        _whole(contents.leader_epochs)),
    "findings": _Table(FINDING_COLUMNS, None),
    "consumer_offsets": _Table(
        (("path", "string"), ("directory", "string"), ("group_id", "string"), ("topic", "string"),
         ("partition", "int"), ("offset", "long"), ("leader_epoch", "int"),
         ("metadata", "string"), ("commit_timestamp", "timestamp"),
         ("expire_timestamp", "timestamp"), ("record_offset", "long")), _consumer_offsets,
        frozenset({"leader_epoch", "expire_timestamp"}), OFFSETS_TOPIC),
}


# ---- options -----------------------------------------------------------------------------------

def _table_of(options: Mapping[str, str]) -> str:
    """The requested table. Raises ValueError for an unknown one, and for options that a table does
    not take."""
    given = {name.lower(): value for name, value in options.items()}
    name = given["table"].strip().lower()
    if name not in TABLES:
        raise ValueError(f"Option 'table': no table '{given['table']}'; there are records, "
                         f"{', '.join(TABLES)}.")
    for option in given.keys() & _OF_RECORDS.keys() - _OPTIONS:
        raise ValueError(f"Option '{_OF_RECORDS[option]}' is about records; table '{name}' takes "
                         "subscribe, subscribePattern, assign, columns, maxPartitionBytes and "
                         "failOnDataLoss.")
    return name


def table_schema(options: Mapping[str, str]) -> StructType:
    """The columns of the table of the option `table`, or those of the option `columns`. Raises
    ValueError."""
    name = _table_of(options)
    table = TABLES[name]
    chosen = parse_options(options).columns
    if chosen is None:
        return struct_type(table.columns)
    types = dict(table.columns)
    for column in chosen:
        if column not in types:
            raise ValueError(f"Option 'columns': table '{name}' has no column '{column}'; there "
                             f"are {', '.join(types)}.")
    if len(set(chosen)) != len(chosen):
        raise ValueError("Option 'columns' names a column twice.")
    return struct_type([(column, types[column]) for column in chosen])


# ---- the reader --------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Directories(InputPartition):
    """Partition directories: the work of one task. Picklable."""

    found: Sequence[FoundDirectory]


@dataclass(frozen=True)
class _Ranges(InputPartition):
    """Ranges of log files, each with its directory. Picklable."""

    pieces: Sequence[tuple[FoundDirectory, LogRange]]


@dataclass(frozen=True)
class _Scrub(InputPartition):
    """Pieces of a verification, and rows that the driver already has. Picklable."""

    pieces: Sequence[tuple[str, Any]]
    rows: Sequence[dict[str, Any]] = ()


class TableReader(CheckedOnArrival, DataSourceReader):
    """Reads the columns of `schema` of the table of the option `table`."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Raises ValueError for bad options and for a schema that does not fit."""
        name = _table_of(options)
        self._name, self._options = name, parse_options(options)
        full = {field.name: field for field in struct_type(TABLES[name].columns)}
        for field in schema.fields:
            if full.get(field.name) != field:
                raise ValueError(
                    f"Table '{name}' has no nullable column '{field.name}' of type "
                    f"{field.dataType.simpleString()}; its columns are "
                    + ", ".join(f"{n} {f.dataType.simpleString()}" for n, f in full.items()))
        types = dict(TABLES[name].columns)
        self._columns: Columns = [(field, types[field]) for field in schema.fieldNames()]

    @in_one_sentence
    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the query. Raises KafkaStorageError for a path without logs,
        UnknownTopicOrPartitionError for a missing topic or partition."""
        if self._name == "findings":
            # The dry run of Kafka's loader reads only the local file system.
            require_local(self._options.paths, "table findings")
            return self._scrub_tasks()
        found = [one for path in directories(self._options.paths)
                 for one in find_directories(path, files_of(path, self._options.storage))]
        self._check_named({one.topic_partition for one in found})
        topic = TABLES[self._name].topic
        if topic is not None and not self._wants_topic(topic):
            raise ValueError(f"Table '{self._name}' reads the topic {topic}, which subscribe, "
                             "subscribePattern or assign leaves out. To select the rows of a "
                             "topic, filter the column topic.")
        chosen = sorted(one for one in found if self._wants(one.topic_partition)
                        and (topic is None or one.topic_partition.topic == topic))
        if self._name == "batches":
            return self._range_tasks(chosen)
        each = 1 if topic is not None else _DIRECTORIES_PER_TASK
        return [_Directories(chosen[start:start + each]) for start in range(0, len(chosen), each)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task. A file that cannot be read or parsed raises its typed error;
        failOnDataLoss=false skips it with a warning."""
        with without_traceback():
            yield from self._batches_of(partition)

    def _batches_of(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, _Scrub):
            names = [name for name, _ in self._columns]
            for batch in finding_batches(_scrub_rows(partition)):
                yield batch.select(names)
        elif isinstance(partition, _Ranges):
            yield from self._rows_of_ranges(partition)
        elif isinstance(partition, _Directories):
            for found in partition.found:
                require_seen(found.data_dir)
                rows = TABLES[self._name].rows
                assert rows is not None
                with self._passing(found):
                    yield from self._to_batches(found, rows(found, self._options))

    # ---- which directories

    def _wants(self, tp: TopicPartition) -> bool:
        options = self._options
        if options.assign is not None:
            return tp in options.assign
        if options.subscribe is not None:
            return tp.topic in options.subscribe
        if options.subscribe_pattern is not None:
            return java_pattern(options.subscribe_pattern, "subscribePattern").search(
                tp.topic) is not None
        return True

    def _wants_topic(self, topic: str) -> bool:
        assign = self._options.assign
        if assign is not None:
            return any(tp.topic == topic for tp in assign)
        return self._wants(TopicPartition(topic, 0))

    def _check_named(self, there: set[TopicPartition]) -> None:
        options, topics = self._options, {tp.topic for tp in there}
        where = ", ".join(options.paths)
        named = set(options.subscribe or ()) | {tp.topic for tp in options.assign or ()}
        for topic in sorted(named - topics):
            raise unknown_topic(where, topic, topics)
        for tp in sorted(set(options.assign or ()) - there):
            raise unknown_partition(where, [tp.topic], tp.partition, {
                one.partition for one in there if one.topic == tp.topic})

    # ---- rows of batches

    def _range_tasks(self, chosen: Sequence[FoundDirectory]) -> list[InputPartition]:
        target, pieces = self._options.split_bytes or SPLIT_BYTES, []
        for found in chosen:
            with self._passing(found), PartitionLog.open(
                    found.path, storage_options=self._options.storage) as log:
                pieces += [_Sized((found, planned), planned.size)
                           for planned in log.ranges(target)]
        return [_Ranges([one.piece for one in some]) for some in pack(pieces, target)]

    def _rows_of_ranges(self, task: _Ranges) -> Iterator[pa.RecordBatch]:
        for found, planned in task.pieces:
            require_seen(found.data_dir)
            with self._passing(found):
                yield from self._to_batches(found, contents.batches(
                    planned, self._options.storage))

    @contextmanager
    def _passing(self, found: FoundDirectory) -> Iterator[None]:
        """Turns an error of one directory into a warning if failOnDataLoss is false."""
        try:
            yield
        except (SeglogError, ValueError) as error:
            if self._options.fail_on_data_loss:
                raise
            _log.warning("failOnDataLoss is false: %s of %s are left out: %s", self._name,
                         found.path, error)

    # ---- rows of directories

    def _to_batches(self, found: FoundDirectory, chunks: Iterable[contents.Table]
                    ) -> Iterator[pa.RecordBatch]:
        """The columns of chunks, in which the names of timestamps end with their unit."""
        table = TABLES[self._name]
        where: dict[str, Any] = {
            "path": found.data_dir, "directory": found.name,
            "topic": found.topic_partition.topic, "partition": found.topic_partition.partition,
            "kind": found.kind.name.lower()}
        sources = [f"{name}_ms" if kind == "timestamp" else name for name, kind in self._columns]
        for chunk in chunks:
            rows = len(next(iter(chunk.values()), ()))
            if rows:
                yield pa.RecordBatch.from_arrays(
                    [_array(chunk[source], kind, name in table.missing) if source in chunk
                     else pa.repeat(pa.scalar(where[name], arrow_type), rows)
                     for (name, kind), source, arrow_type in zip(
                         self._columns, sources, arrow_schema(self._columns).types, strict=True)],
                    schema=arrow_schema(self._columns))

    # ---- findings

    def _scrub_tasks(self) -> list[InputPartition]:
        options = LoadOptions(LoadLevel.VERIFY)
        is_limited = any((self._options.assign, self._options.subscribe,
                          self._options.subscribe_pattern))
        paths = directories(self._options.paths)
        if is_limited:
            self._check_named({one.topic_partition for path in paths
                               for one in find_directories(path)})
        scrubs = [DirectoryScrub(path, options, self._wants if is_limited else None)
                  for path in paths]
        known = [finding_row(one.path, found) for one in scrubs for found in one.findings]
        target = self._options.split_bytes or SPLIT_BYTES
        pieces = alternate([
            [*(_Sized((one.path, piece), piece.size) for piece in one.segment_pieces(target)),
             *(_Sized((one.path, piece), piece.size) for piece in one.partition_pieces({}))]
            for one in scrubs])
        tasks: list[InputPartition] = [_Scrub([sized.piece for sized in some])
                                       for some in pack(pieces, target)]
        return [_Scrub([], known), *tasks]


@dataclass(frozen=True, slots=True)
class _Sized:
    piece: tuple[Any, Any]
    size: int


def _scrub_rows(task: _Scrub) -> Iterator[dict[str, Any]]:
    yield from task.rows
    for path, piece in task.pieces:
        require_seen(path)
        if isinstance(piece, SegmentsPiece):
            found = piece.findings()
        else:
            report = piece.judge()
            found = [] if report is None else report.findings
        yield from (finding_row(path, one) for one in found)


def _array(values: contents.Column, kind: str, has_missing: bool) -> pa.Array:
    """A column; with `has_missing`, -1 becomes null, as does a time that Spark cannot hold."""
    [arrow_type] = arrow_schema([("", kind)]).types
    if kind == "string":
        return text_array(values)
    if has_missing and isinstance(values, np.ndarray):
        numbers = pa.array(values, mask=values == -1)
    elif has_missing:
        numbers = pa.array([None if value == -1 else value for value in values])
    else:
        numbers = pa.array(values)
    if kind == "timestamp":
        stamps = numbers.cast(pa.int64())
        fits = pc.and_(pc.less_equal(stamps, _MS_MAX), pc.greater_equal(stamps, -_MS_MAX))
        return pc.multiply(pc.if_else(fits, stamps, None), 1000).cast(arrow_type)
    return numbers.cast(arrow_type)
