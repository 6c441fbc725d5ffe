"""A partition with several directories is read once, from the log that Kafka would make the
leader's."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from pathlib import Path

import pytest

from seglog.errors import InconsistentTopicIdError, KafkaStorageError
from seglog.model import TopicPartition
from seglog.storage.discover import find_replicas
from seglog.storage.replicas import choose_replica
from tests.oracle.batch import Batch, Record, encode
from tests.oracle.writer import LogConfig, LogWriter

TP = TopicPartition("t", 0)
Epochs = list[tuple[int, int]]  # (epoch, its end offset)


def write(path: Path, epochs: Epochs, start: int = 0, checkpoint: str | None = None,
          topic_id: str | None = None, mark: bytes = b"") -> Path:
    """Writes a partition directory of single-record batches with a lineage of epochs."""
    writer = LogWriter(path, LogConfig(segment_bytes=2000), start)
    offset = start
    for epoch, end in epochs:
        while offset < end:
            value = mark + b"%d of %d" % (offset, epoch)
            writer.append(Batch(offset, 0, [Record(0, 0, None, value)], base_timestamp=offset,
                                max_timestamp=offset, partition_leader_epoch=epoch))
            offset += 1
    writer.close()
    if checkpoint is not None:
        (path / "leader-epoch-checkpoint").write_text(checkpoint)
    if topic_id is not None:
        (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return path


def chosen(*roots: Path) -> tuple[str, str]:
    """(name of the root that is read, why)."""
    choice = choose_replica(TP, find_replicas(roots)[TP])
    return Path(choice.chosen.path).parent.name, choice.reason


LINEAGES: dict[str, tuple[Epochs, Epochs, str]] = {
    # the better directory, the other, a word of the reason
    "longer": ([(0, 50)], [(0, 40)], "log end offset 50"),
    "diverged tail of an older epoch": ([(3, 60), (5, 70)], [(3, 60), (4, 200)],
                                        "leader epoch 5 is newer than 4"),
    "newer epoch and shorter": ([(0, 10), (1, 11)], [(0, 500)], "leader epoch 1"),
    "no records": ([(0, 1)], [], "leader epoch 0 is newer than -1"),
    "old format's epoch": ([(0, 5)], [(-1, 50)], "leader epoch 0"),
    "no epochs, longer": ([(-1, 60)], [(-1, 50)], "log end offset 60"),
}


@pytest.mark.parametrize("name", LINEAGES)
@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_the_newer_epoch_wins_and_then_the_longer_log(tmp_path: Path, name: str,
                                                      with_checkpoint: bool) -> None:
    better, other, words = LINEAGES[name]
    for root, epochs in (("better", better), ("other", other)):
        path = write(tmp_path / root / "t-0", epochs)
        if not with_checkpoint:
            (path / "leader-epoch-checkpoint").unlink()
    for roots in itertools.permutations((tmp_path / "better", tmp_path / "other")):
        found, reason = chosen(*roots)
        assert found == "better" and words in reason, reason


def test_what_the_checkpoint_adds(tmp_path: Path) -> None:
    """An epoch without batches counts only if it began at the log's end."""
    write(tmp_path / "elected" / "t-0", [(4, 100)], checkpoint="0\n2\n4 0\n7 100\n")
    write(tmp_path / "behind" / "t-0", [(4, 120)])
    assert chosen(tmp_path / "behind", tmp_path / "elected") == (
        "elected", "its leader epoch 7 is newer than 4 (log end offsets 100 and 120)")
    for number, lie in enumerate(("0\n1\n9 0\n", "0\n1\n9 99\n", "0\n1\n9 5000\n", "garbage",
                                  "0\n1\n-3 4\n", "")):
        root = tmp_path / f"lie{number}"
        write(root / "t-0", [(4, 110)], checkpoint=lie)
        assert chosen(root, tmp_path / "behind")[0] == "behind"
    write(tmp_path / "older" / "t-0", [(4, 130)], checkpoint="0\n1\n3 130\n")  # than its batches
    assert chosen(tmp_path / "behind", tmp_path / "older")[0] == "older"


def test_ties(tmp_path: Path) -> None:
    write(tmp_path / "a" / "t-0", [(2, 80)], start=30)
    write(tmp_path / "b" / "t-0", [(2, 80)])
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    shutil.copytree(tmp_path / "b", tmp_path / "holed")
    sorted((tmp_path / "holed" / "t-0").glob("*.log"))[1].unlink()
    a, b, c, holed = (tmp_path / name for name in ("a", "b", "c", "holed"))
    assert chosen(a, b) == ("b", "of leader epoch 2 and log end offset 80 its log start offset 0 "
                            "is the lowest, before 30")
    assert chosen(c, b)[0] == "c" and "they are alike" in chosen(c, b)[1]
    found, reason = chosen(holed, b)
    assert found == "b" and "it has the most bytes" in reason


def test_what_is_no_replica(tmp_path: Path) -> None:
    """Future and deleted directories, even longer ones, and a directory that is reached twice."""
    write(tmp_path / "a" / "t-0", [(0, 10)])
    unique = "0123456789abcdef0123456789abcdef"
    for name in (f"t-0.{unique}-delete", f"t-0.{unique}-future", f"t-0.{unique}-stray"):
        write(tmp_path / "a" / name, [(9, 500)])
        write(tmp_path / "b" / name, [(9, 500)])
    write(tmp_path / "b" / "u-0", [(0, 1)])
    (tmp_path / "again").symlink_to(tmp_path / "a")
    found = find_replicas([tmp_path / "a", tmp_path / "b", tmp_path / "again", tmp_path / "a"])
    assert {tp: [one.name for one in here] for tp, here in found.items()} == {
        TP: ["t-0"], TopicPartition("u", 0): ["u-0"]}
    write(tmp_path / "c" / f"t-0.{unique}-future", [(9, 500)])
    assert find_replicas([tmp_path / "c"]) == {}, "nor is the only directory"
    # Such a directory is read if the path names it, but not instead of the partition.
    assert chosen(tmp_path / "a" / f"t-0.{unique}-future")[1] == "it is the only one"
    choice = choose_replica(TP, find_replicas(
        [tmp_path / "a" / f"t-0.{unique}-future", tmp_path / "a"])[TP])
    assert Path(choice.chosen.path).name == "t-0" and "future directory" in choice.reason


def test_one_that_cannot_be_read_loses(tmp_path: Path) -> None:
    write(tmp_path / "a" / "t-0", [(5, 100)])
    (tmp_path / "a" / "log-start-offset-checkpoint").write_text("garbage")
    write(tmp_path / "b" / "t-0", [(4, 10)])
    found, reason = chosen(tmp_path / "a", tmp_path / "b")
    assert found == "b" and "cannot be read" in reason and str(tmp_path / "a") in reason
    (tmp_path / "b" / "log-start-offset-checkpoint").write_text("garbage")
    with pytest.raises(ValueError, match=f"{tmp_path}/a"):
        chosen(tmp_path / "a", tmp_path / "b")


def test_the_epoch_of_a_damaged_batch_does_not_count(tmp_path: Path) -> None:
    last = sorted(write(tmp_path / "a" / "t-0", [(4, 100)]).glob("*.log"))[-1]
    damaged = encode(Batch(100, 0, [Record(100, 5)], base_timestamp=5, max_timestamp=5,
                           partition_leader_epoch=9))
    with last.open("ab") as file:
        file.write(damaged[:-1] + b"x")
    write(tmp_path / "b" / "t-0", [(5, 50)])
    assert chosen(tmp_path / "a", tmp_path / "b") == (
        "b", "its leader epoch 5 is newer than 4 (log end offsets 50 and 100)")


def test_two_topics_of_one_name_are_not_mixed(tmp_path: Path) -> None:
    for name, topic_id in (("a", "AAAAAAAAAAAAAAAAAAAAAQ"), ("b", "AAAAAAAAAAAAAAAAAAAAAg")):
        write(tmp_path / name / "t-0", [(0, 10)], topic_id=topic_id)
    (write(tmp_path / "c" / "t-0", [(0, 20)]) / "partition.metadata").unlink()
    with pytest.raises(InconsistentTopicIdError, match=(
            f"t-0 is of two topics: {tmp_path}/a/t-0 has the topic id A*Q, {tmp_path}/b/t-0 has A*g"
            ".* give only")):
        chosen(tmp_path / "c", tmp_path / "a", tmp_path / "b")
    assert chosen(tmp_path / "a", tmp_path / "c")[0] == "c"


def test_a_directory_that_vanishes_is_looked_for_again(tmp_path: Path) -> None:
    write(tmp_path / "a" / "t-0", [(0, 10)])
    write(tmp_path / "b" / "t-0", [(0, 20)])
    found = find_replicas([tmp_path / "a", tmp_path / "b"])[TP]
    os.rename(tmp_path / "b" / "t-0", tmp_path / "b" / f"t-0.{'0' * 32}-delete")
    with pytest.raises(KafkaStorageError):
        choose_replica(TP, found)


@pytest.mark.parametrize("seed", range(30))
def test_mixtures(tmp_path: Path, seed: int) -> None:
    """Of any number of copies of one true history, behind or diverged, reads the most complete."""
    rnd = random.Random(seed)
    history: Epochs = []
    epoch, end = rnd.randint(0, 3), 0
    for _ in range(rnd.randint(1, 5)):
        end += rnd.randint(5, 30)
        history.append((epoch, end))
        epoch += rnd.randint(1, 3)
    best: tuple[int, int, str] = (-2, -1, "")
    for number in range(rnd.randint(2, 5)):
        upto = rnd.randint(1, len(history))
        lineage = history[:upto]
        last, until = lineage[-1]
        begun = history[upto - 2][1] if upto > 1 else 0
        kind = rnd.choice(["whole", "behind", "diverged"])
        if kind == "behind":
            lineage[-1] = last, rnd.randint(begun + 1, until)
        elif kind == "diverged" and upto < len(history):
            lineage[-1] = last, until + rnd.randint(1, 100)
        write(tmp_path / f"r{number}" / "t-0", lineage)
        last, until = lineage[-1]
        if (last, until) > best[:2]:
            best = last, until, f"r{number}"
    roots = sorted(tmp_path.iterdir())
    assert chosen(*roots)[0] == best[2]


def test_only_copies_with_the_same_offsets_are_plain(tmp_path: Path) -> None:
    """Bytes may differ: nothing is said about the choice then."""
    for name, epochs, start in (("a", [(2, 80)], 0), ("b", [(2, 80)], 0), ("older", [(1, 80)], 0),
                                ("shorter", [(2, 79)], 0), ("later", [(2, 80)], 1)):
        write(tmp_path / name / "t-0", epochs, start)
    sorted((tmp_path / "b" / "t-0").glob("*.log"))[1].unlink()
    for names, is_plain in ((["a"], True), (["a", "b"], True), (["a", "b", "later"], False),
                            (["a", "older"], False), (["a", "shorter"], False)):
        choice = choose_replica(TP, find_replicas([tmp_path / name for name in names])[TP])
        assert choice.is_plain is is_plain, names
        assert choice.chosen is choice.replicas[0] is max(choice.replicas, key=lambda one: one.rank)
        others = ", ".join(f"{tmp_path}/{name}/t-0" for name in names[1:])
        assert str(choice) == f"t-0: read from {tmp_path}/a/t-0, not {others}: {choice.reason}"
    holed = choose_replica(TP, find_replicas([tmp_path / "b", tmp_path / "a"])[TP])
    assert [Path(one.path).parent.name for one in holed.replicas] == ["a", "b"]
