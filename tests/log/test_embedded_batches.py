"""The batches that a log inside of a program builds."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

import seglog
from seglog.errors import IllegalArgumentError


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


@pytest.mark.parametrize(("codec", "levels"), [("gzip", (1, 9)), ("lz4", (9, 12)),
                                               ("zstd", (1, 19))])
def test_batches_have_the_level_of_the_settings(tmp_path: Path, codec: str,
                                                levels: tuple[int, int]) -> None:
    """Each kind of append compressed at the codec's default level, whatever the settings say."""
    records = [b"line %d of %d; " % (number, number * number % 97) for number in range(8000)]
    sizes = []
    for level in levels:
        with seglog.open(tmp_path / f"t-{level}", config={
                "compression.type": codec, f"compression.{codec}.level": level}) as log:
            ends = [0]
            log.append(b"".join(records))
            ends.append(log.log.size)
            log.append_many(records)
            ends.append(log.log.size)
            log.append_columns({"value": records})
            ends.append(log.log.size)
            with log.transaction() as transaction:
                transaction.append_many(records)
            ends.append(log.log.size)
            assert [record.value for record in log.records(1)] == records * 3
        sizes.append([end - start for start, end in itertools.pairwise(ends)])
    assert all(small < large for large, small in zip(*sizes, strict=True))


def test_records_are_written_as_they_were_read(tmp_path: Path) -> None:
    """The columns of a topic, and those of `to_pylists`, were unknown."""
    written = [(b"k", b"v", (("h", b"1"),)), (None, b"w", ())]
    with seglog.open(tmp_path / "from" / "t-0") as log:
        log.append_many([seglog.Record(0, 5, *record) for record in written])
    with (seglog.open_data_dir(tmp_path / "from") as source,
          seglog.open(tmp_path / "to" / "t-0") as log):
        assert log.append_columns(source.to_arrow("t")) == range(2)
        for columns in source.to_arrow("t"):
            assert log.append_columns(columns.to_pylists()) == range(2, 4)
        assert [record[1:] for record in log.records()] == [(5, *record) for record in written] * 2
        with pytest.raises(IllegalArgumentError, match="no column to encode"):
            log.append_columns({"topic": ["t"]})
