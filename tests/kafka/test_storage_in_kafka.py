"""The small files, names and compressed payloads, asked of Kafka's own readers and of seglog."""

from __future__ import annotations

import json
import random
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest

from seglog.errors import SeglogError
from seglog.java.properties import parse_properties
from seglog.storage import checkpoint_files, codecs, epochs, meta, paths, producer_state
from tests.kafka import harness
from tests.support.metadata import LONG_METADATA
from tests.oracle.wire import crc32c, xxh32

pytestmark = pytest.mark.usefixtures("kafka_lib")

Question = tuple[str, bytes]
ID = b"Sl08ZXU2QW6uF5hIoSzc8w"
SMALL = b"hello world " * 4


def ask(tmp_path: Path, questions: list[Question]) -> list[dict[str, Any]]:
    lines = "".join(f"{kind} {content.hex()}\n" for kind, content in questions)
    done = subprocess.run(harness.command("Storage", str(tmp_path / "scratch")), input=lines,
                          capture_output=True, text=True, check=True, timeout=1800)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(answers) == len(questions), done.stderr[-2000:]
    return answers


def compare(tmp_path: Path, questions: list[Question], read: Callable[[str, bytes, Path], Any], *,
            same_text: bool) -> None:
    """`read` gives Kafka's value, or raises; `same_text` also holds the error texts together."""
    scratch = tmp_path / "scratch"
    outcomes = set()
    for (kind, content), answer in zip(questions, ask(tmp_path, questions), strict=True):
        scratch.write_bytes(content)
        try:
            ours: Any = read(kind, content, scratch)
        except (SeglogError, ValueError) as error:
            assert "error" in answer, (kind, content, answer, error)
            texts = (answer["message"], answer["cause"])
            # Kafka allocates for any count that a checkpoint announces, seglog does not.
            same = str(error) in texts or answer["error"] == "OutOfMemoryError"
            assert same or not same_text, (content, texts, str(error))
        else:
            assert answer.get("value", answer) == ours, (kind, content)
        outcomes.add("error" in answer)
    assert outcomes == {True, False}


def mutations(seeds: list[bytes], alphabet: list[bytes], count: int) -> list[bytes]:
    """The seeds, and texts one to three edits away from one. All are UTF-8."""
    rng = random.Random(11)
    found = list(seeds)
    for _ in range(count):
        data = rng.choice(seeds).decode()
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data) + 1)
            data = data[:at] + rng.choice(alphabet).decode() + data[at + rng.randrange(3):]
        found.append(data.encode())
    return found


BLANKS = [b" ", b"\n", b"\r", b"\t", b"\x0b", b"\x0c", b"\x1c", "\u00a0".encode(), b""]
DIGITS = [b"0", b"1", b"9", b"-", b"+", b"x", "\u0664".encode(), "\uff11".encode(), b"4294967296"]


def test_checkpoints(tmp_path: Path) -> None:
    offsets = mutations([b"0\n2\nfoo 0 17\nbar-baz 3 0\n", b"0\n1\na 0 1\n", b"0\n0\n", b""],
                        BLANKS + DIGITS, 500)
    entries = mutations([b"0\n2\n0 0\n4 120\n", b"0\n1\n7 8\n"], BLANKS + DIGITS, 500)

    def read(kind: str, content: bytes, path: Path) -> Any:
        if kind == "offsets":
            return {str(key): value
                    for key, value in checkpoint_files.read_offset_checkpoint(path).items()}
        # Kafka's file reader, before the cache assigns the entries.
        return [[entry.epoch, entry.start_offset] for entry in checkpoint_files.read_checkpoint(
            path, epochs.parse_epoch_entry, 2)]

    compare(tmp_path, [*(("offsets", content) for content in offsets),
                       *(("epochs", content) for content in entries)], read, same_text=True)


def test_partition_metadata(tmp_path: Path) -> None:
    seeds = [b"version: 0\ntopic_id: " + ID, b"a: 5\nb: " + ID + b"\nrest",
             b"version: 0\ntopic_id: " + b"A" * 22, b"version: 0\ntopic_id: " + ID + b"=="]

    def read(kind: str, content: bytes, path: Path) -> Any:
        found = meta.read_partition_metadata(path)
        assert found is not None
        return [found.version, meta.format_uuid(found.topic_id)]

    questions = mutations(seeds, BLANKS + DIGITS + [b":", b"=", b"_", b"/", b"!"], 500)
    compare(tmp_path, [("metadata", content) for content in questions], read, same_text=False)


def test_long_partition_metadata(tmp_path: Path) -> None:
    """Kafka reads as far as two lines go. Where that is beyond 1 MiB it loads what seglog refuses
    (docs/differences.md)."""
    answers = ask(tmp_path, [("metadata", content) for _, content, _ in LONG_METADATA])
    for (name, _, code), answer in zip(LONG_METADATA, answers, strict=True):
        assert ("error" in answer) == (code not in (None, "checkpoint_too_large")), name


def test_properties(tmp_path: Path) -> None:
    alphabet = [b"a", b"b", b"=", b":", b"\\", b"#", b"!", b"u", b"\\u00e9", b"\\u", b"\xe9",
                b"\\\n", *BLANKS]
    rng = random.Random(3)
    contents = [b"".join(rng.choice(alphabet) for _ in range(rng.randrange(14)))
                for _ in range(1000)]

    def read(kind: str, content: bytes, path: Path) -> Any:
        def units(text: str) -> str:
            return text.encode("utf-16-be", "surrogatepass").hex()

        found = parse_properties(content)
        return [[units(key), units(found[key])]
                for key in sorted(found, key=lambda key: key.encode("utf-16-be", "surrogatepass"))]

    compare(tmp_path, [("properties", content) for content in contents], read, same_text=True)


def test_meta_properties(tmp_path: Path) -> None:
    seeds = [b"version=1\nnode.id=3\ncluster.id=c\ndirectory.id=" + ID + b"\n",
             b"version=1\ncluster.id=c\nnode.id=3\n", b"version=0\nbroker.id=3\n", b"",
             b"broker.id=3\n", b"version= 1 \nnode.id=3\ncluster.id=\n"]
    alphabet = [b"version=", b"node.id=", b"cluster.id=", b"broker.id=", b"directory.id=", b"A",
                *BLANKS, *DIGITS]

    def read(kind: str, content: bytes, path: Path) -> Any:
        found = meta.read_meta_properties(path)
        assert found is not None
        directory_id = found.directory_id
        return [found.version, found.cluster_id, found.node_id,
                directory_id and meta.format_uuid(directory_id)]

    compare(tmp_path, [("owner", content) for content in mutations(seeds, alphabet, 500)], read,
            same_text=True)


def test_snapshots(tmp_path: Path) -> None:
    entry = struct.pack(">qhiqiqiq", 1, 2, 1, 2, 3, -1, 3, 100)
    rng = random.Random(5)
    contents = []
    for _ in range(500):
        body = bytearray(struct.pack(">i", rng.choice([0, 1, 1, 2, 2, 3, -1, 50, 2**31 - 1]))
                         + entry * rng.randrange(4))
        for _ in range(rng.choice([0, 0, 1, 3])):
            body[rng.randrange(len(body))] = rng.randrange(256)
        body = body[:len(body) - rng.choice([0, 0, 0, 1, 46])]
        crc = crc32c(bytes(body)) if rng.random() < 0.9 else 5
        whole = struct.pack(">hI", rng.choice([1] * 12 + [0, 2, -1, 256]), crc) + body
        contents.append(whole[:rng.randrange(12)] if rng.random() < 0.05 else whole)

    def read(kind: str, content: bytes, path: Path) -> Any:
        return [[one.producer_id, one.producer_epoch, one.last_sequence, one.last_data_offset,
                 one.last_offset_delta, one.last_timestamp, one.coordinator_epoch,
                 -1 if one.current_txn_first_offset is None else one.current_txn_first_offset]
                for one in producer_state.read_snapshot(path)]

    compare(tmp_path, [("snapshot", content) for content in contents], read, same_text=True)


def test_directory_names(tmp_path: Path) -> None:
    hexed = b"0123456789abcdef0123456789abcdef"
    seeds = [b"a-0", b"a.b-c-12", b"a-0." + hexed + b"-delete", b"a-3." + hexed + b"-stray",
             b"a-3." + hexed + b"-future", b"__cluster_metadata-0", b"lost+found"]
    names = [name for name in mutations(seeds, [b"-", b".", *BLANKS, *DIGITS], 500)
             if name and b"\n" not in name]

    def read(kind: str, content: bytes, path: Path) -> Any:
        found = paths.parse_directory_name("/data/" + content.decode()).topic_partition
        return [found.topic, found.partition]

    compare(tmp_path, [("directory", name) for name in names], read, same_text=True)


def lz4_frame(flags: int, descriptor: int, body: bytes, extra: bytes = b"") -> bytes:
    fields = bytes((flags, descriptor)) + extra
    return b"\x04\x22\x4d\x18" + fields + bytes((xxh32(fields) >> 8 & 0xFF,)) + body


def payloads() -> list[tuple[int, int, bytes]]:
    found = []
    for codec in (codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD):
        whole = codecs.compress(codec, SMALL)
        contents = [whole, whole + whole, whole + b"junk" * 9, whole + bytes(40), b""]
        contents += [whole[:size] for size in range(len(whole))]
        contents += [whole[:at] + bytes((whole[at] ^ flip,)) + whole[at + 1:]
                     for at in range(len(whole)) for flip in (1, 4, 8, 16, 32, 128, 255)]
        found += [(codec, 2, content) for content in contents]
        if codec != codecs.ZSTD:
            found += [(codec, magic, codecs.compress(codec, SMALL, magic=written))
                      for magic in (0, 1, 2) for written in (0, 1)]
    stored = struct.pack("<I", len(SMALL) | 1 << 31) + SMALL
    for flags in range(0x40, 0x80):
        for descriptor in (0x30, 0x40, 0x41, 0x48, 0x50, 0x70, 0xC0):
            body = stored + (struct.pack("<I", xxh32(SMALL)) if flags & 16 else b"") + bytes(4)
            found.append((codecs.LZ4, 1, lz4_frame(
                flags, descriptor, body + (b"abcd" if flags & 4 else b""),
                bytes(8) if flags & 8 else b"")))
    block = bytes(cramjam.snappy.compress_raw(SMALL))
    header, chunk = codecs.compress(codecs.SNAPPY, b""), struct.pack(">i", len(block)) + block
    found += [(codecs.SNAPPY, 2, content) for content in (
        block, header + chunk + header + chunk, header + header, header + bytes(4) + chunk,
        header + b"\xff" * 4 + chunk, header + b"\x7f\xff\xff\xff" + chunk,
        *(header + chunk + header[:at] + b"\x09" + header[at + 1:] + chunk for at in range(16)))]
    return found


def test_payloads(tmp_path: Path) -> None:
    """Where Kafka is more lenient than seglog is said here, and nowhere else."""
    cases = payloads()

    def read(kind: str, content: bytes, path: Path) -> Any:
        _, codec, magic = kind.split(":")
        return bytes(codecs.decompress(int(codec), int(magic), content)).hex()

    compare(tmp_path, [(f"payload:{codec}:{magic}", content) for codec, magic, content in cases],
            read, same_text=False)


def test_what_seglog_refuses_and_kafka_reads(tmp_path: Path) -> None:
    """A zstd frame that is cut behind a whole one: Kafka ends there, seglog says that it is cut."""
    whole = codecs.compress(codecs.ZSTD, SMALL)
    answer, = ask(tmp_path, [("payload:4:2", whole + whole[:-9])])
    assert answer == {"value": SMALL.hex()}
    with pytest.raises(SeglogError):
        codecs.decompress(codecs.ZSTD, 2, whole + whole[:-9])


def test_kafka_reads_what_seglog_compresses(tmp_path: Path) -> None:
    data = random.Random(2).randbytes(40_000) + bytes(100_000)
    questions = [(f"payload:{codec}:{magic}", codecs.compress(codec, data, magic=magic))
                 for codec in (1, 2, 3, 4) for magic in (0, 1, 2) if codec < 4 or magic == 2]
    assert [answer.get("value") for answer in ask(tmp_path, questions)] == [
        data.hex()] * len(questions)
