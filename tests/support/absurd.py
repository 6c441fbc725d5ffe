"""Directories whose checksums and lengths are right and whose values are absurd."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

from tests.oracle import compression, files
from tests.oracle.log import Entry
from tests.oracle.wire import crc32c
from tests.support.damage import Kind, Target, damaging, old_message, splice

NUMBERS = [0, 1, -1, 2, 7, 2**7, 2**15 - 1, 2**31 - 1, 2**31, -2**31, 2**32, 2**53, 2**63 - 1,
           2**63 - 2, -2**63, 1 - 2**63]
#: Fields of a batch of magic 2: byte, and how it is packed.
FIELDS = [(0, ">q"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"),
          (43, ">q"), (51, ">h"), (53, ">i"), (57, ">i")]


def _pack(form: str, number: int) -> bytes:
    bits = 8 * struct.calcsize(form)
    number &= 2**bits - 1
    return number.to_bytes(bits // 8, "big")


def seal(data: bytes) -> bytes:
    """An entry of any format with the right length and CRC."""
    if len(data) < 18:
        return data
    data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
    if data[16] in (0, 1):
        return data[:12] + struct.pack(">I", zlib.crc32(data[16:])) + data[16:]
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def _changed(data: bytes, rnd: random.Random) -> bytes:
    """Some bytes otherwise: a bit, a number, a piece out, in or twice."""
    raw = bytearray(data or b"\0")
    for _ in range(rnd.choice([1, 1, 2, 5])):
        at = rnd.randrange(len(raw)) if raw else 0
        kind = rnd.randrange(6)
        if kind == 0 and raw:
            raw[at] ^= 1 << rnd.randrange(8)
        elif kind == 1 and raw:
            raw[at] = rnd.choice([0, 1, 2, 0x7f, 0x80, 0xff, rnd.randrange(256)])
        elif kind == 2:
            raw[at:at + 4] = _pack(">i", rnd.choice(NUMBERS))
        elif kind == 3:
            raw[at:at + rnd.randint(1, 20)] = b""
        elif kind == 4:
            raw[at:at] = rnd.randbytes(rnd.randint(1, 20))
        else:
            raw[at:at] = b"\xff\xff\xff\xff\x0f" * rnd.randint(1, 3)
    return bytes(raw)


a_batch = damaging(lambda t: t.place(lambda entry: entry.magic == 2))


@a_batch
def batch_field(t: Target, path: Path, entry: Entry) -> str:
    at, form = t.random.choice(FIELDS)
    number = t.random.choice(NUMBERS + [t.random.randrange(2**64)])
    data = entry.data[:at] + _pack(form, number) + entry.data[at + struct.calcsize(form):]
    splice(path, entry, seal(data))
    return f"{path.name}@{entry.position}: field at {at} is {number}"


@a_batch
def batch_records(t: Target, path: Path, entry: Entry) -> str:
    """Records of a batch changed inside of its compression."""
    codec, payload = entry.data[22] & 7, entry.data[61:]
    if codec <= 4 and payload:
        plain = _changed(compression.decompress(codec, payload), t.random)
        payload = compression.compress(codec, plain)
    if t.random.random() < .3:
        payload = _changed(payload, t.random)
    splice(path, entry, seal(entry.data[:61] + payload))
    return f"{path.name}@{entry.position}: records of codec {codec}"


@old_message
def message(t: Target, path: Path, entry: Entry) -> str:
    """A message of magic 0 or 1, or what its wrapper holds."""
    data = entry.data
    kind = t.random.randrange(4)
    if kind == 0:
        data = data[:17] + bytes([t.random.randrange(256)]) + data[18:]
    elif kind == 1:
        data = _pack(">q", t.random.choice(NUMBERS)) + data[8:]
    elif kind == 2:
        at = 18 if data[16] == 0 else t.random.choice([18, 26])
        data = data[:at] + _pack(">i", t.random.choice(NUMBERS)) + data[at + 4:]
    else:
        data = data[:17] + _changed(data[17:], t.random)
    splice(path, entry, seal(data))
    return f"{path.name}@{entry.position}: message, {kind}"


def index_entries(t: Target) -> str | None:
    path = t.some(t.random.choice([".index", ".timeindex"]))
    if path is None:
        return None
    forms = (">i", ">i") if path.suffix == ".index" else (">q", ">i")
    count = t.random.choice([1, 2, 10, 400])
    raw = b"".join(_pack(form, t.random.choice(NUMBERS + [t.random.randrange(20_000)]))
                   for _ in range(count) for form in forms)
    path.write_bytes(raw + bytes(t.random.choice([0, 0, 8, 12, 16384])))
    return f"{path.name}: {count} entries"


def txn_entries(t: Target) -> str | None:
    path = t.log().with_suffix(".txnindex")
    path.write_bytes(b"".join(
        struct.pack(">h", t.random.choice([0, 0, 0, 1, 256])) + b"".join(
            _pack(">q", t.random.choice(NUMBERS + list(range(2000, 2003)))) for _ in range(4))
        for _ in range(t.random.randint(1, 5))))
    return path.name


def snapshot(t: Target) -> str | None:
    path = t.some(".snapshot")
    if path is None:
        return None
    entries = b"".join(b"".join(_pack(form, t.random.choice(NUMBERS)) for form in (
        ">q", ">h", ">i", ">q", ">i", ">q", ">i", ">q")) for _ in range(t.random.randint(0, 4)))
    count = t.random.choice([len(entries) // 46, len(entries) // 46, *NUMBERS])
    body = _pack(">i", count) + entries
    path.write_bytes(struct.pack(">hI", t.random.choice([1, 1, 1, 0, 2]), crc32c(body)) + body)
    return path.name


def checkpoint(t: Target) -> str | None:
    name = t.random.choice(["recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
                            "replication-offset-checkpoint", "cleaner-offset-checkpoint"])
    number = t.random.choice(NUMBERS)
    text = t.random.choice([
        files.encode_checkpoint([f"{t.partition[:-2]} 0 {number}"]),
        f"0\n{number}\n", f"{number}\n0\n", files.encode_checkpoint(["x"]),
        files.encode_checkpoint([f"t {number} 5"]), "0\n1\n\xe9 0 5\n", ""])
    (t.root / name).write_bytes(text.encode("latin-1"))
    return f"{name}: {text!r}"


def epochs(t: Target) -> str | None:
    lines = [f"{t.random.choice(NUMBERS)} {t.random.choice(NUMBERS)}"
             for _ in range(t.random.randint(0, 4))]
    (t.dir / "leader-epoch-checkpoint").write_text(files.encode_checkpoint(lines))
    return f"leader epochs {lines}"


def metadata(t: Target) -> str | None:
    name, texts = t.random.choice([
        (t.dir / "partition.metadata", [
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n", b"version: 9\ntopic_id: x\n",
            b"version: 0\ntopic_id: " + b"x" * 2_000_000, b"\xff\xfe", b"version: 0\n",
            b"version: 99999999999999999999\ntopic_id: Sl08ZXU2QW6uF5hIoSzc8w\n"]),
        (t.root / "meta.properties", [
            b"version=1\ncluster.id=\\ud800\nnode.id=1\n", b"version=1\nnode.id=99999999999\n",
            b"version=\\u00\n", b"\xff\n", b"version=1\ndirectory.id=!\n", b"", b"version=0\n"]),
        (t.root / ".kafka_cleanshutdown", [
            b"", b"{", b"[]", b'{"version":0,"brokerEpoch":99999999999999999999999}',
            b'{"version":"x"}', b"\xff\xff", b"[" * 100_000])])
    text = t.random.choice(texts)
    name.write_bytes(text)
    return f"{name.name}: {text[:60]!r}"


def segment_name(t: Target) -> str | None:
    """A segment near the largest possible offset."""
    path = t.log()
    base = t.random.choice([2**63 - 1, 2**63 - 2, 2**31, 2**62, 0])
    target = path.with_name(f"{base:020d}.log")
    if target.exists():
        return None
    for other in t.dir.glob(path.name[:20] + ".*"):
        other.rename(t.dir / (f"{base:020d}" + other.name[20:]))
    if t.random.random() < .5:
        data = bytearray(target.read_bytes())
        data[:8] = _pack(">q", base)
        target.write_bytes(data)
    return f"{path.name} renamed to {base}"


KINDS: list[Kind] = [
    batch_field, batch_field, batch_field, batch_records, batch_records, message, message,
    index_entries, txn_entries, snapshot, checkpoint, epochs, metadata, segment_name]


def make_absurd(root: Path, partition: str, seed: int) -> list[str]:
    """One to three absurdities in a partition of a data directory."""
    rnd = random.Random(f"absurd-{seed}")
    target = Target(root, partition, rnd)
    return [str(rnd.choice(KINDS)(target)) for _ in range(rnd.choice([1, 1, 2, 3]))]
