"""The metrics service with pods and pages: which it follows, what it reads, and what it warns about once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.pages import by_name, gauge, vllm

from grove.api import labels as key
from grove.metrics.reader import PAGE_STRANGE, PageReader
from grove.metrics.readings import CLIQUE, POD, Subject
from grove.metrics.scrape import Bounds
from grove.metrics.service import MetricsService, MetricsSettings
from grove.metrics.targets import EnginePod, Target


def engine(name: str, *, phase: str = "Running", ready: bool = True, uid: str = "u", **labels: str) -> EnginePod:
    own = {key.PART_OF: "d", key.POD_CLIQUE: "d-0-w", **labels}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "n",
                "uid": uid,
                "labels": own,
                "annotations": {"prometheus.io/port": "8000"},
            },
            "status": {
                "phase": phase,
                "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            },
        },
        EnginePod,
    )


class Told:
    """A service without a cluster, with the events that it would have written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.service = MetricsService(None, MetricsSettings("grove-system"))  # type: ignore[arg-type]
        self.reader = PageReader(Bounds(), self.service.receive)
        self.events: list[tuple[str, str]] = []
        monkeypatch.setattr(
            self.service, "_tell", lambda namespace, pod, reason, message: self.events.append((pod, reason))
        )

    def page(self, pod: str, page: bytes, at: float = 0.0) -> None:
        self.reader.take_page(Target("n", pod, "10.0.0.1", 8000), page, at)

    def value(self, metric: str, kind: str = CLIQUE, name: str = "d-0-w", now: float = 1.0) -> float | None:
        found = self.service.readings.find(Subject("n", kind, name), metric, now)
        return found.number if found is not None else None


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


async def test_a_pod_is_followed_while_it_runs_and_forgotten_when_it_goes(told: Told) -> None:
    service = told.service
    service._on_pod(None, engine("a", phase="Pending"))
    assert len(service.reader) == 0
    service._on_pod(engine("a", phase="Pending"), engine("a"))
    assert len(service.reader) == 1
    told.page("a", vllm(waiting=3))
    assert told.value("grove_requests_waiting") == 3
    service._on_pod(engine("a"), engine("a", phase="Succeeded"))
    assert len(service.reader) == 0
    service._on_pod(engine("a", phase="Succeeded"), None)
    assert told.value("grove_requests_waiting") is None


async def test_a_pod_with_other_labels_belongs_to_others(told: Told) -> None:
    told.service._on_pod(None, engine("a"))
    told.page("a", vllm(waiting=3))
    told.service._on_pod(engine("a"), engine("a", **{key.POD_CLIQUE: "d-1-w"}))
    assert told.value("grove_requests_waiting") is None
    assert told.value("grove_requests_waiting", name="d-1-w") == 3


async def test_wrong_numbers_are_reported_once_until_they_were_right_again(told: Told) -> None:
    told.service._on_pod(None, engine("a"))
    bad = vllm(waiting=float("nan"), running=2)
    for _ in range(3):
        told.page("a", bad)
    assert told.events == [("a", PAGE_STRANGE)]
    assert told.value("grove_requests_running") == 2, "what is right on the page counts"
    assert told.value("grove_requests_waiting") is None
    told.page("a", vllm(waiting=1))
    told.page("a", bad)
    assert len(told.events) == 2


async def test_a_name_without_type_is_found_on_the_first_page_and_kept(told: Told) -> None:
    told.service._on_pod(None, engine("a"))
    page = gauge("other", ("", 1)).encode() + by_name({"vllm:num_requests_waiting": 5})
    for at in (0.0, 1.0):
        told.page("a", page, at)
        assert told.value("grove_requests_waiting") == 5


async def test_gpu_use_is_read_from_the_exporter_of_the_node(told: Told) -> None:
    for name in ("a", "b"):
        told.service._on_pod(None, engine(name))
    series: list[tuple[str, Any]] = [
        ('gpu="0",namespace="n",pod="a",container="c"', 80.0),
        ('gpu="1",namespace="n",pod="a",container="c"', 20.0),
        ('gpu="2",namespace="n",pod="b",container="c"', 40.0),
        ('gpu="3",namespace="elsewhere",pod="a",container="c"', 99.0),
        ('gpu="4"', 99.0),
    ]
    page = gauge("DCGM_FI_DEV_GPU_UTIL", *series).encode()
    told.reader.take_gpus(Target("gpu-operator", "dcgm-1", "10.0.0.9", 9400), page, 0.0)
    assert told.value("grove_gpu_utilization", POD, "a") == pytest.approx(0.8), "the highest of its GPUs"
    assert told.value("grove_gpu_utilization") == pytest.approx(0.6), "the mean over pods"


async def test_an_exporter_is_followed_at_its_own_port(told: Told) -> None:
    exporter = engine("dcgm-1")
    bare = msgspec.structs.replace(exporter, metadata=msgspec.structs.replace(exporter.metadata, annotations={}))
    told.service._on_exporter(None, bare)
    assert [target.port for target in told.service.reader.targets("gpu")] == [9400]
    told.service._on_exporter(bare, None)
    assert len(told.service.reader) == 0
