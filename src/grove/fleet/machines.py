"""What happens to the nodes of a fleet: failures and repairs, whole racks, maintenance on a calendar, spot reclaim.

Each process has its own random stream and picks among all nodes, also among those that are down. A second failure of a
node that is down changes nothing. So two runs with other settings have the same failures at the same time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence

from grove.api.core import Node
from grove.api.meta import Json
from grove.fleet.amounts import stream
from grove.fleet.file import Cluster, Failure, Maintenance, NodeType, Spot
from grove.kube.errors import NotFound
from grove.plan.world import World
from grove.sim.topology import RACK, Topology

TYPE_LABEL = "fleet.grove.io/node-type"
Note = Callable[[str, str], None]
"""Takes a kind of happening and the node or rack it happened to."""


def node_objects(kind: NodeType, *, alone: bool) -> list[Json]:
    """The nodes of a type; racks of two types are different racks unless the type is `alone`."""
    shape = Topology(
        zones=kind.zones,
        blocks=kind.blocks,
        racks=kind.racks,
        nodes=kind.nodes,
        gpus=kind.gpus,
        cpu=kind.cpu,
        memory=kind.memory,
        labels={TYPE_LABEL: kind.name},
        prefix="" if alone else f"{kind.name}-",
    )
    return list(shape.objects())


class Machines:
    """The nodes of a world and what befalls them. `run` plays all processes until it is cancelled."""

    def __init__(self, world: World, cluster: Cluster, nodes: list[Json], seed: int, note: Note) -> None:
        self._world, self._cluster, self._seed, self._note = world, cluster, seed, note
        self._objects = {node["metadata"]["name"]: node for node in nodes}
        self._names = list(self._objects)
        self._racks: dict[str, list[str]] = defaultdict(list)
        for node in nodes:
            self._racks[node["metadata"]["labels"][RACK]].append(node["metadata"]["name"])
        self.down: set[str] = set()
        """Nodes that failed, are drained or were reclaimed."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number, process in enumerate(self._processes()):
                group.create_task(process, name=f"machines-{number}")

    async def restore(self) -> None:
        """Every node is up again; call it after `run` was cancelled."""
        nodes = self._world.cluster.nodes
        for name in sorted(self.down):
            if self._world.find(Node, name) is None:
                await nodes.add([self._objects[name]])
            else:
                await nodes.start_node(name)
                await nodes.cordon(name, unschedulable=False)
        self.down.clear()

    def _processes(self) -> list[Coroutine[None, None, None]]:
        failures, spot = self._cluster.failures, self._cluster.spot
        processes = [self._maintain(maintenance) for maintenance in self._cluster.maintenance]
        if failures.nodes is not None:
            processes.append(self._fail(failures.nodes, "node", [[name] for name in self._names]))
        if failures.racks is not None:
            processes.append(self._fail(failures.racks, "rack", list(self._racks.values())))
        if spot is not None:
            kinds = {node.name for node in self._cluster.nodes if node.spot}
            marks = {name: node["metadata"]["labels"][TYPE_LABEL] for name, node in self._objects.items()}
            processes += [self._reclaim(spot, name) for name in self._names if marks[name] in kinds]
        return processes

    async def _fail(self, failure: Failure, what: str, units: list[list[str]]) -> None:
        """One process for all units: the gaps between failures are exponential."""
        rng = stream(self._seed, f"{what}-failures")
        gap_s, repair = failure.every.s / len(units), failure.repair.amount
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(rng.expovariate(1.0 / gap_s))
                names, repair_s = rng.choice(units), repair.draw(rng)
                hit = [name for name in names if name not in self.down]
                if hit:
                    self._note(f"{what} failure", names[0])
                    group.create_task(self._outage(hit, repair_s))

    async def _outage(self, names: list[str], repair_s: float) -> None:
        self.down.update(names)
        for name in names:
            await self._world.cluster.nodes.stop_node(name)
        await asyncio.sleep(repair_s)
        for name in names:
            await self._world.cluster.nodes.start_node(name)
        self.down.difference_update(names)

    async def _maintain(self, plan: Maintenance) -> None:
        """Drains the racks in turn, `racks` of them at a time."""
        racks, turn = list(self._racks.values()), 0
        await asyncio.sleep(plan.first.s)
        async with asyncio.TaskGroup() as group:
            while True:
                for step in range(plan.racks):
                    group.create_task(self._drain(racks[(turn + step) % len(racks)], plan.lasts.s))
                turn += plan.racks
                await asyncio.sleep(plan.every.s)

    async def _drain(self, names: list[str], lasts_s: float) -> None:
        hit = [name for name in names if name not in self.down]
        self._note("maintenance", names[0])
        self.down.update(hit)
        drains = [asyncio.ensure_future(self._world.cluster.nodes.drain(name)) for name in hit]
        try:
            await asyncio.sleep(lasts_s)
        finally:
            await _stop(drains)  # a budget may have refused evictions until now
        for name in hit:
            await self._world.cluster.nodes.cordon(name, unschedulable=False)
        self.down.difference_update(hit)

    async def _reclaim(self, spot: Spot, name: str) -> None:
        rng = stream(self._seed, f"spot-{name}")
        returns = spot.returns.amount
        while True:
            await asyncio.sleep(rng.expovariate(1.0 / spot.every.s))
            away_s = returns.draw(rng)
            if name in self.down:
                continue
            self._note("spot reclaim", name)
            self.down.add(name)
            drain = asyncio.ensure_future(self._world.cluster.nodes.drain(name))
            try:
                await asyncio.sleep(spot.notice.s)
            finally:
                await _stop([drain])
            try:
                await self._world.cluster.nodes.remove_node(name)
            except NotFound:
                pass
            await asyncio.sleep(away_s)
            await self._world.cluster.nodes.add([self._objects[name]])
            self.down.discard(name)


async def _stop(drains: Sequence[asyncio.Future[None]]) -> None:
    for drain in drains:
        drain.cancel()
    await asyncio.gather(*drains, return_exceptions=True)
