"""What sources would have on nodes if some pods left: devices come free by rules of their own, not by requests.

Two halves of a card make a whole one only when both are free; a claim's devices come back when its last user goes; what
a pod used of a reservation goes back to the reservation and not to the node. So sources are asked about sets of pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.seams import Vacancy


class Vacancies:
    """`gone` are uids of pods whose leaving is counted already."""

    def __init__(self, parts: Sequence[Vacancy] = (), gone: frozenset[str] = frozenset()) -> None:
        self._parts, self._gone = parts, gone

    def __bool__(self) -> bool:
        return bool(self._parts)

    def after(self, pods: Iterable[PodFacts]) -> Vacancies:
        """The same when these have left."""
        return Vacancies(self._parts, self._gone.union(pod.uid for pod in pods))

    def freed(self, node: str, uids: Collection[str]) -> Mapping[str, int]:
        """How much more a node would have if these pods left it besides, by resource; less, where it is negative."""
        found: Counter[str] = Counter()
        for part in self._parts:
            found.update(part.freed(node, self._gone.union(uids)))
            if self._gone:
                found.subtract(part.freed(node, self._gone))
        return found

    def clear(self, snapshot: Snapshot, pods: Iterable[PodFacts]) -> None:
        """Counts on a copy what becomes free beside the pods' own requests."""
        if not self._parts:
            return
        by_node: dict[str, list[str]] = {}
        for pod in pods:
            by_node.setdefault(pod.node, []).append(pod.uid)
        for node, uids in by_node.items():
            snapshot.add_free(node, self.freed(node, uids))


NO_VACANCIES = Vacancies()
