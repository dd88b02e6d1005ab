"""GPU-seconds by set and state, as the scheduler counts them from a cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from tests.support.fleet import QUOTA, elastic, install
from tests.support.gangs import Bench, gang, group, scheduling

from grove.answers.usage import counters
from grove.api import labels
from grove.api.koordinator import ElasticQuota
from grove.scheduler.loop.gpu_meter import EVERY_S, GpuMeter
from grove.scheduler.policy.gpu_states import Owner
from grove.show.usage import METRIC, usage

pytestmark = pytest.mark.simulated


def part_of(name: str, **more: str) -> dict[str, str]:
    return {labels.MANAGED_BY: labels.OPERATOR, labels.PART_OF: name, **more}


def meter_of(bench: Bench, registry: CollectorRegistry | None = None) -> GpuMeter:
    names = ["namespace", "set", "queue", "state"]
    seconds = Counter(METRIC, "GPU-seconds.", names, registry=registry or CollectorRegistry())
    return GpuMeter(bench.scheduler.view, bench.cluster.clock, seconds)


async def test_gpus_are_counted_for_their_set_and_team_in_the_state_they_are_in(cluster: Any) -> None:
    await install(cluster, "ElasticQuota")
    async with scheduling(cluster) as bench:
        await bench.add_nodes(5)
        await bench.client.create(ElasticQuota, elastic("team-a", bench.namespace, 2, 2))
        await bench.seen(ElasticQuota, "team-a", bench.namespace)
        await bench.apply(gang("chat", group("w", 2), labels=part_of("chat", **{QUOTA: "team-a"})))
        await bench.apply(gang("code", group("w", 1), labels=part_of("code", **{QUOTA: "team-a"})))
        await bench.expect({"chat/w": 2})
        await cluster.settle(30)
        where = bench.namespace
        assert meter_of(bench).look() == {
            (Owner(where, "chat", "team-a"), "serving"): 2.0,
            (Owner(where, "code", "team-a"), "waiting"): 1.0,
            (Owner(), "idle"): 3.0,
        }


async def test_nodes_that_are_held_for_a_gang_count_for_it_while_they_are_free(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("there", group("w", 1), labels=part_of("there")))
        await bench.expect({"there/w": 1})
        await bench.apply(gang("large", group("w", 2), labels=part_of("large")))
        await cluster.settle(600)
        await bench.condition("large", "NodesHeld", status="True")
        where = bench.namespace
        assert meter_of(bench).look() == {
            (Owner(where, "there"), "serving"): 1.0,
            (Owner(where, "large"), "waiting"): 2.0,
            (Owner(where, "large"), "held"): 1.0,
        }


async def test_an_hour_of_counting_is_what_the_command_shows(cluster: Any) -> None:
    registry = CollectorRegistry()
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        await bench.apply(gang("chat", group("w", 3), labels=part_of("chat")))
        await bench.expect({"chat/w": 3})
        counting = asyncio.ensure_future(meter_of(bench, registry).run())
        await asyncio.sleep(3600 + EVERY_S / 2)
        counting.cancel()
        samples, _ = counters(generate_latest(registry).decode())
        found = usage(samples, "since the start")
        assert [(line.set, line.gpu_hours) for line in found.sets] == [("chat", {"serving": 3.0})]
        assert (found.gpu_hours, found.idle_gpu_hours, found.idle_share) == (4.0, 1.0, 0.25)
