"""Records for a broker, seeded, and the topics that the tests let it write."""

from __future__ import annotations

import random
from typing import Any

from tests.kafka.harness import Client

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = {"internal.segment.bytes": "16384", "index.interval.bytes": "512",
         "segment.index.bytes": "16384"}
TOPICS = {
    "mix": SMALL,
    "txn": SMALL,
    "append-time": {**SMALL, "message.timestamp.type": "LogAppendTime"},
    "preallocated": {**SMALL, "preallocate": "true"},
}


def records(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Keys and values of every kind, null and empty ones too, some with headers."""

    def blob(most: int) -> bytes | None:
        kind = rng.random()
        return None if kind < .1 else b"" if kind < .2 else \
            b"v" * rng.randint(1, most) if kind < .5 else rng.randbytes(rng.randint(1, most))

    return [{"key": blob(12), "value": blob(300),
             "headers": [(rng.choice(["trace", "", "имя"]), blob(20))
                         for _ in range(rng.choice([0, 0, 0, 1, 3]))]}
            for _ in range(count)]


def produce_mix(client: Client, rng: random.Random, rounds: int) -> None:
    """Every codec, plain and idempotent producers, all topics but the transactional one."""
    for number in range(rounds):
        codec = CODECS[number % len(CODECS)]
        idempotent = number % 2 == 0
        config = {"compression.type": codec, "linger.ms": "5",
                  "enable.idempotence": str(idempotent).lower(), "acks": "all"}
        for topic in ("mix", "append-time", "preallocated"):
            client.produce(topic, records(rng, rng.randint(1, 60)), config=config,
                           producer=f"{codec}-{idempotent}")


def produce_transactions(client: Client, rng: random.Random, rounds: int, *,
                         leave_open: bool) -> None:
    """Interleaved transactions, committed and aborted; at the end one may stay open."""
    names = ["t-0", "t-1", "t-2"]
    for _ in range(rounds):
        chosen = rng.sample(names, rng.randint(1, 3))
        for name in chosen * rng.randint(1, 3):
            client.produce("txn", records(rng, rng.randint(1, 6)), producer=name,
                           config={"transactional.id": name})
        client.produce("txn", records(rng, 2))
        for name in chosen:
            client.end_transaction(name, commit=rng.random() < .6)
    if leave_open:
        client.produce("txn", records(rng, 5), producer="t-0", config={"transactional.id": "t-0"})
        client.produce("txn", records(rng, 5))
