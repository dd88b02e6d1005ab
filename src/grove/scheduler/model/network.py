"""What a PodGang's annotations say of the network: cliques that talk to each other, and zones it would like to be in.

Links are written as `prefill=decode:3,router=prefill`: each pair of cliques with its weight, 1 if none is given; a link
holds both ways. They are in the annotation `grove.io/network-affinity`. Zones come best first, and are a wish of every
pod, never a condition.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from grove.api import labels
from grove.api.selector import Requirement
from grove.scheduler.model.facts import Network, NodeTerm, PodFacts, Shape

Links = Mapping[tuple[str, str], int]
Wishes = tuple[tuple[int, NodeTerm], ...]

ZONES = "scheduling.koordinator.sh/network-topology-zone"
CLOUD_ZONE = "topology.kubernetes.io/zone"
"""What a zone is where no topology names its levels."""
WEIGHT = 100

SAME_CLIQUE, SAME_GROUP = 2, 1
"""How much pods of one clique, and of one replica of a scaling group, are drawn to each other."""
MOST_PEERS = 64

_PAIR = re.compile(r"(?P<one>[a-z0-9-]+)=(?P<other>[a-z0-9-]+)(?::(?P<weight>\d{1,3}))?")
_GROUP_REPLICA = labels.SCALING_GROUP_REPLICA_INDEX


class InvalidLinks(ValueError):
    """The text is not a list of pairs."""


@lru_cache(maxsize=512)
def links_of(text: str) -> Links:
    """Weights by pair of clique names, in both directions."""
    links: dict[tuple[str, str], int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        pair = _PAIR.fullmatch(part)
        if pair is None:
            raise InvalidLinks(f"must be like prefill=decode:3, separated by commas, not {part!r}")
        weight = int(pair["weight"] or 1)
        links[pair["one"], pair["other"]] = links[pair["other"], pair["one"]] = weight
    return links


class Neighbourhood:
    """Placed pods of a set, as (labels, node), and what they mean to its waiting ones: the same for all of a clique."""

    def __init__(
        self, links: Links, placed: Sequence[tuple[Mapping[str, str], str]], waiting: int, zones: Wishes
    ) -> None:
        self._links, self._placed, self._waiting, self._zones = links, placed, waiting, zones
        self._known: dict[tuple[str, str, str], Network] = {}

    def of(self, own: Mapping[str, str]) -> Network:
        """For a pod with these labels."""
        key = (own.get(labels.CLIQUE_NAME, ""), own.get(labels.POD_CLIQUE, ""), own.get(_GROUP_REPLICA, ""))
        network = self._known.get(key)
        if network is None:
            network = self._known[key] = self._found(own, *key)
        return network

    def _found(self, own: Mapping[str, str], name: str, fqn: str, replica: str) -> Network:
        weights: Counter[str] = Counter()
        clique: list[str] = []
        for other, node in self._placed:
            weight = self._links.get((name, other.get(labels.CLIQUE_NAME, "")), 0)
            if other.get(labels.POD_CLIQUE) == fqn:
                weight += SAME_CLIQUE
                clique.append(node)
            elif replica and all(other.get(key) == own.get(key) for key in (_GROUP_REPLICA, labels.SCALING_GROUP)):
                weight += SAME_GROUP
            if weight:
                weights[node] += weight
        peers = tuple((weight, node) for node, weight in sorted(weights.items())[:MOST_PEERS])
        return Network(peers, tuple(sorted(clique)[:MOST_PEERS]), self._waiting, self._zones)


def zone_wishes(text: str, levels: Mapping[str, str]) -> Wishes:
    """Preferred terms, the first zone with most weight. `levels` are node label keys by the levels' names."""
    wishes = []
    for rank, part in enumerate(text.split(",")):
        level, _, zone = (word.strip() for word in part.rpartition("="))
        keys = list(dict.fromkeys(levels.values())) or [CLOUD_ZONE]
        if level:
            keys = [levels.get(level, level)]
        if zone:
            weight = max(1, WEIGHT // (rank + 1))
            wishes += [(weight, NodeTerm((Requirement(key, "In", frozenset((zone,))),))) for key in keys]
    return tuple(wishes)


def wishing(pod: PodFacts, wishes: Wishes) -> PodFacts:
    return pod.shaped(_wishing(pod.shape, wishes)) if wishes else pod


@lru_cache(maxsize=4096)
def _wishing(shape: Shape, wishes: Wishes) -> Shape:
    """Cached, because pods of one class share a shape and the search is quick because of it."""
    return msgspec.structs.replace(shape, preferred_nodes=(*shape.preferred_nodes, *wishes))
