"""PodCliqueSet: keeps the children of a set as its template says, and its status equal to that of its parts.

`PodCliqueSetController.wakes` lists what wakes it. The status of cliques, groups and gangs changes a hundred times more
often than all else. So the controller compares the children only for a reason. The larger the set, the longer it
collects events before it looks.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import structs

from grove.api import labels, names
from grove.api.conditions import ErrorCode, EventReason, with_standing
from grove.api.core import Pod, ResourceClaim, Secret, Service
from grove.api.hashes import generation_hash
from grove.api.meta import Key, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.kube.controller import DONE, Result, earliest
from grove.kube.errors import Conflict, Invalid, KubeError
from grove.kube.wakes import Wake, changed, each, forgetting, is_spec_changed, latest, own_key
from grove.operator.podclique.status import is_available
from grove.operator.podcliqueset.compute_domain_writer import ComputeDomain
from grove.operator.podcliqueset.plan import (
    CHILDREN,
    ChildrenPlan,
    ObservedChildren,
    SetPlan,
    plan_set,
    plan_set_children,
)
from grove.operator.podcliqueset.rollout import is_step_over
from grove.operator.podcliqueset.set_children import SetChildren
from grove.operator.podcliqueset.status import ObservedSet, ReplicaMemory
from grove.operator.podcliqueset.takeover import takeover
from grove.operator.podgang.controller import PodGangController
from grove.operator.shared.cluster.claim_writer import is_claim_edited
from grove.operator.shared.cluster.deps import Deps
from grove.operator.shared.cluster.pod_cleanup import delete_ahead_of_set, release
from grove.operator.shared.cluster.sets import BINDING, SET, by_binding, differ, is_older_pod_gone, owner_keys, set_key
from grove.operator.shared.diff import finalizer_patch, status_patch
from grove.operator.shared.layout import find_replica, is_group_available, replica_of
from grove.operator.shared.outcome import UNKNOWN_SCHEDULER, Outcome, outcome_of, with_outcome
from grove.operator.shared.readiness import NEW_SET, stalls_in_s
from grove.operator.shared.rollout import is_open
from grove.operator.shared.status_batching import PROGRESS_S, SETTLE_S

Part = PodClique | PodCliqueScalingGroup

UPDATE_LOOK_S, LOOK_S = 0.001, 0.002
"""Delay of a reconcile for each replica of the set.

It is ten times the cost of a reconcile while an update waits for the next step. It is twenty times the cost while there
is only progress to report.
"""
LONGEST_WAIT_S = 1.0
REPLICA_PROGRESS_S = 0.01
"""How long progress of a set may go unreported for each of its replicas: its status names every gang, and costs so.
Once all gangs run there is no more progress to wait for."""

OLD_DEFINITION = (
    "the CRD podcliquesets.grove.io has no status.adoptedHashes; until it has (grove crds --apply) nothing moves"
)


class PodCliqueSetController:
    """Keeps sets: reads, has `plan_set` decide, carries it out."""

    def __init__(self, deps: Deps, gangs: PodGangController) -> None:
        self._deps, self._gangs = deps, gangs
        self._cache, self._sets, self._queue = deps.cache, deps.sets, deps.queues.sets
        self._children = SetChildren(deps)
        self._children_due: set[Key] = set()
        self._passed_on: dict[str, tuple[object, ...]] = {}
        self._memories: dict[str, ReplicaMemory] = {}
        self._missing: dict[str, tuple[type[PodClique] | type[PodCliqueScalingGroup], Key]] = {}
        """A part of each set, by its uid, that was not available when all were looked at."""
        self._cache.add_index(PodCliqueSet, BINDING, by_binding)
        self._cache.on_event(PodCliqueSet, forgetting(self.forget))
        deps.follow(self.wakes())

    def wakes(self) -> tuple[Wake[Any, Key], ...]:
        """The table of what wakes the controller: source, keys, and the changes that count.

        `children` has the children compared; `report` reports the status.
        """
        children, report, hurry = self.wake_children, self.wake, self._queue.hurry
        of_set, kinds = each(set_key), list[type[Object]]([*CHILDREN, ComputeDomain])
        return (
            Wake(PodCliqueSet, own_key, partial(children, after_s=0.0), _is_changed),
            Wake(PodCliqueSet, own_key, report, changed(self._is_status_edited)),
            *(Wake(kind, of_set, children, self._is_to_put_right) for kind in kinds),
            Wake(ResourceClaim, owner_keys(PodCliqueSet), children, is_claim_edited),
            Wake(PodClique, of_set, children, changed(self._changes_revision)),
            Wake(Pod, of_set, children, self._pod_changes_revision),
            Wake(Pod, of_set, children, self._is_awaited_end),
            Wake(Pod, of_set, report, is_older_pod_gone),
            Wake(PodClique, of_set, report, _is_part_changed, hurry=hurry, urgent=self._is_waited_for),
            Wake(PodCliqueScalingGroup, of_set, report, _is_part_changed, hurry=hurry, urgent=self._is_waited_for),
            Wake(PodGang, of_set, report, _is_part_changed),
            Wake(ClusterTopologyBinding, latest(self._sets_by_binding), report, is_spec_changed),
        )

    async def reconcile(self, key_: Key) -> Result:
        pcs = self._cache.get(PodCliqueSet, key_)
        if pcs is None:
            self._children_due.discard(key_)
            return DONE
        if pcs.metadata.is_deleting:
            return await self._finish(pcs)
        pcs = await self._begin(pcs)
        children = await self._observe_children(pcs)
        return await self._apply(plan_set(self._observe(pcs), children, self._deps.clock.now()))

    # Reading

    def _observe(self, pcs: PodCliqueSet) -> ObservedSet:
        uid = pcs.metadata.uid
        return ObservedSet(
            pcs,
            self._cache.owned(PodClique, by=uid),
            self._cache.owned(PodCliqueScalingGroup, by=uid),
            self._cache.owned(PodGang, by=uid),
            self._sets.generation_hash_of(pcs),
            self._sets.hashes_of(pcs),
            self._sets.binding_of(pcs),
            self._sets.topology_enabled,
            self._deps.statuses.moment,
            lambda fqn: self._sets.pods_of(pcs.metadata.namespace, fqn),
            lambda: [
                clique
                for clique in self._cache.by_index(PodClique, SET, pcs.key)
                if labels.SCALING_GROUP in clique.metadata.labels
            ],
            (backend := self._sets.backend_of(pcs)) is not None and backend.answers_replacements,
            self._memories.setdefault(uid, ReplicaMemory()),
        )

    async def _observe_children(self, pcs: PodCliqueSet) -> ObservedChildren | None:
        """Read when there is a reason to compare them."""
        is_written = self._deps.set_errors.find(pcs.metadata.uid, pcs.metadata.generation) is not None
        is_due = pcs.key in self._children_due or bool(pcs.status.draining)
        return await self._children.observe(pcs) if is_due or not is_written else None

    # Writing

    async def _begin(self, pcs: PodCliqueSet) -> PodCliqueSet:
        """Begins to manage a new set: writes the finalizer, and the hash that shows later changes."""
        meta, client = pcs.metadata, self._deps.client
        patch = finalizer_patch(meta.finalizers, meta.resource_version, labels.SET_FINALIZER, present=True)
        if patch is not None:
            pcs = self._cache.wrote(await client.patch(PodCliqueSet, meta.name, patch, meta.namespace))
        if not pcs.status.current_generation_hash:
            # Before the children: their status names it, and would be written again if it came later.
            current = with_standing(pcs.status.conditions, NEW_SET, self._deps.clock.now(), meta.generation)
            first = structs.replace(pcs.status, current_generation_hash=self._first_hash(pcs), conditions=current)
            patch = status_patch(pcs.status, first)
            answer = await client.patch(PodCliqueSet, meta.name, patch or {}, meta.namespace, subresource="status")
            pcs = self._cache.wrote(answer, echo=True)
        return await self._take_over(pcs) if self._sets.awaits_takeover(pcs) else pcs

    def _first_hash(self, pcs: PodCliqueSet) -> str:
        """That of the templates; or, where an earlier set of the name left cliques of other ones, theirs.

        Then the difference is noticed as with any change, and what was left is updated.
        """
        now = generation_hash(pcs.spec.template)
        orphans = (
            clique for clique in self._cache.by_index(PodClique, SET, pcs.key) if clique.metadata.controller is None
        )
        hashes = {clique.status.current_pod_clique_set_generation_hash for clique in orphans} - {"", now}
        return min(hashes, default=now)

    async def _take_over(self, pcs: PodCliqueSet) -> PodCliqueSet:
        """Remembers what the templates were called before, before anything else is done to the set."""
        meta, cache = pcs.metadata, self._cache
        plan = takeover(
            pcs,
            cache.by_index(PodClique, SET, pcs.key),
            cache.by_index(PodCliqueScalingGroup, SET, pcs.key),
            cache.by_index(PodGang, SET, pcs.key),
        )
        if plan.adopted == pcs.status.adopted_hashes:
            return pcs
        after = structs.replace(pcs.status, adopted_hashes=plan.adopted)
        patch = status_patch(pcs.status, after, resource_version=meta.resource_version)
        assert patch is not None
        answer = await self._deps.client.patch(PodCliqueSet, meta.name, patch, meta.namespace, subresource="status")
        cache.wrote(answer)
        if answer.status.adopted_hashes != plan.adopted:
            # Dropped by the other operator's definition of the kind. To go on would restart every pod.
            self._deps.events.warn(pcs, EventReason.TAKEOVER_BLOCKED, OLD_DEFINITION)
            raise Invalid(OLD_DEFINITION)
        if plan.maker:
            self._deps.events.normal(pcs, EventReason.TAKEN_OVER, plan.message)
        return answer

    async def _apply(self, plan: SetPlan) -> Result:
        pcs, error = plan.observed.pcs, None
        uid, generation, planned = pcs.metadata.uid, pcs.metadata.generation, structs.replace(pcs, status=plan.of_parts)
        if (children := plan.children) is not None:
            if children.surplus:  # deleting them takes a while; the status stops counting them first
                await self._deps.statuses.write(pcs, plan.status(Outcome()), news=True)
                self._pass_on(planned)
                children = plan_set_children(planned, await self._children.observe(pcs))  # pods may have gone meanwhile
            error = await self._write_children(planned, children)
        outcome = self._deps.set_errors.find(uid, generation) or Outcome()
        after, now = plan.status(outcome), self._cache.get(PodCliqueSet, pcs.key)
        if now is not None and now.metadata.uid == uid:
            pcs = now  # with the status that was written first
        limit_s = PROGRESS_S if plan.is_all_running(after) else max(PROGRESS_S, REPLICA_PROGRESS_S * pcs.spec.replicas)
        wait_s = await self._deps.statuses.write(
            pcs, after, news=plan.is_news(after), wait_s=limit_s, may_flap=plan.may_flap(after)
        )
        if wait_s is None:
            self._deps.tell(plan.events(after))
        stalls_s = stalls_in_s(after, plan.now, plan.observed.gangs)
        return Result(earliest(wait_s, plan.next_look_s, stalls_s), error)

    async def _write_children(self, pcs: PodCliqueSet, plan: ChildrenPlan) -> KubeError | None:
        """Brings all children to what is wanted, and notes how it went; returns the first error, for the back-off."""
        self._children_due.discard(pcs.key)  # before: an edit that comes meanwhile counts
        try:
            changes = await self._children.sync(pcs, plan)
        except Exception:  # a bug of ours, which the next look shall not take for work that was done
            self._children_due.add(pcs.key)
            raise
        errors = [error for done in changes for error in done.errors[:5]]
        if self._sets.backend_of(pcs) is None:
            errors.append((ErrorCode.CREATE_OR_PATCH_POD_GANG, UNKNOWN_SCHEDULER))
        blocked = [name for done in changes for name in done.blocked]
        missing = [done.missing for done in changes if done.missing is not None]
        outcome = outcome_of(errors, blocked, missing)
        self._deps.set_errors.put_outcome(pcs.metadata.uid, pcs.metadata.generation, outcome)
        self._pass_on(pcs)
        error = next((done.error for done in changes if done.error is not None), None)
        if error is not None:
            self._children_due.add(pcs.key)
        return error

    def _pass_on(self, pcs: PodCliqueSet) -> None:
        """Has the gangs looked at when something changed that they are made from."""
        meta, status = pcs.metadata, pcs.status
        current = (meta.generation, meta.labels, meta.annotations, status.draining, status.replica_indexes)
        if self._passed_on.get(pcs.metadata.uid) != current:
            self._passed_on[pcs.metadata.uid] = current
            self._gangs.wake_all(pcs)

    async def _finish(self, pcs: PodCliqueSet) -> Result:
        """Lets a set go; its children follow it by their owner references."""
        self.forget(pcs.metadata.uid)
        if labels.SET_FINALIZER not in pcs.metadata.finalizers:
            return DONE
        try:
            await self._children.domains.release_all(pcs)
        except Conflict:
            raise  # the garbage collector was quicker
        except KubeError as error:
            self._deps.events.warn(pcs, EventReason.COMPUTE_DOMAIN_DELETE_FAILED, str(error))
            outcome = Outcome(errors=((ErrorCode.DELETE_COMPUTE_DOMAIN, str(error)),), deleting=True)
            status = with_outcome(pcs.status, pcs.status, outcome, self._deps.clock.now())
            await self._deps.statuses.write(pcs, status, news=True)
            raise
        await delete_ahead_of_set(self._cache, self._deps.client, pcs)
        await release(self._cache, self._deps.client, pcs, labels.SET_FINALIZER)
        return DONE

    def forget(self, uid: str) -> None:
        self._deps.children.forget(uid)
        self._deps.statuses.forget(uid)
        self._deps.sets.forget(uid)
        self._deps.former.forget(uid)
        self._deps.set_errors.forget(uid)
        self._passed_on.pop(uid, None)
        self._memories.pop(uid, None)
        self._missing.pop(uid, None)

    # Waking: mappings and predicates

    def wake(self, key_: Key) -> None:
        """Something about the set is to be reported."""
        pcs = self._cache.get(PodCliqueSet, key_)
        if pcs is not None:
            cost_s = UPDATE_LOOK_S if is_open(pcs.status.update_progress) else LOOK_S
            self._queue.add(key_, after_s=min(SETTLE_S + cost_s * pcs.spec.replicas, LONGEST_WAIT_S))

    def wake_children(self, key_: Key, after_s: float = SETTLE_S) -> None:
        """Has the children of a set compared with what is wanted."""
        self._children_due.add(key_)
        self._queue.add(key_, after_s=after_s)

    def _is_status_edited(self, old: PodCliqueSet, new: PodCliqueSet) -> bool:
        """True if another client wrote the status, and `_is_changed` finds no other change."""
        return old.status != new.status and not _is_changed(old, new) and not self._cache.is_echo(new)

    def _is_to_put_right(self, old: Object | None, new: Object | None) -> bool:
        """A child that comes was made by us; one that goes or is edited may have to be corrected.

        A member of a scaling group is the group's child. A clique that gets its template in an update is edited by us.
        """
        if old is None or (new is not None and not _is_edited(old, new)) or labels.SCALING_GROUP in old.metadata.labels:
            return False
        if isinstance(new, PodClique) and self._cache.is_echo(new):
            return False
        return (pcs_key := set_key(old)) is not None and not self._is_on_its_way_out(pcs_key, old, new)

    def _is_on_its_way_out(self, pcs_key: Key, old: Object, new: Object | None) -> bool:
        """True if a child is being deleted as planned: it belongs to a replica that was scaled in."""
        pcs, replica = self._cache.get(PodCliqueSet, pcs_key), find_replica(pcs_key.name, old.metadata.name)
        is_unwanted = pcs is not None and replica is not None and replica not in pcs.indexes
        return is_unwanted and (new is None or new.metadata.is_deleting)

    def _is_waited_for(self, old: Part | None, new: Part | None) -> bool:
        """True if the update must choose its next replicas, or the last part of the set became available."""
        part = new or old
        pcs_key = set_key(part) if part is not None else None
        return pcs_key is not None and (self._is_step_over(pcs_key) or self._is_last_to_come(old, new, pcs_key))

    def _is_last_to_come(self, old: Part | None, new: Part | None, key_: Key) -> bool:
        """True if the last clique or group of a set became available."""
        if old is None or new is None:
            return False
        pcs = self._cache.get(PodCliqueSet, key_)
        if pcs is None or _is_available(old) or not _is_available(new):
            return False
        uid, template = pcs.metadata.uid, pcs.spec.template
        # Asked for every part of a set that may have a thousand: mostly one that was missing the last time still is.
        missing = self._cache.get(*self._missing[uid]) if uid in self._missing else None
        if missing is not None and not _is_available(missing):
            return False
        cliques, groups = self._cache.owned(PodClique, by=uid), self._cache.owned(PodCliqueScalingGroup, by=uid)
        parts: list[Part] = [*cliques, *groups]
        of_replica = len(template.standalone_cliques) + len(template.pod_clique_scaling_groups)
        if len(parts) < pcs.spec.replicas * of_replica:
            return False
        missing = next((part for part in reversed(parts) if not _is_available(part)), None)
        if missing is not None:
            self._missing[uid] = (type(missing), missing.key)
        return missing is None

    def _is_step_over(self, key_: Key) -> bool:
        """True if an update only waits for the choice of its next replicas."""
        pcs = self._cache.get(PodCliqueSet, key_)
        if pcs is None or not is_open(pcs.status.update_progress):
            return False
        return is_step_over(
            pcs,
            lambda fqn: self._cache.get(PodClique, Key(key_.namespace, fqn)),
            lambda fqn: self._cache.get(PodCliqueScalingGroup, Key(key_.namespace, fqn)),
            self._sets.generation_hash_of(pcs),
            self._sets.hashes_of(pcs),
        )

    def _changes_revision(self, old: Object | None, new: Object) -> bool:
        """True if a replica gets or loses a revision that has, or had, a Service."""
        before = old.metadata.labels.get(labels.REVISION) if old is not None else None
        after = new.metadata.labels.get(labels.REVISION)
        pcs_key = set_key(new) if before != after else None
        if pcs_key is None or not self._children.has_revisions(pcs_key):
            return False
        replica = replica_of(new.metadata)
        name = names.revision_service(pcs_key.name, replica, after) if after and replica is not None else ""
        return bool(before or (name and self._cache.get(Service, Key(pcs_key.namespace, name)) is None))

    def _pod_changes_revision(self, old: Pod | None, new: Pod | None) -> bool:
        return new is not None and self._changes_revision(old, new)

    def _is_awaited_end(self, old: Pod | None, new: Pod | None) -> bool:
        """True if the deletion of a pod may allow the deletion of a child of the set."""
        pcs_key = set_key(old) if new is None and old is not None else None
        return pcs_key is not None and self._children.waits_for_pods(pcs_key)

    def _sets_by_binding(self, binding: ClusterTopologyBinding) -> list[Key]:
        return [pcs.key for pcs in self._cache.by_index(PodCliqueSet, BINDING, binding.metadata.name)]


def _is_part_changed(old: Part | PodGang | None, new: Part | PodGang | None) -> bool:
    """Whether a part came, is gone or has another status. A member of a scaling group counts through its group."""
    part = new or old
    if part is None or labels.SCALING_GROUP in part.metadata.labels:
        return False
    return old is None or new is None or old.status != new.status


def _is_available(part: Part) -> bool:
    return is_available(part) if isinstance(part, PodClique) else is_group_available(part)


def _is_changed(old: PodCliqueSet | None, new: PodCliqueSet | None) -> bool:
    """Whether a set came, or something of it changed that its children are made from."""
    if old is None or new is None:
        return new is not None
    return (
        differ(old, new, "generation", "deletion_timestamp", "labels", "annotations")
        or (labels.SET_FINALIZER in old.metadata.finalizers and labels.SET_FINALIZER not in new.metadata.finalizers)
        or (bool(old.status.current_generation_hash) and not new.status.current_generation_hash)
    )


def _is_edited(old: Object, new: Object) -> bool:
    before, after = old.metadata, new.metadata
    if isinstance(new, Secret) and before.annotations.items() <= after.annotations.items():
        return before.labels != after.labels  # the token controller notes the account's uid and fills the token in
    if differ(old, new, "labels", "annotations", "owner_references"):
        return True
    if after.generation:
        return before.generation != after.generation
    content = (name for name in new.__struct_fields__ if name not in ("metadata", "status", "data"))
    return any(getattr(old, name) != getattr(new, name) for name in content)
