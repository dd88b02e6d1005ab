"""The operator, built and wired: the one place that knows all its parts.

    operator = Operator(client, configuration)
    await operator.run()                     # until cancelled; as leader, in a process
    async with operator.running(): ...       # in a test or a demo: synced inside, stopped afterwards

It runs over any `Client`, so the same wiring drives a real cluster and the simulator. Nothing here elects a leader or
serves probes; `grove.cli.operator` does that around it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import structlog

from grove.api import labels
from grove.api.core import (
    Node,
    Pod,
    ResourceClaim,
    Role,
    RoleBinding,
    Secret,
    Service,
    ServiceAccount,
)
from grove.api.meta import Key, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.backends import build_backends
from grove.config import OperatorConfiguration, load_configuration
from grove.dialects.wiring import Dialects
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock
from grove.kube.controller import Controller
from grove.kube.events import Recorder
from grove.kube.expectations import Expectations
from grove.operator.podclique.controller import BASE_GANG, PodCliqueReconciler, PodCliqueWakes, by_base_gang
from grove.operator.podclique.nodes import ON_NODE, Nodes, by_node
from grove.operator.podclique.pod_writer import PodWriter
from grove.operator.podclique.startup_controller import PARENT, StartupBlockedReconciler, StartupBlockedWakes, by_parent
from grove.operator.podcliqueset.computedomain_writer import ComputeDomain, ComputeDomains
from grove.operator.podcliqueset.controller import PodCliqueSetReconciler, PodCliqueSetWakes
from grove.operator.podcliqueset.status_controller import SetStatusReconciler, SetStatusWakes
from grove.operator.podgang.backend_discovery import Probing
from grove.operator.podgang.controller import GangKey, PodGangReconciler, PodGangWakes
from grove.operator.podgang.scheduler_objects import Backing
from grove.operator.scalinggroup.controller import ScalingGroupReconciler, ScalingGroupWakes
from grove.operator.shared.children_writer import Children
from grove.operator.shared.claim_writer import ClaimWakes, SharedClaims
from grove.operator.shared.event_batching import Digest
from grove.operator.shared.latest import Latest
from grove.operator.shared.optional_kinds import MANAGED, OPTIONAL, OptionalKinds
from grove.operator.shared.reports import Reports
from grove.operator.shared.sets import SET, Sets, by_set
from grove.operator.shared.status_batching import Patience
from grove.operator.shared.status_writer import StatusWriter
from grove.operator.shared.trouble import unless_namespace_ends
from grove.operator.topology.controller import BINDING, TopologyReconciler, TopologyWakes, by_binding

COMPONENT = "grove-operator"
SYNC_TIMEOUT_S = 60.0

log = structlog.get_logger(__name__)

_LABELLED: tuple[type[Object], ...] = (Pod, Service, ServiceAccount, Role, RoleBinding, Secret)
"""Kinds of which the cluster may hold many that are not ours: only labelled ones are followed."""
_OURS: tuple[type[Object], ...] = (PodCliqueSet, PodClique, PodCliqueScalingGroup, PodGang)
_OF_CLUSTER: tuple[type[Object], ...] = (ClusterTopologyBinding, Node)


class Operator:
    """All controllers over one client. Made anywhere, run once, on one event loop.

    `startup_image` is the whole image of the start-order container, needed only by sets with a start order; `namespace`
    confines the operator to one, as tests that share a cluster want it.
    """

    def __init__(
        self, client: Client, config: OperatorConfiguration | None = None, *, clock: Clock = SYSTEM,
        rng: random.Random | None = None, startup_image: str = "", namespace: str = "",
        tune_gc: bool = False,
    ) -> None:  # fmt: skip
        config = config or load_configuration("")
        rng = rng or random.Random()
        self.backends = backends = build_backends(config.scheduler)
        self.cache = cache = Cache(client, tune_gc=tune_gc, rng=rng)
        self._declare(namespace)
        self.events = events = Recorder(client, COMPONENT, clock=clock, rng=rng)
        more: tuple[type[Object], ...] = (ComputeDomain,) if config.network.auto_mnnvl_enabled else ()
        self._optional = optional = OptionalKinds(cache, client, namespace, (*OPTIONAL, *more))
        self._synced = False

        latest, patience = Latest(), Patience(_loop_time)
        expect = Expectations(_loop_time)
        digest = Digest(events)
        sets = Sets(cache, backends, topology_enabled=config.topology_aware_scheduling.enabled)
        nodes = Nodes(cache, client, clock)
        children = Children(cache, client)
        claims = SharedClaims(cache, client, children, optional)
        domains = ComputeDomains(client, optional, enabled=config.network.auto_mnnvl_enabled)
        statuses = StatusWriter(client, latest, patience)
        reports = Reports(lambda key: status_wakes.wake(key))
        syncs = config.controllers

        self._probing = probing = Probing(client, backends, self._offer_changed)
        self._backing = Backing(
            client, cache, lambda *gang: self._gangs.add(GangKey(*gang)), namespace=namespace, on_missing=probing.again
        )
        gangs = PodGangReconciler(
            cache, client, sets, latest, patience, statuses, self._backing, reports, events, digest, clock
        )  # fmt: skip
        self._gangs = Controller[GangKey](
            "podgang",
            unless_namespace_ends(gangs.reconcile),
            workers=syncs.pod_gang.concurrent_syncs + syncs.pod_clique_set.concurrent_syncs,
        )
        gang_wakes = PodGangWakes(cache, sets, latest, statuses, self._gangs)

        status = SetStatusReconciler(cache, sets, latest, statuses, reports, events, clock)
        self._set_status = Controller[Key](
            "podcliqueset-status",
            unless_namespace_ends(status.reconcile),
            workers=syncs.pod_clique_set.concurrent_syncs,
        )
        status_wakes = SetStatusWakes(cache, latest, statuses, self._set_status)

        writer = PodWriter(client, expect, salt=f"{rng.getrandbits(64):x}")
        cliques = PodCliqueReconciler(
            cache, client, sets, nodes, claims, expect, writer, latest, statuses, events, clock,
            startup_image=startup_image,
        )  # fmt: skip
        self._cliques = Controller[Key](
            "podclique-controller", unless_namespace_ends(cliques.reconcile), workers=syncs.pod_clique.concurrent_syncs
        )
        PodCliqueWakes(cache, sets, latest, expect, cliques, self._cliques)

        blocked = StartupBlockedReconciler(cache, client, sets, patience, clock)
        self._blocked = Controller[Key](
            "startup-blocked", unless_namespace_ends(blocked.reconcile), workers=syncs.pod_clique.concurrent_syncs
        )
        StartupBlockedWakes(cache, self._blocked)

        groups = ScalingGroupReconciler(
            cache, client, sets, children, claims, latest, statuses, events, digest, clock
        )  # fmt: skip
        self._groups = Controller[Key](
            "podcliquescalinggroup-controller",
            unless_namespace_ends(groups.reconcile),
            workers=syncs.pod_clique_scaling_group.concurrent_syncs,
        )
        ScalingGroupWakes(cache, latest, groups, self._groups)

        whole = PodCliqueSetReconciler(
            cache, client, sets, children, claims, domains, optional, latest, statuses, reports, events, digest, clock,
            gang_wakes.of_set,
        )  # fmt: skip
        self._sets = Controller[Key](
            "podcliqueset-controller",
            unless_namespace_ends(whole.reconcile),
            workers=syncs.pod_clique_set.concurrent_syncs,
        )
        set_wakes = PodCliqueSetWakes(cache, latest, domains, whole, self._sets)
        claim_wakes = ClaimWakes(
            {PodCliqueSet: self._sets.add, PodCliqueScalingGroup: self._groups.add, PodClique: self._cliques.add}
        )
        optional.on_follow(
            lambda kind: cache.on_event(kind, claim_wakes.on_claim if kind is ResourceClaim else set_wakes.on_child)
        )

        topology = TopologyReconciler(cache, client, backends, latest, statuses, events, clock)
        self._topology = Controller[Key]("clustertopology-controller", topology.reconcile)

        def wake_users(pcs: PodCliqueSet) -> None:
            gang_wakes.of_set(pcs)
            status_wakes.wake(pcs.key)

        self._bindings = TopologyWakes(cache, latest, statuses, self._topology, wake_users)
        self._dialects = (
            Dialects(client, cache, events, clock, topology_enabled=sets.topology_enabled, namespace=namespace)
            if config.dialects.enabled
            else None
        )

    @property
    def controllers(self) -> tuple[Controller[Any], ...]:
        return (
            self._sets, self._groups, self._cliques, self._gangs, self._set_status, self._topology, self._blocked,
            *(self._dialects.controllers if self._dialects is not None else ()),
        )  # fmt: skip

    @property
    def is_ready(self) -> bool:
        """Whether the cluster has been read and work has begun."""
        return self._synced

    @property
    def is_idle(self) -> bool:
        """Whether nobody works and nothing waits to be worked on now; timers may be set."""
        return all(controller.queue.is_idle for controller in self.controllers)

    async def run(self, *, on_ready: Callable[[], None] = lambda: None) -> None:
        """Follows the cluster and reconciles until cancelled. Raises what makes the cluster unusable."""
        await self._optional.look()
        await self._probing.look()
        self._follow()
        async with self.cache:
            await self.cache.wait_synced(SYNC_TIMEOUT_S)
            self._synced = True
            log.info("cluster read, controllers start", sets=len(self.cache.store(PodCliqueSet)))
            on_ready()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.events.run(), name="events")
                    group.create_task(self._probing.run(), name="probing")
                    if self._dialects is not None:
                        group.create_task(self._dialects.run(), name="dialects")
                    for controller in self.controllers:
                        group.create_task(controller.run(), name=controller.name)
            finally:
                self._synced = False

    async def stand_by(self, client: Client) -> None:
        """While another process leads: keeps the backends informed of what the cluster offers, until cancelled.

        Admission is served by standbys too and asks the backends what cannot be done. `client` is one that may write,
        which a standby's own may not: some things can only be asked by dry run.
        """
        probing = Probing(client, self.backends, changed=lambda: None)
        probing.again()
        await probing.run()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Operator]:
        """Runs beside the block, which begins when the cluster has been read."""
        ready = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self.run(on_ready=ready.set), name=COMPONENT)
        waiting = asyncio.get_running_loop().create_task(ready.wait())
        try:
            await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            yield self
        finally:
            for one in (waiting, task):
                one.cancel()
            await asyncio.gather(waiting, task, return_exceptions=True)

    def _offer_changed(self) -> None:
        """A scheduler's API came or went: gangs and pods that waited for it are looked at again."""
        self._follow()
        self._bindings.all()
        for gang in self.cache.list(PodGang):
            part_of = gang.metadata.labels.get(labels.PART_OF, "")
            self._gangs.add(GangKey(gang.metadata.namespace, part_of, gang.metadata.name))
        for clique in self.cache.list(PodClique):
            self._cliques.add(clique.key)

    def _follow(self) -> None:
        """Has the cache follow the kinds of other schedulers that are there by now."""
        self._backing.follow(self.backends.all)
        self._bindings.follow(self.backends.topology_aware)

    def _declare(self, namespace: str) -> None:
        for kind in _LABELLED:
            self.cache.add(kind, namespace=namespace, labels=MANAGED)
        for kind in _OURS:
            self.cache.add(kind, namespace=namespace)
        for kind in _OF_CLUSTER:
            self.cache.add(kind)
        for kind in (Pod, PodClique, PodCliqueScalingGroup, PodGang):
            self.cache.add_index(kind, SET, by_set)
        self.cache.add_index(Pod, ON_NODE, by_node)
        self.cache.add_index(PodClique, BASE_GANG, by_base_gang)
        self.cache.add_index(PodClique, PARENT, by_parent)
        self.cache.add_index(PodCliqueSet, BINDING, by_binding)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
