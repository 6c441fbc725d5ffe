"""Which paths of the log some sequences came by, as Kafka's answers tell."""

from __future__ import annotations

from collections import Counter
from typing import Any


def paths(sequence: dict[str, Any], answer: dict[str, Any]) -> Counter[str]:
    """Operations by what became of them, and what the log looked like in the end."""
    found: Counter[str] = Counter()
    for op, result in zip(sequence["ops"], answer["results"], strict=True):
        found[f"{op['op']} {result['error'] if 'error' in result else _became(op, result)}"] += 1
    state, files = answer["state"], answer["files"]
    found["segments"] += len(state["segments"])
    found["producers"] += len(state["producers"])
    found["open transactions"] += sum(one["current_txn_first_offset"] >= 0
                                      for one in state["producers"])
    found["aborted"] += sum(one["aborted_txns"] for one in state["segments"])
    found["time index entries"] += sum(one["time_index_entries"] for one in state["segments"])
    found["several epochs"] += len(state["leader_epochs"]) > 1
    found["unstable"] += state["last_stable_offset"] < state["high_watermark"]
    found["deleted files"] += sum(name.endswith(".deleted") for name in files)
    found["snapshots"] += sum(name.endswith(".snapshot") for name in files)
    return found


def _became(op: dict[str, Any], result: dict[str, Any]) -> str:
    kind = op["op"]
    if kind == "read":
        return "aborted" if result["aborted"] else "bytes" if result["bytes"] else "empty"
    if kind == "timestamp":
        return "found" if result else "none"
    if kind == "clean":
        if not result["messages_read"]:
            return "nothing"
        if result["end"] < result["first_uncleanable"]:
            return "full"
        return "dropped" if result["messages_written"] < result["messages_read"] else "kept"
    if kind == "retention":
        return "deleted" if result["deleted"] else "kept"
    if kind in ("start_offset", "truncate_to"):
        return "moved" if result.get("changed", result.get("truncated")) else "stayed"
    if kind == "reopen":
        return "clean" if op["clean"] else "unclean"
    return "done"
