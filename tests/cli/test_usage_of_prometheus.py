"""`kubectl grove usage` and the console ask a real Prometheus: GPU-hours survive restarts of the scheduler."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.prometheus import prometheus

from grove.api.podcliqueset import PodCliqueSet
from grove.cli.main import grove
from grove.console.questions import questions
from grove.kube.client import Page
from grove.kube.errors import Forbidden
from grove.show.prometheus import Prometheus
from grove.show.usage import METRIC

HOUR_S, SCRAPE_S = 3600, 15
SECONDS_LOST = 2 * SCRAPE_S
"""Prometheus does not see what was counted before the first scrape and after the last scrape of a process."""
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {}}]
"""


def series(labels: str, gpus: float, since: int, until: int, restarts_at: int = 0) -> Iterator[str]:
    """The counter of a process that starts at `since`; at `restarts_at` the same pod starts it again from zero."""
    for at in range(since, until, SCRAPE_S):
        counted_s = at - (restarts_at if restarts_at and at >= restarts_at else since)
        yield f"{METRIC}_total{{{labels}}} {gpus * counted_s} {at}"


def history(now: int) -> str:
    """Three hours. One scheduler leads until an hour ago, then another one. The first one restarts 90 minutes ago."""
    change, restart = now - HOUR_S, now - 3 * HOUR_S // 2

    def of(namespace: str, set_: str, queue: str, state: str, gpus: float) -> Iterator[str]:
        labels = f'namespace="{namespace}",set="{set_}",queue="{queue}",state="{state}"'
        yield from series(f'{labels},pod="first"', gpus, now - 3 * HOUR_S, change, restart)
        yield from series(f'{labels},pod="second"', gpus, change, now)

    lines = [
        f"# TYPE {METRIC} counter",
        *of("prod", "chat", "team-a", "serving", 4),
        *of("prod", "chat", "team-a", "held", 2),
        *of("lab", "code", "team-b", "waiting", 8),
        *of("lab", "tune", "team-b", "broken", 1),
        *of("", "", "", "idle", 1),
        "# EOF\n",
    ]
    return "\n".join(lines)


class Viewer:
    """The part of a client that shows which sets a viewer may list."""

    def __init__(self, *namespaces: str) -> None:
        self._namespaces = namespaces

    async def list(self, kind: type[PodCliqueSet], namespace: str = "", **more: str) -> Page[PodCliqueSet]:
        if namespace not in self._namespaces:
            raise Forbidden("you may not list PodCliqueSets", code=403)
        return Page([], "1")


def hours(lines: list[Any], *names: str) -> dict[tuple[str, ...], dict[str, float]]:
    return {tuple(one.get(name, "") for name in names): one.get("gpuHours", {}) for one in lines}


def about(gpus: float, over_h: float) -> Any:
    """GPU-hours, as exact as two changes of the process allow."""
    return pytest.approx(gpus * over_h, abs=gpus * 2 * SECONDS_LOST / HOUR_S)


async def test_gpu_hours_survive_a_restart_and_a_change_of_the_leader(tmp_path: Path) -> None:
    config, prices = tmp_path / "config", tmp_path / "prices.yaml"
    config.write_text(KUBECONFIG)
    prices.write_text("gpuHour: 2\ncurrency: EUR\nqueues: {team-b: 1}\n")
    with prometheus(tmp_path, history(int(time.time()))) as url:
        asked = ["usage", "-A", "--kubeconfig", str(config), "--prometheus", url, "--prices", str(prices), "-o", "json"]
        for since, over_h in (("30m", 0.5), ("2h", 2.0), ("24h", 3.0)):
            done = await asyncio.to_thread(CliRunner().invoke, grove, [*asked, "--since", since])
            assert done.exit_code == 0, done.output
            found = json.loads(done.stdout)
            sets = hours(found["sets"], "namespace", "set")
            assert sets["prod", "chat"] == {"serving": about(4, over_h), "held": about(2, over_h)}
            assert sets["lab", "code"] == {"waiting": about(8, over_h)}
            assert sets["lab", "tune"] == {"broken": about(1, over_h)}
            assert found["gpuHours"] == about(8, over_h)
            assert found["idleShare"] == pytest.approx(1 / 8, abs=0.01)
            assert {one["queue"]: one["cost"] for one in found["teams"]} == {
                "team-a": about(12, over_h),
                "team-b": about(1, over_h),
            }

        ask = questions(prometheus=Prometheus(url))["usage"]
        everything: Any = await ask(Viewer(""), "", {"last": HOUR_S})  # type: ignore[arg-type]
        assert hours(everything["teams"], "queue")["team-a",] == {"serving": about(4, 1), "held": about(2, 1)}
        assert (everything["since"], everything["last"]) == ("of the last 1 h", HOUR_S)
        assert everything["idleShare"] == pytest.approx(1 / 8, abs=0.01)
        one: Any = await ask(Viewer("prod"), "prod", {})  # type: ignore[arg-type]
        assert list(hours(one["sets"], "namespace", "set")) == [("prod", "chat")]
        assert one["idleShare"] is None, "the nodes of all namespaces are not this viewer's"
        for namespace in ("", "lab"):
            refused: Any = await ask(Viewer("prod"), namespace, {})  # type: ignore[arg-type]
            assert refused == {"note": "you may not list PodCliqueSets"}
