"""The dispatcher: lazily imported verbs, exit codes, and streams that go away."""

from __future__ import annotations

import os
import pty
import select
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seglog.cli import main as cli
from seglog.cli import render
from seglog.errors import CorruptRecordError, SeglogError
from tests.support.dump import run_seglog
from tests.support.effort import quick_each
from tests.support.readme import ROOT
from tests.support.waiting import PATIENCE

SEGLOG = [sys.executable, "-m", "seglog"]


def test_help_lists_the_verbs_and_imports_none() -> None:
    code = ("import sys; from seglog.cli.main import main\n"
            "try: main(['--help'])\nexcept SystemExit: pass\n"
            "print([m for m in sys.modules if m.startswith('seglog.dump')"
            " or m in ('numpy', 'json', 'typing', 'shutil', 'zlib', 'subprocess', 'pathlib',"
            " 'dataclasses', 'inspect', 'concurrent.futures')])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for verb, summary in cli.VERBS.items():
        assert verb in done.stdout
        assert summary.split()[0] in done.stdout
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize(("verb", "said"), [
    ("verify", "the tier of the partitions below PATH is checked instead of their files"),
    ("dump", "FILEs are then names of partitions, such as orders-0"),
    ("ls", "without PATH they are read from the tier alone")])
def test_a_verb_says_what_it_does_with_a_tier(verb: str, said: str,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    """verify and dump said that they need no path, which is true of the readers alone."""
    with pytest.raises(SystemExit):
        cli.main([verb, "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    assert said in help_text
    assert ("without PATH" in help_text) == (verb == "ls")


@pytest.mark.parametrize("columns", ["40", "100", "0", "x"])
def test_help_is_as_wide_as_argparse_makes_it(columns: str) -> None:
    code = ("import argparse, sys; from seglog.cli import main\n"
            "if sys.argv[1] == 'argparse': main._formatter = argparse.HelpFormatter\n"
            "main.main(['--help'])")
    shown = [subprocess.run([sys.executable, "-c", code, formatter], capture_output=True,
                            env={**os.environ, "COLUMNS": columns}, check=True).stdout
             for formatter in ("argparse", "ours")]
    assert shown[0] == shown[1] and b"usage: seglog" in shown[0]


def test_the_pages_name_options_that_a_verb_has() -> None:
    tier = run_seglog("tier", "--help").out.decode()
    actions = re.findall(r"^    ([a-z][a-z-]+)", tier, re.M)
    assert "rebuild-indexes" in actions
    helps = "".join(run_seglog(*words, "--help").out.decode() for words in
                    [*((verb,) for verb in cli.VERBS), *(("tier", one) for one in actions)])
    known = set(re.findall(r"--[a-z][a-z0-9-]+", helps))
    for page in ("README.md", "docs/cli.md", "docs/damage.md", "docs/json.md", "docs/loading.md",
                 "docs/tiered.md"):
        text = re.sub(r"`kafka-[^`]*`", "", (ROOT / page).read_text())  # Kafka's own programs
        lines = re.findall(r"^(?:\$ )?(seglog .*)$|`(?:seglog )?[^`\n]*?(--[^`\n]*)`", text, re.M)
        named = set(re.findall(r"--[a-z][a-z0-9-]+", " ".join(map(" ".join, lines))))
        assert named, page
        assert not named - known, page


def test_listing_partitions_that_were_closed_cleanly_imports_no_reader(tmp_path: Path) -> None:
    code = ("import sys; from seglog.cli.main import main\n"
            "main(['ls', sys.argv[1]])\n"
            "print([m for m in sys.modules if m.startswith(('seglog.storage.partition_log', "
            "'seglog.arrow', 'seglog.manager', 'seglog.log'))])")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    partition = tmp_path / "t-0"
    partition.mkdir()
    for name in ("00000000000000000000.log", "00000000000000000000.index",
                 "00000000000000000000.timeindex", "leader-epoch-checkpoint"):
        (partition / name).touch()
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True,
                          check=True)
    assert "t-0" in done.stdout and done.stdout.endswith("[]\n")


def test_messages_of_the_package_are_for_programs_that_configure_logging() -> None:
    """A warning goes nowhere by default, and not to standard error."""
    code = ("import seglog.storage.partition_log, logging\n"
            "logging.getLogger('seglog.LogLoader').warning('x')")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_wrong_usage_is_2() -> None:
    assert run_seglog().code == 2
    assert run_seglog("nothing").code == 2
    assert run_seglog("cat", "-c", "-1", ".").code == 2
    assert run_seglog("--version").code == 0


def test_every_verb_explains_itself() -> None:
    for verb in cli.VERBS:
        done = run_seglog(verb, "--help")
        assert done.code == 0
        assert f"seglog {verb}" in done.out.decode()


@pytest.mark.parametrize(("page", "line"), [
    ("README.md", r"^\| `seglog (\w+)[` ]"), ("docs/cli.md", r"^## `seglog (\w+) ")])
def test_the_pages_list_every_verb(page: str, line: str) -> None:
    assert set(re.findall(line, (ROOT / page).read_text(), re.M)) == set(cli.VERBS)


@pytest.mark.parametrize(("raised", "code", "said"), [
    (KeyboardInterrupt(), 130, ""), (BrokenPipeError(), 141, ""),
    (SeglogError("no such thing"), 2, "seglog: error: no such thing\n"),
    (OSError(5, "Input/output error"), 2, "seglog: error: standard output: Input/output error\n"),
    (OSError(5, "Input/output error", "f"), 2, "seglog: error: f: Input/output error\n"),
])
def test_how_a_verb_ends(raised: BaseException, code: int, said: str,
                         monkeypatch: pytest.MonkeyPatch) -> None:
    from seglog.cli import dump

    def run(args: object) -> int:
        raise raised

    monkeypatch.setattr(dump, "run", run)
    done = run_seglog("dump", "x.log")
    assert (done.code, done.err) == (code, said)


@pytest.mark.parametrize("verb", quick_each([
    ["ls"], ["ls", "--json"], ["cat", "-e", "-q"], ["load"], ["dump"], ["verify"]], 2),
    ids=" ".join)
@pytest.mark.parametrize(("redirection", "said"), [
    (">/dev/full", "standard output: No space left on device"),
    (">&-", "standard output is closed; redirect it to /dev/null")])
def test_an_output_that_takes_nothing_is_no_damage(golden: Path, verb: list[str], redirection: str,
                                                   said: str) -> None:
    path = golden / "real/clean"
    if verb == ["dump"]:
        path /= "plain-none-0/00000000000000000000.log"
    done = subprocess.run(["sh", "-c", f'exec "$@" {redirection}', "sh", *SEGLOG, *verb, str(path)],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (cli.EXIT_FAILED, f"seglog: error: {said}\n")


@pytest.mark.parametrize(("arguments", "code"), [
    (["cat", "-e", "."], cli.EXIT_OK), (["dump", "gone.log"], cli.EXIT_FAILED),
    (["dump", "--no-such-option"], cli.EXIT_FAILED),
    (["dump", "--deep-iteration", "txn-0/00000000000000000125.log"], cli.EXIT_OK)],
    ids=["message", "error", "usage", "findings"])
def test_messages_that_nothing_takes_change_no_exit_code(golden: Path, arguments: list[str],
                                                         code: int) -> None:
    done = subprocess.run(["sh", "-c", 'exec "$@" 2>/dev/full', "sh", *SEGLOG, *arguments],
                          cwd=golden / "real/clean", stdout=subprocess.PIPE, check=False)
    assert done.returncode == code


def long_running(golden: Path) -> subprocess.Popen[bytes]:
    """A dump that prints for much longer than anybody reads here."""
    os.symlink(golden / "real/clean/plain-none-0/00000000000000000000.log", "0.log")
    return subprocess.Popen([*SEGLOG, "dump", "--print-data-log", *["0.log"] * 5000],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_reader_that_goes_away_ends_it_quietly(
        golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    process = long_running(golden)
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == cli.EXIT_BROKEN_PIPE


def test_ctrl_c_ends_it_quietly(
        golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    process = long_running(golden)
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdout.read(10)  # it runs, and soon waits for room in the pipe
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
        process.stdout.read()
    assert process.returncode == cli.EXIT_INTERRUPTED


INTERRUPTED_AT = """
import os, signal, sys
module = sys.argv.pop(1)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from seglog_command import main
sys.exit(main())
"""


@pytest.mark.parametrize(("module", "verb"), [
    ("seglog.errors", "verify"), ("seglog.cli.main", "verify"), ("numpy", "verify"),
    ("seglog.manager.manager", "load --dry-run")])
def test_ctrl_c_while_modules_are_imported_ends_it_quietly(golden: Path, module: str,
                                                           verb: str) -> None:
    """Outside of `main` Python printed a traceback. In importlib's callbacks it lost the exception
    and the lock of all imports, and the threads of the verb waited forever."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT, module, *verb.split(), str(golden / "real/clean")],
        capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_ctrl_c_after_the_imports_is_the_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a program's own handler, or an ignored signal, stays."""
    from seglog.cli import dump

    found: list[object] = []
    monkeypatch.setattr(dump, "run", lambda args: found.append(
        signal.getsignal(signal.SIGINT)) or 0)
    before = signal.getsignal(signal.SIGINT)
    try:
        for handler in (signal.SIG_DFL, signal.default_int_handler, signal.SIG_IGN,
                        lambda *_: None):
            signal.signal(signal.SIGINT, handler)
            assert cli.main(["dump", "x.log"]) == 0
            ours = handler in (signal.SIG_DFL, signal.default_int_handler)
            assert found.pop() == (signal.default_int_handler if ours else handler)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_says_each_fact_once(capsys: pytest.CaptureFixture[str]) -> None:
    render.error(CorruptRecordError("x.log: bad, at byte 7", file="x.log", position=7, expected=14,
                                    found=3, code="batch_length"))
    assert capsys.readouterr().err == (
        "seglog: error: "
        "CorruptRecordError [batch_length]: x.log: bad, at byte 7 (expected 14, found 3)\n")


def test_colour_and_progress_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with open(slave, "w") as terminal:
        assert render.paint("x", "red", terminal) == "\x1b[31mx\x1b[0m"
        monkeypatch.setenv("NO_COLOR", "1")
        assert render.paint("x", "red", terminal) == "x"
        with render.Progress("loading", 10, stream=terminal, detail=lambda room: "5/s") as progress:
            progress.advance(5)
            drawn = b""
            while b"loading [############............] 5/10 5/s" not in drawn:
                assert select.select([master], [], [], PATIENCE)[0], drawn
                drawn += os.read(master, 1000)
    os.close(master)
    with open(os.devnull, "w") as nowhere, render.Progress("x", 2, stream=nowhere) as progress:
        progress.advance(2)
        assert progress.done == 2


@pytest.mark.parametrize(("size", "text"), [
    (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB"),
    (1 << 60, "1048576.0 TiB"),
])
def test_human_bytes(size: int, text: str) -> None:
    assert render.human_bytes(size) == text


@pytest.mark.parametrize(("arguments", "said"), [
    ("cat D -c abc", "argument -c/--count: expected a number, at least 0, got 'abc'"),
    ("cat D -c -1", "argument -c/--count: expected a number, at least 0, got '-1'"),
    ("load D --threads abc", "argument --threads: expected a number, 1 to 1024, got 'abc'"),
    ("compact D --threads 0", "argument --threads: expected a number, 1 to 1024, got '0'"),
    (f"cat D -c {'9' * 5000}", f"expected a number, at least 0, got '{'9' * 79}..."),
])
def test_a_number_that_is_none(arguments: str, said: str,
                               capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments.split())
    assert raised.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(said)


@pytest.mark.parametrize(("arguments", "said"), [
    (["export", "D", "-o", ""], "the path is empty (is a variable not set?)"),
    (["verify", "D", "--spark", ""], "--spark: the master is empty (is a variable not set?)"),
    (["tier", "verify", "D", "orders"], "expected TOPIC-PARTITION, such as orders-0, got 'orders'"),
    (["tier", "ls", "D", "a/orders-0"], "expected TOPIC-PARTITION"),
])
def test_an_argument_that_says_nothing(arguments: list[str], said: str, golden: Path,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    place = str(golden / "real" / "clean")
    assert cli.main([place if one == "D" else one for one in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(("place", "code"), [("real/clean/txn-0", 0), ("nowhere", 2)])
def test_a_closed_stderr_sends_no_message_among_the_data(place: str, code: int,
                                                         golden: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *SEGLOG, "cat", str(golden / place), "-e", "-f",
         "%o "],
        stdout=subprocess.PIPE, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)})
    assert done.returncode == code
    assert b"%" not in done.stdout and b"Reached" not in done.stdout
