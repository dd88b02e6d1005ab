"""What `up` and `down` record: found again, distinguished from other processes, ended in the right order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grove.local import controlplane
from grove.local.controlplane import ControlPlane, ControlPlaneError, down, status, up
from grove.local.process import Child, spawn
from grove.local.state import ORDER, State, stop_in_order


@pytest.fixture
def running(tmp_path: Path) -> Iterator[State]:
    """A remembered control plane whose four processes only sleep."""
    children = [spawn(name, ["sleep", "300"], tmp_path / f"{name}.log", detached=True) for name in ORDER]
    state = State("1.36.3", "https://127.0.0.1:20000", tmp_path / "kubeconfig", children, ready=True)
    state.save(tmp_path)
    yield state
    stop_in_order(children)


@pytest.fixture
def said() -> list[str]:
    return []


def test_state_is_read_back_as_written(tmp_path: Path, running: State) -> None:
    assert State.load(tmp_path) == running


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"version": "1.36.3"}'])
def test_a_broken_state_is_no_state(tmp_path: Path, content: str, said: list[str]) -> None:
    (tmp_path / "state.json").write_text(content)
    assert State.load(tmp_path) is None
    assert not down(tmp_path, say=said.append)


def test_processes_end_last_started_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(Child, "stop", lambda self, grace_s: ended.append(self.name))
    stop_in_order([Child(name, 1, "", tmp_path) for name in ("kube-apiserver", "kube-scheduler", "etcd")])
    assert ended == ["kube-scheduler", "kube-apiserver", "etcd"]


def test_up_on_a_running_directory_says_so_and_starts_nothing(
    tmp_path: Path, running: State, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ControlPlane, "start", lambda self: pytest.fail("started a second one"))
    assert up(tmp_path, say=said.append) == running
    assert said[0].startswith("already up: Kubernetes 1.36.3")
    assert status(tmp_path) == running


def test_down_ends_everything_and_forgets_and_says_what_goes_and_what_stays(
    tmp_path: Path, running: State, said: list[str]
) -> None:
    (tmp_path / "etcd").mkdir()
    assert down(tmp_path, say=said.append)
    assert said[1] == "ended: etcd, kube-apiserver, kube-controller-manager, kube-scheduler"
    assert f"({tmp_path / 'etcd'})" in said[2]
    assert said[3].startswith(f"left in {tmp_path}: etcd.log, kube-apiserver.log, ")
    assert not (tmp_path / "etcd").exists()
    assert not any(child.alive() for child in running.children)
    assert status(tmp_path) is None
    assert not down(tmp_path, say=said.append)
    assert said[-1] == f"nothing is up in {tmp_path}"


def test_down_in_a_directory_that_does_not_exist_makes_none(tmp_path: Path, said: list[str]) -> None:
    assert not down(tmp_path / "nowhere", say=said.append)
    assert not (tmp_path / "nowhere").exists()


def test_up_ends_what_a_crash_left_over_before_it_starts(
    tmp_path: Path, running: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.children[1].stop(1)
    assert status(tmp_path) is None
    leftovers: list[bool] = []

    def start(self: ControlPlane) -> None:
        leftovers.extend(child.alive() for child in running.children)
        raise ControlPlaneError("enough seen")

    monkeypatch.setattr(ControlPlane, "start", start)
    with pytest.raises(ControlPlaneError, match="enough seen"):
        up(tmp_path, say=lambda _: None)
    assert leftovers == [False] * 4
    assert State.load(tmp_path) is None


def test_a_program_that_ends_at_once_is_reported_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "etcd").write_text("#!/bin/sh\necho 'the disk is on fire' >&2\nexit 3\n")
    (fake / "etcd").chmod(0o755)
    monkeypatch.setattr(controlplane, "find_or_build", lambda version, say: fake)
    plane = ControlPlane(tmp_path / "plane")
    with pytest.raises(ControlPlaneError, match=r"(?s)etcd ended.*the disk is on fire"):
        plane.start()
    assert plane.children == []
