"""A gang as a tree: the whole, branches that share a constraint, pod groups at the leaves.

`build_gang` makes it from a PodGang and its pods. A constraint names a
node label: all core pods below it must (required) or should (preferred) share one value of that label's level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from grove.api.meta import Key
from grove.api.podgang import GangSpreadConstraint, GangTopologyConstraint, PodGang
from grove.api.selector import of_labels
from grove.api.topology import DO_NOT_SCHEDULE
from grove.scheduler.model.facts import PodFacts, PodScope, Shape

Strategy = Literal["pack", "spread"]


class BadGang(ValueError):
    """The PodGang contradicts itself or names what does not exist; the text says how."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The domain at level `key` that holds this node."""

    key: str
    node: str


@dataclass(frozen=True, slots=True)
class UnitSpread:
    """Units (replicas, or single pods) that are distributed over the domains of level `key`."""

    key: str
    max_skew: int
    is_required: bool
    """Whether a unit waits rather than exceed the skew."""
    scope: PodScope
    """The pods that count."""
    unit_label: str
    """Pods in scope with the same value of this label are one unit; empty if every pod is one."""
    units: tuple[tuple[str, tuple[str, ...]], ...]
    """Units of this gang with the names of their pod groups. For pods: one entry without a name for each group."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods of which `minimum` must run. `pods` are pending, `bound` are the nodes of those that have one."""

    name: str
    minimum: int
    pods: tuple[PodFacts, ...] = ()
    bound: tuple[str, ...] = ()
    required: str = ""
    preferred: str = ""
    standing: tuple[tuple[Shape, int], ...] = ()
    """What the bound pods ask for, and how many of each kind they are."""
    earlier_nodes: tuple[str, ...] = ()
    """Nodes that pods of the group left and that its pending ones go back to if they can, one for each that left."""
    within: tuple[Pin, ...] = ()
    """Domains that the pending pods may go to; all if empty."""
    most_on_host: int = 0
    """Most of the pending pods on one host; no limit if 0."""

    @property
    def need(self) -> int:
        """Pending pods that must be placed for the gang to count as placed."""
        return max(0, self.minimum - len(self.bound))

    @property
    def missing(self) -> int:
        """Pods that the minimum needs and that do not exist."""
        return max(0, self.need - len(self.pods))


@dataclass(frozen=True, slots=True)
class Branch:
    name: str
    children: tuple[Branch | PodGroup, ...]
    required: str = ""
    preferred: str = ""
    within: tuple[Pin, ...] = ()
    """Domains that the pending pods may go to; all if empty."""


@dataclass(frozen=True, slots=True)
class Gang:
    name: str
    root: Branch
    priority: int = 0
    may_preempt: bool = True
    topology: str = ""
    """Which topology's levels are meant, when a key is in several."""
    pinned_domain: Pin | None = None
    """Where the gang must go: the base gang's domain, for a scaled gang under a constraint of the whole replica."""
    allowed: tuple[tuple[str, frozenset[str]], ...] = ()
    """Label values the nodes must have, by key: domains a policy opens to this gang."""
    headroom: tuple[tuple[Shape, int], ...] = ()
    """Pods that join later (scaled gangs): a domain with capacity for them too is preferred."""
    strategy: Strategy = "pack"
    former: frozenset[str] = frozenset()
    """Nodes of a gang whose place this one may take over: it goes there if it fits there whole."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The PodGang's own; policies go by them and by its pods'."""
    spreads: tuple[UnitSpread, ...] = ()
    """How its units are distributed over domains."""

    def groups(self) -> Iterator[PodGroup]:
        return leaves_of(self.root)

    @property
    def sees_pods(self) -> bool:
        """True if the places of other pods limit the places of the gang's pending pods."""
        return bool(self.spreads) or any(pod.shape.sees_pods for group in self.groups() for pod in group.pods)

    def keys(self) -> set[str]:
        """Level keys the gang speaks of."""
        parts = parts_of(self.root)
        preferred = {part.preferred for part in parts if part.preferred}
        within = {pin.key for part in parts for pin in part.within[:1]}
        return self.required_keys() | preferred | within | {spread.key for spread in self.spreads}

    def required_keys(self) -> set[str]:
        """Level keys without which the gang has no place."""
        pin = {self.pinned_domain.key} if self.pinned_domain else set()
        spread = {spread.key for spread in self.spreads if spread.is_required}
        return {part.required for part in parts_of(self.root) if part.required} | pin | spread

    def with_part(self, part: Branch | PodGroup, **changes: object) -> Gang:
        """The gang with one part of its tree changed."""
        return self._mapped(lambda own: replace(own, **changes) if own is part else own)  # type: ignore[arg-type]

    def wanting_all(self) -> Gang:
        """The gang as if its minimum were all its pods that exist: those above the minimum must be placed too."""
        return self._mapped(
            lambda part: replace(part, minimum=len(part.bound) + len(part.pods)) if isinstance(part, PodGroup) else part
        )

    def with_other(self, part: Branch | PodGroup, other: Branch | PodGroup) -> Gang:
        """The gang with another part in the place of this one."""
        return self._mapped(lambda own: other if own is part else own)

    def with_pods(self, changed: Mapping[str, PodFacts | None]) -> Gang:
        """The gang with other facts for some of its waiting pods, by uid; None leaves one out."""

        def renewed(part: Branch | PodGroup) -> Branch | PodGroup:
            if isinstance(part, Branch):
                return part
            pods = (changed.get(pod.uid, pod) for pod in part.pods)
            return replace(part, pods=tuple(pod for pod in pods if pod is not None))

        return self._mapped(renewed) if changed else self

    def unbound(self, pods: Iterable[PodFacts]) -> Gang:
        """The gang as if its bound pods (given) were pending again: what moving it whole would mean."""
        by_group: dict[str, list[PodFacts]] = {}
        for pod in pods:
            by_group.setdefault(pod.group, []).append(pod.on(""))

        def freed(part: Branch | PodGroup) -> Branch | PodGroup:
            if isinstance(part, Branch):
                return part
            again = tuple(sorted((*part.pods, *by_group.get(part.name, ())), key=_pod_order))
            return replace(part, pods=again, bound=())

        return self._mapped(freed)

    def _mapped(self, change: Callable[[Branch | PodGroup], Branch | PodGroup]) -> Gang:
        """The gang with every part of its tree changed, outer parts first."""

        def mapped(part: Branch | PodGroup) -> Branch | PodGroup:
            part = change(part)
            if isinstance(part, PodGroup):
                return part
            return replace(part, children=tuple(mapped(child) for child in part.children))

        root = mapped(self.root)
        assert isinstance(root, Branch)
        return replace(self, root=root)


def gang_of(name: str, groups: Iterable[Branch | PodGroup]) -> Gang:
    """A gang of these parts, without a constraint or a priority."""
    return Gang(name, Branch(name, tuple(groups)))


def build_gang(
    podgang: PodGang,
    pods: Mapping[Key, PodFacts],
    *,
    priority: int = 0,
    may_preempt: bool = True,
    topology: str = "",
    pinned_domain: Pin | None = None,
    headroom: tuple[tuple[Shape, int], ...] = (),
    strategy: Strategy = "pack",
    former: frozenset[str] = frozenset(),
    earlier_nodes: Mapping[str, tuple[str, ...]] = {},
) -> Gang:
    """The tree of a PodGang; `earlier_nodes` (former nodes) are by group.

    Raises BadGang for groups named twice, unknown groups, and pods that do not exist.
    """
    spec = podgang.spec
    groups: dict[str, PodGroup] = {}
    members_of_group: dict[str, list[PodFacts]] = {}
    for entry in spec.podgroups:
        if entry.name in groups:
            raise BadGang(f"pod group {entry.name!r} is listed twice")
        members = []
        for reference in entry.pod_references:
            pod = pods.get(Key(reference.namespace, reference.name))
            if pod is None:
                raise BadGang(f"pod {reference.namespace}/{reference.name} of group {entry.name!r} does not exist")
            members.append(pod)
        running = [pod for pod in members if not pod.terminating]
        members_of_group[entry.name] = running
        groups[entry.name] = PodGroup(
            entry.name,
            max(0, entry.min_replicas),
            tuple(sorted((pod for pod in running if not pod.node), key=_pod_order)),
            tuple(sorted(pod.node for pod in running if pod.node)),
            *_levels(entry.topology_constraint),
            tuple(Counter(pod.shape for pod in running if pod.node).items()),
            earlier_nodes.get(entry.name, ()),
        )
    children: list[Branch | PodGroup] = []
    branched: set[str] = set()
    for config in spec.topology_constraint_group_configs:
        unknown = [name for name in config.pod_group_names if name not in groups]
        if unknown:
            raise BadGang(f"constraint group {config.name!r} names unknown pod group {unknown[0]!r}")
        twice = [name for name in config.pod_group_names if name in branched]
        if twice:
            raise BadGang(f"pod group {twice[0]!r} is in two constraint groups")
        branched.update(config.pod_group_names)
        members_of = tuple(groups[name] for name in dict.fromkeys(config.pod_group_names))
        children.append(Branch(config.name, members_of, *_levels(config.topology_constraint)))
    children += [group for name, group in groups.items() if name not in branched]
    spreads = tuple(
        _spread(constraint, podgang.metadata.namespace, members_of_group) for constraint in spec.spread_constraints
    )
    alone = Counter(name for spread in spreads if not spread.unit_label for _, names in spread.units for name in names)
    if twice := [name for name, number in alone.items() if number > 1]:
        raise BadGang(f"two spread constraints distribute the pods of group {twice[0]!r}")
    for unit in (set(names) for spread in spreads for _, names in spread.units):
        for config in spec.topology_constraint_group_configs:
            both = unit.intersection(config.pod_group_names)
            if both and not (unit <= both or both.issuperset(config.pod_group_names)):
                raise BadGang(f"constraint group {config.name!r} has pods of several units of a spread constraint")
    key = f"{podgang.metadata.namespace}/{podgang.metadata.name}"
    return Gang(
        key,
        Branch(key, tuple(children), *_levels(spec.topology_constraint)),
        priority,
        may_preempt,
        topology,
        pinned_domain,
        (),
        headroom,
        strategy,
        former,
        podgang.metadata.labels,
        spreads,
    )


def _spread(constraint: GangSpreadConstraint, namespace: str, pods: Mapping[str, list[PodFacts]]) -> UnitSpread:
    """Raises BadGang for unknown groups and for pods of one group in several units."""
    units: dict[str, list[str]] = {}
    named = constraint.pod_group_names or tuple(pods)
    for group in dict.fromkeys(named):
        if group not in pods:
            raise BadGang(f"spread constraint on {constraint.topology_key!r} names unknown pod group {group!r}")
        values = {pod.labels.get(constraint.unit_label, "") for pod in pods[group]}
        if constraint.unit_label and len(values) > 1:
            raise BadGang(f"pods of group {group!r} have several values of {constraint.unit_label!r}")
        if values:
            units.setdefault(min(values), []).append(group)
    return UnitSpread(
        constraint.topology_key,
        max(1, constraint.max_skew),
        constraint.when_unsatisfiable == DO_NOT_SCHEDULE,
        PodScope(of_labels(constraint.match_labels), frozenset((namespace,)), with_terminating=False),
        constraint.unit_label,
        tuple((unit, tuple(names)) for unit, names in sorted(units.items()))
        if constraint.unit_label
        else tuple(("", (name,)) for names in units.values() for name in names),
    )


def _levels(constraint: GangTopologyConstraint | None) -> tuple[str, str]:
    return (constraint.required, constraint.preferred) if constraint else ("", "")


def _pod_order(pod: PodFacts) -> tuple[int, str, str]:
    """By name with numbers in mind: `a-2` before `a-10`, so lower indices get a place first."""
    return (len(pod.name), pod.name, pod.uid)


def leaves_of(part: Branch | PodGroup) -> Iterator[PodGroup]:
    """The pod groups below a part, or itself."""
    if isinstance(part, PodGroup):
        return iter((part,))
    return chain.from_iterable(map(leaves_of, part.children))


def parts_of(part: Branch | PodGroup) -> list[Branch | PodGroup]:
    """A part and all parts below it."""
    parts: list[Branch | PodGroup] = [part]
    for inner in parts:  # the list grows while it is read
        parts += inner.children if isinstance(inner, Branch) else ()
    return parts
