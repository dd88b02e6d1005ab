"""PodCliqueScalingGroup: keeps the member cliques of all copies of a group, and the group's status equal to theirs.

Woken by the group, by its member cliques and by its set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from grove.api import conditions as words
from grove.api import labels as key
from grove.api.conditions import ErrorCode, EventReason
from grove.api.core import Pod
from grove.api.meta import Key, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet, ScalingGroupConfig
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupStatus
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.controller import DONE, Controller, Result
from grove.kube.errors import NotFound
from grove.kube.events import Recorder
from grove.operator.podclique.status import SCALING_LIMITED
from grove.operator.scalinggroup.rollout import frozen_members, next_copies
from grove.operator.scalinggroup.status import group_status
from grove.operator.shared.children import wanted_members
from grove.operator.shared.children_writer import Changes, Children
from grove.operator.shared.claim_writer import SharedClaims
from grove.operator.shared.claims import wanted_group_claims
from grove.operator.shared.diff import finalizer_patch
from grove.operator.shared.event_batching import Digest
from grove.operator.shared.latest import Latest
from grove.operator.shared.layout import group_config_of, replica_of, unit_of
from grove.operator.shared.outcome import Outcome
from grove.operator.shared.restarts import find_restart, replica_incarnation
from grove.operator.shared.rollout import concerned_replicas
from grove.operator.shared.sets import SET, Sets
from grove.operator.shared.status_batching import SETTLE_S
from grove.operator.shared.status_writer import StatusWriter
from grove.operator.shared.termination import Verdict, condemned_copies, terminated_copies, with_group_memory
from grove.operator.shared.urgency import group_news


class ScalingGroupReconciler:
    """Keeps as many copies of a group's member cliques as the group has replicas."""

    def __init__(
        self, cache: Cache, client: Client, sets: Sets, children: Children, claims: SharedClaims, latest: Latest,
        statuses: StatusWriter, events: Recorder, digest: Digest, clock: Clock,
    ) -> None:  # fmt: skip
        self._cache, self._client, self._sets, self._children, self._claims = cache, client, sets, children, claims
        self._latest, self._statuses, self._events, self._digest, self._clock = latest, statuses, events, digest, clock

    async def reconcile(self, key_: Key) -> Result:
        cached = self._cache.get(PodCliqueScalingGroup, key_)
        if cached is None:
            return DONE
        group = self._latest.of(cached)
        if group.metadata.is_deleting:
            return await self._finish(group)
        pcs, replica = self._sets.find_of(group), replica_of(group.metadata)
        config = group_config_of(pcs, group.metadata.name, replica) if pcs is not None and replica is not None else None
        if pcs is None or replica is None or config is None:
            return DONE  # nobody wants it any more; its set removes it
        pcs = self._latest.of(pcs)

        claims = await self._claims.sync(
            pcs,
            group,
            config.resource_sharing,
            lambda find: wanted_group_claims(pcs, group, config, find),
            code=ErrorCode.SYNC_GROUP_RESOURCE_CLAIM,
        )
        cliques = [self._latest.of(one) for one in self._cache.owned(PodClique, by=group.metadata.uid)]
        members = await self._children.sync(
            PodClique,
            group,
            lambda: wanted_members(pcs, group),
            version=(pcs.metadata.generation, pcs.metadata.annotations, group.metadata.generation),
            code=ErrorCode.CREATE_POD_CLIQUE,
            frozen=frozen_members(
                pcs, group, cliques, self._wanted_hashes(pcs, cliques), recorded=self._sets.is_recorded(pcs)
            ),
        )
        self._tell(group, pcs, members)
        result = await self._write_status(group, pcs, config, replica, _outcome(claims, members))
        if (error := claims.error or members.error) is not None:
            raise error
        looks = (result.after_s, members.look_again_s)
        return Result(after_s=min((at for at in looks if at is not None), default=None))

    async def _finish(self, group: PodCliqueScalingGroup) -> Result:
        """Lets a group go; its cliques follow it by their owner reference."""
        self.forget(group.metadata.uid)
        meta = group.metadata
        patch = finalizer_patch(meta.finalizers, meta.resource_version, key.GROUP_FINALIZER, present=False)
        if patch is not None:
            try:
                await self._client.patch(PodCliqueScalingGroup, meta.name, patch, meta.namespace)
            except NotFound:
                pass
        return DONE

    def forget(self, uid: str) -> None:
        self._children.forget(uid)
        self._statuses.forget(uid)

    def _tell(self, group: PodCliqueScalingGroup, pcs: PodCliqueSet, changes: Changes) -> None:
        self._digest.add(group, EventReason.POD_CLIQUE_CREATE_SUCCESSFUL, "created PodClique", *changes.created)
        reason = EventReason.GROUP_REPLICA_DELETE_SUCCESSFUL
        self._digest.add(pcs, reason, "deleted PodClique", *changes.deleted)
        for _, message in changes.errors[:1]:
            self._events.warn(group, EventReason.POD_CLIQUE_CREATE_FAILED, message)

    def _wanted_hashes(self, pcs: PodCliqueSet, cliques: Iterable[PodClique]) -> dict[str, str]:
        hashes = self._sets.hashes_of(pcs)
        units = (unit_of(pcs, clique) for clique in cliques)
        return {unit.fqn: hashes[unit.template.name] for unit in units if unit is not None}

    async def _write_status(
        self,
        group: PodCliqueScalingGroup,
        pcs: PodCliqueSet,
        config: ScalingGroupConfig,
        replica: int,
        outcome: Outcome,
    ) -> Result:
        """Says how the group is doing, and by the same write which copies an update or a termination takes next."""
        members = [self._latest.of(one) for one in self._cache.owned(PodClique, by=group.metadata.uid)]
        hashes, now = self._sets.hashes_of(pcs), self._clock.now()
        before, turned = group.status, group
        if self._sets.is_recorded(pcs):
            turned = next_copies(pcs, group, config, members, hashes, now)
        after = group_status(
            pcs, turned, config, replica, members, hashes, outcome, now,
            pods_of=lambda fqn: self._sets.pods_of(pcs.metadata.namespace, fqn),
        )  # fmt: skip
        after = with_group_memory(after, replica_incarnation(pcs, replica), now)
        judged = structs.replace(group, status=after)
        verdict = condemned_copies(pcs, judged, replica, members, now, self._statuses.moment)
        after = terminated_copies(pcs, judged, replica, verdict, now)
        restarts = before.replica_restarts != after.replica_restarts
        wait_s = await self._statuses.write(group, after, news=restarts or group_news(group.spec, before, after))
        if wait_s is None:
            self._warn(group, before, after)
            self._tell_restarts(pcs, group, verdict)
            self._tell_update(pcs, group, after)
        if restarts:
            return Result(after_s=0.0)  # cliques whose turn came are to get their new template
        return Result(after_s=min((at for at in (wait_s, verdict.wait_s) if at is not None), default=None))

    def _tell_update(self, pcs: PodCliqueSet, group: PodCliqueScalingGroup, after: PodCliqueScalingGroupStatus) -> None:
        for entry in after.replica_restarts:
            if (
                find_restart(group.status.replica_restarts, entry.replica_index).generation_hash
                != entry.generation_hash
            ):
                message = f"recreating replica {entry.replica_index} of {group.metadata.name} for an update"
                self._events.normal(pcs, EventReason.GROUP_REPLICA_DELETE_SUCCESSFUL, message)

    def _tell_restarts(self, pcs: PodCliqueSet, group: PodCliqueScalingGroup, verdict: Verdict) -> None:
        for one in verdict.now:
            what = f"replica {one.index} of {group.metadata.name}"
            message = f"restarted {what} as a gang (restart {one.count}): {one.blame} stayed in breach"
            self._events.normal(pcs, EventReason.GROUP_REPLICA_DELETE_SUCCESSFUL, message)

    def _warn(
        self, group: PodCliqueScalingGroup, before: PodCliqueScalingGroupStatus, after: PodCliqueScalingGroupStatus
    ) -> None:
        if before.scheduled_replicas > 0 and after.scheduled_replicas == 0:
            message = "no replica of this group is scheduled any more"
            self._events.warn(group, EventReason.ALL_SCHEDULED_REPLICAS_LOST, message)
        for type_ in (SCALING_LIMITED, words.GANG_RESTARTS_EXHAUSTED):
            found = find_condition(after.conditions, type_)
            if found is not None and find_condition(before.conditions, type_) is None:
                self._events.warn(group, found.reason, found.message)


class ScalingGroupWakes:
    """Which events wake which groups."""

    def __init__(
        self, cache: Cache, latest: Latest, reconciler: ScalingGroupReconciler, controller: Controller[Key]
    ) -> None:
        self._cache, self._latest, self._reconciler, self._controller = cache, latest, reconciler, controller
        cache.on_event(PodCliqueScalingGroup, self.on_group)
        cache.on_event(PodClique, self.on_clique)
        cache.on_event(PodCliqueSet, self.on_set)
        cache.on_event(Pod, self.on_pod)

    def on_group(self, old: PodCliqueScalingGroup | None, new: PodCliqueScalingGroup | None) -> None:
        if new is None:
            if old is not None:
                self._reconciler.forget(old.metadata.uid)
        elif not self._latest.is_echo(new):
            self._controller.add(new.key)

    def on_clique(self, old: PodClique | None, new: PodClique | None) -> None:
        # By its old labels too: somebody may have taken off the one that says whose it is.
        for clique in (old, new):
            group = clique.metadata.labels.get(key.SCALING_GROUP) if clique is not None else None
            if clique is not None and group:
                self._controller.add(Key(clique.metadata.namespace, group), after_s=SETTLE_S)

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is None and key.CLIQUE_NAME not in old.metadata.labels:
            # The last pod of an older operator may be gone: the selector can be that of units now.
            group = old.metadata.labels.get(key.SCALING_GROUP)
            if group:
                self._controller.add(Key(old.metadata.namespace, group), after_s=SETTLE_S)

    def on_set(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        if old is None or new is None:
            return
        concerned = concerned_replicas(old.status, new.status)
        if old.metadata.generation != new.metadata.generation or old.metadata.annotations != new.metadata.annotations:
            concerned = None
        if concerned is not None and not concerned:
            return
        for group in self._cache.by_index(PodCliqueScalingGroup, SET, new.key):
            if concerned is None or replica_of(group.metadata) in concerned:
                self._controller.add(group.key, after_s=SETTLE_S)


def _outcome(*all_changes: Changes) -> Outcome:
    errors: Sequence[tuple[str, str]] = [error for changes in all_changes for error in changes.errors]
    blocked = [name for changes in all_changes for name in changes.blocked]
    waiting = f"waiting for older objects to go: {', '.join(sorted(blocked)[:3])}" if blocked else ""
    return Outcome(errors=tuple(errors[:5]), waiting_for=waiting)
