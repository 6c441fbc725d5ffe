"""`seglog load --recover` and `--dry-run`: what they say, what they do, and that these agree."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from seglog.cli import recover
from seglog.storage.lock import FileLock
from seglog.storage import paths
from seglog.storage.checkpoint_files import read_offset_checkpoint
from tests.log.test_fast_path import batch
from tests.recovery.test_reported_losses import written
from tests.support import verbs
from tests.support.fingerprint import fingerprint

CONFIG = ("--config", "internal.segment.bytes=16384", "--config", "index.interval.bytes=512",
          "--config", "segment.index.bytes=16384")
Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *args: str | Path) -> tuple[int, str, str]:
    return verbs.run(capsys, "load", *CONFIG, *args)


def answer(state: dict[str, Any]) -> dict[str, Any]:
    """A state without what is not Kafka's."""
    return {key: value for key, value in state.items()
            if key != "findings" and not key.startswith("files_")}


def sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def copies(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """All damaged directories and a killed broker's, to be changed."""
    root = tmp_path_factory.mktemp("copies")
    sources = [*sorted(path for path in (golden / "damaged").iterdir() if path.is_dir()),
               golden / "real" / "unclean", golden / "real" / "clean"]
    yield [Path(shutil.copytree(source, root / source.name, symlinks=True)) for source in sources]
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def truth(golden: Path) -> dict[str, dict[str, Any]]:
    """What Kafka makes of each."""
    found: dict[str, dict[str, Any]] = json.loads((golden / "damaged" / "loaded.json").read_text())
    return found | json.loads((golden / "real" / "loaded.json").read_text())


def test_a_dry_run_leaves_a_torn_log_as_it_is(tmp_path: Path, capsys: Capture) -> None:
    root = tmp_path / "data"
    log = written(root, {0: [batch(2), batch(2)[:-1]]}) / f"{0:020d}.log"
    before, size = fingerprint(root), len(batch(2))
    code, out, err = run(capsys, "--dry-run", root)
    assert (code, err) == (1, "") and "up to 2 records in 1 batch, offsets 2 to 3" in out
    assert fingerprint(root) == before
    assert run(capsys, "--recover", root)[0] == 1 and log.stat().st_size == size


@pytest.mark.judge
def test_a_dry_run_touches_nothing_and_says_what_a_real_run_does(
        copies: list[Path], truth: dict[str, dict[str, Any]], capsys: Capture) -> None:
    before = {path: fingerprint(path) for path in copies}
    _, out, err = run(capsys, "--dry-run", "--states", *copies)
    assert err == ""
    assert {path: fingerprint(path) for path in copies} == before
    predicted = json.loads(out)

    code, out, err = run(capsys, "--recover", "--states", "--threads", "2", *copies)
    assert (code, err) == (1, "")
    # Findings too: every byte, offset and record.
    assert json.loads(out) == predicted
    assert {name: {partition: answer(state) for partition, state in states.items()}
            for name, states in predicted.items()} == \
        {name: {partition: answer(state) for partition, state in states.items()}
         for name, states in truth.items()}
    for path in copies:
        states = predicted[path.name]
        failed = {name for name, state in states.items() if "error" in state}
        assert (path / paths.CLEAN_SHUTDOWN_FILE).exists() == (not failed), path.name
        for name in set(states) - failed:
            wanted = truth[path.name][name]["files_closed"]
            assert sizes(path / name) == {file: one["size"] for file, one in wanted.items()}

    # The ones that went well are as a broker's clean shutdown leaves them: nothing is found.
    sound = [path for path in copies if (path / paths.CLEAN_SHUTDOWN_FILE).exists()]
    assert len(sound) > 60
    _, out, _ = run(capsys, "--recover", "--states", *sound)
    for path in sound:
        for name, state in json.loads(out)[path.name].items():
            codes = {one["code"] for one in state["findings"]}
            assert not codes & {"segment-rebuilt", "log-truncated", "segments-removed",
                                "index-missing", "orphan-index"}, (path.name, name)
            assert state["log_end_offset"] == predicted[path.name][name]["log_end_offset"]


def test_checkpoints_and_marker(golden: Path, tmp_path: Path, capsys: Capture) -> None:
    root = tmp_path / "data"
    shutil.copytree(golden / "real" / "unclean", root)
    starts = read_offset_checkpoint(root / paths.LOG_START_OFFSET_CHECKPOINT)
    code, out, err = run(capsys, "--recover", "--states", root)
    assert (code, err) == (0, "")
    states = json.loads(out)
    points = read_offset_checkpoint(root / paths.RECOVERY_POINT_CHECKPOINT)
    assert {str(key): offset for key, offset in points.items()} == {
        name: state["log_end_offset"] for name, state in states.items()
        if not name.startswith("__cluster_metadata") and not name.endswith("-delete")}
    assert read_offset_checkpoint(root / paths.LOG_START_OFFSET_CHECKPOINT) == starts
    assert not (root / paths.LOCK_FILE).exists()
    marker = json.loads((root / paths.CLEAN_SHUTDOWN_FILE).read_text())
    assert marker == {"version": 0, "brokerEpoch": -1}
    # Where the broker's own shutdown was clean, its epoch stays.
    shutil.copy(golden / "real" / "clean" / paths.CLEAN_SHUTDOWN_FILE, root)
    epoch = json.loads((root / paths.CLEAN_SHUTDOWN_FILE).read_text())["brokerEpoch"]
    assert run(capsys, "--recover", root)[0] == 0 and epoch > 0
    marker = json.loads((root / paths.CLEAN_SHUTDOWN_FILE).read_text())
    assert marker == {"version": 0, "brokerEpoch": epoch}


def test_text(golden: Path, tmp_path: Path, capsys: Capture) -> None:
    root = tmp_path / "data"
    shutil.copytree(golden / "real" / "unclean", root)
    log = max((root / "txn-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[300] ^= 1
    log.write_bytes(data)
    code, out, err = run(capsys, "--dry-run", root)
    assert (code, err) == (1, "")
    assert "unclean shutdown, dry run in" in out and "  would be cut, by topic:" in out
    assert "nothing was changed" in out and f"log-truncated: txn-0/{log.name}@" in out
    assert "temporary-deleted" not in out and "segment-rebuilt" not in out
    assert out.splitlines()[-1].startswith("data would be lost: a start cuts up to ")
    everything = run(capsys, "--dry-run", "--all", root)[1]
    assert "temporary-deleted" in everything and "segment-rebuilt" in everything
    told = [line.replace("would be ", "") for line in out.splitlines()[1:-2]]
    assert "  deleted: 11 files (15.5 KiB)" in told
    code, out, err = run(capsys, "--recover", root)
    assert (code, err) == (1, "")
    assert "clean shutdown marker written" in out and "temporary-deleted" not in out
    assert out.splitlines()[1:-2] == told
    assert out.splitlines()[-1].startswith("data was lost: up to ")
    code, out, _ = run(capsys, "--recover", root)
    assert code == 0 and "clean shutdown, recovered in" in out
    assert "no errors were found" in out.splitlines()[-1] and "cut, by topic" not in out


def test_a_failed_partition_stops_no_other(golden: Path, tmp_path: Path,
                                           capsys: Capture) -> None:
    root = tmp_path / "data"
    shutil.copytree(golden / "real" / "unclean", root)
    (root / "txn-0" / "leader-epoch-checkpoint").write_text("0\nx\n")
    (root / "lost+found").mkdir()
    points = read_offset_checkpoint(root / paths.RECOVERY_POINT_CHECKPOINT)
    predicted = json.loads(run(capsys, "--dry-run", "--states", root)[1])
    code, out, err = run(capsys, "--recover", "--states", root)
    assert (code, err) == (1, "")
    states = json.loads(out)
    assert states == predicted
    assert states["txn-0"]["error"] and "error" not in states["txn-1"]
    assert states["lost+found"]["error"] == "KafkaException"
    assert not (root / paths.CLEAN_SHUTDOWN_FILE).exists()
    after = read_offset_checkpoint(root / paths.RECOVERY_POINT_CHECKPOINT)
    for key, offset in after.items():
        failed = str(key) == "txn-0"
        assert offset == (points[key] if failed else states[str(key)]["log_end_offset"]), key
    _, out, _ = run(capsys, "--recover", root)
    assert "lost+found, txn-0" in out and "no clean shutdown marker" in out


@pytest.mark.parametrize("content", [b"0\n2\ntxn-0 0", b"0\nx\n", b"\xff\xfe", b"1\n0\n"])
def test_a_checkpoint_cut_in_half(golden: Path, tmp_path: Path, capsys: Capture,
                                  content: bytes) -> None:
    root = tmp_path / "data"
    shutil.copytree(golden / "real" / "unclean", root)
    (root / paths.RECOVERY_POINT_CHECKPOINT).write_bytes(content)
    code, out, err = run(capsys, "--recover", "--states", root)
    assert (code, err) == (1, "")  # the finding is an error
    truth = json.loads((golden / "real" / "loaded.json").read_text())["unclean"]
    for name, state in json.loads(out).items():
        assert state["log_end_offset"] == truth[name]["log_end_offset"]
    assert (root / paths.CLEAN_SHUTDOWN_FILE).exists()
    assert run(capsys, "--recover", root)[0] == 0


@pytest.mark.parametrize(("content", "action"), [
    ("0\n2\ntxn 0 5\n", "takes the directory offline when its log cleaner first reads the file"),
    ("0\n1\ntxn 0 5x\n", "its log cleaner ends when it reads the file")])
def test_the_cleaners_checkpoint_cut_in_half(golden: Path, tmp_path: Path, capsys: Capture,
                                            content: str, action: str) -> None:
    """A broker starts with it, and its first round of cleaning fails. No cleaner runs in a
    recovery, so it was neither reported nor replaced."""
    root = tmp_path / "data"
    shutil.copytree(golden / "real" / "clean", root)
    path = root / paths.CLEANER_OFFSET_CHECKPOINT
    path.write_text(content)
    for mode in ((), ("--dry-run",), ("--recover",)):
        assert path.read_text() == content
        code, out, err = run(capsys, *mode, root)
        assert (code, err) == (1, "")
        assert f"checkpoint-malformed: {path.name}@" in out and f"Kafka: {action}" in out
    assert path.read_text() == "0\n0\n"
    assert run(capsys, "--recover", root)[0] == 0


def test_level_full_rebuilds_what_kafka_believes(golden: Path, tmp_path: Path,
                                                capsys: Capture) -> None:
    root = tmp_path / "data"
    shutil.copytree(golden / "real" / "clean", root)
    index = min(path for path in (root / "plain-none-0").glob("*.index")
                if path.stat().st_size >= 16)
    sound = index.read_bytes()
    wrong = sound[8:16] + sound[:8] + sound[16:]
    index.write_bytes(wrong)
    for level in ("kafka", "full"):
        before = fingerprint(root)
        predicted = run(capsys, "--dry-run", "--states", "--level", level, root)
        assert fingerprint(root) == before
        assert run(capsys, "--recover", "--states", "--level", level, root) == predicted
        assert index.read_bytes() == (wrong if level == "kafka" else sound)
        codes = [one["code"] for one in json.loads(predicted[1])["plain-none-0"]["findings"]]
        assert codes == ([] if level == "kafka" else [
            "index-offset-order", "index-missing", "segment-rebuilt"])
    # The same as a setting, and nothing is left to do.
    code, out, _ = run(capsys, "--recover", "--config", "sanity.check.level=full", root)
    assert code == 0 and "rebuilt: 0 segments" in out


def test_two_directories_with_one_partition(golden: Path, tmp_path: Path,
                                            capsys: Capture) -> None:
    roots = [tmp_path / name for name in ("k1", "k2")]
    for root in roots:
        root.mkdir()
        shutil.copytree(golden / "real" / "clean" / "txn-0", root / "txn-0")
        shutil.copy(golden / "real" / "clean" / paths.META_PROPERTIES, root)
    assert run(capsys, "--dry-run", *roots)[0] == 0  # copies of one directory
    meta = roots[1] / paths.META_PROPERTIES
    meta.write_text(re.sub("directory.id=.*", "directory.id=Sl08ZXU2QW6uF5hIoSzc8w",
                           meta.read_text()))
    for mode in ("--dry-run", "--recover"):
        code, out, _ = run(capsys, mode, *roots)
        assert code == 1
        assert "duplicate-partition: txn-0: IllegalStateException: two directories hold the same " \
            f"partition (expected {roots[0]}/txn-0, found {roots[1]}/txn-0); Kafka: the broker " \
            "stops" in out


def test_quarantine(golden: Path, tmp_path: Path, capsys: Capture) -> None:
    root = tmp_path / "data"
    shutil.copytree(golden / "real" / "unclean", root)
    log = max((root / "plain-none-0").glob("*.log"))
    tail = os.urandom(100)
    with open(log, "ab") as stream:
        position = stream.tell()
        stream.write(tail)
    aside = tmp_path / "aside"
    assert run(capsys, "--dry-run", "--quarantine", aside, root)[0] == 1
    assert not aside.exists()
    assert run(capsys, "--recover", "--quarantine", aside, root)[0] == 1
    kept = [path for path in aside.rglob("*plain-none-0*") if path.is_file()]
    assert [path.read_bytes() for path in kept] == [tail]
    assert kept[0].name == f"plain-none-0_{log.name}@{position}"
    for mode in ("--recover", "--dry-run"):
        code, _, err = run(capsys, mode, "--quarantine", root / "aside", root)
        assert code == 2 and "is inside of" in err


def test_a_quarantine_that_cannot_be_made(golden: Path, tmp_path: Path, capsys: Capture) -> None:
    """It is refused before the first change: a recovery that began had removed snapshots."""
    root = tmp_path / "data"
    shutil.copytree(golden / "damaged" / "000-log_truncated", root)
    (tmp_path / "file").write_text("x")
    before = fingerprint(root)
    for mode, aside in product(("--recover", "--dry-run"),
                               (tmp_path / "file", tmp_path / "file" / "below")):
        code, out, err = run(capsys, mode, "--quarantine", aside, root)
        assert (code, out) == (2, "") and len(err.splitlines()) == 1
        assert f"{tmp_path / 'file'}: this is no directory, and --quarantine needs one" in err
    assert fingerprint(root) == before


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_a_checkpoint_that_cannot_be_read(golden: Path, tmp_path: Path, capsys: Capture,
                                          kind: str) -> None:
    """A dry run took it for empty, and said that logs begin anew which a recovery refuses."""
    root = tmp_path / "data"
    shutil.copytree(golden / "real" / "unclean", root)
    checkpoint = root / paths.LOG_START_OFFSET_CHECKPOINT
    if kind == "link":
        checkpoint.rename(tmp_path / "elsewhere")
        checkpoint.symlink_to(tmp_path / "elsewhere")
    else:
        checkpoint.unlink()
        checkpoint.mkdir()
    before = fingerprint(root)
    said = [run(capsys, mode, root) for mode in ("--recover", "--dry-run")]
    assert said[0] == said[1]
    code, out, err = said[0]
    assert (code, out) == (2, "") and f"error: {checkpoint}: " in err
    assert "put a file that can be read in its place" in err
    assert fingerprint(root) == before


def test_ctrl_c_at_the_metadata_log_leaves_no_marker(
        golden: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker was written, so that the next recovery did not scan that log."""
    root, whole = tmp_path / "data", tmp_path / "whole"
    for path in (root, whole):
        shutil.copytree(golden / "real" / "unclean", path)
    assert run(capsys, "--recover", whole)[0] == 0
    load_log = recover.load_log

    def interrupted(path: str, *args: Any, **how: Any) -> Any:
        if path.endswith("__cluster_metadata-0"):
            raise KeyboardInterrupt
        return load_log(path, *args, **how)

    with monkeypatch.context() as patched:
        patched.setattr(recover, "load_log", interrupted)
        assert run(capsys, "--recover", root)[0] == 130
    assert not (root / paths.CLEAN_SHUTDOWN_FILE).exists()
    assert run(capsys, "--recover", root)[0] == 0
    assert (root / paths.CLEAN_SHUTDOWN_FILE).exists()
    for path in sorted((whole / "__cluster_metadata-0").glob("*.*index")):
        assert (root / "__cluster_metadata-0" / path.name).read_bytes() == path.read_bytes()


def test_what_is_refused(golden: Path, tmp_path: Path, capsys: Capture) -> None:
    """One sentence, exit code 2, and nothing is touched, also not in the directories before."""
    roots = [tmp_path / name for name in ("first", "second")]
    for root in roots:
        shutil.copytree(golden / "real" / "unclean", root)
    lock = FileLock(str(roots[1] / paths.LOCK_FILE))
    assert lock.try_lock()
    before = [fingerprint(root / "txn-0") for root in roots]
    code, out, err = run(capsys, "--recover", *roots)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1 and str(roots[1]) in err and str(os.getpid()) in err
    assert [fingerprint(root / "txn-0") for root in roots] == before
    lock.destroy()
    for wrong, word in ((tmp_path / "nowhere", "nowhere"), (roots[0] / "txn-0", "partition")):
        for mode in ("--recover", "--dry-run"):
            code, out, err = run(capsys, mode, wrong)
            assert (code, out) == (2, "") and word in err and len(err.splitlines()) == 1
    meta = roots[0] / paths.META_PROPERTIES
    text = meta.read_text()
    meta.write_text(text.replace("version=1", "version=2"))
    for mode in ("--recover", "--dry-run"):
        code, out, err = run(capsys, mode, roots[0])
        assert (code, out) == (2, "") and len(err.splitlines()) == 1
        assert err == (
            "seglog: error: MalformedCheckpointError [meta_properties]: Unknown meta.properties "
            "version number 2; a broker does not start with it, and nothing was changed: put this "
            f"directory's own meta.properties back (file {meta})\n")
    meta.unlink()
    meta.mkdir()
    code, out, err = run(capsys, "--recover", roots[0])
    assert (code, out, err) == (2, "", (
        f"seglog: error: {meta}: not a regular file; nothing was changed: put a file that can be "
        "read in its place\n"))
    meta.rmdir()
    meta.write_text(text)
    assert run(capsys, "--quarantine", tmp_path / "q", roots[0])[0] == 2
    assert run(capsys, "--states", roots[0])[0] == 2
    assert [fingerprint(root / "txn-0") for root in roots] == before
