"""A gang against a snapshot as numbers: candidate nodes in topology order, free amounts, options, parts with levels.

Everything the search needs and nothing more: rows where no pod of the gang could go are left out, names are gone. An
option is one way to place one class of pods: its request (or an alternative one), its mask, its limit on a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask, running_sum
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.cluster.topology import Tree
from grove.scheduler.filters.fit import PLENTY, allowed_mask, open_mask, open_rows, pod_slots, suitability
from grove.scheduler.filters.pod_relations import PodRelations
from grove.scheduler.model.answers import NoFit
from grove.scheduler.model.facts import HOSTNAME, PodFacts, Shape
from grove.scheduler.model.gang import Branch, Gang, Pin, PodGroup, leaves_of
from grove.scheduler.model.reasons import MISSING_PODS, NO_NODE, UNKNOWN_LEVEL, Reason


@dataclass(slots=True)
class Option:
    group: int
    kind: int
    """Index of the class inside its group."""
    request: Ints
    mask: Mask | None
    """Candidate rows where it may go, None for all."""
    limit: int
    """Most pods of it on one node, capacity aside."""
    suitability: Ints | None = None
    """How much each candidate row is liked."""
    rather_apart: bool = False
    """Whether its pods would rather not share a host."""
    shape: Shape = field(default_factory=Shape)


@dataclass(slots=True)
class Group:
    name: str
    need: int
    classes: list[list[PodFacts]]
    options: list[int] = field(default_factory=list)
    earlier_nodes: dict[int, int] = field(default_factory=dict)
    """Candidate rows that pods of the group left, and how many did."""
    pods_at: Ints | None = None
    """Positions, in the tree's order, of nodes where pods of the group run."""

    @property
    def pending(self) -> int:
        return sum(map(len, self.classes))


@dataclass(slots=True)
class Part:
    """A node of the gang's tree. Levels are indices into the tree's keys, -1 for none."""

    name: str
    required_level: int
    preferred_level: int
    children: list[Part]
    groups: list[int]
    need: int
    pinned_domains: frozenset[int] | None = None
    """Domains at `required_level` that running pods pin it to."""
    pods_at: Ints | None = None
    """Positions, in the tree's order, of nodes where its pods run or ran; those of the part around it if it has none.
    None if all around it is new."""
    has_running_pods: bool = False
    """Whether any pod of it runs."""

    @property
    def is_leaf(self) -> bool:
        return not self.children

    def walk(self) -> Iterator[Part]:
        """The part and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def preferring(self) -> list[Part]:
        """The part and those below it that prefer a level, as far as they have something to place."""
        return [part for part in self.walk() if part.preferred_level >= 0 and part.need > 0]


@dataclass(slots=True)
class Segments:
    """Domains of one level over the candidate rows: each is the run from start to end."""

    starts: Ints
    ends: Ints
    ids: Ints

    @property
    def size(self) -> int:
        return int(self.starts.size)

    def inside(self, low: int, high: int) -> Segments:
        """The domains inside a run."""
        first, last = self.starts.searchsorted((low, high)).tolist()
        return Segments(self.starts[first:last], self.ends[first:last], self.ids[first:last])

    def only(self, chosen: Ints | Mask) -> Segments:
        return Segments(self.starts[chosen], self.ends[chosen], self.ids[chosen])


class Problem:
    """See the module's first lines. Arrays over candidates are in topology order; `rows` leads back to the snapshot."""

    def __init__(self, snapshot: Snapshot, gang: Gang, tree: Tree) -> None:
        self.snapshot, self.gang, self.tree = snapshot, gang, tree
        self.groups: list[Group] = []
        self.options: list[Option] = []
        self.rows: Ints = tree.order
        self.positions: Ints = np.arange(tree.order.size)
        """Positions of the candidate rows in the tree's order."""
        self.free: Ints = np.zeros((0, 0), dtype=np.int64)
        self.resources: list[int] = []
        self.conflicts: list[list[int]] = []
        """Options that may not share a node with this one."""
        self.coupled = False
        """Whether placing one pod changes where others may go in ways the masks cannot say."""
        self.cost: Ints | None = None
        """What using a row destroys, for preemption; rows are taken in this order first."""
        self.is_new = not gang.former and not any(group.bound or group.earlier_nodes for group in gang.groups())
        """Whether nothing of the gang runs or ran anywhere."""
        self.steps_used = 0
        """Work spent on the problem so far, by whatever search."""
        self._segments: dict[int, Segments] = {}
        self._idle: dict[tuple[int, int], Ints] = {}
        self.root: Part

    @property
    def size(self) -> int:
        return int(self.rows.size)

    def least_request(self, group: int) -> Ints:
        """The least of each resource that any pod of the group asks for: no mix of its pods fits better than these."""
        least: Ints = np.min([self.options[o].request for o in self.groups[group].options], axis=0)
        return least

    def as_chosen(self, pod: PodFacts, option: int) -> PodFacts:
        """The pod with the request set of the option chosen for it, where it had alternatives."""
        shape = pod.shape
        if not shape.alternatives:
            return pod
        chosen = self.options[option]
        same_class = [o for o in self.groups[chosen.group].options if self.options[o].kind == chosen.kind]
        requests = (shape.requests, *shape.alternatives)[same_class.index(option)]
        return pod.asking(requests=requests, alternatives=())

    @contextmanager
    def surplus_needed(self) -> Iterator[None]:
        """Inside, pods above the minimum must be placed as those below."""
        needed = [group.need for group in self.groups]
        self._set_needs([group.pending for group in self.groups])
        try:
            yield
        finally:
            self._set_needs(needed)

    def _set_needs(self, needed: list[int]) -> None:
        for group, need in zip(self.groups, needed, strict=True):
            group.need = need
        for part in self.root.walk():
            part.need = sum(needed[g] for g in part.groups)

    def segments(self, level: int) -> Segments:
        """Domains of a level; -1 is the whole cluster as one."""
        segments = self._segments.get(level)
        if segments is None:
            if level >= 0:
                starts, ends, ids = self.tree.runs[level]
            else:
                starts, ends, ids = np.array([0]), np.array([self.tree.order.size]), np.array([0])
            if self.size < self.tree.order.size:
                starts, ends = self.positions.searchsorted(starts), self.positions.searchsorted(ends)
                some = starts < ends
                starts, ends, ids = starts[some], ends[some], ids[some]
            segments = self._segments[level] = Segments(starts, ends, ids)
        return segments

    def idle_in(self, option: int, level: int, domains: Segments) -> Ints:
        """Capacity for the option in some domains of a level if nothing ran there, nodes that are full now included."""
        return self.idle(option, level)[self.tree.runs[level][2].searchsorted(domains.ids)]

    def idle(self, option: int, level: int) -> Ints:
        """The same for all domains of a level, candidates or not."""
        slots = self._idle.get((option, level))
        if slots is None:
            o = self.options[option]
            asked = tuple(zip(self.resources, o.request.tolist(), strict=True))
            slots = self._idle[option, level] = self.idle_for(o.shape, asked, level, o.limit)
        return slots

    def idle_for(self, shape: Shape, asked: tuple[tuple[int, int], ...], level: int, limit: int = PLENTY) -> Ints:
        """Capacity for pods of a shape in each domain of a level if nothing ran; `asked` is (resource row, amount)."""
        snapshot, tree = self.snapshot, self.tree
        starts, ends, _ = tree.runs[level]

        def sums() -> Ints:
            """Running sums in topology order: one pass serves all levels."""
            capacity = snapshot.allocatable[np.array([r for r, _ in asked], dtype=np.int64)[:, None], tree.order]
            slots = np.minimum(pod_slots(capacity, np.array([amount for _, amount in asked], dtype=np.int64)), limit)
            return running_sum(slots * allowed_mask(snapshot, shape)[tree.order])

        key = ("idle", tree.keys, shape, limit, asked)
        running = snapshot.nodes.derived(key, sums, by_amounts=True)
        counts: Ints = running[ends] - running[starts]
        return counts


def state_problem(
    snapshot: Snapshot, gang: Gang, closed: Collection[str] = (), free: Ints | None = None, cost: Ints | None = None
) -> Problem | NoFit:
    """The problem, or the answer if it is one at a glance. `free` and `cost` replace the snapshot's, for what-ifs."""
    for group in gang.groups():
        if group.missing:
            numbers = {"minimum": group.minimum, "pods": len(group.pods) + len(group.bound)}
            return NoFit(gang.name, Reason(MISSING_PODS, group.name, numbers), True, version=snapshot.version)
    keys = gang.keys()
    unknown = {key for key in keys if key != HOSTNAME and not _is_carried(snapshot, key)}
    if missing := unknown & gang.required_keys():
        return NoFit(gang.name, Reason(UNKNOWN_LEVEL, min(missing)), True, version=snapshot.version)
    tree = snapshot.tree(keys - unknown, gang.topology)
    problem = Problem(snapshot, gang, tree)
    _add_groups(problem, closed, free, cost)
    groups = iter(range(len(problem.groups)))
    former = None
    if not problem.is_new:
        _find_earlier_nodes(problem)
        former = positions_of(problem, sorted(gang.former))
    problem.root = _part(problem, gang.root, groups.__next__, -1, former)
    if problem.size == 0 and problem.root.need > 0:
        return NoFit(gang.name, Reason(NO_NODE), True, version=snapshot.version)
    return problem


def _is_carried(snapshot: Snapshot, key: str) -> bool:
    """True if a node has this label."""
    return bool((snapshot.nodes.column(key).ids[: snapshot.nodes.rows] >= 0).any())


def _add_groups(problem: Problem, closed: Collection[str], free: Ints | None, cost: Ints | None) -> None:
    """Groups and their options, on the rows where any of them has capacity."""
    snapshot, gang = problem.snapshot, problem.gang
    scope = open_rows(snapshot, gang, closed)
    relations = PodRelations(snapshot, [pod for group in gang.groups() for pod in group.pods])
    problem.coupled = relations.coupled
    masks: list[Mask] = []
    amounts: list[tuple[tuple[int, int], ...]] = []
    for index, group in enumerate(gang.groups()):
        classes = relations.classes(group.pods)
        entry = Group(group.name, group.need, classes, pods_at=positions_of(problem, group.bound))
        problem.groups.append(entry)
        for kind, pods in enumerate(classes):
            shape = pods[0].shape
            mask = open_mask(snapshot, shape)
            for narrower in (scope, relations.mask(pods[0])):
                mask = mask if narrower is None else mask & narrower
            limit = 1 if relations.apart_from_itself(pods[0]) else group.most_on_host or PLENTY
            liked, apart = suitability(snapshot, shape), relations.rather_apart(pods[0])
            for requests in (shape.requests, *shape.alternatives):
                entry.options.append(len(problem.options))
                problem.options.append(
                    Option(index, kind, np.zeros(0, dtype=np.int64), None, limit, liked, apart, shape)
                )
                amounts.append(snapshot.amounts(requests))
                masks.append(mask)
    # Only now: a resource that no pod requested before has a row of its own now.
    _keep_candidates(problem, masks, amounts, snapshot.free if free is None else free, cost)
    firsts = [problem.groups[o.group].classes[o.kind][0] for o in problem.options]
    problem.conflicts = relations.conflicts(firsts)


def _keep_candidates(
    problem: Problem, masks: list[Mask], amounts: list[tuple[tuple[int, int], ...]], free: Ints, cost: Ints | None
) -> None:
    """Drops the rows where no option has capacity, and brings the rest into topology order."""
    problem.resources = sorted({r for asked in amounts for r, amount in asked if amount > 0})
    at = {r: i for i, r in enumerate(problem.resources)}
    useful = np.zeros(problem.snapshot.nodes.rows, dtype=np.bool_)
    seen: dict[bytes, Mask] = {}
    for option, asked, mask in zip(problem.options, amounts, masks, strict=True):
        option.request = np.zeros(len(at), dtype=np.int64)
        fits = mask.copy()
        for r, amount in asked:
            if amount > 0:
                option.request[at[r]] = amount
                fits &= free[r, : fits.size] >= amount
        useful |= fits
    order = problem.tree.order
    problem.positions = useful[order].nonzero()[0]
    problem.rows = rows = order[problem.positions]
    problem.free = free[np.array(problem.resources, dtype=np.int64)[:, None], rows]
    problem.cost = None if cost is None else cost[rows]
    for option, mask in zip(problem.options, masks, strict=True):
        inside = mask[rows]
        if not inside.all():
            option.mask = seen.setdefault(inside.tobytes(), inside)
        if option.suitability is not None:
            liked = option.suitability[rows]
            option.suitability = liked if liked.size and liked.min() < liked.max() else None


def _find_earlier_nodes(problem: Problem) -> None:
    """Former nodes of the groups as candidate rows, for those that are candidates."""
    row_of = problem.snapshot.nodes.row_of
    for entry, group in zip(problem.groups, problem.gang.groups(), strict=True):
        if group.earlier_nodes:
            left = Counter(row_of[name] for name in group.earlier_nodes if name in row_of)
            at = np.isin(problem.rows, list(left)).nonzero()[0]
            entry.earlier_nodes = {int(i): left[int(problem.rows[i])] for i in at}


def positions_of(problem: Problem, names: Iterable[str]) -> Ints | None:
    """Positions, in the tree's order, of those of the nodes that are there; None if none is."""
    row_of, position = problem.snapshot.nodes.row_of, problem.tree.position
    positions = [position[row_of[name]] for name in names if name in row_of]
    return np.unique(np.array(positions, dtype=np.int64)) if positions else None


def _part(
    problem: Problem, part: Branch | PodGroup, next_group: Callable[[], int], above: int, around: Ints | None
) -> Part:
    """The numeric twin of a tree node. A level no narrower than one above it holds by itself and becomes a mask."""
    tree = problem.tree
    stated = tree.find_level(part.required) if part.required else None
    prefer = tree.find_level(part.preferred) if part.preferred else None
    if prefer is not None and tree.runs[prefer][0].size == 0:
        prefer = None  # no node carries the label: nowhere is closer together than anywhere else
    level = -1 if stated is None or stated <= above else stated
    inner = max(level, above)
    children: list[Part] = []
    bound: tuple[str, ...] = ()
    pods_at = around
    if not problem.is_new:
        leaves = list(leaves_of(part))
        bound = tuple(node for leaf in leaves for node in leaf.bound)
        own = positions_of(problem, (*bound, *(node for leaf in leaves for node in leaf.earlier_nodes)))
        pods_at = around if own is None else own
    if isinstance(part, PodGroup):
        groups = [next_group()]
    else:
        children = [_part(problem, child, next_group, inner, pods_at) for child in part.children]
        groups = [g for child in children for g in child.groups]
    need = sum(problem.groups[g].need for g in groups)
    pins = None if stated is None else _pinned(problem, bound, stated)
    if stated is not None and level < 0:
        _confine(problem, groups, problem.tree.domains[stated][problem.positions], pins)
    if part.within:
        _keep_within(problem, groups, part.within)
    return Part(
        part.name,
        level,
        -1 if prefer is None or prefer <= inner else prefer,
        children,
        groups,
        need,
        pins if level >= 0 else None,
        pods_at,
        bool(bound),
    )


def _keep_within(problem: Problem, groups: list[int], pins: tuple[Pin, ...]) -> None:
    """Keeps groups to the nodes of these domains, which are of one level."""
    level = problem.tree.find_level(pins[0].key)
    at = positions_of(problem, [pin.node for pin in pins])
    if level is not None and at is not None:
        domains = problem.tree.domains[level]
        _confine(problem, groups, domains[problem.positions], frozenset(domains[at].tolist()))


def _confine(problem: Problem, groups: list[int], domains: Ints, pins: frozenset[int] | None) -> None:
    """Keeps groups to nodes that are in some domain, or in the pinned ones; `domains` is by candidate row."""
    inside = domains >= 0 if pins is None else np.isin(domains, sorted(pins))
    if inside.all():
        return
    for option in (problem.options[o] for g in groups for o in problem.groups[g].options):
        option.mask = inside if option.mask is None else option.mask & inside


def _pinned(problem: Problem, bound: tuple[str, ...], level: int) -> frozenset[int] | None:
    """Domains that running pods of the part are in. There are several if another scheduler bound them: any of these is
    allowed.
    """
    positions = positions_of(problem, bound)
    if positions is None:
        return None
    return frozenset(problem.tree.domains[level][positions].tolist()) - {-1} or None
