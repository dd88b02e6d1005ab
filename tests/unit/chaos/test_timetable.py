"""A timetable is a function of its seed, and a round leaves no fault out."""

from __future__ import annotations

from chaos.faults import Faults
from chaos.load import Load
from chaos.timetable import CHANGES, FAULTS, PAUSES_S, timetable
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(0, 10_000))
def test_the_same_seed_gives_the_same_steps(seed: int) -> None:
    assert timetable(seed, 3) == timetable(seed, 3)
    assert timetable(seed, 3) != timetable(seed + 1, 3)


@given(st.integers(0, 10_000))
def test_a_round_meets_every_fault(seed: int) -> None:
    longest = (PAUSES_S[1] * len(FAULTS) + 30) / 60
    assert {step.action for step in timetable(seed, longest)} >= set(FAULTS)


@given(st.integers(0, 10_000), st.floats(0.5, 10))
def test_steps_come_in_order_of_time_and_end_in_time(seed: int, minutes: float) -> None:
    times = [step.at_s for step in timetable(seed, minutes)]
    assert times == sorted(times)
    assert times[-1] < minutes * 60


def test_every_step_can_be_done() -> None:
    assert [name for name in FAULTS if not hasattr(Faults, f"_{name}")] == []
    assert [name for name in CHANGES if not hasattr(Load, f"_{name}")] == []
