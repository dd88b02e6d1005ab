"""PodGang: writes for the scheduler which pods belong together, one gang at a time.

`PodGangController.wakes` lists what wakes it; the set's controller wakes all gangs of a set that was edited. The
controller also removes gangs that are no longer part of their set.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from prometheus_client import Counter

from grove.api import labels
from grove.api.conditions import SCHEDULED, ErrorCode, EventReason
from grove.api.core import Node, Pod
from grove.api.meta import Key, Object, find_condition
from grove.api.names import base_gang
from grove.api.pod import PodHealth, pod_health
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet, UpdateSlice
from grove.api.podgang import PodGang, Replacement
from grove.api.provisioning import CONSUMES, ProvisioningRequest
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.backends.base import Backend, BackendError, GangObjectsState
from grove.kube.clock import loop_time
from grove.kube.controller import DONE, Result, earliest
from grove.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, NotLeader
from grove.kube.wakes import Wake, changed, each, is_gone, is_spec_changed, latest
from grove.kube.writes import namespace_ends
from grove.operator.podgang.gangs import ObservedGang, find_gang_layout
from grove.operator.podgang.plan import GangPlan, plan_gang
from grove.operator.podgang.provisioning import ProvisioningState
from grove.operator.podgang.provisioning_writer import ProvisioningRequests
from grove.operator.podgang.retry_writer import Retries
from grove.operator.podgang.scheduler_objects import SchedulerObjects
from grove.operator.shared.cluster.children_writer import Taken, check_owner, get_own, taken
from grove.operator.shared.cluster.deps import Deps, GangKey, base_gang_key_of, gang_key, gang_key_of
from grove.operator.shared.cluster.sets import BINDING, ON_NODE, SET, differ
from grove.operator.shared.diff import needed_patch
from grove.operator.shared.layout import GangLayout, group_indexes, replica_layouts, replica_of
from grove.operator.shared.replacement import asked_replacement
from grove.operator.shared.status_batching import (
    BUSY_SCHEDULER_S,
    PROGRESS_S,
    SCHEDULER_FIRST_S,
    SCHEDULER_QUEUE_S,
    SETTLE_S,
)

TROUBLES = Counter(
    "grove_gang_backend_troubles",
    "Times a gang was not handed to its scheduler, or not placed as its PodGang requires, by scheduler and reason.",
    ["scheduler", "reason"],
)


class PodGangController:
    """Keeps PodGangs: reads, has `plan_gang` decide, carries it out."""

    def __init__(self, deps: Deps, objects: SchedulerObjects) -> None:
        self._deps, self._objects = deps, objects
        self._cache, self._sets, self._queue = deps.cache, deps.sets, deps.queues.gangs
        self._provisioning = ProvisioningRequests(deps)
        self._retries = Retries(deps) if any(backend.tries_once for backend in deps.backends.all) else None
        self._scheduler_spoke_s = -math.inf
        self._cache.on_event(PodGang, self._note_gang)
        deps.follow(self.wakes())

    def wakes(self) -> tuple[Wake[Any, GangKey], ...]:
        """The table of what wakes the controller: source, keys, and the changes that count."""
        now, settled, hurry = self._queue.add, partial(self._queue.add, after_s=SETTLE_S), self._queue.hurry
        part_of = each(gang_key_of)
        return (
            Wake(PodGang, each(gang_key), settled, self._cache.is_news),
            Wake(PodGang, each(gang_key), now, is_gone),
            Wake(Pod, part_of, settled, self._matters, hurry=hurry, urgent=self._completes_gang),
            Wake(PodClique, part_of, settled, self._is_resized),
            Wake(ProvisioningRequest, part_of, settled, _is_answered),
            Wake(PodCliqueScalingGroup, self._gangs_of_group, now, _is_group_resized),
            Wake(PodCliqueSet, _asking_gangs, now, changed(lambda old, new: _asking(old) != _asking(new))),
            Wake(Pod, each(base_gang_key_of), settled, self._is_asked_about),
            Wake(Node, latest(self._gangs_on), settled, changed(lambda old, new: differ(old, new, "labels"))),
            Wake(ClusterTopologyBinding, latest(self._gangs_by_binding), now, is_spec_changed),
        )

    async def reconcile(self, key_: GangKey) -> Result:
        pcs = self._cache.get(PodCliqueSet, Key(key_.namespace, key_.pcs))
        backend = self._sets.backend_of(pcs) if pcs is not None and not pcs.metadata.is_deleting else None
        if pcs is None or backend is None:  # gangs go with their set; that its scheduler is unknown the set says itself
            self._deps.status_batches.done(key_)
            return DONE
        if self._sets.is_same_to_pods(pcs):
            return DONE  # until the set has noted that: only its gangs say what it was before. It wakes them then
        try:
            plan = plan_gang(self._observe(key_, pcs, backend), self._deps.clock.now())
            result = await self._apply(key_, plan, backend)
        except (KubeError, BackendError) as error:
            self._failed(pcs, key_, error)
            raise
        if result.error is not None:
            self._failed(pcs, key_, result.error)
        else:
            self._report(pcs, key_)
        return result

    def _observe(self, key_: GangKey, pcs: PodCliqueSet, backend: Backend) -> ObservedGang:
        layout = find_gang_layout(pcs, key_.name, lambda fqn, config: self._sets.group_replicas(pcs, fqn, config))
        gang = self._cache.get(PodGang, Key(key_.namespace, key_.name))
        units = layout.units if layout is not None else ()
        live = {unit.fqn: self._cache.get(PodClique, Key(key_.namespace, unit.fqn)) for unit in units}
        return ObservedGang(
            pcs,
            backend,
            gang,
            layout,
            {fqn: clique for fqn, clique in live.items() if clique is not None},
            lambda fqn: self._sets.pods_of(key_.namespace, fqn),
            self._sets.binding_of(pcs),
            self._sets.topology_enabled,
            self._sets.node_labels,
            self._replacement(pcs, layout) if layout is not None and backend.answers_replacements else None,
        )

    def _replacement(self, pcs: PodCliqueSet, layout: GangLayout) -> Replacement | None:
        """The question of a base gang to the scheduler about a slice that waits for a place."""
        slice_ = _asking(pcs).get(layout.replica) if layout.scaled is None else None
        if slice_ is None:
            return None
        return asked_replacement(
            pcs,
            layout.replica,
            slice_,
            self._sets.hashes_of(pcs),
            lambda fqn: self._sets.pods_of(pcs.metadata.namespace, fqn),
            lambda fqn, config: self._sets.group_replicas(pcs, fqn, config),
        )

    async def _apply(self, key_: GangKey, plan: GangPlan, backend: Backend) -> Result:
        pcs, batches = plan.observed.pcs, self._deps.status_batches
        if plan.act == "taken":
            raise taken(PodGang, key_.name, pcs)
        if plan.act == "write" and plan.wait_s is not None and (left_s := batches.wait_s(key_, plan.wait_s)):
            return Result(after_s=left_s)  # its last pod may be on its way; then one write says it all
        batches.done(key_)
        if plan.act == "remove":
            await self._remove(plan)
        if plan.act == "adopt":
            await check_owner(self._deps.client, pcs)
        elif plan.act != "write":
            return DONE
        if backend.needs_gate and (patched := plan.patched) is not None:
            # Pods that it lists may be let go at once: by then its scheduler must know where they belong.
            await self._objects.sync(patched, pcs, backend, plan.pods_of(patched))
        gang = await self._write(plan)
        state = None
        if backend.needs_gate:  # else it reads PodGangs itself
            state = await self._objects.sync(gang, pcs, backend, plan.pods_of(gang))
        state, look_s = plan.objects_state(gang, backend, state)
        nodes = None
        if plan.concerns_node_autoscaler(gang):
            nodes, again_s = await self._provisioning.sync(gang, plan.pods_of(gang))
            look_s = earliest(look_s, again_s)
        wait_s = await self._write_status(plan, gang, backend, state, nodes)
        if self._retries is not None:
            look_s = earliest(look_s, await self._retries.carry_out(key_, gang, plan.observed, plan.pods_of(gang)))
        error = Taken(state.message) if state is not None and state.retry else None
        return Result(earliest(wait_s, look_s), error)

    async def _write(self, plan: GangPlan) -> PodGang:
        """The gang as it is wanted. It may be there already although the cache does not show it."""
        gang, wanted, pcs, patch = plan.observed.gang, plan.wanted, plan.observed.pcs, plan.patch
        assert wanted is not None
        if gang is None:
            try:
                gang = await self._deps.client.create(PodGang, wanted.object)
                made = EventReason.POD_GANG_CREATE_OR_UPDATE_SUCCESSFUL
                self._deps.event_batches.add(pcs, made, "created PodGang", wanted.name)
            except AlreadyExists:
                gang = await get_own(self._deps.client, pcs, PodGang, wanted.object)
                patch = needed_patch(wanted.object, gang)
        if patch:
            gang = await self._deps.client.patch(PodGang, wanted.name, patch, pcs.metadata.namespace)
        return self._cache.wrote(gang, echo=True)

    async def _write_status(
        self,
        plan: GangPlan,
        gang: PodGang,
        backend: Backend,
        state: GangObjectsState | None,
        nodes: ProvisioningState | None,
    ) -> float | None:
        after = plan.status(gang, backend, state, nodes)
        news = plan.is_news(gang.status, after, backend)
        limit_s = PROGRESS_S if gang.status.conditions else self._scheduler_first_s()
        wait_s = await self._deps.statuses.write(gang, after, news=news, wait_s=limit_s, conditional=True)
        if wait_s is None:
            for trouble in plan.troubles(gang, after):
                TROUBLES.labels(backend.name, trouble.reason).inc()
                self._deps.tell([plan.notice(gang, trouble, backend)])
        return wait_s

    def _scheduler_first_s(self) -> float:
        """How long a gang's scheduler may take to say the first word about it."""
        is_at_work = loop_time() - self._scheduler_spoke_s < BUSY_SCHEDULER_S
        return SCHEDULER_QUEUE_S if is_at_work else SCHEDULER_FIRST_S

    async def _remove(self, plan: GangPlan) -> None:
        gang = plan.observed.gang
        if gang is None:
            return
        try:
            await self._deps.client.delete(PodGang, gang.metadata.name, gang.metadata.namespace, uid=gang.metadata.uid)
            reason = EventReason.POD_GANG_DELETE_SUCCESSFUL
            self._deps.event_batches.add(plan.observed.pcs, reason, "deleted PodGang", gang.metadata.name)
        except NotFound:
            pass
        self._cache.removed(gang)

    def _failed(self, pcs: PodCliqueSet, key_: GangKey, error: Exception) -> None:
        if isinstance(error, Conflict | NotLeader) or (isinstance(error, KubeError) and namespace_ends(error)):
            return
        message = f"PodGang {key_.name}: {error}"
        self._report(pcs, key_, (ErrorCode.CREATE_OR_PATCH_POD_GANG, message))
        self._deps.events.warn(pcs, EventReason.POD_GANG_CREATE_OR_UPDATE_FAILED, message)

    def _report(self, pcs: PodCliqueSet, key_: GangKey, *errors: tuple[str, str]) -> None:
        self._deps.set_errors.put(pcs.key, pcs.metadata.uid, f"PodGang {key_.name}", errors)

    # Waking: mappings and predicates

    def wake_all(self, pcs: PodCliqueSet) -> None:
        """Adds all gangs that a set has or should have; for callers that saw the set change."""
        for key_ in self._gangs_of_set(pcs):
            self._queue.add(key_)

    def _gangs_of_set(self, pcs: PodCliqueSet) -> list[GangKey]:
        keys = [key_ for replica in pcs.indexes for key_ in self._gangs_of_replica(pcs, replica)]
        return keys + [_named(pcs, gang.metadata.name) for gang in self._cache.by_index(PodGang, SET, pcs.key)]

    def _gangs_of_replica(self, pcs: PodCliqueSet, replica: int) -> list[GangKey]:
        layouts = replica_layouts(pcs, replica, lambda fqn, config: self._sets.group_replicas(pcs, fqn, config))
        return [_named(pcs, layout.name) for layout in layouts]

    def _completes_gang(self, old: Pod | None, new: Pod | None) -> bool:
        """True if a new pod completes a gang that exists already, so the gang needs no other pod.

        Not one of a scaling group: where one of its cliques is created again the others are about to be.
        """
        gang = self._gang_of(new) if old is None and new is not None else None
        if gang is None or new is None or labels.SCALING_GROUP in new.metadata.labels:
            return False
        return all(self._sets.is_whole(Key(gang.metadata.namespace, group.name)) for group in gang.spec.podgroups)

    def _matters(self, old: Pod | None, new: Pod | None) -> bool:
        """True if a change of a pod can change its gang.

        It does if the gang may list other pods, or if a pod got a node in a gang that requires a domain. It also
        does if the gang may be in a later phase, where its scheduler does not report that itself.
        """
        if old is None or new is None or _is_listed_otherwise(old, new) or _asks_otherwise(old, new):
            return True
        backend = self._deps.backends.find(new.spec.scheduler_name)
        if backend is None or not backend.reports_gang_status:
            return _is_further(old, new)
        return new.is_bound and not old.is_bound and self._requires_domain(new)

    def _is_asked_about(self, old: Pod | None, new: Pod | None) -> bool:
        """True if a pod is new, deleted or serves differently, and the scheduler has a question about its replica."""
        pod = new or old
        key_ = base_gang_key_of(pod) if pod is not None else None
        base = self._cache.get(PodGang, Key(key_.namespace, key_.name)) if key_ is not None else None
        if base is None or base.spec.replacement is None:
            return False
        return old is None or new is None or _is_leaving(old, new) or old.is_ready != new.is_ready

    def _gang_of(self, part: Object) -> PodGang | None:
        return self._cache.get(PodGang, Key(part.metadata.namespace, part.metadata.labels.get(labels.POD_GANG, "")))

    def _requires_domain(self, pod: Pod) -> bool:
        gang = self._gang_of(pod)
        return gang is not None and gang.requires_domain

    def _gangs_on(self, node: Node) -> list[GangKey]:
        """Gangs with a pod on a node that require a domain: the node may be in another one now."""
        pods = self._cache.by_index(Pod, ON_NODE, node.metadata.name)
        keys = (gang_key_of(pod) for pod in pods if self._requires_domain(pod))
        return [key_ for key_ in keys if key_ is not None]

    def _is_resized(self, old: PodClique | None, new: PodClique | None) -> bool:
        """True if a clique changes the pods that its gang lists, or has errors, so that its pods may come late.

        A clique that comes changes nothing while there is no gang: the gang is made for its pods, which wake it.
        """
        if new is None:
            return True
        if old is None:
            return new.spec.replicas == 0 or self._gang_of(new) is not None
        if old.spec.replicas != new.spec.replicas or _is_leaving(old, new):
            return True
        return bool(new.status.last_errors and not old.status.last_errors)

    def _gangs_of_group(self, old: PodCliqueScalingGroup | None, new: PodCliqueScalingGroup | None) -> list[GangKey]:
        """The base gang of the replica that a group is of, and the group's own gangs that are missing or too many.

        All other gangs stay as they are: a group of 50 replicas that is scaled would wake 50 gangs in vain.
        """
        group = new or old
        pcs, replica = (self._sets.find_of(group), replica_of(group.metadata)) if group is not None else (None, None)
        if group is None or pcs is None or replica is None:
            return []
        base, *scaled = replica_layouts(pcs, replica, lambda fqn, config: self._sets.group_replicas(pcs, fqn, config))
        fqn = group.metadata.name
        wanted = {layout.name for layout in scaled if layout.scaled is not None and layout.scaled.fqn == fqn}
        there = {gang.metadata.name for gang in self._cache.by_index(PodGang, SET, pcs.key)}
        own = {name for name in there if name.startswith(f"{fqn}-")}
        return [_named(pcs, name) for name in (base.name, *sorted(wanted ^ own))]

    def _gangs_by_binding(self, binding: ClusterTopologyBinding) -> list[GangKey]:
        sets = self._cache.by_index(PodCliqueSet, BINDING, binding.metadata.name)
        return [key_ for pcs in sets for key_ in self._gangs_of_set(pcs)]

    def _note_gang(self, old: PodGang | None, new: PodGang | None) -> None:
        """Forgets a gang that is gone, and notes when a scheduler has spoken."""
        if old is None:
            return
        if new is None:
            self._deps.statuses.forget(old.metadata.uid)
            self._objects.forget(old.metadata.uid)
            if self._retries is not None and (gone := gang_key(old)) is not None:
                self._retries.forget(gone)
        elif _has_verdict(new) and not _has_verdict(old):
            self._scheduler_spoke_s = loop_time()


def _asking(pcs: PodCliqueSet) -> dict[int, UpdateSlice]:
    """The slices that wait for a place, by the replica of the set."""
    progress = pcs.status.update_progress
    entries = progress.currently_updating if progress is not None else ()
    return {
        entry.replica_index: entry.slice for entry in entries if entry.slice is not None and entry.slice.waits_for_place
    }


def _asking_gangs(old: PodCliqueSet | None, new: PodCliqueSet | None) -> list[GangKey]:
    replicas = {replica for pcs in (old, new) if pcs is not None for replica in _asking(pcs)}
    return (
        [_named(new, base_gang(new.metadata.name, replica)) for replica in sorted(replicas)] if new is not None else []
    )


def _named(pcs: PodCliqueSet, gang: str) -> GangKey:
    return GangKey(pcs.metadata.namespace, pcs.metadata.name, gang)


def _has_verdict(gang: PodGang) -> bool:
    return find_condition(gang.status.conditions, SCHEDULED) is not None


def _is_leaving(old: Object, new: Object) -> bool:
    return new.metadata.is_deleting and not old.metadata.is_deleting


def _is_group_resized(old: PodCliqueScalingGroup | None, new: PodCliqueScalingGroup | None) -> bool:
    if old is None or new is None or old.spec != new.spec:
        return True
    is_recorded = old.is_scaled_in and not new.is_scaled_in
    return is_recorded or group_indexes(old) != group_indexes(new) or _is_leaving(old, new)


def _is_listed_otherwise(old: Pod, new: Pod) -> bool:
    # By two labels, not all: from 1.35 on the API server adds a node's zone to those of every pod that is bound there.
    return (
        any(
            old.metadata.labels.get(label) != new.metadata.labels.get(label)
            for label in (labels.POD_GANG, labels.PART_OF)
        )
        or old.metadata.owner_references != new.metadata.owner_references
        or (pod_health(old) is PodHealth.FAILED) != (pod_health(new) is PodHealth.FAILED)
        or _is_leaving(old, new)
    )


def _asks_otherwise(old: Pod, new: Pod) -> bool:
    """True if a pod becomes unschedulable or stops being so, and its gang asks for nodes on its behalf."""
    return CONSUMES in new.metadata.annotations and (old.is_unschedulable and not old.is_bound) != (
        new.is_unschedulable and not new.is_bound
    )


def _is_answered(old: ProvisioningRequest | None, new: ProvisioningRequest | None) -> bool:
    """True if a request has another status, was replaced, or was deleted."""
    return old is None or new is None or old.status != new.status or old.metadata.uid != new.metadata.uid


def _is_further(old: Pod, new: Pod) -> bool:
    return (
        old.is_scheduled != new.is_scheduled or pod_health(old) is not pod_health(new) or old.is_gated != new.is_gated
    )
