"""Configurations of sequences, and the themes that say which operations one is made of."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.sequences.batches import Look

Config = dict[str, str]

#: Values for `config` operations, legal ones; a topic of a real broker sees all of them.
CHANGES: dict[str, tuple[str, ...]] = {
    "internal.segment.bytes": ("300", "1024", "4096", "20000", "1048576"),
    "index.interval.bytes": ("0", "1", "100", "500", "4096"),
    "segment.index.bytes": ("12", "24", "40", "96", "1200", "65536"),
    "segment.ms": ("1", "1000", "60000", "3600000", "604800000"),
    "segment.jitter.ms": ("0", "1"),
    "retention.ms": ("-1", "0", "1000", "60000", "86400000"),
    "retention.bytes": ("-1", "0", "500", "5000", "1000000"),
    "cleanup.policy": ("delete", "compact", "compact,delete", ""),
    "compression.type": ("producer", "producer", "uncompressed", "gzip", "lz4", "zstd", "snappy"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "message.timestamp.before.max.ms": ("0", "5000", "9223372036854775807"),
    "message.timestamp.after.max.ms": ("0", "1000", "3600000", "9223372036854775807"),
    "max.message.bytes": ("200", "500", "1048588", "1048588", "1048588"),
    "flush.messages": ("1", "5", "9223372036854775807"),
    "max.compaction.lag.ms": ("1", "5000", "9223372036854775807"),
    "preallocate": ("true", "false"),
    "file.delete.delay.ms": ("0", "60000"),
    "compression.gzip.level": ("-1", "1", "9"),
    "compression.lz4.level": ("1", "9", "17"),
    "compression.zstd.level": ("1", "3", "9"),
    "min.compaction.lag.ms": ("0", "1000"),
    "delete.retention.ms": ("0", "86400000"),
    "unclean.leader.election.enable": ("true", "false"),
}
#: What Kafka refuses; the configuration stays refused until the key has a legal value again.
REFUSED: dict[str, tuple[str, ...]] = {
    "segment.ms": ("0", "-1", "x"), "retention.ms": ("-2",), "cleanup.policy": ("forever",),
    "index.interval.bytes": ("-1",), "compression.type": ("brotli",), "preallocate": ("maybe",),
    "message.timestamp.type": ("append",), "segment.bytes": ("1000", "13"),
    "segment.index.bytes": ("3",), "flush.messages": ("0",), "max.message.bytes": ("-1",),
    "compression.gzip.level": ("10", "0"), "compression.lz4.level": ("0", "18"),
}


@dataclass(frozen=True)
class Theme:
    """Weights of operations, and how often one is aimed to be refused."""

    name: str
    look: Look = Look()
    weights: dict[str, float] = field(default_factory=dict)
    wrong: float = .06
    begin: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: Whether tiering is on, and whether a RemoteLogManager copies and deletes.
    tiered: bool = False
    remote: bool = False


_BASE = {
    "append": 12, "idempotent": 4, "transactional": 4, "marker": 2, "old": .5, "several": .4,
    "follower": 1, "roll": .8, "flush": .8, "retention": .8, "retain": .6, "expire_producers": .2,
    "clock": 2, "truncate_to": .5, "truncate_fully": .1, "high_watermark": 3, "start_offset": .8,
    "epoch": .7, "epoch_start": .3, "config": .6, "bad_config": .1, "read": 4,
    "read_committed": 1, "timestamp": 2, "reopen": .8, "odd": 1, "odd_marker": .3, "raft": .05}

_USUAL = Look()


def _theme(name: str, look: Look = _USUAL, wrong: float = .06,
           begin: dict[str, tuple[str, ...]] | None = None, **weights: float) -> Theme:
    return Theme(name, look, {**_BASE, **weights}, wrong, begin or {})


THEMES = (
    _theme("mixed"),
    _theme("idempotent", idempotent=20, append=4, expire_producers=1, wrong=.2, truncate_to=1),
    _theme("transactional", transactional=14, marker=9, append=3, read=5, read_committed=5,
           high_watermark=5, odd_marker=1, truncate_to=1),
    _theme("follower", append=2, follower=16, truncate_to=2, truncate_fully=.5, epoch=3, raft=.3),
    _theme("rolling", roll=3, clock=5, reopen=1.5, begin={
        "internal.segment.bytes": ("300", "600", "1000", "1500"),
        "segment.ms": ("1000", "20000", "3600000"), "segment.index.bytes": ("12", "24", "48", "64"),
        "index.interval.bytes": ("0", "50", "100")}),
    _theme("retention", retention=3, retain=5, clock=4, start_offset=4, roll=2, begin={
        "retention.ms": ("0", "1000", "60000", "3600000"), "retention.bytes": ("-1", "0", "2000"),
        "internal.segment.bytes": ("300", "1000", "3000"),
        "cleanup.policy": ("delete", "delete", "compact,delete", "compact", "")}),
    _theme("truncation", truncate_to=6, truncate_fully=1.5, epoch=3, epoch_start=1, reopen=2,
           high_watermark=5, begin={"internal.segment.bytes": ("300", "800", "4000")}),
    _theme("formats", Look(append_time=.05), old=10, append=8, several=2, begin={
        "compression.type": ("producer", "gzip", "lz4", "zstd", "snappy", "uncompressed")}),
    _theme("times", Look(spread_ms=60_000, no_timestamp=.15, append_time=.1), clock=8, timestamp=9,
           begin={"message.timestamp.type": ("CreateTime", "LogAppendTime"),
                   "message.timestamp.before.max.ms": ("20000", "60000", "9223372036854775807"),
                   "message.timestamp.after.max.ms": ("20000", "3600000", "3600000"),
                   "internal.segment.bytes": ("600", "2000", "8000")}),
    _theme("hostile", Look(most_records=5), odd=16, odd_marker=3, wrong=.35, bad_config=.5),
    _theme("settings", config=8, bad_config=.5, append=14, reopen=1.5, retention=2),
    _theme("preallocated", reopen=3, roll=2, truncate_to=1.5, flush=2, begin={
        "preallocate": ("true",), "internal.segment.bytes": ("500", "2000", "10000")}),
    _theme("large", Look(most_records=150, most_bytes=110), append=16, begin={
        "internal.segment.bytes": ("20000", "60000", "1048576"),
        "index.interval.bytes": ("1000", "4096")}),
)

_KEYED = Look(keys=12, null_keys=.01, null_values=.25, most_records=8, most_bytes=60)
_COMPACTED = {
    "internal.segment.bytes": ("300", "600", "1500", "4096", "16384"),
    "cleanup.policy": ("compact", "compact", "compact", "compact,delete", "delete"),
    "delete.retention.ms": ("0", "1", "1000", "60000", "3600000", "86400000"),
    "min.compaction.lag.ms": ("0",) * 8 + ("1000", "60000"),
    "index.interval.bytes": ("0", "1", "100", "500", "4096")}
_OFTEN = {"clean": 5, "rounds": 1, "append": 12, "marker": 6, "roll": 1, "retain": .2, "read": 1,
          "read_committed": 2, "timestamp": 1, "config": .6, "clock": 1, "old": .2, "reopen": .6,
          "bad_config": .05, "odd": .3}

#: Settings of the log cleaner's own sequences, which `--clean` runs.
CLEANED_THEMES = (
    _theme("compacted", _KEYED, begin=_COMPACTED, **_OFTEN),
    _theme("compacted transactions", _KEYED, begin=_COMPACTED,
           **{**_OFTEN, "transactional": 16, "marker": 11, "append": 3, "high_watermark": 5}),
    _theme("compacted producers", replace(_KEYED, keys=5), begin=_COMPACTED,
           **{**_OFTEN, "idempotent": 14, "append": 4, "expire_producers": .5, "reopen": 1.5}),
    _theme("compacted follower", _KEYED, begin=_COMPACTED,
           **{**_OFTEN, "follower": 16, "append": 2, "truncate_to": 1.5, "epoch": 2}),
    _theme("compacted formats", replace(_KEYED, append_time=.1), begin=_COMPACTED,
           **{**_OFTEN, "old_follower": 10, "old": 3, "follower": 4}),
    _theme("compacted times", replace(_KEYED, spread_ms=60_000, no_timestamp=.15, append_time=.1),
           begin={**_COMPACTED, "message.timestamp.type": ("CreateTime", "LogAppendTime")},
           **{**_OFTEN, "clock": 6, "timestamp": 3}),
    _theme("compacted starts", _KEYED, begin=_COMPACTED,
           **{**_OFTEN, "start_offset": 4, "truncate_to": 2, "truncate_fully": .5, "reopen": 2,
              "retention": 1}),
    _theme("compacted large", replace(_KEYED, keys=300, most_records=150, most_bytes=110),
           begin={**_COMPACTED, "internal.segment.bytes": ("20000", "60000", "200000")}, **_OFTEN),
    _theme("compacted damage", _KEYED, wrong=.2, begin=_COMPACTED,
           **{**_OFTEN, "odd": 5, "odd_marker": 3, "follower": 8, "transactional": 6}),
)

_STRANGE = {**_OFTEN, "strange_clean": 5, "clean": 2, "read": 0, "read_committed": 0,
            "timestamp": 0, "reopen": .2, "truncate_to": 0, "truncate_fully": 0, "retain": 0,
            "retention": 0}
_SPOILED = {**_STRANGE, "strange_clean": 1.5, "clean": 4, "spoil": 5, "reopen": 0}

#: Rounds with any buffers and checkpoints, and over logs that were damaged on the disk, which
#: `--spoiled` runs.
SPOILED_THEMES = (
    _theme("strange rounds", _KEYED, begin=_COMPACTED, **_STRANGE),
    _theme("strange transactions", _KEYED, begin=_COMPACTED,
           **{**_STRANGE, "transactional": 16, "marker": 11, "append": 3, "high_watermark": 5}),
    _theme("strange formats", replace(_KEYED, append_time=.1), begin=_COMPACTED,
           **{**_STRANGE, "old_follower": 10, "old": 3, "follower": 4}),
    _theme("strange follower", _KEYED, wrong=.2, begin=_COMPACTED,
           **{**_STRANGE, "follower": 16, "append": 2, "odd": 3, "odd_marker": 3, "epoch": 2}),
    _theme("strange large", replace(_KEYED, keys=300, most_records=150, most_bytes=110),
           begin={**_COMPACTED, "internal.segment.bytes": ("20000", "60000", "200000")},
           **_STRANGE),
    _theme("spoiled", _KEYED, begin=_COMPACTED, **_SPOILED),
    _theme("spoiled transactions", _KEYED, begin=_COMPACTED,
           **{**_SPOILED, "transactional": 16, "marker": 11, "append": 3, "high_watermark": 5}),
    _theme("spoiled formats", replace(_KEYED, append_time=.1), begin=_COMPACTED,
           **{**_SPOILED, "old_follower": 10, "old": 3, "follower": 4}),
)

#: Settings of tiered logs, which `--tiered` runs. Truncations are left out: docs/differences.md
#: says how they differ.
TIERED_THEMES = tuple(
    replace(_theme(f"tiered {name}", begin={
        "remote.storage.enable": ("true",) * 7 + ("false",),
        "internal.segment.bytes": ("300", "600", "1500", "4096"),
        "retention.ms": ("-1", "60000", "3600000", "604800000"),
        "retention.bytes": ("-1", "2000", "20000"),
        "local.retention.ms": ("-2", "-2", "0", "1000", "60000"),
        "local.retention.bytes": ("-2", "-2", "0", "500", "2000"),
        "remote.log.copy.disable": ("false",) * 5 + ("true",),
        "cleanup.policy": ("delete",) * 4 + ("", "compact")}, **{
            "remote_end": 4, "remote_start": 1, "retain": 5, "retention": 2, "roll": 2, "clock": 3,
            "start_offset": 1, "timestamp": 3, "tier_config": .8, "truncate_to": 0,
            "truncate_fully": 0, "reopen": 1.5, **weights}), tiered=True)
    for name, weights in {
        "leader": {}, "producers": {"idempotent": 10, "transactional": 8, "marker": 6},
        "follower": {"append": 2, "follower": 16, "epoch": 3}, "starts": {
            "start_offset": 5, "remote_start": 4, "reopen": 3}}.items())
_READS = {"tier_retain": 12, "fetch": 14, "fetch_committed": 8, "find": 12, "tier_copy": 0,
          "tier_fail": .3, "tier_expire": .5}
#: The tasks and reads of a RemoteLogManager, which `--remote` runs. Where docs/differences.md says
#: that they differ, these do not go: truncations, lost leader epochs, offsets that no record has,
#: and a log that is too large and whose start a client moved.
REMOTE_THEMES = tuple(
    replace(_theme(f"remote {name}", Look(no_timestamp=0), 0, begin={
        "remote.storage.enable": ("true",), "internal.segment.bytes": ("300", "600", "1500"),
        "retention.ms": ("-1",) if name.startswith("reads") else (
            "-1", "60000", "3600000", "604800000"),
        "retention.bytes": ("2000", "5000") if name == "sizes" else ("-1",),
        "local.retention.ms": ("0",) if name.startswith("reads") else (
            "-2", "0", "1000", "60000"),
        "local.retention.bytes": ("-2", "0", "500", "2000"),
        "cleanup.policy": ("delete",)}, **{
            "tier_retain": 6, "tier_copy": 6, "tier_expire": 4, "follow": 1, "lead": .5,
            "tier_fail": 1.5, "custom": 0, "other_leader": .5, "fetch": 6, "fetch_committed": 3,
            "find": 5, "retention": 1, "retain": 1, "roll": 2, "clock": 2, "start_offset": 0,
            "timestamp": 0, "read": .5, "read_committed": .2, "tier_config": 0, "config": 0,
            "bad_config": 0, "truncate_to": 0, "truncate_fully": 0, "reopen": .7, "odd": .1,
            "odd_marker": .1, "old": 0, "raft": 0, "epoch": 1.5, "epoch_start": 0, "append": 10,
            "several": .2, "expire_producers": .1, **weights}), tiered=True, remote=True)
    for name, weights in {
        "leader": {}, "producers": {"idempotent": 6, "transactional": 10, "marker": 8},
        "elections": {"epoch": 6, "lead": 3, "other_leader": 3}, "starts": {"start_offset": 5},
        "sizes": {}, "reads": _READS, "reads of transactions": {
            **_READS, "transactional": 14, "marker": 10, "append": 3, "fetch_committed": 20},
        "reads after elections": {**_READS, "epoch": 5, "lead": 1, "other_leader": 1},
        "failures": {"tier_fail": 6, "other_leader": 2}, "custom": {"custom": 2, "tier_fail": 0},
        "follower": {"append": 2, "follower": 16, "epoch": 3, "follow": 5}}.items())
#: Any of these with crashes, which `--crashed` runs.
CRASHED_THEMES = tuple(replace(theme, name=f"crashed {theme.name}",
                               weights={**theme.weights, "crash": 5})
                       for theme in (*THEMES, *CLEANED_THEMES, *TIERED_THEMES))
#: What changes for a tiered topic while it runs.
TIER_CHANGES: dict[str, tuple[str, ...]] = {
    "remote.storage.enable": ("true", "true", "false"),
    "remote.log.copy.disable": ("true", "false"),
    "local.retention.ms": ("-2", "0", "1000", "60000"),
    "local.retention.bytes": ("-2", "0", "500", "5000")}


def first_config(source: random.Random, theme: Theme) -> Config:
    """The configuration that a sequence begins with: always one that Kafka takes."""
    config = {"internal.segment.bytes": source.choice(["500", "1500", "4096", "4096", "16384"]),
              "segment.index.bytes": source.choice(["65536", "65536", "1200", "120"]),
              "index.interval.bytes": source.choice(["0", "100", "300", "1000", "4096"])}
    for key, values in theme.begin.items():
        config[key] = source.choice(values)
    for key in source.sample(sorted(CHANGES), source.choice([0, 0, 1, 1, 2, 3])):
        config.setdefault(key, fitting(theme, key, source.choice(CHANGES[key])))
    if source.random() < .05 and config.get("preallocate") != "true":
        # The defaults of an unconfigured topic.
        config.pop("internal.segment.bytes")
    return config


def fitting(theme: Theme, key: str, value: str) -> str:
    """The value, or one in its place where the bytes of Kafka's own library are not to be had: what
    libzstd makes of more than a few KiB depends on its version."""
    is_large = theme.name.endswith("large")
    return "gzip" if is_large and (key, value) == ("compression.type", "zstd") else value


def themed(source: random.Random, themes: Sequence[Theme]) -> Theme:
    """The theme of a sequence; often without records that only some codecs have."""
    theme = source.choice(themes)
    if source.random() < .3:
        theme = replace(theme, look=replace(theme.look, codecs=(0,)))
    return theme
