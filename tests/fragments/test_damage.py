"""Files of jobs that a disk or another program has changed: nothing wrong is published."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from seglog._native.batch import BATCH_DTYPE, scan
from seglog._native.crc32c import crc32c
from seglog.errors import KafkaStorageError
from seglog.fragments import Fragment
from seglog.model import TopicPartition
from tests.fragments.jobs import Truth, Written, contents, make_rows

KEY = TopicPartition("a", 0)
Facts = npt.NDArray[np.void]


def committed_and_pending(data_dir: Path) -> tuple[Truth, Written]:
    """The contents of a log, and an uncommitted job of a few batches more."""
    rng = random.Random(1)
    first = Written(data_dir)
    first.task({KEY: make_rows(rng, 30)})
    first.publish()
    written = Written(data_dir, batch_bytes=500)
    written.task({KEY: make_rows(rng, 40)})
    return contents(data_dir), written


# ---- fragments ----------------------------------------------------------------------------------

def refused(written: Written) -> KafkaStorageError:
    """The error of the commit, which names the fragment's file."""
    with pytest.raises(KafkaStorageError) as told:
        written.publish()
    path = str(Path(written.job.data_dir) / written.fragments[0].name)
    assert told.value.file == path and path in str(told.value)
    return told.value


@pytest.mark.parametrize("at", [0, 8, 40, 44, 48, 52, 63, 71, -8])
def test_headers_of_batches_that_changed_are_not_published(tmp_path: Path, at: int) -> None:
    before, written = committed_and_pending(tmp_path)
    fragment = written.fragments[0]
    path = tmp_path / fragment.name
    content = bytearray(path.read_bytes())
    content[fragment.size + at if at >= 0 else at] ^= 4
    path.write_bytes(content)
    error = refused(written)
    assert (error.position, error.expected) == (fragment.size, fragment.facts_crc)
    assert error.found == crc32c(content[fragment.size:])
    assert f"from byte {fragment.size} on" in str(error) and f"{error.found:#010x}" in str(error)
    assert contents(tmp_path) == before


def test_a_fragment_of_another_size_is_not_published(tmp_path: Path) -> None:
    before, written = committed_and_pending(tmp_path)
    path = tmp_path / written.fragments[0].name
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    error = refused(written)
    assert (error.expected, error.found) == (size, size - 1)
    assert contents(tmp_path) == before


def _far(facts: Facts) -> None:
    facts["position"][-1] = 1 << 40


def _negative(facts: Facts) -> None:
    facts["position"][0] = -1


def _twice(facts: Facts) -> None:
    facts[1] = facts[0]


def _gap(facts: Facts) -> None:
    facts["base_offset"][2] += 1


def _backwards(facts: Facts) -> None:
    facts["last_offset"][0] = -1


def _short(facts: Facts) -> None:
    facts["size"][-1] -= 1


def _records(facts: Facts) -> None:
    facts["last_offset"][-1] += 1


@pytest.mark.parametrize("change", [_far, _negative, _twice, _gap, _backwards, _short, _records])
def test_headers_that_do_not_describe_the_fragment_are_not_published(
        tmp_path: Path, change: Callable[[Facts], None]) -> None:
    """Also under the right checksum: the commit writes at their positions."""
    before, written = committed_and_pending(tmp_path)
    fragment = written.fragments[0]
    path = tmp_path / fragment.name
    content = path.read_bytes()
    facts = np.frombuffer(content[fragment.size:], BATCH_DTYPE).copy()
    assert len(facts) > 3
    change(facts)
    path.write_bytes(content[:fragment.size] + facts.tobytes())
    written.fragments = [dataclasses.replace(fragment, facts_crc=crc32c(facts.tobytes()))]
    assert refused(written).position is not None
    assert path.stat().st_size == len(content) and contents(tmp_path) == before


def test_a_fragment_without_batches_is_not_published(tmp_path: Path) -> None:
    before, written = committed_and_pending(tmp_path)
    name = written.fragments[0].name
    (tmp_path / name).write_bytes(b"")
    written.fragments = [Fragment(KEY, name, 0, 0, 0, 0)]
    refused(written)
    assert contents(tmp_path) == before


def test_a_batch_of_the_log_that_no_index_takes_is_reported_with_the_log_s_file(tmp_path: Path
                                                                                ) -> None:
    _, written = committed_and_pending(tmp_path)
    path = tmp_path / "a-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    last = int(scan(content).batches["position"][-1])
    content[last:last + 8] = (1 << 33).to_bytes(8, "big")
    path.write_bytes(content)
    with pytest.raises(KafkaStorageError, match=f"{path}: batches that no index takes"):
        written.publish()
    assert path.read_bytes() == content
