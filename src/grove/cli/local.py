"""`grove up` and `grove down`: a real control plane with fake GPU nodes on this machine, for a person to play with."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

DEFAULT_DIR = Path("~/.grove/local")

directory_option = click.option(
    "--dir", "directory", type=click.Path(file_okay=False, path_type=Path), default=DEFAULT_DIR, show_default=True,
    help="Where its state, certificates and logs live.",
)  # fmt: skip


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.command()
@click.option("--kube", "version", default="1.36.3", show_default=True, help="The Kubernetes version to run.")
@click.option("--nodes", default=64, show_default=True, type=click.IntRange(0, 10_000), help="How many fake GPU nodes.")
@click.option("--operator/--no-operator", default=True, show_default=True, help="Also run Grove's operator.")
@click.option("--scheduler/--no-scheduler", default=True, show_default=True, help="Also run Grove's scheduler.")
@directory_option
def up(version: str, nodes: int, operator: bool, scheduler: bool, directory: Path) -> None:
    """Start a real control plane with fake GPU nodes; prints the path of its kubeconfig."""
    from grove.local import controlplane
    from grove.local.binaries import BinariesError

    directory = directory.expanduser()
    begun = time.monotonic()
    try:
        state = controlplane.up(directory, version, say=_say)
    except (BinariesError, controlplane.ControlPlaneError) as error:
        raise click.ClickException(str(error)) from error
    grove = [sys.executable, "-m", "grove"]
    access = ["--kubeconfig", str(state.kubeconfig)]
    _install_crds(state.kubeconfig)
    if nodes:
        controlplane.accompany(directory, "grove-nodes", [*grove, "nodes", *access, "--count", str(nodes)])
        _say(f"{nodes} fake GPU nodes")
    if operator:
        controlplane.accompany(
            directory, "grove-operator", [*grove, "operator", *access, "--webhook-url", "https://127.0.0.1:9443"]
        )
        _say("grove-operator, with admission")
    if scheduler:
        controlplane.accompany(directory, "grove-scheduler", [*grove, "scheduler", *access])
        _say("grove-scheduler")
    _say(f"ready after {time.monotonic() - begun:.1f} s; logs are in {directory / 'logs'}. Next:")
    _say(f"  export KUBECONFIG={state.kubeconfig}")
    click.echo(state.kubeconfig)


@click.command()
@directory_option
def down(directory: Path) -> None:
    """Stop the local cluster that `grove up` started; its data goes, its logs stay."""
    from grove.local import controlplane

    if not controlplane.down(directory.expanduser(), say=_say):
        raise click.exceptions.Exit(1)


def _install_crds(kubeconfig: Path) -> None:
    import asyncio

    from grove.crds.install import install
    from grove.kube.config import load_config
    from grove.kube.http import HttpClient

    async def go() -> None:
        async with HttpClient(load_config(kubeconfig), user_agent="grove-up") as client:
            await install(client, _say, 60.0)

    asyncio.run(go())
