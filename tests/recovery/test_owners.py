"""The owners of files that a recovery, a manager or a log creates in another user's directory."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from seglog.cli.main import main
from seglog.model import TopicPartition
from seglog.storage import ownership
from seglog.storage.textfile import replace_file
from tests.support.effort import how_many, quick_each
from tests.support.users import acting_as, make_reachable

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")
Copy = Callable[[str], Path]
USER, GROUP = 1234, 2345

OPEN = """
import sys
import seglog
root = sys.argv[1]
with seglog.LogManager(root) as manager:
    for key, log in manager.current_logs.items():
        if not key.topic.startswith("__"):
            before = log.log_end_offset
            log.append_as_leader(bytes.fromhex(sys.argv[2]), 1 << 20)
            assert log.log_end_offset > before
print("fine")
"""
APPEND = """
import logging, sys
import seglog
logging.basicConfig()
for name in "ab":
    with seglog.open(f"{sys.argv[1]}/{name}-0") as log:
        log.append(b"x")
"""
RECOVER = """
import sys
from seglog.cli.main import main
sys.exit(main(["load", "--recover", *sys.argv[1:]]))
"""


def give(root: Path, user: int = USER, group: int = GROUP, *, directories: int = 0o750,
         files: int = 0o640) -> None:
    """A directory, and all in it, to a user; and a way to it."""
    for path in [root, *root.rglob("*")]:
        os.chown(path, user, group, follow_symlinks=False)
        os.chmod(path, directories if path.is_dir() else files)
    make_reachable(root)


def owners(root: Path) -> dict[str, tuple[int, int, str]]:
    found = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        found[str(path.relative_to(root))] = (
            status.st_uid, status.st_gid, stat.filemode(status.st_mode))
    return found


def run_as(user: int, code: str, *args: str | Path, group: int = GROUP, also: int | None = None
           ) -> subprocess.CompletedProcess[str]:
    """A program of another user, which may read ours: the modules are loaded before. `also` is a
    second group of the user."""
    start = ("import os, encodings.utf_16_be, seglog, seglog.manager.manager, "
             "seglog.embedded.embedded_log, "
             "seglog.cli.main, seglog.cli.load, seglog.cli.recover, seglog.cli.summary\n"
             f"os.setgroups({[] if also is None else [also]}); os.setgid({group}); "
             f"os.setuid({user})\n")
    return subprocess.run(
        [sys.executable, "-c", start + code, *map(str, args)], text=True, capture_output=True,
        timeout=1800, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(
            os.path.abspath(path or ".") for path in sys.path)})


def a_batch() -> str:
    from tests.manager.records import batch

    return bytes(batch(2)).hex()


def damage(root: Path, seed: int) -> None:
    """Files of all kinds missing, cut, or wrong, so that a recovery makes and replaces many."""
    dice = random.Random(seed)
    files = sorted(path for path in root.rglob("*") if path.is_file()
                   and not path.name.startswith("meta"))
    for path in dice.sample(files, len(files) // 3):
        if path.suffix == ".log":
            if dice.random() < 0.5:
                os.truncate(path, dice.randrange(path.stat().st_size + 1))
        elif dice.random() < 0.5 or path.suffix not in (".index", ".timeindex", ".snapshot"):
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("seed", range(how_many("SEGLOG_OWNERS_SEEDS", 4, 1)))
def test_a_recovery_as_root_leaves_all_to_the_owner(
        golden_copy: Copy, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    root = golden_copy("real/unclean")
    damage(root, seed)
    directories, files = ((0o750, 0o640), (0o755, 0o644), (0o700, 0o600), (0o755, 0o600))[seed % 4]
    give(root, directories=directories, files=files)
    old = os.umask((0o022, 0o077, 0o000, 0o027)[seed // 4 % 4])
    try:
        assert main(["load", "--recover", "--quarantine", str(root.parent / "kept"), str(root)]) < 2
    finally:
        os.umask(old)
    assert "owner-not-kept" not in capsys.readouterr().out
    wrong = {name: found for name, found in owners(root).items() if found != (
        USER, GROUP, stat.filemode(root.joinpath(name).lstat().st_mode & ~0o777
                                   | (directories if (root / name).is_dir() else files)))}
    assert not wrong
    # What is kept is the affair of who ran it.
    assert all(path.stat().st_uid == 0 for path in (root.parent / "kept").rglob("*"))
    done = run_as(USER, OPEN, root, a_batch())
    assert done.stdout == "fine\n", done.stderr


def test_a_manager_and_a_log_as_root(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    give(root, directories=0o2770)
    config = seglog.config.LogConfig().override(  # type: ignore[attr-defined]
        {"segment.bytes": str(1 << 20)})
    with seglog.open(root / "events-0", config=config) as log:
        log.append_many([os.urandom(1000)] * 3000)
        assert (root / ".lock").stat().st_uid == USER
    with seglog.LogManager(root) as manager:
        made = manager.get_or_create_log(seglog.TopicPartition("made", 0))
        made.append_as_leader(bytes.fromhex(a_batch()), 1)
        made.roll()
    found = owners(root)
    assert len([name for name in found if name.endswith(".log")]) > 4
    assert any(name.endswith(".snapshot") for name in found)
    for name, owner in found.items():
        is_directory = (root / name).is_dir()
        assert owner == (USER, GROUP, "drwxrws---" if is_directory else "-rw-rw----"), name
    assert ownership.chown_command(root) is None
    assert run_as(USER, OPEN, root, a_batch()).stdout == "fine\n"


def test_a_new_data_directory_belongs_to_who_has_the_one_above(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    give(home)
    with seglog.open(home / "app" / "data" / "t-0") as log:
        log.append(b"x")
    assert {owner[:2] for owner in owners(home).values()} == {(USER, GROUP)}
    os.chmod(home, 0o1777)  # as /tmp
    with seglog.open(home / "mine" / "t-0") as log:
        log.append(b"x")
    assert {owner[:2] for owner in owners(home / "mine").values()} == {(0, 0)}


def test_a_new_data_directory_that_cannot_be_given_away_is_no_reason_to_give_those_beside_it(
        tmp_path: Path) -> None:
    give(tmp_path, directories=0o777)
    with acting_as(USER + 1), seglog.LogManager(tmp_path / "k"):
        pass
    assert ownership.chown_command(tmp_path) is None


def test_a_log_whose_index_may_not_be_written_is_found_at_the_start(tmp_path: Path) -> None:
    """Kafka maps the active segment's indexes for writing."""
    roots = [tmp_path / "k", tmp_path / "l"]
    for root in roots:
        with seglog.LogManager(root) as manager:
            manager.get_or_create_log(TopicPartition(root.name, 0))
    give(tmp_path)
    (roots[0] / "k-0" / f"{0:020d}.index").chmod(0o440)
    with acting_as(USER), seglog.LogManager(roots) as manager:
        assert manager.offline_log_dirs == [str(roots[0])]


def test_what_is_replaced_keeps_owner_and_mode_also_in_ones_own_directory(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text("0\n0\n")
    os.chown(path, USER, GROUP)
    os.chmod(path, 0o606)
    replace_file(path, b"0\n0\n", f"{path}.tmp")
    status = path.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (USER, GROUP, 0o606)


def test_no_link_is_followed_and_no_other_file_changes_hands(tmp_path: Path) -> None:
    """A directory's owner may plant names for root's files where root is about to write."""
    secret = tmp_path / "secret"
    secret.write_text("root only")
    os.chmod(secret, 0o600)
    root = tmp_path / "data"
    root.mkdir()
    path = root / "recovery-point-offset-checkpoint"
    for plant in (lambda name: name.symlink_to(secret), lambda name: os.link(secret, name)):
        give(root)
        plant(Path(f"{path}.tmp"))
        replace_file(path, b"0\n0\n", f"{path}.tmp")
        assert path.read_bytes() == b"0\n0\n" and not path.is_symlink()
        assert path.stat().st_uid == USER
        plant(root / "planted")
        try:
            os.close(ownership.open_file(root / "planted", os.O_RDWR))
        except OSError:
            assert (root / "planted").is_symlink()
        (root / "planted").unlink()
    status = secret.stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o600)
    assert secret.read_text() == "root only"


def test_a_user_who_may_write_but_not_give_away(golden_copy: Copy) -> None:
    root = golden_copy("real/unclean")
    damage(root, 5)
    give(root, directories=0o2770, files=0o660)
    done = run_as(4321, RECOVER, root)
    assert done.returncode < 2, done.stderr
    found = [line for line in done.stdout.splitlines() if "owner-not-kept" in line]
    assert len(found) == 1 and f"chown -R {USER}:{GROUP} {root}" in found[0]
    assert not done.stderr
    # At least their group and the permissions of others are right, so the owner can continue.
    assert {owner[1:] for owner in owners(root).values()} == {
        (GROUP, "drwxrws---"), (GROUP, "-rw-rw----")}
    subprocess.run(found[0].partition("run as root: ")[2].partition(";")[0].split(), check=True)
    assert {owner[0] for owner in owners(root).values()} == {USER}


def test_a_user_gives_files_to_the_group_and_is_told_once_of_the_owner(tmp_path: Path) -> None:
    """Who is in the group, which is not the user's first one."""
    root = tmp_path / "data"
    root.mkdir()
    give(root, directories=0o770)
    done = run_as(4321, APPEND, root, group=999, also=GROUP)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"run as root: chown -R {USER}:{GROUP} {root}\n") == 1, done.stderr
    made = list(root.iterdir())
    assert len(made) > 2 and {path.stat().st_gid for path in made} == {GROUP}


def test_who_may_not_give_files_away_is_told_once_per_data_directory(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """As in the two tests above, in this process."""
    real = os.fchown

    def refuse(descriptor: int, user: int, group: int) -> None:
        if user != -1:
            raise PermissionError(1, "Operation not permitted")
        real(descriptor, user, group)

    monkeypatch.setattr(os, "fchown", refuse)
    roots = [tmp_path / "one", tmp_path / "an other"]
    for root in roots:
        root.mkdir()
        give(root, directories=0o770)
        for name in "ab":
            with seglog.open(root / f"{name}-0") as log:
                log.append(b"x")
    commands = [f"chown -R {USER}:{GROUP} {root}" for root in (roots[0], f"'{roots[1]}'")]
    assert [ownership.chown_command(root) for root in roots] == commands
    assert [line.partition("run as root: ")[2] for line in caplog.messages] == commands
    assert {path.stat().st_gid for root in roots for path in root.iterdir()} == {GROUP}


@pytest.mark.parametrize(("name", "mode"), quick_each([
    *(pytest.param(name, 0o600) for name in (
        "log-start-offset-checkpoint", "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint", "meta.properties")),
    pytest.param(".lock", 0o644)], 2))
def test_a_file_of_roots_at_the_top_is_refused_before_anything_changes(golden_copy: Copy,
                                                                     name: str, mode: int) -> None:
    """As it is left when the broker was once started by root. A checkpoint that counted as empty
    was replaced: the log starts were lost."""
    root = golden_copy("real/unclean")
    give(root)
    path = root / name
    path.touch()
    os.chown(path, 0, 0)
    os.chmod(path, mode)
    before = {one: one.read_bytes() for one in root.rglob("*") if one.is_file()}
    done = run_as(USER, RECOVER, root)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (f"seglog: error: {path}: this user may not read and write it; run the "
                           "recovery as its owner (user 0) or as root\n")
    assert {one: one.read_bytes() for one in root.rglob("*") if one.is_file()} == before


def test_without_a_umask_all_may_read_and_write(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with seglog.open(tmp_path / "data" / "t-0") as log:
            log.append(b"x")
    finally:
        os.umask(old)
    assert {mode for *_, mode in owners(tmp_path / "data").values()} == {
        "drwxrwxrwx", "-rw-rw-rw-"}


def test_the_usual_case_is_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        with seglog.open(tmp_path / "data" / "t-0") as log:
            log.append(b"x")
    finally:
        os.umask(old)
    assert set(owners(tmp_path / "data").values()) == {(0, 0, "drwxr-x---"), (0, 0, "-rw-r-----")}


def test_a_file_has_the_mode_of_its_log_or_of_one_beside_it(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir(mode=0o750)
    os.chown(directory, USER, GROUP)

    def made(name: str) -> int:
        os.close(ownership.create_file(str(directory / name)))
        return stat.S_IMODE((directory / name).stat().st_mode)

    assert made("first") == 0o640, "that of the directory"
    (directory / "first").chmod(0o600)
    assert made("second") == 0o600
    (directory / "5.log").touch()
    (directory / "5.log").chmod(0o604)
    assert made("5.index") == 0o604
