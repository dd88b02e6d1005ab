"""The children of a set and of a scaling group; most of what is in them is compared by the golden graphs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.manifests import clique, group, pcs, worked_example
from tests.support.observed import group_of, set_of

from grove.api.core import HorizontalPodAutoscaler, Role, RoleBinding, Secret, Service, ServiceAccount
from grove.api.meta import Json, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.shared.children import (
    template_hashes,
    wanted_access,
    wanted_autoscalers,
    wanted_cliques,
    wanted_groups,
    wanted_members,
    wanted_services,
)
from grove.operator.shared.diff import needed_patch

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


def names(objects: list[Json]) -> list[str]:
    return [one["metadata"]["name"] for one in objects]


def test_the_worked_example() -> None:
    demo = set_of(worked_example())
    assert names(wanted_cliques(demo)) == ["demo-0-router", "demo-1-router"]
    assert names(wanted_groups(demo)) == ["demo-0-grp", "demo-1-grp"]
    assert names(wanted_members(demo, group_of(demo, "demo-1-grp"))) == [
        "demo-1-grp-0-lead",
        "demo-1-grp-0-work",
        "demo-1-grp-1-lead",
        "demo-1-grp-1-work",
        "demo-1-grp-2-lead",
        "demo-1-grp-2-work",
    ]
    assert names(wanted_services(demo)) == ["demo-0", "demo-1"]
    assert wanted_access(demo) == []
    assert wanted_autoscalers(demo) == []


@pytest.mark.parametrize(
    ("startup", "starts_after", "has_order"),
    [
        pytest.param("CliqueStartupTypeAnyOrder", ["a"], False, id="any order"),
        pytest.param("CliqueStartupTypeInOrder", [], True, id="in order"),
        pytest.param("CliqueStartupTypeExplicit", ["a"], True, id="explicit, and somebody waits"),
        pytest.param("CliqueStartupTypeExplicit", [], False, id="explicit, and nobody waits"),
    ],
)
def test_only_a_start_order_needs_access_to_pods(startup: str, starts_after: list[str], has_order: bool) -> None:
    second = clique("b")
    second["spec"]["startsAfter"] = starts_after
    ordered = set_of(pcs("demo", clique("a"), second, startup=startup))
    assert [(one["kind"], one["metadata"]["name"]) for one in wanted_access(ordered)] == [
        ("ServiceAccount", "demo"),
        ("Role", "grove.io:pcs:demo"),
        ("RoleBinding", "grove.io:pcs:demo"),
        ("Secret", "demo-ic-sat"),
    ][: 4 if has_order else 0]


def test_one_clique_in_order_waits_for_no_other() -> None:
    assert wanted_access(set_of(pcs("demo", clique("a"), startup="CliqueStartupTypeInOrder"))) == []


def test_owners_are_one_each() -> None:
    demo = set_of(worked_example())
    grp = group_of(demo, "demo-0-grp")
    of_set = [*wanted_cliques(demo), *wanted_groups(demo), *wanted_services(demo), *wanted_access(demo)]
    for child in of_set:
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("PodCliqueSet", "uid-of-demo")
        assert owner["controller"] is owner["blockOwnerDeletion"] is True
    for child in wanted_members(demo, grp):
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("PodCliqueScalingGroup", "uid-of-demo-0-grp")


@pytest.mark.parametrize(
    "replicas",
    [
        pytest.param(3, id="above the minimum"),
        pytest.param(1, id="below the minimum"),
        pytest.param(0, id="zero releases the group"),
    ],
)
def test_members_follow_the_live_size(replicas: int) -> None:
    observed = set_of(pcs("d", clique("w"), groups=[group("g", "w", replicas=2, min_available=2)]))
    assert len(wanted_members(observed, group_of(observed, "d-0-g", replicas))) == replicas


def test_a_group_the_set_does_not_have_any_more_has_no_members() -> None:
    old = set_of(worked_example())
    new = set_of(pcs("demo", clique("router")))
    assert wanted_members(new, group_of(old, "demo-0-grp")) == []


def test_a_member_tells_its_pods_about_the_group() -> None:
    demo = set_of(worked_example())
    work = wanted_members(demo, group_of(demo, "demo-0-grp"))[1]
    (container,) = work["spec"]["podSpec"]["containers"]
    assert [one["name"] for one in container["env"]] == [
        "GROVE_PCSG_NAME",
        "GROVE_PCSG_TEMPLATE_NUM_PODS",
        "GROVE_PCSG_INDEX",
    ]
    assert container["env"][1]["value"] == "3"
    (standalone, _) = wanted_cliques(demo)
    assert "env" not in standalone["spec"]["podSpec"]["containers"][0]


def test_zero_replicas_are_written_as_such() -> None:
    observed = set_of(pcs("d", clique("w", 0, min_available=0)))
    (made,) = wanted_cliques(observed)
    assert made["spec"]["replicas"] == 0


def test_autoscalers() -> None:
    metric = {"type": "External", "external": {"metric": {"name": "queue"}}}
    observed = set_of(
        pcs(
            "d",
            clique("r", 2, scale={"minReplicas": 2, "maxReplicas": 5, "metrics": [metric]}),
            clique("w"),
            groups=[group("g", "w", replicas=3, scale={"maxReplicas": 8})],
            replicas=2,
        )
    )
    wanted = wanted_autoscalers(observed)
    assert names(wanted) == ["d-0-r", "d-0-g", "d-1-r", "d-1-g"]
    assert wanted[0]["spec"] == {
        "scaleTargetRef": {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": "d-0-r"},
        "minReplicas": 2,
        "maxReplicas": 5,
        "metrics": [metric],
    }
    assert wanted[1]["spec"] == {
        "scaleTargetRef": {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueScalingGroup", "name": "d-0-g"},
        "minReplicas": 3,
        "maxReplicas": 8,
        "metrics": [CPU],
    }


@pytest.mark.parametrize(
    ("config", "published"),
    [
        pytest.param({"headlessServiceConfig": {"publishNotReadyAddresses": False}}, False, id="as configured"),
        pytest.param({"headlessServiceConfig": {"publishNotReadyAddresses": True}}, True, id="as configured, too"),
        pytest.param({"headlessServiceConfig": None}, True, id="found by name before ready unless said otherwise"),
    ],
)
def test_services(config: Json, published: bool) -> None:
    (service,) = wanted_services(set_of(pcs("d", clique("w"), **config)))
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": published,
        "selector": {
            "app.kubernetes.io/managed-by": "grove-operator",
            "app.kubernetes.io/part-of": "d",
            "grove.io/podcliqueset-replica-index": "0",
        },
    }


def test_the_group_of_a_set_hands_its_mnnvl_annotation_down() -> None:
    manifest = pcs(
        "d",
        clique("w"),
        groups=[group("g", "w", annotations={"note": "x"})],
        metadata={"annotations": {"grove.io/mnnvl-group": "train", "other": "y"}},
    )
    (made,) = wanted_groups(set_of(manifest))
    assert made["metadata"]["annotations"] == {"note": "x", "grove.io/mnnvl-group": "train"}


def test_only_a_change_of_the_template_changes_its_hash() -> None:
    before = set_of(pcs("d", clique("w", 2), clique("x")))
    scaled = set_of(pcs("d", clique("w", 5, min_available=1), clique("x")))
    changed = set_of(pcs("d", clique("w", 2, nodeName="n"), clique("x")))
    assert template_hashes(scaled) == template_hashes(before)
    assert template_hashes(changed)["w"] != template_hashes(before)["w"]
    assert template_hashes(changed)["x"] == template_hashes(before)["x"]


def everything(observed: PodCliqueSet) -> list[tuple[type[Object], Json]]:
    kinds: dict[str, Any] = {
        "ServiceAccount": ServiceAccount,
        "Role": Role,
        "RoleBinding": RoleBinding,
        "Secret": Secret,
        "Service": Service,
        "HorizontalPodAutoscaler": HorizontalPodAutoscaler,
        "PodClique": PodClique,
        "PodCliqueScalingGroup": PodCliqueScalingGroup,
    }
    made = [
        *wanted_access(observed),
        *wanted_services(observed),
        *wanted_autoscalers(observed),
        *wanted_cliques(observed),
        *wanted_groups(observed),
        *wanted_members(observed, group_of(observed, "d-0-g")),
    ]
    return [(kinds[one["kind"]], one) for one in made]


def test_what_was_just_created_needs_no_patch() -> None:
    observed = set_of(
        pcs(
            "d",
            clique("r", 2, scale={"minReplicas": 2, "maxReplicas": 5}, annotations={"a": "b"}),
            clique("w", 0, min_available=0),
            groups=[group("g", "w", replicas=1, min_available=1)],
            startup="CliqueStartupTypeInOrder",
        )
    )
    found = everything(observed)
    assert len(found) == 9
    for kind, child in found:
        assert needed_patch(child, msgspec.convert(child, kind)) is None, child["kind"]


def object_metric(**about: str) -> dict[str, object]:
    target = {"type": "AverageValue", "averageValue": "4"}
    return {
        "type": "Object",
        "object": {"describedObject": about, "metric": {"name": "grove_requests_waiting"}, "target": target},
    }


@pytest.mark.parametrize(
    ("about", "want"),
    [
        pytest.param(
            {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueScalingGroup", "name": "self"},
            {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueScalingGroup", "name": "d-1-g"},
            id="self is the group that is scaled",
        ),
        pytest.param(
            {"kind": "PodCliqueScalingGroup", "name": "self"},
            {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueScalingGroup", "name": "d-1-g"},
            id="the API version may be left out",
        ),
        pytest.param(
            {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "name": "self"},
            {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "name": "d"},
            id="self as a set is the set it is part of",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Service", "name": "queue"},
            {"apiVersion": "v1", "kind": "Service", "name": "queue"},
            id="any other object stays",
        ),
    ],
)
def test_an_autoscaler_describes_a_live_object(about: dict[str, str], want: dict[str, str]) -> None:
    scale = {"minReplicas": 1, "maxReplicas": 3, "metrics": [object_metric(**about)]}
    observed = set_of(pcs("d", clique("w"), groups=[group("g", "w", scale=scale)], replicas=2))
    second = wanted_autoscalers(observed)[1]
    assert second["metadata"]["name"] == "d-1-g"
    assert second["spec"]["metrics"] == [object_metric(**want)]
    assert observed.spec.template.pod_clique_scaling_groups[0].scale_config.metrics[0] == object_metric(**about)  # type: ignore[union-attr]
