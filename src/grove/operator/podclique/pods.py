"""The pods of a PodClique: which to make, which to remove, which to let go, and when to look again.

`plan_pods` looks at one clique and its pods and answers with everything at once. Invariants: no two pods that stay have
the same index. A clique has as many pods as it was scaled to. A pod that failed or lost its node comes back under its
own index.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

from grove.api import labels, names
from grove.api.core import Pod
from grove.api.draining import is_draining
from grove.api.kueue import waits
from grove.api.meta import Json
from grove.api.pod import PodHealth, pod_health
from grove.api.podclique import PodClique
from grove.api.podcliqueset import is_coherent
from grove.backends.base import Backend
from grove.operator.podclique.draining import Drains, DrainStep, marks_of_leaving, passed_by
from grove.operator.podclique.in_place import (
    InPlaceStep,
    can_be_patched,
    keeps_old_revision,
    step_of_chosen,
    step_of_staying,
)
from grove.operator.podclique.pod import build_pod
from grove.operator.podclique.removals import (
    DUPLICATE,
    FAILED,
    NODE_GONE,
    OUTDATED,
    PARENT_AT_ZERO,
    QUEUE_CHANGED,
    REQUESTED,
    RESTARTED,
    START_CONDITION_CHANGED,
    SURGE_OVER,
    SURPLUS,
    Removal,
    scale_in_order,
)
from grove.operator.podclique.rollout import CliqueStep, made_from, selected_indexes
from grove.operator.podclique.status import VANISHED_NODE_GRACE_S, ObservedClique, is_outdated_pod, preparation_left_s
from grove.operator.podgang.gangs import may_be_ungated
from grove.operator.shared.kueue import is_misplaced, without_early
from grove.operator.shared.layout import min_pods, pod_index
from grove.operator.shared.rollout import is_in_place
from grove.operator.shared.startup import waits_for_another_condition

FAILED_POD_PAUSE_S = 10.0
"""Youngest age at which a failed pod is replaced, so that a program that dies at once does not spin the cluster."""


@dataclass(frozen=True, slots=True)
class PodPlan:
    """The writes for the pods of one clique, in this order: delete, create, ungate, relabel, then updates in place.

    `indexes` are those of the pods that stay or come, for their claims. `next_look_s` is the exact time until the next
    step is due. It is None if only an event can help.
    """

    delete: list[Removal] = field(default_factory=list)
    create: list[Json] = field(default_factory=list)
    ungate: list[Pod] = field(default_factory=list)
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """What the nodes of those that are let go must have."""
    relabel: list[tuple[Pod, Json]] = field(default_factory=list)
    in_place: list[tuple[Pod, InPlaceStep]] = field(default_factory=list)
    """Pods whose readiness gate turns, or that get a new template while they run."""
    drain: list[tuple[Pod, DrainStep]] = field(default_factory=list)
    """Pods whose mark or gate is to be written because they drain, or do so no longer."""
    indexes: frozenset[int] = frozenset()
    next_look_s: float | None = None

    @property
    def is_settled(self) -> bool:
        """True if the plan has no write. A deletion of a pod that is being deleted already is no write."""
        if self.create or self.ungate or self.relabel or self.in_place or self.drain:
            return False
        return all(removal.pod.metadata.is_deleting for removal in self.delete) if self.delete else True


@dataclass(slots=True)
class _Judged:
    """What becomes of the pods that are there."""

    staying: list[Pod] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    in_place: list[tuple[Pod, InPlaceStep]] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    """Seconds until something about a pod is decided by time."""


def plan_pods(observed: ObservedClique, backend: Backend, step: CliqueStep, now: datetime, rng: Random) -> PodPlan:
    """The plan for a clique that is not being deleted; `step` says which pods an update or a restart takes now."""
    if (leaving := observed.leaving) is not None:  # its owner removes it whole
        indexes = _indexes(observed.pods)
        return PodPlan(drain=marks_of_leaving(observed.pods, leaving.until, now), indexes=frozenset(indexes))
    drains = Drains(observed, now) if observed.drain_s or any(map(is_draining, observed.pods)) else None
    judged = _judge(observed, backend, step, drains, now)
    surge = [index for index in step.surge if index >= observed.clique.spec.replicas]
    _remove_surplus(observed, backend, step, surge, judged)
    held_back: list[Removal] = []
    if drains is not None:
        judged.removals, held_back = drains.split(judged.removals)

    fresh = _fresh_indexes(observed, step, surge, judged, held_back)
    ungate = _ungated(observed, backend, judged.staying)
    changing = {pod.metadata.uid for pod, _ in judged.in_place}
    due = judged.due
    if drains is not None:
        changing, due = changing | drains.uids, due + drains.ends_s
    kept = [*judged.staying, *(removal.pod for removal in held_back)]
    gang = observed.gang
    return PodPlan(
        delete=judged.removals,
        create=_new_pods(observed, backend, step, fresh, rng),
        ungate=ungate,
        node_labels=backend.node_labels_to_keep(gang, observed.core_nodes) if ungate and gang is not None else {},
        relabel=[(pod, changes) for pod in judged.staying if (changes := _wrong_labels(observed, pod))],
        in_place=_patches(judged, changing, now),
        drain=drains.steps(judged.staying, changing) if drains is not None else [],
        indexes=frozenset(_indexes(kept).union(fresh)),
        next_look_s=min(due) if due else None,
    )


def _judge(
    observed: ObservedClique, backend: Backend, step: CliqueStep, drains: Drains | None, now: datetime
) -> _Judged:
    """Which pods stay, which are removed and why, and which are patched in place."""
    judged = _Judged()
    taken = _taken(observed, step)
    for pod in observed.pods:
        loss = _loss(pod, now, observed, judged.due)
        if pod.metadata.is_deleting:
            if loss == NODE_GONE:
                judged.removals.append(Removal(pod, NODE_GONE, force=True))
            continue
        why = taken.get(pod.metadata.uid, "")
        patch = _in_place(observed, backend, step, pod, why, now) if why and not loss else None
        if patch is not None:
            judged.staying.append(pod)
            if drains is None or not drains.holds(pod, why):
                judged.in_place.append((pod, patch))
        elif reason := loss or why or _unpatched(pod, now, judged.due):
            judged.removals.append(Removal(pod, reason, force=reason == NODE_GONE))
        else:
            judged.staying.append(pod)
            if (left_s := preparation_left_s(pod, now)) is not None and left_s > 0:
                judged.due.append(left_s)
    judged.staying, doubled = _one_per_index(judged.staying)
    judged.removals += (Removal(pod, DUPLICATE) for pod in doubled)
    return judged


def _remove_surplus(
    observed: ObservedClique, backend: Backend, step: CliqueStep, surge: Collection[int], judged: _Judged
) -> None:
    """Moves the pods that a scale-in takes from those that stay to those that are removed."""
    regular = [pod for pod in judged.staying if pod_index(pod) not in surge]
    count = len(regular) - observed.clique.spec.replicas
    if count <= 0:
        return
    victims = _scale_in_order(observed, backend, step, regular)[:count]
    judged.removals += (Removal(pod, SURPLUS) for pod in victims)
    uids = {pod.metadata.uid for pod in victims}
    judged.staying = [pod for pod in judged.staying if pod.metadata.uid not in uids]


def _fresh_indexes(
    observed: ObservedClique,
    step: CliqueStep,
    surge: Collection[int],
    judged: _Judged,
    held_back: Sequence[Removal],
) -> list[int]:
    """The indexes of the pods to make: of those that are replaced, then free ones, then those of a surge.

    `held_back` are pods that drain before they are removed. Until the set has recorded a change, no pod is made: the
    change may or may not reach this clique.
    """
    if not observed.recorded:
        return []
    used = _indexes([*judged.staying, *(removal.pod for removal in held_back)])
    replaced_later = [removal.pod for removal in held_back if removal.reason not in (SURPLUS, SURGE_OVER)]
    counted = [pod for pod in (*judged.staying, *replaced_later) if pod_index(pod) not in surge]
    missing = max(0, observed.clique.spec.replicas - len(counted))
    replaced = _replaced_indexes(judged.removals, step)
    back = [index for index in replaced if index not in used and index not in surge][:missing]
    fresh = [*back, *free_indexes({*used, *surge, *back}, missing - len(back))]
    fresh += [index for index in surge if index not in used]
    if observed.kueue is None:
        return fresh
    return without_early(observed.kueue, observed.clique.metadata.name, fresh, judged.staying, observed.pods)


def _new_pods(
    observed: ObservedClique, backend: Backend, step: CliqueStep, indexes: Iterable[int], rng: Random
) -> list[Json]:
    """The manifests of new pods with these indexes."""
    names_taken = {pod.metadata.name for pod in observed.pods}
    return [
        build_pod(
            made_from(observed, step, index),
            backend,
            step.incarnation,
            index,
            _unused_name(observed.clique.metadata.name, names_taken, rng),
        )
        for index in indexes
    ]


def _patches(judged: _Judged, changing: Collection[str], now: datetime) -> list[tuple[Pod, InPlaceStep]]:
    """Writes to pods that stay: new templates in place, and readiness gates that open again.

    `changing` are the uids of pods that are patched or drain: their gates stay as they are.
    """
    staying = {pod.metadata.uid for pod in judged.staying}
    patches = [
        (pod, patch) for pod, patch in judged.in_place if pod.metadata.uid in staying and (patch.gate or patch.patch)
    ]
    for pod in judged.staying:
        if pod.metadata.uid not in changing and pod.spec.readiness_gates:
            opened = step_of_staying(pod, now)
            if opened.gate:
                patches.append((pod, opened))
    return patches


def _indexes(pods: Iterable[Pod]) -> set[int]:
    """The indexes that these pods have."""
    return {index for pod in pods if (index := pod_index(pod)) is not None}


def _taken(observed: ObservedClique, step: CliqueStep) -> dict[str, str]:
    """UIDs of the pods that do not stay as they are, each with its reason. Of two reasons the later one counts."""
    taken, condition = dict.fromkeys(step.surplus, SURGE_OVER), observed.clique.spec.start_condition
    passed = frozenset(passed_by(observed)) if observed.set_drains else frozenset()
    for pod in observed.pods:  # one loop: this is asked at every look at a clique
        uid = pod.metadata.uid
        if labels.RESTART_REQUESTED in pod.metadata.annotations:
            taken[uid] = REQUESTED
        if uid in passed:
            taken[uid] = OUTDATED
        if uid in observed.stuck:
            taken[uid] = PARENT_AT_ZERO
        if pod.spec.init_containers and waits_for_another_condition(pod, condition):
            taken[uid] = START_CONDITION_CHANGED
        if _is_misplaced(observed, pod):
            taken[uid] = QUEUE_CHANGED
    taken.update(dict.fromkeys(step.restart, RESTARTED))
    taken.update(dict.fromkeys(step.replace, OUTDATED))
    return taken


def _is_misplaced(observed: ObservedClique, pod: Pod) -> bool:
    """True if Kueue would not admit the pod with its present labels."""
    if observed.kueue is None:
        return waits(pod)  # the set has left its queue
    name, role, index = observed.clique.metadata.name, observed.unit.template.name, pod_index(pod)
    return index is not None and is_misplaced(pod, observed.kueue, name, index, role)


def _in_place(
    observed: ObservedClique, backend: Backend, step: CliqueStep, pod: Pod, why: str, now: datetime
) -> InPlaceStep | None:
    """The step of a pod that is taken, if it can stay; None if it is recreated.

    A restart takes only pods in place that an update changes: a broken pod is replaced.
    """
    index = pod_index(pod)
    if not is_in_place(observed.pcs) or index is None or why not in (OUTDATED, RESTARTED):
        return None
    if why == RESTARTED and not (is_outdated_pod(observed, pod) and pod_health(pod).is_up):
        return None
    wanted = build_pod(observed, backend, step.incarnation, index, pod.metadata.name)
    if not can_be_patched(pod, wanted) or (is_coherent(observed.pcs) and keeps_old_revision(pod, wanted)):
        return None
    return step_of_chosen(pod, wanted, now)


def _unpatched(pod: Pod, now: datetime, due: list[float]) -> str:
    """Why a pod that was patched is recreated after all: its kubelet did not act on it."""
    if not pod.spec.readiness_gates:
        return ""
    step = step_of_staying(pod, now)
    if step.wait_s is not None:
        due.append(step.wait_s)
    return OUTDATED if step.recreate else ""


def _replaced_indexes(removals: Iterable[Removal], step: CliqueStep) -> list[int]:
    """Indexes that new pods reuse: those of pods that are replaced now, or that an update waits for.

    Scaling in may leave lower indexes free. An update recognises a replacement by its index.
    """
    now = (
        pod_index(removal.pod)
        for removal in removals
        if removal.reason not in (SURPLUS, DUPLICATE, SURGE_OVER) and not removal.pod.metadata.is_deleting
    )
    indexes = {index for index in now if index is not None}
    return sorted(indexes.union(selected_indexes(step.progress)))


def free_indexes(used: Collection[int], count: int) -> list[int]:
    """The lowest `count` indexes that are free, ascending: holes are filled before the end grows."""
    return list(itertools.islice((index for index in itertools.count() if index not in used), count))


def _scale_in_order(observed: ObservedClique, backend: Backend, step: CliqueStep, pods: Iterable[Pod]) -> list[Pod]:
    """Pods of this clique in the order in which scale-in takes them."""
    is_measured = _stands_for_replica(observed)
    order = scale_in_order(pods, _expected_hash(observed, step), observed.loads, first_stays=is_measured)
    kueue, name = observed.kueue, observed.clique.metadata.name
    if backend.core_by_index or kueue is not None:
        # Only pods with low indexes are members of the scheduler's gang; without them it could never be whole again.
        # Those of Kueue's group hold quota until the whole group goes.
        core = min_pods(observed.unit.template) if kueue is None else kueue.sizes.get(name, 0)
        order.sort(key=lambda pod: (pod_index(pod) or 0) < core)
    return order


def _expected_hash(observed: ObservedClique, step: CliqueStep) -> str:
    """The template hash up-to-date pods carry: that of the update under way, else the clique's own."""
    progress, generation = step.progress, observed.pcs.status.current_generation_hash
    if progress is not None and progress.pod_clique_set_generation_hash == generation:
        return progress.pod_template_hash
    return observed.clique.metadata.labels.get(labels.POD_TEMPLATE_HASH, "")


def _ungated(observed: ObservedClique, backend: Backend, staying: Sequence[Pod]) -> list[Pod]:
    """Pods that stay and whose gang and scheduler let them go."""
    gang, name = observed.gang, observed.clique.metadata.name
    if not backend.needs_gate or gang is None:
        return []
    complete = may_be_ungated(staying, name, gang, base_scheduled=observed.base_scheduled)
    return [pod for pod in complete if backend.may_ungate(pod, gang)]


def surplus(clique: PodClique, pods: Iterable[Pod]) -> int:
    """Pods that a scale-in takes, roughly: enough to know whether there is a choice to make."""
    return sum(pod.is_active for pod in pods) - clique.spec.replicas


def _stands_for_replica(observed: ObservedClique) -> bool:
    """True if autoscalers measure a replica of the set by this clique's pod 0."""
    pcs, unit = observed.pcs, observed.unit
    return unit.group is None and unit.template.name == pcs.spec.template.metrics_clique(pcs.metadata.annotations)


def _wrong_labels(observed: ObservedClique, pod: Pod) -> Json:
    """Labels of a pod that say it belongs elsewhere, with what they should say; None for one that should not be there.

    Only those that name its place, by which its gang, its Service and its parents find it. The template's own stay as
    they were when the pod was made.
    """
    unit, index = observed.unit, pod_index(pod)
    place: dict[str, str | None] = {
        labels.MANAGED_BY: labels.OPERATOR,
        labels.PART_OF: observed.pcs.metadata.name,
        labels.REPLICA_INDEX: str(unit.replica),
        labels.POD_CLIQUE: unit.fqn,
        labels.POD_GANG: unit.gang,
        labels.BASE_POD_GANG: unit.base_gang if unit.is_scaled else None,
        labels.SCALING_GROUP: unit.group.fqn if unit.group is not None else None,
        labels.SCALING_GROUP_REPLICA_INDEX: str(unit.group.replica) if unit.group is not None else None,
    }
    if index is not None:
        place[labels.POD_INDEX] = str(index)
    own = pod.metadata.labels
    return {label: value for label, value in place.items() if own.get(label) != value}


def _loss(pod: Pod, now: datetime, observed: ObservedClique, due: list[float]) -> str:
    """Why a pod is lost, or nothing; a loss that is not due yet leaves its time in `due`."""
    since = observed.gone_since.get(pod.spec.node_name)
    health = pod_health(pod, node_is_gone=since is not None)
    if health is PodHealth.GONE and since is not None:
        wait, reason = VANISHED_NODE_GRACE_S - (now - since).total_seconds(), NODE_GONE
    elif health is PodHealth.FAILED and not pod.metadata.is_deleting:
        created = pod.metadata.creation_timestamp
        wait, reason = FAILED_POD_PAUSE_S - (now - created).total_seconds() if created is not None else 0.0, FAILED
    else:
        return ""
    if wait <= 0:
        return reason
    due.append(wait)
    return ""


def _one_per_index(pods: list[Pod]) -> tuple[list[Pod], list[Pod]]:
    """Pods that keep their index, and those that share one with a more useful pod.

    Two pods of one index come from a create the cache did not show in time. Upstream stops at them; one of the two must
    go for the clique to heal.
    """
    indexes = [index for pod in pods if (index := pod_index(pod)) is not None]
    if len(indexes) == len(set(indexes)):
        return pods, []
    keep: dict[int, Pod] = {}
    without: list[Pod] = []
    doubled: list[Pod] = []
    for pod in reversed(scale_in_order(pods, "")):
        index = pod_index(pod)
        if index is None:
            without.append(pod)
        elif index in keep:
            doubled.append(pod)
        else:
            keep[index] = pod
    return [*keep.values(), *without], doubled


_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST = 63


def _unused_name(clique_fqn: str, taken: set[str], rng: Random) -> str:
    """A pod name as the API server would generate it; chosen by us, so a create that is retried makes one pod."""
    prefix = names.pod_prefix(clique_fqn)[: _LONGEST - 5]
    while True:
        name = prefix + "".join(rng.choices(_SUFFIX, k=5))
        if name not in taken:
            taken.add(name)
            return name
