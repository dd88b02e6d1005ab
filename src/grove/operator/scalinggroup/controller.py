"""PodCliqueScalingGroup: keeps the member cliques of all replicas of a group, and the group's status equal to theirs.

`ScalingGroupController.wakes` lists what wakes it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from grove.api import labels
from grove.api.conditions import ErrorCode, EventReason
from grove.api.core import Pod, ResourceClaim
from grove.api.meta import Key
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.controller import DONE, Result, earliest
from grove.kube.wakes import Wake, changed, each, forgetting, own_key
from grove.operator.podclique.status import is_available
from grove.operator.scalinggroup.plan import GroupPlan, plan_group
from grove.operator.scalinggroup.status import ObservedGroup
from grove.operator.shared.claims import group_claims
from grove.operator.shared.cluster.children_writer import Changes
from grove.operator.shared.cluster.claim_writer import is_claim_edited
from grove.operator.shared.cluster.deps import Deps
from grove.operator.shared.cluster.pod_cleanup import release
from grove.operator.shared.cluster.sets import SET, differ, is_older_pod_gone, owner_keys, owner_name
from grove.operator.shared.layout import group_config_of, group_indexes, group_replica_of, replica_of
from grove.operator.shared.outcome import outcome_of
from grove.operator.shared.readiness import stalls_in_s
from grove.operator.shared.rollout import concerned_replicas, is_open
from grove.operator.shared.status_batching import SETTLE_S


class ScalingGroupController:
    """Keeps scaling groups: reads, has `plan_group` decide, carries it out."""

    def __init__(self, deps: Deps) -> None:
        self._deps, self._cache, self._sets, self._queue = deps, deps.cache, deps.sets, deps.queues.groups
        self._cache.on_event(PodCliqueScalingGroup, forgetting(self.forget))
        deps.follow(self.wakes())

    def wakes(self) -> tuple[Wake[Any, Key], ...]:
        """The table of what wakes the controller: source, keys, and the changes that count."""
        now, settled, hurry = self._queue.add, partial(self._queue.add, after_s=SETTLE_S), self._queue.hurry
        return (
            Wake(PodCliqueScalingGroup, own_key, now, self._cache.is_news),
            Wake(PodClique, each(_group_of_clique), settled, hurry=hurry, urgent=changed(self._is_back)),
            Wake(PodCliqueSet, self._groups_of, settled, changed(_concerns_all)),
            Wake(PodCliqueSet, self._chosen_groups, hurry, changed(lambda old, new: not _concerns_all(old, new))),
            Wake(Pod, each(_group_of_pod), settled, is_older_pod_gone),
            Wake(ResourceClaim, owner_keys(PodCliqueScalingGroup), now, is_claim_edited),
        )

    async def reconcile(self, key_: Key) -> Result:
        group = self._cache.get(PodCliqueScalingGroup, key_)
        if group is None:
            return DONE
        if group.metadata.is_deleting:
            return await self._finish(group)
        observed = self._observe(group)
        if observed is None:
            return DONE  # it is not wanted any more; its set deletes it
        if self._sets.is_in_update(observed.pcs) and observed.is_short:
            former = await self._deps.former.find(observed.pcs)
            observed = replace(self._observe(group) or observed, former=former)
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
            of_set=lambda: self._cache.by_index(PodClique, SET, pcs.key),
        )

    async def _apply(self, plan: GroupPlan) -> Result:
        group, pcs, config = plan.group, plan.observed.pcs, plan.observed.config
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
                plan.unreached,
            ),
            code=ErrorCode.CREATE_POD_CLIQUE,
        )
        self._tell_members(plan, members)
        outcome = outcome_of((*claims.errors, *members.errors)[:5], (*claims.blocked, *members.blocked))
        after = plan.status(outcome)
        wait_s = await self._deps.statuses.write(plan.observed.group, after, news=plan.is_news(after))
        if wait_s is None:
            self._deps.tell(plan.events(after))
        stalls_s = stalls_in_s(after, plan.now)
        return Result(earliest(wait_s, plan.next_look_s, stalls_s), claims.error or members.error)

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

    def _is_back(self, old: PodClique, new: PodClique) -> bool:
        """True if an update of the group waited for this clique: every clique of its replica is available now."""
        key_ = _group_of_clique(new)
        group = self._cache.get(PodCliqueScalingGroup, key_) if key_ is not None and old.status != new.status else None
        if group is None or not is_open(group.status.update_progress):
            return False
        index, members = group_replica_of(new.metadata), self._cache.owned(PodClique, by=group.metadata.uid)
        return all(is_available(clique) for clique in members if group_replica_of(clique.metadata) == index)

    def _groups_of(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> list[Key]:
        shown = new or old
        return [group.key for group in self._cache.by_index(PodCliqueScalingGroup, SET, shown.key)] if shown else []

    def _chosen_groups(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> list[Key]:
        """Groups of the replicas of which the set asks something else now."""
        concerned = concerned_replicas(old, new) if old is not None and new is not None else None
        if new is None or not concerned:
            return []
        groups = self._cache.by_index(PodCliqueScalingGroup, SET, new.key)
        return [group.key for group in groups if replica_of(group.metadata) in concerned]


def _concerns_all(old: PodCliqueSet, new: PodCliqueSet) -> bool:
    return differ(old, new, "generation", "annotations") or concerned_replicas(old, new) is None


def _group_of_clique(clique: PodClique) -> Key | None:
    """By its label, or by its owner if another client removed the label."""
    name = clique.metadata.labels.get(labels.SCALING_GROUP) or owner_name(clique, PodCliqueScalingGroup)
    return Key(clique.metadata.namespace, name) if name else None


def _group_of_pod(pod: Pod) -> Key | None:
    name = pod.metadata.labels.get(labels.SCALING_GROUP)
    return Key(pod.metadata.namespace, name) if name else None
