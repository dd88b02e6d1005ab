"""Dashboard and alerts with metrics pages of the real processes, as Prometheus reads them."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import yaml
from tests.support.manifests import clique, pcs
from tests.support.operator_process import operator
from tests.support.scheduler_process import nodes, scheduler
from tests.support.waiting import eventually
from tools.dashboard import dashboard

from grove.api.core import Namespace
from grove.api.meta import is_true
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.sim.topology import LEVELS

RULES = yaml.safe_load((Path(__file__).parents[2] / "charts" / "grove" / "files" / "rules.yaml").read_text())
NAME = re.compile(r"\b((?:grove|controller_runtime|workqueue|process)_[a-z_]+)")
GROUPED = re.compile(r"by \((\w+)\) \((?:rate|increase)?\(?\s*([a-z_]+)")
SAMPLE = re.compile(r"^([a-z_]+)(?:\{([^}]*)\})? ", re.MULTILINE)


def asked() -> list[str]:
    """Every expression of the rules and the dashboard."""
    found = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    return found + [one["expr"] for panel in dashboard()["panels"] for one in panel.get("targets", ())]


async def scraped(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


async def test_every_number_in_rules_and_dashboard_is_in_a_scrape_of_the_processes(
    control_plane: ControlPlane, client: HttpClient, fresh_name: str, tmp_path: Path
) -> None:
    levels = [{"domain": domain, "key": key} for domain, key in LEVELS]
    await client.create(Namespace, {"metadata": {"name": fresh_name}})
    await client.create(ClusterTopologyBinding, {"metadata": {"name": fresh_name}, "spec": {"levels": levels}})
    async with (
        nodes(client, fresh_name, 2),
        operator(control_plane, tmp_path, f"lease-{fresh_name}") as first,
        scheduler(control_plane, tmp_path) as second,
    ):
        await client.create(PodCliqueSet, pcs("one", clique("w"), namespace=fresh_name))

        async def is_placed() -> bool:
            gang = await client.get(PodGang, "one-0", fresh_name)
            return is_true(gang.status.conditions, "Scheduled")

        await eventually(is_placed)
        page = await scraped(f"{first.metrics}/metrics") + await scraped(f"http://127.0.0.1:{second.port}/metrics")
    await client.delete(ClusterTopologyBinding, fresh_name)
    await client.delete(Namespace, fresh_name)

    there: set[str] = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
        there |= {name} | ({f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else set())
    names = {name for expr in asked() for name in NAME.findall(expr)}
    assert sorted(names - there) == []
    assert len(names) > 20

    labels: dict[str, set[str]] = {}
    for name, given in SAMPLE.findall(page):
        labels.setdefault(name, set()).update(re.findall(r"(\w+)=", given))
    grouped = {(label, name) for expr in asked() for label, name in GROUPED.findall(expr)}
    without = {(label, name) for label, name in grouped if name in labels and label not in labels[name]}
    assert without == set(), "grouped by a label that the samples do not have"
    seen = {name for _, name in grouped if name in labels}
    print(
        f"{len(names)} names in rules and dashboard, all of them scraped; {len(seen)} of those with labels had samples"
    )
    assert {"grove_largest_placeable_gang", "controller_runtime_reconcile_total", "workqueue_depth"} <= seen
