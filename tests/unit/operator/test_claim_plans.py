"""Shared claims and ComputeDomains: which exist, who uses them, and when they go."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.observed import clique_of, group_of, set_of

from grove.api.meta import Json
from grove.operator.podcliqueset.compute_domains import surplus_compute_domains, wanted_compute_domains
from grove.operator.shared.claims import (
    claims_of_pod,
    clique_claims,
    find_mnnvl_group,
    group_claims,
    set_claims,
    with_claims,
    with_mnnvl_claim,
)
from grove.operator.shared.layout import unit_of

ALL, EACH = "AllReplicas", "PerReplica"
INNER = {"devices": {"requests": [{"name": "gpu"}]}}
TEMPLATES = [{"name": name, "templateSpec": {"spec": INNER}} for name in ("shared", "each")]


def no_template(namespace: str, name: str) -> Json | None:
    return None


def both(**filter_: list[str]) -> list[Json]:
    extra = {"filter": filter_} if filter_ else {}
    return [{"name": "shared", "scope": ALL, **extra}, {"name": "each", "scope": EACH, **extra}]


def sharing_set(replicas: int = 2, filter_: dict[str, list[str]] | None = None) -> Json:
    return pcs(
        "d",
        clique("r", 2, sharing=both()),
        clique("w"),
        clique("v"),
        groups=[group("g", "w", "v", replicas=2, resourceSharing=both(childCliqueNames=["w"]))],
        replicas=replicas,
        resourceClaimTemplates=TEMPLATES,
        resourceSharing=both(**(filter_ or {})),
    )


def names(objects: list[Json]) -> list[str]:
    return [one["metadata"]["name"] for one in objects]


def test_claims_of_each_level() -> None:
    observed = set_of(sharing_set())
    of_set = set_claims(observed).wanted(no_template)
    assert names(of_set.objects) == ["d-all-shared", "d-0-each", "d-1-each"]
    assert of_set.objects[0]["spec"] == INNER
    assert of_set.objects[1]["metadata"]["labels"]["grove.io/podcliqueset-replica-index"] == "0"
    assert of_set.missing_templates == []

    grp = group_of(observed, "d-1-g", 3)
    config = observed.spec.template.pod_clique_scaling_groups[0]
    of_group = group_claims(observed, grp, config).wanted(no_template)
    assert names(of_group.objects) == ["d-1-g-all-shared", "d-1-g-0-each", "d-1-g-1-each", "d-1-g-2-each"]
    assert of_group.objects[0]["metadata"]["ownerReferences"][0]["uid"] == "uid-of-d-1-g"

    found = clique_of(observed, "d-0-r")
    unit = unit_of(observed, found)
    assert unit is not None
    of_clique = clique_claims(observed, found, unit, {0, 4}).wanted(no_template)
    assert names(of_clique.objects) == ["d-0-r-all-shared", "d-0-r-0-each", "d-0-r-4-each"]
    assert of_clique.objects[2]["metadata"]["labels"]["grove.io/podclique-pod-index"] == "4"


def test_a_template_may_be_an_object_of_its_own_also_elsewhere() -> None:
    sharing = [{"name": "mine", "scope": ALL}, {"name": "far", "namespace": "other", "scope": ALL}]
    observed = set_of(pcs("d", clique("w"), resourceSharing=sharing))
    held = {("default", "mine"): {"a": 1}, ("other", "far"): {"b": 2}}
    found = set_claims(observed).wanted(lambda namespace, name: held.get((namespace, name)))
    assert [one["spec"] for one in found.objects] == [{"a": 1}, {"b": 2}]


def test_a_missing_template_is_named_and_the_rest_goes_on() -> None:
    sharing = [{"name": "ghost", "scope": ALL}, {"name": "shared", "scope": ALL}]
    observed = set_of(pcs("d", clique("w"), resourceSharing=sharing, resourceClaimTemplates=TEMPLATES))
    found = set_claims(observed).wanted(no_template)
    assert found.missing_templates == ["default/ghost"]
    assert names(found.objects) == ["d-all-shared"]


@pytest.mark.parametrize(
    ("fqn", "filter_", "wanted"),
    [
        pytest.param(
            "d-1-r", {}, ("d-all-shared", "d-1-each", "d-1-r-all-shared", "d-1-r-7-each"), id="set, then clique"
        ),
        pytest.param(
            "d-0-g-1-w",
            {},
            ("d-all-shared", "d-0-each", "d-0-g-all-shared", "d-0-g-1-each"),
            id="set, then group by its replica",
        ),
        pytest.param("d-0-g-1-v", {}, ("d-all-shared", "d-0-each"), id="the group's filter leaves this one out"),
        pytest.param(
            "d-0-r",
            {"childCliqueNames": ["w"]},
            ("d-0-r-all-shared", "d-0-r-7-each"),
            id="the set's filter leaves it out",
        ),
        pytest.param(
            "d-0-g-0-v",
            {"childScalingGroupNames": ["g"]},
            ("d-all-shared", "d-0-each"),
            id="a filter by group holds for its members",
        ),
    ],
)
def test_claims_of_a_pod(fqn: str, filter_: dict[str, list[str]], wanted: tuple[str, ...]) -> None:
    observed = set_of(sharing_set(filter_=filter_))
    unit = unit_of(observed, clique_of(observed, fqn))
    assert unit is not None
    assert claims_of_pod(observed, unit, 7) == wanted


def test_every_container_gets_the_claims() -> None:
    before = {
        "containers": [{"name": "a", "resources": {"claims": [{"name": "own"}]}}],
        "initContainers": [{"name": "b"}],
        "resourceClaims": [{"name": "own"}],
    }
    after = with_claims(before, ["c"])
    assert after["resourceClaims"] == [{"name": "own"}, {"name": "c", "resourceClaimName": "c"}]
    assert after["containers"][0]["resources"]["claims"] == [{"name": "own"}, {"name": "c"}]
    assert after["initContainers"][0]["resources"]["claims"] == [{"name": "c"}]
    assert before["containers"][0]["resources"]["claims"] == [{"name": "own"}]


GPU = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}, {"name": "side"}]}
MNNVL = "grove.io/mnnvl-group"


def mnnvl_set(
    of_set: str = "", of_group: str = "", of_clique: str = "", pod: Json | None = None, replicas: int = 1
) -> Json:
    def chosen(value: str) -> dict[str, str]:
        return {MNNVL: value} if value else {}

    return pcs(
        "d",
        clique("w", annotations=chosen(of_clique), **(GPU if pod is None else pod)),
        groups=[group("g", "w", annotations=chosen(of_group))],
        metadata={"annotations": chosen(of_set)},
        replicas=replicas,
    )


@pytest.mark.parametrize(
    ("levels", "wanted"),
    [
        pytest.param({}, None, id="no annotation"),
        pytest.param({"of_set": "a"}, "a", id="from the set"),
        pytest.param({"of_set": "a", "of_group": "b"}, "b", id="the group overrides"),
        pytest.param({"of_set": "a", "of_group": "b", "of_clique": "c"}, "c", id="the clique overrides"),
        pytest.param({"of_set": "a", "of_clique": "none"}, None, id="none stops the search"),
        pytest.param({"of_set": "a", "of_group": "none", "of_clique": "c"}, "c", id="a clique may join nonetheless"),
    ],
)
def test_mnnvl_group(levels: dict[str, str], wanted: str | None) -> None:
    observed = set_of(mnnvl_set(**levels))
    assert find_mnnvl_group(observed, observed.spec.template.cliques[0]) == wanted


def test_a_compute_domain_for_each_replica_and_group() -> None:
    found = wanted_compute_domains(set_of(mnnvl_set(of_set="train", replicas=2)))
    assert names(found) == ["d-0-train", "d-1-train"]
    assert found[0]["apiVersion"] == "resource.nvidia.com/v1beta1"
    assert found[0]["metadata"]["finalizers"] == ["grove.io/computedomain-finalizer"]
    assert found[0]["spec"] == {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "d-0-train"}}}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"containers": [{"name": "c"}]}, id="no GPU"),
        pytest.param({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 0}}}]}, id="zero GPUs"),
    ],
)
def test_cliques_without_gpus_take_no_part(pod: Json) -> None:
    observed = set_of(mnnvl_set(of_set="train", pod=pod))
    assert wanted_compute_domains(observed) == []
    template = observed.spec.template.cliques[0]
    assert with_mnnvl_claim(template.spec.pod_spec, "d", 0, "train") is template.spec.pod_spec


def test_gpu_containers_join_the_domain_once() -> None:
    after = with_mnnvl_claim(GPU, "d", 1, "train")
    assert after["resourceClaims"] == [{"name": "mnnvl-claim", "resourceClaimTemplateName": "d-1-train"}]
    assert after["containers"][0]["resources"]["claims"] == [{"name": "mnnvl-claim"}]
    assert after["containers"][1] == {"name": "side"}
    assert with_mnnvl_claim(after, "d", 1, "train") is after


def test_a_surplus_domain_goes_after_its_pods() -> None:
    two, one = set_of(mnnvl_set(of_set="train", replicas=2)), set_of(mnnvl_set(of_set="train", replicas=1))
    there = wanted_compute_domains(two)
    assert surplus_compute_domains(one, there, replicas_with_pods={0, 1}) == []
    assert names(surplus_compute_domains(one, there, replicas_with_pods={0})) == ["d-1-train"]
    assert surplus_compute_domains(two, there, replicas_with_pods=set()) == []
