"""Messages in a compressed one of an old format, where seglog's decoder and Java's differ."""

from __future__ import annotations

import pytest

from seglog.storage.codec_streams import StreamError
from seglog.storage.legacy_records import LegacyRecord, inner_records

#: A message of magic 1 with a gzip value, whose codes refer to bytes before its beginning.
FAR_BACK = bytes.fromhex(
    "f61f15740001ffffffff00000025"
    "1f8b0800000000000203636060648002beca708f070c0cff8100e4050073fcfd781a000000")


def test_a_gzip_value_that_java_refuses_is_refused() -> None:
    """Kafka reads it through java.util.zip.Inflater."""
    with pytest.raises(StreamError, match="ZipException: invalid distance too far back"):
        next(inner_records(LegacyRecord(1 << 40, memoryview(FAR_BACK))))
