"""How a set is doing, rolled up from its cliques, groups and gangs into one status write.

Separate from keeping its children, because it is woken a hundred times more often: a look here reads the children's
status and nothing else. The bigger the set, the longer it waits for more news before it looks.
"""

from __future__ import annotations

from msgspec import structs

from grove.api import conditions as words
from grove.api import labels as key
from grove.api.conditions import EventReason
from grove.api.core import Pod
from grove.api.meta import Key, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet, PodCliqueSetStatus
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.cache import Cache
from grove.kube.clock import Clock
from grove.kube.controller import DONE, Controller, Result
from grove.kube.events import Recorder
from grove.operator.podcliqueset.features import with_features_condition
from grove.operator.podcliqueset.rollout import next_replicas, with_progress_time
from grove.operator.podcliqueset.status import set_status
from grove.operator.podgang.refusals import with_untold_condition
from grove.operator.shared.latest import Latest
from grove.operator.shared.reports import Reports
from grove.operator.shared.sets import Sets
from grove.operator.shared.status_batching import PROGRESS_S, SETTLE_S
from grove.operator.shared.status_writer import StatusWriter
from grove.operator.shared.termination import Verdict, condemned_replicas, terminated_replicas
from grove.operator.shared.urgency import set_news

LOOK_COST_S = 0.0002
"""What a look waits for each replica of the set: ten times what it costs, so it takes a tenth of a core at most."""
LONGEST_WAIT_S = 1.0
REPLICA_PROGRESS_S = 0.01
"""How long progress of a set may go unreported for each of its replicas: its status names every gang, and costs so."""


class SetStatusReconciler:
    """Keeps the status of a set equal to that of its parts."""

    def __init__(
        self, cache: Cache, sets: Sets, latest: Latest, statuses: StatusWriter, reports: Reports, events: Recorder,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._cache, self._sets, self._latest, self._statuses = cache, sets, latest, statuses
        self._reports, self._events, self._clock = reports, events, clock

    async def reconcile(self, key_: Key) -> Result:
        cached = self._cache.get(PodCliqueSet, key_)
        if cached is None or cached.metadata.is_deleting:
            return DONE
        pcs = self._latest.of(cached)
        outcome = self._reports.find(pcs.metadata.uid, pcs.metadata.generation)
        if outcome is None:
            return DONE  # its children have not been looked at yet; that ends with a wake of this

        before, now = pcs.status, self._clock.now()
        cliques = [self._latest.of(one) for one in self._cache.owned(PodClique, by=pcs.metadata.uid)]
        groups = [self._latest.of(one) for one in self._cache.owned(PodCliqueScalingGroup, by=pcs.metadata.uid)]
        gangs = [self._latest.of(one) for one in self._cache.owned(PodGang, by=pcs.metadata.uid)]
        after = set_status(
            next_replicas(pcs, cliques, groups, self._sets.generation_hash_of(pcs), self._sets.hashes_of(pcs), now),
            cliques,
            groups,
            gangs,
            outcome,
            now,
            binding=self._sets.binding_of(pcs),
            topology_enabled=self._sets.topology_enabled,
            pods_of=lambda fqn: self._sets.pods_of(pcs.metadata.namespace, fqn),
        )
        missing = self._reports.missing(pcs.metadata.uid)
        told = with_features_condition(after.conditions, missing, pcs.metadata.generation, now)
        told = with_untold_condition(told, gangs, pcs.metadata.generation, now)
        after = structs.replace(after, conditions=told)
        after, stalls_s = with_progress_time(after, pcs, cliques, groups, now)
        judged = structs.replace(pcs, status=after)
        verdict = condemned_replicas(judged, cliques, groups, now, self._statuses.moment)
        after = terminated_replicas(judged, cliques, groups, verdict, now).status
        news = before.replica_restarts != after.replica_restarts or set_news(pcs.spec.replicas, before, after)
        patience_s = max(PROGRESS_S, REPLICA_PROGRESS_S * pcs.spec.replicas)
        wait_s = await self._statuses.write(pcs, after, news=news, wait_s=patience_s)
        if wait_s is None:
            self._warn(pcs, before, after)
            self._tell_restarts(pcs, verdict)
        return Result(after_s=min((at for at in (wait_s, stalls_s, verdict.wait_s) if at is not None), default=None))

    def _tell_restarts(self, pcs: PodCliqueSet, verdict: Verdict) -> None:
        for one in verdict.now:
            message = f"restarted replica {one.index} as a gang (restart {one.count}): {one.blame} stayed in breach"
            self._events.normal(pcs, EventReason.SET_REPLICA_DELETE_SUCCESSFUL, message)

    def _warn(self, pcs: PodCliqueSet, before: PodCliqueSetStatus, after: PodCliqueSetStatus) -> None:
        for type_ in (words.GANG_RESTARTS_EXHAUSTED, words.UPDATE_STALLED):
            found = find_condition(after.conditions, type_)
            if found is not None and find_condition(before.conditions, type_) is None:
                self._events.warn(pcs, found.reason, found.message)
        old, new = (find_condition(one.conditions, words.TOPOLOGY_LEVELS_UNAVAILABLE) for one in (before, after))
        if new is not None and new.status != "False" and (old is None or old.status != new.status):
            self._events.warn(pcs, new.reason, new.message)


class SetStatusWakes:
    """Which events make a set's status worth a look."""

    def __init__(self, cache: Cache, latest: Latest, statuses: StatusWriter, controller: Controller[Key]) -> None:
        self._cache, self._latest, self._statuses, self._controller = cache, latest, statuses, controller
        cache.on_event(PodCliqueSet, self.on_set)
        cache.on_event(PodClique, self.on_part)
        cache.on_event(PodCliqueScalingGroup, self.on_part)
        cache.on_event(PodGang, self.on_part)
        cache.on_event(Pod, self.on_pod)

    def wake(self, key_: Key) -> None:
        pcs = self._cache.get(PodCliqueSet, key_)
        if pcs is not None:
            wait_s = min(SETTLE_S + LOOK_COST_S * pcs.spec.replicas, LONGEST_WAIT_S)
            self._controller.add(key_, after_s=wait_s)

    def on_set(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        if new is None:
            if old is not None:
                self._statuses.forget(old.metadata.uid)
        elif old is not None and old.status != new.status and not self._latest.is_echo(new):
            self.wake(new.key)

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is None and key.CLIQUE_NAME not in old.metadata.labels:
            # The last pod of an older operator may be gone: the selector can be that of units now.
            name = old.metadata.labels.get(key.PART_OF)
            if name:
                self.wake(Key(old.metadata.namespace, name))

    def on_part(
        self,
        old: PodClique | PodCliqueScalingGroup | PodGang | None,
        new: PodClique | PodCliqueScalingGroup | PodGang | None,
    ) -> None:
        part = new or old
        if part is None or key.SCALING_GROUP in part.metadata.labels:
            return  # a member counts through its group
        if old is not None and new is not None and old.status == new.status:
            return
        name = part.metadata.labels.get(key.PART_OF)
        if name:
            self.wake(Key(part.metadata.namespace, name))
