"""PodClique of `grove.dynamo.ai/v1`: a rule about where the pods of matching PodGangSets go.

If a term is about a gang's own pods, on a level of the cluster's topology, it packs the gang there. Every other term
becomes pod affinity unchanged. Rules never make one gang of two PodGangSets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from grove.api import selector
from grove.api.conditions import FALSE, TRUE, with_condition
from grove.api.dynamo import GROUP, MatchedPodGangSet, PlacementSpec, PlacementStatus
from grove.api.faults import Fault, invalid, required
from grove.api.fields import integer, mapping, sequence, text, texts
from grove.api.meta import Json
from grove.api.pod import LabelSelector
from grove.api.topology import ClusterTopologyBinding
from grove.api.words import many
from grove.dialects.translation import unknown_fields

PACK, POD_AFFINITY = "Pack", "PodAffinity"
APPLY = f"{GROUP}/apply"
"""On a PodClique, "now": it takes effect at once, and pods are replaced for it."""
APPLIED, WAITING_FOR_ROLLOUT, NOTHING_MATCHES, INVALID_SELECTOR = (
    "Applied",
    "WaitingForRollout",
    "NothingMatches",
    "InvalidSpec",
)

_PREFERRED, _REQUIRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("preferred", "required"))
_HINTS = {
    "template": "a PodGangSet of grove.dynamo.ai/v1; this PodClique is a rule and owns no pods",
    "replicas": "spec.replicas of a PodGangSet; this PodClique is a rule and owns no pods",
    "podSpec": "a PodClique of grove.io/v1alpha1; this PodClique is a rule and owns no pods",
    "podAffinity": "spec.topology.preferredDuringSchedulingIgnoredDuringExecution, or required…",
    "topologyKey": "podAffinityTerm.topologyKey of a term in spec.topology",
}

Levels = Mapping[str, tuple[str, str]]
"""Topology levels by node label key: name of the topology, and of the domain."""


def levels_of(bindings: Iterable[ClusterTopologyBinding]) -> Levels:
    """The levels of all topologies; where two have a level with the same key, that of the first by name."""
    ordered = sorted(bindings, key=lambda binding: binding.metadata.name, reverse=True)
    return {level.key: (binding.metadata.name, level.domain) for binding in ordered for level in binding.spec.levels}


class Effect(NamedTuple):
    """The effect of one rule on a gang: how it was applied, and the pod affinity that it adds."""

    applied_as: str
    affinity: Json


@dataclass(frozen=True, slots=True)
class Placement:
    """Where rules want the pods of one PodGangSet."""

    constraint: Json = field(default_factory=dict)
    """The topologyConstraint of the set, or nothing."""
    effects: Mapping[str, Effect] = field(default_factory=dict)
    """By the names of the rules."""

    @property
    def affinity(self) -> Json:
        """podAffinity and podAntiAffinity beside those of the pod template."""
        affinity: Json = {}
        for _, effect in sorted(self.effects.items()):
            for name, part in effect.affinity.items():
                affinity = _added(affinity, name, part)
        return affinity

    def to_json(self) -> Json:
        effects = {name: list(effect) for name, effect in self.effects.items()}
        parts = {"constraint": self.constraint, "effects": effects}
        return {name: part for name, part in parts.items() if part}

    @classmethod
    def of(cls, record: Json) -> Placement:
        effects = {
            name: Effect(text(effect[0]), mapping(effect[1])) for name, effect in mapping(record.get("effects")).items()
        }
        return cls(mapping(record.get("constraint")), effects)


NO_PLACEMENT = Placement()


class Term(NamedTuple):
    """One term of a rule; weight 0 is a must."""

    weight: int
    term: Json


def terms_of(rule: Json) -> list[Term]:
    topology = mapping(mapping(rule.get("spec")).get("topology"))
    wishes = [
        Term(integer(mapping(wish).get("weight")) or 1, mapping(mapping(wish).get("podAffinityTerm")))
        for wish in sequence(topology.get(_PREFERRED))
    ]
    return [*(Term(0, mapping(term)) for term in sequence(topology.get(_REQUIRED))), *wishes]


def namespaces_of(rule: Json) -> list[str]:
    """Its own, and those its terms name: where pods are that it is about."""
    named = (name for term in terms_of(rule) for name in texts(term.term.get("namespaces")))
    return sorted({text(mapping(rule.get("metadata")).get("namespace")), *named})


def find_selector(value: Any, *, empty: bool) -> selector.Selector | None:
    """A label selector as it matches; an absent one is as `empty` says. None if it cannot be read."""
    if value is None:
        return selector.Selector(nothing=not empty)
    try:
        return selector.of(msgspec.convert(value, LabelSelector))
    except (msgspec.ValidationError, selector.InvalidSelector):
        return None


def matches(rule: Json, labels: Mapping[str, str]) -> bool:
    """True if a rule selects pods with these labels."""
    wanted = find_selector(mapping(rule.get("spec")).get("selector"), empty=False)
    return wanted is not None and wanted.matches(labels)


def placed(
    rules: Iterable[Json], labels: Mapping[str, str], namespace: str, levels: Levels, *, pack: bool
) -> Placement:
    """Where these rules want a gang whose pods have these labels.

    Without `pack` (a set that runs cannot change its topology constraint) everything is affinity.
    """
    constraint: Json = {}
    effects: dict[str, Effect] = {}
    about = sorted((rule for rule in rules if matches(rule, labels)), key=_name)
    own = (
        [(name, term) for name, term in _terms(about) if _is_own(term.term, labels, namespace, levels)] if pack else []
    )
    packed: list[Term] = []
    for _, term in sorted(own, key=lambda pair: (bool(pair[1].weight), -pair[1].weight, pair[0])):
        word = "preferred" if term.weight else "required"
        topology, domain = levels[text(term.term.get("topologyKey"))]
        if word in mapping(constraint.get("pack")) or constraint.get("topologyName", topology) != topology:
            continue
        packed.append(term)
        constraint = {"topologyName": topology, "pack": {**mapping(constraint.get("pack")), word: domain}}
    for rule in about:
        terms = [other for other in terms_of(rule) if other not in packed]
        affinity = _added(_added({}, "podAffinity", _affinity(terms)), "podAntiAffinity", _anti(rule))
        effects[_name(rule)] = Effect(POD_AFFINITY if terms or not terms_of(rule) else PACK, affinity)
    return Placement(constraint, effects)


def wanted_placement(
    rules: Sequence[Json], labels: Mapping[str, str], namespace: str, levels: Levels, *, constraint: Json | None
) -> Placement:
    """Where rules want a gang by now. `constraint` is that of its set, which cannot change; None without a set."""
    placement = placed(rules, labels, namespace, levels, pack=True)
    if constraint is None or placement.constraint == constraint:
        return placement
    return replace(placed(rules, labels, namespace, levels, pack=False), constraint=constraint)


def kept_placement(recorded: Placement, wanted: Placement, rules: Iterable[Json]) -> Placement:
    """The part of `wanted` for a set that is not updated for another reason: only rules that must take effect now."""
    now = {
        _name(rule) for rule in rules if mapping(mapping(rule.get("metadata")).get("annotations")).get(APPLY) == "now"
    }
    taken = {name: effect for name, effect in wanted.effects.items() if name in now}
    return replace(recorded, effects={**recorded.effects, **taken})


def _terms(rules: Iterable[Json]) -> Iterator[tuple[str, Term]]:
    return ((_name(rule), term) for rule in rules for term in terms_of(rule))


def _name(rule: Json) -> str:
    return text(mapping(rule.get("metadata")).get("name"))


def _anti(rule: Json) -> Json:
    return mapping(mapping(mapping(rule.get("spec")).get("topology")).get("podAntiAffinity"))


def _is_own(term: Json, labels: Mapping[str, str], namespace: str, levels: Levels) -> bool:
    """True if a term selects the gang's own pods, on a level of a topology."""
    if text(term.get("topologyKey")) not in levels or term.get("namespaceSelector") is not None:
        return False
    if namespace not in (texts(term.get("namespaces")) or (namespace,)):
        return False
    wanted = find_selector(term.get("labelSelector"), empty=True)
    return wanted is not None and wanted.matches(labels)


def _affinity(terms: Sequence[Term]) -> Json:
    must = [term.term for term in terms if not term.weight]
    wish = [{"weight": term.weight, "podAffinityTerm": term.term} for term in terms if term.weight]
    return {name: some for name, some in ((_REQUIRED, must), (_PREFERRED, wish)) if some}


def _added(affinity: Json, name: str, more: Json) -> Json:
    if not more:
        return affinity
    known = mapping(affinity.get(name))
    both = {part: [*sequence(known.get(part)), *sequence(more.get(part))] for part in (_REQUIRED, _PREFERRED)}
    return {**affinity, name: {part: terms for part, terms in both.items() if terms}}


def with_affinity(pod_spec: Json, more: Json) -> Json:
    """The pod spec with further pod affinity, beside what it has."""
    affinity = mapping(pod_spec.get("affinity"))
    for name, part in more.items():
        affinity = _added(affinity, name, part)
    return {**pod_spec, "affinity": affinity} if affinity else pod_spec


def rule_faults(rule: Json) -> list[Fault]:
    """The faults of a rule. Its terms are checked together with the pods that get them."""
    spec = mapping(rule.get("spec"))
    faults = list(unknown_fields(spec, PlacementSpec, "spec", _HINTS))
    if not mapping(spec.get("selector")):
        faults.append(required("spec.selector", "labels of the PodGangSets' pods that the rule is about"))
    elif find_selector(spec.get("selector"), empty=False) is None:
        faults.append(invalid("spec.selector", spec.get("selector"), "cannot be read as a label selector"))
    for word, path in ((_REQUIRED, ""), (_PREFERRED, ".podAffinityTerm")):
        for index, item in enumerate(sequence(mapping(spec.get("topology")).get(word))):
            at = f"spec.topology.{word}[{index}]"
            term = mapping(mapping(item).get("podAffinityTerm")) if path else mapping(item)
            if not text(term.get("topologyKey")):
                faults.append(required(f"{at}{path}.topologyKey", "the node label within whose value pods are near"))
            if find_selector(term.get("labelSelector"), empty=True) is None:
                faults.append(invalid(f"{at}{path}.labelSelector", term.get("labelSelector"), "cannot be read"))
            if path and not 1 <= (integer(mapping(item).get("weight")) or 0) <= 100:
                faults.append(invalid(f"{at}.weight", mapping(item).get("weight"), "must be between 1 and 100"))
    if not mapping(spec.get("topology")):
        faults.append(required("spec.topology", "where the pods go"))
    return faults


# What became of a rule


class PodPlace(NamedTuple):
    """A pod as the rules see it: its labels, and those of its node; none while it has no node."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    node: Mapping[str, str] | None


class Match(NamedTuple):
    """A PodGangSet that a rule is about, and how it took effect on its set; empty while it waits."""

    name: str
    applied_as: str


def rule_status(
    before: PlacementStatus,
    rule: Json,
    generation: int,
    matched: Sequence[Match],
    pods: Sequence[PodPlace],
    faults: Sequence[Fault],
    now: datetime,
) -> PlacementStatus:
    """The status of a rule. `pods` are all pods of Grove that its terms can select."""
    namespace = text(mapping(rule.get("metadata")).get("namespace"))
    mine = [pod for pod in pods if pod.namespace == namespace and matches(rule, pod.labels)]
    near = [_Near.of(term.term, namespace, pods) for term in terms_of(rule)]
    return PlacementStatus(
        observed_generation=generation,
        matched_pod_gang_sets=tuple(
            MatchedPodGangSet(name=match.name, applied_as=match.applied_as) for match in matched
        ),
        matched_pods=len(mine),
        satisfied_pods=sum(pod.node is not None and all(condition.holds(pod) for condition in near) for pod in mine),
        conditions=with_condition(before.conditions, APPLIED, *_verdict(matched, faults), now, generation),
    )


class _Near(NamedTuple):
    """The pods a term is about, counted by the domain they are in."""

    key: str
    pods: Mapping[str, set[tuple[str, str]]]

    @classmethod
    def of(cls, term: Json, namespace: str, pods: Sequence[PodPlace]) -> _Near:
        key, spaces = text(term.get("topologyKey")), texts(term.get("namespaces")) or (namespace,)
        chosen = find_selector(term.get("labelSelector"), empty=True)
        on_domain: dict[str, set[tuple[str, str]]] = {}
        for pod in pods:
            if pod.node is None or key not in pod.node or pod.namespace not in spaces:
                continue
            if chosen is not None and chosen.matches(pod.labels):
                on_domain.setdefault(pod.node[key], set()).add((pod.namespace, pod.name))
        return cls(key, on_domain)

    def holds(self, pod: PodPlace) -> bool:
        """True if another pod that the term selects is in the same domain."""
        there = self.pods.get((pod.node or {}).get(self.key, ""), set())
        return bool(there - {(pod.namespace, pod.name)})


def _verdict(matched: Sequence[Match], faults: Sequence[Fault]) -> tuple[str, str, str]:
    if faults:
        return FALSE, INVALID_SELECTOR, "; ".join(map(str, faults))
    if not matched:
        return FALSE, NOTHING_MATCHES, "no PodGangSet of this namespace has pods that spec.selector matches"
    waiting = [match.name for match in matched if not match.applied_as]
    apart = "; each is a gang of its own" if len(matched) > 1 else ""
    if waiting:
        message = f"waits for the next rollout of {', '.join(waiting)}; annotation {APPLY}: now rolls it out at once"
        return FALSE, WAITING_FOR_ROLLOUT, message + apart
    return TRUE, APPLIED, f"in effect on {many(len(matched), 'PodGangSet')}{apart}"
