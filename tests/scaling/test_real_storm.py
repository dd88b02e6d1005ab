"""The storm on real Kubernetes: a hundred sets scale out and in at the same second for five minutes.

API server, etcd and controllers are real, nodes are not; operator and scheduler are Grove's own, each with a client
that counts. GROVE_STORM="SETS SECONDS" asks for another size.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from tests.support.metered import ended
from tests.support.planes import GrovePlane
from tests.support.storm import EVERY_S, HIGH, LOW, GangWatch, half_placed, most_writes, scaled_set, writes_since
from tests.support.waiting import nothing_missing

from grove.api.core import Pod
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.diagnosis.reasons import sentence
from grove.kube.cache import Cache
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.operator.wiring import Operator
from grove.scheduler.loop.live import Scheduler
from grove.sim.nodes import FakeNodes
from grove.sim.topology import Topology

pytestmark = pytest.mark.soak

SETS, SECONDS = map(int, (os.environ.get("GROVE_STORM") or "100 300").split())
NAMESPACE = "default"


@pytest.fixture
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with GrovePlane(tmp_path_factory.mktemp("storm"), controller_manager=True) as plane:
        yield plane


async def test_a_storm_leaves_every_gang_whole_and_writes_no_more_than_what_changed(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"s{number}" for number in range(SETS)]
    flips = round(SECONDS / EVERY_S / 2) * 2
    """Out and in again: it ends where it began."""
    async with AsyncExitStack() as stack:
        clients = {
            who: await stack.enter_async_context(HttpClient(load_config(plane.kubeconfig), user_agent=who))
            for who in ("test", "operator", "scheduler", "nodes")
        }
        client = clients["test"]
        nodes = FakeNodes(clients["nodes"], SYSTEM)
        await stack.enter_async_context(nodes.running())
        await nodes.add(Topology(racks=10, nodes=max(2, SETS // 5)))
        deciding = asyncio.get_running_loop().create_task(Scheduler(clients["scheduler"], say=sentence).run())
        stack.push_async_callback(ended, deciding)
        await stack.enter_async_context(Operator(clients["operator"], rng=random.Random(1)).running())
        watch, cache = GangWatch(), Cache(client)
        created = 0

        def see(old: Pod | None, new: Pod | None) -> None:
            nonlocal created
            created += old is None
            if (pod := new or old) is not None:
                watch.see(pod, time.monotonic(), is_gone=new is None)

        cache.add(Pod, namespace=NAMESPACE)
        cache.on_event(Pod, see)
        await stack.enter_async_context(cache)
        await asyncio.gather(*(client.create(PodCliqueSet, scaled_set(name)) for name in names))

        async def unsettled(units: int) -> str:
            groups = (await client.list(PodCliqueScalingGroup, NAMESPACE)).items
            whole = sum(one.spec.replicas == one.status.available_replicas == units for one in groups)
            pods, gangs = cache.list(Pod), (await client.list(PodGang, NAMESPACE)).items
            seen = (whole, len(pods), len(gangs), half_placed(pods))
            wanted = (SETS, 3 * units * SETS, units * SETS, [])
            return "" if seen == wanted else f"{seen} instead of {wanted}"

        await nothing_missing(lambda: unsettled(LOW), 600)
        before = {who: Counter(one.calls) for who, one in clients.items()}
        begun, cpu, created, replicas = time.monotonic(), cpu_s(), 0, LOW
        for number in range(flips):
            replicas = HIGH if replicas == LOW else LOW
            patch = {"spec": {"replicas": replicas}}
            scale = (
                client.patch(PodCliqueScalingGroup, f"{name}-0-g", patch, NAMESPACE, subresource="scale")
                for name in names
            )
            await asyncio.gather(*scale)
            await asyncio.sleep(max(0.0, begun + (number + 1) * EVERY_S - time.monotonic()))
        stormed_s = time.monotonic() - begun
        await nothing_missing(lambda: unsettled(replicas), 600)
        settled_s = time.monotonic() - begun - stormed_s
        writes = {who: writes_since(before[who], clients[who].calls) for who in ("operator", "scheduler", "nodes")}
    changes, units = SETS * flips, SETS * flips * (HIGH - LOW)
    total = writes["operator"].total()
    with capsys.disabled():
        print(
            f"\n{SETS} sets, {flips} times out or in within {stormed_s:.0f} s, settled {settled_s:.1f} s later: "
            f"{created} pods made; {total} writes of the operator, {total / units:.1f} for each of {units} units that "
            f"were to come or go (bound {most_writes(changes)}); scheduler {writes['scheduler'].total()}, nodes "
            f"{writes['nodes'].total()}; longest bind {watch.longest_s:.2f} s; "
            f"{100 * (cpu_s() - cpu) / (stormed_s + settled_s):.0f} % of a core for all of it"
        )
        for (verb, what), count in writes["operator"].most_common(8):
            print(f"  operator: {verb} {what} {count}")
    assert total <= most_writes(changes)


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
