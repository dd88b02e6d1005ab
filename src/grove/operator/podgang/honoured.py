"""Whether pods stand where their gang requires them, whichever scheduler placed them.

A scheduler may ignore a required topology: a plugin of it is off, or it forgets the requirement after a restart. The
operator compares the nodes of bound pods with the requirements of their gang and reports what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.backends.constraints import gang_constraints
from grove.operator.podgang.gangs import pods_in_gang
from grove.operator.shared.layout import PodsOf

NodeLabels = Callable[[str], Mapping[str, str] | None]
"""The labels of a node by its name; None for a node that is not there."""
PODS_NAMED = 3
DOMAINS_NAMED = 5


class Spread(NamedTuple):
    """A requirement that bound pods break. `domains` has the names of the pods by domain."""

    owner: str
    key: str
    domains: Mapping[str, Sequence[str]]


def broken_requirements(
    gang: PodGang, pods_of: PodsOf, labels_of: NodeLabels, binding: ClusterTopologyBinding | None
) -> list[Spread]:
    """The required levels of a gang whose pods stand in more than one domain.

    Surplus pods count like core pods. A pod on a node that is gone is about to be replaced and does not count.
    """
    spreads: list[Spread] = []
    for constraint in gang_constraints(gang):
        if not constraint.required:
            continue
        levels = _levels_down_to(constraint.required, binding)
        places: dict[tuple[str, ...], list[str]] = {}
        for name in constraint.members:
            for pod in pods_in_gang(pods_of(name), gang.metadata.name):
                labels = labels_of(pod.spec.node_name) if pod.is_bound else None
                if labels is not None:
                    place = _place(pod.spec.node_name, labels, levels)
                    places.setdefault(place, []).append(pod.metadata.name)
        if len(places) > 1:
            spreads.append(Spread(constraint.name, constraint.required, _by_domain(places)))
    return spreads


def spread_message(spreads: Iterable[Spread]) -> str:
    return "; ".join(_sentence(spread) for spread in spreads)


def _sentence(spread: Spread) -> str:
    shown = [f"{domain} ({_listed(pods)})" for domain, pods in list(spread.domains.items())[:DOMAINS_NAMED]]
    more = f" and {len(spread.domains) - DOMAINS_NAMED} more domains" if len(spread.domains) > DOMAINS_NAMED else ""
    counted = f"its pods stand in {len(spread.domains)} domains"
    return f"{spread.key} is required of {spread.owner}, and {counted}: {', '.join(shown)}{more}"


def _listed(pods: Sequence[str]) -> str:
    more = f" and {len(pods) - PODS_NAMED} more" if len(pods) > PODS_NAMED else ""
    return ", ".join(pods[:PODS_NAMED]) + more


def _levels_down_to(key: str, binding: ClusterTopologyBinding | None) -> list[str]:
    """The label keys from the broadest level to this one: a rack of the same name in another block is another rack."""
    keys = [level.key for level in binding.spec.levels] if binding is not None else []
    return keys[: keys.index(key) + 1] if key in keys else [key]


def _place(node: str, labels: Mapping[str, str], levels: Sequence[str]) -> tuple[str, ...]:
    """The domain of a node as a path of label values. A node without the label may be anywhere: it is a domain."""
    if not labels.get(levels[-1]):
        return (f"node {node} without {levels[-1]}",)
    return tuple(labels.get(level, "") for level in levels)


def _by_domain(places: Mapping[tuple[str, ...], list[str]]) -> dict[str, list[str]]:
    """By the name of the domain, or by its whole path where two have the same name."""
    names = [path[-1] for path in places]
    unique = len(set(names)) == len(names)
    shown = {path[-1] if unique else "/".join(path): sorted(pods) for path, pods in places.items()}
    return dict(sorted(shown.items()))
