"""Surge units step by step as rows, and laws of updates over any sequence of edits, pauses, scalings and faults."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grove.api.status import SurgeProgress
from grove.operator.shared.stepper import Budget, Step, Unit, next_step
from grove.operator.shared.surge import SurgeBudget, overtaken, surge_given_up_s, surge_refused

NOW = datetime(2026, 1, 1, tzinfo=UTC)

LETTERS = {
    "o": Unit(0, outdated=True),
    "b": Unit(0, outdated=True, up=False, is_back=False),
    ".": Unit(0),
    "n": Unit(0, up=False, is_back=False),
    "p": Unit(0, up=False, is_back=False, has_place=False),
    "e": Unit(0, up=False, is_back=False, has_place=False, is_ending=True),
}


def units(text: str) -> list[Unit]:
    """`o` old, `b` old and broken, `.` new, `n` new and starting, `p` new without a place, `_` none.

    `e` is new without a place while its old pods end.
    """
    return [replace(LETTERS[one], id=at, order=at) for at, one in enumerate(text) if one != "_"]


def stepped(
    text: str,
    replicas: int,
    *,
    most: int = 1,
    flying: tuple[int, ...] = (),
    surge: SurgeProgress | None = None,
    later_s: float = 0.0,
    held: bool = False,
    paused: bool = False,
    minimum: int = 1,
    unavailable: int = 1,
) -> Step:
    budget = Budget(unavailable, minimum, 0, paused, SurgeBudget(most, replicas, 60.0, 7 if held else 0), held)
    return next_step(units(text), flying, budget, (), surge, NOW + timedelta(seconds=later_s))


WAITING = SurgeProgress(indexes=(3,), waiting_since=NOW)
THERE = SurgeProgress(indexes=(3,), ready=1)
REFUSED = SurgeProgress(not_placed=True)
DISPLACED = SurgeProgress(indexes=(3, 4), ready=2, displaced_since=NOW)


@pytest.mark.parametrize(
    ("step", "taken", "surge"),
    [
        pytest.param(stepped("ooo", 3), (), (3,), id="the surge unit is asked for, and nothing is taken"),
        pytest.param(stepped("ooo", 3, most=9), (), (3, 4, 5), id="no more surge units than old units"),
        pytest.param(stepped("ooop", 3, surge=WAITING, later_s=59), (), (3,), id="it waits for a place"),
        pytest.param(
            stepped("ooop", 3, surge=WAITING, later_s=60), (), (), id="given up: removed before anything goes"
        ),
        pytest.param(stepped("ooo", 3, surge=WAITING, later_s=61), (0,), (), id="and then an old unit goes first"),
        pytest.param(stepped("ooo", 3, surge=REFUSED), (0,), (), id="the scheduler is not asked twice for one edit"),
        pytest.param(stepped("ooon", 3, surge=WAITING, later_s=900), (), (3,), id="placed: it may start slowly"),
        pytest.param(stepped("ooo.", 3, surge=WAITING), (0,), (3,), id="it is ready: an old unit goes"),
        pytest.param(stepped("noo.", 3, flying=(0,), surge=THERE), (), (3,), id="it stands in for one unit only"),
        pytest.param(stepped("...o", 4, surge=THERE), (), (4,), id="scaling out made a regular unit of it"),
        pytest.param(stepped("ooo.", 3, surge=THERE, held=True), (), (3,), id="the slice waits for another part"),
        pytest.param(stepped("ooo.", 3, surge=THERE, paused=True), (), (3,), id="a pause takes nothing"),
        pytest.param(stepped("ooo", 3, paused=True), (), (), id="and makes nothing"),
        pytest.param(stepped("ooo.", 3, surge=THERE, minimum=3, unavailable=3), (0,), (3,), id="never below minimum"),
        pytest.param(stepped("obo", 3, most=2), (), (3, 4), id="a broken unit needs no surge unit"),
    ],
)
def test_steps(step: Step, taken: tuple[int, ...], surge: tuple[int, ...]) -> None:
    assert (step.taken, step.surge.indexes if step.surge is not None else ()) == (taken, surge)


@pytest.mark.parametrize(
    ("step", "surge"),
    [
        pytest.param(
            stepped("ppo..", 3, flying=(0, 1), surge=DISPLACED, later_s=59), (3, 4), id="it waits for a place"
        ),
        pytest.param(stepped("ppo..", 3, flying=(0, 1), surge=DISPLACED, later_s=60), (3,), id="one leaves for it"),
        pytest.param(stepped("ppo.", 3, flying=(0, 1), surge=DISPLACED, later_s=61), (3,), id="and only one"),
        pytest.param(stepped("npo.", 3, flying=(0, 1), surge=DISPLACED, later_s=61), (3,), id="it does not come back"),
        pytest.param(stepped("eeo..", 3, flying=(0, 1), surge=DISPLACED, later_s=60), (3, 4), id="old pods still end"),
        pytest.param(stepped(".pn..", 3, flying=(0, 1), surge=DISPLACED, later_s=60), (3, 4), id="another came back"),
        pytest.param(stepped("nno..", 3, flying=(0, 1), surge=DISPLACED, later_s=900), (3, 4), id="they start slowly"),
        pytest.param(stepped("..p..", 3, surge=DISPLACED, later_s=60), (3, 4), id="the update does not wait for it"),
    ],
)
def test_a_surge_unit_leaves_the_place_that_a_replaced_unit_needs(step: Step, surge: tuple[int, ...]) -> None:
    assert step.surge is not None
    assert (step.taken, step.surge.indexes) == ((), surge)
    assert step.surge.not_placed is (True if surge == (3,) else None)


def test_after_a_surge_unit_was_given_up_a_replaced_unit_waits_as_long_again() -> None:
    later = NOW + timedelta(seconds=61)
    step = stepped("ppo.", 3, flying=(0, 1), surge=DISPLACED, later_s=61)
    assert step.surge == SurgeProgress(indexes=(3,), ready=1, displaced_since=later, not_placed=True)
    assert surge_given_up_s(step.surge, 60.0, later) == 60.0
    assert surge_given_up_s(DISPLACED, 60.0, later) == 1.0, "its pod may still be there"


def test_surge_units_that_a_change_made_outdated_are_replaced_first_and_one_at_a_time() -> None:
    both = SurgeProgress(indexes=(2, 3), ready=2)
    step = stepped("oooo", 2, most=2, surge=both)
    assert (step.broken, step.taken) == ((2, 3), ())
    step = stepped("nooo", 2, most=2, flying=(0,), surge=both)
    assert (step.broken, step.taken) == ((2,), ()), "the other one stands in for the unit in flight"
    step = stepped("oobo", 2, most=2, surge=both)
    assert (step.broken, step.taken) == ((3, 2), ()), "a broken one needs no budget"


def test_a_slice_is_settled_when_all_surge_units_are_ready() -> None:
    assert stepped("ooon", 3, surge=THERE, held=True).surge == SurgeProgress(indexes=(3,))
    assert stepped("ooo.", 3, surge=THERE, held=True).surge == SurgeProgress(indexes=(3,), ready=1, settled_slice=7)
    given_up = stepped("ooop", 3, surge=WAITING, held=True, later_s=60).surge
    assert given_up == SurgeProgress(not_placed=True, settled_slice=7), "no later event tells of it"
    refused = stepped("ooo", 3, surge=REFUSED, held=True).surge
    assert refused == SurgeProgress(not_placed=True, settled_slice=7)


def test_what_is_said_once() -> None:
    said = surge_refused(WAITING, REFUSED, 60.0)
    assert said.endswith("within 60s: none is left, and the update takes old units down first")
    assert surge_refused(REFUSED, REFUSED, 60.0) == ""
    assert surge_refused(None, THERE, 60.0) == ""


@dataclass
class Part:
    """One part of a set and the places of its cluster: the recorded progress, and units as (version, health)."""

    replicas: int
    places: int
    most: int
    unavailable: int
    minimum: int
    version: int = 0
    seconds: float = 0.0
    paused: bool = False
    flying: tuple[int, ...] = ()
    unplaced: tuple[int, ...] = ()
    surge: SurgeProgress | None = None
    units: dict[int, tuple[int, str]] = field(default_factory=dict)
    taken: set[tuple[int, int]] = field(default_factory=set)
    """Which unit was taken for which version."""

    def __post_init__(self) -> None:
        self.units = dict.fromkeys(range(self.replicas), (0, "up"))

    @property
    def up(self) -> int:
        return sum(health == "up" for _, health in self.units.values())

    @property
    def is_open(self) -> bool:
        return any(version != self.version for version, _ in self.units.values()) or bool(self.flying or self.surge)

    def reconcile(self) -> None:
        """Does what the operator does at one look."""
        if self.is_open:
            self._step()
        extra = self.surge.indexes if self.surge is not None else ()
        wanted = {*range(self.replicas), *(index for index in extra if index >= self.replicas)}
        self.units = {index: one for index, one in self.units.items() if index in wanted}
        for index in wanted.difference(self.units):
            self.units[index] = (self.version, "waiting")
        assert len(self.units) <= self.replicas + max(self.most, len(extra))

    def _step(self) -> None:
        surge = SurgeBudget(self.most, self.replicas or 1_000, 60.0)
        budget = Budget(self.unavailable, min(self.minimum, self.replicas), 0, self.paused, surge)
        described = [
            Unit(index, version != self.version, health == "up", health == "up", health != "waiting", index)
            for index, (version, health) in self.units.items()
        ]
        before, up = self.surge, self.up
        now = NOW + timedelta(seconds=self.seconds)
        step = next_step(described, self.flying, budget, self.unplaced, self.surge, now)
        replaced = (*step.broken, *step.taken)
        left = up - sum(self.units[index][1] == "up" for index in replaced)
        if left < up:  # the update itself takes down
            surging = bool(_ids(step.surge))
            missing = (index for index in range(self.replicas) if self.units.get(index, (0, ""))[1] != "up")
            faulty = sum(index not in step.flying for index in missing)  # or asked for by scaling, and not there yet
            assert left >= self.replicas - faulty - (0 if surging else self.unavailable)
        for index in step.taken:
            assert (index, self.version) not in self.taken, "no unit is taken twice for one edit"
            self.taken.add((index, self.version))
        assert not (self.paused and (replaced or set(_ids(step.surge)).difference(_ids(before))))
        for index in replaced:
            self.units[index] = (self.version, "waiting")
        self.flying, self.unplaced, self.surge = step.in_flight, step.unplaced, step.surge
        if step.is_over and not self.paused:
            self.flying, self.unplaced, self.surge = (), (), None

    def start(self, count: int) -> None:
        """The scheduler and the kubelets do so much: each unit is placed, then up."""
        for index in sorted(self.units)[:]:
            version, health = self.units[index]
            used = sum(one != "waiting" for _, one in self.units.values())
            if count and (health == "starting" or (health == "waiting" and used < self.places)):
                self.units[index] = (version, "up" if health == "starting" else "starting")
                count -= 1

    def edit(self, to: int) -> None:
        if to != self.version:
            self.version, self.surge = to, overtaken(self.surge)
            self.taken = {one for one in self.taken if one[1] != to}


def _ids(surge: SurgeProgress | None) -> tuple[int, ...]:
    return surge.indexes if surge is not None else ()


STEPS = st.one_of(
    st.tuples(st.just("edit"), st.integers(0, 3)),
    st.tuples(st.just("scale"), st.integers(0, 6)),
    st.tuples(st.just("pause"), st.integers(0, 1)),
    st.tuples(st.just("start"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 61])),
    st.tuples(st.just("fault"), st.integers(0, 7)),
)


@settings(max_examples=300, derandomize=True)
@given(
    st.integers(1, 6),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(0, 6),
    st.lists(STEPS, max_size=30),
)
def test_laws(
    replicas: int, spare: int, most: int, unavailable: int, minimum: int, steps: list[tuple[str, int]]
) -> None:
    """Availability holds at every step, and the end is that of a fresh apply."""
    part = Part(replicas, 6 + spare, most, unavailable, minimum)
    for what, number in [("edit", 1), *steps]:
        if what == "edit":
            part.edit(number)
        elif what == "scale":
            part.replicas = number
        elif what == "pause":
            part.paused = bool(number)
        elif what == "start":
            part.start(number)
        elif what == "wait":
            part.seconds += number
        elif number in part.units:
            part.units[number] = (part.units[number][0], "waiting")
        part.reconcile()
    part.paused = False
    for _ in range(300):
        part.start(9)
        part.seconds += 5
        part.reconcile()
        if not part.is_open and part.up == len(part.units):
            break
    assert part.units == dict.fromkeys(range(part.replicas), (part.version, "up"))
    assert not part.is_open
