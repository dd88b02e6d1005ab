"""The process around the operator: client, leader election, probes, metrics, admission."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack

from prometheus_client import REGISTRY

from grove import __version__
from grove.admission.serving.node_watch import NodeWatch
from grove.admission.serving.service import WebhookService
from grove.admission.serving.wiring import admission_of, user_of, webhook_settings
from grove.api.env import INIT_CONTAINER_IMAGE
from grove.config import OperatorConfiguration
from grove.kube.clock import SYSTEM
from grove.kube.config import ClusterConfig
from grove.kube.http import HttpClient
from grove.kube.lease import Leadership, process_identity
from grove.kube.metrics import watch_requests
from grove.kube.profiling import profiling
from grove.kube.rate import Rate
from grove.kube.run import probes
from grove.kube.tracing import Traces, traces_asked_for
from grove.operator.figures import watch_sets
from grove.operator.wiring import Operator


async def serve(config: OperatorConfiguration, cluster: ClusterConfig, webhook_url: str | None) -> None:
    """Runs the operator as this process: until cancelled, or until another process holds its lease.

    `webhook_url` is where admission is reached: empty for the Service of the chart, None to not serve it at all.
    """
    election = config.leader_election
    image = os.environ.get(INIT_CONTAINER_IMAGE, "")
    async with AsyncExitStack() as stack:
        agent = f"grove-operator/{__version__}"
        bounds = config.runtime_client_connection
        rate = Rate(bounds.qps, bounds.burst) if bounds.qps is not None else None
        client = await stack.enter_async_context(
            HttpClient(cluster, user_agent=agent, max_writes=bounds.burst or 1, rate=rate)
        )
        debugging = config.debugging
        if debugging is not None and debugging.enable_profiling:
            await stack.enter_async_context(profiling(debugging.pprof_bind_host, debugging.pprof_bind_port))
        traces, end_traces = traces_asked_for("grove-operator")
        stack.callback(end_traces)
        startup_image = f"{image}:{__version__}" if image else ""
        operator = Operator(client, config, startup_image=startup_image, tune_gc=True, traces=traces)
        for figures in (watch_sets(operator.cache, SYSTEM), watch_requests(client.calls)):
            stack.callback(REGISTRY.unregister, figures)
        hooks = await _admission(stack, config, cluster, client, operator, webhook_url, agent, traces)

        def ready() -> bool:
            # Replicas that elect a leader all serve admission: one that takes over must not lose its place behind the
            # Service while it reads the cluster.
            return (election.enabled or operator.is_ready) and (hooks is None or hooks.is_ready)

        health, metrics = config.server.health_probes, config.server.metrics
        await stack.enter_async_context(probes(health.port, ready=ready, host=health.bind_address))
        if metrics.port != health.port:
            await stack.enter_async_context(probes(metrics.port, ready=ready, host=metrics.bind_address))
        if hooks is not None:
            await hooks.start()
            stack.push_async_callback(hooks.stop)
            await stack.enter_async_context(hooks.hand_over.after())
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        if hooks is not None:
            serving = tasks.create_task(hooks.keep(), name="admission")
            stack.callback(serving.cancel)

        async def work() -> None:
            async with asyncio.TaskGroup() as leading:
                leading.create_task(operator.run(), name="operator")
                if hooks is not None:
                    leading.create_task(hooks.lead(), name="webhook configurations")

        if not election.enabled:
            await work()
            return

        # A client of its own: the guard holds back writes of a former leader, and the lease is how one becomes leader.
        lease_client = await stack.enter_async_context(HttpClient(cluster, user_agent=f"{agent}/lease"))
        leadership = _leadership(lease_client, config, cluster)
        client.write_guard = leadership.may_write
        standing_by = tasks.create_task(operator.stand_by(lease_client), name="stand by")
        stack.callback(standing_by.cancel)

        async def lead() -> None:
            standing_by.cancel()
            await work()

        await leadership.lead(lead)


async def _admission(
    stack: AsyncExitStack,
    config: OperatorConfiguration,
    cluster: ClusterConfig,
    leader_client: HttpClient,
    operator: Operator,
    url: str | None,
    agent: str,
    traces: Traces | None,
) -> WebhookService | None:
    """Admission around the operator's own backends and caches; None when it is not to be served.

    It has a client of its own, without the leader's guard: standbys answer reviews and renew certificates too. Only
    the configurations are written through the leader's.
    """
    if url is None:
        return None
    client = await stack.enter_async_context(HttpClient(cluster, user_agent=f"{agent}/admission"))
    namespace = cluster.namespace or "default"
    admission = admission_of(
        config,
        operator.backends,
        namespace=namespace,
        operator_users=[await user_of(client)],
        nodes=NodeWatch(operator.cache).summary,
    )
    settings = webhook_settings(config, namespace=namespace, url=url)
    return WebhookService(client, admission, settings, leader_client=leader_client, traces=traces)


def _leadership(client: HttpClient, config: OperatorConfiguration, cluster: ClusterConfig) -> Leadership:
    election = config.leader_election
    return Leadership(
        client,
        election.resource_namespace or cluster.namespace or "default",
        election.resource_name,
        process_identity(),
        lease_s=election.lease_duration,
        renew_s=election.renew_deadline,
        retry_s=election.retry_period,
    )
