"""A set as a tree: set → replica → groups and cliques → pods, each with its counts, its place and what is wrong.

Pure: from objects to values. A branch has the reason of its worst leaf, so the first line of a set says why the set
does not run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from grove.api import conditions as words
from grove.api import kueue, labels
from grove.api.core import Pod
from grove.api.draining import is_draining
from grove.api.hashes import is_outdated
from grove.api.meta import Key, find_condition
from grove.api.pod import ContainerTermination, ContainerWaiting, PodHealth, container_health, pod_health
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.startorder import READY
from grove.api.words import many
from grove.diagnosis.draining import drain_words
from grove.diagnosis.held_capacity import headroom_lines
from grove.diagnosis.kueue import WAITS
from grove.diagnosis.last_words import exit_words, telling_line
from grove.diagnosis.leaving import leaving_words
from grove.diagnosis.revisions import place_of, wanted_hashes
from grove.diagnosis.seen import Seen
from grove.diagnosis.served import hangs, init_at_work, init_words
from grove.diagnosis.words import refusal

if TYPE_CHECKING:  # it brings numpy along, which most trees do not need
    from grove.diagnosis.spreads import SpreadCount

ZERO = "scaled to zero"
MOST_WORDS = 200
"""Characters of a container's own message."""
STARTING = "starting"
"""What is said of a pod that is bound and whose containers say nothing."""


class State(IntEnum):
    """How well a leaf or branch is; lower is worse, so the worst of many is their minimum."""

    FAILED = 0
    PENDING = 1
    GATED = 2
    MISSING = 3
    LEAVING = 4
    STARTING = 5
    READY = 6

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Count:
    """Pods of a branch: how many are wanted and how far they are."""

    wanted: int = 0
    ready: int = 0
    scheduled: int = 0
    updated: int = 0
    gated: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.wanted + other.wanted,
            self.ready + other.ready,
            self.scheduled + other.scheduled,
            self.updated + other.updated,
            self.gated + other.gated,
        )


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One line of the tree. `label` is the name within the parent, `domains` the narrowest domains it stands in."""

    kind: str
    name: str
    label: str
    state: State
    count: Count
    why: str = ""
    gang: str = ""
    score: float | None = None
    node: str = ""
    domains: tuple[str, ...] = ()
    children: tuple[TreeEntry, ...] = field(default=())
    spreads: tuple[SpreadCount, ...] = ()
    """Of the entry of the set: how evenly its replicas, those of its groups and its pods are distributed."""
    headroom: tuple[str, ...] = ()
    """Of the entry of the set: what is held for further replicas, in words."""


def tree_of(seen: Seen, pcs: PodCliqueSet) -> TreeEntry:
    """The whole tree of one set."""
    name = pcs.metadata.name
    builder = _TreeBuilder(seen, pcs)
    replicas = [builder.replica(index) for index in builder.indices()]
    count = _sum(replicas)
    why = _worst(replicas).why if replicas else ""
    if not replicas and pcs.spec.replicas:
        why = _last_error(pcs) or "the operator has not made its children yet; is it running? (doctor)"
    state = min((entry.state for entry in replicas), default=State.READY if not pcs.spec.replicas else State.MISSING)
    if pcs.metadata.is_deleting:
        state, why = State.LEAVING, "is being deleted"
    return TreeEntry(
        "PodCliqueSet",
        name,
        name,
        state,
        count,
        why,
        children=tuple(replicas),
        spreads=_spreads(seen, pcs),
        headroom=headroom_lines(seen.of_set(seen.gangs, pcs)),
    )


def _spreads(seen: Seen, pcs: PodCliqueSet) -> tuple[SpreadCount, ...]:
    if not any(gang.spec.spread_constraints for gang in seen.of_set(seen.gangs, pcs)):
        return ()
    # It imports numpy, and few sets have a spread constraint.
    from grove.diagnosis.spreads import spread_counts  # noqa: PLC0415

    return spread_counts(seen, seen.of_set(seen.gangs, pcs))


def with_reasons(entry: TreeEntry, reasons: Mapping[str, str]) -> TreeEntry:
    """The tree in which pods without a node have the reason of their gang, so that it agrees with what stands above.

    The scheduler wrote its own reason on the objects earlier, when other capacity was free.
    """
    if entry.kind == "Pod":
        reason = reasons.get(entry.gang, "") if entry.state is State.PENDING else ""
        return replace(entry, why=reason) if reason else entry
    children = tuple(with_reasons(child, reasons) for child in entry.children)
    before = [child.why for child in entry.children]
    why = children[before.index(entry.why)].why if entry.why in before else entry.why
    return replace(entry, why=why, children=children)


def with_leaves(entry: TreeEntry, names: Collection[str]) -> TreeEntry | None:
    """The branches that lead to these pods, or to these cliques if they have no pods; None if there are none."""
    if not entry.children:
        return entry if entry.name in names else None
    children = tuple(branch for child in entry.children if (branch := with_leaves(child, names)) is not None)
    return replace(entry, children=children) if children else None


class _TreeBuilder:
    def __init__(self, seen: Seen, pcs: PodCliqueSet) -> None:
        self._seen, self._pcs = seen, pcs
        constraint = pcs.spec.template.topology_constraint
        self._levels = seen.levels(constraint.topology_name if constraint else "")
        self._cliques = seen.of_set(seen.cliques, pcs)
        self._groups = seen.of_set(seen.groups, pcs)
        self._order = {clique.name: i for i, clique in enumerate(pcs.spec.template.cliques)}
        self._hashes = wanted_hashes(pcs)

    def indices(self) -> list[int]:
        there = {_number(obj.metadata.labels.get(labels.REPLICA_INDEX)) for obj in (*self._cliques, *self._groups)}
        return sorted(there | set(self._pcs.indexes) - {-1}) if there else []

    def replica(self, index: int) -> TreeEntry:
        name = f"{self._pcs.metadata.name}-{index}"
        alone = [
            clique for clique in self._of(self._cliques, index) if labels.SCALING_GROUP not in clique.metadata.labels
        ]
        alone.sort(key=lambda clique: self._rank(clique, name))
        children = [self.clique(clique, f"{name}-") for clique in alone]
        children += [self.group(group, f"{name}-") for group in self._of(self._groups, index)]
        gang = self._seen.gang_of.get(Key(self._pcs.metadata.namespace, name))
        return self._branch("Replica", name, f"replica {index}", children, gang)

    def group(self, group: PodCliqueScalingGroup, prefix: str) -> TreeEntry:
        name = group.metadata.name
        members: dict[int, list[PodClique]] = {}
        for clique in self._cliques:
            if clique.metadata.labels.get(labels.SCALING_GROUP) == name:
                index = _number(clique.metadata.labels.get(labels.SCALING_GROUP_REPLICA_INDEX))
                members.setdefault(index, []).append(clique)
        copies = []
        for index in sorted(members.keys() | set(group.indexes)):
            own = f"{name}-{index}"
            cliques = sorted(members.get(index, ()), key=lambda clique: self._rank(clique, own))
            entries = [self.clique(clique, f"{own}-") for clique in cliques]
            gang = self._gang_of(cliques)
            copies.append(self._branch("GroupReplica", own, str(index), entries, gang))
        entry = self._branch("PodCliqueScalingGroup", name, name.removeprefix(prefix), copies, None)
        return replace(entry, state=State.READY, why=ZERO) if not copies and not group.spec.replicas else entry

    def clique(self, clique: PodClique, prefix: str) -> TreeEntry:
        key = clique.metadata.key
        pods = sorted(self._seen.pods_of_clique.get(key, ()), key=lambda pod: (_index(pod), pod.metadata.name))
        entries = [self.pod(pod, clique) for pod in pods]
        staying = [entry for entry in entries if entry.state is not State.LEAVING]
        draining = [entry for entry, pod in zip(entries, pods, strict=True) if _drains(pod)]
        wanted = clique.spec.replicas if not self._is_scaled_in(clique) else 0
        count = Count(
            wanted,
            sum(entry.count.ready for entry in staying),
            sum(entry.count.scheduled for entry in staying),
            self._updated(clique, pods),
            sum(entry.count.gated for entry in staying),
        )
        state, why = min((entry.state for entry in staying), default=State.READY), ""
        if staying and state is not State.READY:
            why = _worst(staying).why
        missing = wanted - len(staying) - len(draining)
        if missing > 0 and state > State.MISSING:
            state, why = (
                State.MISSING,
                f"{missing} of {many(wanted, 'pod')} {'does' if missing == 1 else 'do'} not exist yet",
            )
        elif draining and state > State.LEAVING:
            state, why = State.LEAVING, draining[0].why
        if missing > 0 and state is not State.FAILED:
            why = _last_error(clique) or why  # what keeps pods from being made keeps the others waiting
        name = clique.metadata.name
        gang = clique.metadata.labels.get(labels.POD_GANG, "")
        return TreeEntry(
            "PodClique",
            name,
            name.removeprefix(prefix),
            state,
            count,
            why,
            gang,
            domains=self._domains(pods),
            children=tuple(entries),
        )

    def _updated(self, clique: PodClique, pods: Iterable[Pod]) -> int:
        """Pods from the template that the set has now, as `rollout status` counts them."""
        place = place_of(clique, self._pcs)
        wanted = self._hashes.get(place.clique)
        if wanted is None:  # the set no longer has such a clique
            return clique.status.updated_replicas
        staying = (pod for pod in pods if not pod.metadata.is_deleting)
        return sum(not is_outdated(self._pcs, pod.metadata.labels, wanted, place.part) for pod in staying)

    def _is_scaled_in(self, clique: PodClique) -> bool:
        """True if the clique drains with its replica, of the set or of its group, and no longer counts."""
        own = clique.metadata.labels
        places = [(self._pcs.status.draining, labels.REPLICA_INDEX)]
        group = next((group for group in self._groups if group.metadata.name == own.get(labels.SCALING_GROUP)), None)
        if group is not None:
            places.append((group.status.draining, labels.SCALING_GROUP_REPLICA_INDEX))
        return any(entry.replica_index == _number(own.get(label)) for entries, label in places for entry in entries)

    def pod(self, pod: Pod, clique: PodClique) -> TreeEntry:
        name, node = pod.metadata.name, pod.spec.node_name
        state, why = self._pod_state(pod, clique)
        is_ready = pod_health(pod) is PodHealth.READY and not _drains(pod)
        count = Count(1, int(is_ready), int(pod.is_bound), 0, int(pod.is_gated))
        gang = pod.metadata.labels.get(labels.POD_GANG, "")
        return TreeEntry("Pod", name, name, state, count, why, gang, node=node, domains=self._domains([pod]))

    def _pod_state(self, pod: Pod, clique: PodClique) -> tuple[State, str]:
        node = self._seen.node_of.get(pod.spec.node_name)
        is_lost = bool(pod.spec.node_name and self._seen.nodes) and (node is None or not node.is_ready)
        lost = f"node {pod.spec.node_name} " + ("is gone" if node is None else "does not answer")
        if pod.metadata.is_deleting:
            return State.LEAVING, lost if is_lost else leaving_words(pod, self._seen.now)
        if _drains(pod) and not is_lost:
            return State.LEAVING, drain_words(pod, self._seen.now)
        if pod.is_finished:
            return State.FAILED, pod.status.message or f"ended: {pod.status.reason or pod.status.phase}"
        health = pod_health(pod)
        if health is PodHealth.READY:
            return State.READY, ""
        if is_lost:
            return State.FAILED, lost
        if pod.is_gated:
            return State.GATED, self._gate_reason(pod)
        if not pod.is_bound:
            return State.PENDING, self._pending_reason(pod)
        if health in _IN_TROUBLE or hangs(pod):
            return State.FAILED, _trouble(pod)
        blocked = find_condition(pod.status.conditions, words.POD_STARTUP_BLOCKED)
        if blocked is not None and blocked.status == words.TRUE and blocked.message:
            return State.STARTING, f"waits for {blocked.message.replace('=', ' ')}"
        if any(
            status.name == labels.STARTUP_CONTAINER and status.state.running
            for status in pod.status.init_container_statuses
        ):
            after = ", ".join(clique.spec.starts_after)
            condition = "" if clique.spec.start_condition == READY else f" is {clique.spec.start_condition}"
            return State.STARTING, f"starts after {after}{condition}" if after else "waits for the cliques before it"
        init = init_at_work(pod)
        return State.STARTING, init_words(init, self._seen.now) if init is not None else STARTING

    def _gate_reason(self, pod: Pod) -> str:
        base = pod.metadata.labels.get(labels.BASE_POD_GANG, "")
        gang = self._seen.gang_of.get(Key(pod.metadata.namespace, base)) if base else None
        if gang is not None and not _holds(gang, words.SCHEDULED):
            return f"waits for its base gang {base} to be scheduled"
        if kueue.waits(pod):
            return f"{WAITS} to admit it"
        others = [gate.name for gate in pod.spec.scheduling_gates if gate.name != labels.POD_GANG_GATE]
        if others:
            return f"held by scheduling gate {', '.join(others)}"
        return "waits until all pods of its gang exist"

    def _pending_reason(self, pod: Pod) -> str:
        name = pod.metadata.labels.get(labels.POD_GANG, "")
        gang = self._seen.gang_of.get(Key(pod.metadata.namespace, name))
        scheduled = find_condition(gang.status.conditions, words.SCHEDULED) if gang is not None else None
        if scheduled is not None and scheduled.status != words.TRUE and scheduled.message:
            return scheduled.message
        condition = find_condition(pod.status.conditions, "PodScheduled")
        if condition is not None and condition.message:
            return condition.message
        if gang is not None and scheduled is None and _holds(gang, words.INITIALIZED):
            scheduler = gang.metadata.labels.get(labels.SCHEDULER_NAME) or labels.GROVE_SCHEDULER
            return f"{scheduler} has not said anything about it yet"
        return "no node yet"

    def _branch(
        self, kind: str, name: str, label: str, children: Sequence[TreeEntry], gang: PodGang | None
    ) -> TreeEntry:
        state = min((entry.state for entry in children), default=State.MISSING)
        why = _worst(children).why if children and state is not State.READY else ""
        if not children:
            why = "not made yet"
        if not why and gang is not None and _holds(gang, words.TOPOLOGY_NOT_HONOURED):
            why = "its pods span a required topology domain"
        domains = _narrowest_common([pod for entry in children for pod in _pods(entry)], self._seen, self._levels)
        score = gang.status.placement_score if gang else None
        own = gang.metadata.name if gang else ""
        return TreeEntry(kind, name, label, state, _sum(children), why, own, score, "", domains, tuple(children))

    def _domains(self, pods: Iterable[Pod]) -> tuple[str, ...]:
        paths = (self._seen.path(pod.spec.node_name, self._levels) for pod in pods if pod.spec.node_name)
        return tuple(sorted({path[-1] for path in paths if path and path[-1]}))

    def _gang_of(self, cliques: Sequence[PodClique]) -> PodGang | None:
        for clique in cliques:
            name = clique.metadata.labels.get(labels.POD_GANG, "")
            if name:
                return self._seen.gang_of.get(Key(clique.metadata.namespace, name))
        return None

    def _rank(self, clique: PodClique, prefix: str) -> tuple[int, str]:
        own = clique.metadata.name.removeprefix(f"{prefix}-")
        return self._order.get(own, len(self._order)), own

    @staticmethod
    def _of(kind: Sequence, index: int) -> list:  # type: ignore[type-arg]
        return [obj for obj in kind if _number(obj.metadata.labels.get(labels.REPLICA_INDEX)) == index]


def _narrowest_common(entries: Sequence[TreeEntry], seen: Seen, levels: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The narrowest domain that holds all the pods, or the broadest ones they are spread over."""
    paths = {seen.path(entry.node, levels) for entry in entries if entry.node}
    for level in reversed(range(len(levels))):
        values = {path[level] for path in paths}
        if len(values) == 1 and "" not in values:
            return tuple(values)
    return tuple(sorted({path[0] for path in paths if path and path[0]}))


def _pods(entry: TreeEntry) -> list[TreeEntry]:
    if entry.kind == "Pod":
        return [entry] if entry.state is not State.LEAVING else []
    return [pod for child in entry.children for pod in _pods(child)]


def _worst(entries: Sequence[TreeEntry]) -> TreeEntry:
    return min(entries, key=lambda entry: (entry.state, entry.name))


def _sum(entries: Iterable[TreeEntry]) -> Count:
    return sum((entry.count for entry in entries), Count())


def _holds(gang: PodGang, type_: str) -> bool:
    condition = find_condition(gang.status.conditions, type_)
    return condition is not None and condition.status == words.TRUE


def _last_error(obj: PodCliqueSet | PodClique) -> str:
    return refusal(obj.status.last_errors[0].description) if obj.status.last_errors else ""


_IN_TROUBLE = (PodHealth.FAILED, PodHealth.CRASHING, PodHealth.ENDED, PodHealth.STUCK)


def _trouble(pod: Pod) -> str:
    """The message of the worst container of an unhealthy pod, and the number of its restarts."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    health = pod_health(pod)
    status = next(container for container in statuses if container_health(pod, container) is health)
    waiting, ended = status.state.waiting, status.state.terminated or status.last_state.terminated
    if waiting is not None and waiting.reason:
        words = waiting.reason
        if waiting.reason == "CrashLoopBackOff" and ended is not None:
            words += f", ended with {exit_words(ended.exit_code, ended.reason)}"
    else:
        words = f"ended with {exit_words(ended.exit_code, ended.reason)}" if ended is not None else health.value
        if status.state.running is not None:
            words = f"{words} and is not ready since" if ended is not None else "runs and is not ready"
    restarts = f", {many(status.restart_count, 'restart')}" if status.restart_count else ""
    return f"{status.name}: {words}{restarts}{_own_words(health, waiting, ended)}"


def _own_words(health: PodHealth, waiting: ContainerWaiting | None, ended: ContainerTermination | None) -> str:
    """The kubelet's message on a container that it cannot start, or the text that a container wrote before it ended.

    A container's message is the end of its log where `terminationMessagePolicy` is FallbackToLogsOnError.
    """
    if health is PodHealth.STUCK and waiting is not None:
        text = telling_line(waiting.message)
    else:
        text = telling_line(ended.message) if ended is not None else ""
        if ended is not None and ended.reason not in ("", "Error", "Completed"):
            text = f"{ended.reason}. {text}".rstrip(". ")
    return f": {text[:MOST_WORDS]}" if text else ""


def _drains(pod: Pod) -> bool:
    return is_draining(pod) and not pod.metadata.is_deleting and not pod.is_finished


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else -1


def _index(pod: Pod) -> int:
    return _number(pod.metadata.labels.get(labels.POD_INDEX))
