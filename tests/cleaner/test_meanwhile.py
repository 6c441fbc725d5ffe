"""Rounds of cleaning while other threads append, roll and read."""

from __future__ import annotations

import threading
from pathlib import Path

from seglog.cleaner import Cleaner, LogToClean, OffsetMap
from tests.cleaner.support import append, opened, records, roll
from tests.oracle.cleaning import last_values
from tests.support.waiting import wait_for

KEYS, APPENDS = 17, 600


def test_appends_and_reads_go_on(tmp_path: Path) -> None:
    log, wrong = opened(tmp_path / "t-0", internal_segment_bytes=2000), []
    written: list[tuple[bytes, bytes]] = []
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(APPENDS):
                row = (b"key %d" % (number * 7 % KEYS), b"%d" % number)
                append(log, [row])
                written.append(row)
                log.update_high_watermark(log.log_end_offset)
                if number == APPENDS // 2:
                    wait_for(lambda: rounds > 0)  # however late the cleaner begins
        except Exception as error:
            wrong.append(error)
        finally:
            done.set()

    def read() -> None:
        try:
            while not done.is_set():
                for offset in range(0, log.log_end_offset, 50):
                    log.read(offset, 1000)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=write), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    cleaner, end, rounds = Cleaner(offset_map=OffsetMap(1 << 16)), 0, 0
    while not done.is_set():
        what = LogToClean.of(log, end)
        if what.cleanable_bytes:
            end, rounds = cleaner.clean(what)[0], rounds + 1
    for thread in threads:
        thread.join()
    assert not wrong and rounds > 0
    roll(log)
    cleaner.clean(LogToClean.of(log, end))
    kept = [(one.key or b"", one.value) for one in records(log)]
    assert len(kept) == KEYS and last_values(kept) == dict(written)
    log.close()
