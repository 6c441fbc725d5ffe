"""Logs (`.log`) and Raft snapshots (`.checkpoint`): batches, records and their content."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from seglog._native import dump as native
from seglog._native.batch import (
    ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, ATTRIBUTE_DELETE_HORIZON, ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
)
from seglog._native.file import open_read
from seglog._native.status import Status, status_error
from seglog.dump.decoders import DecodeError, class_decoder, control_facts, control_record
from seglog.dump.dump_output import INT32_MAX, DumpOptions, Findings, Output, leading_number
from seglog.errors import CorruptDataError, InvalidRecordError
from seglog.java.numbers import parse_int32, parse_int64
from seglog.storage.codecs import CODEC_NAMES, decompress

__all__ = ["dump_log", "open_file"]

_BOOTSTRAP_NAME = "bootstrap.checkpoint"
_OFFSET_WIDTH, _EPOCH_WIDTH = 20, 10


@contextmanager
def open_file(path: str) -> Iterator[tuple[int, int]]:
    """Descriptor and size of a file. Raises KafkaStorageError if Kafka could not open it."""
    fd, size = open_read(path, follow_links=True)
    try:
        if size > INT32_MAX:
            raise status_error(Status.FILE_TOO_LARGE, file=path, expected=INT32_MAX, found=size)
        yield fd, size
    finally:
        os.close(fd)


def dump_log(path: str, options: DumpOptions, output: Output, findings: Findings) -> None:
    """Prints one log. Where Kafka's tool would end, raises after printing the lines before."""
    _print_start(path, output)
    with open_file(path) as (fd, size):
        end = min(size, options.max_bytes)
        try:
            if output.as_json:
                valid = _dump_facts(path, fd, size, end, options, output, findings)
            else:
                valid = _dump_text(path, fd, size, end, options, output, findings)
        except DecodeError as error:
            raise InvalidRecordError(f"{path}: {error}", file=path, code="decoder") from None
        if end > valid and options.max_bytes == INT32_MAX:
            output.line(f"Found {end - valid} invalid bytes at the end of {os.path.basename(path)}",
                        type="invalid_bytes", count=end - valid, position=valid)


def _print_start(path: str, output: Output) -> None:
    name = os.path.basename(path)
    if name.endswith(".log"):
        start = leading_number(path)
        output.line(f"Log starting offset: {start}", type="log", starting_offset=start)
    elif name == _BOOTSTRAP_NAME:
        output.line("KRaft bootstrap snapshot", type="bootstrap_snapshot")
    else:
        try:
            offset = parse_int64(name[:_OFFSET_WIDTH])
            epoch = parse_int32(name[_OFFSET_WIDTH + 1:][:_EPOCH_WIDTH])
        except ValueError:
            raise CorruptDataError(f"{path}: not the name of a Raft snapshot", file=path,
                                   expected="offset-epoch.checkpoint", found=name,
                                   code="file_name") from None
        output.line(f"Snapshot end offset: {offset}, epoch: {epoch}",
                    type="raft_snapshot", end_offset=offset, epoch=epoch)


def _dump_text(path: str, fd: int, size: int, end: int, options: DumpOptions, output: Output,
               findings: Findings) -> int:
    what = 0
    if options.deep_iteration:
        what |= native.RECORDS
        if not options.skip_record_metadata:
            what |= native.METADATA
        if options.print_data_log:
            what |= native.STRINGS if options.decoder is None else native.CALLER
    dump = native.LogDump(fd, size, what=what, decompress=decompress, end=end, file=path)
    try:
        dump.run(output.write, _contents(options))
    finally:
        _note_gaps(path, dump.gaps, findings)
    return dump.position


def _note_gaps(path: str, gaps: dict[int, int], findings: Findings) -> None:
    if gaps:
        noted = findings.offset_gaps.of(path, dict)
        if len(gaps) > 1:  # Kafka calls it once per gap, and the second call may resize its map
            noted = findings.offset_gaps.of(path, dict)
        noted.update(gaps)


def _contents(options: DumpOptions) -> Callable[[int, bytes | None, bytes | None, int], bytes]:
    decoder = options.decoder
    start = "| " if options.skip_record_metadata else " "

    def contents(offset: int, key: bytes | None, value: bytes | None, control: int) -> bytes:
        if control >= 0 or decoder is None:
            name, text = control_record(control, value)
            colon = ":" if name == "LeaderChange" else ""  # the only one with a colon in Kafka
            return f" {name}{colon} {text}".encode()
        key_text, value_text = decoder(offset, key, value)
        line = "" if key_text is None else f"{start}key: {key_text}"
        if value_text is not None:
            line += f"{' ' if line else start}payload: {value_text}"
        return line.encode()

    return contents


# ---- JSON ---------------------------------------------------------------------------------------

def _dump_facts(path: str, fd: int, size: int, end: int, options: DumpOptions, output: Output,
                findings: Findings) -> int:
    walk = native.LogWalk(fd, size, decompress=decompress, end=end, file=path)
    gaps: dict[int, int] = {}
    last = -1
    valid = 0
    while (batch := walk.next_batch()) is not None:
        output.facts(_batch_facts(path, batch))
        valid = batch["position"] + batch["size"]
        if options.deep_iteration:
            walk.enter()
            while (record := walk.next_record()) is not None:
                if record["offset"] != last + 1:
                    gaps[last] = record["offset"]
                last = record["offset"]
                output.facts(_record_facts(batch, record, options))
    _note_gaps(path, gaps, findings)
    return valid


def _timestamp_type(batch: dict[str, Any]) -> str:
    if batch["magic"] == 0:
        return "NoTimestampType"
    return "LogAppendTime" if batch["attributes"] & ATTRIBUTE_LOG_APPEND_TIME else "CreateTime"


def _batch_facts(path: str, batch: dict[str, Any]) -> dict[str, Any]:
    attributes = batch["attributes"]
    if batch["magic"] < 0:
        raise status_error(Status.BATCH_MAGIC, file=path, position=batch["position"], expected=2,
                           found=batch["magic"])
    codec = attributes & ATTRIBUTE_CODEC
    if codec >= len(CODEC_NAMES):
        raise status_error(Status.BATCH_CODEC, file=path, position=batch["position"],
                           expected=len(CODEC_NAMES) - 1, found=codec)
    facts = {"type": "batch", **batch, "timestamp_type": _timestamp_type(batch),
             "compression": CODEC_NAMES[codec]}
    if batch["magic"] >= 2:
        facts["is_transactional"] = bool(attributes & ATTRIBUTE_TRANSACTIONAL)
        facts["is_control"] = bool(attributes & ATTRIBUTE_CONTROL)
        horizon = batch["base_timestamp"] if attributes & ATTRIBUTE_DELETE_HORIZON else None
        facts["delete_horizon_ms"] = horizon
    return facts


def _record_facts(batch: dict[str, Any], record: dict[str, Any],
                  options: DumpOptions) -> dict[str, Any]:
    facts = {"type": "record", **record, "timestamp_type": _timestamp_type(batch)}
    if "headers" in facts:
        facts["headers"] = [{"key": native.java_utf8(key).decode(), "value": value}
                            for key, value in facts["headers"]]
    if batch["magic"] >= 2 and batch["attributes"] & ATTRIBUTE_CONTROL:
        facts.update(control_facts(record["key"], record["value"]))
    elif options.print_data_log:
        decoder = options.decoder or class_decoder()
        texts = decoder(record["offset"], record["key"], record["value"])
        facts["decoded_key"], facts["decoded_value"] = map(_decoded, texts) if \
            options.decoder_gives_json else texts
    return facts


def _decoded(text: str | None) -> Any:
    """A decoder's JSON as a nested value; its error stays a string."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text
