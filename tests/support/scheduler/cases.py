"""Random small clusters and gangs, each a pure function of its seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from grove.api.core import Taint, Toleration
from grove.api.selector import of_labels
from grove.scheduler.model.facts import PODS, HostPort, NodeFacts, PodFacts, PodScope, PodTerm, Shape
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from tests.support.scheduler.kit import GPU, HOST, RACK, ZONE, node, pod, shape

LEVELS = (ZONE, RACK, HOST)
NIC = "example.com/nic"


@dataclass
class Case:
    seed: int
    nodes: list[NodeFacts]
    running: list[PodFacts]
    gang: Gang


def random_case(seed: int) -> Case:
    rng = Random(seed)
    nodes = _nodes(rng)
    groups = [_group(rng, f"g{i}", nodes) for i in range(rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6)))]
    while sum(g.need for g in groups) > 9:
        groups.pop()
    running = _running(rng, nodes) if rng.random() < 0.8 else []
    running += [
        PodFacts(f"bound-{g.name}-{i}", "default", f"bound-{g.name}-{i}", shape(0, cpu=100), {"group": g.name}, name)
        for g in groups
        for i, name in enumerate(g.bound)
    ]
    return Case(seed, nodes, running, Gang(f"default/case-{seed}", _tree(rng, groups)))


def _nodes(rng: Random) -> list[NodeFacts]:
    zones, racks = rng.randint(1, 2), rng.randint(1, 3)
    if rng.random() < 0.3:
        # All machines alike, as people buy them; what tells them apart is only where they stand.
        count, gpu = rng.choice((3, 4, 5, 6, 8, 10)), rng.choice((2, 4, 8))
        places = [{"zone": f"z{rng.randrange(zones)}", "rack": f"r{rng.randrange(racks)}"} for _ in range(count)]
        return [node(f"n{i:02}", gpu, labels={"pool": "a"}, **place) for i, place in enumerate(places)]
    found = []
    for i in range(rng.choice((2, 3, 4, 4, 5, 6, 7, 8, 10, 12))):
        zone, rack = rng.randrange(zones), rng.randrange(racks)
        labels = {"pool": rng.choice("ab")}
        places = {"zone": f"z{zone}", "rack": f"r{rack}"}
        if rng.random() < 0.05:
            del places[rng.choice(("zone", "rack"))]
        taints = (Taint(key="special", effect="NoSchedule"),) if rng.random() < 0.1 else ()
        extra = {NIC: rng.randint(1, 2)} if rng.random() < 0.3 else {}
        gpu = rng.choice((2, 4, 4, 8, 8))
        cpu = rng.choice((4_000, 8_000, 16_000))
        found.append(
            node(
                f"n{i:02}",
                gpu,
                cpu=cpu,
                pods=rng.choice((3, 5, 110)),
                labels=labels,
                taints=taints,
                extra=extra,
                **places,
            )
        )
    return found


def _running(rng: Random, nodes: list[NodeFacts]) -> list[PodFacts]:
    found = []
    for n in nodes:
        if rng.random() < 0.5:
            gpu = rng.randint(0, n.allocatable[GPU])
            ports = (HostPort(80),) if rng.random() < 0.1 else ()
            found.append(pod(f"run-{n.name}", gpu, cpu=rng.choice((0, 1_000, 2_000)), ports=ports, on=n.name))
    return found


def _group(rng: Random, name: str, nodes: list[NodeFacts]) -> PodGroup:
    labels = {"group": name}
    kinds = [_shape(rng, name)]
    if rng.random() < 0.12:
        kinds.append(_shape(rng, name))
    count = rng.choice((1, 1, 2, 2, 3, 4))
    pods = tuple(pod(f"{name}-{i}", of=rng.choice(kinds), group=name, labels=labels) for i in range(count))
    minimum = count if rng.random() < 0.7 else rng.randint(0, count)
    required = rng.choice(("", "", "", ZONE, RACK, RACK, HOST))
    preferred = rng.choice(("", "", ZONE, RACK, HOST))
    bound: tuple[str, ...] = ()
    if rng.random() < 0.1:
        bound = (rng.choice(nodes).name,)
        minimum += 1
    return PodGroup(name, minimum, pods, bound, required, preferred)


def _shape(rng: Random, name: str) -> Shape:
    more: dict[str, object] = {}
    extra = {NIC: 1} if rng.random() < 0.12 else {}
    if rng.random() < 0.15:
        more["node_selector"] = (("pool", rng.choice("ab")),)
    if rng.random() < 0.3:
        more["tolerations"] = (Toleration(key="special", operator="Exists"),)
    if rng.random() < 0.06:
        more["ports"] = (HostPort(rng.choice((80, 81))),)
    if rng.random() < 0.08:
        other = name if rng.random() < 0.7 else "g0"
        scope = PodScope(of_labels({"group": other}), frozenset(("default",)))
        more["anti_affinity"] = (PodTerm(HOST, scope),)
    if rng.random() < 0.06:
        more["alternatives"] = (((NIC, 1), (PODS, 1)),)
    return shape(rng.choice((0, 1, 1, 2, 2, 3, 4, 8)), cpu=rng.choice((0, 0, 500, 1_000, 3_000)), extra=extra, **more)


def _tree(rng: Random, groups: list[PodGroup]) -> Branch:
    children: list[Branch | PodGroup] = list(groups)
    if len(groups) > 1 and rng.random() < 0.4:
        split = rng.randint(1, len(groups))
        inner = Branch("inner", tuple(groups[:split]), rng.choice(("", ZONE, RACK, HOST)), rng.choice(("", RACK, HOST)))
        children = [inner, *groups[split:]]
    return Branch("gang", tuple(children), rng.choice(("", "", ZONE, ZONE, RACK)), rng.choice(("", "", RACK, HOST)))
