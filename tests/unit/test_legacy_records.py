"""Messages in a compressed one of an old format, where seglog's decoder and Java's differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog._native.batch import scan
from seglog.recovery.wrappers import first_offset
from seglog.storage import codecs
from seglog.storage.codec_streams import StreamError
from seglog.storage.legacy_records import LegacyRecord, inner_records
from tests.oracle.compression import compress
from tests.oracle.legacy import Message, encode, wrap

#: A message of magic 1 with a gzip value, whose codes refer to bytes before its beginning.
FAR_BACK = bytes.fromhex(
    "f61f15740001ffffffff00000025"
    "1f8b0800000000000203636060648002beca708f070c0cff8100e4050073fcfd781a000000")


def test_a_gzip_value_that_java_refuses_is_refused() -> None:
    """Kafka reads it through java.util.zip.Inflater."""
    with pytest.raises(StreamError, match="ZipException: invalid distance too far back"):
        next(inner_records(LegacyRecord(1 << 40, memoryview(FAR_BACK))))


@pytest.mark.parametrize(("magic", "wrapper", "stored", "offsets"), [
    (1, 9, [0, 1, 2], [7, 8, 9]), (1, 2, [0, 1, 2], [0, 1, 2]), (1, 0, [0, 1, 2], [0, 1, 2]),
    (0, 9, [4, 5, 6], [4, 5, 6]), (0, 0, [4, 5, 6], [4, 5, 6])])
def test_only_a_wrapper_of_magic_1_with_an_offset_moves_its_messages(
        magic: int, wrapper: int, stored: list[int], offsets: list[int]) -> None:
    """AbstractLegacyRecordBatch.DeepRecordsIterator; some clients sent 0."""
    inner = b"".join(encode(Message(offset, magic, value=b"v")) for offset in stored)
    whole = encode(Message(wrapper, magic, value=compress(codecs.GZIP, inner, magic=magic),
                           codec=codecs.GZIP))
    found = inner_records(LegacyRecord(wrapper, memoryview(whole)[12:]))
    assert [record.offset for record in found] == offsets


@pytest.mark.parametrize("codec", [0, codecs.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_the_first_offset_is_that_of_the_first_message(
        tmp_path: Path, magic: int, codec: int) -> None:
    messages = [Message(offset, magic, value=b"v", timestamp=5 if magic else -1)
                for offset in (5, 6, 7)]
    (tmp_path / "f").write_bytes(encode(wrap(messages, codec) if codec else messages[0]))
    with open(tmp_path / "f", "rb") as file:
        row, = scan((tmp_path / "f").read_bytes()).batches
        assert first_offset(file.fileno(), row, "f") == 5
