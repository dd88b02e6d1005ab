"""A filter, a source, a score and a policy added from outside: every part of the scheduler uses them by name."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from tests.support.gangs import Gang, gang, group, member_json, scheduling
from tests.support.scheduler import kit, toys
from tests.support.scheduler.toys import GPU, CheapPower, Licences, NewFirmware, Quota

from grove.diagnosis.reasons import sentence
from grove.scheduler.cluster.snapshot import Snapshot, cluster
from grove.scheduler.evict.preempt import Victims, preempt
from grove.scheduler.evict.running import Running
from grove.scheduler.explain.explanation import explain
from grove.scheduler.model.answers import NoFit, Placement
from grove.scheduler.model.reasons import NOT_ADMITTED
from grove.scheduler.model.seams import Applicant, Policy
from grove.scheduler.solve.place import place
from grove.scheduler.standard import STANDARD

OLD, NEW = {toys.FIRMWARE: "old"}, {toys.FIRMWARE: "new"}


def test_all_four_toys_together_take_fewer_than_120_lines():
    assert len(inspect.getsource(toys).splitlines()) < 120


def test_a_filter_keeps_pods_away_and_explain_says_its_word():
    nodes = [kit.node("a", labels=OLD), kit.node("b", labels=OLD), kit.node("c", 2, labels=NEW)]
    snapshot = cluster(nodes, (), kit.TOPOLOGY, STANDARD.joined(filters=[NewFirmware()]))
    assert set(place(snapshot, kit.gang(kit.group("g", 2, 1))).nodes.values()) == {"c"}
    answer = explain(snapshot, kit.gang(kit.group("g", 3, 1)))
    assert not answer.fits
    assert "g: 1/3 nodes can take one of its pods (2 old firmware)" in [
        sentence(finding) for finding in answer.findings
    ]
    assert isinstance(place(snapshot, kit.gang(kit.group("g", 3, 0))), Placement), "it has nothing to say about CPUs"


def test_what_a_filter_said_is_asked_again_when_the_node_changes():
    snapshot = cluster([kit.node("a", labels=OLD)], (), kit.TOPOLOGY, STANDARD.joined(filters=[NewFirmware()]))
    assert isinstance(place(snapshot, kit.gang(kit.group("g", 1, 1))), NoFit)
    snapshot.add_node(kit.node("a", labels=NEW))
    assert isinstance(place(snapshot, kit.gang(kit.group("g", 1, 1))), Placement)


def test_a_score_decides_between_nodes_that_are_alike_and_explain_names_it():
    nodes = [kit.node(name, labels={toys.POWER: watts}) for name, watts in (("a", "9"), ("b", "3"), ("c", "5"))]
    snapshot = cluster(nodes, (), kit.TOPOLOGY, STANDARD.joined(scores=[CheapPower()]))
    assert set(place(snapshot, kit.gang(kit.group("g", 2, 4))).nodes.values()) == {"b"}
    found = [sentence(finding) for finding in explain(snapshot, kit.gang(kit.group("g", 2, 4))).findings]
    assert found == ["cheapPower: -6 for this placement, -6 at most"]
    unweighted = cluster(nodes, (), kit.TOPOLOGY, STANDARD.joined(scores=[CheapPower()], weights={"cheapPower": 0}))
    assert set(place(unweighted, kit.gang(kit.group("g", 2, 4))).nodes.values()) == {"a"}


def quota(gpus: int = 4) -> Snapshot:
    snapshot = cluster([kit.node("a"), kit.node("b")], (), kit.TOPOLOGY)
    snapshot.use(STANDARD.joined(policies=[Quota({"red": gpus})]))
    return snapshot


def test_a_policy_refuses_the_whole_demand_at_once_and_explain_names_it():
    snapshot = quota()
    snapshot.add_pod(kit.pod("runs", 2, on="a", labels={"team": "red"}))
    asked = kit.gang(kit.group("one", 1, 1, labels={"team": "red"}), kit.group("two", 1, 2, labels={"team": "red"}))
    answer = place(snapshot, asked)
    assert isinstance(answer, NoFit)
    assert (answer.reason, answer.proven) == (NOT_ADMITTED, True)
    assert "quota: team red uses 2 of 4 GPUs and wants 3 more" in sentence(explain(snapshot, asked).why)
    snapshot.remove_pod("runs")
    assert isinstance(place(snapshot, asked), Placement)


def test_surplus_is_let_in_as_far_as_the_policy_goes():
    answer = place(quota(), kit.gang(kit.group("g", 6, 1, minimum=2, labels={"team": "red"})))
    assert isinstance(answer, Placement)
    assert (answer.core, len(answer.pods), len(answer.unplaced)) == (2, 4, 2)


def test_a_policy_orders_the_queue_and_says_which_gang_may_evict_which():
    snapshot = quota(16)
    rank = snapshot.seams.rank
    assert rank(snapshot, Applicant("r", 0, {"team": "red"})) < rank(snapshot, Applicant("g", 99, {}))
    guest = kit.pod("guest", 8, on="a", priority=50)
    other = kit.pod("other", 8, on="b", priority=50, labels={"team": "blue"})
    for running in (guest, other):
        snapshot.add_pod(running)
    units = [Running(pod.name, pod.priority, (pod,)) for pod in (guest, other)]
    red = replace(kit.gang(kit.group("g", 1, 8, labels={"team": "red"})), labels={"team": "red"})
    found = preempt(snapshot, red, units)
    assert isinstance(found, Victims)
    assert [pod.name for pod in found.pods] == ["guest"]


def licensed(name: str, pods: int) -> Gang:
    return gang(name, group("w", pods, gpus=0))


async def test_a_source_is_counted_reserved_prepared_and_released(cluster: Any) -> None:
    licences = Licences(on_each_node=2)
    async with scheduling(cluster, seams=STANDARD.joined(sources=[licences])) as bench:
        await bench.add_nodes(1, gpus=8)

        async def apply(made: Gang) -> None:
            await bench.apply(made, pods=False)
            for number in range(made.groups[0].pods):
                pod = member_json(made, made.groups[0], number, bench.namespace)
                pod["metadata"]["labels"]["licensed"] = "yes"
                await bench.create_pod(pod)

        await apply(licensed("first", 2))
        await bench.expect({"first/w": 2})
        assert sorted(licences.prepared) == ["first-w-0", "first-w-1"]
        await apply(licensed("next", 1))
        waits = await bench.condition("next", reason="Unschedulable")
        assert "1 insufficient example.com/licence" in waits.message
        await bench.client.delete(type(await bench.podgang("first")), "first", bench.namespace)
        for pod in await bench.nodes_of("first"):
            await bench.client.delete(type((await bench.pods())[0]), pod, bench.namespace, grace_period_s=0)
        await bench.expect({"next/w": 1})


def test_a_shape_that_asks_for_what_a_source_counts_is_reported_by_its_name():
    snapshot = cluster([kit.node("a", extra={Licences.counts: 1})], (), kit.TOPOLOGY)
    answer = explain(snapshot, kit.gang(kit.group("g", 2, 0, extra={Licences.counts: 1})))
    assert f"needs 2 {Licences.counts}, 1 free in the cluster" in sentence(answer.why)
    assert GPU not in sentence(answer.why)


class Favourite(Policy):
    """The named gang goes first; the name may change while gangs wait."""

    name = "favourite"

    def __init__(self, gang: str) -> None:
        self.gang = gang

    def rank(self, snapshot: Snapshot, who: Applicant) -> tuple[int, ...]:
        return (not who.name.endswith(self.gang),)


async def test_the_queue_is_ordered_by_the_ranks_of_now_not_of_when_gangs_came(cluster: Any) -> None:
    policy = Favourite("first")
    async with scheduling(cluster, seams=STANDARD.joined(policies=[policy])) as bench:
        for name in ("first", "second"):
            await bench.apply(gang(name, group("w", 1)))
        for name in ("first", "second"):
            await bench.condition(name, reason="Unschedulable")
        policy.gang = "second"
        await bench.add_nodes(1)
        await bench.expect({"second/w": 1})
