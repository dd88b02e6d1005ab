"""An update as a standalone clique sees it: which pods are replaced now.

    old        = pods from another template than the target
    broken     = old pods that are not ready: all of them are replaced at once, there is nothing to lose
    in flight  = indexes whose ready pod was taken and that have no ready pod now
    taken      = broken + the oldest of old while in flight < maxUnavailable and ready >= minAvailable
    ended      = nothing is old, nothing in flight

`ready` falls by one with each ready pod taken. A replacement is known by its index, which also keeps the host name; an
index that scaling took away is not waited for. Members of a scaling group have no update of their own: their replica is
recreated whole (`scalinggroup.rollout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from grove.api import labels
from grove.api.core import Pod
from grove.api.podclique import PodCliqueStatus, PodCliqueUpdateProgress, PodsSelectedToUpdate
from grove.operator.podclique.status import ObservedClique
from grove.operator.shared.layout import floor, pod_index
from grove.operator.shared.rollout import (
    first_to_take,
    has_template,
    incarnation_in_effect,
    is_chosen,
    is_open,
    is_rolling,
    max_unavailable,
    pods_of_earlier_incarnations,
)


@dataclass(frozen=True, slots=True)
class PodState:
    """One pod that stays, as far as an update asks."""

    name: str
    index: int | None
    old: bool = False
    ready: bool = True
    created: float = 0.0
    uid: str = ""


@dataclass(frozen=True, slots=True)
class CliqueUpdateFacts:
    """What the next step of a clique's update depends on.

    `target` and `realised` are pairs of generation and template hash: what the clique shall become, and what it fully
    is. `pods` are those that are not on their way out.
    """

    target: tuple[str, str]
    realised: tuple[str, str]
    progress: PodCliqueUpdateProgress | None
    pods: Sequence[PodState]
    wanted: int = 0
    min_available: int = 1
    chosen: bool = True
    rolling: bool = True
    is_member: bool = False
    has_template: bool = True
    max_unavailable: int = 1


@dataclass(frozen=True, slots=True)
class CliqueStep:
    """What an update and the restarts of its gang ask of a clique now.

    `replace` are the UIDs of pods that an update takes, `restart` those of an earlier incarnation. `progress` has to be
    in the status before any pod in `replace` goes: who waits for whom must outlive a crash.
    """

    progress: PodCliqueUpdateProgress | None = None
    replace: frozenset[str] = frozenset()
    incarnation: int = 0
    restart: frozenset[str] = frozenset()

    def must_be_recorded(self, status: PodCliqueStatus) -> bool:
        return bool(self.replace) and self.progress != status.update_progress


def next_rollout_step(observed: CliqueUpdateFacts, now: datetime) -> CliqueStep:
    progress = observed.progress
    closed = _ended(progress, now) if is_open(progress) else progress
    # One that is about another target says what the clique was to become then: its pods would be counted by that.
    is_overtaken = progress is not None and _target(progress) != observed.target
    if not observed.rolling:
        if is_overtaken or (progress is None and observed.realised != observed.target):
            return CliqueStep(_begun(observed.target, now, ended=now))
        return CliqueStep(closed)
    if observed.is_member:
        return CliqueStep(None if is_overtaken else progress)
    old = [pod for pod in observed.pods if pod.old]
    is_done = observed.realised == observed.target and not is_open(progress) and not is_overtaken and not old
    if not observed.chosen or is_done:
        return CliqueStep(closed)
    if not observed.has_template:
        return CliqueStep(progress)  # new pods would be old ones: the clique itself is about to be told
    down = progress.ready_pods_selected_to_update if is_open(progress) else None
    if progress is None or is_overtaken:
        progress = _begun(observed.target, now)
        if down is not None:  # what an overtaken update has in flight still counts
            selection = PodsSelectedToUpdate(current=down.current, indexes=down.indexes)
            progress = msgspec.structs.replace(progress, ready_pods_selected_to_update=selection)
    elif not is_open(progress):
        progress = msgspec.structs.replace(progress, update_ended_at=None)

    flying = [index for index in _selected(progress) if _is_flying(observed, index)]
    broken = [pod for pod in old if not pod.ready]
    chosen = _selected(progress)  # one that was chosen and has not gone yet comes before any other
    waiting = sorted((pod for pod in old if pod.ready), key=lambda pod: (pod.index not in chosen, _age(pod)))
    ready = sum(pod.ready for pod in observed.pods)
    taken = first_to_take(waiting, len(flying), ready, observed.max_unavailable, observed.min_available)
    if not old and not flying:
        return CliqueStep(_ended(progress, now))
    progress = _with_selection(progress, flying, taken)
    return CliqueStep(progress, frozenset(pod.uid for pod in (*broken, *taken)))


def clique_update_facts(observed: ObservedClique) -> CliqueUpdateFacts:
    """The facts of a clique, from its pods."""
    pcs, clique, template_hash = observed.pcs, observed.clique, observed.template_hash
    status, target = clique.status, (pcs.status.current_generation_hash, template_hash)
    return CliqueUpdateFacts(
        target=target,
        realised=(status.current_pod_clique_set_generation_hash, status.current_pod_template_hash),
        progress=status.update_progress,
        pods=[_pod_state(pod, template_hash) for pod in observed.pods if not pod.metadata.is_deleting],
        wanted=clique.spec.replicas,
        min_available=floor(clique.spec),
        chosen=is_chosen(pcs, observed.unit.replica),
        has_template=has_template(clique, template_hash),
        rolling=is_rolling(pcs),
        is_member=observed.unit.group is not None,
        max_unavailable=max_unavailable(pcs),
    )


def next_clique_step(observed: ObservedClique, now: datetime) -> CliqueStep:
    """The next step of a clique. Until the set's status names its templates as they are now, no update moves."""
    incarnation = incarnation_in_effect(observed.pcs, observed.clique, observed.group, observed.template_hash)
    step = CliqueStep(observed.clique.status.update_progress)
    if observed.recorded:
        step = next_rollout_step(clique_update_facts(observed), now)
    return replace(step, incarnation=incarnation, restart=pods_of_earlier_incarnations(observed.pods, incarnation))


def _pod_state(pod: Pod, template_hash: str) -> PodState:
    created = pod.metadata.creation_timestamp
    return PodState(
        pod.metadata.name,
        pod_index(pod),
        old=pod.metadata.labels.get(labels.POD_TEMPLATE_HASH) != template_hash,
        ready=pod.is_ready and not pod.is_finished,
        created=created.timestamp() if created is not None else 0.0,
        uid=pod.metadata.uid,
    )


def _age(pod: PodState) -> tuple[float, int, str]:
    """The oldest first; pods made within a second of each other by index."""
    return pod.created, -1 if pod.index is None else pod.index, pod.name


def _is_flying(observed: CliqueUpdateFacts, index: int) -> bool:
    """Whether the place still waits for a pod; not if it has one that is ready, or is not wanted any more."""
    holders = [pod for pod in observed.pods if pod.index == index]
    return not any(pod.ready for pod in holders) if holders else len(observed.pods) < observed.wanted


def _target(progress: PodCliqueUpdateProgress) -> tuple[str, str]:
    return (progress.pod_clique_set_generation_hash, progress.pod_template_hash)


def _begun(target: tuple[str, str], now: datetime, ended: datetime | None = None) -> PodCliqueUpdateProgress:
    return PodCliqueUpdateProgress(
        update_started_at=now,
        update_ended_at=ended,
        pod_clique_set_generation_hash=target[0],
        pod_template_hash=target[1],
    )


def _ended(progress: PodCliqueUpdateProgress, now: datetime) -> PodCliqueUpdateProgress:
    return msgspec.structs.replace(progress, update_ended_at=now, ready_pods_selected_to_update=None)


def _selected(progress: PodCliqueUpdateProgress) -> tuple[int, ...]:
    found = progress.ready_pods_selected_to_update
    return found.indexes if found is not None else ()


def _with_selection(
    progress: PodCliqueUpdateProgress, flying: list[int], taken: Sequence[PodState]
) -> PodCliqueUpdateProgress:
    before = progress.ready_pods_selected_to_update
    if before is None and not taken:
        return progress
    before = before or PodsSelectedToUpdate()
    gone = [pod.name for pod in taken]
    current = before.current if before.current in gone or not gone else gone[-1]
    names = (*before.completed, before.current, *gone)
    indexes = (*flying, *(pod.index for pod in taken if pod.index is not None))
    selection = PodsSelectedToUpdate(
        current=current,
        completed=tuple(name for name in dict.fromkeys(names) if name not in ("", current)),
        indexes=tuple(sorted(indexes)),
    )
    return msgspec.structs.replace(progress, ready_pods_selected_to_update=selection)
