"""A driver that dies at any system call of a commit leaves all of it or nothing."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import seglog
from seglog.cli.main import main
from seglog.errors import KafkaStorageError
from seglog.fragments import StreamBatch, check_target
from seglog.model import TopicPartition
from seglog.storage.paths import UNFINISHED_COMMIT
from tests.fragments.jobs import Truth, Written, add, contents, left_over, make_rows, members
from tests.fragments.test_publish import check_sound
from tests.processes.children import fork
from tests.support.effort import quick_first

# The calls that change a file system or make the change durable.
CALLS = ("mkdir", "rename", "replace", "unlink", "rmdir", "ftruncate", "pwrite", "write", "fsync",
         "open")
OLD, NEW = TopicPartition("old", 0), TopicPartition("new", 1)


def _die(*_: Any, **__: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def killed_at(step: int, act: Callable[[], object]) -> bool:
    """Runs `act` in a child that is killed before its `step`-th call; returns whether it got there.
    """
    child = fork()
    if child == 0:
        left = step

        def counting(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    _die()
                return original(*args, **kwargs)
            return call

        for name in CALLS:
            setattr(os, name, counting(getattr(os, name)))
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def prepare(data_dir: Path) -> tuple[Truth, Written]:
    """Makes a log, and an uncommitted job that extends it and makes another topic."""
    rng = random.Random(1)
    first = Written(data_dir, partitions=2)
    first.task({OLD: make_rows(rng, 50)})
    first.publish()
    written = Written(data_dir, partitions=2, segment_bytes=6000)
    written.task({OLD: make_rows(rng, 100), NEW: make_rows(rng, 60)})
    written.task({OLD: make_rows(rng, 40)})
    return first.rows, written


def bury(written: Written) -> None:
    """Makes the driver of the job count as dead."""
    path = Path(written.job.path("job"))
    if path.exists():
        path.write_text(json.dumps({**members(path), "started": "never"}))


def restart(data_dir: Path) -> None:
    check_target(str(data_dir))


def reopen(data_dir: Path) -> None:
    with seglog.open(data_dir / "old-1"):
        pass


def manage(data_dir: Path) -> None:
    with seglog.LogManager([data_dir]) as manager:
        assert manager.live_log_dirs == [str(data_dir)]


@pytest.mark.parametrize("finish", quick_first([reopen, restart, manage], 1))
def test_every_step(tmp_path: Path, finish: Callable[[Path], None]) -> None:
    """Tests all steps for the next job, and every seventh for other openers of the directory."""
    outcomes = []
    stride = 1 if finish is restart else 7
    for step in range(1, 2000, stride):
        data_dir = tmp_path / str(step)
        first, written = prepare(data_dir)
        before = add({}, first, 2)
        after = add(before, written.rows, 2)
        was_killed = killed_at(step, lambda: written.publish(StreamBatch("q", 0)))
        # An immediate reader sees whole segments: none or the first of the new ones.
        for key, rows in contents(data_dir).items():
            assert rows == after[key][:len(rows)] and len(rows) >= len(before.get(key, []))
        if (data_dir / UNFINISHED_COMMIT).exists():
            outcomes.append("unfinished")
        bury(written)
        finish(data_dir)
        found = contents(data_dir)
        assert found in (before, after), step
        outcomes.append("after" if found == after else "before")
        assert not (data_dir / UNFINISHED_COMMIT).exists()
        restart(data_dir)
        assert contents(data_dir) == found and left_over(data_dir) == []
        check_sound(data_dir)
        # A committed job is known to be committed; any other can be written again.
        again = Written(data_dir, partitions=2)
        again.task(written.rows)
        assert bool(again.publish(StreamBatch("q", 0))) == (found == before)
        assert contents(data_dir).keys() == after.keys()
        again.job.end()
        if not was_killed:
            break
    else:
        raise AssertionError("the commit has no end")
    assert "before" in outcomes and "unfinished" in outcomes
    # A commit never disappears again.
    last = [one for one in outcomes if one != "unfinished"]
    assert last == sorted(last, reverse=True)


@pytest.mark.judge
def test_a_commit_that_finishes_is_finished_only_once(tmp_path: Path) -> None:
    """Processes that finish the commit are also killed."""
    for step in range(1, 2000):
        data_dir = tmp_path / str(step)
        rows, written = prepare(data_dir)
        assert killed_at(step, written.publish)
        if (data_dir / UNFINISHED_COMMIT / "journal").exists():
            break
    number = 1
    while killed_at(number, lambda: restart(data_dir)):
        number += 2
    assert number > 5
    assert contents(data_dir) == add(add({}, rows, 2), written.rows, 2)


def test_a_report_says_how_an_unfinished_commit_is_finished(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The advice was to move its directory away, which would have lost a part of the commit; and
    each file of a job, also of a living one, was a file with the name of a partition."""
    rows, written = prepare(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seglog.fragments.journal._finish", _fail)
        with pytest.raises(KafkaStorageError, match="the records are committed, but"):
            written.publish()
    for verb in (["load"], ["verify"], ["load", "--dry-run"]):
        assert main([*verb, str(tmp_path)]) == 1
        told = capsys.readouterr().out
        assert f"commit-unfinished: {UNFINISHED_COMMIT}: a crash interrupted" in told
        assert "directory-is-file" not in told and "move away" not in told
        assert "seglog load --recover finishes the interrupted commit" in told.splitlines()[-1]
    assert main(["load", "--recover", str(tmp_path)]) == 0
    assert contents(tmp_path) == add(add({}, rows, 2), written.rows, 2)


def _fail(*_: object) -> NoReturn:
    raise OSError(errno.EIO, "died")


def test_a_journal_that_cannot_be_read_stops_every_writer(tmp_path: Path) -> None:
    rows, _ = prepare(tmp_path)
    (tmp_path / UNFINISHED_COMMIT).mkdir()
    for content in (b"", b"{", b'{"version": 2, "moves": []}', b'{"version": 1, "moves": [[1]]}'):
        (tmp_path / UNFINISHED_COMMIT / "journal").write_bytes(content)
        with pytest.raises(KafkaStorageError, match="commit journal cannot be read"):
            check_target(str(tmp_path))
    assert contents(tmp_path) == add({}, rows, 2)
