"""What must never happen, checked at every write of a run.

- Exact: no node holds more GPUs than it has, and no team uses more than its limit.
- Atomic: before its deadline, a gang that is bound in part becomes whole or is not bound at all.
- Caused: a set and its scaling groups fall below their minimum only by the instances that something from outside hit
  (`grove.fleet.hits`).
- Minimum: an update takes one instance more, and leaves a scaling group that can spare an instance at its minimum.
- Budget: no pod is deleted below a disruption budget. Exceptions: it was hit itself, its set is updated or deleted, or
  its group was scaled in.
- Progress: other gangs do not overtake a gang for ever.

`grove.fleet.ending` has the promises of a run's end.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.fleet.figures import SERVING, Figures, GangSeen
from grove.fleet.hits import Hits
from grove.sim.store import Change

KEPT_S = 3600.0
"""How much of the past is kept for the replay file."""
SCALED_S = 300.0
"""How long after a scale-in the pods of the group may be deleted below a budget."""
OVERTAKEN = 4
"""Progress is broken if gangs behind a gang were given this many times its pods while it waited beyond the limit."""


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
        self.hits = Hits(figures)
        self._scaled_in: dict[str, float] = {}
        """When a scaling group was last scaled in."""
        self._deleted: set[str] = set()
        """Sets that are being deleted."""
        self._ready: dict[str, set[str]] = defaultdict(set)
        """Ready pods of sets with a budget that are not being deleted."""
        self._below_budget_since_s: dict[str, float | None] = {}
        """Since when a set has fewer; None while it has enough. Sets that never had enough are missing."""
        self._below_budget_s: dict[str, float] = defaultdict(float)
        self._bound: dict[str, dict[str, str]] = {}
        """The clique of each bound pod of a gang, by the pod's uid."""
        self._ever: dict[str, dict[str, str]] = {}
        self._minimum: dict[str, dict[str, int]] = {}
        self._partial_s: dict[str, float] = {}
        self._whole: set[str] = set()
        self._used: Counter[str] = Counter()
        self._counted: dict[str, tuple[str, int]] = {}
        self._overtaken: Counter[str] = Counter()
        """Pods of the gangs that were placed for the first time while a gang before them waited."""
        self._overtaken_in_team: Counter[str] = Counter()
        """The same, of gangs of the same team: they use the quota that the gang waits for."""
        self._below: dict[str, int] = {}
        self._placed: set[str] = set()

    def see(self, resource: Resource, change: Change) -> None:
        self._remember(resource, change)
        if resource == Pod.RESOURCE:
            self._see_pod(change)
        elif resource == PodGang.RESOURCE:
            self.hits.see_gang(change)
            self._see_gang(change)
        elif resource == PodCliqueSet.RESOURCE:
            self.hits.see_set(change)
            self._see_set(change)
        elif resource == PodCliqueScalingGroup.RESOURCE:
            self.hits.see_group(change, change.version.view(PodCliqueScalingGroup).indexes)
            self._see_group(change)
        elif resource == Node.RESOURCE:
            self.hits.see_node(change)
        if self._partial_s:
            self._judge_deadlines()

    def look(self) -> None:
        """Checks what time alone can break; called at regular moments."""
        self._judge_deadlines()
        now_s = self._figures.now_s
        for gang in self._figures.gangs.values():
            since_s = gang.waits_since_s
            if since_s is not None and now_s - since_s > self._patience_s:
                self._judge_progress(gang, now_s - since_s)

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
        self.hits.see_pod(change)

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
            for known in (self._minimum, self._partial_s, self._overtaken, self._overtaken_in_team):
                known.pop(name, None)
            self._placed.discard(gang["metadata"]["uid"])
            return
        self._minimum[name] = {
            group["name"]: group.get("minReplicas", 0) for group in gang["spec"].get("podgroups") or ()
        }
        self._judge_whole(name)
        seen = self._figures.gangs.get(gang["metadata"]["uid"])
        if seen is None or seen.waits_since_s is not None:
            return
        for known in (self._overtaken, self._overtaken_in_team):
            known.pop(name, None)
        if gang["metadata"]["uid"] not in self._placed:
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

    # Caused and Minimum

    def _see_set(self, change: Change) -> None:
        pcs = change.version.json
        name = pcs["metadata"]["name"]
        if change.type == "DELETED":
            self._deleted.discard(name)
            self._below.pop(name, None)
            return
        seen = self._figures.sets[name]
        before, self._below[name] = self._below.get(name, 0), seen.times_below
        if pcs["metadata"].get("deletionTimestamp"):
            self._deleted.add(name)
        elif seen.times_below > before:
            missing = pcs["spec"].get("replicas", 0) - (pcs.get("status") or {}).get("availableReplicas", 0)
            hit = self.hits.replicas(name)
            if missing > hit + self._is_updated(name):
                what = f"{missing} replicas of set {name} fell below their minimum; something from outside hit {hit}"
                self.report("Caused", what)

    def _see_group(self, change: Change) -> None:
        """An update takes one instance at a time: a group with instances to spare stays at its minimum."""
        group, before = change.version.json, change.previous
        name = group["metadata"]["name"]
        if change.type == "DELETED":
            self._scaled_in.pop(name, None)
            return
        if before is None or group["metadata"].get("deletionTimestamp"):
            return
        replicas, minimum = group["spec"].get("replicas", 0), group["spec"].get("minAvailable", 1)
        if replicas < before.json["spec"].get("replicas", 0):
            self._scaled_in[name] = self._figures.now_s
        available, had = ((state.get("status") or {}).get("availableReplicas", 0) for state in (group, before.json))
        if available >= had or available >= min(minimum, replicas):
            return
        set_name, hit = (group["metadata"].get("labels") or {}).get(labels.PART_OF, ""), self.hits.instances(name)
        is_updated = self._is_updated(set_name)
        if set_name not in self._deleted and available + hit < min(minimum, replicas - is_updated):
            who = "an update" if is_updated else "nothing from outside"
            what = f"{who} left {name} with {available} of at least {minimum} instances; {hit} others were hit"
            self.report("Minimum" if is_updated else "Caused", what)

    def _is_updated(self, set_name: str) -> bool:
        return set_name in self._figures.sets and self._figures.sets[set_name].updating_since_s is not None

    # Budget

    def _count_ready(self, pod: Json, uid: str, *, is_over: bool) -> None:
        marks = pod["metadata"].get("labels") or {}
        set_name = marks.get(labels.PART_OF, "")
        least = self._budgets.get(set_name)
        if least is None:
            return
        ready, seen = self._ready[set_name], self._figures.pods.get(uid)
        is_leaving = is_over or bool(pod["metadata"].get("deletionTimestamp"))
        if not is_leaving and seen is not None and seen.state == SERVING:
            ready.add(uid)
        elif uid in ready:
            ready.discard(uid)
            if is_leaving and len(ready) < least and not self._may_go(set_name, marks, uid):
                name = pod["metadata"]["name"]
                self.report("Budget", f"{name} was deleted: {len(ready)} ready pods of {set_name}, budget {least}")
        self._weigh_budget(set_name, is_kept=len(ready) >= least)

    def _weigh_budget(self, set_name: str, *, is_kept: bool) -> None:
        known, now_s = self._below_budget_since_s, self._figures.now_s
        if is_kept:
            if (since_s := known.get(set_name)) is not None:
                self._below_budget_s[set_name] += now_s - since_s
            known[set_name] = None
        elif set_name in known and known[set_name] is None:
            known[set_name] = now_s

    def below_budgets(self) -> dict[str, float]:
        """By set with a budget, the seconds until now with fewer ready pods, after it had enough once."""
        now_s = self._figures.now_s
        open_s = {name: now_s - since_s for name, since_s in self._below_budget_since_s.items() if since_s is not None}
        return {name: self._below_budget_s[name] + open_s.get(name, 0.0) for name in self._budgets}

    def _may_go(self, set_name: str, marks: Json, uid: str) -> bool:
        scaled_s = self._scaled_in.get(marks.get(labels.SCALING_GROUP, ""), float("-inf"))
        is_scaled_in = self._figures.now_s - scaled_s <= SCALED_S
        is_wanted = set_name in self._deleted or self._is_updated(set_name) or is_scaled_in
        return is_wanted or self.hits.excuses_deletion(uid)

    # Progress

    def _count_overtaken(self, placed: GangSeen) -> None:
        team = self._figures.teams.get(placed.set_name, "")
        for gang in self._figures.gangs.values():
            is_ahead = gang.arrived_s < placed.arrived_s and gang.priority >= placed.priority
            if gang.waits_since_s is not None and is_ahead:
                self._overtaken[gang.name] += placed.pods
                if self._figures.teams.get(gang.set_name, "") == team:
                    self._overtaken_in_team[gang.name] += placed.pods

    def _judge_progress(self, gang: GangSeen, waited_s: float) -> None:
        counts = self._overtaken_in_team if gang.waits_for_quota else self._overtaken
        if counts[gang.name] < OVERTAKEN * gang.pods or gang.waits_for_base:
            return
        again = " for a new place" if gang.placed_s is not None else ""
        behind = "gangs of its team behind it" if gang.waits_for_quota else "gangs behind it"
        text = f"gang {gang.name} waits{again} for {waited_s / 86400:.1f} days; {behind} got {counts[gang.name]} pods"
        self.report("Progress", f"{text} ({gang.reason}: {gang.message})")
        del counts[gang.name]

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
