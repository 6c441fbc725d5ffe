"""What docs/differences.md lists: each deliberate difference, as it is."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import struct
from pathlib import Path

import pytest

from seglog._native.batch import scan_file
from seglog._native.crc32c import crc32c
from seglog.recovery.loader_failures import LoaderFailure
from seglog.recovery.wrappers import first_offset
from seglog.storage.codecs import MAX_BYTES_DEFAULT
from tests.differential.kafka import Oracle
from tests.differential.ours import files, load
from tests.differential.predict import predict
from tests.differential.sources import GOLDEN_CONFIG, Source, Sources
from tests.oracle import batch as v2
from tests.oracle import compression, legacy
from tests.support import transcript
from tests.support.damage_records import BOMB_BYTES, bomb

DOCUMENT = Path(__file__).parents[2] / "docs" / "differences.md"


@pytest.mark.usefixtures("kafka_lib")
def test_a_link_is_not_followed(golden: Path, tmp_path: Path) -> None:
    sources, source = Sources(golden, tmp_path), Source("unclean", "plain-none-0")
    for name in ("kafka", "ours"):
        sources.copy(source, tmp_path / name)
        log = max((tmp_path / name / "plain-none-0").glob("*.log"))
        shutil.move(log, tmp_path / f"{name}.elsewhere")
        log.symlink_to(tmp_path / f"{name}.elsewhere")
    before = files(tmp_path / "ours" / "plain-none-0")
    with Oracle() as oracle:
        [kafka] = oracle.load(tmp_path / "kafka", GOLDEN_CONFIG).values()
    [ours] = load(tmp_path / "ours", GOLDEN_CONFIG).values()
    assert "error" not in kafka
    assert ours["error"] == "KafkaStorageException" and "symbolic link" in ours["message"]
    assert ours["files_closed"] == before


def failure_of(message: legacy.Message, path: Path) -> LoaderFailure:
    """What the first offset of one old wrapper comes to."""
    path.write_bytes(legacy.encode(message))
    fd = os.open(path, os.O_RDONLY)
    try:
        [batch] = scan_file(fd, 0, path.stat().st_size, check_crcs=False).batches
        with pytest.raises(LoaderFailure) as caught:
            first_offset(fd, batch, str(path))
    finally:
        os.close(fd)
    return caught.value


def test_the_words_of_lz4_are_our_own(tmp_path: Path) -> None:
    payload = compression.compress(3, b"x" * 400, magic=1)
    broken = payload[:11] + b"\xff" * (len(payload) - 15) + payload[-4:]
    failure = failure_of(legacy.Message(5, 1, None, broken, 1000, 3), tmp_path / "a.log")
    assert failure.kafka_error == "KafkaException"
    assert failure.message.startswith("java.io.IOException: net.jpountz.lz4.LZ4Exception: ")


def test_a_wrapper_does_not_decide_how_much_memory_is_taken(tmp_path: Path) -> None:
    assert BOMB_BYTES > MAX_BYTES_DEFAULT
    inner = legacy.encode(legacy.Message(5, 1, b"k", b"v", 1000), 0)
    announced = inner[:8] + b"\x7f\xff\xff\xf0" + inner[12:]
    full = gzip.compress(announced) + bomb(1)  # a second member, which Java reads on
    bombed = failure_of(legacy.Message(5, 1, None, full, 1000, 1), tmp_path / "a.log")
    assert bombed.kafka_error == "KafkaException" and str(MAX_BYTES_DEFAULT) in bombed.message
    lying = compression.compress(1, announced, magic=1)
    cut = failure_of(legacy.Message(5, 1, None, lying, 1000, 1), tmp_path / "b.log")
    assert (cut.kafka_error, cut.message) == (
        "InvalidRecordException", "Found invalid compressed record set with no inner records")


def test_a_segment_above_a_gibibyte_is_split_behind_its_middle(tmp_path: Path) -> None:
    size, block, far = 1100 << 20, bytes(4 << 20), 2**31 + 5
    body = v2.HEADER.pack(0, size - 12, 0, 2, 0, 0, 0, 1000, 1000, -1, -1, -1, 1)[21:]
    crc = crc32c(body)
    for left in range(size - v2.HEADER.size, 0, -len(block)):
        crc = crc32c(block[:left], crc)
    last = v2.encode(v2.Batch(far, 0, [v2.Record(far, 1000, b"k", b"v")], base_timestamp=1000,
                              max_timestamp=1000))
    log = tmp_path / "data" / "big-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    with open(log, "wb") as file:  # zeros that take no space
        file.write(struct.pack(">qiibI", 0, size - 12, 0, 2, crc) + body)
        file.seek(size)
        file.write(last)
    assert predict(tmp_path / "data", {}) == {
        "big-0": {"log_start_offset": 0, "log_end_offset": far + 1}}


def test_the_document_has_the_log_lines_that_may_differ() -> None:
    table = DOCUMENT.read_text().partition("| logger, or beginning of the line |")[2]
    rows = re.findall(r"\n\| `([^`]+)`", table.partition("\n\n")[0])
    assert rows == [*transcript.OTHERS, *transcript.OURS]
