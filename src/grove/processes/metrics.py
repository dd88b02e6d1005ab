"""The process around the reader of engine metrics: client, probes, and the page for Prometheus."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from grove import __version__
from grove.kube.config import ClusterConfig
from grove.kube.http import HttpClient
from grove.kube.run import probes
from grove.metrics.exposition import page_slices
from grove.metrics.service import MetricsService, MetricsSettings
from grove.metrics.targets import Target


async def serve(cluster: ClusterConfig, settings: MetricsSettings, probe_port: int, pages_port: int = 0) -> None:
    async with HttpClient(cluster, user_agent=f"grove-metrics/{__version__}") as client:
        service = MetricsService(client, settings, reach=partial(_on_this_machine, pages_port))
        more = partial(page_slices, service.readings)
        async with probes(probe_port, host=settings.host, ready=lambda: service.is_ready, more=more):
            await service.run()


def _on_this_machine(port: int, target: Target) -> Target:
    """Where the page of a pod that does not run is served instead; with port 0 the pod's own."""
    if not port:
        return target
    return replace(target, address="127.0.0.1", port=port, path=f"/{target.namespace}/{target.pod}", scheme="http")
