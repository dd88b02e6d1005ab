"""Whoever waits for a quota, a reservation or a device is tried again when it can be had: a row a story."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.fleet import QUOTA, elastic, install
from tests.support.gangs import Bench, gang, group
from tests.support.woken import Story, is_noticed, runs, told, zone

from grove.api.core import Pod
from grove.api.koordinator import ElasticQuota

pytestmark = pytest.mark.simulated

TEAM = {QUOTA: "team"}
RED = {"team": "red"}
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"


async def limit(bench: Bench, most: int) -> None:
    await bench.client.create(ElasticQuota, elastic("team", bench.namespace, 0, most))


async def of_the_team(bench: Bench, name: str, node: str) -> None:
    """A pod of the team that somebody else bound."""
    await runs(bench, name, node, gpus=1)
    await bench.client.patch(Pod, name, {"metadata": {"labels": TEAM}}, bench.namespace)


# Quotas


async def a_limit_and_a_pod_of_the_queue_goes_with_its_node(bench: Bench) -> AsyncIterator[None]:
    (lost, _) = await zone(bench, "a", 1, 1)
    await limit(bench, 1)
    await of_the_team(bench, "one", lost)
    await bench.apply(gang("late", group("w", 1), labels=TEAM))
    yield
    await bench.nodes.remove_node(lost)


STORIES: list[Story] = [
    a_limit_and_a_pod_of_the_queue_goes_with_its_node,
]


@told(STORIES)
async def test_who_waits_is_tried_again_when_it_can_be_helped(cluster: Any, story: Story) -> None:
    await install(cluster, "ElasticQuota", "Reservation", "Device")
    await is_noticed(cluster, story)
