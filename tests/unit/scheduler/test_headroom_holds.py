"""Laws of headroom in the ledger, and the copies that it is held for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grove.api import labels
from grove.api.selector import of_labels
from grove.scheduler.loop.moving.headroom_moves import kept_groups
from grove.scheduler.model.facts import PodFacts, PodScope, Requests, Shape
from grove.scheduler.model.gang import Branch, Gang, PodGroup, UnitSpread
from grove.scheduler.policy.headroom import (
    HeadroomState,
    copy_of,
    counted_amounts,
    group_replica,
    whole_copies,
    whole_replica,
)
from grove.scheduler.policy.hold_ledger import CapacityHold, HoldReason, Ledger
from grove.scheduler.policy.waiting_queue import Order, Stage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU, RACK, ZONE = "nvidia.com/gpu", "example.com/rack", "topology.kubernetes.io/zone"


def order(priority: int, stage: Stage, age: int, name: str) -> Order:
    return Order((-priority,), stage, float(age), name)


def headroom(priority: int, age: int) -> CapacityHold:
    pod = PodFacts("held:1", "", "1", Shape(((GPU, 8),)), node="n")
    at = order(priority, Stage.MINIMUM, age, "a/chat-0")
    return CapacityHold("a/chat-0", at, HoldReason.HEADROOM, NOW, pods=(pod,), family="a/chat", lends_below=priority)


@given(
    priority=st.integers(-3, 3),
    age=st.integers(0, 3),
    own_priority=st.integers(-3, 3),
    own_age=st.integers(0, 3),
    stage=st.sampled_from(Stage),
    family=st.sampled_from(["a/chat", "a/other", ""]),
)
def test_headroom_is_its_sets_own_lent_to_lower_priorities_and_closed_only_to_equals_behind_it(
    priority: int, age: int, own_priority: int, own_age: int, stage: Stage, family: str
) -> None:
    ledger = Ledger()
    hold = headroom(priority, age)
    ledger.put(hold)
    mine = order(own_priority, stage, own_age, "b/unit")
    closed = ledger.closed_to("b/unit", mine, family=family, priority=own_priority)
    assert not closed.nodes
    assert not closed.awaited
    if family == "a/chat":
        assert closed.own == {"held:1"}
        assert closed.headrooms == (hold,)
    elif own_priority != priority or mine < hold.order:
        assert closed.behind == (hold,), "a lower priority borrows it, a unit ahead takes it"
        assert closed.headrooms == (hold,)
    else:
        assert closed.headrooms_ahead == (hold,)
        assert not closed.behind
        assert not closed.own


def test_the_owner_has_it_as_its_own_without_its_family_being_known() -> None:
    ledger = Ledger()
    ledger.put(headroom(0, 0))
    assert ledger.closed_to("a/chat-0", order(0, Stage.REPAIR, 0, "a/chat-0")).own == {"held:1"}


def bound_pod(name: str, group: str, **own: str) -> PodFacts:
    shape = Shape(((GPU, 8), ("pods", 1)), blocked="volume is not bound")
    return PodFacts(f"uid-{name}", "a", name, shape, own, node="n", priority=7, gang="a/chat-0", group=group)


def gang_of(*children: Branch | PodGroup, spreads: tuple[UnitSpread, ...] = ()) -> Gang:
    return Gang("a/chat-0", Branch("a/chat-0", children, "rack"), 7, spreads=spreads)


def spread(label: str, *units: tuple[str, tuple[str, ...]]) -> UnitSpread:
    scope = PodScope(of_labels({labels.PART_OF: "chat"}), frozenset(("a",)))
    return UnitSpread("zone", 1, True, scope, label, units)


def renamed(at: int, one: PodFacts) -> str:
    return f"{one.uid}+{at}"


def test_a_copy_needs_all_pods_and_is_a_unit_of_its_own_in_the_spread() -> None:
    base = gang_of(
        PodGroup("front", 1, (bound_pod("f0", "front"), bound_pod("f1", "front"))),
        spreads=(spread(labels.REPLICA_INDEX, ("0", ("front",))),),
    )
    scaled = Gang("a/chat-0-0", Branch("s", (PodGroup("work", 1, (bound_pod("w0", "work"),)),)), 7)
    replica = whole_replica(base, [scaled])
    copies = [copy_of(replica, partial(renamed, at), at, 3, labels.REPLICA_INDEX) for at in range(2)]
    for number, copy in enumerate(copies):
        assert [(group.name, group.need) for group in copy.groups()] == [("front", 2), ("work", 1)]
        assert copy.root.required == "rack"
        assert not copy.may_preempt
        [unit] = copy.spreads[0].units
        assert unit == (f"headroom-{number}", ("front",))
        for one in (one for group in copy.groups() for one in group.pods):
            assert (one.node, one.priority, one.shape.blocked) == ("", 3, "")
            assert one.labels[labels.REPLICA_INDEX] == f"headroom-{number}"
    uids = [one.uid for copy in copies for group in copy.groups() for one in group.pods]
    assert len(set(uids)) == len(uids)


def test_a_copy_of_a_group_has_its_pod_groups_and_the_constraint_around_them() -> None:
    work = Branch(
        "decode-0",
        (PodGroup("lead", 1, (bound_pod("l", "lead"),)), PodGroup("work", 1, (bound_pod("w", "work"),))),
        "host",
    )
    base = gang_of(
        work,
        PodGroup("front", 1, (bound_pod("f", "front"),)),
        spreads=(
            spread(labels.SCALING_GROUP_REPLICA_INDEX, ("0", ("lead", "work")), ("1", ("lead-1",))),
            spread(labels.REPLICA_INDEX, ("0", ("lead", "work", "front"))),
        ),
    )
    found = group_replica(base, ("lead", "work"), None)
    assert found.root.children == (work,)
    assert not found.root.required, "further replicas of a group are not bound to the domain of the gang by the root"
    assert [one.units for one in found.spreads] == [(("0", ("lead", "work")),)]


def inner(label: str, key: str, *units: tuple[str, tuple[str, ...]]) -> UnitSpread:
    """A spread inside a replica: of the replicas of a group, or of the pods of a clique."""
    scope = PodScope(of_labels({labels.POD_CLIQUE: key}), frozenset(("a",)))
    return UnitSpread("zone", 1, True, scope, label, units)


def test_a_spread_inside_a_replica_counts_the_pods_of_its_copy_alone() -> None:
    of_pods, of_groups = (
        inner("", "work", ("", ("work",))),
        inner(labels.SCALING_GROUP_REPLICA_INDEX, "g", ("0", ("l",))),
    )
    base = gang_of(
        PodGroup("work", 1, (bound_pod("w", "work", **{labels.POD_CLIQUE: "work"}),)),
        PodGroup("l", 1, (bound_pod("l", "l"),)),
        spreads=(of_pods, of_groups),
    )
    more = Gang("a/x", Branch("x", (PodGroup("m", 1, (bound_pod("m", "m"),)),)), 7)
    more = replace(more, spreads=(replace(of_groups, units=(("1", ("m",)),)),))
    replica = whole_replica(base, [more])
    copies = [copy_of(replica, partial(renamed, at), at, 3, labels.REPLICA_INDEX) for at in range(2)]
    for copy in copies:
        assert [one.units for one in copy.spreads] == [of_pods.units, (("0", ("l",)), ("1", ("m",)))]
        [scope, _] = [one.scope for one in copy.spreads]
        counted = [
            one.uid
            for other in copies
            for group in (*other.groups(), *base.groups())
            for one in group.pods
            if scope.matches("a", one.labels, {})
        ]
        assert counted == [one.uid for group in copy.groups() if group.name == "work" for one in group.pods]


def test_a_copy_of_a_group_keeps_the_spreads_of_its_cliques() -> None:
    base = gang_of(
        PodGroup("lead", 1, (bound_pod("l", "lead"),)),
        PodGroup("front", 1, (bound_pod("f", "front"),)),
        spreads=(inner("", "lead", ("", ("lead",))), inner("", "front", ("", ("front",)))),
    )
    assert [one.units for one in group_replica(base, ("lead",), None).spreads] == [(("", ("lead",)),)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["cpu", GPU, "memory", "pods"]), st.integers(0, 9)), unique_by=lambda one: one[0]
    ),
    st.dictionaries(st.sampled_from(["cpu", GPU, "memory", "pods"]), st.integers(-3, 9)),
)
def test_no_more_is_counted_than_is_free(requests: list[tuple[str, int]], free: dict[str, int]) -> None:
    asked: Requests = tuple(requests)
    held, is_lent = counted_amounts(asked, free)
    assert [name for name, _ in held] == [name for name, _ in asked]
    assert all(0 <= amount <= max(0, free.get(name, 0)) for name, amount in held)
    assert is_lent == any(dict(held)[name] < amount for name, amount in asked if name != "pods")


@pytest.mark.parametrize(
    ("state", "is_whole"),
    [(HeadroomState(1, 1), True), (HeadroomState(2, 1), False), (HeadroomState(1, 1, lent=1), False)],
)
def test_headroom_is_whole_if_all_of_it_is_held_and_nothing_is_lent(state: HeadroomState, is_whole: bool) -> None:
    assert state.is_whole == is_whole


def lost(name: str, required: str = "") -> PodGroup:
    """A group of two pods, one of which is missing."""
    pod = PodFacts(f"{name}-1", "a", f"{name}-1", Shape(((GPU, 1),)), group=name)
    return PodGroup(name, 2, (pod,), ("n",), required)


def whole(name: str, required: str = "") -> PodGroup:
    return PodGroup(name, 1, (), ("n",), required)


@pytest.mark.parametrize(
    ("parts", "required", "want"),
    [
        pytest.param([lost("w"), whole("f")], "", [], id="nothing keeps the pods together"),
        pytest.param([lost("w", RACK), whole("f")], "", [{"w"}], id="one clique in a rack"),
        pytest.param([lost("w"), whole("f")], RACK, [{"w", "f"}], id="the whole gang in a rack"),
        pytest.param(
            [Branch("i", (lost("w"), whole("l")), RACK), whole("f")],
            ZONE,
            [{"w", "l"}, {"w", "l", "f"}],
            id="an instance in a rack of the zone of the gang: the instance first",
        ),
        pytest.param(
            [lost("v", RACK), lost("w", RACK), whole("f", RACK)],
            "",
            [{"v"}, {"w"}, {"v", "w"}],
            id="two cliques in racks of their own: each alone, then both",
        ),
    ],
)
def test_the_pods_that_go_to_the_headroom_are_those_that_must_be_beside_a_missing_pod(
    parts: list[Branch | PodGroup], required: str, want: list[set[str]]
) -> None:
    assert list(kept_groups(Gang("a/chat-0", Branch("chat-0", tuple(parts), required)))) == want


def test_a_spread_keeps_the_pods_of_a_unit_together() -> None:
    scope = PodScope(of_labels({"app": "chat"}), frozenset(("a",)), with_terminating=False)
    units = (("0", ("v",)), ("1", ("w", "l")))
    tree = Gang("a/chat-0", Branch("chat-0", (whole("v"), lost("w"), whole("l"))))
    hard = UnitSpread(ZONE, 1, True, scope, labels.REPLICA_INDEX, units)
    assert list(kept_groups(replace(tree, spreads=(hard,)))) == [{"w", "l"}]
    assert list(kept_groups(replace(tree, spreads=(replace(hard, is_required=False),)))) == []


@pytest.mark.parametrize(
    ("held", "want"),
    [
        pytest.param({"c/0/a": 8, "c/0/b": 8, "c/1/a": 8, "c/1/b": 8}, 2, id="all"),
        pytest.param({"c/0/a": 8, "c/0/b": 8, "c/1/a": 8, "c/1/b": 4}, 1, id="one pod of a copy in part"),
        pytest.param({"c/0/a": 8, "c/1/b": 8}, 0, id="a pod of each copy is missing"),
    ],
)
def test_a_copy_is_held_if_all_its_pods_are(held: dict[str, int], want: int) -> None:
    wanted: dict[str, Requests] = dict.fromkeys(("c/0/a", "c/0/b", "c/1/a", "c/1/b"), ((GPU, 8),))
    assert whole_copies(wanted, {uid: ((GPU, amount),) for uid, amount in held.items()}) == want
