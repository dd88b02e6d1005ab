"""Which nodes a pod may go to, one pod at a time, by kube-scheduler's filters; as masks over rows.

What a node alone can answer (selectors, affinity, taints, volumes) is cached until some node changes. Room, ports and
neighbours are computed when asked. `feasible_nodes` is all of it together and equals kube-scheduler's answer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grove.api.selector import Requirement
from grove.scheduler.cluster.nodes import Ints, Mask, NodeTable
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.interpod import affinity_mask, anti_affinity_mask, pods_near, spread_mask
from grove.scheduler.filters.taints import hard_taints_tolerated, soft_taints
from grove.scheduler.model.facts import NodeTerm, NodeTerms, PodFacts, Requests, Shape

PLENTY = 2**40
"""Room of a node for a pod that asks for nothing that runs out."""


def feasible_nodes(snapshot: Snapshot, pod: PodFacts) -> list[str]:
    """Names, sorted, of the nodes where this pod could be bound now."""
    mask = snapshot.nodes.alive[: snapshot.nodes.rows].copy()
    for _, passed in filters(snapshot, pod):
        mask &= passed
    return sorted(snapshot.nodes.names(np.flatnonzero(mask)))


def filters(snapshot: Snapshot, pod: PodFacts) -> Iterator[tuple[str, Mask]]:
    """Each filter by what people would call its failure, with the rows that pass it."""
    shape, table = pod.shape, snapshot.nodes
    rows = table.rows
    if shape.blocked:
        yield shape.blocked, np.zeros(rows, dtype=np.bool_)
    yield "node selector or affinity", selected_mask(table, shape)
    yield "taint", taint_mask(table, shape)
    if shape.volumes:
        yield "volume", volume_mask(table, shape)
    free_ports = port_mask(snapshot, shape)
    if free_ports is not None:
        yield "host port", free_ports
    for r, amount in snapshot.amounts(shape.requests):
        if amount > 0:
            passed = snapshot.free[r, :rows] >= amount
            for other in shape.alternatives:
                passed = passed | fits_mask(snapshot, other)
            yield snapshot.resources[r], passed
    if shape.affinity:
        yield "pod affinity", affinity_mask(snapshot, pod)
    yield "pod anti-affinity", anti_affinity_mask(snapshot, pod)
    if shape.spread:
        yield "topology spread", spread_mask(snapshot, pod, selected_mask(table, shape), taint_mask(table, shape))


def allowed_mask(snapshot: Snapshot, shape: Shape) -> Mask:
    """Rows that pass everything a node alone can answer, whatever is running there. Not to be written to."""
    table = snapshot.nodes
    return table.derived(("allowed", shape.where), lambda: _allowed(table, shape))


def _allowed(table: NodeTable, shape: Shape) -> Mask:
    mask = table.alive[: table.rows].copy()
    if shape.blocked:
        mask[:] = False
        return mask
    mask &= selected_mask(table, shape)
    mask &= taint_mask(table, shape)
    mask &= volume_mask(table, shape)
    return mask


def selected_mask(table: NodeTable, shape: Shape) -> Mask:
    """nodeSelector and required node affinity."""
    key = ("selected", shape.node_selector, shape.node_affinity)
    return table.derived(key, lambda: _selected(table, shape))


def _selected(table: NodeTable, shape: Shape) -> Mask:
    mask = np.ones(table.rows, dtype=np.bool_)
    for key, value in shape.node_selector:
        column = table.column(key)
        code = column.codes.get(value)
        mask &= column.ids[: table.rows] == (-2 if code is None else code)
    if shape.node_affinity is not None:
        mask &= terms_mask(table, shape.node_affinity)
    return mask


def taint_mask(table: NodeTable, shape: Shape) -> Mask:
    return table.derived(("taints", shape.tolerations), lambda: _untainted(table, shape))


def _untainted(table: NodeTable, shape: Shape) -> Mask:
    answers = [hard_taints_tolerated(taints, shape.tolerations) for taints in table.taint_sets]
    mask: Mask = np.array([*answers, False], dtype=np.bool_)[table.taint_ids[: table.rows]]
    return mask


def volume_mask(table: NodeTable, shape: Shape) -> Mask:
    mask = np.ones(table.rows, dtype=np.bool_)
    for terms in shape.volumes:
        mask &= table.derived(("terms", terms), lambda terms=terms: terms_mask(table, terms))  # type: ignore[misc]
    return mask


def terms_mask(table: NodeTable, terms: NodeTerms) -> Mask:
    """Rows that match at least one term."""
    mask = np.zeros(table.rows, dtype=np.bool_)
    for term in terms:
        mask |= _term_mask(table, term)
    return mask


def _term_mask(table: NodeTable, term: NodeTerm) -> Mask:
    if not term.labels and not term.names:
        return np.zeros(table.rows, dtype=np.bool_)
    mask = np.ones(table.rows, dtype=np.bool_)
    for requirement in term.labels:
        mask &= _requirement_mask(table, requirement)
    for requirement in term.names:
        mask &= _name_mask(table, requirement)
    return mask


def _requirement_mask(table: NodeTable, r: Requirement) -> Mask:
    column = table.column(r.key)
    if r.operator in ("In", "NotIn"):
        # Hostnames have as many values as there are nodes: look up the few wanted instead of asking each.
        wanted = [code for value in r.values if (code := column.codes.get(value)) is not None]
        inside: Mask = np.isin(column.ids[: table.rows], wanted) if wanted else np.zeros(table.rows, dtype=np.bool_)
        return inside if r.operator == "In" else ~inside
    answers = [r.matches({r.key: value}) for value in column.values]
    return column.spread(answers, r.matches({}), table.rows)


def _name_mask(table: NodeTable, r: Requirement) -> Mask:
    """A field expression: `metadata.name` is the only field a node selector knows."""
    mask = np.zeros(table.rows, dtype=np.bool_)
    if r.key == "metadata.name" and r.operator in ("In", "NotIn"):
        mask[[row for name in r.values if (row := table.row_of.get(name)) is not None]] = True
        if r.operator == "NotIn":
            mask = ~mask
    return mask


def port_mask(snapshot: Snapshot, shape: Shape) -> Mask | None:
    """Rows where the pod's host ports are free; None if it has none."""
    if not shape.ports:
        return None
    mask = np.ones(snapshot.nodes.rows, dtype=np.bool_)
    for row in snapshot.rows_with_ports():
        if any(mine.clashes(theirs) for mine in shape.ports for theirs in snapshot.ports_at(row)):
            mask[row] = False
    return mask


def fits_mask(snapshot: Snapshot, requests: Requests) -> Mask:
    mask = np.ones(snapshot.nodes.rows, dtype=np.bool_)
    for r, amount in snapshot.amounts(requests):
        if amount > 0:
            mask &= snapshot.free[r, : mask.size] >= amount
    return mask


def room(free: Ints, request: Ints) -> Ints:
    """How many pods with this request each column of `free` (resource by node) holds."""
    slots: Ints | None = None
    for r, amount in enumerate(request.tolist()):
        if amount <= 0:
            continue
        # Most pods ask for one of what is scarce; dividing by one is the dearest copy there is.
        held = free[r] if amount == 1 else free[r] // amount
        slots = held if slots is None else np.minimum(slots, held)
    if slots is None:
        return np.full(free.shape[1], PLENTY, dtype=np.int64)
    return np.maximum(slots, 0)


def soft_score(snapshot: Snapshot, shape: Shape) -> Ints | None:
    """How much a pod would like each row: weights of preferred terms met, less what PreferNoSchedule costs."""
    table = snapshot.nodes
    repelled = table.derived(("soft taints", shape.tolerations), lambda: _repelled(table, shape))
    if not shape.preferred_nodes and not shape.preferred_pods:
        return repelled
    score = np.zeros(table.rows, dtype=np.int64) if repelled is None else repelled.copy()
    for weight, term in shape.preferred_nodes:
        # In a preference, unlike a requirement, an empty term matches every node.
        met = _term_mask(table, term) if term.labels or term.names else np.ones(table.rows, dtype=np.bool_)
        score += weight * met
    for weight, pods in shape.preferred_pods:
        score += weight * pods_near(snapshot, pods)
    return score


def _repelled(table: NodeTable, shape: Shape) -> Ints | None:
    """What PreferNoSchedule taints cost on each row; None if there are none."""
    against = [soft_taints(taints, shape.tolerations) for taints in table.taint_sets]
    if not any(against):
        return None
    cost: Ints = -100 * np.array([*against, 0], dtype=np.int64)[table.taint_ids[: table.rows]]
    return cost
