"""Sees pods, gangs and nodes as a watch shows them and says when a promise was broken.

Exact: the pods on a node never ask for more than it has. Atomic: a gang that was bound in part is whole, or nothing of
it is bound, before its deadline. Only attended time counts against the deadline: while the API server is away or the
scheduler has just been killed no process can correct it. A pod that was bound and died before the last of its
gang came has been placed all the same.
"""

from __future__ import annotations

from collections import Counter

from grove.api import labels
from grove.api.meta import Json, Key

GPU = "nvidia.com/gpu"


class Witness:
    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self.broken: list[str] = []
        self.seen = Counter[str]()
        self._capacity: dict[str, int] = {}
        self._load: dict[str, dict[str, int]] = {}
        """GPUs asked for on each node, by the pod's uid."""
        self._minimum: dict[Key, dict[str, int]] = {}
        self._bound: dict[Key, dict[str, str]] = {}
        """The group of each bound pod of a gang, by the pod's uid."""
        self._ever: dict[Key, dict[str, str]] = {}
        """The same of all that were bound since none was."""
        self._stood: set[Key] = set()
        self._partial_s: dict[Key, float] = {}
        """How long a gang has been bound in part, in attended seconds."""

    def node(self, node: Json, *, gone: bool) -> None:
        gpus = int((node.get("status", {}).get("allocatable") or {}).get(GPU, 0))
        self._capacity[node["metadata"]["name"]] = 0 if gone else gpus

    def pod(self, pod: Json, *, gone: bool) -> None:
        self.seen["pods"] += 1
        meta, uid, node = pod["metadata"], pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        over = gone or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        self._count_member(pod, uid, bound=bool(node) and not over and not meta.get("deletionTimestamp"))
        if not node:
            return
        load = self._load.setdefault(node, {})
        is_new = uid not in load and not over
        if over:
            load.pop(uid, None)
            return
        load[uid] = _gpus(pod)
        gpus = self._capacity.get(node, 0)
        if is_new and gpus and sum(load.values()) > gpus:
            self.broken.append(f"Exact: {meta['name']} overfills {node}: {sum(load.values())} of {gpus} GPUs")

    def gang(self, gang: Json, *, gone: bool) -> None:
        key = Key(gang["metadata"]["namespace"], gang["metadata"]["name"])
        if gone:
            self._minimum.pop(key, None)
            self._partial_s.pop(key, None)
            return
        self.seen["gangs"] += 1
        groups = gang["spec"].get("podgroups") or ()
        self._minimum[key] = {group["name"]: group.get("minReplicas", 0) for group in groups}
        self._judge(key)

    def attended(self, seconds: float) -> None:
        """Adds time in which the scheduler could work."""
        self.seen["attended seconds"] += round(seconds)
        for key in list(self._partial_s):
            self._partial_s[key] += seconds
            if self._partial_s[key] > self._deadline_s:
                bound, seconds = sorted(self._bound[key].values()), self._partial_s[key]
                self.broken.append(f"Atomic: gang {key.name}: in part for {seconds:.0f} s: {bound}")
                del self._partial_s[key]
                self._stood.add(key)  # once is enough said

    @property
    def partial(self) -> list[str]:
        return sorted(key.name for key in self._partial_s)

    def _count_member(self, pod: Json, uid: str, *, bound: bool) -> None:
        marks = pod["metadata"].get("labels") or {}
        if labels.POD_GANG not in marks:
            return
        key = Key(pod["metadata"]["namespace"], marks[labels.POD_GANG])
        members = self._bound.setdefault(key, {})
        if bound:
            group = marks.get(labels.POD_CLIQUE, "")
            members[uid] = self._ever.setdefault(key, {})[uid] = group
        else:
            members.pop(uid, None)
        self._judge(key)

    def _judge(self, key: Key) -> None:
        if not self._bound.get(key):
            self._ever.pop(key, None)
            self._stood.discard(key)
            self._partial_s.pop(key, None)
            return
        minimum = self._minimum.get(key)
        if minimum is None or key in self._stood:
            return
        ever = Counter(self._ever[key].values())
        if all(ever[group] >= count for group, count in minimum.items()):
            self._stood.add(key)
            self._partial_s.pop(key, None)
            self.seen["placements"] += 1
        else:
            self._partial_s.setdefault(key, 0.0)


def _gpus(pod: Json) -> int:
    return sum(
        int(((container.get("resources") or {}).get("requests") or {}).get(GPU, 0))
        for container in pod["spec"]["containers"]
    )
