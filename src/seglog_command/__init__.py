"""The command `seglog`. It lies outside the package, so that Ctrl-C ends it quietly even while that
is imported."""

import signal

__all__ = ["main"]


def main() -> int:
    """Runs `seglog.cli.main`, which takes Ctrl-C over as soon as it can."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # The system's own action: the process ends, and a shell says 130. Python would print a
        # traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from seglog.cli.main import main as run

    return run()
