"""ClusterTopologyBinding: keeps other schedulers' pictures of the cluster like the binding, or says where they differ.

grove-scheduler reads node labels and needs no object of its own. A binding that changes also wakes the sets that use it
and their gangs: the tables of those controllers say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from grove.api import conditions
from grove.api.conditions import EventReason
from grove.api.meta import Json, Key, Object, Resource
from grove.api.topology import ClusterTopologyBinding
from grove.backends.base import TopologyBackend, TopologySync
from grove.kube.controller import DONE, Result
from grove.kube.errors import KubeError, NotFound
from grove.kube.wakes import Wake, forgetting, latest, own_key
from grove.operator.podgang.scheduler_objects import view_of
from grove.operator.shared.cluster.deps import Deps
from grove.operator.shared.cluster.sets import differ
from grove.operator.topology.levels import became, binding_status
from grove.operator.topology.plan import plan_topology


class TopologyController:
    """Keeps one binding's schedulers in sync; a bad binding affects no other."""

    def __init__(self, deps: Deps) -> None:
        self._cache, self._client = deps.cache, deps.client
        self._backends, self._statuses = deps.backends, deps.statuses
        self._deps, self._queue = deps, deps.queues.bindings
        self._followed: set[Resource] = set()
        self._cache.on_event(ClusterTopologyBinding, forgetting(self._statuses.forget))
        deps.follow((Wake(ClusterTopologyBinding, own_key, self._queue.add, self._cache.is_news),))

    async def reconcile(self, key_: Key) -> Result:
        binding = self._cache.get(ClusterTopologyBinding, key_)
        if binding is None or binding.metadata.is_deleting:
            return DONE  # topology objects made for it go with it
        external = {
            entry.scheduler_name: entry.topology_reference for entry in binding.spec.scheduler_topology_bindings
        }
        syncs: dict[str, TopologySync] = {}
        errors: dict[str, KubeError] = {}
        for backend in self._backends.topology_aware:
            try:
                reference = external.get(backend.name)
                syncs[backend.name] = await self._sync(binding, backend, reference)
            except KubeError as error:
                errors[backend.name] = error
                syncs[backend.name] = TopologySync(False, str(error))
        status = binding_status(
            binding, self._backends, lambda name, _: syncs[name], failed=tuple(errors), now=self._deps.clock.now()
        )
        await self._statuses.write(binding, status, news=True)
        match became(binding.status.conditions, status.conditions, conditions.SCHEDULER_TOPOLOGY_DRIFT):
            case "True":
                self._deps.events.warn(
                    binding, EventReason.TOPOLOGY_DRIFT_DETECTED, "schedulers know other levels than this"
                )
            case "False":
                self._deps.events.normal(binding, EventReason.TOPOLOGY_IN_SYNC, "all schedulers know these levels")
        if errors:
            raise next(iter(errors.values()))
        return DONE

    async def _sync(
        self, binding: ClusterTopologyBinding, backend: TopologyBackend, reference: str | None
    ) -> TopologySync:
        """Has the scheduler's topology object made as planned, and compares it."""
        resource = backend.topology_resource
        name = reference or backend.topology_name(binding)
        if resource is None:
            return backend.topology_drift(binding, name, None)
        if not backend.topology_served:
            return TopologySync(False, f"{resource.plural}.{resource.group} is not served here")
        observed: Json | None
        try:
            observed = await self._client.get(resource, name)
        except NotFound:
            observed = None
        plan = plan_topology(binding, backend, reference, observed)
        if plan.refused:
            raise KubeError(plan.refused)
        if plan.delete and observed is not None:
            await self._client.delete(resource, name, uid=observed["metadata"]["uid"])
        if plan.patch is not None:
            observed = await self._client.patch(resource, name, plan.patch)
        if plan.create is not None:
            observed = await self._client.create(resource, plan.create)
        return backend.topology_drift(binding, name, observed)

    # Waking

    def follow(self, backends: Iterable[TopologyBackend]) -> None:
        """Has the cache follow these schedulers' topology objects; asking again adds what is new."""
        for backend in backends:
            resource = backend.topology_resource
            if resource is not None and backend.topology_served and resource not in self._followed:
                self._followed.add(resource)
                self._cache.add(view_of(resource))
                named_by = partial(self._bindings_of, backend.name)
                self._deps.follow((Wake(view_of(resource), latest(named_by), self._queue.add, _is_generation_changed),))

    def _bindings_of(self, scheduler: str, topology: Object) -> list[Key]:
        """The binding that a scheduler's topology object was made for, or the bindings that name it."""
        owners = {reference.uid for reference in topology.metadata.owner_references}
        named = (scheduler, topology.metadata.name)
        return [
            binding.key
            for binding in self._cache.list(ClusterTopologyBinding)
            if binding.metadata.uid in owners
            or any(
                named == (entry.scheduler_name, entry.topology_reference)
                for entry in binding.spec.scheduler_topology_bindings
            )
        ]


def _is_generation_changed(old: Object | None, new: Object | None) -> bool:
    return old is None or new is None or differ(old, new, "generation")
