"""`grove crds`: print the CRDs, or install and upgrade them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click


@click.command()
@click.option("--apply", "install", is_flag=True, help="Install or upgrade them on the cluster, and wait until served.")
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Which cluster; default as kubectl."
)
@click.option("--context", default="", help="The kubeconfig context to use.")
@click.option("--dialects", is_flag=True, help="Also those of grove.dynamo.ai and grove.ai.")
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, help="Seconds to wait for each to be served.")
def crds(install: bool, kubeconfig: Path | None, context: str, dialects: bool, timeout_s: float) -> None:
    """Print Grove's custom resource definitions as YAML, or apply them."""
    if install:
        asyncio.run(_install(kubeconfig, context, dialects, timeout_s))
    else:
        from grove.crds import load_text

        click.echo(load_text(dialects=dialects), nl=False)


async def _install(kubeconfig: Path | None, context: str, dialects: bool, timeout_s: float) -> None:
    from grove.crds.install import install
    from grove.kube.config import load_config
    from grove.kube.http import HttpClient

    async with HttpClient(load_config(kubeconfig, context), user_agent="grove-crds") as client:
        await install(client, click.echo, timeout_s, dialects=dialects)
