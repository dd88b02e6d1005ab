"""Grove's kinds: manifests decode whole, and the questions one asks a template are answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from grove.api.meta import Object
from grove.api.patch import to_json
from grove.api.podclique import PodClique, PodCliqueSpec
from grove.api.podcliqueset import (
    CliqueTemplate,
    PodCliqueSet,
    PodCliqueSetTemplate,
    ScalingGroupConfig,
)
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding, Pack, TopologyConstraint

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


def sample(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((SAMPLES / f"{name}.yaml").read_text())
    return found


@pytest.mark.parametrize("name", ["disaggregated", "everything"])
def test_no_field_of_a_manifest_is_lost(name: str) -> None:
    manifest = sample(name)
    decoded = msgspec.convert(manifest, PodCliqueSet)
    assert decoded == msgspec.json.decode(msgspec.json.encode(manifest), type=PodCliqueSet)
    assert to_json(decoded.spec) == without_defaults(manifest["spec"])


def without_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    """What a manifest says beyond the defaults: those are not written back."""
    for group in spec["template"].get("podCliqueScalingGroups", ()):
        if group.get("replicas") == 1:
            del group["replicas"]
    return spec


def test_everything_reads_as_written() -> None:
    spec = msgspec.convert(sample("everything"), PodCliqueSet).spec
    strategy, template = spec.update_strategy, spec.template
    front, lead = template.cliques
    (pair,) = template.pod_clique_scaling_groups
    assert strategy is not None
    assert strategy.rolling_recreate is not None
    assert (strategy.type, strategy.rolling_recreate.max_unavailable, strategy.progress_deadline) == (
        "OnDelete",
        2,
        "30m",
    )
    assert (front.spec.min_available, lead.spec.min_available) == (2, None)
    assert (front.spec.minimum, lead.spec.minimum) == (2, 1)
    assert front.spec.starts_after == ("lead",)
    assert (pair.replicas, pair.min_available) == (3, 2)
    assert template.headless_service_config is not None
    assert template.headless_service_config.publish_not_ready_addresses is False
    assert template.resource_sharing[0].filter is not None
    assert template.resource_sharing[0].filter.child_scaling_group_names == ("pair",)


def test_what_the_schema_would_default_is_defaulted_here_too() -> None:
    bare = msgspec.convert(
        {"spec": {"template": {"cliques": [], "podCliqueScalingGroups": [{"name": "g"}]}}}, PodCliqueSet
    )
    (group,) = bare.spec.template.pod_clique_scaling_groups
    assert bare.spec.replicas == 0
    assert bare.spec.update_strategy is None
    assert bare.spec.template.clique_startup_type == "CliqueStartupTypeAnyOrder"
    assert (group.replicas, group.min_available) == (1, 1)


@pytest.mark.parametrize(
    "kind", [PodCliqueSet, PodClique, PodCliqueScalingGroup, ClusterTopologyBinding, PodGang], ids=lambda k: k.__name__
)
def test_an_empty_object_decodes(kind: type[Object]) -> None:
    assert msgspec.json.decode(b"{}", type=kind) == kind()


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (PodCliqueSet, "/apis/grove.io/v1alpha1/namespaces/ns/podcliquesets"),
        (PodClique, "/apis/grove.io/v1alpha1/namespaces/ns/podcliques"),
        (PodCliqueScalingGroup, "/apis/grove.io/v1alpha1/namespaces/ns/podcliquescalinggroups"),
        (ClusterTopologyBinding, "/apis/grove.io/v1alpha1/clustertopologybindings"),
        (PodGang, "/apis/scheduler.grove.io/v1alpha1/namespaces/ns/podgangs"),
    ],
)
def test_where_a_kind_lives(kind: type[Object], path: str) -> None:
    assert kind.RESOURCE.path("ns") == path


def test_a_template_has_its_cliques_and_groups() -> None:
    template = PodCliqueSetTemplate(
        cliques=tuple(CliqueTemplate(name=name, spec=PodCliqueSpec()) for name in ("work", "router", "prework")),
        pod_clique_scaling_groups=(ScalingGroupConfig(name="g", clique_names=("work",)),),
    )
    group = template.pod_clique_scaling_groups[0]
    assert [clique.name for clique in template.standalone_cliques] == ["router", "prework"]
    assert template.find_group_of("work") is group
    assert template.find_group_of("prework") is None, "names are compared whole, not by their end"
    assert template.find_clique("router") is template.cliques[1]
    assert template.find_clique("rout") is None
    assert template.find_group("g") is group


@pytest.mark.parametrize(
    ("constraint", "required", "preferred"),
    [
        pytest.param(TopologyConstraint(pack=Pack(required="rack", preferred="host")), "rack", "host", id="both"),
        pytest.param(TopologyConstraint(pack_domain="zone"), "zone", "", id="the deprecated spelling"),
        pytest.param(
            TopologyConstraint(pack=Pack(preferred="host"), pack_domain="zone"), "zone", "host", id="half migrated"
        ),
        pytest.param(TopologyConstraint(), "", "", id="nothing"),
    ],
)
def test_effective_domains(constraint: TopologyConstraint, required: str, preferred: str) -> None:
    assert (constraint.required, constraint.preferred) == (required, preferred)


def test_a_binding_translates_domains_to_node_labels() -> None:
    binding = msgspec.convert(
        {"spec": {"levels": [{"domain": "rack", "key": "example.com/rack"}]}}, ClusterTopologyBinding
    )
    assert binding.find_key("rack") == "example.com/rack"
    assert binding.find_key("zone") is None
