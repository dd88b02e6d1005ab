"""Full label and annotation sets, object by object."""

from __future__ import annotations

import pytest

from grove.api import labelsets

OURS = {"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": "demo"}

TABLE = [
    pytest.param(labelsets.managed("demo"), OURS, id="every object of a set"),
    pytest.param(
        labelsets.standalone_clique({"tier": "front"}, "demo", 0, "demo-0-fe", "demo-0", "h4sh"),
        OURS
        | {
            "tier": "front",
            "app.kubernetes.io/name": "demo-0-fe",
            "app.kubernetes.io/component": "pcs-podclique",
            "grove.io/podcliqueset-replica-index": "0",
            "grove.io/podgang": "demo-0",
            "grove.io/pod-template-hash": "h4sh",
        },
        id="a standalone clique",
    ),
    pytest.param(
        labelsets.standalone_clique(
            {
                "grove.io/podcliquescalinggroup": "mine",
                "grove.io/podcliquescalinggroup-replica-index": "3",
                "grove.io/base-podgang": "mine",
                "grove.io/podgang": "mine",
            },
            "demo",
            0,
            "demo-0-fe",
            "demo-0",
            "h4sh",
        ),
        labelsets.standalone_clique({}, "demo", 0, "demo-0-fe", "demo-0", "h4sh"),
        id="a template cannot say that its cliques stand elsewhere",
    ),
    pytest.param(
        labelsets.member_clique({}, "demo", 0, "demo-0-pf", 0, "demo-0-pf-0-wk", "demo-0", "demo-0", "h4sh"),
        OURS
        | {
            "app.kubernetes.io/name": "demo-0-pf-0-wk",
            "app.kubernetes.io/component": "pcsg-podclique",
            "grove.io/podcliquescalinggroup": "demo-0-pf",
            "grove.io/podcliquescalinggroup-replica-index": "0",
            "grove.io/podcliqueset-replica-index": "0",
            "grove.io/podgang": "demo-0",
            "grove.io/pod-template-hash": "h4sh",
        },
        id="a member in the base gang names no base gang",
    ),
    pytest.param(
        labelsets.member_clique({}, "demo", 0, "demo-0-pf", 2, "demo-0-pf-2-wk", "demo-0-pf-1", "demo-0", "h4sh"),
        OURS
        | {
            "app.kubernetes.io/name": "demo-0-pf-2-wk",
            "app.kubernetes.io/component": "pcsg-podclique",
            "grove.io/podcliquescalinggroup": "demo-0-pf",
            "grove.io/podcliquescalinggroup-replica-index": "2",
            "grove.io/podcliqueset-replica-index": "0",
            "grove.io/podgang": "demo-0-pf-1",
            "grove.io/base-podgang": "demo-0",
            "grove.io/pod-template-hash": "h4sh",
        },
        id="a member in a scaled gang names its base gang",
    ),
    pytest.param(
        labelsets.replica_component("demo", "pcs-podcliquescalinggroup", "demo-0-pf", 0),
        OURS
        | {
            "app.kubernetes.io/name": "demo-0-pf",
            "app.kubernetes.io/component": "pcs-podcliquescalinggroup",
            "grove.io/podcliqueset-replica-index": "0",
        },
        id="a scaling group",
    ),
    pytest.param(
        labelsets.pod(
            {"app.kubernetes.io/name": "demo-0-fe", "tier": "front", "grove.io/podgang": "stale"},
            "demo",
            0,
            "fe",
            "demo-0-fe",
            "demo-0",
            1,
        ),
        OURS
        | {
            "tier": "front",
            "app.kubernetes.io/name": "demo-0-fe",
            "grove.io/clique-name": "fe",
            "grove.io/podclique": "demo-0-fe",
            "grove.io/podcliqueset-replica-index": "0",
            "grove.io/podgang": "demo-0",
            "grove.io/podclique-pod-index": "1",
        },
        id="a pod inherits its clique's labels and keeps its clique's name",
    ),
    pytest.param(
        labelsets.pod_gang(
            {"grove.io/kept": "1", "gone": "1"}, {"team": "blue", "grove.io/x": "1"}, "demo", "grove-scheduler"
        ),
        OURS
        | {
            "team": "blue",
            "grove.io/kept": "1",
            "app.kubernetes.io/component": "podgang",
            "grove.io/scheduler-name": "grove-scheduler",
        },
        id="a gang mirrors the set's foreign labels and keeps Grove's own",
    ),
    pytest.param(
        labelsets.component("demo", "pod-role", "grove.io:pcs:demo"),
        OURS | {"app.kubernetes.io/name": "grove.io-pcs-demo", "app.kubernetes.io/component": "pod-role"},
        id="a role's name label has dashes for colons",
    ),
    pytest.param(
        labelsets.set_claim("demo"), OURS | {"app.kubernetes.io/component": "resource-claim"}, id="a claim of a set"
    ),
    pytest.param(
        labelsets.set_claim("demo", 0),
        OURS | {"app.kubernetes.io/component": "resource-claim", "grove.io/podcliqueset-replica-index": "0"},
        id="a claim of a set's replica",
    ),
    pytest.param(
        labelsets.group_claim("demo", "demo-0-pf", 1),
        OURS
        | {
            "app.kubernetes.io/component": "resource-claim",
            "grove.io/podcliquescalinggroup": "demo-0-pf",
            "grove.io/podcliquescalinggroup-replica-index": "1",
        },
        id="a claim of a group's replica",
    ),
    pytest.param(
        labelsets.clique_claim("demo", "demo-0-fe", 3),
        OURS
        | {
            "app.kubernetes.io/component": "resource-claim",
            "grove.io/podclique": "demo-0-fe",
            "grove.io/podclique-pod-index": "3",
        },
        id="a claim of one pod",
    ),
    pytest.param(
        labelsets.compute_domain("demo", 1, "demo-1-ring", "ring"),
        OURS
        | {
            "app.kubernetes.io/name": "demo-1-ring",
            "app.kubernetes.io/component": "pcs-computedomain",
            "grove.io/podcliqueset-replica-index": "1",
            "grove.io/mnnvl-group": "ring",
        },
        id="a compute domain",
    ),
    pytest.param(
        labelsets.service_selector("demo", 1),
        OURS | {"grove.io/podcliqueset-replica-index": "1"},
        id="a service selects the pods of one replica",
    ),
]


@pytest.mark.parametrize(("labels", "want"), TABLE)
def test_labels(labels: dict[str, str], want: dict[str, str]) -> None:
    assert labels == want


def test_a_template_cannot_take_over_our_keys() -> None:
    labels = labelsets.standalone_clique({"app.kubernetes.io/part-of": "mine"}, "demo", 0, "demo-0-fe", "demo-0", "h")
    assert labels["app.kubernetes.io/part-of"] == "demo"


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param(
            labelsets.set_selector("demo"),
            "app.kubernetes.io/managed-by=grove-operator,app.kubernetes.io/part-of=demo",
            id="of a set",
        ),
        pytest.param(
            labelsets.clique_selector("demo", "demo-0-fe"),
            "app.kubernetes.io/managed-by=grove-operator,app.kubernetes.io/part-of=demo,grove.io/podclique=demo-0-fe",
            id="of a clique",
        ),
        pytest.param(
            labelsets.group_selector("demo", "demo-0-pf"),
            "app.kubernetes.io/managed-by=grove-operator,app.kubernetes.io/part-of=demo,"
            "grove.io/podcliquescalinggroup=demo-0-pf",
            id="of a group",
        ),
        pytest.param(
            labelsets.set_unit_selector("demo", "fe", in_group=False),
            "app.kubernetes.io/managed-by=grove-operator,app.kubernetes.io/part-of=demo,grove.io/clique-name=fe,"
            "grove.io/podclique-pod-index=0",
            id="of one pod a replica of a set, by a standalone clique",
        ),
        pytest.param(
            labelsets.set_unit_selector("demo", "lead", in_group=True),
            "app.kubernetes.io/managed-by=grove-operator,app.kubernetes.io/part-of=demo,grove.io/clique-name=lead,"
            "grove.io/podclique-pod-index=0,grove.io/podcliquescalinggroup-replica-index=0",
            id="of one pod a replica of a set, by the first replica of a group",
        ),
        pytest.param(
            labelsets.group_unit_selector("demo", "demo-0-pf", "lead"),
            "app.kubernetes.io/managed-by=grove-operator,app.kubernetes.io/part-of=demo,grove.io/clique-name=lead,"
            "grove.io/podclique-pod-index=0,grove.io/podcliquescalinggroup=demo-0-pf",
            id="of one pod a replica of a group",
        ),
    ],
)
def test_selector_text_has_its_keys_sorted(selector: str, want: str) -> None:
    assert selector == want


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param(
            labelsets.clique_annotations({"a": "1", "grove.io/topology-name": "t"}),
            {"a": "1"},
            id="a clique does not inherit a topology name",
        ),
        pytest.param(
            labelsets.group_annotations({"a": "1"}, {"grove.io/mnnvl-group": "ring", "b": "2"}),
            {"a": "1", "grove.io/mnnvl-group": "ring"},
            id="a group inherits the MNNVL group and nothing else",
        ),
        pytest.param(
            labelsets.group_annotations({"grove.io/mnnvl-group": "none"}, {"grove.io/mnnvl-group": "ring"}),
            {"grove.io/mnnvl-group": "none"},
            id="unless it says otherwise",
        ),
        pytest.param(
            labelsets.gang_annotations({"grove.io/kept": "1", "old": "1"}, {"new": "1", "grove.io/x": "1"}, "t"),
            {"grove.io/kept": "1", "new": "1", "grove.io/topology-name": "t"},
            id="a gang mirrors foreign annotations and names its topology",
        ),
        pytest.param(
            labelsets.gang_annotations({"grove.io/topology-name": "t"}, {}),
            {},
            id="a gang without constraints loses the topology's name",
        ),
    ],
)
def test_annotations(annotations: dict[str, str], want: dict[str, str]) -> None:
    assert annotations == want
