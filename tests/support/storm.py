"""What is counted while many systems scale at the same second: binds of every gang, and the operator's writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Json
from tests.support.manifests import clique, group, pcs

LOW, HIGH, PODS_A_UNIT = 1, 3, 3
EVERY_S = 15.0
READS = {"get", "list", "watch", "serves"}
Calls = Mapping[tuple[str, str], int]


def scaled_set(name: str, namespace: str = "default") -> Json:
    scale = {"minReplicas": LOW, "maxReplicas": HIGH}
    return pcs(
        name,
        clique("lead"),
        clique("work", PODS_A_UNIT - 1),
        groups=[group("g", "lead", "work", scale=scale)],
        metadata={"namespace": namespace},
    )


class GangWatch:
    """Sees every change of a pod: since when a gang is partly bound, and the longest that any was."""

    def __init__(self) -> None:
        self._bound: dict[str, set[str]] = {}
        self._since: dict[str, float] = {}
        self.longest_s = 0.0

    def see(self, pod: Pod, now_s: float, *, is_gone: bool = False) -> None:
        gang, uid = pod.metadata.labels.get(key.POD_GANG, ""), pod.metadata.uid
        bound = self._bound.setdefault(gang, set())
        if is_gone or pod.metadata.is_deleting:
            bound.discard(uid)
            if not bound:
                self._since.pop(gang, None)
        elif pod.is_bound and uid not in bound:
            bound.add(uid)
            if len(bound) < PODS_A_UNIT:
                self._since.setdefault(gang, now_s)
            elif gang in self._since:
                self.longest_s = max(self.longest_s, now_s - self._since.pop(gang))


def half_placed(pods: Iterable[Pod]) -> list[str]:
    """Gangs with some of their pods on nodes and some that stay without."""
    counts: dict[str, Counter[bool]] = {}
    for pod in pods:
        if not pod.metadata.is_deleting:
            counts.setdefault(pod.metadata.labels[key.POD_GANG], Counter())[pod.is_bound] += 1
    return sorted(gang for gang, seen in counts.items() if len(seen) > 1)


def writes_since(before: Calls, now: Calls) -> Counter[tuple[str, str]]:
    found = Counter({call: count for call, count in now.items() if call[0] not in READS})
    found.subtract({call: count for call, count in before.items() if call[0] not in READS})
    return +found


def most_writes(changes: int) -> int:
    """The bound on the operator's writes for this number of changes of a group's replicas between `LOW` and `HIGH`.

    A unit that comes is 2 cliques, 3 pods, 1 gang with its references and status, 2 cliques' status; one that goes is
    their deletion and finalizers. The group's and the set's status are shared by the units of a change.
    """
    return (20 * (HIGH - LOW) + 6) * changes
