"""Gangs that would not fit on an empty cluster: a pod is larger than every node, or a minimum larger than every domain.

The domains are those of the level that the gang requires. Free capacity does not matter here. Pods that may not share a
node are named too. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grove.api import labels
from grove.api.node import Node
from grove.api.pod import Pod
from grove.api.podgang import PodGang
from grove.api.quantity import InvalidQuantity, amount, format_amount
from grove.api.selector import of
from grove.diagnosis.seen import Seen
from grove.scheduler.model.reading import pod_requests


class TooLarge(NamedTuple):
    """Why a gang never fits, and the step where no tried change helps."""

    words: str
    step: str = ""


def too_large_ever(seen: Seen, gang: PodGang, levels: Sequence[tuple[str, str]]) -> TooLarge | None:
    """Why the gang does not fit even if nothing else runs; None if its size is not the reason."""
    pod_of = {pod.metadata.name: pod for pod in seen.pods_of_gang.get(gang.metadata.key, ())}
    groups = [
        (group.min_replicas, pod_of[first.name])  # the pods of a group are alike
        for group in gang.spec.podgroups
        for first in group.pod_references[:1]
        if first.name in pod_of
    ]
    return next(_larger_than_nodes(seen, groups), None) or next(_larger_than_domains(seen, gang, groups, levels), None)


def kept_apart(seen: Seen, gang: PodGang) -> Iterator[str]:
    """Cliques whose pods refuse to share a domain with each other. The counts of free capacity do not show that."""
    pods = seen.pods_of_gang.get(gang.metadata.key, ())
    first = {pod.metadata.labels.get(labels.POD_CLIQUE, ""): pod for pod in reversed(pods)}
    for clique, pod in sorted(first.items()):
        affinity = pod.spec.affinity
        terms = affinity.pod_anti_affinity.required if affinity is not None and affinity.pod_anti_affinity else ()
        for term in terms:
            if of(term.label_selector).matches(pod.metadata.labels):
                yield f"node: pods of {clique} may not share one {term.topology_key} (podAntiAffinity)"


def _larger_than_nodes(seen: Seen, groups: Sequence[tuple[int, Pod]]) -> Iterator[TooLarge]:
    for _, pod in groups:
        nodes = _selected(seen, pod)
        for resource, asked in pod_requests(pod) if nodes else ():
            most = max(_size(node, resource) for node in nodes)
            if not most:
                step = f"correct the name of the resource, or install the device plugin that gives nodes {resource}"
                yield TooLarge(f"node: a pod asks for {_shown(resource, asked)}, and no node has {resource}", step)
            elif most < asked:
                words = f"node: a pod asks for {_shown(resource, asked)}, and no node has more than"
                step = f"ask for at most {_shown(resource, most)} in each pod, or add larger nodes"
                yield TooLarge(f"{words} {format_amount(resource, most)}", step)


def _larger_than_domains(
    seen: Seen, gang: PodGang, groups: Sequence[tuple[int, Pod]], levels: Sequence[tuple[str, str]]
) -> Iterator[TooLarge]:
    required = gang.spec.topology_constraint.required if gang.spec.topology_constraint is not None else ""
    depth = next((number for number, (_, key) in enumerate(levels, 1) if key == required), 0)
    if not groups:
        return
    need: Counter[str] = Counter()
    for count, pod in groups:
        need.update({resource: count * asked for resource, asked in pod_requests(pod)})
    domains: dict[tuple[str, ...], list[Node]] = {}
    usable = {node.metadata.name: node for _, pod in groups for node in _selected(seen, pod)}
    for node in usable.values():  # without a required level the cluster is the only domain
        path = seen.path(node.metadata.name, levels)[:depth]
        if all(path):
            domains.setdefault(path, []).append(node)
    for resource, asked in sorted(need.items()) if domains else ():
        most = max(sum(_size(node, resource) for node in nodes) for nodes in domains.values())
        if most < asked:
            words, size = f"gang: its minimum needs {_shown(resource, asked)}", format_amount(resource, most)
            if not depth:
                yield TooLarge(f"{words}, and all nodes together have {size}")
                continue
            level = levels[depth - 1][0]
            yield TooLarge(f"{words} in one {level}, and no {level} has more than {size}")


def _selected(seen: Seen, pod: Pod) -> list[Node]:
    wanted = pod.spec.node_selector.items()
    return [node for node in seen.nodes if wanted <= node.metadata.labels.items()]


def _size(node: Node, resource: str) -> int:
    try:
        return amount(resource, (node.status.allocatable or node.status.capacity).get(resource, 0))
    except InvalidQuantity:
        return 0  # the node does not have what cannot be read


def _shown(resource: str, value: int) -> str:
    return f"{format_amount(resource, value)} {resource}"
