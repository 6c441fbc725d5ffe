"""Batches that a load opens, under checksums that hold: markers of all codecs and old wrappers
whose records, framing or payload are wrong. What Kafka throws depends on how far it had read."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest

from tests.differential.compare import differences
from tests.differential.kafka import Oracle
from tests.differential.ours import load
from tests.oracle import batch as v2
from tests.oracle import compression, legacy
from tests.oracle.wire import varint
from tests.support.damage import Target
from tests.support.damage_records import _hostile_records

pytestmark = pytest.mark.judge

_SNAPPY = b"\x82SNAPPY\0" + b"\0\0\0\1" * 2
_CASES = 150

Make = Callable[[random.Random, Path], bytes]


def _numbers(rng: random.Random, data: bytes) -> bytes:
    """A wrong number in the framing."""
    at = rng.randrange(min(len(data), 28))
    raw = rng.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4), b"\0\0\0\x40",
                      b"\xff", b"\0", b"\xff\xff\xff\xff\x0f"])
    return data[:at] + raw + data[at + len(raw):]


def _snappy_streams(rng: random.Random, plain: bytes) -> bytes:
    """Several chunks, and several streams one behind the other, of which the last may be wrong."""
    out = _SNAPPY
    while plain:
        count = rng.randint(1, len(plain))
        block = bytes(cramjam.snappy.compress_raw(plain[:count]))
        out += len(block).to_bytes(4, "big") + block
        plain = plain[count:]
        out += rng.choice([b"", b"", _SNAPPY, _SNAPPY[:9], b"\x82SNAPPX\0" + _SNAPPY[8:],
                           _SNAPPY[:8] + bytes(8), b"\0\0\0\1\0"])
    return out


def _payload(rng: random.Random, codec: int, plain: bytes, magic: int = 2) -> bytes:
    """`plain` under `codec`, damaged in one of the ways that a codec can be."""
    data = compression.compress(codec, plain, magic=magic)
    kind = rng.randrange(10)
    if kind == 0:
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:]
    if kind == 1:
        return data[:rng.randrange(len(data) + 1)]
    if kind == 2:
        skipped = bytes([rng.randrange(0x4f, 0x61)]) + b"\x2a\x4d\x18\3\0\0\0abc"  # by zstd
        return data + rng.choice([b"\0", rng.randbytes(rng.randint(1, 40)), data, data[:-1],
                                  data[:rng.randrange(len(data))], bytes(40),
                                  skipped[:rng.randint(1, len(skipped))]])
    if kind == 3:
        return _numbers(rng, data)
    if kind == 4 and codec == compression.SNAPPY:
        return _snappy_streams(rng, plain)
    if kind == 4 and codec == compression.GZIP:
        raw = gzip.compress(plain, mtime=0)
        flags = rng.randrange(32)
        return raw[:3] + bytes([flags]) + raw[4:10] + rng.randbytes(rng.randrange(20)) + b"\0" + \
            raw[10:]
    if kind == 5 and codec == compression.SNAPPY:
        return compression.compress(codec, plain, raw_snappy=True)
    return data


def _marker(rng: random.Random, home: Path) -> bytes:
    """A control batch of any codec."""
    codec = rng.randrange(5)
    head = v2.encode(v2.Batch(5, 0, [v2.Record(5, 1000, bytes([0, 0, 0, rng.randrange(3)]),
                                               bytes(6))], base_timestamp=1000,
                              max_timestamp=1000, producer_id=1, producer_epoch=0,
                              is_control=True, is_transactional=True))[v2.HEADER.size:]
    plain = head * rng.choice([1, 1, 2, 200, 2000])
    count = len(plain) // len(head)
    if rng.random() < .5:
        plain += _hostile_records(Target(home, "", rng))[1]
        count += 1
    if rng.random() < .2:  # the hostile one is the first
        plain = plain[plain.index(head) + len(head) * (count - 1):] + plain[:len(head)]
        count = rng.choice([1, 2])
    if rng.random() < .2:
        count = rng.choice([0, 1, -1, count + 1, max(1, count - 1), -2**31])
    payload = _payload(rng, codec, plain or varint(0)) if codec else plain
    return v2.seal(base_offset=0, leader_epoch=0, magic=2, attributes=codec | 0x30,
                   last_offset_delta=0, base_timestamp=1000, max_timestamp=1000, producer_id=1,
                   producer_epoch=0, base_sequence=-1, record_count=count, payload=payload)


def _wrapper(rng: random.Random, home: Path) -> bytes:
    """A wrapper of magic 0 or 1, and a message that fits no segment with it: it is opened to be
    split off."""
    magic, codec = rng.randrange(2), rng.randrange(1, 4)
    one = legacy.Message(0, magic, b"k", rng.randbytes(rng.choice([1, 50, 3000])),
                         1000 if magic else -1)
    plain = b"".join(legacy.encode(one, number) for number in range(rng.choice([1, 2, 30])))
    if rng.random() < .3:
        plain = rng.choice([plain[:rng.randrange(len(plain))],
                            plain[:8] + b"\0\0\0\3" + plain[12:],
                            plain[:8] + b"\0\0\xff\xff" + plain[12:]])
    payload = _payload(rng, codec, plain, magic)
    wrapper = legacy.Message(30, magic, None, payload, one.timestamp, codec)
    last = legacy.Message(2**31 + 100, magic, b"k", b"v", one.timestamp)
    return legacy.encode(wrapper) + legacy.encode(last)


@pytest.mark.parametrize(("make", "seed"), [(_marker, 1), (_marker, 2), (_wrapper, 1)])
@pytest.mark.usefixtures("kafka_lib")
def test_kafka_throws_the_same(home: Path, make: Make, seed: int) -> None:
    wrong, refused = judged(home, make, seed, _CASES)
    assert not wrong, "\n".join(wrong)
    assert refused > _CASES / 5


def judged(home: Path, make: Make, seed: int, cases: int) -> tuple[list[str], int]:
    """(what differs, how many Kafka refuses) of generated batches."""
    rng, made = random.Random(seed), {}
    for root in ("kafka", "ours"):
        (home / root).mkdir()
    for number in range(cases):
        name = f"case-{number}"
        made[name] = make(rng, home)
        for root in ("kafka", "ours"):
            (home / root / name).mkdir()
            (home / root / name / f"{0:020d}.log").write_bytes(made[name])
    config = {"segment.index.bytes": "1024"}
    with Oracle() as oracle:
        kafka = oracle.load(home / "kafka", config)
    ours = load(home / "ours", config)
    wrong = [f"{name} {made[name].hex()[:600]}\n    {line}" for name, state in kafka.items()
             for line in differences(state, ours[name])]
    return wrong, sum("error" in state for state in kafka.values())
