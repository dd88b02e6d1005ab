"""The way back to the Go operator: what each set needs so that that operator replaces none of its pods.

That operator compares its own hash of a template with the labels of PodCliques and pods, and only it can reckon that
hash. So the set goes over under the strategy OnDelete, with which that operator writes its hashes and replaces nothing.
Then the pods that are up to date get the hash that their PodClique has by now, and the set its own strategy again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import to_builtins

from grove.api import labels
from grove.api.core import Pod
from grove.api.hashes import is_own
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import ON_DELETE, PodCliqueSet
from grove.api.words import many
from grove.operator.shared.children import template_hashes
from grove.operator.shared.layout import unit_of

Act = Literal["none", "busy", "prepare", "wait", "finish"]


@dataclass(frozen=True, slots=True)
class BackStep:
    """The next step for one set. `pods` are hashes by pod name; of `cliques` the update that ended is forgotten."""

    act: Act
    text: str
    patch: Json = field(default_factory=dict)
    pods: Mapping[str, str] = field(default_factory=dict)
    cliques: tuple[str, ...] = ()


def next_step(pcs: PodCliqueSet, cliques: Iterable[PodClique], pods: Iterable[Pod]) -> BackStep:
    """`pods` and `cliques` are those of the set."""
    cliques, staying = list(cliques), [pod for pod in pods if not pod.metadata.is_deleting]
    ours = [pod for pod in staying if is_own(pod.metadata.labels.get(labels.POD_TEMPLATE_HASH, ""))]
    recorded = pcs.metadata.annotations.get(labels.WAY_BACK)
    if recorded is None:
        return _before(pcs, ours, len(staying))
    waiting = [
        clique.metadata.name for clique in cliques if is_own(clique.metadata.labels.get(labels.POD_TEMPLATE_HASH, ""))
    ]
    if is_own(pcs.status.current_generation_hash) or waiting:
        return BackStep("wait", "is ready for the other operator, which has not looked at it yet")
    return _after(pcs, cliques, ours, recorded)


def _before(pcs: PodCliqueSet, ours: list[Pod], count: int) -> BackStep:
    if not is_own(pcs.status.current_generation_hash) and not ours:
        return BackStep(
            "none", f"{many(count, 'pod')} with the hashes of the other operator, which replaces none of them"
        )
    progress = pcs.status.update_progress
    if progress is not None and progress.update_ended_at is None:
        return BackStep("busy", "an update is under way: let it end first, or kubectl grove rollout undo")
    own = pcs.spec.update_strategy
    strategy = {**to_builtins(own), "type": own.type} if own is not None else None
    patch: Json = {
        "metadata": {"annotations": {labels.WAY_BACK: json.dumps(strategy, sort_keys=True)}},
        "spec": {"updateStrategy": {"type": ON_DELETE}},
    }
    text = (
        f"the other operator would replace {len(ours)} of {many(count, 'pod')}: OnDelete until it has looked at the set"
    )
    return BackStep("prepare", text, patch)


def _after(pcs: PodCliqueSet, cliques: list[PodClique], ours: list[Pod], recorded: str) -> BackStep:
    """Every clique has the other operator's hash now, so our own hash of the template decides what is up to date."""
    hashes, wanted = template_hashes(pcs), dict[str, str]()
    now = {clique.metadata.name: clique for clique in cliques}
    outdated = 0
    for pod in ours:
        clique = now.get(pod.metadata.labels.get(labels.POD_CLIQUE, ""))
        unit = unit_of(pcs, clique) if clique is not None else None
        if clique is None or unit is None:
            continue
        if pod.metadata.labels[labels.POD_TEMPLATE_HASH] != hashes[unit.template.name]:
            outdated += 1
            continue
        wanted[pod.metadata.name] = clique.metadata.labels[labels.POD_TEMPLATE_HASH]
    members = tuple(
        sorted(clique.metadata.name for clique in cliques if labels.SCALING_GROUP in clique.metadata.labels)
    )
    strategy: Any = json.loads(recorded or "null")
    patch = {"metadata": {"annotations": {labels.WAY_BACK: None}}, "spec": {"updateStrategy": strategy}}
    text = f"{many(len(wanted), 'pod')} get the hash of the other operator, and the set its own strategy again"
    text += f"; {many(outdated, 'pod')} of an older template stay until they are deleted" if outdated else ""
    return BackStep("finish", text, patch, wanted, members)
