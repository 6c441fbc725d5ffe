"""The options of `spark.readStream.format("seglog")`: batch options and those of streams only.

Names, defaults and errors are those of Spark's Kafka source (KafkaSourceProvider:
validateStreamOptions, KafkaMicroBatchStream, KafkaOffsetReaderAdmin).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from seglog.spark.option_values import LONG_MAX, long_number, positive
from seglog.spark.read_options import ReadOptions, parse_options

__all__ = ["EndAt", "StreamOptions", "parse_end_at", "parse_stream_options"]

EndAt = Literal["logEnd", "highWatermark"]

_MAX_TRIGGER_DELAY = "15m"
_MICROSECONDS = {"us": 1, "ms": 1000, None: 1000, "s": 1_000_000, "m": 60_000_000,
                 "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a streaming query. Times are in milliseconds.

    `read` holds the options shared with batch queries. Missing offsets are checked `retries` more
    times, `retry_interval_ms` apart, before they count as lost.
    """

    read: ReadOptions
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_ms: int = 900_000
    end_at: EndAt = "logEnd"
    retries: int = 2
    retry_interval_ms: int = 1000


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Parses the options of a streaming query (case-insensitive names).

    Raises ValueError, with the message of Spark's source, for a value or combination it refuses.
    """
    given = {name.lower(): value for name, value in options.items()}
    if "endingoffsets" in given:
        raise ValueError("ending offset not valid in streaming queries")
    if "endingoffsetsbytimestamp" in given or "endingtimestamp" in given:
        raise ValueError("ending timestamp not valid in streaming queries")
    most = positive(given, "maxOffsetsPerTrigger", LONG_MAX)
    least = positive(given, "minOffsetsPerTrigger", LONG_MAX)
    if most is not None and least is not None and least > most:
        raise ValueError(f"The value of minOffsetPerTrigger({least}) is higher than the "
                         f"maxOffsetsPerTrigger({most}).")
    return StreamOptions(
        read=parse_options(options, is_stream=True),
        max_offsets=most,
        min_offsets=least,
        max_trigger_delay_ms=_duration_ms(given.get("maxtriggerdelay", _MAX_TRIGGER_DELAY)),
        end_at=parse_end_at(given),
        retries=(positive(given, "fetchOffset.numRetries") or 3) - 1,
        retry_interval_ms=_duration_ms(given.get("fetchoffset.retryintervalms", "1000")),
    )


def parse_end_at(given: Mapping[str, str]) -> EndAt:
    """Parses the `endAt` option (names in lower case)."""
    text = given.get("endat", "logEnd")
    if text.strip().lower() == "logend":
        return "logEnd"
    if text.strip().lower() == "highwatermark":
        return "highWatermark"
    raise ValueError(f"Option 'endAt' must be logEnd or highWatermark, got '{text}'.")


def _duration_ms(text: str) -> int:
    """Parses Spark's time strings (JavaUtils.timeStringAs): a number of ms, or with a unit. At most
    Long.MAX_VALUE, as TimeUnit.convert."""
    found = re.fullmatch(r"(\d+)\s*([a-z]+)?", text.strip().lower(), re.ASCII)
    number = None if found is None else long_number(found[1])
    if found is None or number is None or found[2] not in _MICROSECONDS:
        raise ValueError(
            f"Failed to parse time string: {text[:200]}. Time must be specified as seconds (s), "
            "milliseconds (ms), microseconds (us), minutes (m or min), hour (h), or day (d). "
            "E.g. 50s, 100ms, or 250us.")
    return min(number * _MICROSECONDS[found[2]] // 1000, LONG_MAX)
