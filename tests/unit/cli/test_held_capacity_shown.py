"""Capacity that is free but not open to every gang, in pictures of the fleet: held, reserved, broken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import objects
from tests.support.objects import node

from grove.api.core import Pod
from grove.api.koordinator import Reservation
from grove.api.podgang import PodGang
from grove.console.rows import node_rows
from grove.diagnosis.held_capacity import held_for, held_nodes, held_sentence, reserved_on
from grove.diagnosis.seen import Seen
from grove.show.layout import layout_of
from grove.show.paint import domain_lines

GPU = "nvidia.com/gpu"


def gang_with_hold(name: str, held: list[str]) -> PodGang:
    """A gang as the scheduler leaves it when it holds nodes."""
    holds = [{"reason": "WaitedLong", "since": "2026-01-01T00:00:00Z", "nodes": held}] if held else []
    return objects.gang(name, namespace="a", status={"capacityHolds": holds})


def reservation(node_name: str = "n0", gpus: int = 4, **more: Any) -> Reservation:
    status = {"phase": "Available", "nodeName": node_name, "allocatable": {GPU: str(gpus)}, **more.pop("status", {})}
    return msgspec.convert({"metadata": {"name": "kept"}, "spec": more, "status": status}, Reservation)


@pytest.mark.parametrize("count", [0, 1, 2, 200])
def test_held_nodes_are_read_from_what_the_scheduler_wrote_all_of_them(count: int) -> None:
    held = [f"n{number}" for number in range(count)]
    assert held_for(gang_with_hold("g", held)) == held
    assert held_nodes([gang_with_hold("g", held)]) == dict.fromkeys(held, "a/g")


def test_a_sentence_names_the_first_few() -> None:
    assert (
        held_sentence(gang_with_hold("g", ["a", "b", "c", "d", "e"])) == "5 nodes are held for it: a, b, c and 2 more"
    )
    assert held_sentence(gang_with_hold("g", ["a"])) == "1 node is held for it: a"


@pytest.mark.parametrize(
    ("one", "want"),
    [
        pytest.param(reservation(), 4, id="nobody uses it yet"),
        pytest.param(reservation(status={"allocated": {GPU: "3"}}, allocateOnce=False), 1, id="in part used"),
        pytest.param(reservation(status={"currentOwners": [{"name": "p"}]}), 0, id="for one pod, which has come"),
        pytest.param(reservation(status={"phase": "Succeeded"}), 0, id="over"),
        pytest.param(reservation(status={"allocatable": {GPU: "much"}}), 0, id="no quantity"),
    ],
)
def test_a_reservation_keeps_what_its_owners_do_not_use_yet(one: Reservation, want: int) -> None:
    assert sum(reserved_on([one], GPU).get("n0", {}).values()) == want


def test_the_picture_has_broken_reserved_and_held() -> None:
    seen = Seen(
        nodes=[node("n0"), node("n1", gpus=7), node("n2")],
        reservations=[reservation()],
        gangs=[gang_with_hold("big", ["n2"])],
    )
    layout = layout_of(seen)
    spots = {spot.node: spot for spot in layout.root.spots}
    assert {name: spot.words for name, spot in spots.items()} == {
        "n0": "4 reserved by kept",
        "n1": "1 broken",
        "n2": "held for a/big",
    }
    assert {name: spot.free for name, spot in spots.items()} == {"n0": 4, "n1": 7, "n2": 8}
    assert layout.root.free == 19
    printed = "\n".join(line.plain for line in domain_lines(layout, 100, nodes=True))
    assert all(words in printed for words in ("4 reserved by kept", "1 broken", "held for a/big"))
    rows = node_rows(layout)
    assert rows["n0"][5:] == [0, [["kept", 4]], ""]
    assert rows["n1"][5:] == [1, [], ""]
    assert rows["n2"][5:] == [0, [], "a/big"]


def test_gangs_of_one_name_in_two_namespaces_are_two() -> None:
    def pod(namespace: str, name: str) -> Pod:
        own = {"grove.io/podgang": "chat-0", "app.kubernetes.io/part-of": "chat"}
        asked = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
        spec = {"nodeName": "n0", "containers": [{"name": "c", "resources": asked}]}
        return msgspec.convert({"metadata": {"name": name, "namespace": namespace, "labels": own}, "spec": spec}, Pod)

    layout = layout_of(Seen(nodes=[node("n0")], pods=[pod("a", "p"), pod("b", "p"), pod("b", "q")]))
    assert layout.root.spots[0].taken == (("b/chat-0", 2), ("chat-0", 1))
    assert layout.set_of == {"chat-0": "a/chat", "b/chat-0": "b/chat"}
    assert node_rows(layout)["n0"][4] == [["b/chat-0", 2], ["a/chat-0", 1]]
