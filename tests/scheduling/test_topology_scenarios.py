"""Gangs and topology: the upstream topology scenarios that a scheduler can show, with PodGangs made by hand.

Rows share one cluster and are applied at once, so that they also show that gangs do not disturb each other. Rows about
other schedulers' topology objects and about admission have their tests elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.gangs import Bench, Gang, Group, gang, gang_json, group, scheduling

from grove.api.core import Node, Pod
from grove.api.meta import find_condition
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.scheduler.model.network import ZONES
from grove.sim.topology import BLOCK, HOST, LEVELS, RACK, ZONE, Topology

pytestmark = pytest.mark.real_in("soak")

CLUSTER = Topology(zones=2, blocks=2, racks=3, nodes=4)


@dataclass(frozen=True)
class Row:
    """Gangs, and what must be together: (level, gang, groups), no groups meaning all of the gang."""

    says: str
    gangs: tuple[Gang, ...]
    together: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    close: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())
    """(level, gangs) whose pods must be in one domain across gangs."""


def copies(prefix: str, count: int, first: int = 0, **fields: Any) -> list[Group]:
    return [
        part
        for j in range(first, first + count)
        for part in (group(f"{prefix}-{j}-lead", 1, **fields), group(f"{prefix}-{j}-work", 2, **fields))
    ]


def names(prefix: str, j: int) -> tuple[str, str]:
    return f"{prefix}-{j}-lead", f"{prefix}-{j}-work"


def branch(prefix: str, j: int, level: str) -> tuple[str, tuple[str, ...], str]:
    return f"{prefix}-{j}", names(prefix, j), level


def scaled(base: str, prefix: str, j: int, n: int, required: str, **fields: Any) -> Gang:
    return Gang(f"{base}-{prefix}-{n}", tuple(copies(prefix, 1, j, **fields)), required=required, base=base)


ROWS = (
    Row(
        "tas2 cliques packed by rack and by block, each for itself",
        (gang("tas2", group("a", 3, required=RACK), group("b", 3, required=BLOCK)),),
        ((RACK, "tas2", ("a",)), (BLOCK, "tas2", ("b",))),
    ),
    Row("tas3 a set in one rack", (gang("tas3", group("a", 3), group("b", 4), required=RACK),), ((RACK, "tas3", ()),)),
    Row(
        "tas4 a scaling group's copy in one rack, the router anywhere",
        (gang("tas4", group("router", 2), *copies("sg", 1), branches=(branch("sg", 0, RACK),)),),
        ((RACK, "tas4", names("sg", 0)),),
    ),
    Row("tas5 a clique on one host", (gang("tas5", group("a", 2, gpus=4, required=HOST)),), ((HOST, "tas5", ()),)),
    Row("tas6 a set in one zone", (gang("tas6", group("a", 4), required=ZONE),), ((ZONE, "tas6", ()),)),
    Row("tas7 no constraint at all", (gang("tas7", group("a", 2), group("b", 2)),)),
    Row(
        "tas8 block, rack and host nested",
        (
            gang(
                "tas8",
                group("router", 1),
                group("sg-0-lead", 1),
                group("sg-0-work", 2, required=HOST),
                required=BLOCK,
                branches=(branch("sg", 0, RACK),),
            ),
        ),
        ((BLOCK, "tas8", ()), (RACK, "tas8", names("sg", 0)), (HOST, "tas8", ("sg-0-work",))),
    ),
    Row(
        "tas9 block for the set, host for the clique",
        (gang("tas9", group("a", 2, gpus=2, required=HOST), required=BLOCK),),
        ((HOST, "tas9", ()), (BLOCK, "tas9", ())),
    ),
    Row(
        "tas10 three copies, each in one rack",
        (
            gang("tas10", *copies("sg", 1), branches=(branch("sg", 0, RACK),)),
            scaled("tas10", "sg", 1, 0, RACK),
            scaled("tas10", "sg", 2, 1, RACK),
        ),
        ((RACK, "tas10", names("sg", 0)), (RACK, "tas10-sg-0", ()), (RACK, "tas10-sg-1", ())),
    ),
    Row(
        "tas11 rack for the copy and host for its workers, nothing for the set",
        (
            gang(
                "tas11", group("sg-0-lead", 1), group("sg-0-work", 2, required=HOST), branches=(branch("sg", 0, RACK),)
            ),
        ),
        ((RACK, "tas11", ()), (HOST, "tas11", ("sg-0-work",))),
    ),
    Row(
        "tas12 ten copies on a host each, all in the set's block",
        (
            gang("tas12", *copies("sg", 3), required=BLOCK, branches=tuple(branch("sg", j, HOST) for j in range(3))),
            *(scaled("tas12", "sg", 3 + n, n, HOST) for n in range(7)),
        ),
        (
            (BLOCK, "tas12", ()),
            *((HOST, "tas12", names("sg", j)) for j in range(3)),
            *((HOST, f"tas12-sg-{n}", ()) for n in range(7)),
        ),
        ((BLOCK, ("tas12", *(f"tas12-sg-{n}" for n in range(7)))),),
    ),
    Row(
        "tas14 two replicas, each in a rack",
        (gang("tas14-0", group("a", 3), required=RACK), gang("tas14-1", group("a", 3), required=RACK)),
        ((RACK, "tas14-0", ()), (RACK, "tas14-1", ())),
    ),
    Row(
        "tas15 two groups and a router, block and rack",
        (
            gang(
                "tas15",
                group("router", 1),
                *copies("pre", 1),
                *copies("dec", 1),
                required=BLOCK,
                branches=(branch("pre", 0, RACK), branch("dec", 0, RACK)),
            ),
            scaled("tas15", "pre", 1, 0, RACK),
            scaled("tas15", "dec", 1, 0, RACK),
        ),
        (
            (BLOCK, "tas15", ()),
            (RACK, "tas15", names("pre", 0)),
            (RACK, "tas15", names("dec", 0)),
            (RACK, "tas15-pre-0", ()),
            (RACK, "tas15-dec-0", ()),
        ),
        ((BLOCK, ("tas15", "tas15-pre-0", "tas15-dec-0")),),
    ),
    Row(
        "tas16 the same twice, with workers on a host",
        tuple(
            gang(
                f"tas16-{r}",
                group("router", 1),
                group("pre-0-lead", 1),
                group("pre-0-work", 2, required=HOST),
                group("dec-0-lead", 1),
                group("dec-0-work", 2, required=HOST),
                required=BLOCK,
                branches=(branch("pre", 0, RACK), branch("dec", 0, RACK)),
            )
            for r in range(2)
        ),
        tuple(
            check
            for r in range(2)
            for check in (
                (BLOCK, f"tas16-{r}", ()),
                (RACK, f"tas16-{r}", names("pre", 0)),
                (RACK, f"tas16-{r}", names("dec", 0)),
                (HOST, f"tas16-{r}", ("pre-0-work",)),
                (HOST, f"tas16-{r}", ("dec-0-work",)),
            )
        ),
    ),
    Row(
        "tas23 required and preferred at several levels",
        (gang("tas23", group("a", 3, preferred=HOST), group("b", 4, required=BLOCK, preferred=RACK), required=ZONE),),
        ((ZONE, "tas23", ()), (BLOCK, "tas23", ("b",)), (RACK, "tas23", ("b",)), (HOST, "tas23", ("a",))),
    ),
)


async def test_every_row_is_placed_within_its_domains(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_topology(CLUSTER)
        for row in ROWS:
            # Scaled gangs first: a base gang leaves capacity in its domain for those that exist.
            await bench.apply(*reversed(row.gangs))
        wanted = {f"{one.name}/{part.name}": part.pods for row in ROWS for one in row.gangs for part in one.groups}
        await bench.expect(wanted, timeout_s=60)
        apart = [trouble for row in ROWS for trouble in await _violations(bench, row)]
        assert apart == []


async def _violations(bench: Bench, row: Row) -> list[str]:
    found = []
    for level, name, groups in row.together:
        domains = await bench.domains(level, name, *groups)
        if len(domains) != 1:
            found.append(f"{row.says}: {name} {groups or ''} is in {sorted(domains)} of {level}")
    for level, gangs in row.close:
        domains = set().union(*[await bench.domains(level, name) for name in gangs])
        if len(domains) != 1:
            found.append(f"{row.says}: gangs are in {sorted(domains)} of {level}")
    return found


@pytest.mark.real_in("test")
async def test_tas13_a_gang_larger_than_any_rack_is_reported_everywhere(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_topology(Topology(racks=2, nodes=2))
        await bench.apply(gang("big", group("a", 3, gpus=8), required=RACK))
        condition = await bench.condition("big", status="False", reason="Unschedulable")
        assert "comes closest, with capacity for a 2/3 pods" in condition.message
        await bench.expect({})

        async def told() -> Any:
            pods = await bench.pods()
            said = [find_condition(pod.status.conditions, "PodScheduled") for pod in pods]
            return all(
                c is not None and (c.status, c.reason, c.message) == ("False", "Unschedulable", condition.message)
                for c in said
            )

        await cluster.eventually(told)
        assert (await bench.event("GangUnschedulable")).message == condition.message


@pytest.mark.real_in("test")
async def test_tas17_two_topologies_with_the_same_domain_names(cluster: Any) -> None:
    """Two segments name their racks by different labels; each workload is packed on its own segment."""
    async with scheduling(cluster) as bench:
        keys = {side: f"example.com/{side}-rack" for side in ("left", "right")}
        for side, key in keys.items():
            name = f"{bench.namespace}-{side}"
            levels = [{"domain": "rack", "key": key}, {"domain": "host", "key": HOST}]
            await bench.client.create(ClusterTopologyBinding, {"metadata": {"name": name}, "spec": {"levels": levels}})
        nodes = await bench.add_nodes(0) or bench.nodes
        made = []
        for side, key in keys.items():
            for n in range(4):
                node = next(Topology(gpus=1, labels={"example.com/bench": bench.namespace}).objects())
                node["metadata"]["name"] = f"{cluster.prefix}{side}-{n}"
                node["metadata"]["labels"] |= {key: f"rack-{n // 2}", HOST: f"{cluster.prefix}{side}-{n}"}
                made.append(node)
        await nodes.add(made)
        for side, key in keys.items():
            annotations = {"grove.io/topology-name": f"{bench.namespace}-{side}"}
            await bench.apply(gang(side, group("a", 2), required=key, annotations=annotations))
        await bench.expect({"left/a": 2, "right/a": 2})
        for side, key in keys.items():
            placed = await bench.nodes_of(side)
            assert all(node.startswith(f"{cluster.prefix}{side}") for node in placed.values())
            assert len(await bench.domains(key, side)) == 1
        for side in keys:
            await bench.client.delete(ClusterTopologyBinding, f"{bench.namespace}-{side}")


@pytest.mark.simulated
async def test_an_unknown_level_is_named_and_others_go_on(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_topology(Topology(nodes=2))
        await bench.apply(gang("lost", group("a", 1), required="example.com/no-such-label"))
        await bench.apply(gang("fine", group("a", 1), required=RACK))
        await bench.expect({"fine/a": 1})
        condition = await bench.condition("lost", status="False", reason="Unschedulable")
        assert "example.com/no-such-label" in condition.message


async def test_the_score_and_the_choice_of_domain_are_reported(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_topology(Topology(racks=2, nodes=2))
        levels = [{"domain": domain, "key": key} for domain, key in LEVELS]
        binding = f"{bench.namespace}-levels"
        await bench.client.create(ClusterTopologyBinding, {"metadata": {"name": binding}, "spec": {"levels": levels}})
        await bench.apply(gang("whole", group("a", 4, gpus=4), required=RACK))
        await bench.expect({"whole/a": 4})
        await bench.condition("whole", status="True", reason="GangScheduled")
        assert (await bench.podgang("whole")).status.placement_score == 1.0
        assert "chose rack " in (await bench.event("TopologySelected")).message
        said = await bench.event("GangScheduled")
        assert said.involved_object.name == "whole"
        assert "placed 4 pods in rack " in said.message
        await bench.client.delete(ClusterTopologyBinding, binding)


async def test_scaled_gangs_wait_until_they_fit_in_the_domain_of_their_base(cluster: Any) -> None:
    """Capacity elsewhere does not help a copy of a set that must be in one block."""
    async with scheduling(cluster) as bench:
        await bench.add_topology(Topology(blocks=2, racks=1, nodes=1, gpus=2))
        await bench.apply(gang("set", group("a", 2), required=BLOCK))
        await bench.expect({"set/a": 2})
        await bench.apply(gang("set-sg-0", group("b", 1), base="set"))
        await bench.expect({"set/a": 2})
        block = await bench.domains(BLOCK, "set")
        smaller = gang_json(gang("set", group("a", 1), required=BLOCK), bench.namespace)
        await bench.client.patch(PodGang, "set", {"spec": smaller["spec"]}, bench.namespace)
        await bench.client.delete(Pod, "set-a-1", bench.namespace, grace_period_s=0)
        await bench.expect({"set/a": 1, "set-sg-0/b": 1})
        assert await bench.domains(BLOCK, "set-sg-0") == block


@pytest.mark.simulated
@pytest.mark.parametrize(("gpus", "score"), [pytest.param(2, 0.5, id="another block"), pytest.param(4, 1.0, id="same")])
async def test_a_scaled_gang_in_another_block_than_its_base_scores_less(cluster: Any, gpus: int, score: float) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_topology(Topology(blocks=2, racks=1, nodes=1, gpus=gpus))
        await bench.apply(gang("set", group("a", 2), preferred=BLOCK))
        await bench.expect({"set/a": 2})
        await bench.apply(gang("set-sg-0", group("b", 2), preferred=BLOCK, base="set"))
        await bench.expect({"set/a": 2, "set-sg-0/b": 2})
        blocks = await bench.domains(BLOCK, "set"), await bench.domains(BLOCK, "set-sg-0")
        assert (blocks[0] == blocks[1]) == (score == 1.0)
        said = await bench.condition("set-sg-0", status="True", reason="GangScheduled")
        assert (await bench.podgang("set-sg-0")).status.placement_score == score
        assert f"score {score:g}" in said.message


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("wanted", "rack"),
    [
        pytest.param("r1", "r1", id="the zone it names"),
        pytest.param("rack=r1", "r1", id="a zone of the level it names"),
        pytest.param("r9,r1", "r1", id="the next one when the first is not there"),
        pytest.param("full,r1", "r1", id="the next one when the first is full"),
        pytest.param("full", "r0", id="any other when it is full"),
        pytest.param("block=r1", "r0", id="a zone that is no domain of its level"),
    ],
)
async def test_a_gang_goes_to_the_zone_it_would_like_if_it_can(cluster: Any, wanted: str, rack: str) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_topology(Topology(racks=3, nodes=2, gpus=2))
        levels = [{"domain": domain, "key": key} for domain, key in LEVELS]
        await bench.client.create(
            ClusterTopologyBinding, {"metadata": {"name": bench.namespace}, "spec": {"levels": levels}}
        )
        names = {"r0": "r0", "r1": "r1", "full": "r2"}
        racks = {short: next(r for r in await rack_names(bench) if r.endswith(names[short])) for short in names}
        await bench.apply(gang("first", group("a", 4), annotations={ZONES: racks["full"]}))
        await bench.expect({"first/a": 4})
        text = wanted.replace("full", racks["full"]).replace("r1", racks["r1"])
        await bench.apply(gang("g", group("a", 2), required=RACK, annotations={ZONES: text}))
        await bench.expect({"first/a": 4, "g/a": 2})
        assert await bench.domains(RACK, "first") == {racks["full"]}
        assert await bench.domains(RACK, "g") == {racks[rack]}


async def rack_names(bench: Bench) -> list[str]:
    return sorted({node.metadata.labels[RACK] for node in (await bench.client.list(Node)).items})
