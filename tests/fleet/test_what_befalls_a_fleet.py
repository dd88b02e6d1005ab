"""A small fleet with failures, maintenance, spot reclaim, crashes, good and bad releases: every promise holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.support.running import without_logs

from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.meta import Json, Key, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.fleet import run as runs
from grove.fleet.ending import Report, judge_rest
from grove.fleet.figures import DOWN, LOST
from grove.fleet.file import read
from grove.fleet.manifests import BAD
from grove.fleet.results import results
from grove.fleet.run import Run, run_fleet
from grove.kube.errors import TooManyRequests
from grove.plan.world import World
from grove.sim import client, disruption
from grove.sim.server import SimServer
from grove.sim.store import Change

FLEET = """\
lasts: 7h
cluster:
  nodes:
  - {name: h100, racks: 3, nodes: 3, gpus: 8}
  - {name: spot, racks: 1, nodes: 3, gpus: 8, spot: true}
  failures:
    nodes: {every: 24h, repair: "uniform(10m, 40m)"}
    racks: {every: 6h, repair: "uniform(20m, 50m)"}
  maintenance:
  - {every: 3h, first: 1h, racks: 1, lasts: 40m}
  spot: {every: 5h, notice: 2m, returns: "exponential(30m)"}
teams:
- {name: chat, priority: 1000, quota: 48, limit: 72}
- {name: research, priority: 0, quota: 24, limit: 72, terminationDelay: 30m}
work:
  serving:
  - name: chat
    team: chat
    load: {peak: 30, low: 15, peakHour: 6}
    releases: {every: 2h, first: 40m, bad: 0.5, undo: 20m}
    podsAvailable: 7
    parts:
    - {name: prefill, pods: 1, gpus: 8, replicas: 2, minAvailable: 1, maxReplicas: 3, requestsPerSecond: 12,
       crashEvery: 6h}
    - {name: decode, pods: 2, gpus: 4, replicas: 2, minAvailable: 1, maxReplicas: 4, requestsPerSecond: 10, pack: rack,
       crashEvery: 6h}
  batch:
  - {name: job, team: research, every: 30m, pods: "choice(1:3, 2:2, 3:1)", gpus: "choice(4:1, 8:1)",
     lasts: "lognormal(40m, 0.6)", checkpoint: 10m}
settings:
  operator: {topologyAwareScheduling: {enabled: true}}
"""
NODES = 12
SEEDS = (2, 3, 4)


@dataclass
class Witness:
    """What a run did to nodes and to the pods of `chat`."""

    lost: Counter[str] = field(default_factory=Counter)
    """Ready pods that stopped being ready or were deleted, by clique."""
    returned: Counter[str] = field(default_factory=Counter)
    """Pods that became ready, by clique."""
    bad_pods: int = 0
    """Pods of a bad release that got a node."""
    refused: int = 0
    """Evictions that the budget refused."""
    nodes: list[tuple[str, bool]] = field(default_factory=list)
    """Name of each node and whether pods may be placed there, when the fleet was at rest."""
    is_over: bool = False
    """Whether the time of the file is over and the fleet is at rest."""
    releases: set[str] = field(default_factory=set)
    """Images in the template of `chat`, when the fleet was at rest."""

    def see(self, resource: Resource, change: Change) -> None:
        pod = change.version.json
        marks = pod["metadata"].get("labels") or {} if resource == Pod.RESOURCE else {}
        if marks.get(labels.PART_OF) != "chat" or self.is_over:
            return
        before = change.previous is not None and _is_serving(change.previous.json)
        now = change.type != "DELETED" and _is_serving(pod)
        clique = marks[labels.CLIQUE_NAME]
        self.lost[clique] += before and not now
        self.returned[clique] += now and not before
        is_new = bool(pod["spec"].get("nodeName")) and not (
            change.previous is not None and change.previous.json["spec"].get("nodeName")
        )
        self.bad_pods += is_new and any(box["image"].startswith(BAD) for box in pod["spec"]["containers"])

    def look(self, world: World) -> None:
        self.is_over = True
        self.nodes = [(one.metadata.name, one.is_ready and not one.spec.unschedulable) for one in world.all(Node)]
        chat = world.find(PodCliqueSet, "chat")
        assert chat is not None
        for clique in chat.spec.template.cliques:
            self.releases |= {box["image"] for box in clique.spec.pod_spec["containers"]}


def _is_serving(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


@pytest.fixture(scope="module")
def played() -> dict[int, tuple[Run, Witness]]:
    """The same hours with three seeds."""
    return {seed: _played(seed) for seed in SEEDS}


def _played(seed: int) -> tuple[Run, Witness]:
    witness = Witness()

    def world(*arguments: Any, **named: Any) -> World:
        made = World(*arguments, **named)
        made.cluster.server.store.listeners.append(witness.see)
        return made

    async def rest(world: World, report: Report) -> bool:
        is_good = await judge_rest(world, report)
        witness.look(world)
        return is_good

    async def evict(server: SimServer, key: Key, **named: Any) -> None:
        try:
            await disruption.evict(server, key, **named)
        except TooManyRequests:
            witness.refused += 1
            raise

    with pytest.MonkeyPatch.context() as patched, without_logs():
        patched.setattr(runs, "World", world)
        patched.setattr(runs, "judge_rest", rest)
        patched.setattr(client, "disruption", SimpleNamespace(evict=evict))
        return run_fleet(msgspec.structs.replace(read(FLEET), seed=seed)), witness


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds(played, seed):
    run, _ = played[seed]
    assert run.broken == []


@pytest.mark.parametrize("seed", SEEDS)
def test_few_instances_are_excused_although_something_happens_every_half_hour(played, seed):
    run, _ = played[seed]
    chat = results(run)["serving"]["chat"]
    assert 0 < chat["excused"] < 0.1
    assert 0.1 < chat["updating"] < 0.6


@pytest.mark.parametrize("seed", SEEDS)
def test_the_nodes_and_the_good_release_are_back_in_the_end(played, seed):
    _, witness = played[seed]
    assert len(witness.nodes) == NODES
    assert all(is_up for _, is_up in witness.nodes)
    assert len(witness.releases) == 1
    assert not any(image.startswith(BAD) for image in witness.releases)


@pytest.mark.parametrize("seed", SEEDS)
def test_machines_fail_are_drained_and_are_reclaimed(played, seed):
    run, _ = played[seed]
    happenings = results(run)["happenings"]
    assert happenings["maintenance"] == 2
    assert happenings["rack failure"] >= 1
    assert happenings["spot reclaim"] >= 1
    assert happenings["crash"] >= 1
    assert run.figures.gpu_seconds[DOWN] > 3600.0


def test_every_kind_of_failure_occurs_in_one_of_the_seeds(played):
    seen = Counter[str]()
    for run, _ in played.values():
        seen.update(results(run)["happenings"])
    assert set(seen) == {"crash", "maintenance", "node failure", "rack failure", "spot reclaim"}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_service_loses_pods_and_gets_them_back(played, seed):
    run, witness = played[seed]
    for clique in ("prefill", "decode-leader", "decode-worker"):
        assert witness.lost[clique] >= 3
        assert witness.returned[clique] > witness.lost[clique]
    assert run.figures.gpu_seconds[LOST] > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_good_releases_end_and_bad_ones_are_undone(played, seed):
    run, witness = played[seed]
    chat = results(run)["serving"]["chat"]
    assert chat["releases"] == 4
    assert chat["undone"] == {2: 2, 3: 3, 4: 1}[seed]
    assert witness.bad_pods >= chat["undone"]
    assert chat["updates"]["count"] == 3
    assert 60 < chat["updates"]["worst"] < 2 * 3600


def test_the_budget_refuses_evictions(played):
    assert sum(witness.refused for _, witness in played.values()) > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_batch_gangs_lose_work_and_end(played, seed):
    run, _ = played[seed]
    batch = results(run)["batch"]
    assert batch["finished"] >= 7
    assert batch["slowdown"]["worst"] > 1.4
