"""`usage`: GPU-hours by set, team and state, from the scheduler's own counters or from a Prometheus."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import click
import msgspec
import yaml
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from grove.answers.answer import Unanswered
from grove.api.core import Pod
from grove.api.labels import NAME
from grove.api.podcliqueset import PodCliqueSet
from grove.diagnosis.processes import SCHEDULER
from grove.kube.client import Client
from grove.kube.errors import Forbidden, KubeError
from grove.show.prometheus import Prometheus, PrometheusError
from grove.show.usage import METRIC, Prices, Sample, Usage, prometheus_query
from grove.show.usage import usage as summed

PAGE_S = 30.0


def read_prices(path: Path) -> Prices:
    try:
        return msgspec.convert(yaml.safe_load(path.read_text()), Prices)
    except (msgspec.ValidationError, yaml.YAMLError, OSError) as error:
        raise click.UsageError(f"--prices: {path}: {error}") from None


async def _asked(prometheus: Prometheus, seconds: int) -> list[Sample]:
    """The samples of a Prometheus."""
    try:
        samples = await prometheus.latest(prometheus_query(seconds))
    except PrometheusError as error:
        raise Unanswered(str(error)) from error
    return [Sample(labels, value) for labels, value in samples]


async def _page(url: str) -> str:
    """The page at an address of yours."""
    try:
        timeout = aiohttp.ClientTimeout(PAGE_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as reply:
            return await reply.text()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise Unanswered(f"{url} cannot be read: {error or type(error).__name__}") from error


async def past_usage(client: Client, namespace: str, prometheus: Prometheus, seconds: int, words: str) -> Usage:
    """GPU-hours of the last `seconds`, for the console. A viewer who may not list the sets of the namespace is refused.

    The GPUs of all nodes are for viewers of all namespaces.
    """
    await client.list(PodCliqueSet, namespace)
    usage = summed(await _asked(prometheus, seconds), words, None, namespace)
    return usage if not namespace else replace(usage, gpu_hours=0.0, idle_gpu_hours=0.0, idle_share=None)


async def counted_usage(client: Client, namespace: str) -> Usage:
    """The scheduler's counts since it started, for the console."""
    samples, words = await _counted(client, "")
    return summed(samples, words, None, namespace)


async def _counted(client: Client, address: str) -> tuple[list[Sample], str]:
    """The counts of the leading scheduler since its process started."""
    pages = [await _page(f"{address.rstrip('/')}/metrics")] if address else await _scheduler_pages(client)
    samples, started = max(
        map(counters, pages), key=lambda entry: sum(sample.seconds for sample in entry[0]), default=([], 0)
    )
    if not samples:
        raise Unanswered("no scheduler has counted GPUs yet; try again in a minute, or ask a Prometheus (--prometheus)")
    since = datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return samples, f"since the scheduler started, {since}"


def counters(page: str) -> tuple[list[Sample], float]:
    """The counters on a page of the scheduler, and when its process started. A standby has none."""
    families = {family.name: family.samples for family in text_string_to_metric_families(page)}
    started = next((sample.value for sample in families.get("process_start_time_seconds", ())), 0.0)
    counted = (sample for sample in families.get(METRIC, ()) if sample.name == f"{METRIC}_total")
    return [Sample(sample.labels, sample.value) for sample in counted], started


async def _scheduler_pages(client: Client) -> list[str]:
    """The pages of all pods of the scheduler, through the API server."""
    read = getattr(client, "pod_page", None)
    if read is None:
        raise Unanswered("this cluster is simulated: its scheduler has no page to read")
    pods = [pod for pod in (await client.list(Pod, labels=f"{NAME}={SCHEDULER}")).items if pod.is_ready]
    if not pods:
        raise Unanswered(
            "no pod of grove-scheduler is ready; kubectl grove usage --scheduler URL reads one that runs elsewhere"
        )
    pages: list[str] = []
    for pod in pods:
        ports = [
            port.container_port
            for container in pod.spec.containers
            for port in container.ports
            if port.name == "metrics"
        ]
        try:
            port = ports[0] if ports else 8080
            pages.append(await read(pod.metadata.namespace, pod.metadata.name, port, "metrics"))
        except Forbidden as error:
            hint = "kubectl grove usage --scheduler URL reads the page at an address, such as that of a port-forward"
            raise Unanswered(f"{error}; {hint}") from error
        except KubeError:
            continue  # one that just ended; the others are asked
    return pages
