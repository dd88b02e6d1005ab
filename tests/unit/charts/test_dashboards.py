"""Dashboard and alerts speak of numbers that exist, and the alerts ring when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from tests.support import objects
from tools.dashboard import TARGET, dashboard

from grove.api.podgang import PodGang
from grove.kube.cache import Cache
from grove.kube.clock import SYSTEM
from grove.kube.metrics import ControllerMetrics, watch_requests
from grove.kube.workqueue import Workqueue
from grove.operator.figures import PLACED_SECONDS, READY_SECONDS, observe_ready, watch_sets
from grove.operator.shared.cluster import autoscale_events
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.loop.metrics import watch_headroom
from grove.sim.cluster import SimCluster

FILES = Path(__file__).parents[3] / "charts" / "grove" / "files"
RULES = yaml.safe_load((FILES / "rules.yaml").read_text())
NAME = re.compile(r"\b((?:grove|controller_runtime|workqueue|process)_[a-z_]+|grove:[a-z_:0-9]+)")


def shown() -> set[str]:
    """Every name that the operator's and the scheduler's metrics pages have, as they write them."""
    registry = CollectorRegistry()
    watch_sets(Cache(SimCluster().client()), SYSTEM, registry)
    watch_headroom(Snapshot(), registry)
    watch_requests({("patch", "pods"): 1}, registry)
    queue = Workqueue[str]()
    ControllerMetrics("test", queue)
    assert autoscale_events.ACTIONS
    page = generate_latest(REGISTRY) + generate_latest(registry)
    families = re.findall(r"^# TYPE (\S+) (\S+)$", page.decode(), re.MULTILINE)
    found = {name for name, _ in families}
    for name, kind in families:
        if kind == "histogram":
            found |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return found | {rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule}


def test_every_number_in_rules_and_dashboard_is_on_a_metrics_page() -> None:
    asked = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    asked += [one["expr"] for panel in dashboard()["panels"] for one in panel.get("targets", ())]
    names = {name for expr in asked for name in NAME.findall(expr)}
    assert names - shown() == set()
    assert len(names) > 20


def test_the_dashboard_in_the_chart_is_the_one_that_is_made() -> None:
    assert json.loads(TARGET.read_text()) == dashboard()


def test_every_alert_says_what_to_do() -> None:
    alerts = [rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]
    assert {rule["alert"] for rule in alerts if not rule["annotations"].get("description")} == set()
    assert {rule["labels"]["severity"] for rule in alerts} == {"warning", "critical"}


@pytest.mark.parametrize(
    "words", [("check", "rules", "rules.yaml"), ("test", "rules", "rules.test.yaml")], ids=" ".join
)
def test_promtool_is_content(words: tuple[str, ...]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool on this machine (Debian: apt-get install prometheus)")
    done = subprocess.run([promtool, *words], cwd=FILES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def gang_placed_after(created: datetime, placed_s: float | None, ready_s: float | None) -> PodGang:
    said = [
        {"type": type_, "status": "True", "lastTransitionTime": (created + timedelta(seconds=after)).isoformat()}
        for type_, after in (("Scheduled", placed_s), ("Ready", ready_s))
        if after is not None
    ]
    return objects.gang(creationTimestamp=created.isoformat(), status={"conditions": said})


def total(histogram: object) -> tuple[float, float]:
    samples = {one.name.rsplit("_", 1)[1]: one.value for one in next(iter(histogram.collect())).samples}  # type: ignore[attr-defined]
    return samples["count"], samples["sum"]


def test_a_gang_is_timed_once_when_it_becomes_ready() -> None:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    before = total(PLACED_SECONDS), total(READY_SECONDS)
    waiting, placed, ready = (
        gang_placed_after(created, None, None),
        gang_placed_after(created, 2.0, None),
        gang_placed_after(created, 2.0, 7.0),
    )
    for old, new in [(None, waiting), (waiting, placed), (placed, ready), (ready, ready), (None, ready), (ready, None)]:
        observe_ready(old, new)
    after = total(PLACED_SECONDS), total(READY_SECONDS)
    assert [(b[0] - a[0], b[1] - a[1]) for a, b in zip(before, after, strict=True)] == [(1, 2.0), (1, 5.0)]
