"""Custom kinds under their schemas: defaults, pruning, what is refused and how it reads; definitions come and go."""

from __future__ import annotations

import asyncio
import copy

import pytest
from tests.support.objects import clique_manifest

from grove.api.core import CustomResourceDefinition
from grove.api.meta import Resource
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.errors import AlreadyExists, Invalid, NotFound

PCS, CLIQUE, GANG = PodCliqueSet.RESOURCE, PodClique.RESOURCE, PodGang.RESOURCE
GROUP = PodCliqueScalingGroup.RESOURCE
CRD = CustomResourceDefinition.RESOURCE
POD_SPEC = {"containers": [{"name": "m", "image": "i:1"}]}


def pcs(namespace: str, template: dict | None = None, **spec: object) -> dict:
    cliques = [{"name": "web", "spec": {"roleName": "web", "replicas": 1, "podSpec": POD_SPEC}}]
    body = {"template": {"cliques": cliques, **(template or {})}, **spec}
    return {"metadata": {"name": "s", "namespace": namespace}, "spec": copy.deepcopy(body)}


async def test_defaults_of_the_schema_are_filled_in(cluster):
    group = {"name": "g", "cliqueNames": ["web"]}
    made = await cluster.client.create(
        PCS, pcs(cluster.namespace, {"podCliqueScalingGroups": [group]}, updateStrategy={})
    )

    assert made["spec"]["replicas"] == 0
    assert made["spec"]["updateStrategy"] == {"type": "RollingRecreate"}
    assert made["spec"]["template"]["cliqueStartupType"] == "CliqueStartupTypeAnyOrder"
    assert made["spec"]["template"]["podCliqueScalingGroups"] == [{**group, "replicas": 1, "minAvailable": 1}]


async def test_a_default_inside_an_absent_object_is_not_filled_in(cluster):
    made = await cluster.client.create(PCS, pcs(cluster.namespace))

    assert "updateStrategy" not in made["spec"]


async def test_a_null_counts_as_absent(cluster):
    made = await cluster.client.create(PCS, pcs(cluster.namespace, replicas=None, updateStrategy={"type": None}))

    assert made["spec"]["replicas"] == 0
    assert made["spec"]["updateStrategy"] == {"type": "RollingRecreate"}


async def test_removing_a_defaulted_field_brings_the_default_back(cluster):
    await cluster.client.create(PCS, pcs(cluster.namespace, replicas=3))
    patched = await cluster.client.patch(PCS, "s", {"spec": {"replicas": None}}, cluster.namespace)

    assert patched["spec"]["replicas"] == 0


async def test_unknown_fields_are_dropped_at_any_depth(cluster):
    body = pcs(cluster.namespace, {"surprise": 1}, other={"deep": True})
    body["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["shoeSize"] = 42
    body["extra"] = "x"
    made = await cluster.client.create(PCS, body)

    assert "extra" not in made
    assert "other" not in made["spec"]
    assert "surprise" not in made["spec"]["template"]
    assert "shoeSize" not in made["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]


async def test_a_patch_of_an_unknown_field_writes_nothing(cluster):
    await cluster.client.create(PCS, pcs(cluster.namespace))
    # A create stores no status. The first patch of all stores the default status, so it is a write.
    stored = await cluster.client.patch(PCS, "s", {"metadata": {"labels": {"a": "b"}}}, cluster.namespace)
    same = await cluster.client.patch(PCS, "s", {"spec": {"surprise": 1}}, cluster.namespace)

    assert same["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]


async def test_status_defaults_appear_with_the_first_status(cluster):
    await cluster.client.create(CLIQUE, clique_manifest(cluster.namespace))
    patch = {"status": {"replicas": 1, "surprise": 2}}
    patched = await cluster.client.patch(CLIQUE, "c", patch, cluster.namespace, subresource="status")

    assert patched["status"] == {
        "replicas": 1,
        "readyReplicas": 0,
        "updatedReplicas": 0,
        "scheduleGatedReplicas": 0,
        "scheduledReplicas": 0,
    }


async def test_a_set_is_not_ready_before_an_operator_has_seen_it(cluster):
    made = await cluster.client.create(PCS, pcs(cluster.namespace))
    found = await cluster.client.get(PCS, "s", cluster.namespace)

    for status in (made["status"], found["status"]):
        assert [(one["type"], one["status"]) for one in status["conditions"]] == [("Ready", "Unknown")]
        assert (status["availableReplicas"], status["updatedReplicas"]) == (0, 0)
    patch = {"status": {"replicas": 1, "conditions": []}}
    patched = await cluster.client.patch(PCS, "s", patch, cluster.namespace, subresource="status")
    assert not patched["status"].get("conditions")


def refusals(error: Invalid) -> list[tuple[str, str]]:
    """What is wrong where, without the remarks a real server adds: that it skipped rules, and the scale path again."""
    causes = ((cause["field"], cause["reason"]) for cause in error.details["causes"])
    return sorted((field, reason) for field, reason in causes if field != "<nil>" and not field.startswith("."))


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"roleName": None}, [("spec.roleName", "FieldValueRequired")], id="a required field is missing"),
        pytest.param({"replicas": "two"}, [("spec.replicas", "FieldValueTypeInvalid")], id="a word for a number"),
        pytest.param({"replicas": True}, [("spec.replicas", "FieldValueTypeInvalid")], id="a truth for a number"),
        pytest.param({"replicas": 1.5}, [("spec.replicas", "FieldValueTypeInvalid")], id="half a replica"),
        pytest.param({"startsAfter": "web"}, [("spec.startsAfter", "FieldValueTypeInvalid")], id="a word for a list"),
        pytest.param(
            {"podSpec": {"containers": [{"image": "i"}]}},
            [("spec.podSpec.containers[0].name", "FieldValueRequired")],
            id="deep in the pod template",
        ),
        pytest.param(
            {"roleName": 7, "replicas": "x"},
            [("spec.replicas", "FieldValueTypeInvalid"), ("spec.roleName", "FieldValueTypeInvalid")],
            id="all faults at once",
        ),
    ],
)
async def test_what_the_schema_forbids_is_invalid(cluster, spec, want):
    with pytest.raises(Invalid) as refused:
        await cluster.client.create(CLIQUE, clique_manifest(cluster.namespace, **spec))

    assert refusals(refused.value) == want
    assert str(refused.value).startswith('PodClique.grove.io "c" is invalid: ')


async def test_a_spread_constraint_of_a_gang_without_a_key_or_with_a_skew_of_0_is_invalid(cluster):
    constraint = {"topologyKey": "", "maxSkew": 0, "matchLabels": {"a": "b"}}
    group = {"name": "w", "minReplicas": 1, "podReferences": []}
    body = {"podgroups": [group], "spreadConstraints": [constraint]}
    with pytest.raises(Invalid) as refused:
        await cluster.client.create(GANG, {"metadata": {"name": "g", "namespace": cluster.namespace}, "spec": body})

    at = "spec.spreadConstraints[0]"
    assert refusals(refused.value) == [
        (f"{at}.maxSkew", "FieldValueInvalid"),
        (f"{at}.topologyKey", "FieldValueInvalid"),
    ]


@pytest.mark.parametrize(
    ("template", "spec", "want"),
    [
        pytest.param(
            {"cliqueStartupType": "Whenever"},
            {},
            [("spec.template.cliqueStartupType", "FieldValueNotSupported")],
            id="not one of the choices",
        ),
        pytest.param(
            {"topologyConstraint": {}},
            {},
            [("spec.template.topologyConstraint.pack", "FieldValueRequired")],
            id="a constraint without pack",
        ),
        pytest.param(
            {"topologyConstraint": {"pack": {}}},
            {},
            [("spec.template.topologyConstraint.pack", "FieldValueRequired")],
            id="an empty pack",
        ),
        pytest.param(
            {"topologyConstraint": {"pack": {"required": "Rack!"}}},
            {},
            [("spec.template.topologyConstraint.pack.required", "FieldValueInvalid")],
            id="a domain that is no word",
        ),
        pytest.param(
            {"topologyConstraint": {"packDomain": "rack"}},
            {},
            [("spec.template.topologyConstraint.packDomain", "FieldValueForbidden")],
            id="the old field, on create",
        ),
    ],
)
async def test_what_the_rules_forbid_is_invalid(cluster, template, spec, want):
    with pytest.raises(Invalid) as refused:
        await cluster.client.create(PCS, pcs(cluster.namespace, template, **spec))

    assert refusals(refused.value) == want


NEW = "packDomain is deprecated and cannot be used on new workloads; use pack.required"


@pytest.mark.parametrize("place", ["", ".cliques[1]", ".podCliqueScalingGroups[1]"])
@pytest.mark.parametrize(
    ("constraint", "field", "want"),
    [
        pytest.param({"packDomain": "rack"}, "packDomain", NEW, id="the old field, on create"),
        pytest.param(
            {"topologyName": "t"}, "pack", "topologyConstraint must specify pack or deprecated packDomain", id="no pack"
        ),
        pytest.param(
            {"pack": {}}, "pack", "pack must specify at least one of required or preferred", id="an empty pack"
        ),
        pytest.param(
            {"packDomain": "rack", "pack": {"required": "rack"}},
            "pack.required",
            "must not set both pack.required and deprecated packDomain",
            id="both spellings",
        ),
    ],
)
async def test_the_words_of_a_wrong_topology_constraint(cluster, place, constraint, field, want):
    """Tools match them. The path of a rule over a list has no index; admission, asked before, says it with one."""
    body = pcs(cluster.namespace)
    template = body["spec"]["template"]
    (first,) = template["cliques"]
    template["cliques"] = [first, {**first, "name": "second"}]
    template["podCliqueScalingGroups"] = [
        {"name": f"g{n}", "cliqueNames": [c["name"]]} for n, c in enumerate(template["cliques"])
    ]
    owner = template if not place else template[place[1:-3]][1]
    owner["topologyConstraint"] = constraint
    with pytest.raises(Invalid) as refused:
        await cluster.client.create(PCS, body)

    where = f"spec.template{place}.topologyConstraint.{field}"
    if want == NEW and place:
        where = f"spec.template{place[:-3]}"
    told = {cause["field"]: cause["message"] for cause in refused.value.details["causes"]}
    assert told[where].endswith(f": {want}")


async def test_two_cliques_of_one_name_are_a_duplicate(cluster):
    body = pcs(cluster.namespace)
    body["spec"]["template"]["cliques"] *= 2
    with pytest.raises(Invalid) as refused:
        await cluster.client.create(PCS, body)

    assert refusals(refused.value) == [("spec.template.cliques[1]", "FieldValueDuplicate")]


async def test_a_status_is_checked_like_a_spec(cluster):
    await cluster.client.create(CLIQUE, clique_manifest(cluster.namespace))
    condition = {"type": "Ready", "status": "Perhaps", "reason": "R", "message": ""}
    patch = {"status": {"conditions": [condition]}}
    with pytest.raises(Invalid) as refused:
        await cluster.client.patch(CLIQUE, "c", patch, cluster.namespace, subresource="status")

    assert refusals(refused.value) == [
        ("status.conditions[0].lastTransitionTime", "FieldValueRequired"),
        ("status.conditions[0].status", "FieldValueNotSupported"),
    ]


async def test_a_status_without_a_required_field_is_refused(cluster):
    body = {
        "metadata": {"name": "g", "namespace": cluster.namespace},
        "spec": {"podgroups": [{"name": "a", "minReplicas": 1, "podReferences": []}]},
    }
    await cluster.client.create(GANG, body)
    patch: dict = {"status": {"placementScore": 0.5}}
    with pytest.raises(Invalid):
        await cluster.client.patch(GANG, "g", patch, cluster.namespace, subresource="status")
    patch = {"status": {"phase": "Pending", "placementScore": 1}}
    patched = await cluster.client.patch(GANG, "g", patch, cluster.namespace, subresource="status")
    assert patched["status"] == {"phase": "Pending", "placementScore": 1}


async def test_int_or_string_takes_both(cluster):
    probe = {"httpGet": {"port": 80}}
    named = {"httpGet": {"port": "http"}}
    containers = [{"name": "m", "image": "i", "readinessProbe": probe, "livenessProbe": named}]
    made = await cluster.client.create(CLIQUE, clique_manifest(cluster.namespace, podSpec={"containers": containers}))

    container = made["spec"]["podSpec"]["containers"][0]
    assert [container[p]["httpGet"]["port"] for p in ("readinessProbe", "livenessProbe")] == [80, "http"]


async def test_the_scale_of_a_group_uses_its_own_selector(cluster):
    body = {"metadata": {"name": "g", "namespace": cluster.namespace}, "spec": {"cliqueNames": ["a"]}}
    made = await cluster.client.create(GROUP, body)
    assert (made["spec"]["replicas"], made["spec"]["minAvailable"]) == (1, 1)

    scale = await cluster.client.patch(GROUP, "g", {"spec": {"replicas": 4}}, cluster.namespace, subresource="scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 4}, {"replicas": 0})


async def test_a_definition_begins_and_ends_a_kind(cluster):
    suffix = cluster.namespace.replace("-", "")
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    definition = {
        "metadata": {"name": f"things.{suffix}.example"},
        "spec": {
            "group": f"{suffix}.example",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    thing = Resource(f"{suffix}.example", "v1", "Thing", "things")
    assert not await cluster.client.serves(thing)
    await cluster.client.create(CRD, definition)

    async def is_established() -> bool:
        return (await cluster.client.get(CustomResourceDefinition, f"things.{suffix}.example")).is_established

    await cluster.eventually(is_established)
    body = {"metadata": {"name": "t", "namespace": cluster.namespace}, "spec": {"n": 1, "m": 2}}

    async def made() -> dict | bool:
        try:
            return await cluster.client.create(thing, body)
        except AlreadyExists:
            return True

    await cluster.eventually(made)
    await cluster.eventually(lambda: cluster.client.serves(thing))
    seen: list[str] = []
    first = asyncio.Event()
    followed = asyncio.create_task(_watched(cluster.client, thing, cluster.namespace, seen, first))
    await asyncio.wait_for(first.wait(), 120)  # a watch asked for after the kind is gone would be refused
    # Without a status door, generation counts every change outside metadata.
    changed = await cluster.client.patch(thing, "t", {"spec": {"n": 2}}, cluster.namespace)
    assert (changed["spec"], changed["metadata"]["generation"]) == ({"n": 2}, 2)

    await cluster.client.delete(CRD, f"things.{suffix}.example")

    async def is_gone() -> bool:
        try:
            await cluster.client.get(CRD, f"things.{suffix}.example")
        except NotFound:
            return True
        await asyncio.sleep(0)
        return False

    await cluster.eventually(is_gone)

    async def is_not_served() -> bool:
        return not await cluster.client.serves(thing)

    await cluster.eventually(is_not_served)
    await asyncio.wait_for(followed, 120)
    assert seen[-1] == "DELETED", "a watch of the kind ends with it"
    with pytest.raises(NotFound):
        await cluster.client.list(thing)


async def _watched(client, thing: Resource, namespace: str, seen: list[str], first: asyncio.Event) -> None:
    async for event in client.watch(thing, namespace):
        if event.object is not None:
            seen.append(event.type)
            first.set()
