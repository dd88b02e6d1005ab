"""What changes under a running workload, and what must not: the default profile, the queue, the server's version."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.support.backend_schemas import definitions
from tests.support.gang_schedulers import Kai, Koordinator, Kube, cluster, eventually, operator
from tests.support.manifests import clique, group, pcs
from tests.support.observed import held_to, set_of

from grove.api.core import CustomResourceDefinition, Event, Node, Pod
from grove.api.meta import find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.backends import koord
from grove.backends.kai import POD_GROUP
from grove.backends.kube_api import V1ALPHA2, pod_group, workload
from grove.config import load_configuration
from grove.operator.podgang.controller import TROUBLES
from grove.operator.wiring import Operator
from grove.sim.cluster import SimCluster
from grove.sim.topology import BLOCK, RACK

pytestmark = pytest.mark.simulated


def profiles(default: str, *names: str, extra: str = "") -> str:
    listed = ", ".join(f"{{name: {name}}}" for name in names or (default,))
    return f"scheduler: {{profiles: [{listed}], defaultProfileName: {default}}}\n{extra}"


async def pods(sim: SimCluster, bound: int) -> dict[str, Pod]:
    """The pods, when this number is bound and nothing moves any more."""
    async with asyncio.timeout(300):
        while True:
            found = (await sim.client().list(Pod, "ns")).items
            if sum(pod.is_bound for pod in found) == bound:
                await asyncio.sleep(5)
                return {pod.metadata.uid: pod for pod in (await sim.client().list(Pod, "ns")).items}
            await asyncio.sleep(0.5)


async def test_a_new_default_profile_moves_no_running_workload() -> None:
    async with cluster("kube-1.36", Kube) as sim:
        async with operator(sim, profiles("default-scheduler")):
            await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), clique("b", 2), namespace="ns"))
            before = await pods(sim, 4)
        async with operator(sim, profiles("grove-scheduler", "grove-scheduler", "default-scheduler")):
            await asyncio.sleep(60)
            after = await pods(sim, 4)
            assert after.keys() == before.keys()
            gang = await sim.client().get(PodGang, "d-0", "ns")
            assert gang.metadata.labels["grove.io/scheduler-name"] == "default-scheduler"

            patch = {"spec": {"replicas": 3}}
            await sim.client().patch(PodClique, "d-0-a", patch, "ns", subresource="scale")
            grown = await pods(sim, 5)
            assert {pod.spec.scheduler_name for pod in grown.values()} == {"default-scheduler"}


async def test_a_changed_queue_reaches_a_living_group_of_kai() -> None:
    async with cluster("kai", Kai) as sim, operator(sim, profiles("kai-scheduler")):
        queue = {"labels": {"kai.scheduler/queue": "research"}}
        await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), namespace="ns", metadata=queue))
        await pods(sim, 2)
        assert (await sim.client().get(POD_GROUP, "d-0", "ns"))["spec"]["queue"] == "research"

        patch = {"metadata": {"labels": {"kai.scheduler/queue": "production"}}}
        await sim.client().patch(PodCliqueSet, "d", patch, "ns")

        async def moved() -> bool:
            return bool((await sim.client().get(POD_GROUP, "d-0", "ns"))["spec"]["queue"] == "production")

        await eventually(moved)


async def test_what_a_set_says_no_more_is_taken_back_and_what_others_said_stays() -> None:
    async with cluster("koord", Koordinator) as sim, operator(sim, profiles("koord-scheduler")):
        said = {"annotations": {"scheduling.koordinator.sh/gang-timeout": "90s"}}
        await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), namespace="ns", metadata=said))
        await pods(sim, 2)
        theirs = {"metadata": {"labels": {"team": "x"}}, "spec": {"minResources": {"cpu": "1"}}}
        found = await sim.client().patch(koord.POD_GROUP, "d-0-d-0-a", theirs, "ns")
        assert found["spec"] == {"minMember": 2, "scheduleTimeoutSeconds": 90, "minResources": {"cpu": "1"}}

        patch = {"metadata": {"annotations": {"scheduling.koordinator.sh/gang-timeout": None}}}
        await sim.client().patch(PodCliqueSet, "d", patch, "ns")

        async def forgotten() -> bool:
            found = await sim.client().get(koord.POD_GROUP, "d-0-d-0-a", "ns")
            return "scheduleTimeoutSeconds" not in found["spec"]

        await eventually(forgotten)
        left = await sim.client().get(koord.POD_GROUP, "d-0-d-0-a", "ns")
        assert left["spec"] == {"minMember": 2, "minResources": {"cpu": "1"}}
        assert left["metadata"]["labels"]["team"] == "x"


async def test_a_field_that_the_server_does_not_keep_is_said() -> None:
    async with cluster("kai", Koordinator) as sim:
        old = next(one for one in definitions("koord") if one["spec"]["names"]["kind"] == "PodGroup")
        fields = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        del fields["scheduleTimeoutSeconds"]
        await sim.client().create(CustomResourceDefinition.RESOURCE, old)
        async with operator(sim, profiles("koord-scheduler")):
            said = {"annotations": {"scheduling.koordinator.sh/gang-timeout": "90s"}}
            await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), namespace="ns", metadata=said))
            await pods(sim, 2)

            gang = await sim.client().get(PodGang, "d-0", "ns")
            told = find_condition(gang.status.conditions, "SchedulerObjectsReady")
            assert told is not None
            assert (told.status, told.reason) == ("True", "ToldInPart")
            assert told.message == "PodGroup d-0-d-0-a: the server does not keep scheduleTimeoutSeconds"


async def test_a_set_is_moved_by_annotation_when_nothing_of_it_runs() -> None:
    config = profiles("default-scheduler", "default-scheduler", "koord-scheduler")
    async with cluster("koord", Kube, Koordinator) as sim, operator(sim, config):
        await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), namespace="ns"))
        before = await pods(sim, 2)

        patch: dict[str, Any] = {"metadata": {"annotations": {"schedulerName": "koordinator-scheduler"}}}
        await sim.client().patch(PodCliqueSet, "d", patch, "ns")
        await asyncio.sleep(30)
        assert (await pods(sim, 2)).keys() == before.keys()
        await sim.client().patch(PodCliqueSet, "d", {"spec": {"replicas": 2}}, "ns")
        grown = await pods(sim, 4)
        assert {pod.spec.scheduler_name for pod in grown.values()} == {"default-scheduler"}

        await sim.client().patch(PodCliqueSet, "d", {"spec": {"replicas": 0}}, "ns")
        await pods(sim, 0)
        await sim.client().patch(PodCliqueSet, "d", {"spec": {"replicas": 1}}, "ns")
        moved = await pods(sim, 2)
        assert {pod.spec.scheduler_name for pod in moved.values()} == {"koord-scheduler"}
        gang = await sim.client().get(PodGang, "d-0", "ns")
        assert gang.metadata.labels["grove.io/scheduler-name"] == "koord-scheduler"


async def test_gangs_that_a_cluster_does_not_offer_are_reported_to_the_owner_of_the_set_and_counted() -> None:
    asked = "scheduler: {profiles: [{name: default-scheduler, config: {gangScheduling: true}}]}"
    count = TROUBLES.labels("default-scheduler", "GangsNotOffered")
    before = count._value.get()
    async with cluster("koord", Kube) as sim, operator(sim, asked):
        await sim.client().create(PodCliqueSet, pcs("d", clique("a"), clique("b"), namespace="ns", replicas=2))
        await pods(sim, 4)

        found = (await sim.client().get(PodCliqueSet, "d", "ns")).status.conditions
        (said,) = [one for one in found if one.type == "SchedulerObjectsReady"]
        assert (said.status, said.reason) == ("False", "GangsNotOffered")
        assert said.message.startswith("d-0, d-1: this cluster does not offer gangs to its kube-scheduler")
        events = [one for one in (await sim.client().list(Event, "ns")).items if one.reason == "GangsNotOffered"]
        assert {(one.involved_object.kind, one.type) for one in events} == {("PodCliqueSet", "Warning")}
        assert count._value.get() - before == 2

        for crd in definitions("kube-1.36"):
            await sim.client().create(CustomResourceDefinition.RESOURCE, crd)
        await asyncio.sleep(400)  # gangs that were made without stay so: their pods could not join
        assert len(await pods(sim, 4)) == 4


async def test_a_standby_has_what_the_cluster_offers_for_the_reviews_it_answers() -> None:
    async with cluster("kai") as sim:
        standby = Operator(sim.client(), load_configuration(profiles("kai-scheduler", "kai-scheduler", "volcano")))
        task = asyncio.get_running_loop().create_task(standby.stand_by(sim.client(user="lease")))
        try:
            await asyncio.sleep(10)
            wanted = set_of(pcs("d", clique("a"), namespace="ns", metadata={"labels": {"kai.scheduler/queue": "q"}}))
            told = {one.name: [path for path, _ in one.validate(wanted)] for one in standby.backends.all}
            assert told == {"default-scheduler": [], "kai-scheduler": [], "volcano": ["spec"]}

            for crd in definitions("volcano"):
                await sim.client().create(CustomResourceDefinition.RESOURCE, crd)
            await asyncio.sleep(400)
            assert [path for one in standby.backends.all for path, _ in one.validate(wanted)] == []
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_an_object_that_a_person_deletes_or_edits_is_made_right() -> None:
    async with cluster("kai", Kai) as sim, operator(sim, profiles("kai-scheduler")):
        queue = {"labels": {"kai.scheduler/queue": "research"}}
        await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), namespace="ns", metadata=queue))
        await pods(sim, 2)
        wanted = (await sim.client().get(POD_GROUP, "d-0", "ns"))["spec"]

        async def right() -> bool:
            page = await sim.client().list(POD_GROUP, "ns")
            return [one["spec"] for one in page.items] == [wanted]

        await sim.client().patch(POD_GROUP, "d-0", {"spec": {"minMember": 1}}, "ns")
        assert not await right()
        await eventually(right)
        await sim.client().delete(POD_GROUP, "d-0", "ns")
        await eventually(right)


async def test_after_an_upgrade_old_gangs_run_on_and_new_ones_use_the_new_version() -> None:
    async with cluster("kube-1.35", Kube) as sim:
        async with operator(sim, profiles("default-scheduler")):
            await sim.client().create(PodCliqueSet, pcs("old", clique("a", 2), clique("b", 2), namespace="ns"))
            before = await pods(sim, 4)
        await sim.client().delete(CustomResourceDefinition, "workloads.scheduling.k8s.io")
        for crd in definitions("kube-1.36"):
            await sim.client().create(CustomResourceDefinition.RESOURCE, crd)
        async with operator(sim, profiles("default-scheduler")):
            await sim.client().create(PodCliqueSet, pcs("new", clique("a", 2), clique("b", 2), namespace="ns"))
            after = await pods(sim, 8)
            assert before.keys() <= after.keys()
            for resource in (workload(V1ALPHA2), pod_group(V1ALPHA2)):
                page = await sim.client().list(resource, "ns")
                assert [one["metadata"]["name"] for one in page.items] == ["new-0"]

            async def said() -> Any:
                gang = await sim.client().get(PodGang, "old-0", "ns")
                found = find_condition(gang.status.conditions, "SchedulerObjectsReady")
                return found is not None and found.reason == "GangsNotOffered"

            victim = next(pod for pod in after.values() if pod.metadata.name.startswith("old-0-a"))
            await sim.client().delete(Pod, victim.metadata.name, "ns", grace_period_s=0)
            await eventually(said)
            await pods(sim, 8)


async def test_gangs_made_while_their_binding_is_gone_have_no_topology_constraint_and_get_their_pods() -> None:
    topology = "topologyAwareScheduling: {enabled: true}\n"
    async with cluster("kai", Kai) as sim, operator(sim, profiles("kai-scheduler", extra=topology)):
        levels = [{"domain": "rack", "key": RACK}]
        body = {"metadata": {"name": "topo"}, "spec": {"levels": levels}}
        await sim.client().create(ClusterTopologyBinding, body)
        queue = {"labels": {"kai.scheduler/queue": "q"}}
        rack = {"topologyName": "topo", "pack": {"required": "rack"}}
        await sim.client().create(
            PodCliqueSet, pcs("d", clique("a", 2), namespace="ns", metadata=queue, topologyConstraint=rack)
        )
        await pods(sim, 2)

        await sim.client().delete(ClusterTopologyBinding, "topo")
        await sim.client().patch(PodCliqueSet, "d", {"spec": {"replicas": 2}}, "ns")
        await pods(sim, 4)

        made = await sim.client().get(POD_GROUP, "d-1", "ns")
        assert not made["spec"].get("topologyConstraint")
        assert "grove.io/topology-name" not in (await sim.client().get(PodGang, "d-1", "ns")).metadata.annotations

        async def told() -> bool:
            found = (await sim.client().get(PodCliqueSet, "d", "ns")).status.conditions
            said = find_condition(found, "TopologyLevelsUnavailable")
            return said is not None and (said.status, said.reason) == ("Unknown", "ClusterTopologyNotFound")

        await eventually(told)


async def test_a_disaggregated_set_in_the_shape_of_kais_own_example() -> None:
    """Queue and scheduler on each clique, the set in one block, copies of its groups in one rack each."""
    topology = "topologyAwareScheduling: {enabled: true}\n"
    async with (
        cluster("kai", Kai) as sim,
        operator(sim, profiles("default-scheduler", "kai-scheduler", extra=topology)),
    ):
        levels = [{"domain": "block", "key": BLOCK}, {"domain": "rack", "key": RACK}]
        body = {"metadata": {"name": "topo"}, "spec": {"levels": levels}}
        await sim.client().create(ClusterTopologyBinding, body)
        queue = {"kai.scheduler/queue": "default-queue"}
        names = ("dworker", "dleader", "pworker", "pleader", "router")
        cliques = [clique(name, labels=queue, schedulerName="kai-scheduler") for name in names]
        rack = {"topologyName": "topo", "pack": {"required": "rack"}}
        groups = [
            group("decoder", "dworker", "dleader", replicas=2, topologyConstraint=rack),
            group("prefill", "pworker", "pleader", topologyConstraint=rack),
        ]
        block = {"topologyName": "topo", "pack": {"required": "block"}}
        await sim.client().create(
            PodCliqueSet, pcs("d", *cliques, groups=groups, namespace="ns", topologyConstraint=block)
        )
        await pods(sim, 7)

        made = (await sim.client().get(POD_GROUP, "d-0", "ns"))["spec"]
        assert (made["queue"], made["minMember"]) == ("default-queue", 5)
        assert made["topologyConstraint"] == {"topology": "topo", "requiredTopologyLevel": BLOCK}
        assert [(one["name"], one.get("parent")) for one in made["subGroups"]] == [
            ("d-0-decoder-0", None),
            ("d-0-prefill-0", None),
            ("d-0-router", None),
            ("d-0-decoder-0-dworker", "d-0-decoder-0"),
            ("d-0-decoder-0-dleader", "d-0-decoder-0"),
            ("d-0-prefill-0-pworker", "d-0-prefill-0"),
            ("d-0-prefill-0-pleader", "d-0-prefill-0"),
        ]
        scaled = (await sim.client().get(POD_GROUP, "d-0-decoder-0", "ns"))["spec"]
        assert scaled["topologyConstraint"] == {"topology": "topo", "requiredTopologyLevel": RACK}


async def test_koordinators_replacements_and_surplus_stay_in_the_domain_of_the_core_pods() -> None:
    config = (
        "topologyAwareScheduling: {enabled: true}\n"
        f"scheduler: {{profiles: [{{name: koord-scheduler, config: {{topologyLayers: {{{RACK}: rackLayer}}}}}}], "
        "defaultProfileName: koord-scheduler}\n"
    )
    levels = [{"domain": "block", "key": BLOCK}, {"domain": "rack", "key": RACK}]
    async with cluster("koord", Koordinator) as sim, operator(sim, config):
        await sim.client().create(ClusterTopologyBinding, {"metadata": {"name": "topo"}, "spec": {"levels": levels}})
        inside = {"topologyName": "topo", "pack": {"required": "rack"}}
        manifest = pcs("d", clique("a", 3, min_available=2), namespace="ns", topologyConstraint=inside)
        await sim.client().create(PodCliqueSet, manifest)
        first = await pods(sim, 3)
        core = [pod for pod in first.values() if koord.GANG in pod.metadata.labels]
        assert len(core) == 2
        assert all(held_to(pod, RACK) is None for pod in core), "the scheduler itself chooses the first place"
        nodes = {node.metadata.name: node.metadata.labels[RACK] for node in (await sim.client().list(Node)).items}
        domain = nodes[core[0].spec.node_name]
        (surplus,) = [pod for pod in first.values() if pod not in core]
        assert held_to(surplus, RACK) == [domain]

        await sim.client().delete(Pod, core[1].metadata.name, "ns")

        async def replaced() -> list[Pod]:
            found = (await sim.client().list(Pod, "ns")).items
            return [pod for pod in found if pod.metadata.uid not in first and pod.is_bound]

        (replacement,) = await eventually(replaced)
        assert held_to(replacement, RACK) == [domain]


async def test_a_group_that_asks_for_more_than_its_gang_has_left_holds_no_replacement() -> None:
    async with cluster("kube-1.36", Kube) as sim, operator(sim, profiles("default-scheduler")):
        await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), clique("b", 3), namespace="ns"))
        await pods(sim, 5)
        await sim.client().patch(PodClique, "d-0-b", {"spec": {"replicas": 0}}, "ns", subresource="scale")
        left = await pods(sim, 2)
        await sim.client().delete(Pod, next(iter(left.values())).metadata.name, "ns")

        async def replaced() -> list[Pod]:
            found = (await sim.client().list(Pod, "ns")).items
            return [pod for pod in found if pod.metadata.uid not in left and pod.is_bound]

        assert len(await eventually(replaced)) == 1
        gang = await sim.client().get(PodGang, "d-0", "ns")
        said = find_condition(gang.status.conditions, "SchedulerObjectsReady")
        assert said is not None
        assert (said.status, said.reason) == ("True", "GangShrunk")

        await sim.client().patch(PodClique, "d-0-b", {"spec": {"replicas": 3}}, "ns", subresource="scale")
        await pods(sim, 5)


async def test_a_gang_is_not_written_while_an_object_that_is_replaced_still_exists() -> None:
    async with cluster("koord", Koordinator) as sim, operator(sim, profiles("koord-scheduler")):
        await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), clique("b", 2), namespace="ns"))
        await pods(sim, 4)
        held = {"metadata": {"finalizers": ["example.com/held"]}}
        await sim.client().patch(koord.POD_GROUP, "d-0-d-0-a", held, "ns")
        await sim.client().patch(PodClique, "d-0-b", {"spec": {"replicas": 0}}, "ns", subresource="scale")
        await pods(sim, 2)

        async def told() -> tuple[str, str]:
            gang = await sim.client().get(PodGang, "d-0", "ns")
            said = find_condition(gang.status.conditions, "SchedulerObjectsReady")
            assert said is not None
            return said.status, said.reason

        assert await told() == ("False", "Replacing")
        await sim.client().patch(koord.POD_GROUP, "d-0-d-0-a", {"metadata": {"finalizers": None}}, "ns")
        await asyncio.sleep(10)
        assert await told() == ("True", "Told")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", "high", id="given"),
        pytest.param("low", "high", id="changed"),
        pytest.param("low", None, id="taken back"),
    ],
)
async def test_a_priority_that_kai_reads_from_its_group_restarts_no_pod(before: str, after: str | None) -> None:
    async with cluster("kai", Kai) as sim, operator(sim, profiles("kai-scheduler")):
        said = {"priorityClassName": before} if before else {}
        queue = {"labels": {"kai.scheduler/queue": "research"}}
        await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), namespace="ns", metadata=queue, **said))
        running = await pods(sim, 2)

        patch = {"spec": {"template": {"priorityClassName": after}}}
        await sim.client().patch(PodCliqueSet, "d", patch, "ns")

        async def told() -> bool:
            group_ = await sim.client().get(POD_GROUP, "d-0", "ns")
            return bool(group_["spec"].get("priorityClassName") == after)

        await eventually(told)
        await asyncio.sleep(60)
        assert (await pods(sim, 2)).keys() == running.keys()


async def test_gangs_say_the_priority_of_before_until_their_set_was_looked_at() -> None:
    """They show whether an edit changed the priority alone. The set's own reconcile may come late."""
    async with cluster("kai", Kai) as sim:
        client, is_slow = sim.client(user="grove-operator"), asyncio.Event()
        patch = client.patch

        async def slow(kind: Any, *args: Any, **options: Any) -> Any:
            answer = await patch(kind, *args, **options)
            if kind is PodCliqueSet and is_slow.is_set():
                await asyncio.sleep(20)
            return answer

        client.patch = slow  # type: ignore[method-assign]
        made = Operator(client, load_configuration(profiles("kai-scheduler")), clock=sim.clock, rng=random.Random(1))
        async with made.running():
            queue = {"labels": {"kai.scheduler/queue": "research"}}
            await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), namespace="ns", metadata=queue))
            running = await pods(sim, 2)

            is_slow.set()
            await sim.client().patch(PodCliqueSet, "d", {"spec": {"template": {"terminationDelay": "1h"}}}, "ns")
            await asyncio.sleep(5)  # its status is being written
            is_slow.clear()
            await sim.client().patch(PodCliqueSet, "d", {"spec": {"template": {"priorityClassName": "high"}}}, "ns")
            await sim.client().patch(
                PodGang, "d-0", {"spec": {"podgroups": []}}, "ns"
            )  # the operator compares and corrects it

            async def told() -> bool:
                group_ = await sim.client().get(POD_GROUP, "d-0", "ns")
                return bool(group_["spec"].get("priorityClassName") == "high")

            await eventually(told)
            await asyncio.sleep(60)
            assert (await pods(sim, 2)).keys() == running.keys()
