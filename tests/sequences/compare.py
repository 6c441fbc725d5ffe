"""Where two answers to a sequence differ: the first operation, the state, and each file."""

from __future__ import annotations

import base64
import itertools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.oracle import batch as v2
from tests.oracle.files import (decode_offset_index, decode_snapshot, decode_time_index,
                                decode_txn_index)
from tests.oracle.wire import OracleError
from tests.support.transcript import not_kafkas

Answer = dict[str, Any]
#: A machine's limits and no answer about the log: any error on our side is as good.
_MACHINE = {"OutOfMemoryError", "StackOverflowError"}
#: A read of remote storage that fails: Kafka wraps what some calls raise.
_REMOTE = {"KafkaException", "RemoteStorageException", "RetriableRemoteStorageException",
           "RemoteResourceNotFoundException", "RuntimeException", "RuntimeError"}
_LONGEST = 400
#: Java's own words for these are those of its buffers and streams.
_WITHOUT_TEXT = {"IndexOutOfBoundsException", "IllegalArgumentException", "KafkaException",
                 "LogCleaningAbortedException"}
_OWN_TEXT = {("CorruptRecordException", "read"), ("CorruptRecordException", "timestamp"),
             ("CorruptRecordException", "clean")}


def differences(sequence: dict[str, Any], kafka: Answer, ours: Answer, kafka_dir: Path,
                our_dir: Path) -> Iterator[str]:
    """The differences, one per line; empty if both are the same.

    After a reopening that both refuse, Kafka's side continues with the closed log and answers from
    memory (docs/differences.md): the comparison ends there. So it does where a round splits a
    damaged segment, or ends beyond its range.
    """
    until = closed_at(sequence["ops"], kafka["results"])
    if not sequence.get("remote"):  # a RemoteLogManager's lines are not those of a log
        yield from _said(sequence["ops"][:until], kafka, ours, kafka_dir.parent)
    if until < len(sequence["ops"]):
        yield from _results(sequence["ops"][:until], kafka["results"][:until],
                            ours["results"][:until])
        return
    yield from _results(sequence["ops"], kafka["results"], ours["results"])
    yield from _state(kafka["state"], ours["state"], _took_records_away(sequence["ops"], ours))
    yield from _files(kafka["files"], ours["files"], kafka_dir, our_dir)


def closed_at(ops: list[Answer], kafka: list[Answer]) -> int:
    """How many operations there are up to the first that leaves a closed log, or one whose damage
    gave it a segment beyond its end: Kafka appends to that one, or to none any more. Or before a
    round that ends beyond its range, which may replace Kafka's active segment."""
    is_spoiled = False
    for number, (op, result) in enumerate(zip(ops, kafka, strict=False)):
        is_spoiled |= op["op"] == "spoil"
        if op["op"] in ("reopen", "crash") and "error" in result or (
                is_spoiled and result.get("error") == "LogCleaningAbortedException"):
            return number + 1
        if is_spoiled and result.get("end", 0) > result.get("first_uncleanable", 0):
            return number
    return len(ops)


def _results(ops: list[Answer], kafka: list[Answer], ours: list[Answer]) -> Iterator[str]:
    if len(kafka) != len(ours):
        yield f"results: {len(ours)}, {len(kafka)} in Kafka"
    for number, (op, theirs, mine) in enumerate(zip(ops, kafka, ours, strict=False)):
        if op["op"] == "fetch":  # Kafka has the transactions in a set
            theirs, mine = ({**one, "aborted": sorted(one["aborted"])} if "aborted" in one
                            else one for one in (theirs, mine))
        same = theirs == mine or (theirs.get("error") in _MACHINE and "error" in mine) or (
            op["op"] in ("fetch", "find") and {theirs.get("error"), mine.get("error")} <= _REMOTE)
        if not same:
            yield f"op {number} {told(op)}: {short(mine)}, {short(theirs)} in Kafka"
            return


def _said(ops: list[Answer], kafka: Answer, ours: Answer, home: Path) -> Iterator[str]:
    """Lines and exceptions that Kafka does not have: it says more, and may say it elsewhere."""
    for number, (op, theirs, mine) in enumerate(zip(ops, kafka["said"][1:], ours["said"][1:],
                                                    strict=False)):
        for line in not_kafkas(mine, theirs, str(home)):
            if "Flushing log up to" in line and _took_records_away(ops[:number], ours):
                continue  # there is more to flush here: see _state
            kind = line.partition(":")[0]
            # A read of a damaged log names the byte, which Kafka's does not.
            if kind not in _WITHOUT_TEXT and (kind, op["op"]) not in _OWN_TEXT and not any(
                    one.partition(":")[0] in _MACHINE for one in theirs):
                yield f"op {number} {told(op)} says {line}, {short(theirs)} in Kafka"


def told(op: Answer) -> str:
    """An operation for a reader: batches as what their headers say."""
    fields = {key: value for key, value in op.items() if key not in ("op", "records")}
    if "records" in op:
        fields["batches"] = batches_of(base64.b64decode(op["records"]))
    return f"{op['op']} {short(fields)}"


def short(value: Any) -> str:
    """A value in one line that is not too long."""
    text = str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _took_records_away(ops: list[Answer], ours: Answer) -> bool:
    """Whether the log lost offsets that a roll had, by a truncation or an append that failed."""
    return any(op["op"].startswith("truncate") or "error" in result
               for op, result in zip(ops, ours["results"], strict=False))


def _state(kafka: Answer, ours: Answer, took_away: bool) -> Iterator[str]:
    for key in sorted({*kafka, *ours}):
        theirs, mine = kafka.get(key), ours.get(key)
        if theirs == mine:
            continue
        if key == "recovery_point" and took_away and mine < theirs:
            continue  # Kafka's flush counts offsets that are gone (docs/differences.md)
        if isinstance(theirs, list) and isinstance(mine, list):
            for number, (one, other) in enumerate(itertools.zip_longest(theirs, mine)):
                if one != other:
                    yield f"state {key}[{number}]: {other}, {one} in Kafka"
                    break
        else:
            yield f"state {key}: {mine}, {theirs} in Kafka"


def _files(kafka: Answer, ours: Answer, kafka_dir: Path, our_dir: Path) -> Iterator[str]:
    for name in sorted({*kafka, *ours}):
        if name.endswith(".cleaned"):
            continue  # Kafka leaves what a failed round wrote to the next start, we delete it
        if name not in ours:
            yield f"file {name}: not here, {kafka[name]['size']} bytes in Kafka"
        elif name not in kafka:
            yield f"file {name}: {ours[name]['size']} bytes, not in Kafka"
        elif kafka[name] != ours[name]:
            theirs, mine = (kafka_dir / name).read_bytes(), (our_dir / name).read_bytes()
            yield from (f"file {name}: {line}" for line in _file(name, theirs, mine))


def _file(name: str, theirs: bytes, mine: bytes) -> Iterator[str]:
    one, other = decoded(name, theirs), decoded(name, mine)
    if ".snapshot" in name and set(one) == set(other) and len(one) == len(other):
        return  # the order of a hash table
    for number, (first, second) in enumerate(itertools.zip_longest(one, other)):
        if first != second:
            yield f"entry {number}: {second}, {first} in Kafka"
            return
    at = next((at for at, pair in enumerate(zip(theirs, mine, strict=False))
               if pair[0] != pair[1]), min(len(theirs), len(mine)))
    yield (f"{len(mine)} bytes, {len(theirs)} in Kafka; first other byte at {at}: "
           f"{mine[at:at + 24].hex()}, {theirs[at:at + 24].hex()} in Kafka")


def decoded(name: str, data: bytes) -> list[Any]:
    """The entries of a file by the kind that its name says."""
    kind = name.removesuffix(".deleted").rpartition(".")[2]
    try:
        if kind == "log":
            return batches_of(data)
        if kind == "index":
            return decode_offset_index(data, 0)
        if kind == "timeindex":
            return decode_time_index(data, 0)
        if kind == "txnindex":
            return decode_txn_index(data)
        if kind == "snapshot":
            return decode_snapshot(data)
    except (OracleError, struct.error) as error:
        return [str(error)]
    return data.decode(errors="replace").splitlines()


def batches_of(data: bytes) -> list[str]:
    """The headers of batches behind each other, as far as they go."""
    found, at = [], 0
    while at + 17 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        magic = data[at + 16]
        if magic == 2 and at + v2.HEADER.size <= len(data):
            (_, _, epoch, _, crc, attributes, delta, first, most, producer, producer_epoch,
             sequence, count) = v2.HEADER.unpack_from(data, at)
            found.append(f"@{at} {base}+{delta} size {length + 12} count {count} epoch {epoch} "
                         f"attributes {attributes:#x} times {first} {most} producer {producer} "
                         f"{producer_epoch} {sequence} crc {crc:#x}")
        else:
            crc, = struct.unpack_from(">I", data, at + 12)
            found.append(f"@{at} {base} size {length + 12} magic {magic} crc {crc:#x}")
        if length < 14:
            break
        at += 12 + length
    if at != len(data):
        found.append(f"@{at} {len(data) - at} bytes more")
    return found
