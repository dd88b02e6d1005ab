"""Engine metrics as one thing to start and stop: watch pods, read their pages, serve the numbers, then register.

In that order, because an APIService that nobody answers for slows the whole cluster. Replicas do not know of each
other: each reads every page and any of them may be asked.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry

from grove.admission.certs.authority import service_names
from grove.admission.certs.serving import ServedCertificate, SharedSecret
from grove.api.core import ConfigMap
from grove.api.labels import MANAGED_BY, OPERATOR
from grove.api.meta import Key
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock
from grove.kube.events import Recorder
from grove.metrics.access import AUTHENTICATION_CONFIG, AUTHENTICATION_NAMESPACE, Aggregator, Authorizer
from grove.metrics.apiservices import METRICS, Registration, ServiceAddress
from grove.metrics.engines import DCGM, OWN_METRICS
from grove.metrics.exposition import OwnerNumbers
from grove.metrics.page import Wanted, labelled, scan
from grove.metrics.readings import Readings, wanted_names
from grove.metrics.scrape import Bounds, Scraper
from grove.metrics.server import MetricsApi
from grove.metrics.targets import DCGM_PORT, EnginePod, Target, find_target

PAGE_UNREADABLE, PAGE_STRANGE = "MetricsUnreadable", "MetricsStrange"
SYNC_TIMEOUT_S = 60.0
THOROUGH_EVERY = 30
"""Every so many pages of a pod one is searched for names that have no TYPE line."""
MOST_RAW_NAMES = 200
"""Raw names that are looked for; the one not asked for longest makes room."""
SECRET = "grove-metrics-server-cert"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """`namespace` is our own; `raw_names` are looked for from the start, others once somebody asks for them."""

    namespace: str
    host: str = ""
    port: int = 6443
    service: str = METRICS
    service_port: int = 443
    register: bool = True
    bounds: Bounds = field(default_factory=Bounds)
    raw_names: tuple[str, ...] = ()
    dcgm_namespace: str = "gpu-operator"
    dcgm_selector: str = "app=nvidia-dcgm-exporter"


class RawNames:
    """Our own metrics, and raw names that were asked for."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self._raw: OrderedDict[str, None] = OrderedDict.fromkeys(names)
        self.wanted: Wanted = wanted_names(self._raw)

    def listed(self) -> list[str]:
        return [*OWN_METRICS, *sorted(self._raw)]

    def asked(self, metric: str) -> None:
        if metric in OWN_METRICS:
            return
        is_new = metric not in self._raw
        self._raw[metric] = None
        self._raw.move_to_end(metric)
        while len(self._raw) > MOST_RAW_NAMES:
            self._raw.popitem(last=False)
        if is_new:
            self.wanted = wanted_names(self._raw)


@dataclass(slots=True)
class _Reading:
    """What is remembered between two pages of one pod."""

    pages: int = 0
    untyped: frozenset[str] = frozenset()
    strange: bool = False


class MetricsService:
    """`run` serves until cancelled; `running` beside a block, which begins when it is registered.

    `reach` says where a page is really read, for tests whose pods have made-up addresses.
    """

    def __init__(
        self, client: Client, settings: MetricsSettings, *, clock: Clock = SYSTEM, rng: random.Random | None = None,
        registry: CollectorRegistry | None = None, reach: Callable[[Target], Target] = lambda target: target,
    ) -> None:  # fmt: skip
        self._client, self._settings, self._reach = client, settings, reach
        self.readings = Readings(settings.bounds.interval_s)
        self.names = RawNames(settings.raw_names)
        self.events = Recorder(client, METRICS, clock=clock, rng=rng)
        self._engines = Scraper(settings.bounds, self._take_page, self._warn, rng)
        self._exporters = Scraper(settings.bounds, self._take_gpus, self._warn, rng)
        self._pages: dict[tuple[str, str], _Reading] = {}
        self._aggregator = Aggregator()
        self._pods, self._gpus, self._config = Cache(client, tune_gc=True), Cache(client), Cache(client)
        self._pods.add(EnginePod, labels=f"{MANAGED_BY}={OPERATOR}")
        self._pods.on_event(EnginePod, self._on_pod)
        if settings.dcgm_namespace:
            self._gpus.add(EnginePod, namespace=settings.dcgm_namespace, labels=settings.dcgm_selector)
            self._gpus.on_event(EnginePod, self._on_exporter)
        self._config.add(ConfigMap, namespace=AUTHENTICATION_NAMESPACE, fields=f"metadata.name={AUTHENTICATION_CONFIG}")
        self._config.on_event(ConfigMap, self._on_config)
        names = service_names(settings.service, settings.namespace)
        self.secret = SharedSecret(client, settings.namespace, names, secret_name=SECRET, clock=clock)
        self.api = MetricsApi(self.readings, self.names, lambda: self._aggregator, Authorizer(client), clock)
        address = ServiceAddress(settings.namespace, settings.service, settings.service_port)
        self.registration = Registration(client, address)
        self.port = settings.port
        self.is_ready = False
        if registry is not None:
            registry.register(OwnerNumbers(self.readings, lambda: asyncio.get_running_loop().time()))

    @property
    def certificate(self) -> ServedCertificate:
        return self.secret.served

    async def run(self, *, on_ready: asyncio.Event | None = None) -> None:
        """Raises `KubeError` when the cluster cannot be used."""
        async with self._pods, self._gpus, self._config:
            for cache in (self._pods, self._gpus, self._config):
                await cache.wait_synced(SYNC_TIMEOUT_S)
            bundle = await self.secret.settle()
            runner = web.AppRunner(self.api.application(), access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            site = web.TCPSite(runner, self._settings.host or None, self._settings.port,
                               ssl_context=self.certificate.listening)  # fmt: skip
            try:
                await site.start()
                self.port = runner.addresses[0][1]
                self.is_ready = True
                log.info("metrics are served", port=self.port, targets=len(self._engines))
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._engines.run(), name="engines")
                    group.create_task(self._exporters.run(), name="exporters")
                    group.create_task(self.events.run(), name="events")
                    group.create_task(self.secret.keep(), name="certificate")
                    if self._settings.register:
                        self.registration.trust(bundle.authorities)
                        await self.registration.ensure()
                        self.secret.publish = self.registration.trust
                        group.create_task(self.registration.keep(), name="apiservices")
                    if on_ready is not None:
                        on_ready.set()
            finally:
                self.is_ready = False
                await runner.cleanup()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[MetricsService]:
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        task = loop.create_task(self.run(on_ready=ready), name=METRICS)
        waiting = loop.create_task(ready.wait())
        try:
            await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            yield self
        finally:
            for one in (waiting, task):
                one.cancel()
            await asyncio.gather(waiting, task, return_exceptions=True)

    # What the watches say

    def _on_pod(self, old: EnginePod | None, new: EnginePod | None) -> None:
        if new is None:
            if old is not None:
                where = (old.metadata.namespace, old.metadata.name)
                self._engines.forget(*where)
                self.readings.remove_pod(*where)
                self._pages.pop(where, None)
            return
        where = (new.metadata.namespace, new.metadata.name)
        if old is None or old.metadata.labels != new.metadata.labels:
            self.readings.add_pod(*where, new.metadata.labels)
        target = find_target(new)
        if target is None:
            self._engines.forget(*where)
            return
        # At our start every pod is new at once; later ones are few, and somebody waits for them.
        self._engines.follow(self._reach(target), within_s=1.0 if self.is_ready else None)
        if old is not None and new.is_ready and not old.is_ready:
            self._engines.hurry(*where)

    def _on_exporter(self, old: EnginePod | None, new: EnginePod | None) -> None:
        target = find_target(new, default_port=DCGM_PORT) if new is not None else None
        if target is not None:
            self._exporters.follow(self._reach(target))
        elif (pod := new or old) is not None:
            self._exporters.forget(pod.metadata.namespace, pod.metadata.name)

    def _on_config(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        self._aggregator = Aggregator.of(new.data) if new is not None else Aggregator()
        self.certificate.trust_clients(self._aggregator.authorities)
        if not self._aggregator.authorities:
            log.warning("the API server publishes no authority of its aggregator: nobody can be served")

    # What the pages say

    def _take_page(self, target: Target, page: bytes, at: float) -> None:
        where = (target.namespace, target.pod)
        reading = self._pages.setdefault(where, _Reading())
        thorough = reading.pages % THOROUGH_EVERY == 0
        found = scan(page, self.names.wanted, untyped=reading.untyped, thorough=thorough)
        reading.pages += 1
        if thorough:
            reading.untyped = found.untyped
        self.readings.observe(*where, found, at)
        if found.faults and not reading.strange:
            self._tell(target, PAGE_STRANGE, f"its page of metrics has samples that are not used: {found.faults[0]}")
        reading.strange = bool(found.faults)

    def _take_gpus(self, target: Target, page: bytes, at: float) -> None:
        highest: dict[tuple[str, str], float] = {}

        def visit(labels: dict[str, str], value: float) -> None:
            where = (labels.get("namespace", ""), labels.get("pod", ""))
            highest[where] = max(highest.get(where, 0.0), value)

        labelled(page, DCGM.name, visit)
        for where, value in highest.items():
            self.readings.observe_gpu(*where, value * DCGM.scale, at)

    def _warn(self, target: Target, reason: str) -> None:
        self._tell(target, PAGE_UNREADABLE, f"its page of metrics at port {target.port} {reason}")

    def _tell(self, target: Target, reason: str, message: str) -> None:
        log.warning("page of metrics", namespace=target.namespace, pod=target.pod, reason=reason, message=message)
        found = self._pods.get(EnginePod, Key(target.namespace, target.pod))
        if found is None and self._settings.dcgm_namespace:
            found = self._gpus.get(EnginePod, Key(target.namespace, target.pod))
        if found is not None:
            self.events.warn(found, reason, message)
