"""A translated workload works with KAI as any other: its PodGroups do not show the dialect."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.dialects import gang_set, koord_set, nested
from tests.support.gang_schedulers import Kai, cluster, eventually, operator

from grove.api.dynamo import PodGangSet
from grove.api.koordset import KoordPodCliqueSet
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.crds.install import install
from grove.dialects import dynamo, koord
from grove.sim.cluster import SimCluster
from grove.sim.loop import run

CONFIG = """
dialects: {enabled: true}
scheduler: {profiles: [{name: kai-scheduler, config: {podGroupOwnership: grove}}], defaultProfileName: kai-scheduler}
"""


def kai_gang() -> Json:
    obj = gang_set("work", 3, scheduling={"queue": "team"})
    obj["spec"]["template"]["spec"]["schedulerName"] = "kai-scheduler"
    return obj


def kai_groups() -> Json:
    obj = koord_set("work", groups={"g": [nested("a", 2, 0), nested("b", 1, 1)]}, replicas=2)
    obj["metadata"]["labels"] = {"kai.scheduler/queue": "team"}
    return obj


async def pod_groups(obj: Json, kind: Any, gangs: int) -> list[Json]:
    """The objects for KAI, without what the server adds; pods have random names, objects UIDs."""
    async with cluster("kai", Kai) as sim, operator(await spoken(sim), CONFIG):
        obj["metadata"]["namespace"] = "ns"
        await sim.client().create(kind, obj)

        async def told() -> Any:
            found = (await sim.client().list(Kai.kind, "ns")).items
            return found if len(found) == gangs else None

        found = await eventually(told)
        return sorted((stable(one) for one in found), key=str)


def stable(one: Json) -> Json:
    meta = one["metadata"]
    kept = {name: meta.get(name) for name in ("name", "labels", "annotations")}
    owners = [(ref["kind"], ref["name"]) for ref in meta["ownerReferences"]]
    return {"metadata": kept, "owners": owners, "spec": one["spec"]}


async def spoken(sim: SimCluster) -> SimCluster:
    await install(sim.client(), lambda line: None, dialects=True)
    return sim


@pytest.mark.parametrize(
    ("make", "to_set", "kind", "gangs"),
    [
        pytest.param(kai_gang, dynamo.to_set, PodGangSet, 1, id="PodGangSet"),
        pytest.param(kai_groups, koord.to_set, KoordPodCliqueSet, 2, id="PodCliqueSet of grove.ai"),
    ],
)
def test_kai_gets_the_same_objects_with_and_without_the_dialect(make: Any, to_set: Any, kind: Any, gangs: int) -> None:
    plain = to_set(make()).manifest
    plain["metadata"]["labels"].pop("grove.io/translated-from")
    plain["metadata"]["annotations"].clear()
    spoken = run(pod_groups(make(), kind, gangs))
    assert spoken == run(pod_groups(plain, PodCliqueSet, gangs))
    assert all(kind == "PodGang" for one in spoken for kind, _ in one["owners"])
