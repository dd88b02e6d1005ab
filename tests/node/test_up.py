"""`grove up --real-nodes` and `grove down` as a person calls them, and after a kill: nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from grove.local.nodes.leftovers import cgroup, cgroup_roots, is_recorded
from grove.local.nodes.preflight import KERNEL_SETTINGS
from grove.local.state import REAL_NODES, State

PATIENCE_S = 300.0


@dataclass(frozen=True)
class Traces:
    """What a cluster can leave on a machine."""

    processes: set[str]
    mounts: set[str]
    links: set[str]
    namespaces: set[str]
    cgroups: list[str]
    settings: dict[str, str]


def traces(directory: Path) -> Traces:
    links = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, text=True, check=True).stdout)
    settings = {name: Path("/proc/sys") / name for name in KERNEL_SETTINGS}
    return Traces(
        {line for line in _commands() if str(directory) in line},
        {line for line in Path("/proc/mounts").read_text().splitlines() if str(directory) in line},
        {link["ifname"] for link in links},
        {one.name for one in Path("/run/netns").glob("*")},
        [str(root) for root in cgroup_roots(directory) if root.exists()],
        {name: file.read_text() for name, file in settings.items() if file.exists()},
    )


def _commands() -> Iterator[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            yield (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue


def grove(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "grove", *arguments], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def until(what: str, look: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < end, f"not in {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.2)


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = tmp_path_factory.mktemp("up") / "it"  # short: sockets are below it
    yield found
    grove("down", "--dir", str(found), check=False)


def first_process(directory: Path) -> int:
    state = State.load(directory)
    assert state is not None
    return next(child.pid for child in state.children if child.name == REAL_NODES)


def test_up_gives_a_cluster_with_grove_and_down_leaves_nothing(directory: Path) -> None:
    before = traces(directory)
    said = grove("up", "--real-nodes", "2", "--dir", str(directory))
    assert "2 real nodes are Ready: node-1, node-2" in said.stderr
    assert "needs     root" in said.stderr
    kubeconfig = said.stdout.strip()
    status = grove("up", "status", "--dir", str(directory)).stdout
    assert all(name in status for name in (REAL_NODES, "grove-operator", "grove-scheduler", "grove-metrics"))
    doctor = json.loads(grove("doctor", "--kubeconfig", kubeconfig, "-o", "json", check=False).stdout)
    assert [one for one in doctor if one["state"] == "bad"] == []
    during = traces(directory)
    assert any("kubelet" in line for line in during.processes)
    assert during.mounts == before.mounts, "mounts are in namespaces of their own"
    assert during.links == before.links, "links are too"
    grove("down", "--dir", str(directory))
    assert traces(directory) == before
    assert not is_recorded(directory), "no record is left"
    assert not list(directory.glob("node-*")), "images and volumes are gone"


@pytest.mark.parametrize("killed", ["grove up", "the first process of the cluster"])
def test_a_kill_leaves_nothing_that_down_does_not_remove(directory: Path, killed: str) -> None:
    before = traces(directory)
    command = [sys.executable, "-m", "grove", "up", "--real-nodes", "2", "--foreground", "--dir", str(directory)]
    log = directory.parent / "up.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        until("it is up", lambda: process.poll() is not None or "it runs until Ctrl-C" in log.read_text())
        assert process.poll() is None, log.read_text()
        os.kill(process.pid if killed == "grove up" else first_process(directory), signal.SIGKILL)
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
    grove("down", "--dir", str(directory), check=False)
    assert traces(directory) == before
    assert not is_recorded(directory), "no record is left"


def test_the_next_up_finds_what_a_kill_left(directory: Path) -> None:
    before = traces(directory)
    grove("up", "--real-nodes", "1", "--no-operator", "--no-scheduler", "--no-metrics", "--dir", str(directory))
    os.kill(first_process(directory), signal.SIGKILL)
    until("its processes are gone", lambda: not traces(directory).processes)
    assert traces(directory).cgroups, "a kill leaves cgroups"
    other = directory.with_name("other")
    try:
        said = grove("up", "--real-nodes", "1", "--no-operator", "--no-scheduler", "--no-metrics", "--dir", str(other))
        assert f"removed: cgroups {cgroup(directory)}" in said.stderr
        assert not list(directory.glob("node-*"))
    finally:
        grove("down", "--dir", str(other), check=False)
    assert traces(directory) == before
