"""`grove up` and `grove down`: a real control plane with fake GPU nodes on this machine, for a person to play with."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from grove.local.process import Child

DEFAULT_DIR = Path("~/.grove/local")
NAMESPACE = "grove-system"
READY_S = 60.0

directory_option = click.option(
    "--dir", "directory", type=click.Path(file_okay=False, path_type=Path), default=DEFAULT_DIR, show_default=True,
    help="Where its state, certificates and logs live.",
)  # fmt: skip


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.command()
@click.argument("action", required=False, type=click.Choice(["status"]))
@click.option("--kube", "version", default="1.36.3", show_default=True, help="The Kubernetes version to run.")
@click.option("--nodes", default=64, show_default=True, type=click.IntRange(0, 10_000), help="How many fake GPU nodes.")
@click.option("--operator/--no-operator", default=True, show_default=True, help="Also run Grove's operator.")
@click.option("--scheduler/--no-scheduler", default=True, show_default=True, help="Also run Grove's scheduler.")
@click.option("--device-class", "classes", multiple=True, metavar="NAME",
              help="Also give each fake node eight devices of this class; may be given several times.")  # fmt: skip
@click.option("--dialects", is_flag=True, help="Also take manifests of grove.dynamo.ai/v1 and grove.ai/v1alpha1.")
@directory_option
def up(
    action: str | None,
    version: str,
    nodes: int,
    operator: bool,
    scheduler: bool,
    classes: tuple[str, ...],
    dialects: bool,
    directory: Path,
) -> None:
    """Start a real control plane with fake GPU nodes; prints the path of its kubeconfig.

    Where it runs already, what has died of it is started again. `grove up status` says what runs.
    """
    if action == "status":
        raise click.exceptions.Exit(_status(directory.expanduser()))
    import asyncio

    import yaml

    from grove.local import controlplane
    from grove.local.binaries import BinariesError, find_or_build

    directory = directory.expanduser()
    begun = time.monotonic()
    is_up = controlplane.status(directory) is not None
    if classes and is_up:
        raise click.ClickException("its nodes are up already; `grove down` first, then again with their devices")
    if dialects and is_up:
        raise click.ClickException("its operator is up already; `grove down` first, then again with --dialects")
    try:
        state = controlplane.up(directory, version, say=_say)
    except (BinariesError, controlplane.ControlPlaneError) as error:
        raise click.ClickException(str(error)) from error
    grove = [sys.executable, "-m", "grove"]
    access = ["--kubeconfig", str(state.kubeconfig)]
    asyncio.run(_prepare(state.kubeconfig, dialects))
    more = [word for name in classes for word in ("--device-class", name)]
    if nodes:
        controlplane.accompany(directory, "grove-nodes", [*grove, "nodes", *access, "--count", str(nodes), *more])
    if scheduler:
        command = [*grove, "scheduler", *access, "--port", "0", "--leader-elect"]
        controlplane.accompany(directory, "grove-scheduler", command)
    if operator:
        config, url = _operator_config(directory, dialects=None if is_up else dialects)
        # No pod runs here, so the image is only a name; without one a set with a start order would be refused.
        image = ["env", "GROVE_INIT_CONTAINER_IMAGE=grove-initc"]
        command = [*image, *grove, "operator", *access, "--config", str(config), "--webhook-url", url]
        child = controlplane.accompany(directory, "grove-operator", command)
        # A set that is applied before admission is registered would be stored undefaulted and unchecked.
        _await_ready(child, yaml.safe_load(config.read_text())["server"]["healthProbes"]["port"])
        asyncio.run(_await_leader(state.kubeconfig))
        _say("grove-operator, with admission; it leads")
    if scheduler:
        _say("grove-scheduler")
    if nodes:
        asyncio.run(_await_nodes(state.kubeconfig, nodes))
        _say(f"{nodes} fake GPU nodes")
    _say(f"ready after {time.monotonic() - begun:.1f} s; logs are in {directory / 'logs'}. Next:")
    _say(f"  export KUBECONFIG={state.kubeconfig}")
    if shutil.which("kubectl") is None:
        _say(f'  export PATH="{find_or_build(version)}:$PATH"   # kubectl is there')
    click.echo(state.kubeconfig)


@click.command()
@directory_option
def down(directory: Path) -> None:
    """Stop the local cluster that `grove up` started; its data goes, its logs stay."""
    from grove.local import controlplane

    if not controlplane.down(directory.expanduser(), say=_say):
        raise click.exceptions.Exit(1)


def _operator_config(directory: Path, *, dialects: bool | None) -> tuple[Path, str]:
    """A configuration with ports of its own, so that several local clusters can be up, and its webhooks' URL.

    The file outlives the cluster; whether `dialects` are on is said anew each time one is started.
    """
    import yaml

    from grove.local.ports import free_ports

    path = directory / "operator.yaml"
    if not path.exists():
        webhooks, health, metrics = free_ports(3)
        loopback = "127.0.0.1"
        config = {
            "apiVersion": "operator.config.grove.io/v1alpha1",
            "kind": "OperatorConfiguration",
            "logFormat": "text",
            # Nobody else stands for election here; the lease is how `doctor` knows that somebody is at work.
            "leaderElection": {"enabled": True, "resourceNamespace": NAMESPACE},
            "topologyAwareScheduling": {"enabled": True},
            "server": {
                "webhooks": {"bindAddress": loopback, "port": webhooks},
                "healthProbes": {"bindAddress": loopback, "port": health},
                "metrics": {"bindAddress": loopback, "port": metrics},
            },
        }
        path.write_text(yaml.safe_dump(config, sort_keys=False))
    known = yaml.safe_load(path.read_text())
    if dialects is not None and (known.get("dialects") or {}).get("enabled", False) != dialects:
        path.write_text(yaml.safe_dump({**known, "dialects": {"enabled": dialects}}, sort_keys=False))
    port = known["server"]["webhooks"]["port"]
    return path, f"https://127.0.0.1:{port}"


async def _prepare(kubeconfig: Path, dialects: bool) -> None:
    """Grove's kinds, and the namespace its leases live in."""
    from grove.api.core import Namespace
    from grove.crds.install import install
    from grove.kube.config import load_config
    from grove.kube.errors import AlreadyExists
    from grove.kube.http import HttpClient

    async with HttpClient(load_config(kubeconfig), user_agent="grove-up") as client:
        await install(client, _say, READY_S, dialects=dialects)
        try:
            await client.create(Namespace, {"metadata": {"name": NAMESPACE}})
        except AlreadyExists:
            pass


def _await_ready(child: Child, port: int) -> None:
    """Returns when the process says on its probe that it is ready."""
    from urllib.error import URLError
    from urllib.request import urlopen

    deadline = time.monotonic() + READY_S
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (URLError, OSError) as error:
            if not child.alive() or time.monotonic() > deadline:
                text = f"{child.name} is not ready ({error}); {child.log} says:\n{child.log_tail()}"
                raise click.ClickException(text) from None
        time.sleep(0.05)


def _status(directory: Path) -> int:
    """What runs of it; 0 all of it, 1 nothing or not all."""
    from grove.local.state import State

    state = State.load(directory)
    if state is None:
        _say(f"nothing is up in {directory}; `grove up` starts it")
        return 1
    click.echo(f"Kubernetes {state.version} at {state.server}, kubeconfig {state.kubeconfig}")
    wide = max(len(child.name) for child in state.children)
    for child in state.children:
        how = f"runs (pid {child.pid})" if child.alive() else f"has ended; {child.log} says why"
        click.echo(f"  {child.name:<{wide}}  {how}")
    if all(child.alive() for child in state.children):
        return 0
    click.echo("`grove up` starts again what has ended")
    return 1


async def _await_leader(kubeconfig: Path) -> None:
    """Returns when the operator holds its lease: from then on it acts."""
    import asyncio
    from datetime import UTC, datetime

    from grove.kube.config import load_config
    from grove.kube.http import HttpClient
    from grove.show.processes import RUNS, read_processes

    async with HttpClient(load_config(kubeconfig), user_agent="grove-up") as client, asyncio.timeout(READY_S):
        for _ in range(int(READY_S / 0.1)):
            if (await read_processes(client, datetime.now(UTC))).operator.state == RUNS:
                return
            await asyncio.sleep(0.1)


async def _await_nodes(kubeconfig: Path, count: int) -> None:
    import asyncio

    from grove.api.core import Node
    from grove.kube.cache import Cache
    from grove.kube.config import load_config
    from grove.kube.http import HttpClient

    async with HttpClient(load_config(kubeconfig), user_agent="grove-up") as client:
        cache, changed = Cache(client), asyncio.Event()
        cache.add(Node)
        cache.on_event(Node, lambda old, new: changed.set())
        try:
            async with cache, asyncio.timeout(READY_S):
                while len(cache.list(Node)) < count:
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            raise click.ClickException(f"after {READY_S:.0f} s there are not {count} nodes yet") from None
