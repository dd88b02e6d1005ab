"""The smallest changes that would make a gang fit: a node freed, a level relaxed, a pod fewer, a node more.

Each kind proposes its changes smallest first and stops at the first that `place` accepts, so a change in the answer is
always one that works. Sizes within a kind are found by doubling and halving: what works stays working with more of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from grove.scheduler.cluster.node_table import Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.devices.device_inventory import ANY, DEVICES, is_shorthand
from grove.scheduler.evict.running import Running
from grove.scheduler.filters.fit import allowed_mask, fits_mask
from grove.scheduler.filters.node_filters import Taints, hard_taints_tolerated
from grove.scheduler.model.answers import (
    ADD_NODES,
    END_OTHER,
    FEWER_PODS,
    RELAX,
    RESTART,
    SMALLER_PODS,
    UNCORDON,
    UNTAINT,
    Budget,
    Change,
    Placement,
)
from grove.scheduler.model.facts import HOSTNAME, NodeFacts, PodFacts, Shape
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from grove.scheduler.model.reading import UNSCHEDULABLE
from grove.scheduler.solve.place import place

MOST_TRIES = 24
"""Nodes, gangs or domains tried one by one before a kind is given up."""


def smallest_changes(
    snapshot: Snapshot, gang: Gang, running: Sequence[Running], most: int, budget: Budget, *, surplus: bool = False
) -> tuple[Change, ...]:
    """Up to `most` verified changes, at most two of a kind; those that can be made in place come first, then cheapest
    kinds and smallest sizes.

    `surplus`: the minimum of the gang runs, and its other pods shall be placed too. A restart then ends what serves,
    so it comes after new nodes, and nothing is proposed that needs a new set.
    """
    if most < 1:
        return ()
    trial = _ChangeTrial(snapshot, gang, budget, surplus=surplus)
    kinds: list[Callable[[], Iterator[Change]]] = [
        trial.open_nodes,  # it restarts no pod
        *((trial.add_nodes, trial.restart) if surplus else (trial.restart, trial.add_nodes)),
        lambda: trial.end_other(running),
        trial.smaller_pods,
        *(() if surplus else (trial.relax, trial.fewer_pods)),
    ]
    by_kind = [sorted(kind(), key=lambda c: (c.size, c.subject))[:2] for kind in kinds]
    first = [changes[0] for changes in by_kind if changes]
    second = [changes[1] for changes in by_kind if len(changes) > 1]
    return tuple(sorted((first + second)[:most], key=lambda change: not change.in_place))


class _ChangeTrial:
    def __init__(self, snapshot: Snapshot, gang: Gang, budget: Budget, *, surplus: bool) -> None:
        self._snapshot, self._budget, self._own = snapshot, budget, gang
        self._gang = gang.wanting_all() if surplus else gang
        self._surplus = surplus
        self._needing = [group for group in self._gang.groups() if group.need and group.pods]
        self._shapes = [group.pods[0].shape for group in self._needing]

    def _fits(self, snapshot: Snapshot, gang: Gang | None = None) -> bool:
        return isinstance(place(snapshot, gang or self._gang, self._budget), Placement)

    def _roomy(self, shape: Shape) -> Mask:
        """Rows whose whole capacity could hold one such pod."""
        return fits_mask(self._snapshot, shape.requests, idle=True)

    def open_nodes(self) -> Iterator[Change]:
        """Cordoned or tainted nodes that would do otherwise: one that suffices, else all of them."""
        closed = self._closed_nodes()
        for node in closed[:MOST_TRIES]:
            if self._fits(self._opened([node])):
                yield _opening([node])
                return
        if len(closed) > 1:
            few = _least(len(closed), lambda n: self._fits(self._opened(closed[:n])))
            if few:
                yield _opening(closed[:few])

    def _closed_nodes(self) -> list[NodeFacts]:
        table = self._snapshot.nodes
        closed = np.zeros(table.rows, dtype=np.bool_)
        for shape in self._shapes:
            others = allowed_mask(self._snapshot, shape, but=Taints.name)
            closed |= others & ~allowed_mask(self._snapshot, shape) & self._roomy(shape)
        nodes = [node for row in np.flatnonzero(closed) if (node := table.facts[row]) is not None]
        free = self._snapshot.free[:, [table.row_of[node.name] for node in nodes]]
        scarce = free[3:].sum(axis=0) if free.shape[0] > 3 else free.sum(axis=0)
        return [nodes[i] for i in sorted(range(len(nodes)), key=lambda i: (-int(scarce[i]), nodes[i].name))]

    def _opened(self, nodes: Sequence[NodeFacts]) -> Snapshot:
        twin = self._snapshot.copy()
        for node in nodes:
            kept = tuple(
                t for t in node.taints if all(hard_taints_tolerated([t], shape.tolerations) for shape in self._shapes)
            )
            twin.add_node(replace(node, taints=kept))
        return twin

    def relax(self) -> Iterator[Change]:
        """For each requirement, the narrowest broader level at which the gang fits; none means to prefer it only.

        A part is never asked to be broader than what it is inside of.
        """
        levels = self._snapshot.tree(self._gang.keys(), self._gang.topology).keys
        for part, outer in _constrained(self._gang.root, ""):
            at = levels.index(part.required)
            widest = levels.index(outer) if outer in levels else -1
            for i in range(at - 1, widest - 1, -1):
                broader = levels[i] if i > widest else ""
                if self._fits(self._snapshot, self._gang.with_part(part, required=broader)):
                    names = {"required": part.required, "to": broader}
                    yield Change(RELAX, at - i, part.name, names=names)
                    break

    def fewer_pods(self) -> Iterator[Change]:
        """For each group, the fewest pods less in its minimum; one at least stays, for a minimum of 0 is refused."""
        for group in self._gang.groups():
            most = min(group.need, group.minimum - 1)
            if most < 1:
                continue
            fewer = _least(most, partial(self._fits_with_less, group))
            if fewer:
                left = group.minimum - fewer
                yield Change(FEWER_PODS, fewer, group.name, numbers={"from": group.minimum, "to": left})

    def _fits_with_less(self, group: PodGroup, fewer: int) -> bool:
        return self._fits(self._snapshot, self._gang.with_part(group, minimum=group.minimum - fewer))

    def end_other(self, running: Sequence[Running]) -> Iterator[Change]:
        """The smallest running gang whose end alone would free capacity."""
        table = self._snapshot.nodes
        useful = np.zeros(table.rows, dtype=np.bool_)
        for shape in self._shapes:
            useful |= allowed_mask(self._snapshot, shape)
        tries = 0
        for unit in sorted(running, key=lambda u: (len(u.pods), u.priority, u.name)):
            rows = [table.row_of[pod.node] for pod in unit.pods if pod.node in table.row_of]
            if unit.name == self._gang.name or not rows or not useful[rows].any():
                continue
            tries += 1
            if tries > MOST_TRIES:
                return
            twin = self._snapshot.copy()
            for pod in unit.pods:
                twin.remove_pod(pod.uid)
            if self._fits(twin):
                yield Change(END_OTHER, len(unit.pods), unit.name)
                return

    def add_nodes(self) -> Iterator[Change]:
        """More nodes like one there is, in the place where fewest are needed."""
        need = sum(group.need for group in self._needing)
        best: Change | None = None
        for template in self._templates():
            limit = need if best is None else best.size - 1
            few = _least(limit, partial(self._fits_with_more, template))
            if few:
                best = Change(ADD_NODES, few, template.name, names={"where": _place_of(template, self._gang)})
        if best is not None:
            yield best

    def _templates(self) -> list[NodeFacts]:
        """One node of each kind and domain that could take a pod when idle, those with most of them first."""
        table = self._snapshot.nodes
        keys = sorted(self._gang.keys() - {HOSTNAME})
        mask = np.zeros(table.rows, dtype=np.bool_)
        for shape in self._shapes:
            mask |= allowed_mask(self._snapshot, shape) & self._roomy(shape)
        kinds: dict[object, list[NodeFacts]] = {}
        for row in np.flatnonzero(mask & table.alive[: table.rows]):
            node = table.facts[row]
            if node is not None:
                domain = tuple(node.labels.get(key, "") for key in keys)
                kinds.setdefault((domain, tuple(sorted(node.allocatable.items()))), []).append(node)
        ordered = sorted(kinds.values(), key=lambda nodes: (-len(nodes), nodes[0].name))
        return [min(nodes, key=lambda node: node.name) for nodes in ordered[: MOST_TRIES // 2]]

    def _fits_with_more(self, template: NodeFacts, more: int) -> bool:
        twin = self._snapshot.copy()
        for i in range(more):
            name = f"{template.name}-new-{i}"
            twin.add_node(replace(template, name=name, labels={**template.labels, HOSTNAME: name}))
        return self._fits(twin)

    def smaller_pods(self) -> Iterator[Change]:
        """For each group, the fewest devices less a pod."""
        for group in self._needing:
            for name, amount in group.pods[0].shape.requests:
                if "/" in name and amount > 1 and not is_shorthand(name):
                    fewer = _least(amount - 1, partial(self._fits_with_smaller, group, name))
                    if fewer:
                        numbers = {"from": amount, "to": amount - fewer}
                        yield Change(SMALLER_PODS, fewer, group.name, numbers=numbers, names={"resource": name})

    def _fits_with_smaller(self, group: PodGroup, resource: str, fewer: int) -> bool:
        pods = tuple(_with_less(pod, resource, fewer) for pod in group.pods)
        return self._fits(self._snapshot, self._gang.with_part(group, pods=pods))

    def restart(self) -> Iterator[Change]:
        """The whole gang somewhere else, if its running pods keep it where there is no capacity."""
        mine = [pod for pod in self._snapshot.pods() if pod.gang == self._gang.name and not pod.terminating]
        if not mine:
            return
        twin = self._snapshot.copy()
        for pod in mine:
            twin.remove_pod(pod.uid)
        answer = place(twin, self._own.unbound(mine), self._budget)
        if isinstance(answer, Placement) and not (self._surplus and answer.unplaced):
            yield Change(RESTART, len(mine), self._gang.name, names={"where": answer.domain})


def _least(most: int, works: Callable[[int], bool]) -> int:
    """The smallest n from 1 to `most` that works, for what keeps working as n grows; 0 if none does."""
    high = 1
    while high < most and not works(high):
        high = min(high * 2, most)
    if most < 1 or (high == most and not works(high)):
        return 0
    return bisect_left(range(high), True, lo=high // 2 + 1 if high > 1 else 1, key=works)


def _opening(nodes: Sequence[NodeFacts]) -> Change:
    names = tuple(node.name for node in nodes)
    if all(any(taint.key == UNSCHEDULABLE for taint in node.taints) for node in nodes):
        return Change(UNCORDON, len(nodes), names[0], names)
    keys = sorted({taint.key for node in nodes for taint in node.taints})
    return Change(UNTAINT, len(nodes), names[0], names, names={"taints": " ".join(keys)})


def _place_of(template: NodeFacts, gang: Gang) -> str:
    places = [template.labels[key] for key in sorted(gang.keys() - {HOSTNAME}) if key in template.labels]
    return "/".join(places)


def _with_less(pod: PodFacts, resource: str, fewer: int) -> PodFacts:
    lowered = {resource, ANY} if resource.startswith(DEVICES) else {resource}
    requests = tuple((name, amount - fewer if name in lowered else amount) for name, amount in pod.shape.requests)
    return pod.asking(requests=requests)


def _constrained(part: Branch | PodGroup, outer: str) -> Iterator[tuple[Branch | PodGroup, str]]:
    """Every part under a requirement, with the requirement it is inside of."""
    if part.required:
        yield part, outer
    if isinstance(part, Branch):
        for child in part.children:
            yield from _constrained(child, part.required or outer)
