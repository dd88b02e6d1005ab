"""Which pods of a gang Kueue admits together, and what those pods carry.

A gang of a set with a Kueue queue is one pod group. The group has every pod that the gang's cliques ask for when the
group is made. It keeps that size while one of its pods is admitted: Kueue deletes pods beyond the size it counted. A
pod that a clique gets later, by scale-out or for an update, is a workload of its own. Scale-in takes such pods first.

A group that is not admitted follows the cliques: its pods are made again when a clique is scaled. A group of another
size has another name, so Kueue makes another Workload. A scaled gang joins the queue after its base gang is admitted.
Otherwise it could hold the quota that the base gang waits for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grove.api import kueue, labels
from grove.api.core import Pod
from grove.api.fields import natural
from grove.api.meta import Json

_HASH_LENGTH = 5
_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True)
class KueueGroup:
    """The pod group of one gang. `sizes` are its pods by clique name.

    `is_admitted`: Kueue has let at least one of its pods go. `may_queue`: its pods may be created now.
    """

    queue: str
    name: str
    sizes: Mapping[str, int]
    is_admitted: bool = False
    may_queue: bool = True

    def has(self, clique: str, index: int) -> bool:
        """True if the pod with this index is in the group. Otherwise it is a workload of its own."""
        return index < self.sizes.get(clique, 0)

    def marks(self, clique: str, index: int, role: str) -> tuple[dict[str, str], dict[str, str]]:
        """The labels and annotations of a pod."""
        own = {kueue.QUEUE: self.queue, kueue.MANAGED: "true"}
        if not self.has(clique, index):
            return own, {}
        annotations = {
            kueue.TOTAL: str(sum(self.sizes.values())),
            kueue.SERVING: "true",
            kueue.ROLE: role,
            labels.KUEUE_SIZES: _text(self.sizes),
        }
        return {**own, kueue.GROUP: self.name}, annotations

    def mark(self, pod: Json, clique: str, index: int, role: str) -> None:
        """Puts a pod that is about to be created into the queue. Kueue's webhook adds the same gate where it runs."""
        own, annotations = self.marks(clique, index, role)
        pod["metadata"]["labels"] |= own
        pod["metadata"]["annotations"] |= annotations
        pod["spec"].setdefault("schedulingGates", []).append({"name": kueue.GATE})


def kueue_group(
    queue: str, gang: str, asked: Mapping[str, int], pods: Iterable[Pod], *, may_queue: bool = True
) -> KueueGroup | None:
    """The group of a gang; None for a set without a Kueue queue. `asked` are the pods that each clique is to have."""
    if not queue:
        return None
    admitted = min((pod for pod in pods if is_admitted(pod)), key=lambda pod: pod.metadata.name, default=None)
    if admitted is not None:
        sizes = _sizes(admitted.metadata.annotations.get(labels.KUEUE_SIZES, ""))
        return KueueGroup(queue, admitted.metadata.labels[kueue.GROUP], sizes, is_admitted=True)
    sizes = {clique: count for clique, count in sorted(asked.items()) if count > 0}
    return KueueGroup(queue, _name(gang, queue, sizes), sizes, may_queue=may_queue)


def is_admitted(pod: Pod) -> bool:
    """True if the pod is an active member of a group that Kueue has admitted."""
    return kueue.GROUP in pod.metadata.labels and pod.is_active and not kueue.waits(pod)


def is_misplaced(pod: Pod, group: KueueGroup, clique: str, index: int, role: str) -> bool:
    """True if a pod must be made again because its group changed.

    An admitted pod of a group that is admitted stays. Pods that were made before the set had a queue stay too.
    """
    if not kueue.is_managed(pod) or (group.is_admitted and not kueue.waits(pod)):
        return False
    if not group.is_admitted and not group.has(clique, index):
        return True  # a pod of its own would hold quota that the group waits for
    own, annotations = group.marks(clique, index, role)
    existing = {key: pod.metadata.labels.get(key) for key in (kueue.QUEUE, kueue.MANAGED, kueue.GROUP)}
    return existing != {kueue.GROUP: None, **own} or any(
        pod.metadata.annotations.get(key) != value for key, value in annotations.items()
    )


def without_early(
    group: KueueGroup, clique: str, indexes: list[int], staying: Iterable[Pod], pods: Iterable[Pod]
) -> list[int]:
    """The indexes of new pods that may be created now.

    Kueue counts a pod on a node until the pod is gone. It would delete an earlier replacement as one pod too many.
    """
    if not group.may_queue:
        return []
    stay = {pod.metadata.uid for pod in staying}
    of_group = (pod for pod in pods if kueue.GROUP in pod.metadata.labels)
    counted = sum(pod.metadata.uid in stay or (pod.is_bound and pod.status.phase != "Failed") for pod in of_group)
    free = max(0, group.sizes.get(clique, 0) - counted)
    members = [index for index in indexes if group.has(clique, index)][:free]
    return [index for index in indexes if index in members or (group.is_admitted and not group.has(clique, index))]


def _name(gang: str, queue: str, sizes: Mapping[str, int]) -> str:
    made_from = f"{queue}/{_text(sizes)}"
    short = hashlib.sha256(made_from.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{gang[: _LONGEST_NAME - _HASH_LENGTH - 1].rstrip('-.')}-{short}"


def _text(sizes: Mapping[str, int]) -> str:
    return ",".join(f"{clique}={count}" for clique, count in sizes.items())


def _sizes(text: str) -> dict[str, int]:
    """Reads what `_text` wrote; empty for text that was edited by hand."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        clique, _, count = part.partition("=")
        if (size := natural(count)) is not None:
            sizes[clique] = size
    return sizes
