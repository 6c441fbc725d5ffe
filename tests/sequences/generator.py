"""Seeded sequences of operations, each of one theme; the same seed gives the same lines."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence as Many
from dataclasses import replace
from typing import Any

from tests.sequences import damage
from tests.sequences.appends import Appends
from tests.sequences.batches import Batches
from tests.sequences.settings import (
    CHANGES, REFUSED, THEMES, TIER_CHANGES, Theme, first_config, fitting, themed,
)
from tests.sequences.world import FAR, World

Op = dict[str, Any]
Sequence = dict[str, Any]

_HOUR, _DAY = 3_600_000, 86_400_000
_ISOLATIONS = ("LOG_END", "LOG_END", "HIGH_WATERMARK", "TXN_COMMITTED", "TXN_COMMITTED")


class Generator:
    """One sequence in the making."""

    def __init__(self, seed: int, number: int, themes: Many[Theme] = THEMES) -> None:
        self.random = random.Random(f"seglog {seed} {number}")
        self.name = f"s{seed}-{number}"
        self.theme = themed(self.random, themes)
        self.world = World(self.random)
        self.batches = Batches(self.random, self.theme.look, self.world.clock)
        self.appends = Appends(self.world, self.batches, self.theme.wrong,
                               plain=self.theme.remote)
        self.settings = self.world.settings
        self.settings.update(first_config(self.random, self.theme))
        room = self.world.setting("internal.segment.bytes", 2**30)
        if room < 1000:
            self.batches.look = replace(self.theme.look, most_records=3, most_bytes=room // 10)

    def sequence(self) -> Sequence:
        """The line: name, configuration and operations."""
        first = dict(self.settings)
        ops: list[Op] = []
        names, weights = list(self.theme.weights), list(self.theme.weights.values())
        count = self.random.choice([8, 20, 30, 40, 60])
        while len(ops) < count:
            name = self.random.choices(names, weights)[0]
            if hasattr(self.appends, name):
                ops.append(getattr(self.appends, name)())
            else:
                ops += getattr(self, name)()
        return {"name": self.name, "theme": self.theme.name, "config": first, "ops": ops,
                **({"tiered": True} if self.theme.tiered else {}),
                **({"remote": True} if self.theme.remote else {})}

    def _chance(self, much: float) -> bool:
        return self.random.random() < much

    # ---- the log as a whole

    def roll(self) -> list[Op]:
        return [{"op": "roll"}]

    def flush(self) -> list[Op]:
        return [{"op": "flush"}]

    def retention(self) -> list[Op]:
        return [{"op": "retention"}]

    def expire_producers(self) -> list[Op]:
        ops: list[Op] = [{"op": "expire_producers"}]
        return self._clock(self.world.clock + _DAY) + ops if self._chance(.5) else ops

    def clock(self) -> list[Op]:
        """Mostly on, a little or a lot; seldom back, and seldom beyond the times of the files."""
        world = self.world
        kind = self.random.random()
        if kind < .1:
            to = world.clock - self.random.choice([1, 1000, _HOUR, _DAY])
        elif kind < .13 and world.clock < FAR:
            to = FAR
        else:
            to = world.clock + self.random.choice([1, 100, 1000, 10_000, 60_000, _HOUR, _DAY,
                                                   8 * _DAY])
        return self._clock(to)

    def _clock(self, to: int) -> list[Op]:
        self.world.clock = self.batches.now = to
        return [{"op": "clock", "ms": to}]

    def reopen(self) -> list[Op]:
        self.world.high_watermark = self.world.start
        return [{"op": "reopen", "clean": self._chance(.55)}]

    def crash(self) -> list[Op]:
        """A reopening of less than was there: a torn tail, files that are gone, old checkpoints."""
        world = self.world
        world.high_watermark = world.start
        gone = self.random.sample([".index", ".timeindex", ".txnindex", ".snapshot",
                                   "leader-epoch-checkpoint"], self.random.choice([0, 0, 1, 2]))
        return [{"op": "crash", "clean": self._chance(.15), "gone": gone,
                 "cut": self.random.choice([0, 0, 1, 60, 100, self.random.randint(1, 2000), 10**6]),
                 "recovery_point": self.random.choice([0, 0, world.inside(), world.end]),
                 "start_offset": self.random.choice([None, None, None, 0, world.inside()])}]

    # ---- offsets

    def truncate_to(self) -> list[Op]:
        offset = self.world.inside() if self._chance(.8) else self.world.offset()
        if self._chance(.5) and self.world.end > 5:
            offset = max(self.world.start, self.world.end - self.random.randint(0, 12))
        if offset >= 0:
            self.world.cut(offset)
        return [{"op": "truncate_to", "offset": offset}]

    def truncate_fully(self) -> list[Op]:
        offset = self.random.choice([0, self.world.end, self.world.end + 10, self.world.inside(),
                                     5000])
        if offset >= 0:
            self.world.begin_at(offset)
        return [{"op": "truncate_fully", "offset": offset}]

    def high_watermark(self) -> list[Op]:
        world = self.world
        offset = world.end if self._chance(.5) else world.offset()
        if offset >= 0:
            world.high_watermark = max(world.start, min(offset, world.end))
        return [{"op": "high_watermark", "offset": offset}]

    def start_offset(self) -> list[Op]:
        """Mostly one that the high watermark allows."""
        world = self.world
        if self._chance(.15):
            offset = world.offset()
        else:
            low = min(world.start, world.high_watermark)
            offset = self.random.randint(low, world.high_watermark)
        if world.start < offset <= world.high_watermark:
            world.start = offset
        return [{"op": "start_offset", "offset": offset}]

    def epoch(self) -> list[Op]:
        """A new leader: the epoch of the appends that follow; seldom an old one."""
        step = self.random.choice([1, 1, 2, 5])
        self.world.epoch = max(0, self.world.epoch - 1) if self._chance(self.theme.wrong) \
            else self.world.epoch + step
        if self._chance(.4):
            return [{"op": "epoch_start", "epoch": self.world.epoch, "offset": self.world.end}]
        return []

    def epoch_start(self) -> list[Op]:
        epoch = self.world.epoch + self.random.choice([0, 1, 1, -1])
        offset = self.world.end if self._chance(.5) else self.world.offset()
        self.world.epoch = max(self.world.epoch, epoch)
        return [{"op": "epoch_start", "epoch": epoch, "offset": offset}]

    def retain(self) -> list[Op]:
        """Retention where it has something to do: replicated, and a while later."""
        later = self.world.clock + self.random.choice([0, 1001, 60_001, _HOUR + 1, _DAY])
        return [*self._replicated(), *self._clock(later), {"op": "retention"}]

    def _replicated(self) -> list[Op]:
        self.world.high_watermark = self.world.end
        return [{"op": "high_watermark", "offset": self.world.end + self.random.choice([0, 9])}]

    # ---- tiering

    def remote_end(self) -> list[Op]:
        """A segment was copied: mostly one that ends in the log, below what is replicated."""
        world = self.world
        offset = self.random.choice([*world.bases, world.end, world.offset()]) - 1
        return [*(self._replicated() if self._chance(.7) else []),
                {"op": "remote_end", "offset": offset}]

    def remote_start(self) -> list[Op]:
        """The oldest remote segments are gone."""
        world = self.world
        offset = world.inside() if self._chance(.8) else world.offset()
        if world.start < offset <= world.high_watermark:
            world.start = offset
        return [{"op": "remote_start", "offset": offset}]

    def tier_config(self) -> list[Op]:
        """Also a policy or a limit that forbids what is set."""
        key = self.random.choice(sorted(TIER_CHANGES))
        return [self._set(key, self.random.choice(TIER_CHANGES[key]))]

    def lead(self) -> list[Op]:
        return [{"op": "lead"}]

    def tier_copy(self) -> list[Op]:
        return [*(self._replicated() if self._chance(.8) else []), {"op": "copy"}]

    def tier_expire(self) -> list[Op]:
        return [{"op": "expire"}]

    def follow(self) -> list[Op]:
        return [{"op": "follow"}]

    def tier_retain(self) -> list[Op]:
        """Copies, and deletes a while later what is old, of the disk and of remote storage."""
        later = self.world.clock + self.random.choice([0, 1001, 60_001, _HOUR + 1])
        return [*self._replicated(), {"op": "copy"}, *self._clock(later), {"op": "retention"},
                *([{"op": "expire"}] if self._chance(.3) else [])]

    def tier_fail(self) -> list[Op]:
        """The next call of the store or of the metadata fails, and mostly comes at once."""
        call = self.random.choice(["copy", "copy", "delete", "delete", "fetch", "index", "add",
                                   "update", "update"])
        kind = self.random.choice(["storage", "storage", "retriable", "other"])
        then: list[Op] = {"copy": self.tier_retain, "add": self.tier_retain,
                          "update": self.tier_retain, "delete": self.tier_expire,
                          "fetch": self.fetch, "index": self.fetch}[call]()
        return [{"op": "fail", "call": call, "kind": kind}, *(then if self._chance(.7) else [])]

    def custom(self) -> list[Op]:
        return [{"op": "custom", "bytes": self.random.choice([-1, -1, 0, 16, 17])}]

    def other_leader(self) -> list[Op]:
        return [{"op": "other_leader", "state": self.random.choice([0, 1])}]

    def fetch(self) -> list[Op]:
        return [{**one, "op": "fetch"} for one in self.read()]

    def fetch_committed(self) -> list[Op]:
        return [{**one, "op": "fetch"} if one["op"] == "read" else one
                for one in self.read_committed()]

    def find(self) -> list[Op]:
        return [{**one, "op": "find"} for one in self.timestamp()]

    # ---- cleaning

    def clean(self) -> list[Op]:
        """A round of the log cleaner, mostly with something to clean; at times its map is full."""
        ops: list[Op] = [*(self._replicated() if self._chance(.9) else []),
                         *(self.roll() if self._chance(.85) else [])]
        room = self.random.choice([1 << 20] * 5 + [24 * 3, 24 * 8, 24 * 40])
        # The times of files decide about tombstones of old formats, so the op names them.
        return [*ops, {"op": "clean", "dedupe_bytes": room, "modified": 1_700_000_000_000}]

    def strange_clean(self) -> list[Op]:
        """A round with other buffers, another load factor, or a checkpoint of any offset."""
        *ops, op = self.clean()
        choose = self.random.choice
        op |= {"io_bytes": choose([1, 17, 61, 100, 300, 1000, 65536]),
               "max_io_bytes": choose([1, 100, 500, 2000, 1 << 20, 1 << 20]),
               "load_factor": choose([.9, .9, .5, 1, 0.07, 0])}
        if self._chance(.4):
            op["checkpoint"] = choose([None, self.world.offset(), self.world.inside()])
        if self._chance(.3):
            op["dedupe_bytes"] = 24 * choose([1, 2, 3, 5, 9])
        return [*ops, op]

    def spoil(self) -> list[Op]:
        """Damage on the disk, mostly of a segment that a round will read next."""
        source = self.random
        kind = ".txnindex" if self._chance(.1) else ".log"
        op: Op = {"op": "spoil", "segment": source.randrange(12), "kind": kind,
                  "batch": source.randrange(30), "add": 0, "at": 0, "bytes": "",
                  "seal": self._chance(.6), **damage.on_disk(source, of_log=kind == ".log")}
        return [*(self.roll() if self._chance(.7) else []), op,
                *(self.clean() if self._chance(.5) else [])]

    def rounds(self) -> list[Op]:
        """Several of them, with time for tombstones and markers to go in between."""
        ops: list[Op] = []
        for _ in range(self.random.randint(2, 4)):
            if self._chance(.6):
                ops += [getattr(self.appends, self.random.choice(["append", "marker"]))()]
            later = self.world.setting("delete.retention.ms", _DAY) + self.random.choice([-1, 0, 1])
            ops += [*self.clean(), *self._clock(self.world.clock + max(0, later))]
        return ops

    # ---- settings

    def config(self) -> list[Op]:
        key = self.random.choice(sorted(CHANGES))
        return [self._set(key, self.random.choice(CHANGES[key]))]

    def _set(self, key: str, value: str) -> Op:
        change = {key: fitting(self.theme, key, value)}
        if key == "preallocate" and "internal.segment.bytes" not in self.settings:
            change["internal.segment.bytes"] = "4096"  # a gigabyte is too much to hash
        self.settings.update(change)
        return {"op": "config", "set": change}

    def bad_config(self) -> list[Op]:
        """A value that is refused, and soon one that is not: till then nothing is taken."""
        key = self.random.choice(sorted(REFUSED))
        before = self.settings.get(key, "1048576" if key == "segment.bytes" else None)
        good = before if before is not None else self.random.choice(CHANGES[key])
        return [{"op": "config", "set": {key: self.random.choice(REFUSED[key])}},
                *self._between(), self._set(key, good)]

    def _between(self) -> list[Op]:
        return [self.appends.append()] if self._chance(.5) else []

    # ---- questions

    def read(self) -> list[Op]:
        return [{"op": "read", "offset": self.world.offset(),
                 "max_bytes": self.random.choice([0, 1, 100, 500, 4096, 1 << 20, 1 << 20]
                                                 + [-1] * self._chance(self.theme.wrong)),
                 "isolation": self.random.choice(_ISOLATIONS), "min_one": self._chance(.6)}]

    def read_committed(self) -> list[Op]:
        """What a consumer of transactions gets of all that is replicated."""
        world = self.world
        offset = self.random.choice([world.start, world.inside()])
        return [*(self._replicated() if self._chance(.7) else []),
                {"op": "read", "offset": offset, "isolation": "TXN_COMMITTED", "min_one": True,
                 "max_bytes": self.random.choice([1 << 20, 1 << 20, 300])}]

    def timestamp(self) -> list[Op]:
        now = self.world.clock
        special = self._chance(.4)
        return [{"op": "timestamp", "ts": self.random.choice(
            [-1, -2, -3, -3, -3, -4, -5, -6, -7, 0, 2**62] if special else
            [now, now - 1000, now - self.random.randint(-2000, 5000), now - _HOUR, now - _DAY,
             now + 1, now - self.random.randint(-60_000, 60_000)])}]


def generate(seed: int, numbers: range, themes: Many[Theme] = THEMES) -> Iterator[Sequence]:
    """Sequences by their numbers; each is independent of the others."""
    for number in numbers:
        yield Generator(seed, number, themes).sequence()
