"""The batches that a log inside of a program builds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import seglog


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("limit", [{"max.message.bytes": "300"}, {"max.message.bytes": "15000"},
                                   {"internal.segment.bytes": "2000"}])
def test_records_that_do_not_compress_fit_into_batches(tmp_path: Path, codec: str,
                                                       limit: dict[str, str]) -> None:
    """The framing of a codec made batches too large, which were refused, though each record was
    small."""
    source = random.Random(1)
    records = [source.randbytes(source.randint(1, 120)) for _ in range(700)]
    with seglog.open(tmp_path / "t-0", config={**limit, "compression.type": codec},
                     batch_bytes=1 << 20) as log:
        assert log.append_columns({"value": records}) == range(700)
        assert log.append_many(records) == range(700, 1400)
        with log.transaction() as transaction:
            transaction.append_many(records)
        assert [record.value for record in log.records()] == records * 3
