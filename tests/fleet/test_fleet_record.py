"""`grove record` on a cluster that lives for a while: the file it writes is a good fleet file, and it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
import yaml
from tests.support.cluster import Cluster
from tests.support.running import without_logs

from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.fleet import record
from grove.fleet.file import Failures, Load, Part, Serving, Team, Time, load
from grove.fleet.manifests import batch_set, serving_set
from grove.fleet.record import Recorder, record_fleet
from grove.fleet.run import Run, run_fleet
from grove.sim.topology import Topology

TEAM = Team("research", quota=16)
STEADY = Serving(
    "steady", "research", [Part("model", 2.0, pods=2, gpus=4, replicas=2, min_available=1)], Load(peak=1.0)
)


def played(path: Path) -> Run:
    """An hour of a fleet file, in a thread: the test has a loop of its own.

    Without failures: the recording is seconds long, so its one failure is a rate of one every few seconds.
    """
    found: list[Run] = []
    fleet = load(str(path))
    cluster = msgspec.structs.replace(fleet.cluster, failures=Failures())

    def play() -> None:
        with without_logs():
            found.append(run_fleet(msgspec.structs.replace(fleet, cluster=cluster, lasts=Time("1h"))))

    thread = Thread(target=play)
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture
def recorders(monkeypatch) -> list[Recorder]:
    """The recorders that the test starts."""
    found: list[Recorder] = []

    def made(*arguments: Any) -> Recorder:
        found.append(Recorder(*arguments))
        return found[-1]

    monkeypatch.setattr(record, "Recorder", made)
    return found


@pytest.mark.real_in("soak")
async def test_a_recorded_cluster_becomes_a_fleet_that_runs(cluster: Cluster, recorders, tmp_path):
    async def create(body: Json) -> None:
        body["metadata"]["namespace"] = cluster.namespace
        await cluster.client.create(PodCliqueSet.RESOURCE, body)

    async def seen(name: str, *, is_over: bool) -> bool:
        sets = recorders[0].sets.values() if recorders else ()
        return any(one.pcs.metadata.name == name and (one.until_s is not None) == is_over for one in sets)

    async def is_synced() -> bool:
        return bool(recorders and recorders[0].is_synced)

    async def repaired() -> bool:
        return bool(recorders[0].repairs_s)

    nodes = await cluster.add_nodes(Topology(racks=2, nodes=2, gpus=8))
    await create(serving_set(STEADY, TEAM))
    watching = asyncio.ensure_future(record_fleet(cluster.client, cluster.namespace, 86400.0, tmp_path / "mine.csv"))
    await cluster.eventually(is_synced)
    await create(batch_set("job", TEAM, pods=3, gpus=8, priority=None, pack=""))
    await cluster.eventually(lambda: seen("job", is_over=False))
    await cluster.settle(2)
    await cluster.client.delete(PodCliqueSet, "job", cluster.namespace)
    await cluster.eventually(lambda: seen("job", is_over=True))
    await nodes.stop_node(nodes.names[0])
    await cluster.settle(1)
    await nodes.start_node(nodes.names[0])
    await cluster.eventually(repaired)
    watching.cancel()  # as an interrupt does: what was seen until now is written
    tree = await watching

    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    found = load(str(path))
    assert sum(kind.count for kind in found.cluster.nodes if kind.gpus == 8) >= 4
    assert found.cluster.failures.nodes is not None
    assert "research" in {team.name for team in found.teams}
    assert [(job.pods, job.gpus, job.team) for job in found.jobs["mine.csv"]] == [(3, 8, "research")]
    assert 1 <= found.jobs["mine.csv"][0].lasts_s < 3600
    serving = {one.name: one for one in found.work.serving}["steady"]
    assert [(part.name, part.pods, part.gpus, part.replicas) for part in serving.parts] == [("model", 2, 4, 2)]

    run = played(path)
    assert run.broken == []
    assert [gang.name for gang in (*run.finished, *run.unfinished)] == ["mine-0"]
    assert run.figures.sets["steady"].first_s is not None
