"""The first offset of a batch as Kafka's file iteration computes it.

The header of a compressed wrapper holds only its last offset. Kafka decompresses it when it needs
the first one: when it splits a segment, and when it searches an offset. Its exceptions end the
load, whatever the CRC says.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

import numpy as np

from seglog._native.file import read_at
from seglog.errors import CorruptRecordError, InvalidRecordError, OutOfBoundsError, SeglogError
from seglog.recovery.loader_failures import CorruptRecord, InvalidRecord, LoaderFailure
from seglog.storage.codec_streams import StreamError
from seglog.storage.legacy_records import LegacyRecord, inner_records

__all__ = ["first_offset"]

_PREFIX_BYTES: Final = 12  # offset, size of the rest
_MAGIC_V2: Final = 2


def first_offset(fd: int, batch: np.void, path: str) -> int:
    """Base offset of a row of BATCH_DTYPE of the log `path`, open as `fd`. Raises LoaderFailure
    where Kafka throws."""
    if batch["magic"] >= _MAGIC_V2:
        return int(batch["base_offset"])
    position = int(batch["position"])
    entry = read_at(fd, int(batch["size"]), position, file=path)
    outer = LegacyRecord(int.from_bytes(entry[:8], "big", signed=True),
                         memoryview(entry)[_PREFIX_BYTES:])
    with _as_failure(file=os.path.basename(path), position=position):
        if not outer.codec:
            return outer.offset
        if outer.magic not in (0, 1):
            raise InvalidRecordError("Invalid wrapper magic found in legacy deep record iterator "
                                     f"{outer.magic}")
        return next(inner_records(outer)).offset


@contextlib.contextmanager
def _as_failure(**where: str | int) -> Iterator[None]:
    """Converts the exceptions of messages into what Kafka's loader throws."""
    try:
        yield
    except StreamError as error:
        if error.is_io:
            raise LoaderFailure("KafkaException", str(error), **where) from None
        raise LoaderFailure(error.kafka_error, error.message, **where) from None
    except CorruptRecordError as error:
        raise CorruptRecord(str(error), **where) from None
    except InvalidRecordError as error:
        raise InvalidRecord(str(error), **where) from None
    except OutOfBoundsError as error:
        raise LoaderFailure(error.kafka_name, "null", **where) from None
    except SeglogError as error:
        raise LoaderFailure(error.kafka_name, str(error), **where) from None
