"""Passes TCP connections on: what comes to a listening socket goes to an address that may be in another network."""

from __future__ import annotations

import contextlib
import socket
import threading

from grove.local.ports import LOOPBACK


def relay(listener: socket.socket, port: int) -> None:
    """Serves in threads of its own until the process ends. Connections go to `port` on the loopback of this network."""
    threading.Thread(target=_serve, args=(listener, port), name="relay", daemon=True).start()


def _serve(listener: socket.socket, port: int) -> None:
    while True:
        here, _ = listener.accept()
        threading.Thread(target=_pass_on, args=(here, port), daemon=True).start()


def _pass_on(here: socket.socket, port: int) -> None:
    with here, contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port)) as there:
        back = threading.Thread(target=_pump, args=(there, here), daemon=True)
        back.start()
        _pump(here, there)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # one side went away; the shutdown below ends the other
        while chunk := source.recv(65536):
            target.sendall(chunk)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
