"""Reservations as places: brute force agrees on how many pods fit, and nothing is given twice."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import objects

from grove.api.core import Pod
from grove.api.koordinator import Reservation
from grove.api.meta import Json
from grove.scheduler.reserve.reservation_slots import PlacedReservation, may_use, slots_for

GPU = "nvidia.com/gpu"


def held(
    name: str, gpus: int, *, once: bool = True, policy: str = "", used: int = 0, order: str = ""
) -> PlacedReservation:
    labels = {"scheduling.koordinator.sh/reservation-order": order} if order else {}
    body: Json = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"allocateOnce": once, "allocatePolicy": policy},
    }
    users = {"somebody": {GPU: used}} if used else {}
    return PlacedReservation(msgspec.convert(body, Reservation), "n", {GPU: gpus}, users)


@pytest.mark.parametrize(
    ("one", "wants", "rest"),
    [
        pytest.param(held("r", 4), 4, (), id="all of it"),
        pytest.param(held("r", 4), 6, ((GPU, 2),), id="the rest comes from the node"),
        pytest.param(held("r", 4, policy="Restricted"), 6, None, id="unless it is restricted"),
        pytest.param(held("r", 4, used=1), 2, None, id="used once is used"),
        pytest.param(held("r", 4, once=False, used=1), 2, (), id="for many, with enough left"),
        pytest.param(held("r", 4, once=False, used=3), 2, ((GPU, 1),), id="for many, with too little left"),
        pytest.param(held("r", 4, once=False, used=4), 2, None, id="for many, with nothing left"),
    ],
)
def test_what_a_pod_needs_besides(one: PlacedReservation, wants: int, rest: tuple | None) -> None:
    assert one.rest_for(((GPU, wants),)) == rest


reservations = st.lists(
    st.builds(
        lambda gpus, once, policy, used: (gpus, once, policy, min(used, gpus)),
        st.integers(1, 6),
        st.booleans(),
        st.sampled_from(["", "Aligned", "Restricted"]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=4,
)


def brute_force(found: list[PlacedReservation], wants: int) -> Counter[int]:
    """The referee: how many pods need so much of the node, put in one by one until none is given anything."""
    count: Counter[int] = Counter()
    for one in found:
        left = one.amounts[GPU] - sum(used[GPU] for used in one.users.values())
        is_used = bool(one.users)
        while left and not (one.once and is_used):
            short = max(0, wants - left)
            if short and one.reservation.spec.allocate_policy == "Restricted":
                break
            count[short] += 1
            left, is_used = max(0, left - wants), True
    return count


@given(reservations, st.integers(1, 6))
def test_as_many_places_as_brute_force_finds(shapes: list[tuple], wants: int) -> None:
    found = [held(f"r{i}", g, once=once, policy=p, used=u) for i, (g, once, p, u) in enumerate(shapes)]
    ways = slots_for(((GPU, wants),), found)
    assert {dict(one.rest).get(GPU, 0): one.on(found) for one in ways} == brute_force(found, wants)


@given(reservations, st.integers(1, 6), st.integers(0, 12))
def test_any_client_that_takes_places_one_by_one_never_takes_more_than_is_held(
    shapes: list[tuple], wants: int, pods: int
) -> None:
    found = [held(f"r{i}", g, once=once, policy=p, used=u) for i, (g, once, p, u) in enumerate(shapes)]
    for number in range(pods):
        ways = slots_for(((GPU, wants),), found)
        if not ways:
            break
        one = ways[0].pick(found)
        assert one is not None, "a place that was counted is there"
        given_by_it = wants - dict(ways[0].rest).get(GPU, 0)
        assert 0 < given_by_it <= one.left()[GPU]
        one.users[f"pod-{number}"] = {GPU: given_by_it}
    for one in found:
        assert sum(used[GPU] for used in one.users.values()) <= one.amounts[GPU]
        assert not one.once or len(one.users) <= 1


def test_the_lower_order_goes_first() -> None:
    found = [held("a", 1), held("b", 1, order="2"), held("c", 1, order="1")]
    (slots,) = slots_for(((GPU, 1),), found)
    picked = []
    for _ in range(3):
        one = slots.pick(found)
        assert one is not None
        one.users["x"] = {GPU: 1}
        picked.append(one.name)
    assert picked == ["c", "b", "a"]


def owned_pod(**labels: str) -> Pod:
    owner = {"kind": "PodClique", "name": "d-0-a", "apiVersion": "grove.io/v1alpha1", "controller": True, "uid": "u"}
    return objects.pod(labels=labels, ownerReferences=[owner])


@pytest.mark.parametrize(
    ("owners", "want"),
    [
        pytest.param([{"labelSelector": {"matchLabels": {"team": "red"}}}], True, id="by label"),
        pytest.param([{"labelSelector": {"matchLabels": {"team": "blue"}}}], False, id="by another label"),
        pytest.param([{"controller": {"kind": "PodClique", "name": "d-0-a"}}], True, id="by its PodClique"),
        pytest.param([{"controller": {"kind": "Job"}}], False, id="by another kind of controller"),
        pytest.param([{"object": {"namespace": "ns", "name": "p"}}], True, id="by its name"),
        pytest.param(
            [{"object": {"name": "p"}, "labelSelector": {"matchLabels": {"team": "blue"}}}], False, id="all must hold"
        ),
        pytest.param([{}], False, id="an owner that says nothing is nobody"),
        pytest.param([{"object": {"name": "x"}}, {"object": {"name": "p"}}], True, id="one of several"),
    ],
)
def test_owners(owners: list[Json], want: bool) -> None:
    one = msgspec.convert({"metadata": {"name": "r"}, "spec": {"owners": owners}}, Reservation)
    assert may_use(PlacedReservation(one, "n", {GPU: 1}), owned_pod(team="red"), None, ()) is want
