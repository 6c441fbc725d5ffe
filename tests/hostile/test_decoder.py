"""Thousands of mutated batches, decoded as the oracle decodes them (decode_fuzz)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.effort import quick_first

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 2500


@pytest.mark.parametrize("seed", quick_first([101, 202], 1))
def test_mutated_batches_decode_as_in_the_oracle(seed: int) -> None:
    """In a process of its own, so that a crash is a failure like any other."""
    done = subprocess.run([sys.executable, "-m", "tests.hostile.decode_fuzz", str(seed),
                           str(ROUNDS)], cwd=ROOT, capture_output=True, text=True, check=False,
                          timeout=1800)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert done.stdout.endswith(f"{ROUNDS} rounds, 0 differences\n")
