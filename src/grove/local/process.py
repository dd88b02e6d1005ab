"""Child processes of a control plane: start them, know them again later, and end them for certain.

A process is known by its id together with its birth mark (boot and start time), because a recycled id may belong to
a stranger. Attached children are killed by the kernel when this process dies; detached ones outlive it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# The kernel ends a killed process only after its disk writes return. A busy disk can delay them for a minute.
_KILLED_S = 180.0
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: after a fork it would be too late
# The kernel's "parent died" signal is sent when the *thread* that forked ends. This thread lives as long as we do.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grove-spawn")


@dataclass
class Child:
    """One running program of the control plane."""

    name: str
    pid: int
    birth: str
    log: Path
    popen: subprocess.Popen[bytes] | None = field(default=None, repr=False, compare=False)

    def alive(self) -> bool:
        if self.popen is not None:
            return self.popen.poll() is None
        birth, ended = _look_at(self.pid)
        if birth == self.birth and ended:
            # A detached process may still be our child; then only this process can reap it, or it stays a zombie.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
        return birth == self.birth and not ended

    def signal(self, number: signal.Signals) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stop(self, grace_s: float) -> None:
        """Ask it to end, wait, and kill it if it lingers. Returns when it is gone."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a paused process would not see the request
        if not self._wait(grace_s):
            self.signal(signal.SIGKILL)
            if not self._wait(_KILLED_S):
                raise RuntimeError(f"{self.name} (pid {self.pid}) still runs {_KILLED_S:.0f} s after SIGKILL")

    def _wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def log_tail(self, lines: int = 20) -> str:
        try:
            text = self.log.read_text(errors="replace")
        except OSError as problem:
            return f"(no log: {problem})"
        return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"


def spawn(
    name: str, command: Sequence[str], log: Path, *, detached: bool = False, pass_fds: Sequence[int] = ()
) -> Child:
    """Start a program with its output appended to `log`. It inherits the descriptors in `pass_fds`.

    Every child gets its own session. Otherwise Ctrl-C would end etcd and the API server at the same moment, and an API
    server without etcd takes minutes to end.
    """
    with log.open("ab") as output:

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=pass_fds,
                preexec_fn=None if detached else _die_with_parent(os.getpid()),
            )

        popen = _SPAWNER.submit(start).result()
    birth = birth_mark(popen.pid) or "died at birth"
    if detached:
        popen.returncode = 0  # it is meant to outlive this object, so Python need not warn about it
        return Child(name, popen.pid, birth, log)
    return Child(name, popen.pid, birth, log, popen)


def _die_with_parent(parent: int) -> Callable[[], None] | None:
    libc = _LIBC
    if libc is None:
        return None

    def ask_kernel() -> None:
        # Killed, not asked: asked together, the API server would wait for an etcd that is gone.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return ask_kernel


def birth_mark(pid: int) -> str | None:
    """A text that distinguishes this process from any other that had or will have its id; None if it is not running."""
    birth, ended = _look_at(pid)
    return None if ended else birth


def _look_at(pid: int) -> tuple[str | None, bool]:
    """The birth mark, and whether the process has ended (a zombie still has a mark)."""
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None, True
        # The program's name stands in parentheses and may hold spaces; the fields after it are fixed.
        fields = stat.rpartition(")")[2].split()
        state, threads, started = fields[0], int(fields[17]), fields[19]
        # The first thread can be a zombie while others still run and hold the port.
        return f"{boot}/{started}", state in "ZX" and threads <= 1
    listed = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = listed.stdout.strip().partition(" ")
    return (started.strip(), state.startswith("Z")) if state else (None, True)
