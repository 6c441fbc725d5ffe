"""Seeded appends for LogValidator: sound ones, odd ones, and wrong ones under a valid CRC."""

from __future__ import annotations

import base64
import random
from typing import Any

from tests.hostile import decode_fuzz
from tests.oracle import batch as v2
from tests.oracle import legacy

NOW = 1_700_000_000_000
ORIGINS = ("CLIENT", "CLIENT", "CLIENT", "COORDINATOR", "RAFT_LEADER", "REPLICATION")
CODECS = (0, 0, 0, 1, 2, 3, 4)


def _timestamp(rng: random.Random) -> int:
    return rng.choice([NOW, NOW, NOW, NOW + rng.randint(-5000, 5000), NOW - 10**9, NOW + 10**8,
                       -1, 0, -2 if rng.random() < .1 else NOW])


def _blob(rng: random.Random) -> bytes | None:
    kind = rng.random()
    if kind < .12:
        return None
    if kind < .2:
        return b""
    if kind < .9:
        return rng.randbytes(rng.randint(1, 30))
    return b"abc" * rng.choice([30, 700, 12_000])


def _headers(rng: random.Random) -> v2.Headers:
    if rng.random() < .7:
        return []
    return [(rng.choice([b"", b"h", b"key", "é".encode(), b"\xed\xa0\x80", b"\xff", b"a\xc3"]),
             _blob(rng)) for _ in range(rng.randint(1, 4))]


def _batch(rng: random.Random) -> bytes:
    """A batch of magic 2, mostly as a producer sends it."""
    base = rng.choice([0, 0, 0, 0, 0, 0, 0, 5, -1])
    count = rng.choice([1, 1, 2, 3, 10, 0 if rng.random() < .2 else 4])
    first = _timestamp(rng)
    steady = rng.random() < .6
    records = [v2.Record(base + n, first + n if steady else _timestamp(rng), _blob(rng),
                         _blob(rng), _headers(rng)) for n in range(count)]
    if records and rng.random() < .1:
        rng.choice(records).offset += rng.choice([-1, 1, 7])
    largest = max((record.timestamp for record in records), default=-1)
    has_producer = rng.random() < .4
    batch = v2.Batch(
        base, count - 1 if rng.random() < .93 else rng.choice([0, count, -3, 2**31 - 1]), records,
        codec=rng.choice(CODECS), timestamp_type=int(rng.random() < .1),
        base_timestamp=rng.choice([first, first, first, NOW, 0]),
        max_timestamp=rng.choice([largest, largest, NOW, -1]),
        producer_id=7 if has_producer else -1, producer_epoch=rng.choice([0, 3, -1]),
        base_sequence=rng.choice([0, 0, 5, -1]) if has_producer else -1,
        partition_leader_epoch=rng.choice([-1, 3, 3, 4]),
        is_transactional=rng.random() < .1, is_control=rng.random() < .08,
        has_delete_horizon=rng.random() < .05)
    raw = v2.encode(batch)
    if rng.random() < .1:
        fields = list(v2.HEADER.unpack_from(raw))
        for _ in range(rng.randint(1, 2)):
            where, value = rng.choice([(5, fields[5] | 0x80), (5, fields[5] | 0x4000),
                                       (5, fields[5] & ~7 | rng.randint(5, 7)), (12, -1), (12, 0),
                                       (12, 7), (12, 2**31 - 1), (9, -5)])
            fields[where] = value
        if fields[5] >= 1 << 15:
            fields[5] -= 1 << 16
        raw = v2.seal(fields[0], fields[2], fields[5], fields[6], fields[7], fields[8], fields[9],
                      fields[10], fields[11], fields[12], raw[v2.HEADER.size:])
    return raw


def _old(rng: random.Random) -> bytes:
    """Messages of magic 0 or 1, alone or in a wrapper."""
    magic = rng.randint(0, 1)
    messages = [legacy.Message(n, magic, _blob(rng), _blob(rng),
                               timestamp=_timestamp(rng) if magic else -1,
                               timestamp_type=int(magic and rng.random() < .08))
                for n in range(rng.choice([1, 1, 2, 5]))]
    codec = rng.choice([0, 1, 2, 3])
    if not codec:
        return b"".join(map(legacy.encode, messages))
    wrapper = legacy.wrap(messages, codec, timestamp_type=int(magic and rng.random() < .1),
                          append_time=NOW)
    return legacy.encode(wrapper, rng.choice([None, None, 0, wrapper.offset + 5]))


def _records(rng: random.Random) -> bytes:
    parts = []
    for _ in range(rng.choice([1, 1, 1, 1, 1, 2, 3])):
        raw = _batch(rng) if rng.random() < .75 else _old(rng)
        if rng.random() < .25:
            try:
                raw = decode_fuzz.mutated(rng, raw)
            except Exception:  # the oracle does not read what was odd before: as it was, then
                pass
        parts.append(raw)
    data = b"".join(parts)
    if rng.random() < .08:
        data = data[:rng.randrange(len(data) + 1)]
    if rng.random() < .06:
        at = rng.randrange(len(data)) if data else 0
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
    if rng.random() < .04:
        data += rng.randbytes(rng.randint(1, 40))
    return data


def _config(rng: random.Random) -> dict[str, str]:
    config: dict[str, str] = {}
    if rng.random() < .5:
        config["compression.type"] = rng.choice(
            ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
    if rng.random() < .2:
        config["compression.gzip.level"] = str(rng.randint(1, 9))
        config["compression.lz4.level"] = str(rng.randint(1, 17))
        config["compression.zstd.level"] = str(rng.choice([-5, 1, 3, 9]))
    if rng.random() < .25:
        config["message.timestamp.type"] = "LogAppendTime"
    if rng.random() < .3:
        config["message.timestamp.before.max.ms"] = str(rng.choice([0, 3000, 10**10]))
    if rng.random() < .3:
        config["message.timestamp.after.max.ms"] = str(rng.choice([0, 3000, 2**63 - 1]))
    if rng.random() < .15:
        config["cleanup.policy"] = "compact"
    if rng.random() < .1:
        config["max.message.bytes"] = str(rng.choice([0, 100, 200]))
    return config


def cases(seed: int, count: int) -> list[dict[str, Any]]:
    """What Validate.java reads."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        origin = rng.choice(ORIGINS)
        found.append({
            "records": base64.b64encode(_records(rng)).decode(), "origin": origin,
            "assign": origin in ("CLIENT", "COORDINATOR"), "epoch": 3,
            "offset": rng.choice([0, 100, 2**40]), "now": NOW, "config": _config(rng)})
    return found
