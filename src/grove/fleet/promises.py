"""What must never happen, checked at every write of a run.

Exact: no node holds more GPUs than it has, no team uses more than its limit. Atomic: a gang that is bound in part is
whole, or not bound at all, before its deadline. Caused: a set falls below its minimum only after something from outside
happened to it (a failure, a drain, a crash, a release, a preemption, a move). Minimum: an update alone leaves a
scaling group that can spare an instance at its minimum. Budget: no pod is deleted below a disruption budget unless a
cause from outside explains it. Progress: a gang is not overtaken for ever. `grove.fleet.ending` has the promises of a
run's end.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from grove.api import labels
from grove.api.conditions import EventReason
from grove.api.core import Event, Node, Pod
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.fleet.figures import SERVING, Figures, GangSeen, SetSeen
from grove.sim.store import Change

KEPT_S = 3600.0
"""How much of the past is kept for the replay file, and how long a cause excuses a set."""
OVERTAKEN = 4
"""Progress is broken if gangs behind a gang were given this many times its pods while it waited beyond the limit."""
OUTSIDE, RELEASE, SCALED, EVICTED, DELETED = "outside", "release", "scaled", "evicted", "deleted"
"""Kinds of causes. `outside`: a failure, a drain, a crash. `evicted`: the scheduler preempted or moved a gang."""
_EVICTIONS = (EventReason.GANG_PREEMPTED, EventReason.GANG_MOVING)


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that did not hold."""

    at_s: float
    promise: str
    text: str


class Promises:
    """Follows a store behind `Figures`, which must see a change first."""

    def __init__(
        self,
        figures: Figures,
        *,
        limits: Mapping[str, int],
        deadline_s: float,
        patience_s: float = float("inf"),
        budgets: Mapping[str, int] = MappingProxyType({}),
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        """`budgets` are the pods a set keeps available; `stop` is called when a promise is broken."""
        self._figures, self._limits, self._budgets, self._stop = figures, limits, budgets, stop
        self._deadline_s, self._patience_s = deadline_s, patience_s
        self.broken: list[Broken] = []
        self.past: deque[tuple[float, Resource, Change]] = deque()
        """The writes of the last hour."""
        self._causes: dict[str, dict[str, float]] = defaultdict(dict)
        self._ready: dict[str, set[str]] = defaultdict(set)
        """Ready pods of sets with a budget that are not being deleted."""
        self._bound: dict[str, dict[str, str]] = {}
        """The clique of each bound pod of a gang, by the pod's uid."""
        self._ever: dict[str, dict[str, str]] = {}
        self._minimum: dict[str, dict[str, int]] = {}
        self._partial_s: dict[str, float] = {}
        self._whole: set[str] = set()
        self._used: Counter[str] = Counter()
        self._counted: dict[str, tuple[str, int]] = {}
        self._overtaken: Counter[str] = Counter()
        self._below: dict[str, int] = {}
        self._placed: set[str] = set()

    def cause(self, set_name: str, kind: str) -> None:
        """Something happened to a set that may take instances from it."""
        self._causes[set_name][kind] = self._figures.now_s

    def _has_cause(self, set_name: str, *kinds: str) -> bool:
        known, since_s = self._causes.get(set_name, {}), self._figures.now_s - KEPT_S
        return any(known.get(kind, float("-inf")) >= since_s for kind in kinds)

    def see(self, resource: Resource, change: Change) -> None:
        self._remember(resource, change)
        if resource == Pod.RESOURCE:
            self._see_pod(change)
        elif resource == PodGang.RESOURCE:
            self._see_gang(change)
        elif resource == PodCliqueSet.RESOURCE and change.type != "DELETED":
            self._see_set(change.version.json)
        elif resource == PodCliqueScalingGroup.RESOURCE and change.type == "MODIFIED":
            self._see_group(change)
        elif resource == Node.RESOURCE:
            self._see_node(change)
        elif resource == Event.RESOURCE and change.type != "DELETED":
            self._see_event(change.version.json)
        if self._partial_s:
            self._judge_deadlines()

    def look(self) -> None:
        """Checks what time alone can break; called at regular moments."""
        self._judge_deadlines()
        now_s = self._figures.now_s
        for uid, gang in self._figures.gangs.items():
            if gang.placed_s is None and now_s - gang.arrived_s > self._patience_s:
                self._judge_progress(uid, gang)

    def _judge_deadlines(self) -> None:
        now_s = self._figures.now_s
        for name, since_s in list(self._partial_s.items()):
            if now_s - since_s > self._deadline_s:
                bound = sorted(self._bound.get(name, {}).values())
                self.report("Atomic", f"gang {name} is bound in part for {now_s - since_s:.0f} s: {bound}")
                del self._partial_s[name]

    # Exact

    def _see_pod(self, change: Change) -> None:
        pod = change.version.json
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        over = change.type == "DELETED" or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        was = self._counted.pop(uid, None)
        if was is not None:
            self._used[was[0]] -= was[1]
        seen = self._figures.pods.get(uid)
        if node and not over and seen is not None:
            team = self._figures.teams.get(seen.set_name, "")
            self._counted[uid] = (team, seen.gpus)
            self._used[team] += seen.gpus
            if was is None:
                self._judge_binding(pod["metadata"]["name"], node, team)
        self._count_member(pod, uid, is_bound=bool(node) and not over)
        self._count_ready(pod, uid, is_over=over)

    def _judge_binding(self, pod: str, node: str, team: str) -> None:
        gpus, _, _ = self._figures.nodes.get(node, (0, "", False))
        if self._figures.load[node] > gpus:
            self.report("Exact", f"{pod} overfills {node}: {self._figures.load[node]} of {gpus} GPUs")
        limit = self._limits.get(team)
        if limit is not None and self._used[team] > limit:
            self.report("Exact", f"{pod}: team {team} uses {self._used[team]} of {limit} GPUs")

    # Atomic

    def _see_gang(self, change: Change) -> None:
        gang = change.version.json
        name = gang["metadata"]["name"]
        if change.type == "DELETED":
            for known in (self._minimum, self._partial_s, self._overtaken):
                known.pop(name, None)
            self._placed.discard(gang["metadata"]["uid"])
            return
        self._minimum[name] = {one["name"]: one.get("minReplicas", 0) for one in gang["spec"].get("podgroups") or ()}
        self._judge_whole(name)
        seen = self._figures.gangs.get(gang["metadata"]["uid"])
        if seen is not None and seen.placed_s is not None and gang["metadata"]["uid"] not in self._placed:
            self._placed.add(gang["metadata"]["uid"])
            self._count_overtaken(seen)

    def _count_member(self, pod: Json, uid: str, *, is_bound: bool) -> None:
        marks = pod["metadata"].get("labels") or {}
        name = marks.get(labels.POD_GANG)
        if name is None:
            return
        members = self._bound.setdefault(name, {})
        if is_bound and not pod["metadata"].get("deletionTimestamp"):
            members[uid] = self._ever.setdefault(name, {})[uid] = marks.get(labels.POD_CLIQUE, "")
        else:
            members.pop(uid, None)
        self._judge_whole(name)

    def _judge_whole(self, name: str) -> None:
        if not self._bound.get(name):
            for known in (self._bound, self._ever, self._partial_s):
                known.pop(name, None)
            self._whole.discard(name)
            return
        minimum = self._minimum.get(name)
        if minimum is None or name in self._whole:
            return
        ever = Counter(self._ever[name].values())
        if all(ever[clique] >= count for clique, count in minimum.items()):
            self._whole.add(name)
            self._partial_s.pop(name, None)
        else:
            self._partial_s.setdefault(name, self._figures.now_s)

    # Caused

    def _see_node(self, change: Change) -> None:
        name = change.version.key.name
        known = self._figures.nodes.get(name)
        if known is not None and known[2]:
            return
        for pod in self._figures.pods.values():
            if pod.node == name:
                self.cause(pod.set_name, OUTSIDE)

    def _see_event(self, event: Json) -> None:
        if event.get("reason") not in _EVICTIONS:
            return
        name = (event.get("involvedObject") or {}).get("name", "")
        for gang in self._figures.gangs.values():
            if gang.name == name:
                self.cause(gang.set_name, EVICTED)

    def _see_set(self, pcs: Json) -> None:
        name = pcs["metadata"]["name"]
        seen = self._figures.sets[name]
        before, self._below[name] = self._below.get(name, 0), seen.times_below
        if pcs["metadata"].get("deletionTimestamp"):
            self.cause(name, DELETED)
        elif seen.times_below > before:
            self._judge_fall(name, seen)

    def _judge_fall(self, name: str, seen: SetSeen) -> None:
        if seen.updating_since_s is None and not self._has_cause(name, OUTSIDE, RELEASE, SCALED, EVICTED):
            self.report("Caused", f"set {name} fell below its minimum and nothing from outside happened to it")

    # Minimum and budget

    def _see_group(self, change: Change) -> None:
        """An update takes one instance at a time: a group with instances to spare stays at its minimum."""
        group, before = change.version.json, change.previous
        set_name = (group["metadata"].get("labels") or {}).get(labels.PART_OF, "")
        replicas, minimum = group["spec"].get("replicas", 0), group["spec"].get("minAvailable", 1)
        available = (group.get("status") or {}).get("availableReplicas", 0)
        had = (before.json.get("status") or {}).get("availableReplicas", 0) if before is not None else 0
        if available >= had or available >= min(minimum, replicas - 1) or group["metadata"].get("deletionTimestamp"):
            return
        if not self._has_cause(set_name, OUTSIDE, SCALED, EVICTED):
            name = group["metadata"]["name"]
            self.report("Minimum", f"an update left {name} with {available} of at least {minimum} instances")

    def _count_ready(self, pod: Json, uid: str, *, is_over: bool) -> None:
        set_name = (pod["metadata"].get("labels") or {}).get(labels.PART_OF, "")
        least = self._budgets.get(set_name)
        if least is None:
            return
        ready, seen = self._ready[set_name], self._figures.pods.get(uid)
        is_leaving = is_over or bool(pod["metadata"].get("deletionTimestamp"))
        if not is_leaving and seen is not None and seen.state == SERVING:
            ready.add(uid)
        elif uid in ready:
            ready.discard(uid)
            is_below = self._figures.sets[set_name].below_since_s is not None
            excused = is_below or self._has_cause(set_name, OUTSIDE, RELEASE, SCALED, DELETED)
            if is_leaving and len(ready) < least and not excused:
                name = pod["metadata"]["name"]
                self.report("Budget", f"{name} was deleted: {len(ready)} ready pods of {set_name}, budget {least}")

    # Progress

    def _count_overtaken(self, placed: GangSeen) -> None:
        for gang in self._figures.gangs.values():
            is_ahead = gang.arrived_s < placed.arrived_s and gang.priority >= placed.priority
            if gang.placed_s is None and is_ahead:
                self._overtaken[gang.name] += placed.pods

    def _judge_progress(self, uid: str, gang: GangSeen) -> None:
        if self._overtaken[gang.name] < OVERTAKEN * gang.pods or gang.is_blocked:
            return
        waited_d = (self._figures.now_s - gang.arrived_s) / 86400
        text = f"gang {gang.name} waits for {waited_d:.1f} days; gangs behind it got {self._overtaken[gang.name]} pods"
        self.report("Progress", f"{text} ({gang.reason}: {gang.message})")
        del self._overtaken[gang.name]

    # The past

    def _remember(self, resource: Resource, change: Change) -> None:
        now_s = self._figures.now_s
        self.past.append((now_s, resource, change))
        while self.past[0][0] < now_s - KEPT_S:
            self.past.popleft()

    def report(self, promise: str, text: str) -> None:
        """Records a broken promise and stops the run."""
        self.broken.append(Broken(self._figures.now_s, promise, text))
        self._stop()
