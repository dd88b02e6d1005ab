"""`grove webhooks`: where admission is registered, and its removal from a cluster that has no operator any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from grove.admission.serving.registration import Registration, ServiceAddress, configurations
from grove.api.core import Lease, Secret
from grove.kube.config import load_config
from grove.kube.errors import NotFound
from grove.kube.http import HttpClient


@click.command()
@click.option("--remove", is_flag=True, help="Remove the configurations. A running operator creates them again.")
@click.option(
    "--also",
    multiple=True,
    metavar="lease/NAME|secret/NAME",
    help="With --remove: also remove this Lease or Secret of Grove's processes.",
)
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Which cluster; default as kubectl."
)
@click.option("--context", default="", help="The kubeconfig context to use.")
def webhooks(remove: bool, also: tuple[str, ...], kubeconfig: Path | None, context: str) -> None:
    """Show the webhook configurations that check PodCliqueSets, or remove them.

    If no operator runs, these configurations make the API server refuse every PodCliqueSet.
    """
    for named in also:
        kind, _, name = named.partition("/")
        if not remove or kind not in ("lease", "secret") or not name:
            raise click.UsageError(f"--also {named}: say lease/NAME or secret/NAME, together with --remove")
    asyncio.run(_webhooks(remove, also, kubeconfig, context))


async def _webhooks(remove: bool, also: tuple[str, ...], kubeconfig: Path | None, context: str) -> None:
    nowhere = ServiceAddress("")  # only the names matter here
    cluster = load_config(kubeconfig, context)
    async with HttpClient(cluster, user_agent="grove-webhooks") as client:
        if remove:
            await Registration(client, nowhere).withdraw()
            click.echo("webhook configurations removed")
            for kind, _, name in (named.partition("/") for named in also):
                with suppress(NotFound):
                    resource = (Lease if kind == "lease" else Secret).RESOURCE
                    await client.delete(resource, name, cluster.namespace or "default")
                    click.echo(f"{kind} {name} removed")
            return
        for configuration in configurations(nowhere, authorizer=True, dialects=True, ca_bundle=None):
            try:
                stored = await client.get(configuration.resource, configuration.name)
            except NotFound:
                click.echo(f"{configuration.name}: not there")
                continue
            for webhook in stored.get("webhooks") or ():
                click.echo(f"{configuration.name}: {_target(webhook.get('clientConfig') or {})}")


def _target(config: dict[str, Any]) -> str:
    service = config.get("service") or {}
    where = config.get("url") or f"service {service.get('namespace')}/{service.get('name')} port {service.get('port')}"
    return f"{where}, {'with' if config.get('caBundle') else 'without'} a CA bundle"
