"""Start order: which clique waits for which, and the container that waits."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs, worked_example
from tests.support.observed import all_cliques, clique_of, set_of

from grove.api.podcliqueset import EXPLICIT, IN_ORDER, PodCliqueSet
from grove.api.quantity import exact
from grove.operator.shared.layout import unit_of
from grove.operator.shared.startup import parent_minimums, parents, waited_for, with_startup_container


def order(observed: PodCliqueSet) -> dict[str, tuple[str, ...]]:
    found = {}
    for child in all_cliques(observed):
        name = child["metadata"]["name"]
        unit = unit_of(observed, clique_of(observed, name))
        assert unit is not None
        found[name] = parents(observed, unit)
    return found


def in_order(min_available: int) -> dict:
    return pcs(
        "demo",
        clique("router"),
        clique("lead"),
        clique("work", 2),
        groups=[group("grp", "lead", "work", replicas=2, min_available=min_available)],
        startup=IN_ORDER,
    )


@pytest.mark.parametrize(
    ("manifest", "wanted"),
    [
        pytest.param(worked_example(replicas=1), {}, id="any order: nobody waits"),
        pytest.param(
            in_order(1),
            {
                "demo-0-grp-0-lead": ("demo-0-router",),
                "demo-0-grp-0-work": ("demo-0-grp-0-lead",),
                "demo-0-grp-1-work": ("demo-0-grp-1-lead",),
            },
            id="in order: a scaled replica looks only at itself",
        ),
        pytest.param(
            in_order(2),
            {
                "demo-0-grp-0-lead": ("demo-0-router",),
                "demo-0-grp-1-lead": ("demo-0-router",),
                "demo-0-grp-0-work": ("demo-0-grp-0-lead", "demo-0-grp-1-lead"),
                "demo-0-grp-1-work": ("demo-0-grp-0-lead", "demo-0-grp-1-lead"),
            },
            id="in order: base replicas wait for the parents of all base replicas",
        ),
        pytest.param(
            pcs(
                "d",
                clique("a"),
                clique("r"),
                clique("b"),
                groups=[group("g", "a", "b", replicas=2)],
                startup=IN_ORDER,
            ),
            {"d-0-r": ("d-0-g-0-a",), "d-0-g-0-b": ("d-0-r",)},
            id="in order: only the direct predecessor counts, also in a scaled replica",
        ),
        pytest.param(
            pcs("d", clique("a"), clique("b", starts_after=["c"]), clique("c", starts_after=["a"]), startup=EXPLICIT),
            {"d-0-b": ("d-0-c",), "d-0-c": ("d-0-a",)},
            id="explicit: as said",
        ),
        pytest.param(
            pcs("d", clique("a"), clique("b", starts_after=["a", "ghost"]), startup=EXPLICIT),
            {"d-0-b": ("d-0-a",)},
            id="explicit: a clique that does not exist is nobody's parent",
        ),
        pytest.param(
            pcs("d", clique("worker"), clique("my-worker"), clique("z", starts_after=["my-worker"]), startup=EXPLICIT),
            {"d-0-z": ("d-0-my-worker",)},
            id="explicit: exact names, not endings",
        ),
    ],
)
def test_parents(manifest: dict, wanted: dict[str, tuple[str, ...]]) -> None:
    assert {name: found for name, found in order(set_of(manifest)).items() if found} == wanted


def test_each_parent_comes_with_its_minimum() -> None:
    observed = set_of(in_order(2))
    child = clique_of(observed, "demo-0-grp-0-work")
    unit = unit_of(observed, child)
    assert unit is not None
    assert child.spec.starts_after == ("demo-0-grp-0-lead", "demo-0-grp-1-lead")
    assert parent_minimums(observed, unit, child.spec.starts_after) == (
        ("demo-0-grp-0-lead", 1),
        ("demo-0-grp-1-lead", 1),
    )


def test_a_parent_at_zero_is_not_waited_for() -> None:
    observed = set_of(in_order(1))
    child = clique_of(observed, "demo-0-grp-0-lead")
    unit = unit_of(observed, child)
    assert unit is not None
    assert parent_minimums(observed, unit, child.spec.starts_after, {"demo-0-router": 0}) == ()


def test_a_parent_at_zero_by_its_template_is_not_waited_for_before_it_is_there() -> None:
    observed = set_of(pcs("d", clique("a", 0, min_available=0), clique("b"), startup=IN_ORDER))
    child = clique_of(observed, "d-0-b")
    unit = unit_of(observed, child)
    assert unit is not None
    assert parent_minimums(observed, unit, child.spec.starts_after) == ()
    assert parent_minimums(observed, unit, child.spec.starts_after, {"d-0-a": 2}) == (("d-0-a", 1),)


RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
ALL = {"cpu": "4", "memory": "16Gi"}


def container(limits: dict | None = None, requests: dict | None = None, name: str = "c") -> dict:
    return {"name": name, "image": "i", "resources": {"limits": limits or {}, "requests": requests or {}}}


@pytest.mark.parametrize(
    ("pod_spec", "qos", "want"),
    [
        pytest.param({"containers": [container(ALL, ALL)]}, "Guaranteed", "equal", id="guaranteed stays guaranteed"),
        pytest.param(
            {"containers": [container(ALL)]}, "Guaranteed", "equal", id="limits alone: requests are filled in from them"
        ),
        pytest.param(
            {"containers": [container(ALL, {"cpu": "4000m", "memory": "16384Mi"})]},
            "Guaranteed",
            "equal",
            id="the same amounts in other words",
        ),
        pytest.param(
            {"initContainers": [container(ALL, ALL, "mine")], "containers": [container(ALL, ALL)]},
            "Guaranteed",
            "equal",
            id="init containers of the template count",
        ),
        pytest.param(
            {"initContainers": [container(name="mine")], "containers": [container(ALL, ALL)]},
            "Burstable",
            "less",
            id="an init container without limits has made it burstable before",
        ),
        pytest.param({"containers": [container(ALL, {"cpu": "2"})]}, "Burstable", "less", id="burstable: limits, too"),
        pytest.param({"containers": [container(None, {"cpu": "2"})]}, "Burstable", "less", id="requests alone"),
        pytest.param({"containers": [container()]}, "BestEffort", "none", id="best effort stays best effort"),
        pytest.param(
            {"containers": [container({"nvidia.com/gpu": "8"}, {"cpu": "0"})]},
            "BestEffort",
            "none",
            id="devices and zeros do not count",
        ),
    ],
)
def test_the_container_does_not_change_the_qos_class_of_the_pod(pod_spec: dict, qos: str, want: str) -> None:
    after = with_startup_container(pod_spec, "demo", "initc:1", (("demo-0-a", 2),))
    limits = {"cpu": "200m", "memory": "64Mi"}
    less = {"cpu": "10m", "memory": "32Mi"}
    expected = {"equal": {"limits": limits, "requests": limits}, "less": {"limits": limits, "requests": less}}
    assert after["initContainers"][-1].get("resources") == expected.get(want)
    assert [qos_class(pod_spec), qos_class(after)] == [qos, qos]


def qos_class(pod_spec: dict) -> str:
    """As Kubernetes computes it, from what the API server has filled in."""
    containers = [*pod_spec.get("initContainers", ()), *pod_spec["containers"]]
    asked, limited = [], []
    for one in containers:
        limits, requests = ((one.get("resources") or {}).get(part) or {} for part in ("limits", "requests"))
        asked.append({k: exact(v) for k, v in {**limits, **requests}.items() if k in ("cpu", "memory") and exact(v)})
        limited.append({k: exact(v) for k, v in limits.items() if k in ("cpu", "memory") and exact(v)})
    if not any(asked):
        return "BestEffort"
    return "Guaranteed" if all(len(one) == 2 for one in limited) and asked == limited else "Burstable"


def test_a_pod_with_resources_of_its_own_has_its_class_from_those() -> None:
    before = {"resources": {"limits": ALL}, "containers": [container()]}
    after = with_startup_container(before, "demo", "initc:1", (("demo-0-a", 2),))
    assert "resources" not in after["initContainers"][0]


def test_a_pod_that_runs_as_root_does_not_make_the_container_root() -> None:
    before = {"securityContext": {"runAsUser": 0}, "containers": [container()]}
    after = with_startup_container(before, "demo", "initc:1", (("demo-0-a", 2),))
    assert after["initContainers"][0]["securityContext"] == {**RESTRICTED, "runAsUser": 65532}


def test_what_a_container_waits_for_can_be_read_from_its_arguments() -> None:
    after = with_startup_container({"containers": []}, "demo", "initc:1", (("demo-0-a", 2), ("demo-0-b", 1)))
    assert list(waited_for([*after["initContainers"][0]["args"], "--other=x:1"])) == [("demo-0-a", 2), ("demo-0-b", 1)]


def test_the_container_comes_after_the_users_own() -> None:
    before = {"initContainers": [{"name": "mine"}], "volumes": [{"name": "data"}], "containers": [{"name": "c"}]}
    after = with_startup_container(before, "demo", "initc:1", (("demo-0-a", 2), ("demo-0-b", 1)))
    own, ours = after["initContainers"]
    assert own == {"name": "mine"}
    assert ours == {
        "name": "grove-initc",
        "image": "initc:1",
        "args": ["--podcliques=demo-0-a:2", "--podcliques=demo-0-b:1"],
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "pod-info-vol", "mountPath": "/var/grove/pod-info", "readOnly": True},
            {
                "name": "sa-token-secret-vol",
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "readOnly": True,
            },
        ],
    }
    assert [volume["name"] for volume in after["volumes"]] == ["data", "sa-token-secret-vol", "pod-info-vol"]
    assert after["volumes"][1]["secret"] == {"secretName": "demo-ic-sat", "defaultMode": 420}
    assert [item["path"] for item in after["volumes"][2]["downwardAPI"]["items"]] == ["namespace", "podgangname"]
    assert before["initContainers"] == [{"name": "mine"}], "the template is not touched"


def test_without_parents_there_is_no_container() -> None:
    before = {"containers": []}
    assert with_startup_container(before, "demo", "initc:1", (), readiness_gate=True) is before


def test_a_readiness_gate_joins_those_of_the_template_when_asked_for() -> None:
    before = {"containers": [{"name": "c"}], "readinessGates": [{"conditionType": "example.com/mine"}]}
    parents_ = (("demo-0-a", 2),)
    assert with_startup_container(before, "demo", "initc:1", parents_)["readinessGates"] == before["readinessGates"]
    after = with_startup_container(before, "demo", "initc:1", parents_, readiness_gate=True)
    assert after["readinessGates"] == [
        {"conditionType": "example.com/mine"},
        {"conditionType": "grove.io/startup-order"},
    ]


@pytest.mark.parametrize(
    ("own", "of_set", "want"),
    [
        pytest.param("", "", None, id="Ready is not written"),
        pytest.param("Ready", "Started", None, id="a clique overrules its set"),
        pytest.param("", "Started", "Started", id="the set speaks for its cliques"),
        pytest.param("Created", "", "Created", id="the clique speaks for itself"),
    ],
)
def test_a_clique_has_the_start_condition_of_its_template_or_its_set(own: str, of_set: str, want: str | None) -> None:
    cliques = clique("a"), clique("b", starts_after=["a"], start_condition=own)
    observed = set_of(pcs("d", *cliques, startup=EXPLICIT, **({"startsAfterCondition": of_set} if of_set else {})))
    first, second = all_cliques(observed)
    assert "startsAfterCondition" not in first["spec"]
    assert second["spec"].get("startsAfterCondition") == want
