"""The scheduler's words for a pod and a node: what decides a placement, normalised, hashable, and nothing else.

A pod's `Shape` is everything that is the same for all replicas of a template; pods that share a shape are one class in
the search. `grove.scheduler.model.reading` reads pods and nodes of the API as these; snapshot, masks and tests use only
them. Terms about nodes and pods are read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from grove.api.core import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    PodAffinityTerm,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)
from grove.api.selector import NOTHING, Requirement, Selector, of, requirements_of

Requests: TypeAlias = tuple[tuple[str, int], ...]
"""(resource, amount) sorted by name: CPU in thousandths of a core, memory in bytes, other things in whole units."""

NOT_SELECTED = "node selector or affinity"
"""What rules out nodes that the pods themselves do not select."""
SLOT = "reservation.grove.io/"
"""How the names of counted places begin, among a node's resources."""
PODS = "pods"
HOSTNAME = "kubernetes.io/hostname"
NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Expressions that must all hold for a node: on its labels, and on its name. Without any, no node matches."""

    labels: tuple[Requirement, ...] = ()
    names: tuple[Requirement, ...] = ()


NodeTerms: TypeAlias = tuple[NodeTerm, ...]
"""Alternatives; none at all matches no node."""


@dataclass(frozen=True, slots=True)
class PodScope:
    """Which pods a term speaks of: by namespace (named, or by the namespace's labels) and by their own labels."""

    selector: Selector
    namespaces: frozenset[str] = frozenset()
    namespace_selector: Selector = NOTHING
    with_terminating: bool = True

    def matches(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, Mapping[str, str]]
    ) -> bool:
        if namespace not in self.namespaces and (
            self.namespace_selector.nothing
            or not self.namespace_selector.matches(namespace_labels.get(namespace, NO_LABELS))
        ):
            return False
        return self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Near (affinity) or apart from (anti-affinity) the pods in scope; near means equal values of a node label."""

    topology_key: str
    scope: PodScope


@dataclass(frozen=True, slots=True)
class Spread:
    """At most `max_skew` more pods in scope in one domain of the label than in the emptiest one."""

    topology_key: str
    max_skew: int
    scope: PodScope
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


@dataclass(frozen=True, slots=True)
class HostPort:
    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"  # noqa: S104 - what a pod asks for, not what we listen on

    def clashes(self, other: HostPort) -> bool:
        same = self.port == other.port and self.protocol == other.protocol
        return same and (self.ip == other.ip or "0.0.0.0" in (self.ip, other.ip))  # noqa: S104


@dataclass(frozen=True, slots=True)
class Network:
    """The placed pods that a pod talks to, and its preferred zones: for the score of that name."""

    peers: tuple[tuple[int, str], ...] = ()
    """Nodes of pods it talks to, each with its weight."""
    clique: tuple[str, ...] = ()
    """Nodes of placed pods of its own clique, one entry a pod."""
    waiting: int = 1
    """Pods of its gang that have no place yet."""
    zones: tuple[tuple[int, NodeTerm], ...] = ()
    """Zones it would like to be in, each with its worth in hundredths."""


class Shape(msgspec.Struct, frozen=True, cache_hash=True):
    """The requirements of a pod on its node and its neighbours. Compares by value; the hash is computed once."""

    requests: Requests = ((PODS, 1),)
    alternatives: tuple[Requests, ...] = ()
    """Other request sets that would do as well, in order of preference (a device of another class, say)."""
    node_selector: tuple[tuple[str, str], ...] = ()
    node_affinity: NodeTerms | None = None
    preferred_nodes: tuple[tuple[int, NodeTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[HostPort, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    volumes: tuple[NodeTerms, ...] = ()
    """One set of terms a claim: where its volume can be reached, or could be made."""
    preferred_pods: tuple[tuple[int, PodTerm], ...] = ()
    """Wishes to be near (weight above zero) or apart from (below) pods; a soft spread is a wish to be apart."""
    blocked: str = ""
    """Set when no node can do, whatever it offers: a claim that is missing or not bound."""
    network: Network | None = None
    """For pods of gangs whose cliques are known to talk to each other."""
    charged: Requests = ()
    """What the pod itself asks for, where `requests` is less because a reservation gives the rest."""

    @property
    def sees_pods(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.spread)

    @property
    def used(self) -> Requests:
        """The amounts that a policy counts."""
        return self.charged or self.requests

    def amount(self, resource: str) -> int:
        return next((amount for name, amount in self.requests if name == resource), 0)


class PodFacts(msgspec.Struct, frozen=True, gc=False):
    """One pod. `node` is empty while it is pending; `gang` and `group` are empty for a pod without a gang.

    A Struct, because a placement makes one of them for each of its pods, and a dataclass takes five times as long.
    """

    uid: str
    namespace: str
    name: str
    shape: Shape
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    node: str = ""
    priority: int = 0
    terminating: bool = False
    may_preempt: bool = True
    gang: str = ""
    group: str = ""
    created_s: float = 0.0

    def on(self, node: str) -> PodFacts:
        return PodFacts(
            self.uid,
            self.namespace,
            self.name,
            self.shape,
            self.labels,
            node,
            self.priority,
            self.terminating,
            self.may_preempt,
            self.gang,
            self.group,
            self.created_s,
        )

    def shaped(self, shape: Shape) -> PodFacts:
        return msgspec.structs.replace(self, shape=shape)

    def asking(self, **changes: object) -> PodFacts:
        """The pod, asking for something else."""
        return self.shaped(msgspec.structs.replace(self.shape, **changes))


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node; cordoned and not-ready nodes carry the taints Kubernetes gives them."""

    name: str
    allocatable: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


def node_terms(selector: NodeSelector | None) -> NodeTerms | None:
    """The alternatives of a node selector; None means no condition, no terms mean no node."""
    return None if selector is None else tuple(node_term(term) for term in selector.node_selector_terms)


def node_term(term: NodeSelectorTerm) -> NodeTerm:
    return NodeTerm(requirements_of(term.match_expressions), requirements_of(term.match_fields))


def pod_term(term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> PodTerm:
    selector = _with_label_keys(term.label_selector, labels, term.match_label_keys, term.mismatch_label_keys)
    names = frozenset(term.namespaces)
    if not names and term.namespace_selector is None:
        names = frozenset((namespace,))
    return PodTerm(term.topology_key, PodScope(selector, names, of(term.namespace_selector)))


def spread_of(s: TopologySpreadConstraint, namespace: str, labels: Mapping[str, str]) -> Spread:
    selector = _with_label_keys(s.label_selector, labels, s.match_label_keys, ())
    return Spread(
        s.topology_key,
        s.max_skew,
        PodScope(selector, frozenset((namespace,)), NOTHING, with_terminating=False),
        s.min_domains or 1,
        s.node_affinity_policy != "Ignore",
        s.node_taints_policy == "Honor",
    )


def _with_label_keys(
    selector: LabelSelector | None, labels: Mapping[str, str], same: tuple[str, ...], other: tuple[str, ...]
) -> Selector:
    """matchLabelKeys and mismatchLabelKeys: the pod's own values, as further requirements."""
    base = of(selector)
    if base.nothing or not (same or other):
        return base
    more = [Requirement(key, "In", frozenset((labels[key],))) for key in same if key in labels]
    more += [Requirement(key, "NotIn", frozenset((labels[key],))) for key in other if key in labels]
    return Selector((*base.requirements, *(r for r in more if r not in base.requirements)))
