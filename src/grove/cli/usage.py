"""`usage`: GPU-hours by set, team and state, from the scheduler's own counters or from a Prometheus."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from grove.cli.access import Answer, Options, Unanswered, answer, cluster_command

if TYPE_CHECKING:
    from grove.kube.client import Client
    from grove.show.usage import Prices, Sample, Usage

PAGE_S = 30.0


@click.command()
@click.option("--since", default="24h", show_default=True, help="For which time; with --prometheus.")
@click.option("--prometheus", metavar="URL", default="", help="Ask this Prometheus, not the scheduler itself.")
@click.option("--scheduler", metavar="URL", default="", help="Read the scheduler's page here, not through the cluster.")
@click.option(
    "--prices",
    "price_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A YAML file with gpuHour, and if you like currency and queues.",
)
@cluster_command(everywhere=True)
@click.pass_context
def usage(
    ctx: click.Context, options: Options, since: str, prometheus: str, scheduler: str, price_file: Path | None
) -> int:
    """GPU-hours by set and team: serving, starting, held, broken, waiting; and the share of GPUs that is idle."""
    from grove.api import duration
    from grove.show.usage import painted
    from grove.show.usage import usage as summed

    try:
        seconds = int(duration.parse(since).total_seconds())
    except duration.InvalidDuration as error:
        raise click.UsageError(f"--since: {error}") from None
    if seconds <= 0:
        raise click.UsageError("--since must be more than zero")
    if not prometheus and ctx.get_parameter_source("since") is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--since needs --prometheus: the scheduler counts since its process started")
    prices = read_prices(price_file) if price_file is not None else None

    async def ask(client: Client, namespace: str) -> Answer:
        if prometheus:
            samples, words = await _asked(prometheus, seconds), f"of the last {since}"
        else:
            samples, words = await _counted(client, scheduler)
        found = summed(samples, words, prices, namespace)
        return Answer(found, lambda width: painted(found, width))

    return answer(options, ask)


def read_prices(path: Path) -> Prices:
    import msgspec
    import yaml

    from grove.show.usage import Prices

    try:
        return msgspec.convert(yaml.safe_load(path.read_text()), Prices)
    except (msgspec.ValidationError, yaml.YAMLError, OSError) as error:
        raise click.UsageError(f"--prices: {path}: {error}") from None


async def _asked(address: str, seconds: int) -> list[Sample]:
    """The samples of a Prometheus."""
    from grove.show.prometheus import Prometheus, PrometheusError
    from grove.show.usage import Sample, prometheus_query

    try:
        found = await Prometheus(address, PAGE_S).latest(prometheus_query(seconds))
    except PrometheusError as error:
        raise Unanswered(str(error)) from error
    return [Sample(labels, value) for labels, value in found]


async def _page(url: str) -> str:
    """The page at an address of yours."""
    import aiohttp

    try:
        timeout = aiohttp.ClientTimeout(PAGE_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as reply:
            return await reply.text()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise Unanswered(f"{url} cannot be read: {error or type(error).__name__}") from error


async def counted_usage(client: Client, namespace: str) -> Usage:
    """What the scheduler counted since it started, for the console."""
    from grove.show.usage import usage as summed

    samples, words = await _counted(client, "")
    return summed(samples, words, None, namespace)


async def _counted(client: Client, address: str) -> tuple[list[Sample], str]:
    """What the scheduler that leads counted since its process started."""
    pages = [await _page(f"{address.rstrip('/')}/metrics")] if address else await _scheduler_pages(client)
    samples, started = max(
        map(counters, pages), key=lambda one: sum(sample.seconds for sample in one[0]), default=([], 0)
    )
    if not samples:
        raise Unanswered("no scheduler has counted GPUs yet; try again in a minute, or ask a Prometheus (--prometheus)")
    since = datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return samples, f"since the scheduler started, {since}"


def counters(page: str) -> tuple[list[Sample], float]:
    """The counters on a page of the scheduler, and when its process started. A standby has none."""
    from prometheus_client.parser import text_string_to_metric_families

    from grove.show.usage import METRIC, Sample

    families = {family.name: family.samples for family in text_string_to_metric_families(page)}
    started = next((one.value for one in families.get("process_start_time_seconds", ())), 0.0)
    counted = (one for one in families.get(METRIC, ()) if one.name == f"{METRIC}_total")
    return [Sample(one.labels, one.value) for one in counted], started


async def _scheduler_pages(client: Client) -> list[str]:
    """The pages of all pods of the scheduler, through the API server."""
    from grove.api.core import Pod
    from grove.api.labels import NAME
    from grove.diagnosis.processes import SCHEDULER
    from grove.kube.errors import Forbidden, KubeError

    read = getattr(client, "pod_page", None)
    if read is None:
        raise Unanswered("this cluster is simulated: its scheduler has no page to read")
    pods = [pod for pod in (await client.list(Pod, labels=f"{NAME}={SCHEDULER}")).items if pod.is_ready]
    if not pods:
        raise Unanswered("no pod of grove-scheduler is ready; --scheduler URL reads a scheduler that runs elsewhere")
    pages: list[str] = []
    for pod in pods:
        ports = [port.container_port for one in pod.spec.containers for port in one.ports if port.name == "metrics"]
        try:
            port = ports[0] if ports else 8080
            pages.append(await read(pod.metadata.namespace, pod.metadata.name, port, "metrics"))
        except Forbidden as error:
            hint = "--scheduler URL reads the page at an address, for example that of a kubectl port-forward"
            raise Unanswered(f"{error}; {hint}") from error
        except KubeError:
            continue  # one that just ended; the others are asked
    return pages
