"""Every verb on every path that it must refuse: exit code 2, one line, and nothing changed."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import seglog
from seglog.cli.main import main
from seglog.errors import ConfigError, DuplicateLogDirError, KafkaStorageError, LogDirLockedError
from tests.support.effort import how_many
from tests.support.fingerprint import fingerprint
from tests.support.users import acting_as, make_reachable, without_rights

Copy = Callable[[str], Path]

READS = ("load", "load --json", "load --level full", "verify", "ls", "ls --segments", "cat -e")
WRITES = ("load --recover", "load --recover --json", "load --dry-run")
SEEDS = how_many("SEGLOG_PLACES_SEEDS", 150, 30)
HOLD = """
import sys
from seglog.storage.lock import FileLock
assert FileLock(sys.argv[1]).try_lock()
print("held", flush=True)
sys.stdin.readline()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(
        os.path.abspath(path or ".") for path in sys.path), "PYTHONDONTWRITEBYTECODE": "1"}


def run(verb: str, *paths: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line, in this process: a start of Python takes longer than most verbs."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
            contextlib.chdir(cwd or "."):
        code = main([*verb.split(), *paths])
    out.flush()
    return subprocess.CompletedProcess([verb, *paths], code, out.buffer.getvalue().decode(),
                                       err.getvalue())


def run_as(user: int, verb: str, *paths: str) -> subprocess.CompletedProcess[str]:
    """The command line with the rights of another user, who need not be able to read what it
    imports."""
    for name in ("cat", "compact", "document", "load", "ls", "recover", "summary", "verify"):
        importlib.import_module(f"seglog.cli.{name}")
    with acting_as(user):
        return run(verb, *paths)


def refused(done: subprocess.CompletedProcess[str], path: str) -> str:
    """The one line of a verb that was refused; it has `path`."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("seglog: "), done.stderr
    assert path in lines[0], (path, lines[0])
    assert "Traceback" not in done.stderr and "broker because" not in done.stderr
    return lines[0]


# ---- paths that are no data directory

def make_places(root: Path, golden: Path) -> dict[str, str]:
    """Paths by name, none of which is a data directory."""
    data = Path(shutil.copytree(golden / "real" / "clean", root / "parent" / "b1" / "data"))
    log = data / "txn-0" / "00000000000000000000.log"
    (root / "empty").mkdir()
    (root / "fresh mount" / "lost+found").mkdir(parents=True)
    (root / "file").write_text("x")
    (root / "link to nothing").symlink_to(root / "nowhere")
    (root / "circle").symlink_to(root / "circle")
    (root / "issue" / "x-0").mkdir(parents=True)
    (root / "issue" / "x-0" / "a.deleted").write_text("precious")
    (root / "issue" / ".lock").write_text("")
    (root / "project" / "src").mkdir(parents=True)
    (root / "project" / "pyproject.toml").write_text("[project]\n")
    (root / "project" / ".git").mkdir()
    (root / "kafka" / "bin").mkdir(parents=True)
    (root / "kafka" / "bin" / "kafka-server-start.sh").write_text("#!/bin/sh\n")
    (root / "kafka" / "libs").mkdir()
    (root / "daily" / "app-1").mkdir(parents=True)
    (root / "daily" / "app-1" / "20240101.log").write_text("started\n")
    return {
        "parent": str(root / "parent"), "empty": str(root / "empty"), "file": str(root / "file"),
        "mount": str(root / "fresh mount"), "missing": str(root / "missing"),
        "link to nothing": str(root / "link to nothing"), "circle": str(root / "circle"),
        "issue": str(root / "issue"), "slash": f"{root}/issue/", "dots": f"{root}/empty/../issue",
        "project": str(root / "project"), "kafka": str(root / "kafka"),
        "daily": str(root / "daily"), "log file": str(log), "inside": str(data / "txn-0" / "sub"),
        "below a file": f"{log}/x"}


def test_no_verb_takes_what_is_no_data_directory(tmp_path: Path, golden: Path) -> None:
    """Verbs and paths are drawn: each verb and each path often, not each pair every time."""
    places = make_places(tmp_path, golden)
    before = fingerprint(tmp_path)
    pairs = list(itertools.product((*READS, *WRITES), sorted(places)))
    random.Random(os.environ.get("SEGLOG_PLACES_SEED", "10")).shuffle(pairs)
    for verb, name in pairs[:SEEDS]:
        line = refused(run(verb, places[name]), os.path.abspath(places[name]))
        if name == "parent":
            assert line.endswith(f"did you mean {tmp_path}/parent/b1/data?"), line
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("verb", [*READS, *WRITES, "dump", "dump --files",
                                  "load --recover --quarantine", "load --properties"])
def test_an_empty_path_is_not_the_current_directory(verb: str, golden_copy: Copy) -> None:
    root = golden_copy("real/unclean")
    before = fingerprint(root)
    option = verb.startswith(("load --recover --q", "load --prop"))
    done = run(verb, "", *([str(root)] if option else []), cwd=root)
    assert "is a variable not set?" in refused(done, "the path is empty")
    assert fingerprint(root) == before


def test_a_recovery_of_what_the_issue_found(tmp_path: Path) -> None:
    (tmp_path / "x-0").mkdir()
    (tmp_path / "x-0" / "a.deleted").write_text("precious")
    before = fingerprint(tmp_path)
    assert "'x-0/a.deleted'" in refused(run("load --recover", str(tmp_path)), str(tmp_path))
    refused(run("load --recover", ".", cwd=tmp_path), str(tmp_path))
    assert fingerprint(tmp_path) == before


def test_a_directory_is_not_given_twice(golden_copy: Copy, tmp_path: Path) -> None:
    root = golden_copy("real/unclean")
    (tmp_path / "link").symlink_to(root)
    before = fingerprint(root)
    for verb, again in itertools.product(
            (*WRITES, "load", "verify --json", "compact --dry-run"),
            (str(root), f"{root}/", str(tmp_path / "link"), f"{root}/../{root.name}")):
        assert "Duplicate" in refused(run(verb, str(root), again), str(root))
    assert fingerprint(root) == before


def test_one_bad_path_among_good_ones_stops_all(golden_copy: Copy, tmp_path: Path) -> None:
    root = golden_copy("real/unclean")
    (tmp_path / "other").mkdir()
    before = fingerprint(root)
    refused(run("load --recover", str(root), str(tmp_path / "other")), str(tmp_path / "other"))
    assert fingerprint(root) == before


def test_through_a_link_or_with_a_slash_it_is_the_same_directory(
        golden_copy: Copy, tmp_path: Path) -> None:
    for number, spell in enumerate((lambda path: f"{path}/", lambda path: f"{path}//.",
                                    lambda path: str(tmp_path / "link"))):
        root = golden_copy("real/unclean")
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(root)
        assert run("load --recover", spell(root)).returncode == 0, number
        assert (root / ".kafka_cleanshutdown").exists()


def test_a_link_to_itself_hides_no_partition(golden_copy: Copy) -> None:
    """Java's File.isDirectory is false for it, and so is the loader's answer."""
    root = golden_copy("real/clean")
    expected = run("ls", str(root)).stdout
    (root / "circle").symlink_to(root / "circle")
    for verb in ("ls", "load", "cat -e -q -c 1 -f %o"):
        assert run(verb, str(root)).returncode == 0
    assert run("ls", str(root)).stdout == expected
    with seglog.LogManager(root) as manager:
        assert seglog.TopicPartition("txn", 0) in [
            log.topic_partition for log in manager.all_logs]


def test_what_a_broker_does_without_meta_properties(golden_copy: Copy) -> None:
    root = golden_copy("real/unclean")
    (root / "meta.properties").unlink()
    for verb in ("load", "load --dry-run", "load --recover"):
        done = run(verb, str(root))
        assert "kafka-storage.sh format" in done.stdout and done.returncode == 0
    assert "does not start before meta.properties is there" in done.stdout


# ---- locks and permissions

@pytest.fixture
def held(golden_copy: Copy) -> Iterator[tuple[Path, int]]:
    """A directory that another process has open, and its number."""
    root = golden_copy("real/unclean")
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(root / ".lock")], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield root, process.pid
    process.communicate("\n")


def test_who_has_it_is_named(held: tuple[Path, int]) -> None:
    root, pid = held
    before = fingerprint(root)
    line = refused(run("load --recover", str(root)), str(root))
    assert f"in use by process {pid} (python" in line
    for verb in ("load", "verify", "load --dry-run"):
        done = run(verb, str(root))
        head = done.stdout.splitlines()[0]
        assert f"in use by process {pid} (python" in head and "unclean shutdown" not in head
        assert "directory-in-use" in done.stdout and "unclean-shutdown" not in done.stdout
        assert done.returncode == 0
    assert fingerprint(root) == before, "a load that reads touches no lock file either"


def test_a_second_open_in_this_process_says_so(golden_copy: Copy) -> None:
    root = golden_copy("real/unclean")
    with seglog.LogManager(root):
        with pytest.raises(LogDirLockedError, match="already open in this process"):
            seglog.LogManager(root)
        with pytest.raises(LogDirLockedError, match="already open in this process"):
            seglog.open(root / "txn-0")
        with seglog.open_data_dir(root) as data:
            assert data.report.in_use_by == f"this process ({os.getpid()})"
        # Neither look gave the lock up, which closing any descriptor of its file would do.
        done = subprocess.run([sys.executable, "-m", "seglog", "load", "--recover", root],
                              capture_output=True, text=True, check=False, env=environment())
        assert str(os.getpid()) in refused(done, str(root))


@needs_root
@pytest.mark.parametrize("hidden", ["directory", "partition", "log file", "read-only",
                                    "checkpoint"])
def test_a_user_who_may_not(golden_copy: Copy, hidden: str) -> None:
    root = golden_copy("real/unclean")
    make_reachable(root)
    root.chmod(0o755)
    mine = [root, *root.rglob("*")]
    if hidden != "read-only":
        for path in mine:
            os.chown(path, 1234, 2345)
    victim = {"directory": root, "partition": root / "txn-0",
              "log file": root / "txn-0" / "00000000000000000000.log", "read-only": root,
              "checkpoint": root / "txn-0" / "leader-epoch-checkpoint"}[hidden]
    os.chown(victim, 0, 0)
    os.chmod(victim, 0o755 if hidden == "read-only" else 0o700)
    before = fingerprint(root)
    refused(run_as(1234, "load --recover", str(root)), str(victim))
    assert fingerprint(root) == before
    if hidden == "directory":
        for verb in ("load", "ls", "load --dry-run"):
            refused(run_as(1234, verb, str(root)), str(root))


@needs_root
def test_a_checkpoint_that_this_user_may_not_read(golden_copy: Copy) -> None:
    """A dry run says what a recovery says. (It took the checkpoint for empty.)"""
    root = golden_copy("real/unclean")
    make_reachable(root)
    root.chmod(0o755)
    for path in [root, *root.rglob("*")]:
        os.chown(path, 1234, 2345)
    checkpoint = root / "log-start-offset-checkpoint"
    os.chown(checkpoint, 0, 0)
    checkpoint.chmod(0o600)
    said = [refused(run_as(1234, f"load {mode}", str(root)), str(checkpoint))
            for mode in ("--recover", "--dry-run")]
    assert said[0] == said[1] and "as its owner (user 0) or as root" in said[0]


@needs_root
def test_what_only_this_user_may_not_read(golden_copy: Copy) -> None:
    """It said that the directory goes offline; the broker may well have the right."""
    root = golden_copy("real/clean")
    make_reachable(root)
    root.chmod(0o755)
    (root / "txn-0" / "00000000000000000000.log").chmod(0o600)
    (root / "txn-1").chmod(0o700)
    done = run_as(1234, "verify --all", str(root))
    lines = [line for line in done.stdout.splitlines() if "Permission denied" in line]
    assert done.returncode == 2  # not checked; it was 1, as for damage
    assert {line.split(":")[0].split()[1] for line in lines} == {
        "file-unreadable", "directory-unreadable"}
    assert all(line.endswith("; Kafka: the data directory goes offline if the broker's user may "
                             "not read it either") for line in lines)


@needs_root
def test_an_index_that_this_user_may_not_read_hides_no_other_log(golden_copy: Copy) -> None:
    """It was one line of an error, and nothing of the other partitions."""
    root = golden_copy("real/clean")
    make_reachable(root)
    root.chmod(0o755)
    index = next(last for last in (max(one.glob("*.index")) for one in root.iterdir()
                                   if one.is_dir() and one.name != "__cluster_metadata-0")
                 if last.stat().st_size)
    index.chmod(0o600)
    done = run_as(1234, "load --all", str(root))
    assert (done.returncode, done.stderr) == (2, "")
    lines = [line for line in done.stdout.splitlines() if "Permission denied" in line]
    assert len(lines) == 1 and f"{index.parent.name}/{index.name}" in lines[0]


@needs_root
def test_ls_names_what_it_may_not_read_once(golden_copy: Copy) -> None:
    root = golden_copy("real/clean")
    make_reachable(root)
    root.chmod(0o755)
    (root / "txn-1").chmod(0o700)
    done = run_as(1234, "ls", str(root))
    assert (done.returncode, done.stderr) == (
        1, f"seglog: error: {root / 'txn-1'}: a system call failed: Permission denied\n")


@needs_root
@pytest.mark.parametrize("hidden", ["partition", "file", "checkpoint"])
def test_a_compaction_that_would_fail_halfway_changes_nothing(tmp_path: Path, hidden: str) -> None:
    """The directory lost its clean shutdown marker."""
    root = tmp_path / "data"
    with seglog.LogManager(root) as manager:
        manager.get_or_create_log(seglog.TopicPartition("__consumer_offsets", 0), is_new=True)
    make_reachable(root)
    for path in [root, *root.rglob("*")]:
        os.chown(path, 1234, 2345)
    victim = {"partition": root / "__consumer_offsets-0",
              "file": root / "__consumer_offsets-0" / "00000000000000000000.log",
              "checkpoint": root / "replication-offset-checkpoint"}[hidden]
    os.chown(victim, 0, 0)
    victim.chmod(0o700)
    before = fingerprint(root)
    done = run_as(1234, "compact", str(root))
    assert done.returncode == 2 and "not done" in done.stdout
    assert done.stderr == (f"seglog: error: {victim}: this user may not read and write it; run the "
                           "compaction as its owner (user 0) or as root\n")
    assert fingerprint(root) == before and (root / ".kafka_cleanshutdown").exists()


@needs_root
@pytest.mark.parametrize("verb", ["ls", "cat -e", "load", "verify"])
def test_a_data_directory_that_may_be_listed_and_not_entered(tmp_path: Path, verb: str) -> None:
    """It was "no data directory", although its checkpoints were named."""
    root = tmp_path / "data"
    with seglog.LogManager(root) as manager:
        manager.get_or_create_log(seglog.TopicPartition("t", 0), is_new=True)
    run(verb, str(root))  # what is imported
    root.chmod(0o744)
    with without_rights(tmp_path):
        said = refused(run(verb, str(root)), str(root))
    assert said.endswith("Permission denied")



# ---- the library

def test_the_library_refuses_an_empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (seglog.open, seglog.LogManager, seglog.open_data_dir, seglog.PartitionLog.open,
                 lambda path: seglog.LogManager([tmp_path / "k", path])):
        with pytest.raises((KafkaStorageError, ConfigError), match="is a variable not set"):
            call("")
    assert list(tmp_path.iterdir()) == []


def test_where_logs_may_begin(tmp_path: Path) -> None:
    for name in ("missing", "empty", "below/that"):
        if name == "empty":
            (tmp_path / name).mkdir()
        with seglog.LogManager(tmp_path / "manager" / name) as manager:
            assert manager.live_log_dirs
        with seglog.open(tmp_path / "embedded" / name / "events-0") as log:
            assert log.append(b"x") == 0
    for name in ("lost+found", ".gitkeep"):  # a fresh mount, an empty directory in a repository
        (tmp_path / name / name).mkdir(parents=True)
        with seglog.open(tmp_path / name / "events-0") as log:
            assert log.append(b"x") == 0


def test_where_logs_may_not_begin(tmp_path: Path, golden: Path) -> None:
    make_places(tmp_path, golden)
    before = fingerprint(tmp_path)
    for name in ("parent", "issue", "project", "kafka", "daily", "parent/b1/data/txn-0",
                 "parent/b1/data/txn-0/sub"):
        path = tmp_path / name
        for call in (lambda path: seglog.open(path / "events-0"), seglog.LogManager,
                     lambda path: seglog.LogManager([tmp_path / "new", path])):
            with pytest.raises(KafkaStorageError) as caught:
                call(path)
            assert caught.value.filename == str(path)
    assert fingerprint(tmp_path) == before


def test_a_log_stays_open_to_its_program_whatever_lies_beside_it(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "events-0") as log:
        log.append(b"x")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "photos").mkdir()
    with seglog.open(tmp_path / "events-0") as log, seglog.open(tmp_path / "more-0"):
        assert log.log_end_offset == 1


@pytest.mark.parametrize("left", [
    [".lock"], [".lock", "events-0/"], ["events-0/partition.metadata"],
    [".kafka_cleanshutdown", "recovery-point-offset-checkpoint.tmp"],
    ["events-0/00000000000000000000.index", "events-0/leader-epoch-checkpoint.tmp"],
    ["events-0/00000000000000000000.timeindex.new.deleted"]])
def test_a_crash_at_the_very_beginning_locks_no_program_out(tmp_path: Path,
                                                            left: list[str]) -> None:
    for name in left:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if name.endswith("/"):
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_bytes(b"")
    if any("metadata" in name for name in left):
        (tmp_path / "events-0" / "partition.metadata").unlink()
        (tmp_path / "events-0" / "partition.metadata.tmp").write_text("")
    with seglog.open(tmp_path / "events-0") as log:
        assert log.append(b"x") == 0


def test_the_same_directory_twice_in_one_manager(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "k")
    (tmp_path / "k").mkdir()
    with pytest.raises(DuplicateLogDirError):
        seglog.LogManager([tmp_path / "k", tmp_path / "link"])
    assert list((tmp_path / "k").iterdir()) == []


@pytest.mark.parametrize("verb", ["load", *WRITES, "verify", "verify --spark local[2]", "compact",
                                  "dump", "dump --files"])
def test_a_url_is_no_directory_below_this_one(verb: str) -> None:
    done = run(verb, "s3://bucket/data")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("seglog: error: s3://bucket/data: this is a URL, and only a ")
