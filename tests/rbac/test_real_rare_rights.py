"""Rights that few clusters need, used by their own accounts on a real API server: late volumes, lookups, parts gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from grove.admission.rules.lookups import LISTED, Needs
from grove.admission.serving.reader import ClusterReader
from grove.admission.serving.registration import AUTHORIZER_CONFIGURATION, Registration, UrlAddress
from grove.api.core import VALIDATING_WEBHOOK_CONFIGURATION, PersistentVolumeClaim, StorageClass
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.scheduler.volumes.volume_claims import SELECTED_NODE
from grove.sim.nodes import FakeNodes
from grove.sim.topology import Topology
from tests.rbac.rights import accounts, documents
from tests.support.installed import Grove, give_accounts
from tests.support.manifests import clique, pcs
from tests.support.planes import GrovePlane

pytestmark = [pytest.mark.real, pytest.mark.soak]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with GrovePlane(tmp_path_factory.mktemp("rare"), "1.36.3", controller_manager=True) as plane:
        give_accounts(plane)
        yield plane


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[HttpClient]:
    async with HttpClient(load_config(plane.kubeconfig)) as client:
        yield client


@pytest.fixture
async def operator(plane: ControlPlane) -> AsyncIterator[HttpClient]:
    """A client with the operator's own account."""
    user, groups = accounts(documents())["operator"], ["system:serviceaccounts:grove-system"]
    config = load_config(plane.client_kubeconfig(user, groups))
    async with HttpClient(config, user_agent="grove-operator") as client:
        yield client


async def test_admission_looks_at_what_other_schedulers_keep(operator: HttpClient) -> None:
    known = await ClusterReader(operator).fetch(Needs(queues=frozenset({"default"}), lists=frozenset(LISTED)))
    answers = [*known.queues.values(), *known.lists.values()]
    assert len(answers) == 1 + len(LISTED)
    assert [one for one in answers if isinstance(one, Exception)] == []


async def test_webhooks_of_a_part_that_is_switched_off_are_removed(admin: HttpClient, operator: HttpClient) -> None:
    nobody = UrlAddress("https://127.0.0.1:1")
    registered = Registration(admin, nobody, authorizer=True, ca_bundle=b"")
    try:
        await registered.ensure()
        await Registration(operator, nobody, authorizer=False, ca_bundle=b"").ensure()
        left = (await admin.list(VALIDATING_WEBHOOK_CONFIGURATION)).items
        assert AUTHORIZER_CONFIGURATION not in {one["metadata"]["name"] for one in left}
    finally:
        await registered.withdraw()


async def test_a_claim_that_waits_for_its_pod_gets_the_node(plane: ControlPlane, admin: HttpClient) -> None:
    late = {"provisioner": "example.com/never", "volumeBindingMode": "WaitForFirstConsumer"}
    await admin.create(StorageClass, {"metadata": {"name": "late"}, **late})
    room = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "late"}
    await admin.create(PersistentVolumeClaim, {"metadata": {"name": "data", "namespace": "default"}, "spec": room})
    mounted = pcs("disks", clique("engine"), scheduler="grove-scheduler")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    mounted["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["volumes"] = [volume]
    async with AsyncExitStack() as stack:
        nodes = FakeNodes(admin, SYSTEM)
        await stack.enter_async_context(nodes.running())
        await nodes.add(Topology(racks=1, nodes=2))
        grove = Grove(plane)
        await grove.start()
        stack.push_async_callback(grove.stop)
        await admin.create(PodCliqueSet, mounted)
        async with asyncio.timeout(180):
            while not await is_told(admin):  # noqa: ASYNC110
                await asyncio.sleep(0.2)


async def is_told(admin: HttpClient) -> bool:
    claim = await admin.get(PersistentVolumeClaim, "data", "default")
    return SELECTED_NODE in claim.metadata.annotations
