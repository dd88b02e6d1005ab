"""Pods that something from outside took from a set, until a ready pod has their place again.

A place is a pod index in a PodClique. Each cause names its pods. Causes from outside are nodes that fail, are drained
or are removed, and engines that crash. The scheduler evicts gangs, and the operator restarts gangs after a breach. An
instance of a scaling group is hit while one of its places is open. So a failure excuses the instances that it hit, and
no others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from grove.api import labels
from grove.api.conditions import DISRUPTION_TARGET
from grove.api.meta import Json
from grove.fleet.figures import SERVING, Figures
from grove.sim.store import Change

GRACE_S = 120.0
"""How long a cause may come before its effect."""
LAG_S = 10.0
"""How long the status of a group or of a set may lag behind a pod that is ready again."""


class Place(NamedTuple):
    """Where a pod belongs. A standalone clique has neither group nor instance."""

    set_name: str
    replica: str
    group: str
    instance: str
    clique: str
    pod_index: str


class _Pod(NamedTuple):
    place: Place
    node: str
    gang: str
    is_ready: bool


class Hits:
    """Follows a store behind `Figures`, which must see a change first."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._pods: dict[str, _Pod] = {}
        self._on_node: dict[str, dict[str, None]] = defaultdict(dict)
        self._of_gang: dict[str, dict[str, None]] = defaultdict(dict)
        self._nodes: dict[str, tuple[bool, bool]] = {}
        """Whether a node is ready, and whether pods may be placed there."""
        self._targets: set[str] = set()
        """Gangs that the scheduler evicts."""
        self._open: dict[Place, None] = {}
        """Places whose pod was hit and that have no ready pod yet."""
        self._closed_s: dict[Place, float] = {}
        """When a place that was open had a ready pod again."""
        self._marked_s: dict[Place, float] = {}
        """When something last happened to the ready pod of a place."""
        self._instances: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
        """The instances that each scaling group of a set asks for."""
        self._open_in: Counter[str] = Counter()
        """Open places by set."""
        self._seen_s: dict[str, float] = {}
        self._hit_s: dict[str, float] = defaultdict(float)
        """Instance-seconds that were hit, by set."""
        self._asked_s: dict[str, float] = defaultdict(float)
        """Instance-seconds that were asked for, by set."""

    # Seeing

    def see_pod(self, change: Change) -> None:
        pod = change.version.json
        uid, before = pod["metadata"]["uid"], self._pods.get(pod["metadata"]["uid"])
        seen = self._figures.pods.get(uid)
        is_over = change.type == "DELETED" or seen is None
        is_ready = seen is not None and seen.state == SERVING and not pod["metadata"].get("deletionTimestamp")
        is_ready = is_ready and not is_over
        node = pod["spec"].get("nodeName", "")
        if before is not None and not is_over and (node, is_ready) == (before.node, before.is_ready):
            return
        if before is None:
            if is_over:
                return
            place, gang = _place(pod), pod["metadata"].get("labels", {}).get(labels.POD_GANG, "")
        else:
            place, gang = before.place, before.gang
        now = _Pod(place, node, gang, is_ready)
        if is_ready and not (before is not None and before.is_ready):
            self._fill(place)
        elif before is not None and before.is_ready and not is_ready:
            self._leave(now)
        if is_over:
            del self._pods[uid]
            self._on_node[node].pop(uid, None)
            self._of_gang[gang].pop(uid, None)
            return
        self._pods[uid] = now
        self._of_gang[gang][uid] = None
        if node:
            self._on_node[node][uid] = None

    def see_node(self, change: Change) -> None:
        name = change.version.key.name
        was_up = self._nodes.pop(name, (True, True))[1]
        is_up = False
        if change.type != "DELETED":
            known = self._figures.nodes.get(name)
            is_up = known is not None and known[2]
            self._nodes[name] = (_is_ready(change.version.json), is_up)
        if not (was_up and is_up):
            self._mark(self._on_node.get(name, ()))
        if change.type == "DELETED":
            self._on_node.pop(name, None)

    def see_gang(self, change: Change) -> None:
        gang = change.version.json
        name = gang["metadata"]["name"]
        is_target = change.type != "DELETED" and any(
            condition["type"] == DISRUPTION_TARGET and condition["status"] == "True"
            for condition in (gang.get("status") or {}).get("conditions") or ()
        )
        if is_target or name in self._targets:
            self._mark(self._of_gang.get(name, ()))
        (self._targets.add if is_target else self._targets.discard)(name)
        if change.type == "DELETED" and not self._of_gang.get(name):
            self._of_gang.pop(name, None)

    def see_group(self, change: Change, indexes: Iterable[int]) -> None:
        """`indexes` are the instances that the group asks for."""
        group = change.version.json
        name, set_name = group["metadata"]["name"], group["metadata"].get("labels", {}).get(labels.PART_OF, "")
        self._integrate(set_name)
        groups = self._instances[set_name]
        if change.type == "DELETED":
            groups.pop(name, None)
            self._forget(lambda place: place.group == name)
            return
        before, asked = groups.get(name, frozenset()), frozenset(str(index) for index in indexes)
        groups[name] = asked
        if before - asked:
            self._forget(lambda place: place.group == name and place.instance not in asked)
        for index in _restarted(change):
            self._mark(uid for uid, pod in self._pods.items() if pod.place[2:4] == (name, index))

    def see_set(self, change: Change) -> None:
        name = change.version.key.name
        if change.type == "DELETED":
            self._integrate(name)
            self._forget(lambda place: place.set_name == name)
            for known in (self._instances, self._seen_s, self._open_in):
                known.pop(name, None)
            return
        for index in _restarted(change):
            self._mark(uid for uid, pod in self._pods.items() if pod.place[:2] == (name, index))

    def crash(self, uid: str, now_s: float) -> None:
        """The engine of a pod crashes now. No write comes first, so the figures may still show an earlier time."""
        self._figures.now_s = now_s
        self._mark([uid])

    # Asking

    def instances(self, group: str) -> int:
        """How many instances of a scaling group are hit."""
        return len({place.instance for place in self._missing() if place.group == group})

    def replicas(self, set_name: str) -> int:
        """In how many replicas of a set a pod is hit."""
        return len({place.replica for place in self._missing() if place.set_name == set_name})

    def excuses_deletion(self, uid: str) -> bool:
        """True if a pod may be deleted below a disruption budget: its node is not ready, its engine crashed, or its
        gang is restarted. A drain and an eviction by the scheduler heed budgets."""
        pod = self._pods.get(uid)
        if pod is None or pod.gang in self._targets:
            return False
        is_ready, is_up = self._nodes.get(pod.node, (False, False))
        if not is_ready:
            return True
        return is_up and self._is_marked(pod.place)

    def excused(self) -> dict[str, float]:
        """By set, the share of its instances that were hit, weighed by time until now."""
        for name in list(self._seen_s):
            self._integrate(name)
        return {name: self._hit_s[name] / asked_s for name, asked_s in self._asked_s.items() if asked_s}

    # Places

    def _fill(self, place: Place) -> None:
        if place in self._open:
            self._integrate(place.set_name)
            del self._open[place]
            self._open_in[place.set_name] -= 1
            self._closed_s[place] = self._figures.now_s

    def _leave(self, pod: _Pod) -> None:
        """A pod is not ready any more, or is being deleted. Its place is open if something from outside explains it.

        A pod of an instance that has an open place takes no further instance away.
        """
        place = pod.place
        if place.set_name not in self._figures.sets:
            return
        is_hit = self._is_marked(place) or pod.gang in self._targets
        is_hit = is_hit or (bool(pod.node) and not self._nodes.get(pod.node, (False, False))[1])
        is_hit = is_hit or (bool(place.group) and any(other[:4] == place[:4] for other in self._open))
        if is_hit and place not in self._open:
            self._integrate(place.set_name)
            self._open[place] = None
            self._open_in[place.set_name] += 1

    def _is_marked(self, place: Place) -> bool:
        return self._figures.now_s - self._marked_s.get(place, float("-inf")) <= GRACE_S

    def _mark(self, uids: Iterable[str]) -> None:
        """Something happens to these pods now. A pod that is not ready is missing already."""
        for uid in list(uids):
            pod = self._pods[uid]
            if pod.is_ready and pod.place.set_name in self._figures.sets:
                self._marked_s[pod.place] = self._figures.now_s

    def _missing(self) -> Iterator[Place]:
        """Places whose pod is missing, also according to a status that lags."""
        yield from self._open
        since_s = self._figures.now_s - LAG_S
        for place, at_s in list(self._closed_s.items()):
            if at_s >= since_s:
                yield place
            else:
                del self._closed_s[place]

    def _forget(self, is_gone: Callable[[Place], bool]) -> None:
        for place in [place for place in self._open if is_gone(place)]:
            self._integrate(place.set_name)
            del self._open[place]
            self._open_in[place.set_name] -= 1
        for known in (self._closed_s, self._marked_s):
            for place in [place for place in known if is_gone(place)]:
                del known[place]

    def _integrate(self, set_name: str) -> None:
        now_s = self._figures.now_s
        passed = now_s - self._seen_s.get(set_name, now_s)
        self._seen_s[set_name] = now_s
        if passed <= 0:
            return
        self._asked_s[set_name] += passed * sum(len(asked) for asked in self._instances[set_name].values())
        if self._open_in[set_name]:
            hit = {(place.group, place.instance) for place in self._open if place.set_name == set_name}
            self._hit_s[set_name] += passed * len(hit)


def _place(pod: Json) -> Place:
    marks: dict[str, Any] = pod["metadata"].get("labels") or {}
    keys = (
        labels.PART_OF,
        labels.REPLICA_INDEX,
        labels.SCALING_GROUP,
        labels.SCALING_GROUP_REPLICA_INDEX,
        labels.POD_CLIQUE,
        labels.POD_INDEX,
    )
    return Place(*(marks.get(key, "") for key in keys))


def _is_ready(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return (
        next((str(condition["status"]) for condition in conditions if condition["type"] == "Ready"), "True") == "True"
    )


def _restarted(change: Change) -> list[str]:
    """Indexes of replicas whose gangs the operator restarts with this write, because they stayed in breach."""
    before, now = (
        _restart_counts(version.json if version is not None else {}) for version in (change.previous, change.version)
    )
    return [index for index, count in now.items() if count > before.get(index, 0)]


def _restart_counts(obj: Json) -> dict[str, int]:
    entries = (obj.get("status") or {}).get("replicaRestarts") or ()
    return {str(entry.get("replicaIndex", 0)): entry.get("gangRestarts", 0) for entry in entries}
