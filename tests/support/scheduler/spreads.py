"""Random gangs whose units are spread, and a brute-force oracle for them. Shares no code with the search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from grove.api.selector import of_labels
from grove.scheduler.model.facts import NodeFacts, PodFacts, PodScope
from grove.scheduler.model.gang import Branch, Gang, PodGroup, UnitSpread, leaves_of, parts_of
from tests.support.scheduler.cases import Case
from tests.support.scheduler.checker import domain
from tests.support.scheduler.kit import GPU, HOST, RACK, ZONE, group, node, pod, used

LEVELS = (ZONE, RACK, HOST)
UNIT, CLIQUE = "unit", "clique"
COUNTED = {"app": "spread"}
SCOPE = PodScope(of_labels(COUNTED), frozenset(("default",)), with_terminating=False)


def spread(units: Mapping[str, Sequence[str]], key: str = ZONE, skew: int = 1, *, hard: bool = True) -> UnitSpread:
    """Replicas by name, with their groups."""
    return UnitSpread(key, skew, hard, SCOPE, UNIT, tuple((unit, tuple(names)) for unit, names in units.items()))


def pod_spread(*groups: str, key: str = ZONE, skew: int = 1, hard: bool = True, clique: str = "") -> UnitSpread:
    """The pods of these groups are counted together, with all others that are spread or with those of one clique."""
    scope = PodScope(of_labels({CLIQUE: clique}), SCOPE.namespaces, with_terminating=False) if clique else SCOPE
    return UnitSpread(key, skew, hard, scope, "", tuple(("", (name,)) for name in groups))


def unit(name: str, count: int, gpu: int = 1, of: str = "", clique: str = "", **more: object) -> PodGroup:
    """A group of pending pods that belong to a unit, its own name if none is given."""
    labels = {**COUNTED, UNIT: of or name} | ({CLIQUE: clique} if clique else {})
    return group(name, count, gpu, labels=labels, **more)  # type: ignore[arg-type]


def runs(of: str, on: str, gpu: int = 1, tag: str = "", *, terminating: bool = False) -> PodFacts:
    """A running pod of a unit."""
    return pod(f"runs-{of}-{on}-{tag}", gpu, on=on, labels={**COUNTED, UNIT: of}, terminating=terminating)


def zones(counts: Mapping[str, int], gpu: int = 8, racks: int = 1) -> list[NodeFacts]:
    """Nodes named `<zone>-<i>`; they take turns over the racks of their zone."""
    return [node(f"{z}-{i}", gpu, zone=z, rack=f"{z}-r{i % racks}") for z, n in counts.items() for i in range(n)]


def spread_case(seed: int) -> Case:
    """A few nodes in up to three zones, with one spread of replicas or of pods over zones or racks."""
    rng = Random(seed)
    nodes = [
        node(f"n{i}", rng.choice((1, 2, 2, 4)), zone=f"z{rng.randrange(3)}", rack=f"r{rng.randrange(2)}")
        for i in range(rng.randint(3, 6))
    ]
    running = [used(n.name, rng.randint(1, n.allocatable[GPU])) for n in nodes if rng.random() < 0.35]
    free = {n.name: n.allocatable[GPU] for n in nodes}
    for one in running:
        free[one.node] -= one.shape.amount(GPU)
    for i in range(rng.choice((0, 0, 1, 2, 3))):
        on = rng.choice(nodes).name
        if free[on]:
            free[on] -= 1
            running.append(runs(f"old{i}", on))
    key, skew = rng.choice((ZONE, ZONE, RACK, HOST)), rng.choice((1, 1, 2))
    names = [f"u{i}" for i in range(rng.randint(1, 3))]
    if rng.random() < 0.5:
        levels = ("", RACK, HOST) if key != HOST else ("", HOST)
        alike = rng.random() < 0.5
        size, gpu, level = rng.randint(1, 3), rng.choice((1, 1, 2)), rng.choice(levels)
        parts: list[Branch | PodGroup] = []
        units: dict[str, list[str]] = {}
        for name in names:
            if not alike:
                size, gpu, level = rng.randint(1, 2), rng.choice((1, 1, 2)), rng.choice(levels)
            groups = [unit(f"{name}-{part}", size, gpu, of=name) for part in "ab"[: rng.randint(1, 2)]]
            units[name] = [one.name for one in groups]
            parts += [Branch(name, tuple(groups), level)] if level or rng.random() < 0.5 else groups
        spreads = (spread(units, key, skew),)
    else:
        parts = [unit(name, rng.randint(1, 4), rng.choice((1, 1, 2))) for name in names]
        spreads = (pod_spread(names[0], key=key, skew=skew),)
        running = [one for one in running if UNIT not in one.labels or rng.random() < 0.7]
    root = Branch("gang", tuple(parts), rng.choice(("", "", "", "", ZONE)) if key != ZONE else "")
    if sum(len(leaf.pods) for leaf in leaves_of(root)) > 7:
        return spread_case(seed + 1_000_003)
    return Case(seed, nodes, running, Gang(f"default/spread-{seed}", root, spreads=spreads))


def several_spreads_case(seed: int) -> Case:
    """Replicas over zones with the pods of their cliques over racks or hosts; or pods of several cliques together."""
    rng = Random(seed)
    nodes = [
        node(f"n{i}", rng.choice((1, 2, 2, 4, 4)), zone=f"z{rng.randrange(3)}", rack=f"r{rng.randrange(2)}")
        for i in range(rng.randint(4, 8))
    ]
    free = {n.name: n.allocatable[GPU] for n in nodes}
    running = [used(n.name, rng.randint(1, free[n.name])) for n in nodes if rng.random() < 0.35]
    for one in running:
        free[one.node] -= one.shape.amount(GPU)
    for i in range(rng.choice((0, 1, 2, 3))):
        on = rng.choice(nodes).name
        if free[on]:
            free[on] -= 1
            running.append(runs(f"old{i}", on))
    names = [f"u{i}" for i in range(rng.randint(1, 3))]
    parts: list[Branch | PodGroup] = []
    if rng.random() < 0.4:
        key, required = rng.choice(((ZONE, ""), (RACK, ""), (HOST, ""), (RACK, ZONE), (HOST, ZONE)))
        parts += [unit(name, rng.randint(1, 3), rng.choice((1, 1, 2))) for name in names]
        spreads = [pod_spread(*names, key=key, skew=rng.choice((1, 1, 2)))]
        return Case(
            seed, nodes, running, Gang("default/g", Branch("g", tuple(parts), required), spreads=tuple(spreads))
        )
    spreads, units = [], {}
    sizes, level = (
        [(rng.randint(1, 2), rng.choice((1, 1, 2))) for _ in "ab"[: rng.randint(1, 2)]],
        rng.choice(("", RACK)),
    )
    for name in names:
        units[name] = [f"{name}-{k}" for k in range(len(sizes))]
        made = [unit(one, *size, of=name, clique=one) for one, size in zip(units[name], sizes, strict=True)]
        parts += [Branch(name, tuple(made), level if rng.random() < 0.8 else "")] if level else made
        spreads += [
            pod_spread(one, key=HOST if level else rng.choice((RACK, HOST)), skew=rng.choice((1, 1, 2)), clique=one)
            for one in units[name]
            if rng.random() < 0.5
        ]
    outer = spread(units, ZONE, rng.choice((1, 1, 2)))
    return Case(seed, nodes, running, Gang("default/g", Branch("g", tuple(parts)), spreads=(outer, *spreads)))


def skews(nodes: Sequence[NodeFacts], running: Sequence[PodFacts], gang: Gang, placed: Sequence[PodFacts]) -> list[int]:
    """By spread of the gang: what its skew is with these pods; 99 for a unit in no domain that counts or in several."""
    return [_skew(nodes, running, gang, one, placed) for one in gang.spreads]


def _skew(
    nodes: Sequence[NodeFacts], running: Sequence[PodFacts], gang: Gang, one: UnitSpread, placed: Sequence[PodFacts]
) -> int:
    by_name = {n.name: n for n in nodes}
    names = {name for _, groups in one.units for name in groups}
    unit_of = {name: unit for unit, groups in one.units for name in groups}
    group_of = {p.uid: g.name for g in gang.groups() for p in g.pods}
    waiting = [g for g in gang.groups() if g.name in names and g.pods]
    counted = {
        found
        for n in nodes
        if (found := domain(n, LEVELS, one.key)) is not None
        and all(
            any(
                domain(m, LEVELS, one.key) == found and m.allocatable.get(GPU, 0) >= p.shape.amount(GPU)
                for m in nodes
                for p in g.pods
            )
            for g in waiting
        )
    }
    mine = [p for p in placed if group_of[p.uid] in names]
    for key in _kept_in(gang, one, names):
        # All units share one broader domain: only what is inside counts.
        inside = {domain(by_name[p.node], LEVELS, key) for p in mine}
        counted &= {domain(n, LEVELS, one.key) for n in nodes if domain(n, LEVELS, key) in inside}
    where: Counter[object] = Counter()
    grown: set[object] = set()
    if one.unit_label:
        homes: dict[str, set[object]] = {}
        for p in running:
            if _counts(one, p):
                homes.setdefault(p.labels[UNIT], set()).add(domain(by_name[p.node], LEVELS, one.key))
        for places in homes.values():
            where.update(places)
        fresh: dict[str, set[object]] = {}
        for p in mine:
            fresh.setdefault(unit_of[group_of[p.uid]], set()).add(domain(by_name[p.node], LEVELS, one.key))
        for places in fresh.values():
            if len(places) != 1 or None in places:
                return 99
            where.update(places)
            grown |= places
    else:
        where.update(domain(by_name[p.node], LEVELS, one.key) for p in running if _counts(one, p))
        places = [domain(by_name[p.node], LEVELS, one.key) for p in mine]
        if None in places:
            return 99
        where.update(places)
        grown |= set(places)
    if not grown <= counted:
        return 99
    lowest = min((where[found] for found in counted), default=0)
    return max((where[found] - lowest for found in grown), default=0)


def _counts(one: UnitSpread, pod: PodFacts) -> bool:
    return all(pod.labels.get(rule.key) in rule.values for rule in one.scope.selector.requirements)


def _kept_in(gang: Gang, one: UnitSpread, names: set[str]) -> Iterator[str]:
    """Levels of which all units of a spread are in one domain, because a part or a unit around them is."""
    for part in parts_of(gang.root):
        own = {leaf.name for leaf in leaves_of(part)}
        is_unit = bool(one.unit_label) and any(own <= set(groups) for _, groups in one.units)
        if part.required and names <= own and not is_unit and LEVELS.index(part.required) < LEVELS.index(one.key):
            yield part.required
    for other in gang.spreads:
        is_broader = bool(other.unit_label) and LEVELS.index(other.key) < LEVELS.index(one.key)
        if is_broader and any(names <= set(groups) for _, groups in other.units):
            yield other.key


def exists(case: Case) -> bool:
    """Whether some placement of all pods packs and spreads, by trying them all."""
    nodes, gang = case.nodes, case.gang
    pods = [(g, p) for g in gang.groups() for p in g.pods]
    free = {
        n.name: n.allocatable[GPU] - sum(p.shape.amount(GPU) for p in case.running if p.node == n.name) for n in nodes
    }
    parts = [part for part in (gang.root, *gang.root.children) if part.required]
    limits = [one.max_skew for one in gang.spreads]
    by_name = {n.name: n for n in nodes}

    def is_packed(placed: Sequence[PodFacts]) -> bool:
        for part in parts:
            mine = {p.uid for leaf in leaves_of(part) for p in leaf.pods}
            found = {domain(by_name[p.node], LEVELS, part.required) for p in placed if p.uid in mine}
            if len(found) > 1 or None in found:
                return False
        return True

    def walk(i: int, placed: list[PodFacts], start: int) -> bool:
        if i == len(pods):
            found = skews(nodes, case.running, gang, placed)
            return is_packed(placed) and all(a <= b for a, b in zip(found, limits, strict=True))
        owner, one = pods[i]
        gpu = one.shape.amount(GPU)
        for n in range(start, len(nodes)):
            name = nodes[n].name
            if free[name] >= gpu:
                free[name] -= gpu
                same = i + 1 < len(pods) and pods[i + 1][0] is owner  # pods of a group are alike
                found = walk(i + 1, [*placed, one.on(name)], n if same else 0)
                free[name] += gpu
                if found:
                    return True
        return False

    return walk(0, [], 0)
