"""Free loopback ports for servers that will come back on the same port.

The kernel takes the ports of outgoing connections from its ephemeral range. Such a connection could take the port of an
API server that restarts, and a client that retries could even connect to itself. So these ports are below that range.
"""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
LOWEST, HIGHEST = 20_000, 29_999  # above NodePorts' usual neighbours, below the ephemeral range of Linux and macOS
_ATTEMPTS = 2_000
_random = random.SystemRandom()  # not the shared one: processes that seeded it alike would meet on the same ports


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a port whose last connections are still in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """This many different free ports. They are random, so that parallel test runs seldom collide."""
    chosen: list[int] = []
    for _ in range(_ATTEMPTS):
        if len(chosen) == count:
            return chosen
        port = _random.randint(LOWEST, HIGHEST)
        if port not in chosen and is_free(port):
            chosen.append(port)
    raise RuntimeError(f"found only {len(chosen)} of {count} free ports between {LOWEST} and {HIGHEST} on {LOOPBACK}")
