"""PodStartupBlocked: shows on a pod for which cliques it waits.

`StartupBlockedController.wakes` lists what wakes it. It writes after a moment, because most waits are over by then. It
updates the missing pods every few seconds at most.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from grove.api.core import Pod
from grove.api.meta import Key
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.controller import DONE, Result
from grove.kube.errors import Conflict, Invalid, NotFound
from grove.kube.wakes import Wake, changed
from grove.kube.writes import Refusals
from grove.operator.pod.plan import BlockedChange, blocked_changes, condition_patch, reached_in_gang
from grove.operator.shared.cluster.deps import Deps
from grove.operator.shared.cluster.sets import SET, owner_keys, owner_name
from grove.operator.shared.layout import replica_of, unit_of
from grove.operator.shared.startup import parent_minimums, start_conditions

PARENT = "parent"
"""Index: PodCliques by the key of each PodClique they start after."""
GRACE_S = 0.3
REPHRASE_S = 5.0


def by_parent(clique: PodClique) -> tuple[Key, ...]:
    return tuple(Key(clique.metadata.namespace, fqn) for fqn in clique.spec.starts_after)


class StartupBlockedController:
    """Keeps the condition of a clique's pods true to what they wait for."""

    def __init__(self, deps: Deps) -> None:
        self._cache, self._client, self._sets, self._clock = deps.cache, deps.client, deps.sets, deps.clock
        self._batches, self._queue, self._refusals = deps.status_batches, deps.queues.blocked_pods, Refusals()
        self._cache.add_index(PodClique, PARENT, by_parent)
        deps.follow(self.wakes())

    def wakes(self) -> tuple[Wake[Any, Key], ...]:
        """The table of what wakes the controller: source, keys, and the changes that count."""
        now = self._queue.add
        return (
            Wake(Pod, owner_keys(PodClique), now, _may_wait),
            Wake(Pod, self._children_of, now, lambda old, new: _counts(old) != _counts(new)),
            Wake(PodCliqueSet, self._cliques_wanted_again, now, changed(_is_grown)),
        )

    async def reconcile(self, key: Key) -> Result:
        clique = self._cache.get(PodClique, key)
        if clique is None or clique.metadata.is_deleting or not clique.spec.starts_after:
            self._batches.done((PARENT, key))
            self._refusals.forget(str(key))
            return DONE
        pcs = self._sets.find_of(clique)
        unit = unit_of(pcs, clique) if pcs is not None else None
        if pcs is None or unit is None:
            return DONE
        replicas = self._sets.parent_replicas(pcs, unit.replica, clique)
        minimums = parent_minimums(pcs, unit, clique.spec.starts_after, replicas)
        condition = clique.spec.start_condition
        parents = {fqn: self._sets.pods_of(key.namespace, fqn) for fqn, _ in minimums}
        counts = {fqn: reached_in_gang(pods, unit.gang, condition) for fqn, pods in parents.items()}
        pods = self._cache.owned(Pod, by=clique.metadata.uid)
        changes = blocked_changes(pods, minimums, counts, condition)
        if not changes:
            self._batches.done((PARENT, key))
            return DONE
        urgent = any(change.turned for change in changes)
        if wait_s := self._batches.wait_s((PARENT, key), GRACE_S if urgent else REPHRASE_S):
            return Result(after_s=wait_s)
        acts = {change.pod.metadata.name: partial(self._tell, change) for change in changes}
        errors = await self._refusals.in_parallel(str(key), "tell", acts)
        self._batches.done((PARENT, key))
        if errors:
            raise errors[0]
        return DONE

    async def _tell(self, change: BlockedChange) -> None:
        meta = change.pod.metadata
        patch = condition_patch(change, self._clock.now())
        try:
            answer = await self._client.patch(Pod, meta.name, patch, meta.namespace, subresource="status")
            self._cache.wrote(answer)
        except NotFound:
            pass
        except Invalid as error:
            # The patch names the place of its condition in a list that kubelets write too, and tests that it is there.
            raise Conflict(f"the conditions of pod {meta.name} have moved: {error}") from error

    # Waking: mappings

    def _children_of(self, old: Pod | None, new: Pod | None) -> list[Key]:
        """Cliques that start after the clique of a pod."""
        owners = owner_keys(PodClique)(old, new)
        return [clique.key for owner in owners for clique in self._cache.by_index(PodClique, PARENT, owner)]

    def _cliques_wanted_again(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> list[Key]:
        """Cliques of the replicas that a set did not have a moment ago: their pods were not kept up to date."""
        if old is None or new is None:
            return []
        cliques = self._cache.by_index(PodClique, SET, new.key)
        return [
            clique.key
            for clique in cliques
            if clique.spec.starts_after and (replica_of(clique.metadata) or 0) >= old.spec.replicas
        ]


def _may_wait(old: Pod | None, new: Pod | None) -> bool:
    """True if the status of a pod with an init container changed. Such a pod may wait for other cliques."""
    return new is not None and (old is None or old.status != new.status) and bool(new.spec.init_containers)


def _is_grown(old: PodCliqueSet, new: PodCliqueSet) -> bool:
    return old.spec.replicas < new.spec.replicas


def _counts(pod: Pod | None) -> tuple[str, tuple[str, ...]]:
    """The PodClique that a pod counts for, and the start conditions that it satisfies."""
    satisfied = start_conditions(pod) if pod is not None else ()
    return (owner_name(pod, PodClique), satisfied) if pod is not None and satisfied else ("", ())
