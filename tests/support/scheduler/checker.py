"""An independent judge of placements, and a brute-force oracle of whether one exists. Shares no code with the search.

Both work on plain dictionaries, pod by pod and node by node, in the most obvious way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from grove.scheduler.model.answers import Placement
from grove.scheduler.model.facts import NodeFacts, PodFacts, Shape
from grove.scheduler.model.gang import Branch, Gang, PodGroup

HOST = "kubernetes.io/hostname"
Levels = tuple[str, ...]


def faults(
    nodes: Sequence[NodeFacts], running: Sequence[PodFacts], gang: Gang, levels: Levels, answer: Placement
) -> list[str]:
    """Everything that is wrong with a placement; empty if it is a valid one."""
    by_name = {node.name: node for node in nodes}
    wrong = [f"{p.name} on unknown node {p.node}" for p in answer.pods if p.node not in by_name]
    if wrong:
        return wrong
    pending = {p.uid: p for g in gang.groups() for p in g.pods}
    uids = [p.uid for p in answer.pods]
    wrong += [f"{uid} is not a pending pod of the gang" for uid in uids if uid not in pending]
    wrong += ["a pod is placed twice"] if len(set(uids)) != len(uids) else []
    everyone = [*running, *answer.pods]
    for node in nodes:
        here = [p for p in everyone if p.node == node.name]
        for resource in {name for p in here for name, _ in p.shape.requests}:
            asked = sum(dict(p.shape.requests).get(resource, 0) for p in here)
            new = any(p in answer.pods and dict(p.shape.requests).get(resource, 0) for p in here)
            if new and asked > node.allocatable.get(resource, 0):
                wrong.append(f"{node.name} has {node.allocatable.get(resource, 0)} {resource}, {asked} asked")
        wrong += [
            f"{p.name} may not be on {node.name}" for p in here if p in answer.pods and not _node_allows(p.shape, node)
        ]
        for i, a in enumerate(here):
            for b in here[i + 1 :]:
                if (a in answer.pods or b in answer.pods) and not may_share(a, b):
                    wrong.append(f"{a.name} and {b.name} share {node.name}")
    for p in answer.pods:
        choices = (pending[p.uid].shape.requests, *pending[p.uid].shape.alternatives)
        if p.shape.requests not in choices:
            wrong.append(f"{p.name} was given another request")
    core = answer.pods[: answer.core]
    for g in gang.groups():
        have = len(g.bound) + sum(p.uid in {q.uid for q in g.pods} for p in core)
        if have < g.minimum:
            wrong.append(f"{g.name} has {have} of {g.minimum}")
    wrong += _level_faults(gang, levels, by_name, answer)
    return wrong


def _level_faults(gang: Gang, levels: Levels, by_name: dict[str, NodeFacts], answer: Placement) -> list[str]:
    wrong = []
    for part, groups in _parts(gang.root):
        if not part.required:
            continue
        mine = {p.uid for g in groups for p in g.pods}
        bound = {domain(by_name[n], levels, part.required) for g in groups for n in g.bound if n in by_name}
        placed = {domain(by_name[p.node], levels, part.required) for p in answer.pods if p.uid in mine}
        if None in placed:
            wrong.append(f"{part.name} has a pod outside every {part.required}")
        if len(placed) > 1 and not bound:
            wrong.append(f"{part.name} is in {len(placed)} domains of {part.required}")
        if bound - {None} and not placed <= bound:
            wrong.append(f"{part.name} left the domain of its running pods")
    return wrong


def domain(node: NodeFacts, levels: Levels, key: str) -> tuple[str | None, ...] | None:
    """The path of a node down to a level; None if it lacks the level's own label."""
    if key == HOST:
        return (node.name,)
    if key not in node.labels:
        return None
    if key not in levels:
        return (node.labels[key],)
    return tuple(node.labels.get(level) for level in levels[: levels.index(key) + 1])


def _parts(part: Branch | PodGroup) -> Iterator[tuple[Branch | PodGroup, list[PodGroup]]]:
    if isinstance(part, PodGroup):
        yield part, [part]
        return
    below: list[PodGroup] = []
    for child in part.children:
        for inner, groups in _parts(child):
            yield inner, groups
            if isinstance(inner, PodGroup):
                below.append(inner)
    yield part, below


def _node_allows(shape: Shape, node: NodeFacts) -> bool:
    if any(node.labels.get(key) != value for key, value in shape.node_selector):
        return False
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            t.key == taint.key and t.operator == "Exists" for t in shape.tolerations
        ):
            return False
    return True


def may_share(a: PodFacts, b: PodFacts) -> bool:
    if {(p.port, p.protocol) for p in a.shape.ports} & {(p.port, p.protocol) for p in b.shape.ports}:
        return False
    for one, other in ((a, b), (b, a)):
        for term in one.shape.anti_affinity:
            labels = {r.key: next(iter(r.values)) for r in term.scope.selector.requirements}
            if term.topology_key == HOST and all(other.labels.get(k) == v for k, v in labels.items()):
                return False
    return True


def exists(nodes: Sequence[NodeFacts], running: Sequence[PodFacts], gang: Gang, levels: Levels) -> bool:
    """Whether any placement of the core exists, by trying them all."""
    return _Oracle(nodes, running, gang, levels).solve()


class _Oracle:
    def __init__(self, nodes: Sequence[NodeFacts], running: Sequence[PodFacts], gang: Gang, levels: Levels) -> None:
        self.nodes, self.running, self.gang, self.levels = nodes, running, gang, levels
        self.resources = sorted(
            {
                name
                for g in gang.groups()
                for p in g.pods
                for r in (p.shape.requests, *p.shape.alternatives)
                for name, _ in r
            }
        )
        by_name = {node.name: node for node in nodes}
        self.constrained = [(part, groups) for part, groups in _parts(gang.root) if part.required]
        self.pins: list[set[object]] = []
        for part, groups in self.constrained:
            found = {domain(by_name[n], levels, part.required) for g in groups for n in g.bound if n in by_name}
            self.pins.append(found - {None})
        self.above = {
            g.name: [k for k, (_, groups) in enumerate(self.constrained) if g in groups] for g in gang.groups()
        }
        self.where = [[domain(node, levels, part.required) for node in nodes] for part, _ in self.constrained]

    def solve(self) -> bool:
        choices = []
        for g in self.gang.groups():
            kinds: dict[tuple[Shape, tuple[tuple[str, str], ...]], list[PodFacts]] = {}
            for p in g.pods:
                kinds.setdefault((p.shape, tuple(sorted(p.labels.items()))), []).append(p)
            members = list(kinds.values())
            picks = [c for c in product(*(range(len(m) + 1) for m in members)) if sum(c) == g.need]
            choices.append(
                [[(g, m[0]) for m, n in zip(members, pick, strict=True) for _ in range(n)] for pick in picks]
            )
        free = tuple(
            tuple(
                node.allocatable.get(r, 0)
                - sum(dict(p.shape.requests).get(r, 0) for p in self.running if p.node == node.name)
                for r in self.resources
            )
            for node in self.nodes
        )
        for combination in product(*choices):
            pods = [item for part in combination for item in part]
            # Any order will do; with the least movable first, the impossible is seen before all the rest is tried.
            pods.sort(key=self._freedom)
            self.pods = pods
            self.dead: set[object] = set()
            self.allows = [[self._static(p, n) for n in range(len(self.nodes))] for _, p in pods]
            if not all(any(self._alone(p, n, free[n]) for n in range(len(self.nodes))) for _, p in pods):
                continue  # a pod that fits nowhere by itself
            self.shares = [[may_share(p, q) for _, q in pods] for _, p in pods]
            self.wary = any(p.shape.anti_affinity or p.shape.ports for _, p in pods)
            if self._walk(0, 0, free, (None,) * len(self.constrained), tuple(() for _ in self.nodes)):
                return True
        return False

    def _freedom(self, item: tuple[PodGroup, PodFacts]) -> tuple[object, ...]:
        """Narrow domains first, then few nodes that allow it, then much of anything asked for."""
        group, pod = item
        narrowest = max((len(set(self.where[k])) for k in self.above[group.name]), default=0)
        nodes = sum(self._static(pod, n) for n in range(len(self.nodes)))
        return (-narrowest, nodes, -max((n for _, n in pod.shape.requests), default=0), group.name, pod.uid)

    def _static(self, pod: PodFacts, n: int) -> bool:
        node = self.nodes[n]
        return _node_allows(pod.shape, node) and all(
            may_share(pod, other) for other in self.running if other.node == node.name
        )

    def _alone(self, pod: PodFacts, n: int, free: tuple[int, ...]) -> bool:
        have = dict(zip(self.resources, free, strict=True))
        return self._static(pod, n) and any(
            all(have[r] >= amount for r, amount in requests)
            for requests in (pod.shape.requests, *pod.shape.alternatives)
        )

    def _walk(
        self,
        i: int,
        start: int,
        free: tuple[tuple[int, ...], ...],
        domains: tuple[object, ...],
        here: tuple[tuple[int, ...], ...],
    ) -> bool:
        if i == len(self.pods):
            return True
        state = (i, start, free, domains, here)
        if state in self.dead:
            return False
        group, pod = self.pods[i]
        same = i + 1 < len(self.pods) and self.pods[i + 1] == self.pods[i]
        for n in range(start, len(self.nodes)):
            if not self.allows[i][n] or not all(self.shares[i][j] for j in here[n]):
                continue
            after = self._domains(group, n, domains)
            if after is None:
                continue
            for requests in (pod.shape.requests, *pod.shape.alternatives):
                asked = dict(requests)
                left = tuple(have - asked.get(r, 0) for have, r in zip(free[n], self.resources, strict=True))
                if any(rest < 0 and asked.get(r, 0) for rest, r in zip(left, self.resources, strict=True)):
                    continue
                occupied = here
                if self.wary:
                    occupied = (*here[:n], (*here[n], i), *here[n + 1 :])
                if self._walk(i + 1, n if same else 0, (*free[:n], left, *free[n + 1 :]), after, occupied):
                    return True
        self.dead.add(state)
        return False

    def _domains(self, group: PodGroup, n: int, domains: tuple[object, ...]) -> tuple[object, ...] | None:
        after = list(domains)
        for k in self.above[group.name]:
            found = self.where[k][n]
            if found is None or (self.pins[k] and found not in self.pins[k]):
                return None
            if after[k] is None:
                after[k] = found
            elif after[k] != found:
                return None
        return tuple(after)
