"""The one step of every update, and the slices of a coherent one: whole updates as rows, and laws for all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grove.operator.shared.stepper import Budget, Part, Unit, next_slice, next_step

LETTERS = {
    "o": Unit(0, outdated=True),
    "b": Unit(0, outdated=True, up=False, is_back=False),
    "u": Unit(0, outdated=True, up=False, is_back=False, has_place=False),
    ".": Unit(0),
    "n": Unit(0, up=False, is_back=False),
    "p": Unit(0, up=False, is_back=False, has_place=False),
}


def units(text: str) -> list[Unit]:
    """`o` old, `b` old and broken, `u` old and never placed, `.` new, `n` new and starting, `p` new without a place."""
    return [replace(LETTERS[letter], id=index, order=index) for index, letter in enumerate(text)]


@pytest.mark.parametrize(
    ("text", "flying", "budget", "unplaced", "want"),
    [
        pytest.param("ooo", [], Budget(), [], ([], [0]), id="the first of those that are up"),
        pytest.param("noo", [0], Budget(), [], ([], []), id="one is in flight"),
        pytest.param("obu", [], Budget(), [], ([1, 2], [0]), id="what is broken or has no place uses no budget"),
        pytest.param("uoo", [], Budget(min_available=2), [], ([0], [1]), id="a unit that never fits stops nothing"),
        pytest.param("ooo", [], Budget(max_unavailable=3, keep=2), [], ([], [0]), id="as many stay as are to be kept"),
        pytest.param("obo", [], Budget(keep=2), [], ([1], []), id="a broken unit counts for what goes"),
        pytest.param("obo", [], Budget(paused=True), [], ([], []), id="a paused update takes nothing, broken or not"),
        pytest.param("oooo", [], Budget(3, 2), [], ([], [0, 1]), id="down to the minimum, and not below"),
        pytest.param("nooo", [0], Budget(3, 2), [], ([], [1]), id="one is in flight: one less can be spared"),
        pytest.param("nnoo", [0, 1], Budget(3, 2), [], ([], []), id="the minimum is up: the others wait for it"),
        pytest.param("oooo", [], Budget(3, 4), [], ([], [0]), id="all are needed: one, or no update could go on"),
        pytest.param("oop", [], Budget(1, 2), [], ([], [0]), id="one without a place makes no update wait"),
        pytest.param("poo.", [0], Budget(), [3], ([], [1]), id="a unit whose place went to a unit that had none"),
        pytest.param("poop", [0], Budget(), [3], ([], []), id="no unit is up in its place"),
        pytest.param("noo.", [0], Budget(), [3], ([], []), id="it has a place and comes back"),
    ],
)
def test_steps(text: str, flying: list[int], budget: Budget, unplaced: list[int], want: object) -> None:
    step = next_step(units(text), flying, budget, unplaced)
    assert (list(step.broken), list(step.taken)) == want


def test_a_displaced_unit_does_not_keep_an_update_open() -> None:
    step = next_step(units("p.."), [0], Budget(), [2])
    assert step.is_over
    assert not next_step(units("p.."), [0], Budget()).is_over


def slices(parts: dict[str, Part]) -> list[dict[str, int]]:
    found = []
    while taken := next_slice(parts):
        found.append(taken)
        parts = {name: replace(one, outdated=one.outdated - taken.get(name, 0)) for name, one in parts.items()}
    return found


def parts(**sizes: tuple[int, int]) -> dict[str, Part]:
    return {name: Part(replicas, minimum, replicas) for name, (replicas, minimum) in sizes.items()}


@pytest.mark.parametrize(
    ("given_", "want"),
    [
        pytest.param(
            parts(frontend=(10, 2), prefill=(10, 3), decode=(20, 3)),
            [{"frontend": 3, "prefill": 3, "decode": 6}] * 3 + [{"frontend": 1, "prefill": 1, "decode": 2}],
            id="three slices and what is left over",
        ),
        pytest.param(parts(prefill=(4, 1), decode=(4, 1)), [{"prefill": 1, "decode": 1}] * 4, id="one of each"),
        pytest.param(
            parts(prefill=(4, 4), decode=(8, 2)),
            [{"prefill": 4, "decode": 8}],
            id="a part that is needed whole goes whole, and the others with it",
        ),
        pytest.param(parts(prefill=(2, 1), decode=(6, 1)), [{"prefill": 1, "decode": 3}] * 2, id="the ratio is kept"),
        pytest.param(parts(decode=(5, 2)), [{"decode": 2}] * 2 + [{"decode": 1}], id="one part alone"),
        pytest.param(parts(prefill=(0, 1), decode=(2, 1)), [{"decode": 1}] * 2, id="a part that is scaled to zero"),
        pytest.param(
            parts(prefill=(1, 3), decode=(2, 1)),
            [{"prefill": 1, "decode": 2}],
            id="a part that is scaled below its minimum",
        ),
        pytest.param(
            {"prefill": Part(10, 3, 4), "decode": Part(20, 3, 20)},
            [{"prefill": 3, "decode": 6}, {"prefill": 1, "decode": 6}, {"decode": 6}, {"decode": 2}],
            id="lost pods came back new: the rest is taken in slices of the same size",
        ),
        pytest.param(
            {"prefill": Part(20, 3, 4), "decode": Part(20, 3, 8)},
            [{"prefill": 3, "decode": 3}, {"prefill": 1, "decode": 3}, {"decode": 2}],
            id="scaled out in the middle: new slices, from what is there",
        ),
        pytest.param({}, [], id="nothing changed"),
    ],
)
def test_whole_coherent_updates(given_: dict[str, Part], want: list[dict[str, int]]) -> None:
    assert slices(given_) == want


SIZES = st.tuples(st.integers(1, 40), st.integers(1, 8)).map(lambda pair: (pair[0], min(pair)))


@given(st.dictionaries(st.sampled_from("abcd"), SIZES, min_size=1))
def test_old_and_new_capacity_keep_their_ratio_within_one_slice(sizes: dict[str, tuple[int, int]]) -> None:
    given_ = parts(**sizes)
    done = dict.fromkeys(given_, 0)
    every = slices(given_)
    for number, taken in enumerate(every):
        done = {name: count + taken.get(name, 0) for name, count in done.items()}
        share = {name: count // next_slice(given_)[name] for name, count in done.items()}
        whole = {name: number_ for name, number_ in share.items() if done[name] < given_[name].replicas}
        assert all(abs(one - (number + 1)) <= 1 for one in whole.values())
    assert done == {name: part.replicas for name, part in given_.items()}, "every unit is taken once"
    assert all(taken[name] >= given_[name].min_available for taken in every[:1] for name in taken)


@given(
    text=st.text("obu.np", min_size=1, max_size=8),
    flying=st.sets(st.integers(0, 7)),
    unplaced=st.sets(st.integers(0, 7)),
    budget=st.builds(Budget, st.integers(1, 4), st.integers(0, 4), st.integers(0, 3), st.booleans()),
)
@example("oo", {1}, set(), Budget(2, 0))
def test_laws_of_a_step(text: str, flying: set[int], unplaced: set[int], budget: Budget) -> None:
    found = units(text)
    step = next_step(found, flying, budget, unplaced)
    by_id = {unit.id: unit for unit in found}
    assert all(by_id[one].outdated for one in (*step.broken, *step.taken)), "what is new is not taken"
    assert all(by_id[one].up for one in step.taken)
    assert all(not by_id[one].up for one in step.broken)
    assert len(step.in_flight) <= max(budget.max_unavailable, len(step.flying))
    if budget.paused:
        assert not step.broken
        assert not step.taken
    else:
        kept = [unit for unit in found if unit.outdated and unit.up and unit.id not in step.taken]
        assert len(kept) >= min(budget.keep, len(kept) + len(step.taken)), "as many as are to be kept, if there are"
    left = sum(unit.up for unit in found) - len(step.taken)
    is_only_one = len(step.in_flight) == 1 and left == budget.min_available - 1
    assert not step.taken or left >= budget.min_available or is_only_one, "a step stops at the minimum where it can"
    again = next_step(found, step.in_flight, budget, step.unplaced)
    assert (again.taken, again.broken, again.flying) == (step.taken, step.broken, step.flying), "it is a decision"
