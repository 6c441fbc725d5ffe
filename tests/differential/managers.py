"""Whole data directories, loaded and shut down by Kafka's LogManager and by ours: the same logs are
served, and the same files are left. `python -m tests.differential --loader manager`."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import seglog
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import AllLogDirsFailedError
from seglog.log.unified_log import UnifiedLog
from seglog.storage.meta import format_uuid
from seglog.storage.paths import FileKind, FileState, parse_file_name
from tests.differential import manager_work, registry
from tests.differential.cases import OTHER_CONFIGS, remove_unspeakable
from tests.differential.damage_odd import KINDS
from tests.differential.judge import Verdict
from tests.differential.ours import EXPIRATION_MS
from tests.differential.sources import GOLDEN_CONFIG, Source, Sources
from tests.kafka import harness
from tests.kafka.answering import Answering
from tests.support.damage import Target
from tests.support.scratch import scratch

State = dict[str, Any]

CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
               "cleaner-offset-checkpoint")
_MARKER = ".kafka_cleanshutdown"
#: Not Kafka's LogManager's to write, but its ReplicaManager's; and the lock, which stays when
#: another directory is offline (LogManager.shutdown releases that one twice, which fails).
#: Through a link from a temporary name Kafka makes the file that it leads to.
_NOT_COMPARED = ("replication-offset-checkpoint", ".lock", "nowhere")
_OF_STRAYS = ("leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp")
#: Kinds for one log that hold the time of a JVM, or many megabytes, or that others are for.
_LEFT_OUT = {"directory_of_another_kind", "sealed_payload_flipped", "sealed_payload_cut",
             "sealed_payload_longer", "sealed_hostile_record", "decompressed_size_lies"}
#: Messages that name what is found first, or second.
_RACES = ("For input string", "Duplicate log directories")
#: From here on docs/differences.md has an append.
_LAST_OFFSETS = 2**63 - 2**31
_META = ("#\n#Sat Oct 25 10:00:00 UTC 2025\ncluster.id=l0CdkZGeTjaX9ux5Y2kFIg\nversion=1\n"
         "directory.id={}\nnode.id=1\n")
_IDS = ("q0n3XIYaR9K1yH5yLkX1Pg", "q0n3XIYaR9K1yH5yLkX2Pg")


@dataclass(frozen=True)
class WholeCase:
    """Data directories with some partitions each, what is damaged, and how both load them.
    `damages` are (number of the root, partition, kind, seed)."""

    seed: int
    number: int
    sources: tuple[tuple[int, Source], ...]
    damages: tuple[tuple[int, str, str, str], ...]
    clean: tuple[bool, ...]
    config: tuple[tuple[str, str], ...]
    tiered: bool
    strays: tuple[str, ...]
    #: Whether our logs are opened, or stay rows.
    asks: bool
    segment_threads: int
    #: Producers that did nothing for so long are forgotten.
    expiration_ms: int
    #: What is done to each log after the start.
    work: tuple[str, ...] = ()
    #: Whether both start once more, and whether they then find that the end was clean.
    again: bool | None = None

    @property
    def name(self) -> str:
        return f"whole-{self.seed}-{self.number:06d}"

    @property
    def source(self) -> str:
        return "; ".join(f"k{root}: {source}" for root, source in self.sources)

    def roots(self, home: Path) -> list[Path]:
        return [home / f"k{number}" for number in range(len(self.clean))]

    def build(self, sources: Sources, home: Path, only: set[int] | None = None) -> list[str]:
        """Makes the data directories in `home`; what was done."""
        roots = self.roots(home)
        for number, root in enumerate(roots):
            _gather(sources, [one for at, one in self.sources if at == number], root)
            (root / "meta.properties").write_text(_META.format(_IDS[number]))
            if self.clean[number]:
                (root / _MARKER).write_text('{"version":0,"brokerEpoch":3}')
        done = []
        for number, (at, partition, kind, seed) in enumerate(self.damages):
            if only is None or number in only:
                did = _apply(kind, roots[at], partition, seed)
                if did is not None:
                    done.append(f"{kind}: {did}")
        remove_unspeakable(home)
        for root in (one for one in roots if self.work and one.is_dir()):
            # Ours reads it at a truncation, Kafka's with its cleaner, which does not run here.
            _remove(root / "cleaner-offset-checkpoint")
        return done or ["nothing"]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _apply(kind: str, root: Path, partition: str, seed: str) -> str | None:
    if kind not in KINDS:
        return registry.apply(kind, root, partition, seed)
    try:
        return KINDS[kind](Target(root, partition, random.Random(f"{kind}-{seed}")))
    except (AssertionError, OSError, IndexError, ValueError):
        return None  # an earlier damage removed what this one needs


def _gather(sources: Sources, chosen: Iterable[Source], root: Path) -> None:
    """A data directory of several partitions and the lines of their checkpoints."""
    root.mkdir(parents=True)
    lines: dict[str, list[str]] = {name: [] for name in CHECKPOINTS}
    for source in chosen:
        part = root.with_name(f"{root.name}.part")
        sources.copy(source, part)
        for path in part.iterdir():
            if path.is_dir():
                topic, _, number = path.name.rpartition("-")
                for name, found in lines.items():
                    text = (part / name).read_text() if (part / name).exists() else ""
                    found += [line for line in text.splitlines()[2:]
                              if line.split()[:2] == [topic, number]]
                os.replace(path, root / path.name)
        shutil.rmtree(part)
    for name, found in lines.items():
        (root / name).write_text(f"0\n{len(found)}\n" + "".join(f"{one}\n" for one in found))


def plan_whole(sources: Sources, seed: int, number: int) -> WholeCase:
    """Case `number` of `seed`."""
    rng = random.Random(f"whole/{seed}/{number}")
    roots = rng.choice([1, 1, 2])
    found: dict[tuple[int, str], Source] = {}
    for _ in range(rng.choice([1, 2, 3, 5])):
        source, root = sources.choose(rng, seed), rng.randrange(roots)
        name = f"{source.partition}-0" if source.home == "built" else source.partition
        # One partition in two directories seldom: a broker does not start with it.
        if name not in {other for _, other in found} or rng.random() < .1:
            found[root, name] = source
    both = [*KINDS] * 3 + sorted(set(registry.kinds()) - _LEFT_OUT)
    damages = tuple(
        (*rng.choice(sorted(found)), rng.choice(both), f"{seed}-{number}-{at}")
        for at in range(rng.choice([0, 1, 1, 2, 3])))
    config = dict(GOLDEN_CONFIG)
    if rng.random() < .25:
        config.update(rng.choice(OTHER_CONFIGS))
    tiered = rng.random() < .2
    if tiered and rng.random() < .8:
        config["remote.storage.enable"] = "true"
    if rng.random() < .1:
        config["cleanup.policy"] = "compact"
    strays = [name for _, name in found if rng.random() < .5] if rng.random() < .1 else []
    if rng.random() < .03:
        strays = ["*"]
    work = tuple(manager_work.operations(rng)) if rng.random() < .3 else ()
    if work:
        config.update({"retention.ms": "-1", "retention.bytes": "20000"})
    return WholeCase(seed, number, tuple((root, one) for (root, _), one in found.items()), damages,
                     tuple(rng.random() < .5 for _ in range(roots)), tuple(sorted(config.items())),
                     tiered, tuple(strays), rng.random() < .5, rng.choice([1, 3]),
                     rng.choice([EXPIRATION_MS, EXPIRATION_MS, 3_600_000]), work,
                     rng.choice([None, None, None, True, False]))


def _state(log: UnifiedLog, is_future: bool) -> State:
    return {"partition": str(log.topic_partition), "future": is_future,
            "log_start_offset": log.log_start_offset,
            "local_log_start_offset": log.local_log_start_offset,
            "recovery_point": log.recovery_point, "log_end_offset": log.log_end_offset,
            "topic_id": None if log.topic_id is None else format_uuid(log.topic_id),
            "segments": log.segments.base_offsets.tolist(),
            "leader_epochs": [[one.epoch, one.start_offset] for one in log.leader_epochs],
            "producers": sorted(
                [one.producer_id, one.producer_epoch, one.last_data_offset,
                 one.last_timestamp, one.coordinator_epoch,
                 -1 if one.current_txn_first_offset is None else one.current_txn_first_offset]
                for one in log.producers.entries)}


def load_whole(case: WholeCase, home: Path) -> State:
    """What our LogManager serves, or how its start ended."""
    roots = case.roots(home)
    strays = set(case.strays)
    how: State = {"is_stray": lambda log: "*" in strays or str(log.topic_partition) in strays
                  } if strays else {}
    scheduler = seglog.Scheduler()
    if case.work:
        how["scheduler"] = scheduler
    manager = None
    try:
        manager = seglog.LogManager(
            roots, log_config=LogConfig.from_properties(dict(case.config)),
            config=BrokerConfig.from_properties({
                "producer.id.expiration.ms": str(case.expiration_ms),
                "remote.log.storage.system.enable": str(case.tiered).lower(),
                "log.cleaner.enable": "false",
                "num.segment.loading.threads.per.data.dir": str(case.segment_threads)}), **how)
        manager.startup()
        offline = [str(root) for root in roots if str(root) not in manager.live_log_dirs]
        found: State = {"offline": offline}
        if case.asks:
            found["logs"] = {log.path: _state(log, log in manager._state.table.future.values())
                             for log in manager.all_logs}
        else:
            found["partitions"] = sorted(map(str, manager._state.table.current_keys()))
        if case.work:
            found["work"] = manager_work.run_all(manager, scheduler, case.work)
        return found
    except AllLogDirsFailedError:
        return {"error": "Halted", "message": "null"}  # at which a broker ends
    except seglog.SeglogError as error:
        return {"error": error.kafka_name, "message": str(error)}
    finally:
        if manager is not None:
            manager.shutdown(broker_epoch=5)


def files_of(root: Path) -> dict[str, bytes]:
    """Every file and directory below, also behind links; the lines of a checkpoint have no order,
    and what a new name has of its own is left out."""
    found: dict[str, bytes] = {}
    for folder, folders, names in os.walk(root, followlinks=True):
        there = _plain(os.path.relpath(folder, root))
        # Kafka writes the epochs of a log that turns out stray before its renaming or after it.
        skipped = _OF_STRAYS if there.endswith("-stray") else _NOT_COMPARED
        for name in folders:
            found[os.path.join(there, _plain(name), "")] = b""
        for name in names:
            path = Path(folder, name)
            if path.is_file() and name not in skipped:
                raw = path.read_bytes()
                if name in CHECKPOINTS:
                    # Without their number: Kafka writes lines of topics with blanks and
                    # `line\nbreak`, too.
                    raw = b"".join(sorted(line for line in raw.splitlines(keepends=True)
                                          if len(line.split()) == 3 and b"break" not in line))
                found[os.path.join(there, name)] = raw
    return found


class ManagerJudge:
    """One JVM of Manager.java; `with` ends it and removes all copies."""

    def __init__(self, golden: Path) -> None:
        self.home = scratch()
        self.sources = Sources(golden, self.home / "sources")
        self.kafka = Answering(lambda: harness.command("Manager", options=["-Xmx2g"]), 300)

    def __enter__(self) -> ManagerJudge:
        return self

    def __exit__(self, *_: object) -> None:
        self.kafka.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def judge(self, seed: int, numbers: Iterable[int]) -> Iterator[Verdict]:
        """The verdict of each case."""
        for number in numbers:
            yield self.judge_case(plan_whole(self.sources, seed, number))

    def _ask(self, case: WholeCase, home: Path) -> State:
        self.kafka.send({"roots": [str(root) for root in case.roots(home)],
                         "config": dict(case.config), "tiered": case.tiered,
                         "strays": list(case.strays), "expiration_ms": case.expiration_ms,
                         "work": list(case.work)})
        assert self.kafka.process.stdout is not None
        line = self.kafka.process.stdout.readline()
        if not line:
            raise RuntimeError(f"Manager.java ended with {self.kafka.process.wait()}")
        found: State = json.loads(line)
        return found

    def judge_case(self, case: WholeCase, only: set[int] | None = None) -> Verdict:
        """The verdict of a case, or of a part of its damages."""
        home = self.home / case.name
        shutil.rmtree(home, ignore_errors=True)
        theirs, mine = home / "kafka" / "data", home / "ours" / "data"
        try:
            done = case.build(self.sources, theirs, only)
            case.build(self.sources, mine, only)
            kafka, ours, wrong = self._compared(case, theirs, mine)
            if case.again is not None and not wrong and "error" not in kafka | ours \
                    and not kafka["offline"] and not ours["offline"] and _can_go_on(theirs) \
                    and not (case.work and _is_at_the_last_offsets(kafka)):
                if not case.again:
                    for root in (*case.roots(theirs), *case.roots(mine)):
                        (root / _MARKER).unlink(missing_ok=True)
                kafka, ours, wrong = self._compared(case, theirs, mine)
                wrong = [f"again: {one}" for one in wrong]
            return Verdict(case, done, kafka, ours, wrong)  # type: ignore[arg-type]
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def _compared(self, case: WholeCase, theirs: Path, mine: Path
                  ) -> tuple[State, State, list[str]]:
        """What both say of their copies, and what differs."""
        kafka = self._ask(case, theirs)
        try:
            ours = load_whole(case, mine)
            return kafka, ours, list(_wrong(case, _without(kafka, theirs), _without(ours, mine),
                                            theirs, mine))
        except Exception as error:
            return kafka, {}, ["".join(traceback.format_exception(error)[-4:])]

    def minimise(self, verdict: Verdict) -> Verdict:
        """The smallest part of the damages that still makes a difference."""
        numbers = set(range(len(verdict.case.damages)))
        best, shrunk = verdict, True
        while shrunk and numbers:
            shrunk = False
            for number in sorted(numbers):
                part = self.judge_case(verdict.case, numbers - {number})  # type: ignore[arg-type]
                if part.wrong:
                    numbers, best, shrunk = numbers - {number}, part, True
                    break
        return best


def _without(answer: State, home: Path) -> State:
    """An answer without the path of the copy, and without what a new name has of its own."""
    found: State = json.loads(_plain(json.dumps(answer).replace(str(home), "")))
    return found


def _plain(text: str) -> str:
    return re.sub(r"lastModifiedTime=\d+", "", re.sub(r"\.[0-9a-f]{32}-", ".UNIQUE-", text))


def _is_documented(kafka: State, ours: State, blocked: set[str], roots: set[str]) -> bool:
    """Whether docs/differences.md tells how these two starts differ. `blocked` are the data
    directories for which `_blocked` is true, of all `roots`."""
    # With its last directory our start ends too.
    offline = roots if ours.get("error") == "Halted" else set(ours.get("offline", ()))
    if "error" in kafka and offline & blocked:
        return True  # at a log that is not loaded here
    return kafka.get("message") in {
        f"The log dir {root} is already offline due to a previous IO exception."
        for root in offline} or blocked >= offline ^ {*kafka.get("offline", offline)} != set()


def _is_at_the_last_offsets(kafka: State) -> bool:
    """Whether an append to a log may be one of those that docs/differences.md tells."""
    return any(log["segments"][-1] > _LAST_OFFSETS for log in kafka.get("logs", {}).values())


def _blocked(root: Path) -> bool:
    """Whether a directory lies where a segment has its index or snapshot, or in the place of the
    lock, or a link in the place of a file."""
    return any(path.suffix in (".index", ".timeindex", ".snapshot") or path.name == ".lock"
               if path.is_dir() else path.is_symlink()
               for path in (*root.glob("*"), *root.glob("*/*")))


def _can_go_on(home: Path) -> bool:
    """False if Kafka wrote a topic with blanks into its checkpoints, which it cannot read."""
    return not any(len(path.name.split()) > 1 for path in home.glob("*/*"))


def _doubled(names: Iterable[str]) -> set[str]:
    """Producer snapshots of one offset under several names. Which of them Kafka reads, and deletes,
    depends on the file system."""
    found: dict[tuple[str, int], set[str]] = {}
    for name in names:
        folder, last = os.path.split(name)
        parsed = parse_file_name(last)
        if parsed.kind is FileKind.SNAPSHOT and parsed.state is FileState.LIVE \
                and parsed.offset is not None:
            found.setdefault((folder, parsed.offset), set()).add(name)
    return {name for several in found.values() if len(several) > 1 for name in several}


def _wrong(case: WholeCase, kafka: State, ours: State, theirs: Path, mine: Path) -> Iterator[str]:
    roots = {f"/{root.name}" for root in case.roots(mine)}
    blocked = {f"/{root.name}" for root in case.roots(mine) if _blocked(root)}
    if _is_documented(kafka, ours, blocked, roots) or (
            case.work and (blocked or _is_at_the_last_offsets(kafka))):
        return
    if ("error" in kafka) != ("error" in ours):
        yield f"Kafka {_short(kafka)}, here {_short(ours)}"
    if "error" in kafka or "error" in ours:
        # Which of several logs is named is a race.
        directories = sum(path.is_dir() for path in theirs.glob("*/*"))
        if directories == 1 and kafka != ours and kafka.get("error") == ours.get("error") \
                and not kafka["message"].startswith(_RACES):
            yield f"Kafka {_short(kafka)}, here {_short(ours)}"
        return
    if sorted(kafka["offline"]) != sorted(ours["offline"]):
        yield f"offline: Kafka {kafka['offline']}, here {ours['offline']}"
    elif "partitions" in ours:
        served = sorted(one["partition"] for one in kafka["logs"].values() if not one["future"])
        if served != ours["partitions"]:
            yield f"served: Kafka {served}, here {ours['partitions']}"
    else:
        for path in sorted({*kafka["logs"], *ours["logs"]}):
            one, two = kafka["logs"].get(path), ours["logs"].get(path)
            for key in {**(one or {}), **(two or {})} if one and two else {}:
                if key in two and one[key] != two[key]:
                    yield f"{path} {key}: Kafka {one[key]}, here {two[key]}"
            if one is None or two is None:
                yield f"{path}: Kafka {one}, here {two}"
    for path, answers in ours.get("work", {}).items():
        if answers != (said := kafka["work"].get(path, [])):
            at = next((n for n, pair in enumerate(zip(said, answers, strict=False))
                       if len(set(pair)) > 1), -1)
            yield f"{path} {case.work[at][:40]} (number {at}): Kafka {said}, here {answers}"
            return  # the files differ too
    offline = {path.removeprefix("/") for path in kafka["offline"]}
    there, here = files_of(theirs), files_of(mine)
    names = {name for name in there.keys() | here.keys() if name.split("/")[0] not in offline}
    for name in sorted(names - _doubled(names)):
        if case.work and name.endswith("/cleaner-offset-checkpoint"):
            continue
        if case.strays and name.startswith("elsewhere") and os.path.basename(name) in _OF_STRAYS:
            continue
        if there.get(name) != here.get(name):
            yield f"{name}: Kafka {_told(there.get(name))}, here {_told(here.get(name))}"


def _short(answer: State) -> str:
    return f"{answer['error']}: {answer['message']}" if "error" in answer else \
        f"starts, offline {answer['offline']}"


def _told(raw: bytes | None) -> str:
    return "has none" if raw is None else f"{len(raw)} bytes {raw[:150]!r}"
