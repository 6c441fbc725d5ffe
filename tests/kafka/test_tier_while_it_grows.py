"""seglog reads a log while a broker appends to it, copies its segments and deletes them locally."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seglog.storage.isolation import Isolation
from seglog.storage.partition_log import PartitionLog
from seglog.tiered import Bucket, open_bucket, read_metadata_topic
from tests.kafka import harness
from tests.kafka.tiering_broker import TOPIC, tiering
from tests.objects.server import ServerMissing, options_of, serve
from tests.support import reading
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.judge, pytest.mark.usefixtures("kafka_lib")]

ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
#: Where LocalTieredStorage puts everything: a directory, or the name of a bucket.
STORE = "kafka-tiered-storage"
ROUNDS = 60
TRANSACTIONS = {"transactional.id": "t"}


class Writer(threading.Thread):
    """Writes numbered records, alone and in transactions that are open across other records.

    `sent` has each value and whether it ends up committed, before it can be in the log.
    `acknowledged` of them are in the log, and all transactions of the first `stable` are decided.
    """

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(name="writer")
        self._address, self._rng = bootstrap, random.Random(seed)
        self._numbers = itertools.count()
        self.sent: list[tuple[bytes, bool]] = []
        self.acknowledged = self.stable = 0
        self.error: Exception | None = None
        #: How often the readers have read; None: nobody reads meanwhile.
        self.reads: int | None = None

    def run(self) -> None:
        """Never raises."""
        try:
            with harness.Client(self._address) as client:
                for number in range(ROUNDS):
                    self._round(client)
                    if number % 10 == 9 and self.reads is not None:
                        enough = self.reads + 2
                        wait_for(lambda: self.reads is None or self.reads >= enough, 600)
        except Exception as error:
            self.error = error

    def _round(self, client: harness.Client) -> None:
        is_kept, before = self._rng.random() < 0.5, self.acknowledged
        for number in range(self._rng.randint(1, 6)):
            if number and self._rng.random() < 0.5:
                self._send(client, True, {})
            else:
                self._send(client, is_kept, TRANSACTIONS)
            # The marker of the last transaction is in the log before the next one begins.
            self.stable = before
        client.end_transaction("transactional", commit=is_kept)

    def _send(self, client: harness.Client, is_kept: bool, config: dict[str, str]) -> None:
        records = [b"%d" % next(self._numbers) for _ in range(self._rng.randint(1, 4))]
        self.sent += [(value, is_kept) for value in records]
        client.produce("live", ({"value": value} for value in records), config=config,
                       producer="transactional" if config else "plain")
        self.acknowledged += len(records)

    def values(self, isolation: Isolation, count: int) -> list[bytes]:
        """Those of the first so many records that a consumer gets."""
        return [value for value, is_kept in self.sent[:count]
                if is_kept or isolation == "read_uncommitted"]


def values(log: PartitionLog, isolation: Isolation, threads: int = 0) -> list[bytes]:
    """The values of a log, whose offsets must grow and end below the end that the log reports."""
    rows = reading.read_rows(log, isolation=isolation, threads=threads,
                             columns=["offset", "value"])
    offsets = [row["offset"] for row in rows]
    assert log.log_start_offset == 0 and offsets == sorted(set(offsets))
    assert not offsets or offsets[-1] < log.end_offset(isolation)
    return [row["value"] for row in rows]


class Reader:
    """Reads the log in one way: newly opened each time, and one that it keeps and refreshes."""

    def __init__(self, opened: Callable[[], PartitionLog | None], *, has_disk: bool) -> None:
        self._open, self._has_disk = opened, has_disk
        self._kept: PartitionLog | None = None
        self._seen = dict.fromkeys(ISOLATIONS, 0)
        self.ends: set[int] = set()

    def check(self, writer: Writer, first_local: int, threads: int) -> None:
        """Every read is a prefix of what was written. With the disk it has all that the broker had
        acknowledged; without it, all that is no longer on the disk."""
        least = {"read_uncommitted": writer.acknowledged, "read_committed": writer.stable}
        log = self._open()
        if log is None:
            assert not first_local
            return
        if self._kept is not None:
            self._kept.refresh()
        for one in (log, self._kept or log):
            self.ends.add(one.log_end_offset)
            assert one.log_end_offset >= first_local
            for isolation in ISOLATIONS:
                found = values(one, isolation, threads)
                expected = writer.values(isolation, len(writer.sent))
                assert found == expected[:len(found)]
                if self._has_disk:
                    assert len(found) >= len(writer.values(isolation, least[isolation]))
                assert len(found) >= self._seen[isolation]
                self._seen[isolation] = len(found)
        self._kept = self._kept or log

    def check_all(self, writer: Writer) -> None:
        """At the end it has every record that its place has."""
        log = self._open()
        assert log is not None
        for isolation in ISOLATIONS:
            expected = writer.values(isolation, len(writer.sent))
            found = values(log, isolation)
            assert found == (expected if self._has_disk else expected[:len(found)])
            assert found


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[harness.Broker]:
    """A broker that tiers."""
    with tiering(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Callable[[], Bucket | None]]:
    """The broker's remote directory as a bucket of a real S3 server; None before it exists."""
    pytest.importorskip("obstore", reason="obstore is not installed (pip install 'seglog[s3]')")
    root = tmp_path / "broker" / "remote"
    root.mkdir(parents=True, exist_ok=True)
    try:
        with serve(root) as port:
            yield lambda: open_bucket(f"s3://{STORE}", storage_options=options_of(port)) \
                if any((root / STORE).glob("*/*.log")) else None
    except ServerMissing as missing:
        pytest.skip(str(missing))


def first_local(path: Path) -> int:
    """The first offset on the local disk."""
    return min(int(one.stem) for one in path.glob("*.log"))


def test_every_read_is_a_prefix(broker: harness.Broker, store: Callable[[], Bucket | None]
                                ) -> None:
    """From the disk and the tier, and from the tier alone by its names or by the metadata topic;
    the tier is a directory or a bucket."""
    local, remote = broker.data_dir / "live-0", broker.home / "remote"

    def alone(metadata: Path | tuple[()]) -> PartitionLog | None:
        return open_bucket(remote, metadata=metadata).log("live", 0) \
            if any((remote / STORE).glob("live-0-*/*.log")) else None

    def from_store() -> PartitionLog | None:
        bucket = store()
        return None if bucket is None else \
            bucket.with_metadata_of(str(broker.data_dir)).log("live", 0)

    with harness.Client(broker.bootstrap) as client:
        client.create_topic("live", 1, TOPIC)
    writer = Writer(broker.bootstrap, 14)
    readers = [
        Reader(lambda: PartitionLog.open(local, remote=remote), has_disk=True),
        Reader(lambda: PartitionLog.open(local, remote=store() or remote), has_disk=True),
        Reader(lambda: alone(()), has_disk=False),
        Reader(lambda: alone(broker.data_dir), has_disk=False),
        Reader(from_store, has_disk=False)]
    writer.reads = 0
    writer.start()
    try:
        for number in itertools.count():
            is_over = not writer.is_alive() and len(list(local.glob("*.log"))) == 1
            for reader in readers:
                reader.check(writer, first_local(local), number % 2 * 2)
            writer.reads = number
            if is_over:
                break
    finally:
        writer.reads = None
        writer.join()
    assert writer.error is None
    for reader in readers:
        reader.check_all(writer)
        assert len(reader.ends) > 3  # it was read while it grew
    assert first_local(local) > 0


def test_segments_leave_the_disk_under_a_reader(broker: harness.Broker, tmp_path: Path) -> None:
    """Streams that began before, and logs that were opened before, continue in the tier."""
    local, remote = broker.data_dir / "live-0", broker.home / "remote"
    with harness.Client(broker.bootstrap) as client:
        client.create_topic("live", 1, {**TOPIC, "local.retention.bytes": "-2",
                                        "retention.bytes": "-1"})
        writer = Writer(broker.bootstrap, 15)
        writer.run()
        assert writer.error is None
        segments = len(list(local.glob("*.log")))
        assert segments > 10
        wait_for(lambda: copied(broker.data_dir) == segments - 1, 600)

        def opened() -> PartitionLog:
            return PartitionLog.open(local, remote=remote, max_open_segments=1)

        begun = []
        for isolation in ISOLATIONS:
            for threads in (0, 2):
                stream = opened().to_arrow(isolation=isolation, columns=["value"], batch_rows=1,
                                           threads=threads)
                begun.append((isolation, stream, next(iter(stream)).to_pylists()["value"]))
        untouched, sized = opened(), opened()
        assert sized.log_end_offset > 0
        planned = sized.ranges(1)
        client.ask("alter", topic="live", config={"local.retention.bytes": "1"})
        wait_for(lambda: len(list(local.glob("*"))) < segments, 600)
        assert len(list(local.glob("*.log"))) == 1
    for isolation, stream, found in begun:
        for batch in stream:
            found += batch.to_pylists()["value"]
        assert found == writer.values(isolation, len(writer.sent)), isolation
    for log in (untouched, sized):
        for isolation in ISOLATIONS:
            assert values(log, isolation) == writer.values(isolation, len(writer.sent))
    for log in (untouched, sized, opened()):
        assert log.fetch(0, 1 << 20, isolation="read_committed").aborted_transactions == \
            opened().fetch(0, 1 << 20, isolation="read_committed").aborted_transactions
        assert log.offset_for_timestamp(0) == opened().offset_for_timestamp(0)
    assert planned == sized.ranges(1)


def copied(data: Path) -> int:
    """How many segments the metadata topic says to be in the tier."""
    store = read_metadata_topic(data).store
    return sum(one.state.name == "COPY_SEGMENT_FINISHED" for key in store.partitions
               for one in store.list_all_remote_log_segments(key))
