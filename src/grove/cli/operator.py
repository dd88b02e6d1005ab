"""`grove operator`: reads the flags and the configuration, and starts the operator."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from grove.backends import KNOWN
from grove.config import ConfigError, load_configuration
from grove.kube.config import load_config
from grove.kube.handover import HAND_OVER_S
from grove.kube.logs import configure_logs
from grove.kube.run import STOP_S, run_process
from grove.processes.operator import serve


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Which cluster; default as kubectl."
)
@click.option("--context", default="", help="The kubeconfig context to use.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An OperatorConfiguration file; without it every setting has its default.",
)
@click.option(
    "--webhook-url",
    default="",
    metavar="https://HOST:PORT",
    help="The address at which the API server reaches this process outside the cluster.",
)
@click.option(
    "--webhooks/--no-webhooks",
    default=None,
    help="Serve admission; by default inside a cluster, or when --webhook-url is given.",
)
def operator(
    kubeconfig: Path | None, context: str, config_file: Path | None, webhook_url: str, webhooks: bool | None
) -> None:
    """Run the operator, which creates the pods and other objects of every PodCliqueSet."""
    try:
        config = load_configuration(config_file.read_text() if config_file else "", KNOWN)
    except ConfigError as error:
        for fault in error.faults:
            click.echo(f"error: {config_file}: {fault}", err=True)
        sys.exit(2)
    configure_logs(config.log_level, config.log_format)
    cluster = load_config(kubeconfig, context)
    # A webhook that cannot be reached would stop every write of a set, so outside a cluster it needs an address.
    served = webhooks if webhooks is not None else bool(webhook_url or os.environ.get("KUBERNETES_SERVICE_HOST"))
    if not served:
        click.echo("admission is not served: give --webhook-url to have sets defaulted and checked", err=True)
    stop_s = STOP_S + (HAND_OVER_S if served and not webhook_url else 0.0)
    sys.exit(run_process(lambda: serve(config, cluster, webhook_url if served else None), stop_s=stop_s))
