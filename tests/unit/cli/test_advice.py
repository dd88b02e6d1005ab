"""What to type to free capacity: which command ends another gang, and where in the manifest a constraint stands."""

from __future__ import annotations

import msgspec
import pytest
from tests.support import objects
from tests.support.manifests import clique, group, pcs

from grove.api import labels
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.diagnosis.advice import advice_for, advice_of
from grove.scheduler.model.answers import ADD_NODES, END_OTHER, RELAX, SMALLER_PODS, Change

RACK = {"topologyName": "t", "pack": {"required": "rack", "preferred": "host"}}
CHAT = pcs(
    "chat",
    clique("router", topology=RACK),
    clique("lead"),
    clique("work", 2),
    groups=[group("decode", "lead", "work", replicas=3, topologyConstraint=RACK)],
    topologyConstraint=RACK,
)
LEVELS = (("rack", "example/rack"), ("block", "example/block"), ("host", "kubernetes.io/hostname"))


def gang_of_set(name: str, first_group: str = "", owner: str = "chat") -> PodGang:
    return objects.gang(name, {"name": first_group}, labels={labels.PART_OF: owner} if owner else {})


@pytest.mark.parametrize(
    ("other", "want"),
    [
        pytest.param(None, "kubectl -n ns delete pod x", id="a pod of nobody is deleted"),
        pytest.param(gang_of_set("x", owner=""), "kubectl -n ns delete podgang x", id="and so is a gang of no set"),
        pytest.param(
            gang_of_set("chat-2"), "kubectl grove -n ns scale chat 2", id="a replica of a set goes with those after it"
        ),
        pytest.param(
            gang_of_set("chat-1-decode-0", "chat-1-decode-2-lead"),
            "kubectl grove -n ns scale chat/decode 2 --replica 1",
            id="a scaled gang goes with the group's replicas from its own on",
        ),
    ],
)
def test_another_gang_makes_capacity(other: PodGang | None, want: str) -> None:
    name = other.metadata.name if other is not None else "x"
    change = Change(END_OTHER, 4, f"ns/{name}")
    known = {f"ns/{name}": other} if other is not None else {}
    found = advice_of(change, gang_of_set("waits-0"), None, LEVELS, known)
    assert (found.command, found.in_place) == (want, True)


@pytest.mark.parametrize(
    ("of", "subject", "want"),
    [
        pytest.param("chat-0", "ns/chat-0", "spec.template.topologyConstraint", id="the whole gang"),
        pytest.param(
            "chat-0", "chat-0-decode-0", "spec.template.podCliqueScalingGroups[0].topologyConstraint", id="a group"
        ),
        pytest.param(
            "chat-0-decode-0",
            "ns/chat-0-decode-0",
            "spec.template.podCliqueScalingGroups[0].topologyConstraint",
            id="a gang that is a replica of a group",
        ),
        pytest.param("chat-0", "chat-0-router", "spec.template.cliques[0].topologyConstraint", id="a clique"),
        pytest.param("chat-0", "chat-0-decode-0-work", "", id="a clique that has none of its own"),
    ],
)
def test_a_constraint_is_loosened_where_it_stands(of: str, subject: str, want: str) -> None:
    change = Change(RELAX, 1, subject, names={"required": "example/rack", "to": "example/block"})
    found = advice_of(change, gang_of_set(of), msgspec.convert(CHAT, PodCliqueSet), LEVELS)
    assert found.text == f"required: block instead of required: rack for {subject.rpartition('/')[2]}"
    assert found.path == (f"{want}.pack.required" if want else "")
    assert [one["value"] for one in found.patch] == ([{"required": "block", "preferred": "host"}] if want else [])


def test_a_resource_that_no_container_names_cannot_be_patched() -> None:
    numbers, names = {"from": 8, "to": 4}, {"resource": "nvidia.com/gpu"}
    change = Change(SMALLER_PODS, 1, "chat-0-router", numbers=numbers, names=names)
    found = advice_of(change, gang_of_set("chat-0"), msgspec.convert(CHAT, PodCliqueSet), LEVELS)
    assert (found.text, found.command) == (
        "ask for 4 nvidia.com/gpu instead of 8 in each pod of chat-0-router",
        "",
    )


@pytest.mark.parametrize(
    ("runs", "changes", "want"),
    [
        pytest.param(False, ("smaller", "relax", "add"), ["smaller", "relax", "add"], id="nothing of it runs"),
        pytest.param(True, ("smaller", "relax", "add"), ["add"], id="its pods serve: neither smaller nor deleted"),
        pytest.param(True, ("smaller", "relax"), ["smaller"], id="nothing but smaller pods or a deletion helps"),
        pytest.param(True, ("relax",), ["relax"], id="only a deletion helps"),
    ],
)
def test_a_set_that_serves_is_changed_as_little_as_possible(
    runs: bool, changes: tuple[str, ...], want: list[str]
) -> None:
    known = {
        "smaller": Change(
            SMALLER_PODS, 1, "chat-0-router", numbers={"from": 8, "to": 4}, names={"resource": "nvidia.com/gpu"}
        ),
        "relax": Change(RELAX, 1, "chat-0-router", names={"required": "example/rack", "to": "example/block"}),
        "add": Change(ADD_NODES, 1, "n1"),
    }
    found = advice_for(
        [known[name] for name in changes], gang_of_set("chat-0"), msgspec.convert(CHAT, PodCliqueSet), LEVELS, runs=runs
    )
    assert [one.kind for one in found] == [known[name].kind for name in want]
