"""An update as a standalone clique sees it: which pods are replaced now, and when a clique gets a new template.

The units of `shared.stepper` are its pods, by their index, the oldest first. A pod that is not ready is broken. A
replacement is known by its index, which also keeps the host name; an index that scaling took away is not waited for.
Surge pods (`shared.surge`) have indexes from `replicas` on. They are recorded before they are made, and are forgotten
only after they are deleted: which pods they are must outlive a crash.
Members of a scaling group have no update of their own: their replica is recreated whole (`scalinggroup.rollout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from grove.api.core import Pod
from grove.api.draining import counts_as_ready
from grove.api.podclique import PodCliqueStatus, PodCliqueUpdateProgress, PodsSelectedToUpdate
from grove.api.podcliqueset import is_paused
from grove.operator.podclique.draining import is_passed_by
from grove.operator.podclique.status import ObservedClique, is_outdated_pod
from grove.operator.shared.layout import pod_index
from grove.operator.shared.rollout import (
    ALL,
    has_template,
    incarnation_in_effect,
    is_chosen,
    is_made_from,
    is_open,
    is_rolling,
    part_budget,
    pods_of_earlier_incarnations,
    was_overtaken_unseen,
    was_taken,
)
from grove.operator.shared.stepper import ONE_AT_A_TIME, Budget, Step, Unit, next_step
from grove.operator.shared.surge import overtaken


@dataclass(frozen=True, slots=True)
class PodState:
    """One pod that stays, as far as an update asks."""

    name: str
    index: int | None
    old: bool = False
    ready: bool = True
    created: float = 0.0
    uid: str = ""
    has_node: bool = True


@dataclass(frozen=True, slots=True)
class CliqueUpdateFacts:
    """The facts that decide the next step of a clique's update.

    `target` and `realised` are pairs of generation and template hash: what the clique shall become, and what it fully
    is. `pods` are those that are not on their way out. `ending` are the indexes of the others that have a node.
    """

    target: tuple[str, str]
    realised: tuple[str, str]
    progress: PodCliqueUpdateProgress | None
    pods: Sequence[PodState]
    wanted: int = 0
    chosen: bool = True
    rolling: bool = True
    is_member: bool = False
    has_template: bool = True
    budget: Budget = ONE_AT_A_TIME
    ending: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class CliqueStep:
    """The changes that an update and the restarts of its gang ask of a clique now.

    `replace` are the UIDs of pods that an update takes, `restart` those of an earlier incarnation. The operator
    writes `progress` to the status before it deletes a pod in `replace` or makes a surge pod. So the next operator
    continues the same update after a crash. `surplus` are the UIDs of surge pods that the update no longer needs.
    """

    progress: PodCliqueUpdateProgress | None = None
    replace: frozenset[str] = frozenset()
    incarnation: int = 0
    restart: frozenset[str] = frozenset()
    surplus: frozenset[str] = frozenset()

    @property
    def surge(self) -> tuple[int, ...]:
        """Indexes of the surge pods that the clique is to have."""
        return surge_indexes(self.progress)

    def must_be_recorded(self, status: PodCliqueStatus) -> bool:
        if self.progress == status.update_progress:
            return False
        return bool(self.replace or set(self.surge).difference(surge_indexes(status.update_progress)))


def selected_indexes(progress: PodCliqueUpdateProgress | None) -> tuple[int, ...]:
    """Indexes of the pods that an update waits for."""
    return _selection(progress).indexes if progress is not None else ()


def surge_indexes(progress: PodCliqueUpdateProgress | None) -> tuple[int, ...]:
    return progress.surge.indexes if progress is not None and progress.surge is not None else ()


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
        return CliqueStep(progress)  # new pods would be old ones: the clique is about to get its template
    down = progress.ready_pods_selected_to_update if is_open(progress) else None
    if progress is None or is_overtaken:
        unplaced, surge = (progress.unplaced, overtaken(progress.surge)) if is_open(progress) else ((), None)
        progress = msgspec.structs.replace(_begun(observed.target, now), unplaced=unplaced, surge=surge)
        if down is not None:  # what an overtaken update has in flight still counts
            selection = PodsSelectedToUpdate(current=down.current, indexes=down.indexes)
            progress = msgspec.structs.replace(progress, ready_pods_selected_to_update=selection)
    elif not is_open(progress):
        progress = msgspec.structs.replace(progress, update_ended_at=None)

    units, pods_of = _units(observed, progress)
    step = next_step(units, _selection(progress).indexes, observed.budget, progress.unplaced, progress.surge, now)
    if step.is_over:
        return CliqueStep(_ended(progress, now))
    taken = [pod for index in step.taken for pod in pods_of[index] if pod.old]
    broken = [pod for index in step.broken for pod in pods_of[index] if pod.old]
    return CliqueStep(_with_selection(progress, step, taken), frozenset(pod.uid for pod in (*broken, *taken)))


def _units(
    observed: CliqueUpdateFacts, progress: PodCliqueUpdateProgress
) -> tuple[list[Unit], dict[int, list[PodState]]]:
    """The units of a clique, and the pods of each by its index. A pod without an index is a unit of its own."""
    pods_of: dict[int, list[PodState]] = {}
    for number, pod in enumerate(observed.pods):
        pods_of.setdefault(-1 - number if pod.index is None else pod.index, []).append(pod)
    units = []
    for index, pods in pods_of.items():
        ready = any(pod.ready for pod in pods)
        old, has_node = any(pod.old for pod in pods), any(pod.has_node for pod in pods)
        is_ending, order = index in observed.ending, min(map(_age, pods))
        units.append(Unit(index, old, ready, ready, has_node, is_ending, order))
    surge = observed.budget.surge.indexes(progress.surge)
    # The pod of such an index is gone, and its replacement is not there yet.
    if sum(pod.index not in surge for pod in observed.pods) < observed.wanted:
        missing = (index for index in _selection(progress).indexes if index not in pods_of)
        units += (Unit(index, up=False, is_back=False, order=(0.0, index, "")) for index in missing)
    return units, pods_of


def clique_update_facts(observed: ObservedClique) -> CliqueUpdateFacts:
    """The facts of a clique, from its pods."""
    pcs, clique, template_hash = observed.pcs, observed.clique, observed.template_hash
    status, target = clique.status, (pcs.status.current_generation_hash, template_hash)
    template, replica = observed.unit.template, observed.unit.replica
    budget = part_budget(
        pcs,
        replica,
        template.name,
        template.rolling_update,
        clique.spec.current_minimum,
        clique.spec.replicas or ALL,
        observed.surge_wait_s,
    )
    return CliqueUpdateFacts(
        target=target,
        realised=(status.current_pod_clique_set_generation_hash, status.current_pod_template_hash),
        progress=status.update_progress,
        pods=[_pod_state(observed, pod) for pod in observed.pods if not pod.metadata.is_deleting],
        wanted=clique.spec.replicas,
        chosen=is_chosen(pcs, replica) or was_overtaken_unseen(pcs, status.update_progress),
        has_template=has_template(clique, template_hash),
        rolling=is_rolling(pcs),
        is_member=observed.unit.group is not None,
        budget=budget,
        ending=frozenset(
            index
            for pod in observed.pods
            if pod.metadata.is_deleting and pod.is_bound and (index := pod_index(pod)) is not None
        ),
    )


def is_due(observed: ObservedClique) -> bool:
    """True if the clique gets the present template: it has another one, and its unit was chosen.

    OnDelete gives the template to all cliques at once. A clique also gets it at once if all its pods are from the
    current template of the set. A user then undid a change before any pod was replaced.
    """
    pcs, clique, unit, group = observed.pcs, observed.clique, observed.unit, observed.group
    if observed.leaving is not None:
        return False
    if not observed.recorded or is_made_from(clique, observed.template_hash, observed.revision):
        return False
    if not is_rolling(pcs) or not is_open(pcs.status.update_progress):
        return True
    if unit.group is None:
        is_taken = is_chosen(pcs, unit.replica)
    else:
        is_taken = group is not None and was_taken(group, unit.group.replica, pcs.status.current_generation_hash)
    living = (pod for pod in observed.pods if not pod.metadata.is_deleting)
    return is_taken or (
        clique.status.current_pod_template_hash == observed.template_hash
        and not any(is_outdated_pod(observed, pod) for pod in living)
    )


def waits_for_turn(observed: ObservedClique) -> bool:
    """True if an update is open and has not given the clique its template yet."""
    pcs = observed.pcs
    is_going_on = is_rolling(pcs) and is_open(pcs.status.update_progress) and not is_paused(pcs)
    return is_going_on and not has_template(observed.clique, observed.template_hash)


def pauses_halfway(observed: ObservedClique) -> bool:
    """True if a pause may have begun when only some pods of a standalone clique were replaced."""
    pcs, unit = observed.pcs, observed.unit
    return unit.group is None and observed.recorded and is_paused(pcs) and is_chosen(pcs, unit.replica)


def made_from(observed: ObservedClique, step: CliqueStep, index: int) -> ObservedClique:
    """The clique and template for a new pod. In a pause this is the former template.

    A surge pod, and a pod of an index that the update has taken, is new also in a pause.
    """
    progress = step.progress
    if observed.former is None or not is_open(progress):
        return observed
    selection = _selection(progress)
    if index in (*selection.indexes, *selection.updated_indexes, *step.surge):
        return observed
    return replace(observed, clique=observed.former)


def next_clique_step(observed: ObservedClique, now: datetime) -> CliqueStep:
    """The next step of a clique. Until the set's status names its templates as they are now, no update moves."""
    if observed.leaving is not None:
        return CliqueStep(observed.clique.status.update_progress, incarnation=observed.clique.status.incarnation)
    incarnation = incarnation_in_effect(observed.pcs, observed.clique, observed.group, observed.template_hash)
    pcs, progress = observed.pcs, observed.clique.status.update_progress
    step = CliqueStep(progress)
    has_part = progress is not None or not is_rolling(pcs) or is_chosen(pcs, observed.unit.replica)
    if observed.recorded and has_part:
        step = next_rollout_step(clique_update_facts(observed), now)
    if observed.set_drains and is_passed_by(observed):
        step = replace(step, progress=None)  # it is about an update before the one that passed
    restart = pods_of_earlier_incarnations(observed.pods, incarnation)
    return replace(step, incarnation=incarnation, restart=restart, surplus=_surplus(observed, step))


def _surplus(observed: ObservedClique, step: CliqueStep) -> frozenset[str]:
    """UIDs of the surge pods that the step no longer has."""
    if not (before := surge_indexes(observed.clique.status.update_progress)):
        return frozenset()
    gone, replicas = set(before).difference(step.surge), observed.clique.spec.replicas
    return frozenset(
        pod.metadata.uid
        for pod in observed.pods
        if (index := pod_index(pod)) is not None and index in gone and index >= replicas
    )


def _pod_state(observed: ObservedClique, pod: Pod) -> PodState:
    created = pod.metadata.creation_timestamp
    return PodState(
        pod.metadata.name,
        pod_index(pod),
        old=is_outdated_pod(observed, pod),
        ready=counts_as_ready(pod),
        created=created.timestamp() if created is not None else 0.0,
        uid=pod.metadata.uid,
        has_node=pod.is_bound,
    )


def _age(pod: PodState) -> tuple[float, int, str]:
    """The oldest first; pods made within a second of each other by index."""
    return pod.created, -1 if pod.index is None else pod.index, pod.name


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
    return msgspec.structs.replace(
        progress, update_ended_at=now, ready_pods_selected_to_update=None, unplaced=(), surge=None
    )


def _selection(progress: PodCliqueUpdateProgress) -> PodsSelectedToUpdate:
    return progress.ready_pods_selected_to_update or PodsSelectedToUpdate()


def _with_selection(
    progress: PodCliqueUpdateProgress, step: Step, taken: Sequence[PodState]
) -> PodCliqueUpdateProgress:
    before = _selection(progress)
    gone = [pod.name for pod in taken]
    current = before.current if before.current in gone or not gone else gone[-1]
    names = (*before.completed, before.current, *gone)
    landed = (index for index in before.indexes if index not in step.in_flight)
    selection = PodsSelectedToUpdate(
        current=current,
        completed=tuple(name for name in dict.fromkeys(names) if name not in ("", current)),
        indexes=tuple(sorted(index for index in step.in_flight if index >= 0)),
        updated_indexes=tuple(sorted({*before.updated_indexes, *landed})),
    )
    kept = None if selection == PodsSelectedToUpdate() else selection
    unplaced = tuple(index for index in step.unplaced if index >= 0)
    return msgspec.structs.replace(progress, ready_pods_selected_to_update=kept, unplaced=unplaced, surge=step.surge)
