"""The first offset of a batch as Kafka's file iteration tells it."""

from __future__ import annotations

import os

import numpy as np

from seglog._native.batch import ATTRIBUTE_CODEC
from seglog._native.records import RecordDecoder
from seglog.errors import CorruptDataError
from seglog.recovery.failures import LoaderFailure
from seglog.storage.codecs import decompress

__all__ = ["first_offset"]

_MAGIC_V2 = 2
_CODEC_MAX = 4


def first_offset(fd: int, batch: np.void, path: str) -> int:
    """Base offset of a row of BATCH_DTYPE of the log `path`, open as `fd`.

    A compressed wrapper of magic 0 or 1 says the offset of its last message alone, and has to be
    decompressed. LoaderFailure where Kafka cannot.
    """
    codec = int(batch["attributes"]) & ATTRIBUTE_CODEC
    if batch["magic"] >= _MAGIC_V2 or not codec:
        return int(batch["base_offset"])
    position, file = int(batch["position"]), os.path.basename(path)
    if codec > _CODEC_MAX:
        raise LoaderFailure("IllegalArgumentException", f"Unknown compression type id: {codec}",
                            file=file, position=position)
    decoder = RecordDecoder(fd, position, position + int(batch["size"]), columns=("offset",),
                            check_crcs=False, decompress=decompress, file=path)
    try:
        columns = decoder.next()
    except CorruptDataError as error:
        raise LoaderFailure(error.kafka_name, str(error), file=file, position=position,
                            expected=error.expected, found=error.found) from None
    return int(batch["base_offset"]) if columns is None else columns.first_offset
