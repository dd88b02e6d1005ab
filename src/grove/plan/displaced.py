"""Pods that a drained node sends away and that have no gang: whether each would find another node.

The operator and the scheduler place gangs again themselves. These pods belong to controllers and schedulers that a copy
of the cluster does not have. The scheduler's own filters fit each of them onto what the gangs left free, most important
first. They do not predict which of several nodes another scheduler would choose.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from grove.api import labels
from grove.api.core import Pod, PodDisruptionBudget
from grove.api.meta import Key
from grove.api.selector import of
from grove.api.words import many
from grove.plan.world import World
from grove.scheduler.filters.fit import feasible_nodes

STAYS = ("DaemonSet", "Node")
"""Kinds whose pods belong to the machine itself; a drain leaves them."""


@dataclass(frozen=True, slots=True)
class Displaced:
    """`fits` is None for a pod that no controller would create again."""

    namespace: str
    pod: str
    node: str
    fits: bool | None
    note: str = ""


KEPT = "a disruption budget keeps it there"


def kept_words(pods: Sequence[Pod], budgets: Sequence[PodDisruptionBudget]) -> str:
    """Which disruption budgets keep pods of one gang on a drained node."""
    names = sorted(
        {
            budget.metadata.name
            for budget in budgets
            for pod in pods
            if budget.metadata.namespace == pod.metadata.namespace
            and of(budget.spec.selector).matches(pod.metadata.labels)
        }
    )
    nodes = sorted({pod.spec.node_name for pod in pods})
    which = f"disruption budget {', '.join(names)}" if names else "a disruption budget"
    return f"{which} keeps {many(len(pods), 'pod')} on {', '.join(nodes)}"


def bystanders(world: World, nodes: Collection[str], concerned: Collection[Key]) -> list[Pod]:
    """Pods on these nodes that are of none of the concerned sets; the most important first."""
    pods = [
        pod
        for pod in world.all(Pod)
        if pod.spec.node_name in nodes
        and not pod.metadata.is_deleting
        and not pod.is_finished
        and Key(pod.metadata.namespace, pod.metadata.labels.get(labels.PART_OF, "")) not in concerned
    ]
    return sorted(pods, key=lambda pod: (-world.scheduler.view.reader.read(pod).priority, pod.metadata.key))


def displaced(world: World, pods: Sequence[Pod], controllers: Mapping[str, str]) -> tuple[Displaced, ...]:
    """Where these pods, gone from their nodes by now, would fit. `controllers` are kinds by the pod's uid."""
    view = world.scheduler.view
    capacity = view.snapshot.copy()
    displaced: list[Displaced] = []
    for pod in pods:
        meta, node = pod.metadata, pod.spec.node_name
        controller = controllers.get(meta.uid, "")
        if controller in STAYS:
            continue
        now = world.find(Pod, meta.name, meta.namespace)
        if now is not None and not now.metadata.is_deleting:
            note = KEPT
            displaced.append(Displaced(meta.namespace, meta.name, node, False, note))
        elif not controller:
            displaced.append(Displaced(meta.namespace, meta.name, node, None, "no controller would create it again"))
        else:
            facts = msgspec.structs.replace(view.reader.read(pod), uid=f"{meta.uid}+", node="")
            open_nodes = feasible_nodes(capacity, facts)
            if open_nodes:
                capacity.add_pod(facts.on(open_nodes[0]))
            note = "" if open_nodes else f"no node has capacity for it (a {controller} would create it again)"
            displaced.append(Displaced(meta.namespace, meta.name, node, bool(open_nodes), note))
    return tuple(displaced)
