"""Rules of update strategies: where a budget, a surge or a partition may be written, and how small a budget may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grove.admission.rules.view import SetView
from grove.api.faults import Fault, forbidden, invalid
from grove.api.fields import integer, mapping, text
from grove.api.podcliqueset import COHERENT

FIELD = "rollingUpdate"


def rollout_faults(new: SetView) -> Iterator[Fault]:
    strategy = mapping(new.spec.get("updateStrategy"))
    is_coherent = text(strategy.get("type")) == COHERENT
    of_set = mapping(strategy.get(FIELD))
    path = f"spec.updateStrategy.{FIELD}"
    if of_set.get("maxSurge"):
        yield forbidden(f"{path}.maxSurge", "set it on a standalone clique or on a scaling group")
    for clique in new.cliques:
        own, where = mapping(clique.raw.get(FIELD)), f"{clique.path}.{FIELD}"
        group = new.group_of(clique.name)
        if own and group is not None:
            yield forbidden(where, f"clique {clique.name} is in scaling group {group.name}: set {FIELD} on the group")
        elif own:
            yield from _part_faults(where, own, clique.min_available, is_coherent)
            if own.get("partition"):
                yield forbidden(f"{where}.partition", "a partition counts replicas of the set or of a scaling group")
    for group_ in new.groups:
        own = mapping(group_.raw.get(FIELD))
        yield from _part_faults(f"{group_.path}.{FIELD}", own, group_.min_available, is_coherent)


def _part_faults(path: str, own: Mapping[str, Any], minimum: int | None, is_coherent: bool) -> Iterator[Fault]:
    most = integer(own.get("maxUnavailable"))
    if is_coherent and most is not None and minimum is not None and most < minimum:
        yield invalid(f"{path}.maxUnavailable", most, f"must be at least minAvailable ({minimum}) under {COHERENT}")
