"""The box of faults, for writers."""

from __future__ import annotations

from tests.faults.conftest import box

__all__ = ["box"]
