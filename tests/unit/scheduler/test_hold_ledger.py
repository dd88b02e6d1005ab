"""The laws of held capacity, over random histories of the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.scheduler.kit import pod

from grove.scheduler.policy.hold_ledger import COMMITTED, CapacityHold, HoldReason, Ledger
from grove.scheduler.policy.waiting_queue import Order, Stage

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OWNERS = [f"default/{name}" for name in "abcd"]
NODES = [f"n{number}" for number in range(5)]


def order_of(owner: str, priority: int, stage: Stage, created_s: int) -> Order:
    return Order((-priority,), stage, float(created_s), owner)


orders = st.builds(order_of, st.sampled_from(OWNERS), st.integers(0, 2), st.sampled_from(Stage), st.integers(0, 3))


@st.composite
def holds(draw: Any) -> CapacityHold:
    order = draw(orders)
    reason = draw(st.sampled_from(HoldReason))
    nodes = draw(st.frozensets(st.sampled_from(NODES), max_size=3))
    on = draw(st.lists(st.sampled_from(NODES), max_size=3))
    pods = tuple(pod(f"{order.name}-{reason.value}-{number}", 1, on=node) for number, node in enumerate(on))
    awaited = draw(st.frozensets(st.sampled_from(["u1", "u2", "u3"]), max_size=2))
    since = NOON + timedelta(seconds=draw(st.integers(0, 100)))
    return CapacityHold(order.name, order, reason, since, nodes, pods, awaited)


steps = st.lists(st.one_of(holds(), st.tuples(st.sampled_from(OWNERS), st.sampled_from(HoldReason))), max_size=20)


def played(history: list[Any]) -> tuple[Ledger, dict[tuple[str, HoldReason], CapacityHold]]:
    """The ledger after a history, and what should be in it: a hold is there until it is ended or replaced."""
    ledger, known = Ledger(), {}
    for step in history:
        if isinstance(step, CapacityHold):
            ledger.put(step)
            known[step.owner, step.reason] = step
        else:
            ledger.end(*step)
            known.pop(step, None)
    return ledger, {key: one for key, one in known.items() if one.nodes or one.pods or one.awaited}


@settings(max_examples=100)
@given(steps)
def test_a_hold_is_there_until_it_is_ended(history: list[Any]) -> None:
    ledger, known = played(history)
    assert {(one.owner, one.reason): one for one in ledger} == known


@settings(max_examples=100)
@given(steps, orders)
def test_a_hold_excludes_only_units_behind_its_owner(history: list[Any], order: Order) -> None:
    ledger, known = played(history)
    closed = ledger.closed_to(order.name, order)
    ahead = [
        one for one in known.values() if one.reason not in COMMITTED and one.owner != order.name and one.order < order
    ]
    assert set(closed.nodes) == {node for one in ahead for node in one.nodes}
    assert all(hold in ahead for hold in closed.nodes.values())
    assert closed.awaited == frozenset(uid for one in ahead for uid in one.awaited)


@settings(max_examples=100)
@given(steps, orders)
def test_a_unit_may_take_what_is_held_for_itself_and_for_units_behind_it(history: list[Any], order: Order) -> None:
    ledger, known = played(history)
    closed = ledger.closed_to(order.name, order)
    held = [one for one in known.values() if one.reason not in COMMITTED and one.pods]
    own = {each.uid for one in held if one.owner == order.name for each in one.pods}
    behind = [one for one in held if one.owner != order.name and not one.order < order]
    assert closed.own == own
    assert sorted(closed.behind, key=repr) == sorted(behind, key=repr)
    assert [one.order for one in closed.behind] == sorted((one.order for one in behind), reverse=True)


@given(steps, st.sampled_from(OWNERS))
def test_of_an_owner_that_is_gone_nothing_is_held(history: list[Any], owner: str) -> None:
    ledger, _ = played(history)
    ledger.end(owner)
    assert all(one.owner != owner for one in ledger)


@pytest.mark.parametrize("reason", [HoldReason.WAITED_LONG, HoldReason.NOMINATED, HoldReason.REPLACEMENT])
def test_a_hold_comes_where_its_owner_comes_after_shares_moved(reason: HoldReason) -> None:
    """Both units are of one queue, so the stage decides between them, whatever the queue used when the hold began."""
    ledger = Ledger()
    began = Order((-100, 0, 250_000), Stage.RETURNING, 0.0, "owner")
    now = Order((-100, 0, 600_000), Stage.MINIMUM, 0.0, "unit")
    ledger.put(CapacityHold("owner", began, reason, datetime.now(UTC), nodes=frozenset({"n"})))
    assert ledger.closed_to("unit", now).nodes.keys() == {"n"}
    ledger.reorder(lambda _: now.rank)
    assert not ledger.closed_to("unit", now).nodes
