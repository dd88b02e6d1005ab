"""`plan` obeys quotas, reservations and devices, as the scheduler would: it is the same scheduler, on a copy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

import pytest
from tests.support.fleet import GPU, QUOTA, device, elastic, reservation
from tests.support.manifests import clique, pcs

from grove.answers.plan import plan_answer
from grove.api.core import Node
from grove.api.koordinator import Device, ElasticQuota, Reservation
from grove.api.meta import Json, Object
from grove.plan.copying import Copy, copy_cluster
from grove.plan.whatif import Plan
from grove.plan.world import World, shaped
from grove.sim.loop import run


def serving(name: str, pods: int, quota: str = "", **labels: str) -> Json:
    one = clique("w", pods)
    one["spec"]["minAvailable"] = pods
    one["labels"] = labels
    resources = {"limits": {GPU: 1}, "requests": {GPU: 1}}
    one["spec"]["podSpec"]["containers"][0]["resources"] = resources
    manifest = pcs(name, one)
    manifest["metadata"]["labels"] = {QUOTA: quota} if quota else {}
    return manifest


def plan_of(objects: Sequence[tuple[type[Object], Json]], running: Sequence[Json], wanted: Json) -> Plan:
    """What `plan` says of a set on a cluster of eight cards, where these objects and sets are."""

    async def copied() -> tuple[Copy, datetime]:
        async with World(shaped(2, gpus=4), objects=objects) as world:
            for name in {body["metadata"]["name"] for kind, body in objects if kind is Reservation}:
                nodes = sorted(node.metadata.name for node in world.all(Node))
                status = {"phase": "Available", "nodeName": nodes[0], "allocatable": {GPU: "4"}}
                await world.client.patch(Reservation, name, {"status": status}, subresource="status")
            for manifest in running:
                await world.apply(manifest)
            await asyncio.sleep(60)
            return await copy_cluster(world.client, None), world.cluster.clock.now()

    copy, now = run(copied())
    plan: Plan = run(plan_answer(copy, "default", [wanted], now=now)).data
    return plan


RED = {"team": "red"}
QUOTAS = [
    (ElasticQuota, elastic("all", "default", 8, 8)),
    (ElasticQuota, elastic("red", "default", 4, parent="all")),
    (ElasticQuota, elastic("blue", "default", 4, 6, parent="all")),
]


@pytest.mark.parametrize(
    ("running", "wanted", "answer", "words"),
    [
        pytest.param([], serving("new", 6, "blue"), "fits", "", id="within its limit"),
        pytest.param([], serving("new", 7, "blue"), "cannot fit", "queue blue is limited to 6", id="above its limit"),
        pytest.param(
            [serving("old", 5, "red")],
            serving("new", 4, "red"),
            "cannot fit",
            "queue all is limited to 8",
            id="above the limit of a queue above",
        ),
    ],
)
def test_plan_obeys_quotas(running: list[Json], wanted: Json, answer: str, words: str) -> None:
    (found,) = plan_of(QUOTAS, running, wanted).gangs
    assert found.answer == answer
    assert words in found.why


def test_plan_says_whose_loan_would_be_called_back() -> None:
    plan = plan_of(QUOTAS, [serving("old", 8, "red")], serving("new", 4, "blue"))
    assert plan.fits
    assert any("old" in name for name in plan.preempted)


def test_plan_leaves_what_is_reserved_to_its_owners() -> None:
    held = [(Reservation, reservation("r", gpus=4, allocateOnce=False))]
    assert not plan_of(held, [], serving("new", 5)).fits
    assert plan_of(held, [], serving("new", 4)).fits
    assert plan_of(held, [], serving("new", 8, **RED)).fits


def test_plan_counts_cards_that_are_not_healthy_as_not_there() -> None:
    nodes = [one["metadata"]["name"] for one in shaped(2, gpus=4)]
    sick = device(nodes[0], 4)
    sick["spec"]["devices"][0]["health"] = False
    objects = [(Device, sick), (Device, device(nodes[1], 4))]
    assert not plan_of(objects, [], serving("new", 8)).fits
    assert plan_of(objects, [], serving("new", 7)).fits
