"""Engine metrics as one service to start and stop: watch pods, read their pages, serve the numbers, then register.

Registration comes last, because an APIService without an answer slows the whole cluster. Replicas are independent:
each reads every page, and any of them can answer.
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

from grove.admission.certs.authority import service_names
from grove.admission.certs.serving import ServedCertificate, SharedSecret
from grove.api.core import ConfigMap
from grove.api.labels import MANAGED_BY, OPERATOR
from grove.api.meta import Key
from grove.kube.beside import beside
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock
from grove.kube.events import Recorder
from grove.kube.handover import HandOver
from grove.metrics.access import AUTHENTICATION_CONFIG, AUTHENTICATION_NAMESPACE, Aggregator, Authorizer
from grove.metrics.apiservices import METRICS, Registration, ServiceAddress
from grove.metrics.engines import OWN_METRICS
from grove.metrics.messages import FromReader, GpusRead, PageFault, PageRead
from grove.metrics.readerprocess import ReaderProcess
from grove.metrics.readings import Readings
from grove.metrics.scrape import Bounds
from grove.metrics.server import MetricsApi
from grove.metrics.targets import DCGM_PORT, EnginePod, Target, find_target

SYNC_TIMEOUT_S = 60.0
MOST_RAW_NAMES = 200
"""Raw names that are looked for. Beyond this number, the name that was not asked for longest is dropped."""
SECRET = "grove-metrics-server-cert"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """`namespace` is our own. `raw_names` are read from the start, others after the first request for them."""

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
    hand_over_s: float = 0.0
    """How long requests are answered after a signal. Inside a cluster they come through a Service."""


class RawNames:
    """Our own metrics, and raw names that clients asked for. Calls `changed` with all raw names when a new one is
    added.
    """

    def __init__(
        self, names: tuple[str, ...] = (), changed: Callable[[tuple[str, ...]], None] = lambda _: None
    ) -> None:
        self._raw: OrderedDict[str, None] = OrderedDict.fromkeys(names)
        self._changed = changed if changed is not None else lambda _: None
        self._changed(tuple(self._raw))

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
            self._changed(tuple(self._raw))


class MetricsService:
    """`run` serves until cancelled; `running` beside a block, which begins when it is registered.

    `reach` says where a page is really read, for tests whose pods have made-up addresses.
    """

    def __init__(
        self,
        client: Client,
        settings: MetricsSettings,
        *,
        clock: Clock = SYSTEM,
        rng: random.Random | None = None,
        reach: Callable[[Target], Target] = lambda target: target,
    ) -> None:
        self._client, self._settings, self._reach = client, settings, reach
        self.readings = Readings(settings.bounds.interval_s)
        self.events = Recorder(client, METRICS, clock=clock, rng=rng)
        self.reader = ReaderProcess(settings.bounds, self.receive, rng)
        self.names = RawNames(settings.raw_names, self.reader.look_for)
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
        self.hand_over = HandOver(settings.hand_over_s)
        self.is_ready = False

    @property
    def certificate(self) -> ServedCertificate:
        return self.secret.served

    async def run(self, *, on_ready: asyncio.Event | None = None) -> None:
        """Raises `KubeError` when the cluster cannot be used."""
        async with self._pods, self._gpus, self._config:
            for cache in (self._pods, self._gpus, self._config):
                await cache.wait_synced(SYNC_TIMEOUT_S)
            bundle = await self.secret.settle()
            app = self.api.application()
            self.hand_over.watch(app)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            site = web.TCPSite(
                runner, self._settings.host or None, self._settings.port, ssl_context=self.certificate.listening
            )
            try:
                await site.start()
                self.port = runner.addresses[0][1]
                self.is_ready = True
                log.info("metrics are served", port=self.port, targets=len(self.reader))
                async with self.hand_over.after(), asyncio.TaskGroup() as group:
                    group.create_task(self.reader.run(), name="reader")
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
        """Runs beside the block, which begins when it answers."""
        async with beside(lambda ready: self.run(on_ready=ready), METRICS):
            yield self

    # What the watches say

    def _on_pod(self, old: EnginePod | None, new: EnginePod | None) -> None:
        if new is None:
            if old is not None:
                where = (old.metadata.namespace, old.metadata.name)
                self.reader.forget("engine", *where)
                self.readings.remove_pod(*where)
            return
        where = (new.metadata.namespace, new.metadata.name)
        if old is None or old.metadata.labels != new.metadata.labels:
            self.readings.add_pod(*where, new.metadata.labels)
        target = find_target(new)
        if target is None:
            self.reader.forget("engine", *where)
            return
        # At our start every pod is new at once; later pods are few, and an autoscaler waits for them.
        self.reader.follow("engine", self._reach(target), within_s=1.0 if self.is_ready else None)
        if old is not None and new.is_ready and not old.is_ready:
            self.reader.hurry(*where)

    def _on_exporter(self, old: EnginePod | None, new: EnginePod | None) -> None:
        target = find_target(new, default_port=DCGM_PORT) if new is not None else None
        if target is not None:
            self.reader.follow("gpu", self._reach(target))
        elif (pod := new or old) is not None:
            self.reader.forget("gpu", pod.metadata.namespace, pod.metadata.name)

    def _on_config(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        self._aggregator = Aggregator.of(new.data) if new is not None else Aggregator()
        self.certificate.trust_clients(self._aggregator.authorities)
        if not self._aggregator.authorities:
            log.warning("the API server publishes no authority of its aggregator: every request is refused")

    # What the pages say

    def receive(self, message: FromReader) -> None:
        match message:
            case PageRead(namespace, pod, at, numbers):
                self.readings.observe(namespace, pod, numbers, at)
            case GpusRead(at, shares):
                for namespace, pod, share in shares:
                    self.readings.observe_gpu(namespace, pod, share, at)
            case PageFault(namespace, pod, reason, text):
                self._tell(namespace, pod, reason, text)

    def _tell(self, namespace: str, pod: str, reason: str, message: str) -> None:
        log.warning("page of metrics", namespace=namespace, pod=pod, reason=reason, message=message)
        engine_pod = self._pods.get(EnginePod, Key(namespace, pod))
        if engine_pod is None and self._settings.dcgm_namespace:
            engine_pod = self._gpus.get(EnginePod, Key(namespace, pod))
        if engine_pod is not None:
            self.events.warn(engine_pod, reason, message)
