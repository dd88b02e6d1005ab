"""Earlier templates of a set, kept as ControllerRevisions, as StatefulSets do: what `rollout undo` goes back to.

One is written when a set is first seen and whenever what its pods are made from changes; the last few are kept. A
template that comes back gets the highest number again. Pure: writing them is `shared.cluster.revision_writer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grove.api import labels, labelsets
from grove.api.core import ControllerRevision, written_down
from grove.api.hashes import generation_hash
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.operator.shared.diff import owned_by

KEPT = 5


@dataclass(frozen=True, slots=True)
class Steps:
    """What keeps the history right: one to create or to number anew, and those that go."""

    create: Json | None = None
    renumber: tuple[str, int] | None = None
    delete: tuple[str, ...] = ()


def next_steps(pcs: PodCliqueSet, kept: Sequence[ControllerRevision]) -> Steps:
    """Pure: the newest revision is that of the template as it stands, and no more than the limit are kept."""
    now = generation_hash(pcs.spec.template)
    ordered = sorted(kept, key=lambda one: (one.revision, one.metadata.name))
    highest = ordered[-1].revision if ordered else 0
    current = next((one for one in ordered if one.metadata.labels.get(labels.GENERATION_HASH) == now), None)
    limit = _limit(pcs)
    create = None if current is not None else revision_of(pcs, now, highest + 1)
    renumber = None
    if current is not None and current.revision < highest:
        renumber = (current.metadata.name, highest + 1)
    others = [one for one in ordered if one is not current]
    over = len(ordered) + (create is not None) - limit
    return Steps(create, renumber, tuple(one.metadata.name for one in others[: max(0, over)]))


def revision_of(pcs: PodCliqueSet, hash_: str, number: int) -> Json:
    meta = pcs.metadata
    own = {**labelsets.component(meta.name, labels.REVISION_COMPONENT), labels.GENERATION_HASH: hash_}
    return {
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {
            "name": f"{meta.name}-{hash_}", "namespace": meta.namespace, "labels": own,
            "ownerReferences": owned_by(pcs),
        },
        "data": written_down(made_from(pcs)), "revision": number,
    }  # fmt: skip


def made_from(pcs: PodCliqueSet) -> Json:
    """What the pods of a set are made from, and nothing that scaling or a strategy is about."""
    template = pcs.spec.template
    cliques = [
        {"name": one.name, "labels": one.labels, "annotations": one.annotations, "podSpec": one.spec.pod_spec}
        for one in template.cliques
    ]
    return {"priorityClassName": template.priority_class_name, "cliques": cliques}


def _limit(pcs: PodCliqueSet) -> int:
    text = pcs.metadata.annotations.get(labels.REVISION_HISTORY_LIMIT, "")
    return max(1, int(text)) if text.isascii() and text.isdecimal() else KEPT
