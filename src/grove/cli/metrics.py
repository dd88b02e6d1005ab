"""`grove metrics`: reads the flags, and starts the process that reads engines' numbers for autoscalers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

import click

from grove.kube.config import load_config
from grove.kube.handover import HAND_OVER_S
from grove.kube.logs import configure_logs
from grove.kube.run import STOP_S, run_process
from grove.metrics.scrape import Bounds
from grove.metrics.service import MetricsSettings
from grove.processes.metrics import serve


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Which cluster; default as kubectl."
)
@click.option("--context", default="", help="The kubeconfig context to use.")
@click.option(
    "--namespace", default="", help="The namespace of this process, its Service and the Secret with its certificate."
)
@click.option("--bind-address", default="", help="The address to listen on. Default: all.")
@click.option("--port", default=6443, show_default=True, help="Port of the metrics APIs (HTTPS).")
@click.option("--probe-port", default=9447, show_default=True, help="Port of /metrics, /healthz and /readyz.")
@click.option("--service", default="grove-metrics", show_default=True, help="The Service that leads to this process.")
@click.option("--service-port", default=443, show_default=True, help="The Service's port.")
@click.option(
    "--register/--no-register",
    default=True,
    help="Create the APIServices that no other program serves. Without them only the page at the probe port works.",
)
@click.option(
    "--interval",
    "interval_s",
    default=10.0,
    show_default=True,
    type=click.FloatRange(1.0),
    help="Seconds between two reads of a page.",
)
@click.option(
    "--timeout",
    "timeout_s",
    default=3.0,
    show_default=True,
    type=click.FloatRange(0.1),
    help="Seconds that a page may take.",
)
@click.option(
    "--page-bytes",
    default=4 * 1024 * 1024,
    show_default=True,
    type=click.IntRange(1024),
    help="Bytes that a page may have.",
)
@click.option("--concurrent", default=32, show_default=True, type=click.IntRange(1), help="Pages read at a time.")
@click.option(
    "--metric",
    "raw_names",
    multiple=True,
    metavar="NAME",
    help="A raw name to look for from the start; other names are read after the first request for them.",
)
@click.option(
    "--dcgm-namespace",
    default="gpu-operator",
    show_default=True,
    help="The namespace of the DCGM exporters. If empty, GPU use is not read.",
)
@click.option(
    "--dcgm-selector", default="app=nvidia-dcgm-exporter", show_default=True, help="Labels of the DCGM exporters' pods."
)
@click.option(
    "--pages-port",
    default=0,
    hidden=True,
    type=click.IntRange(0, 65535),
    help="Read all pages at this port of this machine, as /NAMESPACE/POD.",
)
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning", "error"])
)
@click.option("--log-format", default="json", show_default=True, type=click.Choice(["json", "text"]))
@click.pass_context
def metrics(
    ctx: click.Context,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    bind_address: str,
    port: int,
    probe_port: int,
    service: str,
    service_port: int,
    register: bool,
    interval_s: float,
    timeout_s: float,
    page_bytes: int,
    concurrent: int,
    raw_names: tuple[str, ...],
    dcgm_namespace: str,
    dcgm_selector: str,
    pages_port: int,
    log_level: str,
    log_format: Literal["json", "text"],
) -> None:
    """Read the /metrics pages of engines and serve them to autoscalers as custom and external metrics."""
    if timeout_s >= interval_s:
        raise click.UsageError(f"--timeout {timeout_s:g} must be below --interval {interval_s:g}")
    configure_logs(log_level, log_format)
    cluster = load_config(kubeconfig, context=context)
    settings = MetricsSettings(
        namespace=namespace or os.environ.get("POD_NAMESPACE", "") or cluster.namespace or "default",
        host=bind_address,
        port=port,
        service=service,
        service_port=service_port,
        register=register,
        bounds=Bounds(interval_s, timeout_s, page_bytes, concurrent),
        raw_names=raw_names,
        dcgm_namespace=dcgm_namespace,
        dcgm_selector=dcgm_selector,
        hand_over_s=HAND_OVER_S if os.environ.get("KUBERNETES_SERVICE_HOST") else 0.0,
    )
    verbose = bool(ctx.find_root().params.get("verbose"))
    stop_s = STOP_S + settings.hand_over_s
    sys.exit(run_process(lambda: serve(cluster, settings, probe_port, pages_port), verbose=verbose, stop_s=stop_s))
