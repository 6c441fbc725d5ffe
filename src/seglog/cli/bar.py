"""The progress bar of a load: segments checked, read and recovered."""

from __future__ import annotations

import threading
import time

from seglog.cli.render import Progress
from seglog.recovery.callbacks import LoadListener

__all__ = ["LoadBar"]


class LoadBar(LoadListener):
    """Counts steps done of steps planned: a load checks each segment, reads it at some levels, and
    recovers it if its log needs that.

    All steps are planned before the first is done: a load first lists its directories
    (`segments_listed`, `recovery_planned`), and a recovery ends its list with `announced`.
    """

    def __init__(self, label: str, *, reads: bool = False) -> None:
        self._steps = 2 if reads else 1
        self._progress = Progress(label, detail=self._detail)
        self._total = self._listed = self._partitions = 0
        self._is_announced = False
        self._recovered = 0
        self._by_thread: dict[int, int] = {}
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def __enter__(self) -> LoadBar:
        self._progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.__exit__(None, None, None)

    @property
    def is_visible(self) -> bool:
        """Whether anything is drawn."""
        return self._progress.is_visible

    # ---- planned steps --------------------------------------------------------------------------

    def load_started(self, partitions: int, threads: int) -> None:
        """More partition directories are about to be listed."""
        with self._lock:
            self._partitions += partitions

    def segments_listed(self, directory: str, count: int) -> None:
        """More segments to check, and to read if the level says so."""
        if not self._is_announced:
            with self._lock:
                self._listed += 1
                self._total += count * self._steps

    def recovery_planned(self, directory: str, count: int) -> None:
        """More segments to recover."""
        if not self._is_announced:
            with self._lock:
                self._total += count

    def announced(self) -> None:
        """The plan is complete: later calls of `segments_listed` and the like add nothing."""
        self._is_announced = True

    # ---- completed steps ------------------------------------------------------------------------

    def segments_loaded(self, directory: str, count: int, thread: int) -> None:
        """Segments were checked."""
        self._advance(count, thread)

    def segments_verified(self, directory: str, count: int, size: int, thread: int) -> None:
        """Segments were read."""
        self._advance(count, thread)

    def segments_recovered(self, directory: str, count: int, size: int) -> None:
        """Segments were recovered."""
        with self._lock:
            self._recovered += count
        self._advance(count, None)

    def _advance(self, count: int, thread: int | None) -> None:
        with self._lock:
            if thread is not None:
                self._by_thread[thread] = self._by_thread.get(thread, 0) + count
            self._progress.total = self._total
        self._progress.advance(count)

    def _detail(self, room: int) -> str:
        """The longest text that fits: rates by thread, then the slowest and the fastest."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        with self._lock:
            rates = [count / seconds for _, count in sorted(self._by_thread.items())]
            recovered = f", {self._recovered:,} recovered" if self._recovered else ""
        if not self._progress.total:
            texts = [f"listing, {self._listed:,}/{self._partitions:,} partitions", "listing"]
        else:
            each = " ".join(f"{rate:,.0f}" for rate in rates)
            texts = [f"segments{recovered}", "segments"]
            if len(rates) > 1:
                texts = [
                    f"segments{recovered}, {each} segments/s per thread",
                    f"segments{recovered}, {sum(rates):,.0f}/s, {len(rates)} threads "
                    f"{min(rates):,.0f} to {max(rates):,.0f}/s", *texts]
            elif rates:
                texts.insert(0, f"segments{recovered}, {each} segments/s")
        return next((text for text in texts if len(text) <= room), "")
