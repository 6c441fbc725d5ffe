"""Streaming queries for tests on busy machines."""

from __future__ import annotations

from typing import Any

#: Spark waits ten seconds for a Python process to start, however busy the machine is.
_BUSY = "failed to connect back"


def finished(writer: Any, attempts: int = 5) -> Any:
    """Runs a query to its end; runs it again if Spark timed out before the first batch."""
    for left in reversed(range(attempts)):
        query = writer.start()
        try:
            assert query.awaitTermination(300)
            return query
        except Exception as error:
            if _BUSY not in str(error) or not left:
                raise
    raise AssertionError("the last attempt returns or raises")
