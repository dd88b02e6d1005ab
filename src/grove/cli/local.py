"""`grove up` and `grove down`: a real control plane on this machine, with fake GPU nodes or with real nodes."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from grove.local.nodes.layout import MOST_NODES
from grove.local.ports import free_ports

DEFAULT_DIR = Path("~/.grove/local")

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DIR,
    show_default=True,
    help="The folder with its state, certificates and logs.",
)


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.command()
@click.argument("action", required=False, type=click.Choice(["status"]))
@click.option("--kube", "version", default="1.36.3", show_default=True, help="The Kubernetes version to run.")
@click.option("--nodes", default=64, show_default=True, type=click.IntRange(0, 10_000), help="How many fake GPU nodes.")
@click.option(
    "--real-nodes",
    default=0,
    type=click.IntRange(0, MOST_NODES),
    metavar="COUNT",
    help="Instead of fake nodes: real kubelets with containerd, Services and DNS. Needs root.",
)
@click.option(
    "--image",
    "images",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Import this OCI archive into the real nodes; may be given several times.",
)
@click.option("--operator/--no-operator", default=True, show_default=True, help="Also run Grove's operator.")
@click.option("--scheduler/--no-scheduler", default=True, show_default=True, help="Also run Grove's scheduler.")
@click.option(
    "--metrics/--no-metrics",
    default=True,
    show_default=True,
    help="Also run Grove's metrics API, with numbers of simulated engines.",
)
@click.option(
    "--device-class",
    "classes",
    multiple=True,
    metavar="NAME",
    help="Also give each fake node eight devices of this class; may be given several times.",
)
@click.option("--dialects", is_flag=True, help="Also accept manifests of grove.dynamo.ai/v1 and grove.ai/v1alpha1.")
@click.option("--foreground", is_flag=True, help="Stay, restart processes that end, and stop the cluster on Ctrl-C.")
@directory_option
def up(
    action: str | None,
    version: str,
    nodes: int,
    real_nodes: int,
    images: tuple[Path, ...],
    operator: bool,
    scheduler: bool,
    metrics: bool,
    classes: tuple[str, ...],
    dialects: bool,
    foreground: bool,
    directory: Path,
) -> None:
    """Start a real control plane with fake or real nodes. Prints the path of its kubeconfig.

    It returns when the operator and the scheduler lead and the nodes exist. If the cluster exists, it starts
    processes that ended. `grove up status` says what runs; `grove up --foreground` stays and restarts processes that
    end.
    """
    from grove.local.supervise import supervise

    directory = directory.expanduser()
    if action == "status":
        raise click.exceptions.Exit(status(directory))
    if images and not real_nodes:
        raise click.UsageError("--image needs --real-nodes: fake nodes run no containers")
    if classes and real_nodes:
        raise click.UsageError("--device-class gives devices to fake nodes; real nodes have those of their drivers")
    fake = 0 if real_nodes else nodes
    with_metrics = metrics and fake + real_nodes > 0
    wanted = Wanted(version, fake, real_nodes, images, operator, scheduler, with_metrics, classes, dialects)
    if not foreground:
        _start(directory, wanted)
        return
    with _until_stopped(directory):
        commands = _start(directory, wanted)
        _say("it runs until Ctrl-C; what ends of it is started again")
        supervise(directory.absolute(), commands, _say)
        _say("it was taken down from elsewhere")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The cluster that `grove up` shall start."""

    version: str
    nodes: int
    real_nodes: int
    images: tuple[Path, ...]
    operator: bool
    scheduler: bool
    metrics: bool
    classes: tuple[str, ...]
    dialects: bool


def _start(directory: Path, wanted: Wanted) -> dict[str, list[str]]:
    """Starts what is not up yet and returns when all of it is at work; the commands of what runs beside the plane."""
    import asyncio

    from grove.cli import local_ready as ready
    from grove.cli.local_nodes import AFTER, start_real_nodes
    from grove.local import controlplane
    from grove.local.binaries import BinariesError, find_or_build
    from grove.local.nodes.preflight import CannotRun

    begun = time.monotonic()
    is_up = controlplane.status(directory) is not None
    if wanted.classes and is_up:
        raise click.ClickException("its nodes are up already; `grove down` first, then again with their devices")
    if wanted.dialects and is_up:
        raise click.ClickException("its operator is up already; `grove down` first, then again with --dialects")
    inside: list[str] = []
    try:
        if wanted.real_nodes:
            state, inside = start_real_nodes(directory, wanted.version, wanted.real_nodes, wanted.images, _say)
        else:
            # Without routing of its own the API server reaches a Service by its external name, `localhost`.
            state = controlplane.up(directory, wanted.version, say=_say, aggregator_routing=False)
    except (BinariesError, controlplane.ControlPlaneError, CannotRun) as error:
        raise click.ClickException(str(error)) from error
    asyncio.run(ready.prepare(state.kubeconfig, wanted.dialects, _say))
    config = operator_config(directory, dialects=None if is_up else wanted.dialects)
    ports = MetricsPorts.of(directory)
    if wanted.metrics:
        asyncio.run(ready.expose_metrics(state.kubeconfig, ports.api))
    commands = {name: [*inside, *command] for name, command in _beside(state.kubeconfig, config, ports, wanted).items()}
    started = {name: controlplane.accompany(directory, name, command) for name, command in commands.items()}
    if wanted.operator:
        # A set that is applied before admission is registered would be stored undefaulted and unchecked.
        ready.await_probe(started["grove-operator"], config.probe)
    for name in ready.LEADING:
        if name in started:
            asyncio.run(ready.await_leader(state.kubeconfig, started[name]))
            _say(f"{name}{', with admission' if name == 'grove-operator' else ''}; it leads")
    if wanted.nodes:
        there = asyncio.run(ready.await_nodes(state.kubeconfig, 1 if is_up else wanted.nodes))
        other = f"; for {wanted.nodes} of them `grove down` first" if there != wanted.nodes else ""
        _say(f"{there} fake GPU nodes{other}")
    if wanted.real_nodes:
        _say(AFTER.format(directory=directory))
    _say(f"ready after {time.monotonic() - begun:.1f} s; logs are in {directory / 'logs'}. Next:")
    _say(f"  export KUBECONFIG={state.kubeconfig}")
    if shutil.which("kubectl") is None:
        _say(f'  export PATH="{find_or_build(wanted.version)}:$PATH"   # kubectl is there')
    click.echo(state.kubeconfig)
    return commands


def _beside(kubeconfig: Path, config: OperatorConfig, ports: MetricsPorts, wanted: Wanted) -> dict[str, list[str]]:
    """The command of each program that runs beside the control plane."""
    from grove.cli.local_ready import NAMESPACE

    grove, access = [sys.executable, "-m", "grove"], ["--kubeconfig", str(kubeconfig)]
    commands: dict[str, list[str]] = {}
    # Fake nodes have no engines: `grove nodes` serves their pages.
    pages = ["--pages-port", str(ports.pages)] if wanted.metrics and wanted.nodes else []
    if wanted.nodes:
        devices = [word for name in wanted.classes for word in ("--device-class", name)]
        commands["grove-nodes"] = [*grove, "nodes", *access, "--count", str(wanted.nodes), *devices, *pages]
    if wanted.scheduler:
        commands["grove-scheduler"] = [*grove, "scheduler", *access, "--port", "0", "--leader-elect"]
    if wanted.operator:
        # On fake nodes the image is only a name; without one a set with a start order would be refused.
        image = ["env", "GROVE_INIT_CONTAINER_IMAGE=grove-initc"]
        served = ["--config", str(config.path), "--webhook-url", f"https://127.0.0.1:{config.webhooks}"]
        commands["grove-operator"] = [*image, *grove, "operator", *access, *served]
    if wanted.metrics:
        commands["grove-metrics"] = [
            *grove,
            "metrics",
            *access,
            "--namespace",
            NAMESPACE,
            "--bind-address",
            "127.0.0.1",
            "--port",
            str(ports.api),
            "--service-port",
            str(ports.api),
            "--probe-port",
            str(ports.probe),
            *pages,
            "--interval",
            "5",
            "--dcgm-namespace",
            "",
            "--log-format",
            "text",
        ]
    return commands


@contextlib.contextmanager
def _until_stopped(directory: Path) -> Iterator[None]:
    """Takes the cluster down when the work in it ends, on Ctrl-C, on a polite kill, or when the terminal is closed."""

    from grove.local.controlplane import ControlPlaneError
    from grove.local.nodes.detached import down as end
    from grove.local.state import State

    def ended(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    # SIGINT too: a shell that starts a program in the background has it ignored otherwise.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended)
    try:
        yield
    except KeyboardInterrupt:
        _say("")
    except ControlPlaneError as error:
        raise click.ClickException(str(error)) from error
    finally:
        if State.load(directory) is not None:
            end(directory, _say)


@click.command()
@directory_option
def down(directory: Path) -> None:
    """Stop the local cluster that `grove up` started. Deletes its data and keeps its logs."""
    from grove.local.nodes.detached import down as end

    if not end(directory.expanduser(), _say):
        raise click.exceptions.Exit(1)


def status(directory: Path) -> int:
    """Prints which processes run and which lead. The exit code is 0 if all run, else 1."""
    import asyncio

    from grove.cli import local_ready as ready
    from grove.local.state import State

    state = State.load(directory)
    if state is None:
        _say(f"nothing is up in {directory}; `grove up` starts it")
        return 1
    click.echo(f"Kubernetes {state.version} at {state.server}, kubeconfig {state.kubeconfig}")
    leads = asyncio.run(ready.leading(state.kubeconfig, state.children)) if state.running() else None
    wide = max(len(child.name) for child in state.children)
    fine = True
    for child in state.children:
        how = f"runs (pid {child.pid})" if child.alive() else f"has ended; {child.log} says why"
        is_leading = leads is not None and child.name in leads
        if leads is not None and child.alive() and child.name in ready.LEADING:
            how += ", leads" if is_leading else ", does not lead yet"
        fine = fine and child.alive() and (is_leading or child.name not in ready.LEADING)
        click.echo(f"  {child.name:<{wide}}  {how}")
    if leads is None and state.running():
        click.echo("who leads is not known: the API server does not answer")
    if not all(child.alive() for child in state.children):
        click.echo("`grove up` starts again what has ended")
    return 0 if fine else 1


@dataclass(frozen=True, slots=True)
class MetricsPorts:
    """Of the metrics API, its probe, and the pages of engines that do not run; kept in a file, as objects name them."""

    api: int
    probe: int
    pages: int

    @classmethod
    def of(cls, directory: Path) -> MetricsPorts:
        path = directory / "metrics-ports"
        if not path.exists():
            path.write_text(" ".join(map(str, free_ports(3))) + "\n")
        return cls(*map(int, path.read_text().split()))


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """The operator's configuration file, and the ports in it of its webhooks and its probe."""

    path: Path
    webhooks: int
    probe: int


def operator_config(directory: Path, *, dialects: bool | None) -> OperatorConfig:
    """A configuration with ports of its own, so that several local clusters can be up.

    The file outlives the cluster; whether `dialects` are on is given again each time a cluster is started.
    """
    import yaml

    from grove.cli.local_ready import NAMESPACE

    path = directory / "operator.yaml"
    if not path.exists():
        webhooks, health, metrics = free_ports(3)
        loopback = "127.0.0.1"
        config = {
            "apiVersion": "operator.config.grove.io/v1alpha1",
            "kind": "OperatorConfiguration",
            "logFormat": "text",
            # There is no other candidate here; `doctor` sees from the lease that the process works.
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
    server = known["server"]
    return OperatorConfig(path, server["webhooks"]["port"], server["healthProbes"]["port"])
