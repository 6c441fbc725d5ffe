"""Ports of the loopback for servers that are told theirs."""

from __future__ import annotations

import contextlib
import random
import socket

#: Below those that a system gives to clients and to whoever asks for any: such a one may be gone
#: before the server is up.
_FIRST, _LAST = 10_000, 29_999
_drawn: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, and that this process did not give away before."""
    found: list[int] = []
    draw = random.SystemRandom()  # test processes and their servers must not draw the same
    while len(found) < count:
        port = draw.randint(_FIRST, _LAST)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            if port not in _drawn:
                _drawn.add(port)
                found.append(port)
    return found
