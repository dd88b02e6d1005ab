"""`grove nodes`: fake GPU nodes on a real API server, so that a control plane without machines acts like a cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from grove.kube.run import run_process
from grove.processes.nodes import serve


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Which cluster; default as kubectl."
)
@click.option("--context", default="", help="The kubeconfig context to use.")
@click.option("--count", default=64, show_default=True, type=click.IntRange(1, 10_000), help="How many nodes.")
@click.option("--gpus", default=8, show_default=True, type=click.IntRange(0, 64), help="GPUs of each node.")
@click.option("--start-delay", "start_s", default=0.5, show_default=True, help="Seconds from bound to Ready.")
@click.option(
    "--device-class",
    "classes",
    multiple=True,
    metavar="NAME",
    help="Also give each node eight devices of this class; may be given several times.",
)
@click.option(
    "--pages-port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Also serve the metrics pages of the pods at this port, as /NAMESPACE/POD.",
)
def nodes(
    kubeconfig: Path | None,
    context: str,
    count: int,
    gpus: int,
    start_s: float,
    classes: tuple[str, ...],
    pages_port: int,
) -> None:
    """Create fake nodes in zones, blocks and racks with a topology binding, and run the pods on them."""
    sys.exit(run_process(lambda: serve(kubeconfig, context, count, gpus, start_s, classes, pages_port)))
