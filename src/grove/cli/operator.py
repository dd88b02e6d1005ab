"""`grove operator`: the process around the operator. Configuration, logs, leader election, probes, metrics."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from grove.config import OperatorConfiguration
    from grove.kube.config import ClusterConfig
    from grove.kube.http import HttpClient
    from grove.kube.lease import Leadership


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Which cluster; default as kubectl."
)
@click.option("--context", default="", help="The kubeconfig context to use.")
@click.option(
    "--config", "config_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An OperatorConfiguration file; without it every setting has its default.",
)  # fmt: skip
def operator(kubeconfig: Path | None, context: str, config_file: Path | None) -> None:
    """Run the operator: make every PodCliqueSet of the cluster a running inference system."""
    from grove.backends import KNOWN
    from grove.config import ConfigError, load_configuration
    from grove.kube.config import load_config
    from grove.kube.logs import configure_logs
    from grove.kube.run import run_process

    try:
        config = load_configuration(config_file.read_text() if config_file else "", KNOWN)
    except ConfigError as error:
        for fault in error.faults:
            click.echo(f"error: {config_file}: {fault}", err=True)
        sys.exit(2)
    configure_logs(config.log_level, config.log_format)
    cluster = load_config(kubeconfig, context)
    sys.exit(run_process(lambda: serve(config, cluster)))


async def serve(config: OperatorConfiguration, cluster: ClusterConfig) -> None:
    """Runs the operator as this process: until cancelled, or until its lease is somebody else's."""
    from contextlib import AsyncExitStack

    from grove import __version__
    from grove.api.env import INIT_CONTAINER_IMAGE
    from grove.kube.http import HttpClient
    from grove.kube.run import probes
    from grove.operator import Operator

    election = config.leader_election
    image = os.environ.get(INIT_CONTAINER_IMAGE, "")
    async with AsyncExitStack() as stack:
        agent = f"grove-operator/{__version__}"
        writes = config.runtime_client_connection.burst or 1
        client = await stack.enter_async_context(HttpClient(cluster, user_agent=agent, max_writes=writes))
        operator = Operator(client, config, startup_image=f"{image}:{__version__}" if image else "", tune_gc=True)
        waits = election.enabled  # a standby is ready: it does what a standby does

        def ready() -> bool:
            return operator.is_ready or waits

        health, metrics = config.server.health_probes, config.server.metrics
        await stack.enter_async_context(probes(health.port, ready=ready, host=health.bind_address))
        if metrics.port != health.port:
            await stack.enter_async_context(probes(metrics.port, ready=ready, host=metrics.bind_address))
        if not election.enabled:
            await operator.run()
            return

        def took_over() -> None:
            nonlocal waits
            waits = False

        # A client of its own: the guard holds back writes of a former leader, and the lease is how one becomes leader.
        lease_client = await stack.enter_async_context(HttpClient(cluster, user_agent=f"{agent}/lease"))
        leadership = _leadership(lease_client, config, cluster)
        client.write_guard = leadership.may_write

        async def lead() -> None:
            took_over()
            await operator.run()

        await leadership.lead(lead)


def _leadership(client: HttpClient, config: OperatorConfiguration, cluster: ClusterConfig) -> Leadership:
    import secrets
    import socket

    from grove.kube.lease import Leadership

    election = config.leader_election
    return Leadership(
        client,
        election.resource_namespace or cluster.namespace or "default",
        election.resource_name,
        f"{socket.gethostname()}_{secrets.token_hex(8)}",
        lease_s=election.lease_duration,
        renew_s=election.renew_deadline,
        retry_s=election.retry_period,
    )
