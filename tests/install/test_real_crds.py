"""The CRDs on real API servers: served, defaulted and refused as the contract says, on both Kubernetes versions.

Everything runs as a dry run except what needs an object that exists; those live in a namespace of their own.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.waiting import HANGS_S, nothing_missing

from grove import crds
from grove.api.core import CustomResourceDefinition, Namespace
from grove.api.meta import Json, Object, Resource
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.crds.install import InstallError, install
from grove.kube.config import load_config
from grove.kube.errors import Invalid, NotFound
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane

pytestmark = pytest.mark.real

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
PLANES = {"1.35": "control_plane_135", "1.36": "control_plane"}

SET, CLIQUE, GROUP = PodCliqueSet.RESOURCE, PodClique.RESOURCE, PodCliqueScalingGroup.RESOURCE
BINDING, GANG = ClusterTopologyBinding.RESOURCE, PodGang.RESOURCE

POD_SPEC: Json = {"containers": [{"name": "c", "image": "i"}]}
SPECS: dict[Resource, Json] = {
    SET: {
        "template": {
            "cliques": [{"name": "a", "spec": {"roleName": "a", "replicas": 1, "podSpec": POD_SPEC}}],
            "podCliqueScalingGroups": [{"name": "g", "cliqueNames": ["a"]}],
        }
    },
    CLIQUE: {"roleName": "a", "replicas": 1, "podSpec": POD_SPEC},
    GROUP: {"cliqueNames": ["a"]},
    BINDING: {"levels": [{"domain": "rack", "key": "example.com/rack"}]},
    GANG: {"podgroups": [{"name": "a", "minReplicas": 1, "podReferences": []}]},
}
"""The least that is accepted."""


@pytest.fixture(params=PLANES)
def plane(request: pytest.FixtureRequest) -> ControlPlane:
    found: ControlPlane = request.getfixturevalue(PLANES[request.param])
    return found


@pytest.fixture
async def server(plane: ControlPlane) -> AsyncIterator[HttpClient]:
    async with HttpClient(load_config(plane.kubeconfig)) as client:
        yield client


@pytest.fixture
async def namespace(server: HttpClient, fresh_name: str) -> AsyncIterator[str]:
    await server.create(Namespace, {"metadata": {"name": fresh_name}})
    yield fresh_name
    await server.delete(Namespace, fresh_name)


def changed(spec: Json, changes: dict[str, Any]) -> Json:
    """A copy of `spec` with values set by dotted paths; a number steps into a list, `...` takes a field away."""
    copy = deepcopy(spec)
    for path, value in changes.items():
        *parents, last = path.split(".")
        at: Any = copy
        for part in parents:
            at = at[int(part)] if part.isdigit() else at.setdefault(part, {})
        if value is ...:
            del at[last]
        else:
            at[int(last) if last.isdigit() else last] = value
    return copy


def found_at(obj: Any, path: str) -> Any:
    for part in path.split("."):
        obj = obj[int(part)] if part.isdigit() else obj.get(part, ...)
        if obj is ...:
            return ...
    return obj


def an_object(resource: Resource, spec: Json, name: str = "x", namespace: str = "default") -> Json:
    metadata = {"name": name} | ({"namespace": namespace} if resource.namespaced else {})
    return {"metadata": metadata, "spec": spec}


# --- served ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", SPECS, ids=str)
async def test_it_is_established_and_accepts_the_least(server: HttpClient, resource: Resource) -> None:
    assert (await server.get(CustomResourceDefinition, str(resource))).is_established
    created = await server.create(resource, an_object(resource, SPECS[resource]), dry_run=True)
    assert created["kind"] == resource.kind


@pytest.mark.parametrize("sample", ["disaggregated", "everything"])
async def test_nothing_of_a_sample_is_lost(server: HttpClient, sample: str) -> None:
    manifest = yaml.safe_load((SAMPLES / f"{sample}.yaml").read_text())
    manifest["metadata"]["namespace"] = "default"
    created = await server.create(SET, manifest, dry_run=True)
    assert lost(manifest["spec"], created["spec"]) == []


def lost(sent: Any, got: Any, path: str = "") -> list[str]:
    """Paths that were sent and did not come back; what the server added does not count."""
    if isinstance(sent, dict):
        return [p for k, v in sent.items() for p in (lost(v, got[k], f"{path}.{k}") if k in got else [f"{path}.{k}"])]
    if isinstance(sent, list):
        return [p for i, v in enumerate(sent) for p in lost(v, got[i], f"{path}[{i}]")]
    return [] if sent == got else [path]


@pytest.mark.parametrize(
    ("short_name", "wide", "want"),
    [
        (
            "pcs",
            False,
            "NAME REPLICAS AVAILABLE UPDATED PCLQS-UPDATED PCLQS-TOTAL PCSGS-UPDATED PCSGS-TOTAL REASON AGE",
        ),
        ("pclq", False, "NAME MINAVAIL REPLICAS READY SCHEDULED UPDATED AGE"),
        ("pclq", True, "NAME MINAVAIL REPLICAS READY SCHEDULED UPDATED GATED MINBREACHED AGE"),
        ("pcsg", True, "NAME MINAVAIL REPLICAS AVAILABLE SCHEDULED UPDATED PCLQS-UPDATED PCLQS-TOTAL MINBREACHED AGE"),
        ("ct", False, "NAME DOMAINS AGE"),
        ("pg", False, "NAME PHASE REASON SCORE AGE PLACE"),
    ],
)
async def test_kubectl_shows_the_columns(
    plane: ControlPlane, server: HttpClient, namespace: str, short_name: str, wide: bool, want: str
) -> None:
    resource = {"pcs": SET, "pclq": CLIQUE, "pcsg": GROUP, "ct": BINDING, "pg": GANG}[short_name]
    await server.create(resource, an_object(resource, SPECS[resource], name=namespace, namespace=namespace))
    shown = await asyncio.create_subprocess_exec(
        plane.kubectl,
        "--kubeconfig",
        plane.kubeconfig,
        "get",
        short_name,
        "-n",
        namespace,
        *(("-o", "wide") if wide else ()),
        stdout=asyncio.subprocess.PIPE,
    )
    header = (await shown.communicate())[0].decode().splitlines()[0]
    await server.delete(resource, namespace, namespace if resource.namespaced else "")
    assert " ".join(header.split()) == want


# --- defaults -------------------------------------------------------------------------------------------------------

GROUPS = "template.podCliqueScalingGroups"


@pytest.mark.parametrize(
    ("resource", "changes", "path", "want"),
    [
        pytest.param(SET, {}, "replicas", 0, id="a set has no replicas unless asked"),
        pytest.param(SET, {}, "updateStrategy", ..., id="no strategy stays no strategy"),
        pytest.param(
            SET, {"updateStrategy": {}}, "updateStrategy.type", "RollingRecreate", id="an empty one has a type"
        ),
        pytest.param(SET, {}, "template.cliqueStartupType", "CliqueStartupTypeAnyOrder", id="any order"),
        pytest.param(SET, {}, "template.headlessServiceConfig", ..., id="no service config stays none"),
        pytest.param(
            SET,
            {"template.headlessServiceConfig": {}},
            "template.headlessServiceConfig.publishNotReadyAddresses",
            True,
            id="an empty service config publishes early",
        ),
        pytest.param(SET, {}, f"{GROUPS}.0.replicas", 1, id="a group in a set has one replica"),
        pytest.param(SET, {}, f"{GROUPS}.0.minAvailable", 1, id="and needs one"),
        pytest.param(
            SET, {}, "template.cliques.0.spec.minAvailable", ..., id="a clique's minimum is left to admission"
        ),
        pytest.param(SET, {}, "template.terminationDelay", ..., id="and so is the termination delay"),
        pytest.param(
            SET,
            {"template.cliques.0.spec.podSpec.containers.0.ports": [{"containerPort": 80}]},
            "template.cliques.0.spec.podSpec.containers.0.ports.0.protocol",
            "TCP",
            id="a port speaks TCP",
        ),
        pytest.param(
            SET, {"template.cliques.0.spec.replicas": 0}, "template.cliques.0.spec.replicas", 0, id="zero pods"
        ),
        pytest.param(CLIQUE, {}, "minAvailable", ..., id="a PodClique's minimum has no default"),
        pytest.param(GROUP, {}, "replicas", 1, id="a scaling group has one replica"),
        pytest.param(GROUP, {}, "minAvailable", 1, id="of which one is needed"),
        pytest.param(
            SET,
            {"template.cliques.0.spec.podSpec.schedulingGroup": {"podGroupName": "g"}},
            "template.cliques.0.spec.podSpec.schedulingGroup.podGroupName",
            "g",
            id="a pod may name its gang as in 1.36",
        ),
        pytest.param(
            CLIQUE,
            {"podSpec.workloadRef": {"name": "w", "podGroup": "g"}},
            "podSpec.workloadRef.podGroup",
            "g",
            id="and as in 1.35",
        ),
        pytest.param(SET, {"template.nonsense": 1}, "template.nonsense", ..., id="an unknown field is dropped"),
    ],
)
async def test_default(server: HttpClient, resource: Resource, changes: dict[str, Any], path: str, want: Any) -> None:
    created = await server.create(resource, an_object(resource, changed(SPECS[resource], changes)), dry_run=True)
    assert found_at(created["spec"], path) == want


@pytest.mark.parametrize(
    ("kind", "status", "want"),
    [
        pytest.param(
            PodCliqueSet,
            {"updateProgress": {"updateStartedAt": "2026-01-01T00:00:00Z"}},
            {
                "updatedReplicas": 0,
                "availableReplicas": 0,
                "updateProgress": {
                    "updateStartedAt": "2026-01-01T00:00:00Z",
                    "updatedPodCliquesCount": 0,
                    "totalPodCliquesCount": 0,
                    "updatedPodCliqueScalingGroupsCount": 0,
                    "totalPodCliqueScalingGroupsCount": 0,
                },
            },
            id="of a set",
        ),
        pytest.param(
            PodClique,
            {"replicas": 1},
            {
                "replicas": 1,
                "readyReplicas": 0,
                "updatedReplicas": 0,
                "scheduleGatedReplicas": 0,
                "scheduledReplicas": 0,
            },
            id="of a clique",
        ),
        pytest.param(
            PodCliqueScalingGroup,
            {"updateProgress": {"updateStartedAt": "2026-01-01T00:00:00Z", "podCliqueSetGenerationHash": "h"}},
            {
                "scheduledReplicas": 0,
                "availableReplicas": 0,
                "updatedReplicas": 0,
                "updateProgress": {
                    "updateStartedAt": "2026-01-01T00:00:00Z",
                    "podCliqueSetGenerationHash": "h",
                    "updatedPodCliquesCount": 0,
                    "totalPodCliquesCount": 0,
                },
            },
            id="of a scaling group",
        ),
    ],
)
async def test_status_defaults(
    server: HttpClient, namespace: str, kind: type[Object], status: Json, want: Json
) -> None:
    resource = kind.RESOURCE
    created = await server.create(resource, an_object(resource, SPECS[resource], namespace=namespace))
    assert created.get("status") == getattr(kind, "BEFORE_FIRST_STATUS", None)
    patched = await server.patch(resource, "x", {"status": status}, namespace, subresource="status")
    assert patched["status"] == getattr(kind, "BEFORE_FIRST_STATUS", {}) | want


# --- descriptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "says"),
    [
        pytest.param(
            "pcs.spec.template.cliques.spec.minAvailable",
            "Pods that are scheduled together or not at all; fewer than this is a breach.",
            id="a field of a clique in a set",
        ),
        pytest.param("podclique.spec.startsAfter", "Cliques that this one starts after.", id="a field of a clique"),
        pytest.param("podgang.status.conditions", "Whether the gang is complete, scheduled and ready.", id="of a gang"),
    ],
)
async def test_kubectl_explain_answers(plane: ControlPlane, path: str, says: str) -> None:
    command = [str(plane.kubectl), "--kubeconfig", str(plane.kubeconfig), "explain", path]

    async def missing() -> str:
        """The server publishes the schema of a new kind a moment after it serves the kind."""
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=HANGS_S)
        return "" if says in " ".join(done.stdout.split()) else done.stdout + done.stderr or "no answer"

    await nothing_missing(missing, HANGS_S)


# --- refusals -------------------------------------------------------------------------------------------------------

PLACES = ("template", "template.cliques.0", f"{GROUPS}.0")
FIELDS = dict(zip(PLACES, ("spec.template", "spec.template.cliques[0]", f"spec.{GROUPS}[0]"), strict=True))
BLAMED = dict(
    zip(
        PLACES,
        ("spec.template.topologyConstraint.packDomain", "spec.template.cliques", f"spec.{GROUPS}"),
        strict=True,
    )
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("constraint", "field", "reason"),
    [
        pytest.param({"packDomain": "rack"}, None, "FieldValueForbidden", id="a new packDomain"),
        pytest.param({"topologyName": "t"}, "pack", "FieldValueRequired", id="neither pack nor packDomain"),
        pytest.param(
            {"packDomain": "rack", "pack": {"required": "rack"}},
            "pack.required",
            "FieldValueInvalid",
            id="packDomain and pack.required",
        ),
        pytest.param({"pack": {}}, "pack", "FieldValueRequired", id="an empty pack"),
        pytest.param({"pack": {"required": "Rack"}}, "pack.required", "FieldValueInvalid", id="a domain in capitals"),
        pytest.param({"pack": {"preferred": ""}}, "pack.preferred", "FieldValueInvalid", id="an empty domain"),
        pytest.param({"pack": {"preferred": "r" * 64}}, "pack.preferred", "FieldValueTooLong", id="a long domain"),
    ],
)
async def test_topology_constraint_is_refused(
    server: HttpClient, place: str, constraint: Json, field: str | None, reason: str
) -> None:
    spec = changed(SPECS[SET], {f"{place}.topologyConstraint": constraint})
    blamed = BLAMED[place] if field is None else f"{FIELDS[place]}.topologyConstraint.{field}"
    assert (blamed, reason) in await refused(server, SET, spec)


async def refused(server: HttpClient, resource: Resource, spec: Json) -> set[tuple[str, str]]:
    """What the server finds wrong: field and reason of each cause."""
    with pytest.raises(Invalid) as refusal:
        await server.create(resource, an_object(resource, spec), dry_run=True)
    return {(cause["field"], cause["reason"]) for cause in refusal.value.details["causes"]}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "constraint",
    [
        pytest.param({"pack": {"required": "rack"}}, id="required"),
        pytest.param({"pack": {"preferred": "rack"}}, id="preferred"),
        pytest.param({"topologyName": "t", "pack": {"required": "zone", "preferred": "rack"}}, id="both"),
    ],
)
async def test_topology_constraint_is_accepted(server: HttpClient, place: str, constraint: Json) -> None:
    spec = changed(SPECS[SET], {f"{place}.topologyConstraint": constraint})
    await server.create(SET, an_object(SET, spec), dry_run=True)


@pytest.mark.parametrize("place", PLACES)
async def test_a_stored_pack_domain_may_stay(server: HttpClient, namespace: str, place: str) -> None:
    """The rules look at creations only: sets written before the field was deprecated must stay editable."""
    await server.create(SET, an_object(SET, SPECS[SET], namespace=namespace))
    legacy = changed(SPECS[SET], {f"{place}.topologyConstraint": {"packDomain": "rack"}})
    await server.patch(SET, "x", {"spec": legacy}, namespace)
    stored = await server.patch(SET, "x", {"spec": {"replicas": 2}}, namespace)
    assert found_at(stored["spec"], f"{place}.topologyConstraint.packDomain") == "rack"


@pytest.mark.parametrize(
    ("resource", "changes", "field", "reason"),
    [
        pytest.param(SET, {"template": ...}, "spec.template", "FieldValueRequired", id="a set needs a template"),
        pytest.param(SET, {"template.cliques": ...}, "spec.template.cliques", "FieldValueRequired", id="with cliques"),
        pytest.param(
            SET,
            {"updateStrategy": {"type": "Now"}},
            "spec.updateStrategy.type",
            "FieldValueNotSupported",
            id="a strategy",
        ),
        pytest.param(
            SET,
            {"template.cliqueStartupType": "Later"},
            "spec.template.cliqueStartupType",
            "FieldValueNotSupported",
            id="a startup type that does not exist",
        ),
        pytest.param(
            SET,
            {"template.cliques.0.spec.podSpec": {}},
            "spec.template.cliques[0].spec.podSpec.containers",
            "FieldValueRequired",
            id="a pod needs containers",
        ),
        pytest.param(
            SET,
            {"template.cliques": SPECS[SET]["template"]["cliques"] * 2},
            "spec.template.cliques[1]",
            "FieldValueDuplicate",
            id="two cliques of one name",
        ),
        pytest.param(
            SET,
            {"template.resourceSharing": [{"name": "n", "scope": "Sometimes"}]},
            "spec.template.resourceSharing[0].scope",
            "FieldValueNotSupported",
            id="a scope that does not exist",
        ),
        pytest.param(
            SET,
            {"template.resourceClaimTemplates": [{"name": "n", "templateSpec": {}}]},
            "spec.template.resourceClaimTemplates[0].templateSpec.spec",
            "FieldValueRequired",
            id="a claim template without a spec",
        ),
        pytest.param(
            SET,
            {f"{GROUPS}.0.scaleConfig": {"minReplicas": 1}},
            f"spec.{GROUPS}[0].scaleConfig.maxReplicas",
            "FieldValueRequired",
            id="scaling without an upper bound",
        ),
        pytest.param(
            SET,
            {"updateStrategy": {"rollingRecreate": {"maxUnavailable": 0}}},
            "spec.updateStrategy.rollingRecreate.maxUnavailable",
            "FieldValueInvalid",
            id="an update that may take nothing",
        ),
        pytest.param(CLIQUE, {"roleName": ...}, "spec.roleName", "FieldValueRequired", id="a clique needs a role"),
        pytest.param(CLIQUE, {"replicas": ...}, "spec.replicas", "FieldValueRequired", id="and replicas"),
        pytest.param(CLIQUE, {"replicas": "two"}, "spec.replicas", "FieldValueTypeInvalid", id="as a number"),
        pytest.param(GROUP, {"cliqueNames": ...}, "spec.cliqueNames", "FieldValueRequired", id="a group needs members"),
        pytest.param(BINDING, {"levels": []}, "spec.levels", "FieldValueInvalid", id="a binding needs a level"),
        pytest.param(
            BINDING, {"levels.0.domain": "1rack"}, "spec.levels[0].domain", "FieldValueInvalid", id="a digit first"
        ),
        pytest.param(
            BINDING, {"levels.0.key": "a b"}, "spec.levels[0].key", "FieldValueInvalid", id="no node label key"
        ),
        pytest.param(GANG, {"podgroups": ...}, "spec.podgroups", "FieldValueRequired", id="a gang needs pod groups"),
        pytest.param(
            GANG,
            {"podgroups.0.podReferences": ...},
            "spec.podgroups[0].podReferences",
            "FieldValueRequired",
            id="that list their pods",
        ),
        pytest.param(
            GANG,
            {"reuseReservationRef": {"name": "n"}},
            "spec.reuseReservationRef.namespace",
            "FieldValueRequired",
            id="a reservation without a namespace",
        ),
    ],
)
async def test_refusal(
    server: HttpClient, resource: Resource, changes: dict[str, Any], field: str, reason: str
) -> None:
    assert (field, reason) in await refused(server, resource, changed(SPECS[resource], changes))


# --- scale ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "selector"),
    [pytest.param(SET, "hpaPodSelector"), pytest.param(CLIQUE, "hpaPodSelector"), pytest.param(GROUP, "selector")],
    ids=str,
)
async def test_scale(server: HttpClient, namespace: str, resource: Resource, selector: str) -> None:
    await server.create(resource, an_object(resource, SPECS[resource], namespace=namespace))
    status = {"replicas": 2, selector: "a=b"}
    await server.patch(resource, "x", {"status": status}, namespace, subresource="status")
    scale = await server.patch(resource, "x", {"spec": {"replicas": 3}}, namespace, subresource="scale")
    assert scale["status"] == {"replicas": 2, "selector": "a=b"}
    stored = await server.get(resource, "x", namespace)
    assert stored["spec"]["replicas"] == 3
    assert stored["metadata"]["generation"] == 2


@pytest.mark.parametrize("resource", [BINDING, GANG], ids=str)
async def test_what_cannot_be_scaled(server: HttpClient, namespace: str, resource: Resource) -> None:
    space = namespace if resource.namespaced else ""
    await server.create(resource, an_object(resource, SPECS[resource], name=namespace, namespace=namespace))
    with pytest.raises(NotFound):
        await server.patch(resource, namespace, {"spec": {"replicas": 3}}, space, subresource="scale")
    await server.delete(resource, namespace, space)


# --- installing -----------------------------------------------------------------------------------------------------


async def test_installing_again_changes_nothing(server: HttpClient) -> None:
    said: list[str] = []
    await install(server, said.append, timeout_s=HANGS_S)
    before = {str(r): (await server.get(CustomResourceDefinition, str(r))).metadata for r in SPECS}
    await install(server, said.append, timeout_s=HANGS_S)
    after = {str(r): (await server.get(CustomResourceDefinition, str(r))).metadata for r in SPECS}
    assert said == 2 * [f"{document['metadata']['name']} is served" for document in crds.load()]
    assert {name: meta.generation for name, meta in after.items()} == {n: m.generation for n, m in before.items()}


async def test_without_rights_one_clear_line(plane: ControlPlane) -> None:
    async with HttpClient(load_config(plane.client_kubeconfig("visitor"))) as visitor:
        with pytest.raises(InstallError, match=r"not allowed to install .*visitor.* cannot patch"):
            await install(visitor, print, timeout_s=HANGS_S)


async def test_installing_into_an_empty_cluster(tmp_path: Path) -> None:
    """Our own installer from nothing, as a new user's first command; `kubectl` did it for all other tests."""
    with ControlPlane(tmp_path, "1.36.3") as empty:
        async with HttpClient(load_config(empty.kubeconfig)) as client:
            said: list[str] = []
            await install(client, said.append, timeout_s=HANGS_S)
            assert sorted(said) == sorted(f"{document['metadata']['name']} is served" for document in crds.load())
            assert (await client.list(PodCliqueSet)).items == []
