"""Where a set names the queue of its scheduler, and when what it names is one queue.

Each backend says its own rule (`Backend.queue`). Admission, the backend and the dialects read that rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from grove.api.podcliqueset import PodCliqueSet


@dataclass(frozen=True, slots=True)
class QueueRule:
    """The label or annotation that names a queue, on the set or on its cliques.

    `parts` are read in this order; the first is where a queue is written. `default` is the queue of a clique that names
    none; empty if it then is in no queue. `is_needed`: the scheduler takes no gang without a queue.
    """

    scheduler: str
    key: str
    parts: tuple[Literal["labels", "annotations"], ...]
    default: str = ""
    is_needed: bool = False

    def named(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
        parts = {"labels": labels, "annotations": annotations}
        return next((name for part in self.parts if (name := parts[part].get(self.key, "").strip())), "")

    def queues(self, pcs: PodCliqueSet) -> list[str]:
        """The queues of a set's cliques, each once and sorted. More than one is a fault."""
        own = self._own(pcs)
        queues = [
            self.named(clique.labels, clique.annotations) or own or self.default for clique in pcs.spec.template.cliques
        ]
        return sorted({*queues, own} - {""})

    def faults(self, pcs: PodCliqueSet) -> Iterator[tuple[object, str]]:
        """Values that are wrong, and why."""
        own, queues = self._own(pcs), self.queues(pcs)
        if own:
            for clique in pcs.spec.template.cliques:
                queue = self.named(clique.labels, clique.annotations)
                if queue and queue != own:
                    yield queue, f'{self.key} of clique "{clique.name}" differs from that of the set, "{own}"'
        elif self.is_needed and not queues:
            where = f"the {self.parts[0][:-1]} {self.key}"
            yield "", f"scheduler {self.scheduler} needs a queue: set {where} on the PodCliqueSet"
        elif len(queues) > 1:
            yield queues, f"{self.key} must be the same for all cliques: a gang runs in one queue"

    def _own(self, pcs: PodCliqueSet) -> str:
        return self.named(pcs.metadata.labels, pcs.metadata.annotations)
