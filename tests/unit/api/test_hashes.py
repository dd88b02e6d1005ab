"""What counts as a change of pods, and what does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.api.hashes import POD_DEFAULTS, find_earlier_reading, generation_hash, pod_template_hash
from grove.api.podclique import AutoScalingConfig, PodCliqueSpec
from grove.api.podcliqueset import CliqueTemplate, PodCliqueSetTemplate, ScalingGroupConfig
from grove.api.topology import Pack, TopologyConstraint

POD: dict[str, Any] = {
    "containers": [
        {
            "name": "engine",
            "image": "engine:1",
            "args": ["--fast"],
            "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "8"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 80}},
        }
    ],
    "volumes": [{"name": "scratch", "emptyDir": {}}],
}


def clique_template(pod: dict[str, Any] = POD, **kw: Any) -> CliqueTemplate:
    return CliqueTemplate(name="c", spec=PodCliqueSpec(pod_spec=pod, replicas=1), **kw)


def pod_fields(**changes: Any) -> dict[str, Any]:
    return POD | changes


def container(**changes: Any) -> dict[str, Any]:
    return pod_fields(containers=[POD["containers"][0] | changes])


def probe(**changes: Any) -> dict[str, Any]:
    return container(readinessProbe=POD["containers"][0]["readinessProbe"] | changes)


@pytest.mark.parametrize(
    "same",
    [
        pytest.param(clique_template(dict(reversed(POD.items()))), id="keys in another order"),
        pytest.param(
            clique_template(pod_fields(nodeSelector={}, tolerations=[], hostname="", affinity=None)),
            id="empty is absent",
        ),
        pytest.param(clique_template(pod_fields(hostNetwork=False)), id="false where absent means false"),
        pytest.param(clique_template(pod_fields(securityContext={})), id="an empty object that says nothing"),
        pytest.param(clique_template(container(env=[], tty=False)), id="empty inside a container"),
        pytest.param(clique_template(probe(initialDelaySeconds=0)), id="zero where absent means zero"),
        pytest.param(
            clique_template(container(resources={"requests": {"cpu": "1000m"}, "limits": {"nvidia.com/gpu": 8}})),
            id="the same amount in another spelling",
        ),
        pytest.param(clique_template(labels={}, annotations={}), id="no labels"),
        pytest.param(
            CliqueTemplate(
                name="other",
                spec=PodCliqueSpec(
                    role_name="r",
                    pod_spec=POD,
                    replicas=9,
                    min_available=3,
                    starts_after=("x",),
                    auto_scaling_config=AutoScalingConfig(max_replicas=9),
                ),
                topology_constraint=TopologyConstraint(pack=Pack(required="rack")),
            ),
            id="name, role, numbers, order and place",
        ),
    ],
)
def test_no_change(same: CliqueTemplate) -> None:
    assert pod_template_hash(same) == pod_template_hash(clique_template())


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(clique_template(container(image="engine:2")), id="another image"),
        pytest.param(clique_template(container(args=["--fast", ""])), id="one more argument, even an empty one"),
        pytest.param(clique_template(container(resources={"requests": {"cpu": "2"}})), id="another amount"),
        pytest.param(
            clique_template(pod_fields(volumes=[{"name": "scratch"}])), id="an empty object that says something"
        ),
        pytest.param(
            clique_template(pod_fields(automountServiceAccountToken=False)), id="false where absent means true"
        ),
        pytest.param(clique_template(pod_fields(terminationGracePeriodSeconds=0)), id="zero where absent means thirty"),
        pytest.param(clique_template(pod_fields(securityContext={"runAsUser": 0})), id="zero that is a user"),
        pytest.param(clique_template(labels={"a": "1"}), id="a label"),
        pytest.param(clique_template(annotations={"a": "1"}), id="an annotation"),
        pytest.param(clique_template(labels={"a": ""}), id="a label without a value"),
        pytest.param(clique_template(pod_fields(nodeSelector={"gpu": ""})), id="a node label without a value"),
        pytest.param(clique_template(pod_fields(priorityClassName="mine")), id="the clique's own priority class"),
    ],
)
def test_change(changed: CliqueTemplate) -> None:
    assert pod_template_hash(changed) != pod_template_hash(clique_template())


def test_the_sets_priority_class_counts() -> None:
    assert pod_template_hash(clique_template(), "high") != pod_template_hash(clique_template(), "low")
    own = clique_template(pod_fields(priorityClassName="mine"))
    assert pod_template_hash(own, "high") == pod_template_hash(own, "low"), "pods take the set's where they have none"
    assert pod_template_hash(own, "high") != pod_template_hash(clique_template(), "high")


def test_order_of_lists_counts() -> None:
    assert pod_template_hash(clique_template(container(args=["a", "b"]))) != pod_template_hash(
        clique_template(container(args=["b", "a"]))
    )


def test_generation_covers_all_cliques_in_their_order() -> None:
    first, second = clique_template(), clique_template(container(image="engine:2"))
    generation = generation_hash(PodCliqueSetTemplate(cliques=(first, second)))
    assert generation != generation_hash(PodCliqueSetTemplate(cliques=(second, first)))
    assert generation != generation_hash(PodCliqueSetTemplate(cliques=(first,)))
    assert generation == generation_hash(
        PodCliqueSetTemplate(
            cliques=(first, second),
            termination_delay="1h",
            pod_clique_scaling_groups=(ScalingGroupConfig(name="g", clique_names=("c",)),),
        )
    )


def test_the_hash_is_pinned() -> None:
    """It is stored in clusters: if this fails, an upgrade of the operator restarts every pod of every user."""
    filled = clique_template(pod_fields(restartPolicy="Always", terminationGracePeriodSeconds=30))
    assert pod_template_hash(filled) == "7k9wtpkvrz"
    assert generation_hash(PodCliqueSetTemplate(cliques=(filled,), priority_class_name="high")) == "v6vxswbv7t"


def test_a_default_of_admission_is_no_change() -> None:
    """Fails if admission fills in something new in a pod spec that the hash does not allow for."""
    written = {"spec": {"template": {"cliques": [{"name": "c", "spec": {"podSpec": dict(POD)}}]}}}
    filled = with_additions(written, missing_defaults(written))
    before, after = (msgspec.convert(one["spec"]["template"], PodCliqueSetTemplate) for one in (written, filled))
    assert before.cliques[0].spec.pod_spec != after.cliques[0].spec.pod_spec
    assert generation_hash(before) == generation_hash(after)


@pytest.mark.parametrize("filled", [{}, {"restartPolicy": "Always"}, dict(POD_DEFAULTS)])
def test_what_an_earlier_version_recorded_is_recognised(filled: dict[str, Any]) -> None:
    """The recorded hash is of a template without defaults. They may have been filled in since."""
    now = PodCliqueSetTemplate(cliques=(clique_template(pod_fields(**filled)),), priority_class_name="high")
    assert find_earlier_reading(now, "vnf2vfxzs5") is not None
    assert find_earlier_reading(now, generation_hash(now)) is None
    other = PodCliqueSetTemplate(
        cliques=(clique_template(pod_fields(terminationGracePeriodSeconds=60)),), priority_class_name="high"
    )
    assert find_earlier_reading(other, "vnf2vfxzs5") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=4))
def test_any_template_hashes_to_a_label_value_and_survives_the_wire(spec: dict[str, Any]) -> None:
    found = pod_template_hash(clique_template(spec))
    assert len(found) == 10
    assert set(found) <= set("bcdfghjklmnpqrstvwxz2456789")
    shuffled = msgspec.json.decode(msgspec.json.encode(dict(reversed(spec.items()))))
    assert pod_template_hash(clique_template(shuffled)) == found
