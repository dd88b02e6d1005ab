"""What is measured in a run: every write to the cluster is seen once, and time is weighed by what holds between two.

GPU-seconds are counted by state. `serving`: the pod is ready. `starting`: it has a node and is not ready. `waiting`:
it has no node. `lost`: its node is down. `idle`: no pod uses the GPU. `down`: no pod uses the GPU, and its node is down
or cordoned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from grove.api import labels
from grove.api.conditions import SCHEDULED
from grove.api.core import Event, Node, Pod
from grove.api.fragmentation import gang_size, unusable_share
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.fleet.manifests import GPU, QUEUE
from grove.scheduler.model.reasons import BASE_WAITS, QUOTA_EXCEEDED
from grove.sim.store import Change, Version
from grove.sim.topology import RACK

SERVING, STARTING, WAITING, LOST = "serving", "starting", "waiting", "lost"
IDLE, DOWN = "idle", "down"
_OVER = ("Succeeded", "Failed")


@dataclass(slots=True)
class PodSeen:
    gpus: int
    set_name: str
    node: str = ""
    state: str = WAITING


@dataclass(slots=True)
class GangSeen:
    """A PodGang: how long it has waited for its first placement, and how long after it had lost its place."""

    name: str
    set_name: str
    pods: int
    arrived_s: float
    placed_s: float | None = None
    gone_s: float | None = None
    reason: str = ""
    message: str = ""
    priority: int = 0
    lost_s: float | None = None
    """Since when the gang lacks its minimum again; None while it has it."""
    again_s: list[float] = field(default_factory=list)
    """How long it waited each time that it had lost its minimum."""

    @property
    def waits_since_s(self) -> float | None:
        """Since when the gang waits for its first placement, or for a new one; None while it has its place."""
        return self.arrived_s if self.placed_s is None else self.lost_s

    @property
    def waits_for_base(self) -> bool:
        """True if the gang waits for its base gang. No free node can change that."""
        return self.reason == BASE_WAITS

    @property
    def waits_for_quota(self) -> bool:
        return self.reason == QUOTA_EXCEEDED

    def see_place(self, *, has_place: bool, now_s: float) -> None:
        if has_place and self.placed_s is None:
            self.placed_s = now_s
        elif has_place and self.lost_s is not None:
            self.again_s.append(now_s - self.lost_s)
            self.lost_s = None
        elif not has_place and self.placed_s is not None and self.lost_s is None:
            self.lost_s = now_s


@dataclass(slots=True)
class SetSeen:
    """A PodCliqueSet: how long some replica was below its minimum, after all were available once."""

    first_s: float | None = None
    below_since_s: float | None = None
    below_s: float = 0.0
    times_below: int = 0
    below_in_updates_s: float = 0.0
    """The part of `below_s` in which an update was under way."""
    seen_s: float = 0.0
    updating_since_s: float | None = None
    updates_s: list[float] = field(default_factory=list)

    def all_updates_s(self, now_s: float) -> float:
        """The time in which an update ran."""
        return sum(self.updates_s) + (now_s - self.updating_since_s if self.updating_since_s is not None else 0.0)


@dataclass(frozen=True, slots=True)
class Sample:
    """The fleet at one moment."""

    at_s: float
    gpus: Mapping[str, int]
    waiting_gangs: int
    fragmented: float


class Figures:
    """Follows a store. Ask `sample` at regular moments, and `close` at the end."""

    def __init__(self, priorities: Mapping[str, int], quotas: Mapping[str, int] = MappingProxyType({})) -> None:
        """`priorities` by name of their class, `quotas` in GPUs by team."""
        self._priorities, self._quotas = priorities, quotas
        self.now_s = 0.0
        self.pods: dict[str, PodSeen] = {}
        self.nodes: dict[str, tuple[int, str, bool]] = {}
        """GPUs, rack and whether pods may be placed there."""
        self.spare: Counter[bool] = Counter()
        """GPUs that no pod uses, of nodes that are up (True) and of those that are not."""
        self._busy: Counter[str] = Counter()
        """GPUs by node that serving and starting pods use."""
        self.load: Counter[str] = Counter()
        """GPUs in use by node."""
        self.gpus: Counter[str] = Counter()
        self.gpus_by_set: dict[str, Counter[str]] = defaultdict(Counter)
        self.gpu_seconds: dict[str, float] = defaultdict(float)
        self.gpu_seconds_by_set: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.gangs: dict[str, GangSeen] = {}
        self.ended_gangs: list[GangSeen] = []
        self.sets: dict[str, SetSeen] = defaultdict(SetSeen)
        self.restarts: Counter[str] = Counter()
        """Restarts of gangs by set, those of its scaling groups too."""
        self.events: Counter[str] = Counter()
        self.happenings: Counter[str] = Counter()
        self.samples: list[Sample] = []
        self.teams: dict[str, str] = {}
        """The team of each set, as its queue label says."""
        self.due_seconds: dict[str, float] = defaultdict(float)
        """GPU-seconds that were due to each team with a quota: at every moment what it asked for, up to its quota."""
        self.got_seconds: dict[str, float] = defaultdict(float)
        """The part of `due_seconds` that the team used."""
        self._asked: Counter[str] = Counter()
        """GPUs that the pods of a team with a quota ask for now."""
        self._used: Counter[str] = Counter()
        """GPUs that they use now."""
        self._due_until_s: dict[str, float] = {}
        self._integrated_s = 0.0
        self._set_integrated_s: dict[str, float] = {}

    # Seeing

    def see(self, resource: Resource, change: Change, now_s: float) -> None:
        self.now_s = now_s
        if resource == Pod.RESOURCE:
            self._see_pod(change)
        elif resource == PodGang.RESOURCE:
            self._see_gang(change)
        elif resource == PodCliqueSet.RESOURCE:
            self._see_set(change)
            self._count_restarts(change, change.version.key.name)
        elif resource == PodCliqueScalingGroup.RESOURCE:
            marks = change.version.json["metadata"].get("labels") or {}
            self._count_restarts(change, marks.get(labels.PART_OF, ""))
        elif resource == Node.RESOURCE:
            self._see_node(change)
        elif resource == Event.RESOURCE and change.type != "DELETED":
            self._see_event(change)

    def _see_pod(self, change: Change) -> None:
        pod = change.version.json
        uid = pod["metadata"]["uid"]
        seen = self.pods.get(uid)
        over = change.type == "DELETED" or pod.get("status", {}).get("phase") in _OVER
        if seen is None:
            if over:
                return
            marks = pod["metadata"].get("labels") or {}
            seen = self.pods[uid] = PodSeen(_gpus(pod), marks.get(labels.PART_OF, ""))
            self._count(seen, WAITING, 1)
        node, state = pod["spec"].get("nodeName", ""), _state(pod, self.nodes)
        if not over and (node, state) == (seen.node, seen.state):
            return
        self._count(seen, seen.state, -1)
        self._occupy(seen, -1)
        if seen.node:
            self.load[seen.node] -= seen.gpus
        if over:
            del self.pods[uid]
            return
        seen.node, seen.state = node, state
        self._count(seen, state, 1)
        self._occupy(seen, 1)
        if node:
            self.load[node] += seen.gpus

    def _occupy(self, seen: PodSeen, sign: int) -> None:
        """A pod uses the GPUs of its node, or stops to use them. A ready pod also does so on a node that is drained."""
        if seen.node and seen.state in (SERVING, STARTING):
            self._busy[seen.node] += sign * seen.gpus
            if (node := self.nodes.get(seen.node)) is not None:
                self.spare[node[2]] -= sign * seen.gpus

    def _count(self, seen: PodSeen, state: str, sign: int) -> None:
        if not seen.gpus:
            return
        self._integrate(seen.set_name)
        team = self.teams.get(seen.set_name, "")
        if team in self._quotas:
            self._integrate_due(team)
            self._asked[team] += sign * seen.gpus
            if state in (SERVING, STARTING):
                self._used[team] += sign * seen.gpus
        self.gpus[state] += sign * seen.gpus
        of_set = self.gpus_by_set[seen.set_name]
        of_set[state] += sign * seen.gpus
        if not any(of_set.values()):  # its last pod is gone; pods outlive their set
            del self.gpus_by_set[seen.set_name], self._set_integrated_s[seen.set_name]

    def _integrate(self, set_name: str = "") -> None:
        """Adds the time since the last change, for the fleet and for one set."""
        passed = self.now_s - self._integrated_s
        if passed > 0:
            for state, count in self.gpus.items():
                self.gpu_seconds[state] += count * passed
            self.gpu_seconds[IDLE] += self.spare[True] * passed
            self.gpu_seconds[DOWN] += self.spare[False] * passed
            self._integrated_s = self.now_s
        if set_name:
            since = self._set_integrated_s.get(set_name, self.now_s)
            if self.now_s > since:
                for state, count in self.gpus_by_set[set_name].items():
                    self.gpu_seconds_by_set[set_name][state] += count * (self.now_s - since)
            self._set_integrated_s[set_name] = self.now_s

    def _integrate_due(self, team: str) -> None:
        passed = self.now_s - self._due_until_s.get(team, self.now_s)
        self.due_seconds[team] += min(self._asked[team], self._quotas[team]) * passed
        self.got_seconds[team] += min(self._used[team], self._quotas[team]) * passed
        self._due_until_s[team] = self.now_s

    def _see_node(self, change: Change) -> None:
        node = change.version.json
        name = node["metadata"]["name"]
        self._integrate()
        if (before := self.nodes.pop(name, None)) is not None:
            self.spare[before[2]] -= before[0] - self._busy[name]
        if change.type == "DELETED":
            return
        gpus = int((node.get("status", {}).get("allocatable") or {}).get(GPU, 0))
        is_up = _is_ready(node) and not (node.get("spec") or {}).get("unschedulable")
        self.nodes[name] = (gpus, node["metadata"].get("labels", {}).get(RACK, ""), is_up)
        self.spare[is_up] += gpus - self._busy[name]

    def _see_gang(self, change: Change) -> None:
        gang = change.version.json
        uid = gang["metadata"]["uid"]
        if change.type == "DELETED":
            if (seen := self.gangs.pop(uid, None)) is not None:
                seen.gone_s = self.now_s
                if seen.lost_s is not None:
                    seen.again_s.append(self.now_s - seen.lost_s)
                self.ended_gangs.append(seen)
            return
        seen = self.gangs.get(uid)
        if seen is None:
            marks = gang["metadata"].get("labels") or {}
            pods = sum(group.get("minReplicas", 0) for group in gang["spec"].get("podgroups") or ())
            name = gang["metadata"]["name"]
            priority = self._priorities.get(gang["spec"].get("priorityClassName", ""), 0)
            set_name = marks.get(labels.PART_OF, "")
            seen = self.gangs[uid] = GangSeen(name, set_name, pods, self.now_s, priority=priority)
        condition = _condition(gang, SCHEDULED)
        if condition is not None:
            seen.reason, seen.message = condition.get("reason", ""), condition.get("message", "")
            seen.see_place(has_place=condition["status"] == "True", now_s=self.now_s)

    def _see_set(self, change: Change) -> None:
        pcs = change.version.json
        name = pcs["metadata"]["name"]
        if change.type == "DELETED":
            self.sets.pop(name, None)
            return
        seen, status = self.sets[name], pcs.get("status") or {}
        self._weigh_update(seen)
        self.teams.setdefault(name, (pcs["metadata"].get("labels") or {}).get(QUEUE, ""))
        self._note_availability(seen, status.get("availableReplicas", 0) >= pcs["spec"].get("replicas", 0))
        progress = status.get("updateProgress") or {}
        started, ended = progress.get("updateStartedAt"), progress.get("updateEndedAt")
        if started and not ended and seen.updating_since_s is None:
            seen.updating_since_s = self.now_s
        elif ended and seen.updating_since_s is not None:
            seen.updates_s.append(self.now_s - seen.updating_since_s)
            seen.updating_since_s = None

    def _weigh_update(self, seen: SetSeen) -> None:
        """Adds the time since the last look, if the set was below its minimum and was being updated."""
        if seen.below_since_s is not None and seen.updating_since_s is not None:
            seen.below_in_updates_s += self.now_s - seen.seen_s
        seen.seen_s = self.now_s

    def _note_availability(self, seen: SetSeen, is_available: bool) -> None:
        if is_available:
            if seen.first_s is None:
                seen.first_s = self.now_s
            if seen.below_since_s is not None:
                seen.below_s += self.now_s - seen.below_since_s
                seen.below_since_s = None
        elif seen.first_s is not None and seen.below_since_s is None:
            seen.below_since_s = self.now_s
            seen.times_below += 1

    def _count_restarts(self, change: Change, set_name: str) -> None:
        now, before = _restarts(change.version), _restarts(change.previous)
        if now > before:
            self.restarts[set_name] += now - before

    def _see_event(self, change: Change) -> None:
        count = change.version.json.get("count") or 1
        before = (change.previous.json.get("count") or 1) if change.previous is not None else 0
        self.events[change.version.json.get("reason", "")] += max(0, count - before)

    def note(self, kind: str, _subject: str) -> None:
        """Something happened from outside: a failure, a drain."""
        self.happenings[kind] += 1

    # Asking

    def sample(self, now_s: float) -> None:
        self.now_s = now_s
        self._integrate()
        waiting = [gang for gang in self.gangs.values() if gang.waits_since_s is not None]
        gpus = {state: self.gpus[state] for state in (SERVING, STARTING, WAITING, LOST)}
        gpus[IDLE], gpus[DOWN] = self.spare[True], self.spare[False]
        self.samples.append(Sample(now_s, gpus, len(waiting), self.fragmentation()))

    def close(self, now_s: float) -> None:
        """Counts the time until the end for everything that still lasts."""
        self.now_s = now_s
        self._integrate()
        for name in list(self.gpus_by_set):
            self._integrate(name)
        for team in self._quotas:
            self._integrate_due(team)
        for seen in self.sets.values():
            self._weigh_update(seen)
            if seen.below_since_s is not None:
                seen.below_s += now_s - seen.below_since_s
                seen.below_since_s = now_s

    def fragmentation(self) -> float:
        """The share of free GPUs that a pod of the largest waiting size, or of the most frequent one, cannot use."""
        size = gang_size((name, pod.state == WAITING, [pod.gpus]) for name, pod in self.pods.items())
        free = [[max(0, gpus - self.load[name])] for name, (gpus, _, is_up) in self.nodes.items() if is_up]
        return unusable_share(free, size)


def _restarts(version: Version | None) -> int:
    status = version.json.get("status") if version is not None else None
    return int((status or {}).get("gangRestarts", 0))


def _state(pod: Json, nodes: Mapping[str, tuple[int, str, bool]]) -> str:
    if not pod["spec"].get("nodeName"):
        return WAITING
    ready = _condition(pod, "Ready")
    if ready is not None and ready["status"] == "True":
        return SERVING
    node = nodes.get(pod["spec"]["nodeName"])
    return STARTING if node is not None and node[2] else LOST


def _condition(obj: Json, kind: str) -> Json | None:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    first: Json | None = next((condition for condition in conditions if condition["type"] == kind), None)
    return first


def _is_ready(node: Json) -> bool:
    ready = _condition(node, "Ready")
    return ready is None or ready["status"] == "True"


def _gpus(pod: Json) -> int:
    def asked(box: Any) -> int:
        resources = box.get("resources") or {}
        return int((resources.get("limits") or resources.get("requests") or {}).get(GPU, 0))

    return sum(asked(box) for box in pod["spec"]["containers"])
