"""Zones a gang would like to be in, best first, as its annotation names them: a wish of every pod, never a condition.

`scheduling.koordinator.sh/network-topology-zone: west` means a domain of that name at any level, `rack=r7` one of that
level. What cannot be read is not wished for; admission has told its author.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from grove.api.selector import Requirement
from grove.scheduler.model.facts import NodeTerm, PodFacts, Shape

ZONES = "scheduling.koordinator.sh/network-topology-zone"
CLOUD_ZONE = "topology.kubernetes.io/zone"
"""What a zone is where no topology names its levels."""
WEIGHT = 100

Wishes = tuple[tuple[int, NodeTerm], ...]


def zone_wishes(text: str, levels: Mapping[str, str]) -> Wishes:
    """Preferred terms, the first zone with most weight. `levels` are node label keys by the levels' names."""
    found = []
    for rank, part in enumerate(text.split(",")):
        level, _, zone = (word.strip() for word in part.rpartition("="))
        keys = list(dict.fromkeys(levels.values())) or [CLOUD_ZONE]
        if level:
            keys = [levels.get(level, level)]
        if zone:
            weight = max(1, WEIGHT // (rank + 1))
            found += [(weight, NodeTerm((Requirement(key, "In", frozenset((zone,))),))) for key in keys]
    return tuple(found)


def wishing(pod: PodFacts, wishes: Wishes) -> PodFacts:
    return replace(pod, shape=_wishing(pod.shape, wishes)) if wishes else pod


@lru_cache(maxsize=4096)
def _wishing(shape: Shape, wishes: Wishes) -> Shape:
    """Cached, because pods of one class share a shape and the search is quick because of it."""
    return replace(shape, preferred_nodes=(*shape.preferred_nodes, *wishes))
