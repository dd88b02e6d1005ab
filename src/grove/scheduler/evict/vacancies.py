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

Freed = tuple[str, frozenset[str], Mapping[str, int]]
"""A node, uids of pods that leave it, and how much more it has then."""


class Heard:
    """Passes questions on and keeps the answers, for the journal of a run."""

    def __init__(self, parts: Sequence[Vacancy]) -> None:
        self._parts = parts
        self._answers: dict[tuple[str, frozenset[str]], Mapping[str, int]] = {}

    def freed(self, node: str, uids: Collection[str]) -> Mapping[str, int]:
        found: Counter[str] = Counter()
        for part in self._parts:
            found.update(part.freed(node, uids))
        self._answers[node, frozenset(uids)] = found
        return found

    def answers(self) -> list[Freed]:
        return [(node, uids, freed) for (node, uids), freed in self._answers.items()]


class NotHeard(LookupError):
    """A question that was not asked when the answers were kept."""


class Recalled:
    """Gives the answers of a journal again."""

    def __init__(self, answers: Iterable[Freed]) -> None:
        self._answers = {(node, uids): freed for node, uids, freed in answers}

    def freed(self, node: str, uids: Collection[str]) -> Mapping[str, int]:
        try:
            return self._answers[node, frozenset(uids)]
        except KeyError:
            raise NotHeard(f"what {node} would have without {len(uids)} pods is not in the journal") from None


class Vacancies:
    """`gone` are uids of pods whose leaving is counted already."""

    def __init__(self, parts: Sequence[Vacancy] = (), gone: frozenset[str] = frozenset()) -> None:
        self._parts, self._gone = parts, gone

    def __bool__(self) -> bool:
        return bool(self._parts)

    def heard(self) -> tuple[Vacancies, Heard]:
        """The same, with somebody who keeps the answers."""
        heard = Heard(self._parts)
        return Vacancies([heard], self._gone), heard

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
