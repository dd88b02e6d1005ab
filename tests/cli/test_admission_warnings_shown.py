"""What admission warns of on a cluster: `simulate` and `plan -f` show it too."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.asking import World, planned, text_of
from tests.support.manifests import clique, group, pcs

from grove.answers.answer import Answer
from grove.answers.simulate import outcome_answer
from grove.api.meta import Json
from grove.api.podcliqueset import EXPLICIT
from grove.demo.simulation import Ground, simulate
from grove.plan.copying import copy_cluster
from grove.plan.world import shaped
from grove.sim.loop import run
from grove.sim.patch import copy_json

pytestmark = pytest.mark.simulated

WARNING = (
    "web: spec.template.cliques[1].spec.startsAfterCondition: worker starts when leader is Ready, but leader uses "
    "nnodes and has a readiness probe; if leader is ready only after worker has joined, neither becomes ready: "
    "set startsAfterCondition to Started"
)


def engine(name: str, condition: str = "") -> Json:
    """A leader that may be ready only after its worker has joined."""
    probe = {"httpGet": {"path": "/health", "port": 8000}}
    container = {"name": "main", "image": "vllm", "args": ["--nnodes", "2"], "readinessProbe": probe}
    worker = clique("worker", starts_after=["leader"], start_condition=condition)
    parts = (clique("leader", containers=[container]), worker)
    made = pcs(name, *parts, groups=[group("engine", "leader", "worker")], startup=EXPLICIT)
    return {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", **made}


def simulated(*sets: Json) -> Answer:
    played: Coroutine[Any, Any, Any] = simulate(Ground(tuple(shaped(8))), sets, None, seed=1, patience_s=600)
    return outcome_answer(run(played, seed=1))


def test_simulate_shows_each_warning_once(world: World) -> None:
    answer = simulated(engine("web"), engine("fine", "Started"))
    assert list(answer.data["warnings"]) == [WARNING]
    said = " ".join(text_of(answer, 200, world).split())
    assert said.count(f"Warning: {WARNING}") == 1
    assert answer.code == 0, "a warning is no fault"


async def test_plan_shows_each_warning_once(world: World) -> None:
    sets = [engine("web"), engine("fine", "Started")]
    copy = await copy_cluster(world.client, None)
    answer = await planned(world, copy, world.namespace, sets, now=world.now)
    assert list(answer.data.warnings) == [WARNING]
    assert " ".join(text_of(answer, 200, world).split()).count(f"Warning: {WARNING}") == 1


async def test_plan_of_a_set_that_runs_warns_of_what_the_change_does_not_reach(world: World) -> None:
    edited = engine("web", "Started")
    edited["metadata"]["namespace"] = world.namespace
    await world.apply(copy_json(edited))
    await world.available("web")
    edited["spec"]["template"]["podCliqueScalingGroups"][0]["replicas"] = 2
    copy = await copy_cluster(world.client, None)
    answer = await planned(world, copy, world.namespace, [edited], now=world.now)
    (warning,) = answer.data.warnings
    assert warning.startswith("web: spec.template.podCliqueScalingGroups[0].replicas: ")
