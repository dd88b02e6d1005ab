"""What runs beside a local control plane is kept running; the plane itself is not mended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grove.local.controlplane import ControlPlaneError, accompany, down
from grove.local.process import Child, spawn
from grove.local.state import ORDER, State, stop_in_order
from grove.local.supervise import LONGEST_PAUSE_S, STEADY_S, Restarts, supervise

SLEEP = ["sleep", "300"]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A remembered control plane of processes that only sleep, with an operator beside it."""
    (tmp_path / "logs").mkdir()
    children = [spawn(name, SLEEP, tmp_path / f"{name}.log", detached=True) for name in ORDER]
    State("1.36.3", "https://127.0.0.1:20000", tmp_path / "kubeconfig", children, ready=True).save(tmp_path)
    accompany(tmp_path, "grove-operator", SLEEP)
    yield tmp_path
    if (state := State.load(tmp_path)) is not None:
        stop_in_order(state.children)


def child(directory: Path, name: str) -> Child:
    state = State.load(directory)
    assert state is not None
    return next(one for one in state.children if one.name == name)


def kill(one: Child) -> None:
    one.signal(signal.SIGKILL)
    one.stop(5)


class Ticks:
    """A clock that moves as the supervisor sleeps, and does at each tick what the test has in mind."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        self.now_s, self._acts = 0.0, list(acts)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self._acts.pop(0)()


def watched(directory: Path, *acts: Callable[[], object]) -> list[str]:
    said: list[str] = []
    ticks = Ticks(*acts, lambda: down(directory, say=lambda line: None))
    supervise(directory, {"grove-operator": SLEEP}, said.append, clock=lambda: ticks.now_s, sleep=ticks.sleep)
    return said


def test_a_program_that_ends_is_started_again_and_its_last_words_are_reported(directory: Path) -> None:
    first = child(directory, "grove-operator")

    def fail() -> None:
        first.log.write_text("starting\nsomething broke\n")
        kill(first)

    def look() -> None:
        assert child(directory, "grove-operator").alive()
        assert child(directory, "grove-operator").pid != first.pid

    [told] = watched(directory, fail, look)
    assert told == f"grove-operator ended (its log, {first.log}, ends with: something broke); started again"


def test_one_that_keeps_ending_is_given_a_pause(directory: Path) -> None:
    def fail() -> None:
        kill(child(directory, "grove-operator"))

    told = watched(directory, fail, fail, *[lambda: None] * 3)
    assert len(told) == 2, "the second time only after a second"
    assert watched_pauses(40) == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, *[LONGEST_PAUSE_S] * 34]


def watched_pauses(times: int) -> list[float]:
    known, now_s, found = Restarts(), 0.0, []
    for _ in range(times):
        due_s = max(now_s, known.due_s())
        found.append(due_s - now_s)
        known, now_s = known.after(due_s), due_s
    return found


def test_one_that_ran_for_long_is_started_again_at_once(directory: Path) -> None:
    known = Restarts().after(0.0).after(1.0).after(3.0).after(3.0 + STEADY_S + 1.0)
    assert known.count == 1


def test_what_is_not_asked_for_is_not_started(directory: Path) -> None:
    accompany(directory, "grove-nodes", SLEEP)
    assert watched(directory, lambda: kill(child(directory, "grove-nodes"))) == []


@pytest.mark.parametrize("name", ORDER)
def test_without_a_part_of_the_plane_it_ends_and_says_which(directory: Path, name: str) -> None:
    kill(child(directory, name))
    with pytest.raises(ControlPlaneError, match=rf"^{name} ended; "):
        watched(directory)


def test_it_returns_when_another_client_takes_the_cluster_down(directory: Path) -> None:
    assert watched(directory) == []
    assert State.load(directory) is None
