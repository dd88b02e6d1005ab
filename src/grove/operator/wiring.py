"""The operator, built and wired: the one place that uses all its parts.

    operator = Operator(client, configuration)
    await operator.run()                     # until cancelled; as leader, in a process
    async with operator.running(): ...       # in a test or a demo: synced inside, stopped afterwards

It runs over any `Client`, so the same wiring drives a real cluster and the simulator. It elects no leader and serves
no probes; `grove.processes.operator` does that around it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog

from grove.api import kueue
from grove.api.core import Node, Pod, Role, RoleBinding, Secret, Service, ServiceAccount
from grove.api.meta import Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.backends import build_backends
from grove.config import OperatorConfiguration, load_configuration
from grove.dialects.wiring import Dialects
from grove.kube.beside import beside
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock, loop_time
from grove.kube.controller import Controller, Result
from grove.kube.events import Recorder
from grove.kube.tracing import Traces
from grove.kube.workqueue import Workqueue
from grove.kube.writes import unless_namespace_ends
from grove.operator.pod.controller import StartupBlockedController
from grove.operator.pod.kueue_writer import KueueFinalizerController
from grove.operator.podclique.controller import PodCliqueController
from grove.operator.podcliqueset.compute_domain_writer import ComputeDomain
from grove.operator.podcliqueset.controller import PodCliqueSetController
from grove.operator.podcliqueset.revision_writer import RevisionWriter
from grove.operator.podgang.controller import PodGangController
from grove.operator.podgang.scheduler_objects import SchedulerObjects
from grove.operator.scalinggroup.controller import ScalingGroupController
from grove.operator.shared.cluster.autoscale_events import AutoscaleEvents
from grove.operator.shared.cluster.backend_discovery import BackendDiscovery, SchedulerAnswers
from grove.operator.shared.cluster.children_writer import ChildrenWriter
from grove.operator.shared.cluster.claim_writer import ClaimWriter
from grove.operator.shared.cluster.deps import Deps, Queues, gang_key
from grove.operator.shared.cluster.former_templates import FormerTemplates
from grove.operator.shared.cluster.optional_kinds import MANAGED, OPTIONAL, OptionalKinds
from grove.operator.shared.cluster.set_traces import SetTraces
from grove.operator.shared.cluster.sets import SET, Sets, by_set
from grove.operator.shared.cluster.status_writer import EventBatches, StatusWriter
from grove.operator.shared.outcome import SetErrors
from grove.operator.shared.status_batching import SETTLE_S, StatusBatches
from grove.operator.topology.controller import TopologyController

COMPONENT = "grove-operator"
SYNC_TIMEOUT_S = 60.0
RESYNC_S, RESYNC_SPREAD_S = 4 * 3600.0, 600.0
"""How often everything is looked at again without an event, give or take a quarter, and over how long the looks are
spread. It finds what a handler that failed has lost; a look that finds nothing to do writes nothing."""

log = structlog.get_logger(__name__)

_LABELLED: tuple[type[Object], ...] = (Pod, Service, ServiceAccount, Role, RoleBinding, Secret)
"""Kinds of which the cluster may hold many that are not ours: the cache follows only labelled ones."""
_OURS: tuple[type[Object], ...] = (PodCliqueSet, PodClique, PodCliqueScalingGroup, PodGang)
_OF_CLUSTER: tuple[type[Object], ...] = (ClusterTopologyBinding, Node)


class Operator:
    """All controllers over one client. Made anywhere, run once, on one event loop.

    `startup_image` is the whole image name of the start-order container. Only sets with a start order need it.
    `namespace` limits the operator to one namespace. Tests that share a cluster need that.
    """

    def __init__(
        self,
        client: Client,
        config: OperatorConfiguration | None = None,
        *,
        clock: Clock = SYSTEM,
        rng: random.Random | None = None,
        startup_image: str = "",
        namespace: str = "",
        tune_gc: bool = False,
        traces: Traces | None = None,
    ) -> None:
        config = config or load_configuration("")
        self._rng = rng = rng or random.Random()
        self.backends = build_backends(config.scheduler)
        self.cache = Cache(client, tune_gc=tune_gc, rng=rng)
        self.events = Recorder(client, COMPONENT, clock=clock, rng=rng)
        self._declare(namespace)
        self.deps = deps = self._collaborators(client, config, clock, rng, namespace, startup_image)
        self._known_answers: SchedulerAnswers = {}
        self._discovery = BackendDiscovery(client, self.backends, self._offer_changed, self._known_answers)
        self._objects = SchedulerObjects(
            client, self.cache, deps.queues.gangs, namespace=namespace, on_missing=self._discovery.again
        )
        gangs = PodGangController(deps, self._objects)
        self._sets = sets = PodCliqueSetController(deps, gangs)
        blocked, groups = StartupBlockedController(deps), ScalingGroupController(deps)
        kueue_pods = KueueFinalizerController(deps)
        cliques = PodCliqueController(deps)
        self._bindings = TopologyController(deps)
        self._autoscaled = AutoscaleEvents(self.cache, deps.optional, self.events)
        queues, syncs = deps.queues, config.controllers
        of_sets, of_cliques = syncs.pod_clique_set.concurrent_syncs, syncs.pod_clique.concurrent_syncs
        of_groups, of_gangs = syncs.pod_clique_scaling_group.concurrent_syncs, syncs.pod_gang.concurrent_syncs
        self.controllers: tuple[Controller[Any], ...] = (
            # A set is kept and reported by the same worker: as many again, so that neither waits for the other.
            _controller("podcliqueset-controller", sets.reconcile, queues.sets, 2 * of_sets),
            _controller("podcliquescalinggroup-controller", groups.reconcile, queues.groups, of_groups),
            _controller("podclique-controller", cliques.reconcile, queues.cliques, of_cliques),
            _controller("podgang", gangs.reconcile, queues.gangs, of_gangs + of_sets),
            _controller("startup-blocked", blocked.reconcile, queues.blocked_pods, of_cliques),
            _controller("kueue-finalizer", kueue_pods.reconcile, queues.kueue_pods, of_cliques),
            _controller("clustertopology-controller", self._bindings.reconcile, queues.bindings, 1),
        )
        self._revisions = RevisionWriter(self.cache, client, self.events, namespace=namespace).controller
        self.controllers += (self._revisions,)
        self._dialects = Dialects(deps) if config.dialects.enabled else None
        if self._dialects is not None:
            self.controllers += self._dialects.controllers
        if traces is not None:
            self._trace(SetTraces(traces, self.cache))
        self._synced = False

    def _trace(self, spans: SetTraces) -> None:
        """Adds to the traces of sets what this operator does; its Events carry their ids."""
        self.events.trace_id_of, self.deps.statuses.on_written = spans.trace_id_of, spans.status_written
        for controller in self.controllers:
            controller.tracing = spans.of_controller(controller.name)

    def _collaborators(
        self,
        client: Client,
        config: OperatorConfiguration,
        clock: Clock,
        rng: random.Random,
        namespace: str,
        startup_image: str,
    ) -> Deps:
        cache, queues, batches = self.cache, Queues(), StatusBatches(loop_time)
        mnnvl = config.network.auto_mnnvl_enabled
        more: tuple[type[Object], ...] = (ComputeDomain,) if mnnvl else ()
        optional = OptionalKinds(cache, client, namespace, (*OPTIONAL, *more))
        children = ChildrenWriter(cache, client)
        return Deps(
            cache=cache,
            client=client,
            clock=clock,
            backends=self.backends,
            events=self.events,
            event_batches=EventBatches(self.events),
            optional=optional,
            sets=Sets(cache, self.backends, topology_enabled=config.topology_aware_scheduling.enabled),
            former=FormerTemplates(client),
            set_errors=SetErrors(lambda key: queues.sets.add(key, after_s=SETTLE_S)),
            children=children,
            claims=ClaimWriter(cache, client, children, optional),
            statuses=StatusWriter(cache, client, batches),
            status_batches=batches,
            queues=queues,
            namespace=namespace,
            startup_image=startup_image,
            pod_name_salt=f"{rng.getrandbits(64):x}",
            mnnvl_enabled=mnnvl,
            surge_wait_s=config.updates.surge_placement_timeout,
        )

    @property
    def is_ready(self) -> bool:
        """True if the caches are complete and work has begun."""
        return self._synced

    @property
    def is_idle(self) -> bool:
        """Whether no controller works and no key waits; timers may be set."""
        return all(controller.queue.is_idle for controller in self.controllers)

    async def run(self, *, on_ready: Callable[[], None] = lambda: None) -> None:
        """Follows the cluster and reconciles until cancelled. Raises what makes the cluster unusable."""
        await self.deps.optional.look()
        await self._discovery.look()
        self._follow()
        async with self.cache:
            await self.cache.wait_synced(SYNC_TIMEOUT_S)
            self._synced = True
            log.info("cluster read, controllers start", sets=len(self.cache.store(PodCliqueSet)))
            on_ready()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.events.run(), name="events")
                    group.create_task(self._discovery.run(), name="backend-discovery")
                    group.create_task(self._resync(), name="resync")
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
        discovery = BackendDiscovery(client, self.backends, changed=lambda: None, known_answers=self._known_answers)
        discovery.again()
        await discovery.run()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Operator]:
        """Runs beside the block, which begins when the cluster has been read."""
        async with beside(lambda ready: self.run(on_ready=ready.set), COMPONENT):
            yield self

    async def _resync(self) -> None:
        """Has every controller look at everything again, slowly and at irregular times."""
        queues = self.deps.queues
        while True:
            await asyncio.sleep(RESYNC_S * self._rng.uniform(0.75, 1.25))
            log.info("everything is looked at again", sets=len(self.cache.store(PodCliqueSet)))
            for pcs in self.cache.list(PodCliqueSet):
                self._sets.wake_children(pcs.key, after_s=self._soon())
                self._revisions.add(pcs.key, after_s=self._soon())
            for group in self.cache.list(PodCliqueScalingGroup):
                queues.groups.add(group.key, after_s=self._soon())
            for clique in self.cache.list(PodClique):
                queues.blocked_pods.add(clique.key, after_s=self._soon())
            for pod in self.cache.list(Pod):
                if kueue.keeps_deleted(None, pod):
                    queues.kueue_pods.add(pod.key, after_s=self._soon())
            self._wake_placement(self._soon)
            if self._dialects is not None:
                self._dialects.wake_all(self._soon)

    def _soon(self) -> float:
        return self._rng.uniform(0.0, RESYNC_SPREAD_S)

    def _wake_placement(self, after_s: Callable[[], float] = lambda: 0.0) -> None:
        """Looks at every object that needs a scheduler's API: cliques, gangs and bindings."""
        queues = self.deps.queues
        for clique in self.cache.list(PodClique):
            queues.cliques.add(clique.key, after_s=after_s())
        for gang in self.cache.list(PodGang):
            if (key := gang_key(gang)) is not None:
                queues.gangs.add(key, after_s=after_s())
        for binding in self.cache.list(ClusterTopologyBinding):
            queues.bindings.add(binding.key, after_s=after_s())

    def _offer_changed(self) -> None:
        """A scheduler's API came or went: gangs and pods that waited for it are looked at again."""
        self._follow()
        self._wake_placement()

    def _follow(self) -> None:
        """Has the cache follow the kinds of other schedulers that are there by now."""
        self._objects.follow(self.backends.all)
        self._bindings.follow(self.backends.topology_aware)

    def _declare(self, namespace: str) -> None:
        for kind in _LABELLED:
            self.cache.add(kind, namespace=namespace, labels=MANAGED)
        for kind in _OURS:
            self.cache.add(kind, namespace=namespace)
        for kind in _OF_CLUSTER:
            self.cache.add(kind)
        for kind in (Pod, Service, PodClique, PodCliqueScalingGroup, PodGang):
            self.cache.add_index(kind, SET, by_set)


K = TypeVar("K", bound=Hashable)


def _controller(
    name: str, reconcile: Callable[[K], Awaitable[Result]], queue: Workqueue[K], workers: int
) -> Controller[K]:
    return Controller(name, unless_namespace_ends(reconcile), queue, workers=workers)
