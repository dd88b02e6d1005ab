"""The page of metrics has every metric that Grove registers, with its type and its labels, and no other."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from grove.kube.clock import SYSTEM
from grove.kube.metrics import ApiRequests
from grove.metrics.engines import OWN_METRICS
from grove.operator.figures import SetFigures
from grove.scheduler.loop.following import quota_follower
from grove.scheduler.loop.metrics import HeadroomCollector

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src"
COLLECTORS: tuple[type[Collector], ...] = (SetFigures, HeadroomCollector, quota_follower.QueueCollector, ApiRequests)


class Row(tuple[str, str, frozenset[str]]):
    """Name, type and labels, as the page has them."""


def stored(name: str, kind: str) -> str:
    """The name that Prometheus stores: the client adds `_total` to a counter."""
    return f"{name}_total" if kind == "counter" else name


def modules() -> Iterator[ModuleType]:
    """Every module of Grove that makes metrics."""
    for path in sorted(SOURCES.rglob("*.py")):
        if re.search(r"^from prometheus_client", path.read_text(), re.MULTILINE):
            yield importlib.import_module(".".join(path.relative_to(SOURCES).with_suffix("").parts))


def of_modules() -> set[Row]:
    wrappers = [
        value for module in modules() for value in vars(module).values() if isinstance(value, MetricWrapperBase)
    ]
    return {Row((stored(one._name, one._type), one._type, frozenset(one._labelnames))) for one in wrappers}


def of_collectors(monkeypatch: pytest.MonkeyPatch) -> set[Row]:
    """What each collector shows of an empty cluster."""
    monkeypatch.setattr(quota_follower, "queue_rows", lambda *_: [])
    cache: Any = SimpleNamespace(add=lambda _: None, on_event=lambda *_: None, list=lambda _: [])
    follower: Any = SimpleNamespace(policy=None, snapshot=None)

    class NoNodes:
        nodes = SimpleNamespace(rows=())

    snapshot: Any = NoNodes()
    made: list[Collector] = [
        SetFigures(cache, SYSTEM),
        HeadroomCollector(snapshot, lambda _: None),
        quota_follower.QueueCollector(follower, follower),
        ApiRequests({}),
    ]
    families: list[Metric] = [family for collector in made for family in collector.collect()]
    # A family without labels has no names of labels.
    return {
        Row((stored(one.name, one.type), one.type, frozenset(getattr(one, "_labelnames", None) or ())))
        for one in families
    }


def of_the_page() -> list[Row]:
    rows: list[Row] = []
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        names, kind, labels, *rest = [cell.strip() for cell in line.strip("|").split(" | ")] + ["", "", ""]
        if line.startswith("| `"):
            assert all(cell for cell in rest[:2]), f"no question or no meaning: {line}"
            label_names = frozenset(re.findall(r"`(\w+)`", labels))
            rows.extend(Row((name, kind, label_names)) for name in re.findall(r"`([\w:]+)`", names))
    return rows


def test_the_page_has_every_metric_with_its_type_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = {Row((name, "gauge", frozenset({"kind", "name", "namespace"}))) for name in OWN_METRICS}
    page = of_the_page()
    assert len(page) > 55
    assert set(page) == of_modules() | of_collectors(monkeypatch) | engines


def test_the_page_has_each_metric_once() -> None:
    names = [name for name, *_ in of_the_page()]
    assert sorted(names) == sorted(set(names))


def test_no_collector_is_left_out() -> None:
    list(modules())
    ours = {one for one in Collector.__subclasses__() if one.__module__.startswith("grove.")}
    assert ours == set(COLLECTORS)
