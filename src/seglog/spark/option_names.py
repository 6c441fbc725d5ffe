"""The known option names: ours, those of Spark's Kafka source, and Spark's own.

Spark's Kafka source ignores unknown names, so `startingOffset` reads everything. Here an unknown
name fails the query and the error suggests the nearest known name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from seglog.spark.option_values import STORE_PREFIXES

__all__ = ["check_names"]

_OURS = ("path", "paths", "columns", "maxPartitionBytes", "batchRows", "checkCrcs", "endAt",
         "remote", "remoteLayout", "table")
#: KafkaSourceProvider's, and those of its write side.
_KAFKA_SOURCE = (
    "assign", "subscribe", "subscribePattern", "startingOffsets", "endingOffsets",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingTimestamp",
    "endingTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss", "includeHeaders",
    "minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "groupIdPrefix", "topic", "kafka.isolation.level")
#: Options that Spark itself understands or sets for every source.
_SPARK = (
    "basePath", "checkpointLocation", "ignoreCorruptFiles", "ignoreMissingFiles", "inferSchema",
    "mergeSchema", "mode", "modifiedAfter", "modifiedBefore", "outputMode", "pathGlobFilter",
    "queryName", "recursiveFileLookup", "timeZone", "timestampAsOf", "versionAsOf")
#: Prefixes of options for a Kafka client, its pools, Spark or an object store's client.
_PREFIXES = ("kafka.", "kafkaconsumer.", "fetchoffset.", "spark.", "_", *STORE_PREFIXES)

_KNOWN = {name.lower(): name for name in (*_OURS, *_KAFKA_SOURCE, *_SPARK)}
_NEAR, _NEAR_CLIENT = 0.75, 0.93


def check_names(given: Iterable[str]) -> None:
    """Raises ValueError for the first unknown option, with the nearest known name. `given` holds
    lower-case names."""
    for name in given:
        if name == "location":
            raise ValueError("format('seglog') cannot be a table of Spark's catalog, because Spark "
                             "reads one without its options: use CREATE TEMPORARY VIEW ... USING "
                             "seglog.")
        if name in _KNOWN:
            continue
        is_clients = name.startswith(_PREFIXES)
        # A client's option passes unless it is nearly the same as a known name.
        near = difflib.get_close_matches(name, _KNOWN, 1, _NEAR_CLIENT if is_clients else _NEAR)
        if near:
            raise ValueError(f"Option '{name}' is unknown; did you mean '{_KNOWN[near[0]]}'?")
        if not is_clients:
            raise ValueError(f"Option '{name}' is unknown to format('seglog'): docs/spark.md lists "
                             "its options.")
