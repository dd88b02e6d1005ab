"""What is patched and what is not; which children are made, mended, removed or waited for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import worked_example
from tests.support.observed import set_of

from grove.api import labels as key
from grove.api.core import Service
from grove.api.meta import Json, ObjectMeta
from grove.api.patch import apply_merge_patch
from grove.api.podclique import PodClique, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGangStatus
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.shared.children import wanted_cliques, wanted_groups
from grove.operator.shared.diff import (
    Ownership,
    child_patch,
    finalizer_patch,
    needed_patch,
    plan_children,
    status_patch,
)

WHEN = "2026-01-01T00:00:00Z"
OWNER = PodCliqueSet(metadata=ObjectMeta(name="demo", uid="owner-uid"))


def live_clique(labels: Json | None = None, **spec: Any) -> Json:
    return {
        "kind": "PodClique",
        "metadata": {"name": "a", "labels": labels or {"k": "v"}},
        "spec": {"roleName": "a", "replicas": 2, "minAvailable": 1, "podSpec": {"containers": []}, **spec},
    }


def metric(name: str, labels: Json | None = None, **target: Any) -> Json:
    return {"type": "Pods", "pods": {"metric": {"name": name, "selector": {"matchLabels": labels}}, "target": target}}


def autoscaler(*metrics: Json) -> Json:
    return {"kind": "HorizontalPodAutoscaler", "metadata": {}, "spec": {"metrics": list(metrics)}}


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


@pytest.mark.parametrize(
    ("wanted", "observed", "patch"),
    [
        pytest.param(live_clique(), live_clique(), None, id="equal"),
        pytest.param(live_clique(), live_clique(replicas=7), None, id="replicas belong to whoever scales"),
        pytest.param(
            live_clique(),
            live_clique({"k": "v", "mine": "x"}),
            {"metadata": {"labels": {"mine": None}}},
            id="foreign label goes",
        ),
        pytest.param(
            live_clique({"k": ""}), live_clique({}), {"metadata": {"labels": {"k": ""}}}, id="an empty label is a label"
        ),
        pytest.param(
            live_clique(podSpec={"hostNetwork": False}),
            live_clique(podSpec={}),
            {"spec": {"podSpec": {"hostNetwork": False}}},
            id="false in a pod spec is said, not implied",
        ),
        pytest.param(
            live_clique(podSpec={"volumes": [{"name": "v", "emptyDir": {}}]}),
            live_clique(podSpec={"volumes": [{"name": "v"}]}),
            {"spec": {"podSpec": {"volumes": [{"name": "v", "emptyDir": {}}]}}},
            id="an empty object in a pod spec means something",
        ),
        pytest.param(
            live_clique(podSpec={}),
            live_clique(podSpec={"nodeSelector": {"a": "b"}}),
            {"spec": {"podSpec": {"nodeSelector": None}}},
            id="what left the template leaves the clique",
        ),
        pytest.param(
            live_clique(podSpec={"nodeSelector": None}),
            live_clique(podSpec={"nodeSelector": {"a": "b"}}),
            {"spec": {"podSpec": {"nodeSelector": None}}},
            id="null is nothing: what was there goes",
        ),
        pytest.param(
            live_clique(podSpec={"containers": [{"name": "c", "resources": None}]}),
            live_clique(podSpec={"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}),
            {"spec": {"podSpec": {"containers": [{"name": "c", "resources": None}]}}},
            id="also in a list",
        ),
        pytest.param(
            live_clique(podSpec={"nodeSelector": None, "containers": [{"name": "c", "resources": None}]}),
            live_clique(podSpec={"containers": [{"name": "c"}], "tolerations": None}),
            None,
            id="null is nothing: nothing was there",
        ),
        pytest.param(
            live_clique(),
            live_clique(startsAfter=["x"]),
            {"spec": {"startsAfter": None}},
            id="a parent that is gone is removed",
        ),
        pytest.param(
            live_clique(),
            live_clique(startsAfter=[]),
            None,
            id="an empty list and none are the same outside a pod spec",
        ),
        pytest.param(
            {"kind": "Service", "metadata": {}, "spec": {"selector": {"a": "1"}, "publishNotReadyAddresses": False}},
            {
                "kind": "Service",
                "metadata": {},
                "spec": {"selector": {"a": "1"}, "type": "ClusterIP", "clusterIP": "x"},
            },
            None,
            id="what the server fills in stays",
        ),
        pytest.param(
            {"kind": "Service", "metadata": {}, "spec": {"selector": {"a": "1"}}},
            {"kind": "Service", "metadata": {}, "spec": {"selector": {"a": "1", "b": "2"}}},
            {"spec": {"selector": {"b": None}}},
            id="a selector is ours alone",
        ),
        pytest.param(
            {"kind": "Service", "metadata": {"annotations": {"a": "1"}}},
            {"kind": "Service", "metadata": {"annotations": {"a": "1", "cloud": "2"}}},
            None,
            id="annotations of a Service are shared",
        ),
        pytest.param(
            {"kind": "PodGang", "metadata": {}, "spec": {"podgroups": []}},
            {"kind": "PodGang", "metadata": {"annotations": {"old": "1"}}, "spec": {"podgroups": []}},
            {"metadata": {"annotations": {"old": None}}},
            id="a map of ours that is not wanted at all is emptied",
        ),
        pytest.param(
            {"kind": "PodGang", "metadata": {"annotations": {}}, "spec": {"podgroups": []}},
            {"kind": "PodGang", "metadata": {}, "spec": {"reuseReservationRef": {"name": "x"}}},
            None,
            id="a reservation on a gang is somebody else's",
        ),
        pytest.param(
            {"kind": "PodGang", "metadata": {}, "spec": {"podgroups": [{"name": "a", "minReplicas": 1}]}},
            {
                "kind": "PodGang",
                "metadata": {},
                "spec": {"podgroups": [{"name": "a", "minReplicas": 1, "topologyConstraint": {"x": "y"}}]},
            },
            {"spec": {"podgroups": [{"name": "a", "minReplicas": 1}]}},
            id="a constraint that is gone changes the list",
        ),
        pytest.param(
            {"kind": "HorizontalPodAutoscaler", "metadata": {}, "spec": {"metrics": [{"type": "Resource"}]}},
            {
                "kind": "HorizontalPodAutoscaler",
                "metadata": {},
                "spec": {"metrics": [{"type": "Resource", "filled": "in"}], "behavior": {"by": "user"}},
            },
            None,
            id="list entries may be completed by the server",
        ),
        pytest.param(
            autoscaler(metric("rps", averageValue="1000m"), metric("load", value=1500)),
            autoscaler(metric("rps", averageValue="1"), metric("load", value="1500m")),
            {"spec": {"metrics": [metric("rps", averageValue="1000m"), metric("load", value=1500)]}},
            id="another amount is another amount",
        ),
        pytest.param(
            autoscaler(metric("rps", averageValue="1000m"), metric("load", value=1500), metric("kv", value="0.5Gi")),
            autoscaler(metric("rps", averageValue="1"), metric("load", value="1500"), metric("kv", value="512Mi")),
            None,
            id="the server spells amounts in its own way",
        ),
        pytest.param(
            autoscaler(CPU, metric("rps", averageValue="2")),
            autoscaler(metric("rps", averageValue="2"), CPU),
            None,
            id="older servers show the CPU metric last",
        ),
        pytest.param(
            autoscaler(CPU, metric("rps", averageValue="2")),
            autoscaler(metric("rps", averageValue="2"), metric("rps", averageValue="2")),
            {"spec": {"metrics": [CPU, metric("rps", averageValue="2")]}},
            id="as many metrics, but others",
        ),
        pytest.param(
            autoscaler(metric("rps", labels={"tier": "1000m"})),
            autoscaler(metric("rps", labels={"tier": "1"})),
            {"spec": {"metrics": [metric("rps", labels={"tier": "1000m"})]}},
            id="what only looks like an amount is compared as text",
        ),
        pytest.param(
            {"kind": "ResourceClaim", "metadata": {}, "spec": {"devices": 1}},
            {"kind": "ResourceClaim", "metadata": {}, "spec": {"devices": 2}},
            None,
            id="a claim's spec cannot change",
        ),
        pytest.param(
            {"kind": "Secret", "metadata": {"finalizers": ["f"], "ownerReferences": [{"uid": "1"}]}},
            {"kind": "Secret", "metadata": {}},
            None,
            id="owners and finalizers are said at creation",
        ),
    ],
)
def test_needed_patch(wanted: Json, observed: Json, patch: Json | None) -> None:
    assert needed_patch(wanted, observed) == patch


def test_a_view_compares_like_the_json_it_came_from() -> None:
    pcs = set_of(worked_example())
    for kind, wanted in ((PodClique, wanted_cliques(pcs)), (PodCliqueScalingGroup, wanted_groups(pcs))):
        for child in wanted:
            assert needed_patch(child, msgspec.convert(child, kind)) is None


names = st.sampled_from(["a", "b", "c"])
scalars = st.one_of(st.integers(0, 2), st.booleans(), st.sampled_from(["", "x", "y"]))
trees = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(names, inner, max_size=3))
)
objects = st.dictionaries(names, trees, max_size=3)
owned = st.builds(
    Ownership,
    exact=st.lists(st.tuples(names), max_size=2).map(tuple),
    whole=st.lists(st.tuples(names), max_size=1).map(tuple),
    left=st.lists(st.tuples(names, names), max_size=1).map(tuple),
)


@given(objects, owned)
def test_an_object_needs_no_patch_to_become_itself(tree: Json, rules: Ownership) -> None:
    assert needed_patch(tree, tree, rules) is None


@given(objects, objects, owned)
def test_a_patch_once_applied_leaves_nothing_to_patch(wanted: Json, observed: Json, rules: Ownership) -> None:
    patch = needed_patch(wanted, observed, rules)
    after = apply_merge_patch(observed, patch or {})
    assert needed_patch(wanted, after, rules) is None


def child(name: str, uid: str = "owner-uid", **meta: Any) -> Json:
    owners = [{"uid": uid, "controller": True}]
    return {"kind": "Service", "metadata": {"name": name, "labels": {"a": "1"}, "ownerReferences": owners, **meta}}


def seen(*children: Json) -> list[Service]:
    """As the cache shows them."""
    return msgspec.convert(list(children), list[Service])


def test_children_are_made_mended_and_removed() -> None:
    plan = plan_children(
        [child("new"), child("same"), child("edited")],
        seen(child("same"), child("edited", labels={"a": "2"}), child("old")),
        OWNER,
    )
    assert [one["metadata"]["name"] for one in plan.create] == ["new"]
    assert plan.patch == [("edited", {"metadata": {"labels": {"a": "1"}}})]
    assert plan.delete == ["old"]
    assert plan.blocked == []
    assert not plan.is_settled


def test_children_as_wanted_leave_nothing_to_do() -> None:
    assert plan_children([child("a")], seen(child("a")), OWNER).is_settled


@pytest.mark.parametrize(
    ("observed", "blocked", "foreign"),
    [
        pytest.param(child("a", deletionTimestamp=WHEN), ["a"], [], id="our own, on its way out"),
        pytest.param(child("a", uid="other"), ["a"], ["a"], id="somebody else's stays"),
        pytest.param(
            child("a", uid="other", deletionTimestamp=WHEN), ["a"], [], id="an earlier owner's goes by itself"
        ),
        pytest.param({"metadata": {"name": "a"}}, ["a"], ["a"], id="nobody's"),
    ],
)
def test_a_name_that_is_taken_is_waited_for(observed: Json, blocked: list[str], foreign: list[str]) -> None:
    plan = plan_children([child("a")], seen(observed), OWNER)
    assert (plan.create, plan.patch, plan.delete) == ([], [], [])
    assert (plan.blocked, plan.foreign) == (blocked, foreign)


def test_what_an_earlier_owner_of_the_name_left_behind_goes_by_itself() -> None:
    owners = [{"uid": "earlier", "kind": "PodCliqueSet", "name": "demo", "controller": True}]
    plan = plan_children([child("a")], seen(child("a", ownerReferences=owners)), OWNER)
    assert (plan.create, plan.patch, plan.delete) == ([], [], [])
    assert (plan.blocked, plan.foreign) == (["a"], [])


def test_strangers_and_leaving_children_are_not_deleted() -> None:
    observed = seen(child("a", uid="other"), child("b", deletionTimestamp=WHEN), {"metadata": {"name": "c"}})
    assert plan_children([], observed, OWNER).delete == []


def test_children_that_have_not_changed_are_not_compared_again() -> None:
    plan = plan_children([child("a")], seen(child("a", labels={"a": "2"})), OWNER, unchanged=["a"])
    assert plan.is_settled


def test_a_clique_with_another_template_keeps_it_and_is_put_right_in_all_else() -> None:
    def made(hash_: str, gang: str, role: str, image: str, **template: str) -> Json:
        own = {key.POD_TEMPLATE_HASH: hash_, key.POD_GANG: gang, **template}
        spec = {"roleName": role, "podSpec": {"containers": [{"name": "c", "image": image}]}, "replicas": 1}
        return {
            "kind": "PodClique",
            "metadata": {"name": "c", "uid": "u", "labels": own, "annotations": template},
            "spec": spec,
        }

    live = msgspec.convert(made("old", "lost", "r", "one", version="one"), PodClique)
    assert child_patch(made("new", "gang", "role", "two", version="two"), live) == {
        "metadata": {"labels": {key.POD_GANG: "gang"}},
        "spec": {"roleName": "role"},
    }
    assert child_patch(made("new", "lost", "r", "two", version="two"), live) is None


@pytest.mark.parametrize(
    ("there", "present", "wanted"),
    [
        pytest.param(["x"], True, ["x", "ours"], id="added beside others"),
        pytest.param(["x", "ours"], True, None, id="there already"),
        pytest.param(["x", "ours"], False, ["x"], id="removed alone"),
        pytest.param(["x"], False, None, id="gone already"),
    ],
)
def test_finalizer_patch(there: list[str], present: bool, wanted: list[str] | None) -> None:
    expected = wanted and {"metadata": {"resourceVersion": "7", "finalizers": wanted}}
    assert finalizer_patch(there, "7", "ours", present=present) == expected


def test_a_first_status_is_written_with_its_zeros() -> None:
    after = PodCliqueStatus(replicas=1)
    assert status_patch(PodCliqueStatus(), after) == {
        "status": {
            "replicas": 1,
            "readyReplicas": 0,
            "updatedReplicas": 0,
            "scheduleGatedReplicas": 0,
            "scheduledReplicas": 0,
        }
    }


def test_a_later_status_holds_only_what_changed() -> None:
    before, after = PodCliqueStatus(replicas=1, ready_replicas=1), PodCliqueStatus(replicas=1)
    assert status_patch(before, after, resource_version="9") == {
        "metadata": {"resourceVersion": "9"},
        "status": {"readyReplicas": 0},
    }


def test_an_unchanged_status_is_not_written() -> None:
    assert status_patch(PodGangStatus(phase="Pending"), PodGangStatus(phase="Pending")) is None
