"""`seglog dump` against the real kafka-dump-log: the same bytes on both streams."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from seglog._native.crc32c import crc32c
from seglog.dump.messages import message, messages
from tests.kafka import harness
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.support.dump import Dumped, dump
from tests.support.effort import quick_first
from tests.support.messages import encode_message, unsigned_varint

Job = Sequence[str]

LOG_OPTIONS: tuple[Job, ...] = (
    (), ("--deep-iteration",), ("--print-data-log",),
    ("--deep-iteration", "--skip-record-metadata"),
    ("--print-data-log", "--skip-record-metadata"), ("--deep-iteration", "--max-bytes", "1000"))
INDEX_OPTIONS: tuple[Job, ...] = (
    (), ("--verify-index-only",), ("--index-sanity-check",), ("--max-message-size", "300"))
DECODERS = {"__consumer_offsets": "--offsets-decoder",
            "__transaction_state": "--transaction-log-decoder",
            "__cluster_metadata": "--cluster-metadata-decoder"}


def jobs_for(paths: Iterable[Path]) -> list[Job]:
    jobs: list[Job] = []
    for path in paths:
        options: tuple[Job, ...] = ((),)
        if path.suffix in (".log", ".checkpoint"):
            options = LOG_OPTIONS + tuple((decoder,) for name, decoder in DECODERS.items()
                                          if name in str(path))
        elif path.suffix in (".index", ".timeindex"):
            # Kafka's tool makes the index that is missing, so that a second run tells otherwise.
            options = INDEX_OPTIONS if path.with_suffix(".index").exists() else ((),)
        jobs += [("--files", str(path), *option) for option in options]
    return jobs


def in_kafka(jobs: Sequence[Job], work: Path) -> list[tuple[bytes, str, str | None]]:
    """stdout, stderr and the exception (or None) of each run of the real tool, in one JVM."""
    work.mkdir()
    done = subprocess.run(harness.command("Dump", str(work)), text=True, capture_output=True,
                          input="".join("\t".join(job) + "\n" for job in jobs), check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = []
    for number in range(len(jobs)):
        died = work / f"{number}.died"
        found.append(((work / f"{number}.out").read_bytes(),
                      (work / f"{number}.err").read_text(),
                      died.read_text() if died.exists() else None))
    return found


def differences(jobs: Sequence[Job], work: Path) -> tuple[list[str], int]:
    """What differs, and how many runs Kafka's tool did not survive.

    seglog goes first, because Kafka's tool writes: it creates an index that is missing, and cuts
    the odd bytes off one.
    """
    ours: list[Dumped] = [dump(job) for job in jobs]
    wrong, deaths = [], 0
    for job, mine, (out, err, died) in zip(jobs, ours, in_kafka(jobs, work), strict=True):
        if died is not None and "OutOfMemoryError" in died:
            continue
        deaths += died is not None
        same = mine.out == out and mine.code == (1 if died else 0)
        if not same or (died is None and mine.err != err):
            wrong.append(f"{' '.join(job)}: Kafka: {died or err[:200]}; seglog: {mine.code} "
                         f"{mine.err[:200]}; stdout {'same' if mine.out == out else 'differs'}")
    return wrong, deaths


@pytest.mark.parametrize("part", quick_first(["old", "real/clean", "real/unclean", "damaged"], 1))
def test_every_golden_file_prints_what_kafka_prints(
        part: str, golden: Path, tmp_path: Path, kafka_lib: Path) -> None:
    shutil.copytree(golden / part, tmp_path / "data")
    files = [path for path in sorted((tmp_path / "data").rglob("*")) if path.is_file()
             and path.suffix != ".java"]
    jobs = jobs_for(files)
    wrong, deaths = differences(jobs, tmp_path / "out")
    assert not wrong, "\n".join(wrong[:20])
    assert len(jobs) > 100
    assert part != "damaged" or deaths > 100


# ---- damage behind a good CRC -------------------------------------------------------------------

NUMBERS = (0, 1, -1, 127, 128, 255, 2**31 - 1, -2**31, 7, 14, 61, 300)


def frames(data: bytes) -> list[tuple[int, int]]:
    found, position = [], 0
    while position + 17 <= len(data):
        size = struct.unpack_from(">i", data, position + 8)[0] + 12
        if size < 26 or position + size > len(data):
            break
        found.append((position, size))
        position += size
    return found


def seal(data: bytearray, position: int, size: int) -> None:
    """Makes the CRC right again."""
    if 2 <= data[position + 16] < 128:
        struct.pack_into(">I", data, position + 17, crc32c(data[position + 21:position + size]))
    else:
        struct.pack_into(">I", data, position + 12, zlib.crc32(data[position + 16:position + size]))


def damaged(source: bytes, rng: random.Random) -> bytes:
    """The first batches of a log with a few fields or bytes changed, most CRCs repaired."""
    places = frames(source)[:8]
    if not places:
        return source
    data = bytearray(source[:sum(places[-1])])
    for _ in range(rng.choice([1, 1, 2, 3])):
        position, size = rng.choice(places)
        kind = rng.random()
        if kind < 0.4:
            at = position + rng.randrange(17, size)
            data[at] = rng.choice([rng.randrange(256), data[at] ^ 1 << rng.randrange(8), 0, 255])
        elif kind < 0.6 and size > 61:
            at = rng.choice([0, 12, 16, 21, 22, 23, 27, 35, 43, 51, 53, 57])
            format_ = {0: ">q", 16: ">b", 21: ">b", 22: ">b", 27: ">q", 35: ">q", 43: ">q",
                       51: ">h"}.get(at, ">i")
            width = 8 * struct.calcsize(format_)
            value = rng.choice(NUMBERS) & (2**width - 1)
            data[position + at:position + at + width // 8] = value.to_bytes(width // 8, "big")
        else:
            at = position + rng.randrange(17, size)
            for index in range(at, min(at + rng.randrange(1, 5), position + size)):
                data[index] = rng.choice([0, 1, 255, 128, rng.randrange(256)])
        if rng.random() < 0.85:
            seal(data, position, size)
    if rng.random() < 0.1:
        del data[rng.randrange(len(data)):]
    return bytes(data)


@pytest.mark.judge
def test_damaged_logs_print_what_kafka_prints(golden: Path, tmp_path: Path,
                                              kafka_lib: Path) -> None:
    rng = random.Random(20)
    logs = [path for path in sorted(golden.rglob("*.log")) + sorted(golden.rglob("*.checkpoint"))
            if "damaged" not in path.parts and 100 < path.stat().st_size < 200_000]
    jobs: list[Job] = []
    for number in range(1000):
        source = rng.choice(logs)
        options = list(LOG_OPTIONS[:5])
        for name, decoder in DECODERS.items():
            if name in str(source):
                options += 4 * [(decoder,)]
        target = tmp_path / str(number) / source.name
        target.parent.mkdir()
        target.write_bytes(damaged(source.read_bytes(), rng))
        jobs.append(("--files", str(target), *rng.choice(options)))
    wrong, deaths = differences(jobs, tmp_path / "out")
    assert not wrong, "\n".join(wrong[:20])
    assert deaths > 200


@pytest.mark.judge
def test_damaged_indexes_and_snapshots_print_what_kafka_prints(
        golden: Path, tmp_path: Path, kafka_lib: Path) -> None:
    rng = random.Random(21)
    segments = [path for path in sorted((golden / "real").rglob("*.log"))
                if path.with_suffix(".timeindex").exists() and path.stat().st_size > 1000]
    jobs: list[Job] = []
    for number in range(200):
        log = rng.choice(segments)
        target = tmp_path / str(number)
        target.mkdir()
        for source in sorted(log.parent.glob(f"{log.stem}.*")):
            data = bytearray(source.read_bytes())
            if source.suffix != ".log" and data and rng.random() < 0.7:
                for _ in range(rng.choice([1, 1, 3])):
                    at = rng.randrange(len(data))
                    data[at] = rng.choice([data[at] ^ 1 << rng.randrange(8), 0, 255])
                if source.suffix == ".snapshot" and len(data) > 6 and rng.random() < 0.6:
                    struct.pack_into(">I", data, 2, crc32c(data[6:]))
                data = data[:rng.randrange(len(data))] if rng.random() < 0.1 else data
            (target / source.name).write_bytes(data)
        for path in sorted(target.iterdir()):
            if path.suffix != ".log":  # one run a file, for Kafka's tool cuts odd bytes off indexes
                jobs.append(rng.choice(jobs_for([path])))
    wrong, deaths = differences(jobs, tmp_path / "out")
    assert not wrong, "\n".join(wrong[:20])
    assert deaths > 20


# ---- messages of every kind and version ---------------------------------------------------------

def write_log(path: Path, records: Sequence[tuple[bytes | None, bytes | None]], *,
              is_control: bool = False) -> None:
    """A log of one batch a record."""
    data = b""
    for offset, (key, value) in enumerate(records):
        record = Record(offset=offset, timestamp=5, key=key, value=value)
        data += v2.encode(Batch(base_offset=offset, last_offset_delta=0, records=[record],
                                base_timestamp=5, max_timestamp=5, is_control=is_control))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def maimed(data: bytes, rng: random.Random) -> bytes:
    """A message as it was, cut, or with a byte changed."""
    kind = rng.random()
    if kind < 0.6 or not data:
        return data
    if kind < 0.75:
        return data[:rng.randrange(len(data))]
    at = rng.randrange(len(data))
    byte = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
    return data[:at] + bytes([byte]) + data[at + 1:]


def coordinator_records(family: str, rng: random.Random) -> list[tuple[bytes, bytes | None]]:
    keys, values = messages(f"{family}-key"), messages(f"{family}-value")
    assert set(keys) == set(values)
    found: list[tuple[bytes, bytes | None]] = [(b"\x00\x63x", b"v"), (b"\x01", b"v")]
    for kind in sorted(keys) * 10:
        key = struct.pack(">h", kind) + encode_message(keys[kind], 0, rng)
        schema = values[kind]
        for version in range(schema.lowest, schema.highest + 1):
            value = struct.pack(">h", version) + encode_message(schema, version, rng)
            found.append((maimed(key, rng), maimed(value, rng)))
        found.append((key, None))
        found.append((key, struct.pack(">h", schema.highest + 1) + b"\x00\x00"))
    return found


def classic_groups(rng: random.Random) -> list[tuple[bytes, bytes | None]]:
    """Groups of protocol "consumer", whose members carry messages inside messages."""
    def inner(name: str) -> bytes:
        schema = message(name)
        version = rng.randrange(schema.lowest, schema.highest + 2)
        data = struct.pack(">h", version) + encode_message(schema, version, rng)
        data = maimed(data, rng)
        return struct.pack(">i", len(data)) + data

    found: list[tuple[bytes, bytes | None]] = []
    for _ in range(200):
        members = [b"\x00\x01m" + b"\xff\xff" + b"\x00\x01c" + b"\x00\x01h" + bytes(8)
                   + inner("ConsumerProtocolSubscription") + inner("ConsumerProtocolAssignment")
                   for _ in range(rng.randrange(3))]
        value = (b"\x00\x03" + b"\x00\x08consumer" + bytes(4) + b"\xff\xff\xff\xff" + bytes(8)
                 + struct.pack(">i", len(members)) + b"".join(members))
        found.append((b"\x00\x02\x00\x01g", value))
    return found


def framed_records(family: str, rng: random.Random) -> list[tuple[None, bytes | None]]:
    found: list[tuple[None, bytes | None]] = [
        (None, None), (None, b""), (None, b"\x00\x00\x00"), (None, b"\x02\x00\x00"),
        (None, b"\x01\x63\x00"), (None, b"\x01\xff\xff\x7f\x00"), (None, b"\x01\x00")]
    for schema in 10 * list(messages(family).values()):
        # Kafka does not look whether it knows the version: newer ones read like the newest.
        for version in range(schema.lowest, schema.highest + 2):
            value = (b"\x01" + unsigned_varint(schema.api_key) + unsigned_varint(version)
                     + encode_message(schema, version, rng))
            found.append((None, maimed(value, rng)))
    return found


def control_records(rng: random.Random) -> list[tuple[bytes, bytes]]:
    names = {2: "LeaderChangeMessage", 3: "SnapshotHeaderRecord", 4: "SnapshotFooterRecord",
             5: "KRaftVersionRecord", 6: "VotersRecord"}
    found = [(b"\x00\x00\x00\x07", b""), (b"\x00\x05\xff\xff", b"x"),
             (b"\x00\x00\x00\x01", b"\x00\x09\x00\x00\x00\x05more")]
    for kind, name in list(names.items()) * 6:
        data = bytearray(encode_message(message(name), 0, rng))
        data[:2] = rng.choice([b"\x00\x00", b"\x00\x01", b"\x00\x05"])
        found.append((struct.pack(">hh", 0, kind), bytes(data)))
    return found


def test_every_message_decodes_as_in_kafka(tmp_path: Path, kafka_lib: Path) -> None:
    rng = random.Random(22)
    logs = {
        "--offsets-decoder": coordinator_records("offsets", rng) + classic_groups(rng),
        "--transaction-log-decoder": 5 * coordinator_records("transaction", rng),
        "--share-group-state-decoder": 5 * coordinator_records("share", rng),
        "--cluster-metadata-decoder": framed_records("metadata", rng),
        "--remote-log-metadata-decoder": 20 * framed_records("remote", rng),
    }
    jobs: list[Job] = []
    for option, records in logs.items():
        path = tmp_path / option / "00000000000000000000.log"
        write_log(path, records)
        jobs += [("--files", str(path), option),
                 ("--files", str(path), option, "--skip-record-metadata")]
    path = tmp_path / "control" / "00000000000000000000.log"
    write_log(path, control_records(rng), is_control=True)
    jobs.append(("--files", str(path), "--deep-iteration"))
    wrong, deaths = differences(jobs, tmp_path / "out")
    assert not wrong, "\n".join(wrong)
    assert deaths == 0


def test_several_files_and_decoder_classes(golden: Path, tmp_path: Path, kafka_lib: Path) -> None:
    """What Kafka says at its end goes file by file in the order of a Java hash map. Files of odd
    names are there: of a name that is not, seglog says so before it prints anything."""
    paths = []
    for number in range(14):
        target = tmp_path / f"part-{number}" / "00000000000000000000.log"
        write_log(target, [(bytes(8), bytes(9)), (None, b"\xff" * 8), (b"\x01" * 8, None)])
        data = bytearray(target.read_bytes())
        struct.pack_into(">q", data, 0, number + 2)  # offsets are outside of the CRC
        target.write_bytes(data)
        paths.append(str(target))
    odd = [str(tmp_path / "none"), str(tmp_path / "x.foo"), "", str(tmp_path) + "//part-1//0.gone"]
    for name in (*filter(None, odd), str(tmp_path / "foo.log"), str(tmp_path / "foo.checkpoint")):
        Path(name).touch()
    package = "org.apache.kafka.tools.api"
    jobs: list[Job] = [
        ("--files", ",".join([*paths, *odd]), "--deep-iteration"),
        ("--files", paths[0], "--value-decoder-class", f"{package}.LongDecoder",
         "--key-decoder-class", f"{package}.IntegerDecoder"),
        ("--files", paths[0], "--key-decoder-class"),
        ("--files", paths[0], "--offsets-decoder"),
        ("--files", str(tmp_path / "foo.log")), ("--files", str(tmp_path / "7.log")),
        ("--files", str(tmp_path / "foo.checkpoint")), ("--files", str(tmp_path / "1.index")),
        ("--files", str(tmp_path / "1.timeindex")), ("--files", str(tmp_path / "1.snapshot")),
    ]
    wrong, deaths = differences(jobs, tmp_path / "out")
    assert not wrong, "\n".join(wrong)
    assert deaths == 7
