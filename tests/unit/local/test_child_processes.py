"""Processes are known again by more than their id, end for certain, and die with their parent unless detached."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grove.local.ports import LOOPBACK, free_ports, is_free
from grove.local.process import Child, birth_mark, spawn

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


def waiting_for(file: Path) -> list[str]:
    """A program that says so when it has seen the file, and stays."""
    return ["sh", "-c", f"until test -e {file}; do sleep 0.05; done; echo went on; exec sleep 300"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "child.log"


@pytest.fixture
def sleeper(log: Path) -> Iterator[Child]:
    child = spawn("etcd", ["sleep", "300"], log)
    yield child
    child.stop(1)


def eventually(condition: object, seconds: float = 60) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_child_is_known_again_by_id_and_birth(sleeper: Child) -> None:
    again = Child(sleeper.name, sleeper.pid, sleeper.birth, sleeper.log)
    assert again.alive()
    stranger = Child(sleeper.name, sleeper.pid, "another boot/1", sleeper.log)
    assert not stranger.alive()
    stranger.stop(0)
    assert sleeper.alive(), "a process that only took over the id was ended"


def test_a_stubborn_child_is_killed(log: Path) -> None:
    child = spawn("etcd", ["sh", "-c", STUBBORN], log)
    assert eventually(lambda: "ready" in child.log_tail())
    child.stop(0.2)
    assert birth_mark(child.pid) is None


def test_a_paused_child_can_be_stopped(sleeper: Child) -> None:
    sleeper.signal(signal.SIGSTOP)
    began, grace_s = time.monotonic(), 120
    sleeper.stop(grace_s)
    assert time.monotonic() - began < grace_s, "woken up to hear it, not killed when its time was over"
    assert not sleeper.alive()


def test_a_detached_child_that_ended_does_not_count_as_alive(log: Path) -> None:
    child = spawn("etcd", ["sleep", "300"], log, detached=True)
    assert child.alive()
    child.stop(5)
    assert not child.alive()
    with pytest.raises(ProcessLookupError):  # not even a zombie is left
        os.kill(child.pid, 0)


def test_a_child_outlives_the_thread_that_started_it(log: Path) -> None:
    started: list[Child] = []
    go = log.with_name("go")
    thread = threading.Thread(target=lambda: started.append(spawn("etcd", waiting_for(go), log)))
    thread.start()
    thread.join()
    go.touch()
    assert eventually(lambda: "went on" in log.read_text())
    started[0].stop(1)


@pytest.mark.skipif(sys.platform != "linux", reason="only the Linux kernel tells children of their parent's death")
@pytest.mark.parametrize("detached", [False, True])
def test_only_a_detached_child_outlives_its_parent(log: Path, detached: bool) -> None:
    go = log.with_name("go")
    program = (
        "import os, pathlib, sys\n"
        "from grove.local.process import spawn\n"
        f"child = spawn('etcd', {waiting_for(go)!r}, pathlib.Path({str(log)!r}), detached={detached})\n"
        "print(child.pid, child.birth, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    source = Path(__file__).resolve().parents[3] / "src"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    pid, birth = done.stdout.split()
    orphan = Child("etcd", int(pid), birth, log)
    if detached:
        go.touch()
        assert eventually(lambda: "went on" in log.read_text())
        orphan.stop(5)
    else:
        assert eventually(lambda: not orphan.alive())


def test_free_ports_are_different_and_free_and_a_taken_one_is_not() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    with socket.socket() as server:
        server.bind((LOOPBACK, ports[0]))
        server.listen()
        assert not is_free(ports[0])
    assert all(is_free(port) for port in ports)
