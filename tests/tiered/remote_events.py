"""Random records and event sequences of remote log metadata, and how seglog answers them.

Commands and answers are lines as tests/kafka/RemoteMetadata.java takes and gives them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence

from seglog.dump.messages import messages
from seglog.errors import SeglogError
from seglog.tiered import (
    RemoteLogMetadata, RemoteLogMetadataCache, RemoteLogMetadataTopicPartitioner,
    RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState, RemotePartitionMetadataStore, TopicIdPartition, deserialize,
    serialize,
)
from tests.support.messages import encode_message, unsigned_varint

S = RemoteLogSegmentState
NAMES = ["", "t", "orders-eu.v2_1", "żółw 𝄞", 'quo"te\\ \n\t\x01\x7f', "x" * 300]
INT64 = [0, 1, 5, -1, 2**63 - 1, -2**63, 1_700_000_000_000]
INT32 = [0, 1, 7, -1, 2**31 - 1, -2**31]


# ---- records

def random_record(rng: random.Random) -> RemoteLogMetadata:
    """Any record that Kafka's constructors take."""
    partition = TopicIdPartition(rng.randbytes(16), rng.choice(NAMES), rng.choice(INT32))
    segment_id = RemoteLogSegmentId(partition, rng.randbytes(16))
    custom = rng.choice([None, None, b"", b"\0\1\2\3", rng.randbytes(300)])
    state = rng.choice(list(S))
    kind = rng.randrange(4)
    if kind == 1:
        return RemoteLogSegmentMetadataUpdate(segment_id, rng.choice(INT64), custom, state,
                                              rng.choice(INT32))
    if kind == 2:
        return RemotePartitionDeleteMetadata(partition, rng.choice([*RemotePartitionDeleteState]),
                                             rng.choice(INT64), rng.choice(INT32))
    start = rng.choice([0, 1, 100, 2**40, 2**63 - 1])
    end = rng.randrange(start, 2**63)
    epochs = {rng.choice([*INT32, rng.randrange(1000)]): rng.choice([start, end, *INT64])
              for _ in range(rng.choice([1, 1, 2, 5, 40]))}
    rest = (rng.choice(INT64), rng.choice(INT32), rng.choice(INT64), rng.choice(INT32), epochs,
            custom, state, rng.random() < 0.5)
    if kind == 0:
        return RemoteLogSegmentMetadata(segment_id, start, end, *rest)
    start, end = rng.choice(INT64), rng.choice(INT64)
    return RemoteLogSegmentMetadataSnapshot(segment_id.id, start, end, *rest)


def random_value(rng: random.Random) -> bytes:
    """The value of a record, from the tables of Kafka's messages: unknown tags, newer versions,
    fields that contradict each other, sometimes damaged."""
    schema = rng.choice([*messages("remote").values()])
    version = rng.choice([0, 0, 0, 0, 0, 1, 128])
    data = (b"\1" + unsigned_varint(schema.api_key) + unsigned_varint(version)
            + encode_message(schema, 0, rng))
    return damaged(data if rng.random() < 0.7 else serialize(random_record(rng)), rng)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Half of the values as they are, the rest cut, longer, or with changed bytes."""
    kind = rng.random()
    if kind < 0.5 or not data:
        return data
    if kind < 0.6:
        return data[:rng.randrange(len(data))]
    if kind < 0.65:
        return data + rng.randbytes(rng.randrange(1, 4))
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.choice([rng.randrange(min(4, len(data))), rng.randrange(len(data)),
                         len(data) - 1 - rng.randrange(min(6, len(data)))])
        changed[at:at + 1] = rng.choice([
            b"\0", b"\1", b"\x7f", b"\x80", b"\xff", rng.randbytes(1), b"\xff\xff\xff\xff\x0f",
            b"\x80\x80\x80\x80\x80", bytes([changed[at] ^ 1 << rng.randrange(8)])])
    return bytes(changed)


# ---- sequences

class Generator:
    """One random history of a cache, or of a store of several partitions, as commands."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.is_store = rng.random() < 0.3
        count = rng.randrange(1, 4) if self.is_store else 1
        self.partitions = [TopicIdPartition(bytes([seed & 255, n]) * 8, "t", n)
                           for n in range(count)]
        self.segments: list[RemoteLogSegmentMetadata] = []
        self.states: dict[RemoteLogSegmentId, S] = {}
        self.ids = 0
        self.next_offset, self.epoch = 0, 0
        self.is_wild = rng.random() < 0.3

    def commands(self) -> list[str]:
        rng = self.rng
        lines = ["store" if self.is_store else "cache"]
        if self.is_store:
            lines += [f"load {self._about(one)}" for one in self.partitions
                      if rng.random() < 0.95]
        count = rng.randrange(5, 60)
        initialized = rng.randrange(count)
        asks = {rng.randrange(initialized, count) for _ in range(2)}
        for number in range(count):
            if number == initialized:
                if self.is_store:
                    lines += [f"load {self._about(one)}" for one in self.partitions]
                lines += [f"init {self._about(one)}" for one in self.partitions]
            lines.append(f"event {serialize(self._event()).hex()}")
            if self.is_store and rng.random() < 0.02:
                lines.append(f"clear {self._about(rng.choice(self.partitions))}")
            if self.is_store and rng.random() < 0.03:  # loaded again, which must change nothing
                one = self._about(rng.choice(self.partitions))
                lines += [f"load {one}", f"init {one}"]
            if number in asks or number == count - 1:
                lines += [self._ask(one) for one in self.partitions]
        return lines

    def _about(self, partition: TopicIdPartition) -> str:
        return serialize(RemotePartitionDeleteMetadata(
            partition, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, 0, 0)).hex()

    def _ask(self, partition: TopicIdPartition) -> str:
        offsets = sorted({*self.rng.sample(range(120), 6), *(
            offset for one in self.segments[-4:] for _, offset in one.segment_leader_epochs),
            *(one.end_offset for one in self.segments[-4:]), 2**63 - 1, -1})
        return (f"ask {self._about(partition)} 0,1,2,3,4,5 "
                f"{','.join(map(str, offsets))}")

    def _event(self) -> RemoteLogMetadata:
        rng = self.rng
        kind = rng.random()
        if self.is_store and kind < 0.03:
            return RemotePartitionDeleteMetadata(
                rng.choice(self.partitions), rng.choice([*RemotePartitionDeleteState]), 5, 1)
        if self.is_store and kind < 0.035:
            return RemoteLogSegmentMetadataSnapshot(bytes(16), 0, 1, 2, 3, 4, 5, {0: 0}, None,
                                                    S.COPY_SEGMENT_FINISHED)
        if not self.segments or kind < 0.4:
            return self._copy()
        if kind < 0.43:  # of a segment that no event announced
            segment = self.segments[-1]
            unknown = RemoteLogSegmentId(segment.topic_id_partition, b"\xee" * 14 + b"\0\1")
            return self._update(unknown, rng.choice(list(S)))
        if kind < 0.46:  # announced again, perhaps in another state or with other epochs
            segment = rng.choice(self.segments)
            if self.is_wild:
                segment = self._segment(segment.remote_log_segment_id)
            state = rng.choice([S.COPY_SEGMENT_STARTED] * 4 + [S.COPY_SEGMENT_FINISHED])
            return segment._replace(state=state)
        segment = rng.choice(self.segments[-6:] if kind < 0.9 else self.segments)
        segment_id = segment.remote_log_segment_id
        state = self.states[segment_id]
        if rng.random() < 0.85:
            state = rng.choice([one for one in S if S.is_valid_transition(state, one)])
            self.states[segment_id] = state
            return self._update(segment_id, state)
        return self._update(segment_id, rng.choice(list(S)))

    def _update(self, segment_id: RemoteLogSegmentId, state: S) -> RemoteLogSegmentMetadataUpdate:
        custom = self.rng.choice([None, None, b"", b"\7\7", b"location"])
        return RemoteLogSegmentMetadataUpdate(segment_id, 9, custom, state, self.rng.randrange(3))

    def _copy(self) -> RemoteLogSegmentMetadata:
        self.ids += 1
        partition = self.rng.choice(self.partitions)
        segment = self._segment(RemoteLogSegmentId(partition, self.ids.to_bytes(16, "big")))
        self.segments.append(segment)
        self.states[segment.remote_log_segment_id] = S.COPY_SEGMENT_STARTED
        return segment

    def _segment(self, segment_id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata:
        rng = self.rng
        if rng.random() < 0.2:  # another leader begins anew somewhere below
            starts = [one.start_offset for one in self.segments[-4:]]
            self.next_offset = rng.choice([rng.randrange(self.next_offset + 1), *starts])
            self.epoch = max(0, min(5, self.epoch + rng.choice([0, 1, 1, -1])))
        start = self.next_offset
        end = start + rng.choice([0, 3, 9, 9, 9, 20])
        if self.segments and rng.random() < 0.15:  # and ends where another copy does
            end = max(start, rng.choice(self.segments[-4:]).end_offset)
        epochs = {self.epoch: start}
        while rng.random() < 0.3 and self.epoch < 5:
            self.epoch += 1
            epochs[self.epoch] = rng.randint(start, end)
        if self.is_wild and rng.random() < 0.3:
            epochs = {rng.randrange(6): rng.choice([start, end, rng.randrange(120), -1, -2**63,
                                                    2**63 - 1]) for _ in range(3)}
        elif len(epochs) > 1:
            offsets = sorted(epochs.values())
            epochs = dict(zip(sorted(epochs), offsets, strict=True))
        self.next_offset = end + 1 if end < 100 else rng.randrange(50)
        # Kafka looks for ever for a transaction index where an epoch begins after the segment.
        is_endless = any(offset - 1 > end or offset == -2**63 for offset in epochs.values())
        return RemoteLogSegmentMetadata(
            segment_id, start, end, 1, rng.randrange(3), 4, 1000, epochs,
            rng.choice([None, None, None, b"", b"early"]),
            txn_idx_empty=not is_endless and rng.random() < 0.6)


# ---- how seglog answers

def escaped(text: str) -> str:
    return text.replace("\n", "\\n")


class Seglog:
    """The state of RemoteMetadata.java, in seglog."""

    def __init__(self) -> None:
        self.target: RemoteLogMetadataCache | RemotePartitionMetadataStore | None = None

    def answers(self, lines: Iterable[str]) -> list[str]:
        return [self.answer(line) for line in lines]

    def answer(self, line: str) -> str:
        return asked(lambda: self._run(*line.split(" "))).replace("\r", "\\r")

    def _run(self, command: str, *words: str) -> str:
        if command == "serde":
            metadata = deserialize(bytes.fromhex(words[0]))
            return f"ok {serialize(metadata).hex()} {escaped(str(metadata))}"
        if command == "partition":
            partition = TopicIdPartition(bytes.fromhex(words[1]), "t", int(words[2]))
            return str(RemoteLogMetadataTopicPartitioner(int(words[0])).metadata_partition(
                partition))
        if command in ("cache", "store"):
            self.target = RemotePartitionMetadataStore() if command == "store" else None
            return "ok"
        record = deserialize(bytes.fromhex(words[0]))
        if isinstance(self.target, RemotePartitionMetadataStore):
            return self._in_store(self.target, command, record, words)
        assert not isinstance(record, RemoteLogSegmentMetadataSnapshot)
        if self.target is None:
            self.target = RemoteLogMetadataCache(record.topic_id_partition)
        return self._in_cache(self.target, command, record, words)

    def _in_store(self, store: RemotePartitionMetadataStore, command: str,
                  record: RemoteLogMetadata, words: Sequence[str]) -> str:
        if command == "event":
            store.handle_remote_log_metadata(record)
            return "ok"
        assert not isinstance(record, RemoteLogSegmentMetadataSnapshot)
        partition = record.topic_id_partition
        if command == "ask":
            return self._ask(words, lambda: store.list_all_remote_log_segments(partition),
                             lambda epoch: store.highest_offset_for_epoch(partition, epoch),
                             lambda epoch: store.list_remote_log_segments(partition, epoch),
                             lambda *at: store.remote_log_segment_metadata(partition, *at),
                             lambda *at: store.next_segment_with_txn_index(partition, *at))
        {"load": store.maybe_load_partition, "clear": store.clear_topic_partition,
         "init": store.mark_initialized}[command](partition)
        return "ok"

    def _in_cache(self, cache: RemoteLogMetadataCache, command: str, record: RemoteLogMetadata,
                  words: Sequence[str]) -> str:
        if command == "ask":
            return self._ask(words, cache.list_all_remote_log_segments,
                             cache.highest_offset_for_epoch, cache.list_remote_log_segments,
                             cache.remote_log_segment_metadata, cache.next_segment_with_txn_index)
        if command == "init":
            cache.mark_initialized()
        elif isinstance(record, RemoteLogSegmentMetadata):
            cache.add_copy_in_progress_segment(record)
        else:
            assert isinstance(record, RemoteLogSegmentMetadataUpdate)
            cache.update_remote_log_segment_metadata(record)
        return "ok"

    def _ask(self, words: Sequence[str],
             every: Callable[[], list[RemoteLogSegmentMetadata]],
             highest: Callable[[int], int | None],
             listed: Callable[[int], list[RemoteLogSegmentMetadata]],
             at: Callable[[int, int], RemoteLogSegmentMetadata | None],
             with_txn_index: Callable[[int, int], RemoteLogSegmentMetadata | None]) -> str:
        def one(found: RemoteLogSegmentMetadata | None) -> str:
            if found is None:
                return "-"
            custom = "-" if found.custom_metadata is None else found.custom_metadata.hex()
            number = int.from_bytes(found.remote_log_segment_id.id[-2:], "big")
            return f"{number:x}:{int(found.state)}:{found.broker_id}:{custom}"

        def text(highest: int | None) -> str:
            return "-" if highest is None else str(highest)

        out = asked(lambda: "[" + ", ".join(sorted(map(one, every()))) + "]")
        for epoch in map(int, words[1].split(",")):
            out += f"; {epoch} " + asked(lambda: text(highest(epoch))) + " "
            out += asked(lambda: "[" + ", ".join(
                f"{found.start_offset}={one(found)}" for found in listed(epoch)) + "]")
            for offset in map(int, words[2].split(",")):
                out += " " + asked(lambda: one(at(epoch, offset)))
                out += " " + asked(lambda: one(with_txn_index(epoch, offset)))
        return out


def asked(question: Callable[[], str]) -> str:
    try:
        return question()
    except SeglogError as error:
        return f"error {error.kafka_name} {escaped(str(error))}"


def in_order_of_starts(answer: str) -> str:
    """An answer in which segments of one list with the same start are sorted: Kafka lists those
    that are not copied in the order of a hash set."""
    def in_order(match: re.Match[str]) -> str:
        items, out = match[1].split(", "), list[str]()
        while items:
            start = items[0].split("=")[0]
            count = next((n for n, item in enumerate(items) if item.split("=")[0] != start),
                         len(items))
            out += sorted(items[:count])
            del items[:count]
        return "[" + ", ".join(out) + "]"

    return re.sub(r"\[(\d+=[^\]]*)\]", in_order, answer)
