"""Environment variables: what pods get, in which order, and who wins over a name."""

from __future__ import annotations

from grove.api import env


def test_every_pod_gets_its_own_names() -> None:
    assert env.pod_variables("demo", 0, "demo-0-pf-2-wk", "ns") == [
        {"name": "GROVE_PCS_NAME", "value": "demo"},
        {"name": "GROVE_PCS_INDEX", "value": "0"},
        {"name": "GROVE_PCLQ_NAME", "value": "demo-0-pf-2-wk"},
        {"name": "GROVE_HEADLESS_SERVICE", "value": "demo-0.ns.svc.cluster.local"},
        {
            "name": "GROVE_PCLQ_POD_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['grove.io/podclique-pod-index']"}},
        },
        {
            "name": "GROVE_REVISION",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['grove.io/revision']"}},
        },
    ]


def test_members_of_a_group_get_the_facts_of_the_group() -> None:
    assert env.group_variables(4) == [
        {
            "name": "GROVE_PCSG_NAME",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['grove.io/podcliquescalinggroup']"}},
        },
        {"name": "GROVE_PCSG_TEMPLATE_NUM_PODS", "value": "4"},
        {
            "name": "GROVE_PCSG_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['grove.io/podcliquescalinggroup-replica-index']"}},
        },
    ]


def test_variables_stand_first_in_containers_and_init_containers() -> None:
    user = {"name": "ADDRESS", "value": "$(A)"}
    spec = {
        "containers": [{"name": "main", "env": [user]}, {"name": "side"}],
        "initContainers": [{"name": "setup", "env": None}],
        "ephemeralContainers": [{"name": "debug"}],
        "hostNetwork": True,
    }
    ours = {"name": "A", "value": "1"}
    assert env.with_variables(spec, [ours]) == {
        "containers": [{"name": "main", "env": [ours, user]}, {"name": "side", "env": [ours]}],
        "initContainers": [{"name": "setup", "env": [ours]}],
        "ephemeralContainers": [{"name": "debug"}],
        "hostNetwork": True,
    }
    assert spec["containers"] == [{"name": "main", "env": [user]}, {"name": "side"}], "the template is not touched"


def test_our_value_replaces_a_users_of_the_same_name_only() -> None:
    spec = {"containers": [{"name": "main", "env": [{"name": "A", "value": "theirs"}, {"name": "B", "value": "2"}]}]}
    told = env.with_variables(spec, [{"name": "A", "value": "ours"}])
    assert told["containers"][0]["env"] == [{"name": "A", "value": "ours"}, {"name": "B", "value": "2"}]


def test_clique_and_pod_variables_end_in_the_documented_order() -> None:
    clique_spec = env.with_variables({"containers": [{"name": "m", "env": [{"name": "MINE"}]}]}, env.group_variables(2))
    pod_spec = env.with_variables(clique_spec, env.pod_variables("demo", 0, "demo-0-pf-0-wk", "ns"))
    assert [v["name"] for v in pod_spec["containers"][0]["env"]] == [
        "GROVE_PCS_NAME",
        "GROVE_PCS_INDEX",
        "GROVE_PCLQ_NAME",
        "GROVE_HEADLESS_SERVICE",
        "GROVE_PCLQ_POD_INDEX",
        "GROVE_REVISION",
        "GROVE_PCSG_NAME",
        "GROVE_PCSG_TEMPLATE_NUM_PODS",
        "GROVE_PCSG_INDEX",
        "MINE",
    ]
