"""PodCliqueScalingGroup: keeps the member cliques of all replicas of a group, and the group's status equal to theirs.

Woken by the group, by its member cliques and by its set.
"""

from __future__ import annotations

from grove.api import labels
from grove.api.conditions import ErrorCode, EventReason
from grove.api.core import Pod, ResourceClaim
from grove.api.meta import Key
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.controller import DONE, Result, earliest
from grove.operator.podclique.status import is_available
from grove.operator.scalinggroup.plan import GroupPlan, plan_group
from grove.operator.scalinggroup.status import ObservedGroup
from grove.operator.shared.claims import group_claims
from grove.operator.shared.cluster.children_writer import Changes
from grove.operator.shared.cluster.claim_writer import edited_claim_owner
from grove.operator.shared.cluster.deps import Deps
from grove.operator.shared.cluster.pod_cleanup import release
from grove.operator.shared.cluster.sets import SET, differ, owner_name
from grove.operator.shared.layout import group_config_of, group_indexes, group_replica_of, replica_of
from grove.operator.shared.outcome import outcome_of
from grove.operator.shared.rollout import concerned_replicas, is_open
from grove.operator.shared.status_batching import SETTLE_S


class ScalingGroupController:
    """Keeps scaling groups: reads, has `plan_group` decide, carries it out."""

    def __init__(self, deps: Deps) -> None:
        self._deps, self._cache, self._sets, self._queue = deps, deps.cache, deps.sets, deps.queues.groups
        self._cache.on_event(PodCliqueScalingGroup, self.on_group)
        self._cache.on_event(PodClique, self.on_clique)
        self._cache.on_event(PodCliqueSet, self.on_set)
        self._cache.on_event(Pod, self.on_pod)
        deps.optional.on_event(ResourceClaim, edited_claim_owner(PodCliqueScalingGroup, self._queue.add))

    async def reconcile(self, key_: Key) -> Result:
        group = self._cache.get(PodCliqueScalingGroup, key_)
        if group is None:
            return DONE
        if group.metadata.is_deleting:
            return await self._finish(group)
        observed = self._observe(group)
        if observed is None:
            return DONE  # nobody wants it any more; its set removes it
        return await self._apply(plan_group(observed, self._deps.clock.now()))

    def _observe(self, group: PodCliqueScalingGroup) -> ObservedGroup | None:
        pcs, replica = self._sets.find_of(group), replica_of(group.metadata)
        if pcs is None or replica is None:
            return None
        config = group_config_of(pcs, group.metadata.name, replica)
        if config is None:
            return None
        return ObservedGroup(
            group,
            pcs,
            config,
            replica,
            self._cache.owned(PodClique, by=group.metadata.uid),
            self._sets.hashes_of(pcs),
            recorded=self._sets.is_recorded(pcs),
            moment=self._deps.statuses.moment,
            pods_of=lambda fqn: self._sets.pods_of(pcs.metadata.namespace, fqn),
            surge_wait_s=self._deps.surge_wait_s,
        )

    async def _apply(self, plan: GroupPlan) -> Result:
        group, pcs, config = plan.observed.group, plan.observed.pcs, plan.observed.config
        code = ErrorCode.SYNC_GROUP_RESOURCE_CLAIM
        claims = await self._deps.claims.sync(group_claims(pcs, group, config), code=code)
        members = await self._deps.children.sync(
            PodClique,
            group,
            plan.members,
            version=(
                pcs.metadata.generation,
                pcs.metadata.annotations,
                group.metadata.generation,
                plan.observed.recorded,
                pcs.status.revisions,
                tuple(group_indexes(group)),
            ),
            code=ErrorCode.CREATE_POD_CLIQUE,
        )
        self._tell_members(plan, members)
        outcome = outcome_of((*claims.errors, *members.errors)[:5], (*claims.blocked, *members.blocked))
        after = plan.status(outcome)
        wait_s = await self._deps.statuses.write(group, after, news=plan.is_news(after))
        if wait_s is None:
            self._deps.tell(plan.events(after))
        return Result(earliest(wait_s, plan.next_look_s), claims.error or members.error)

    def _tell_members(self, plan: GroupPlan, members: Changes) -> None:
        group, batches = plan.observed.group, self._deps.event_batches
        batches.add(group, EventReason.POD_CLIQUE_CREATE_SUCCESSFUL, "created PodClique", *members.created)
        removed = EventReason.GROUP_REPLICA_DELETE_SUCCESSFUL
        batches.add(plan.observed.pcs, removed, "deleted PodClique", *members.deleted)
        for _, message in members.errors[:1]:
            self._deps.events.warn(group, EventReason.POD_CLIQUE_CREATE_FAILED, message)

    async def _finish(self, group: PodCliqueScalingGroup) -> Result:
        """Lets a group go; its cliques follow it by their owner reference."""
        self.forget(group.metadata.uid)
        await release(self._cache, self._deps.client, group, labels.GROUP_FINALIZER)
        return DONE

    def forget(self, uid: str) -> None:
        self._deps.children.forget(uid)
        self._deps.statuses.forget(uid)

    # Waking

    def on_group(self, old: PodCliqueScalingGroup | None, new: PodCliqueScalingGroup | None) -> None:
        if new is None:
            if old is not None:
                self.forget(old.metadata.uid)
        elif not self._cache.is_echo(new):
            self._queue.add(new.key)

    def on_clique(self, old: PodClique | None, new: PodClique | None) -> None:
        # By its owner too: somebody may have taken off the label that says whose it is.
        for clique in (old, new):
            if clique is None:
                continue
            if group := clique.metadata.labels.get(labels.SCALING_GROUP) or owner_name(clique, PodCliqueScalingGroup):
                key_ = Key(clique.metadata.namespace, group)
                if clique is new and old is not None and old.status != new.status and self._is_back(key_, new):
                    self._queue.hurry(key_)  # the update waited for it
                else:
                    self._queue.add(key_, after_s=SETTLE_S)

    def _is_back(self, key_: Key, member: PodClique) -> bool:
        """Whether the group is being updated and every clique of the member's replica is up."""
        group = self._cache.get(PodCliqueScalingGroup, key_)
        if group is None or not is_open(group.status.update_progress):
            return False
        index, members = group_replica_of(member.metadata), self._cache.owned(PodClique, by=group.metadata.uid)
        return all(is_available(one) for one in members if group_replica_of(one.metadata) == index)

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is None and labels.CLIQUE_NAME not in old.metadata.labels:
            # The last pod of an older operator may be gone: the selector can be that of units now.
            group = old.metadata.labels.get(labels.SCALING_GROUP)
            if group:
                self._queue.add(Key(old.metadata.namespace, group), after_s=SETTLE_S)

    def on_set(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        if old is None or new is None:
            return
        concerned = concerned_replicas(old, new)
        if differ(old, new, "generation", "annotations"):
            concerned = None
        if concerned is not None and not concerned:
            return
        for group in self._cache.by_index(PodCliqueScalingGroup, SET, new.key):
            if concerned is None or replica_of(group.metadata) in concerned:
                if concerned is None:
                    self._queue.add(group.key, after_s=SETTLE_S)
                else:
                    self._queue.hurry(group.key)  # its turn has come
