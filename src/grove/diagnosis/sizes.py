"""Gangs that would not fit on an empty cluster: a pod is larger than every node, or a minimum larger than every domain.

The domains are those of the level that the gang requires. Free capacity does not matter here. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from grove.api.node import Node
from grove.api.pod import Pod
from grove.api.podgang import PodGang
from grove.api.quantity import InvalidQuantity, amount, format_amount
from grove.diagnosis.seen import Seen
from grove.scheduler.model.reading import pod_requests


def too_large_ever(seen: Seen, gang: PodGang, levels: Sequence[tuple[str, str]]) -> str:
    """Why the gang does not fit even if nothing else runs; empty if its size is not the reason."""
    pod_of = {pod.metadata.name: pod for pod in seen.pods_of_gang.get(gang.metadata.key, ())}
    groups = [
        (group.min_replicas, pod_of[first.name])  # the pods of a group are alike
        for group in gang.spec.podgroups
        for first in group.pod_references[:1]
        if first.name in pod_of
    ]
    return next(_larger_than_nodes(seen, groups), "") or next(_larger_than_domains(seen, gang, groups, levels), "")


def _larger_than_nodes(seen: Seen, groups: Sequence[tuple[int, Pod]]) -> Iterator[str]:
    for _, pod in groups:
        nodes = _selected(seen, pod)
        for resource, asked in pod_requests(pod) if nodes else ():
            most = max(_size(node, resource) for node in nodes)
            if most < asked:
                largest = format_amount(resource, most)
                yield f"node: a pod asks for {_shown(resource, asked)}, and no node has more than {largest}"


def _larger_than_domains(
    seen: Seen, gang: PodGang, groups: Sequence[tuple[int, Pod]], levels: Sequence[tuple[str, str]]
) -> Iterator[str]:
    required = gang.spec.topology_constraint.required if gang.spec.topology_constraint is not None else ""
    depth = next((number for number, (_, key) in enumerate(levels, 1) if key == required), 0)
    if not depth or not groups:
        return
    need: Counter[str] = Counter()
    for count, pod in groups:
        need.update({resource: count * asked for resource, asked in pod_requests(pod)})
    domains: dict[tuple[str, ...], list[Node]] = {}
    for node in _selected(seen, groups[0][1]):
        path = seen.path(node.metadata.name, levels)[:depth]
        if all(path):
            domains.setdefault(path, []).append(node)
    level = levels[depth - 1][0]
    for resource, asked in sorted(need.items()) if domains else ():
        most = max(sum(_size(node, resource) for node in nodes) for nodes in domains.values())
        if most < asked:
            yield (
                f"gang: its minimum needs {_shown(resource, asked)} in one {level}, "
                f"and no {level} has more than {format_amount(resource, most)}"
            )


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
