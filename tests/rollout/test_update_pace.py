"""How long an update takes beyond its writes: nothing waits where one thing alone is waited for.

In virtual time a write takes a millisecond and everything else nothing, so what is left over is waiting.
"""

from __future__ import annotations

import asyncio
import itertools
from datetime import datetime
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World
from tests.support.workloads import change, updated

from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.cache import Cache
from grove.operator.podcliqueset.set_children import SetChildren
from grove.operator.shared.status_batching import SETTLE_S, TURN_S

pytestmark = pytest.mark.simulated

WRITE_S = 0.001
POD_WRITES = 6
"""One after the other for each pod: choice of the clique, delete, create, gang, binding, Ready. The clique gets its
template while it writes its choice."""

OPERATING = Operating(start_s=0.0, stop_s=0.0)


class Pace:
    """When each replica of a set was chosen and when its update ended, by a watch."""

    def __init__(self) -> None:
        self.chosen_s: dict[int, float] = {}
        self.ended_s: float | None = None

    def on_set(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        progress, now_s = new.status.update_progress if new is not None else None, asyncio.get_running_loop().time()
        for one in progress.currently_updating if progress is not None else ():
            self.chosen_s.setdefault(one.replica_index, now_s)
        if progress is not None and isinstance(progress.update_ended_at, datetime):
            self.ended_s = self.ended_s or now_s

    @property
    def turns_s(self) -> list[float]:
        """Seconds that each replica took, from its choice to that of the next; the first is not among them.

        It waits for the change itself to reach all cliques.
        """
        assert self.ended_s is not None
        moments = [*sorted(self.chosen_s.values()), self.ended_s]
        return [later - earlier for earlier, later in itertools.pairwise(moments[1:])]


async def pace_of_update(world: World, manifest: Any, *changed: str) -> Pace:
    await world.apply(manifest)
    await world.available("wl")
    pace, cache = Pace(), Cache(world.client)
    cache.add(PodCliqueSet, namespace=world.namespace)
    cache.on_event(PodCliqueSet, pace.on_set)
    async with cache:
        await cache.wait_synced()
        await change(world, "wl", *changed)
        await updated(world, "wl")
    return pace


@pytest.mark.parametrize("replicas", [8, 60], ids=["eight replicas", "many: a look at the set is not put off"])
async def test_replicas_of_one_pod_follow_each_other_without_a_wait(world: World, replicas: int) -> None:
    pace = await pace_of_update(world, pcs("wl", clique("w"), replicas=replicas), "w")

    assert sorted(pace.chosen_s) == list(range(replicas))
    assert max(pace.turns_s) < (POD_WRITES + 2.5) * WRITE_S, "and two statuses: the clique is back, the next is chosen"


async def test_pods_of_a_clique_follow_each_other_without_a_wait(world: World) -> None:
    pace = await pace_of_update(world, pcs("wl", clique("w", 3), replicas=2), "w")

    assert max(pace.turns_s) < (3 * (POD_WRITES + 1) + 2.5) * WRITE_S


async def test_two_cliques_are_replaced_side_by_side_without_a_wait(world: World) -> None:
    manifest = pcs("wl", clique("a"), clique("b"), replicas=3)
    pace = await pace_of_update(world, manifest, "a", "b")

    assert max(pace.turns_s) < (POD_WRITES + 6) * WRITE_S


async def test_a_replica_of_a_group_is_listed_together_and_waits_for_nothing_else(world: World) -> None:
    manifest = pcs("wl", clique("a"), clique("w", 2), groups=[group("g", "a", "w", replicas=2)], replicas=2)
    pace = await pace_of_update(world, manifest, "w")

    # Twice a group's replica: its cliques come one after the other, so its gang waits a moment to list both at once.
    assert max(pace.turns_s) < 2 * (SETTLE_S + (POD_WRITES + 5) * WRITE_S) + 2 * WRITE_S
    assert world.writes()["patch", "podgangs"] <= 4


async def test_a_replaced_pod_costs_two_writes_of_its_clique_s_status(world: World) -> None:
    """Cliques that wait for their turn do not report before it that their pods are no longer up to date."""
    replicas, at_begin_and_end = 100, 3
    world.nodes.start_s = world.nodes.stop_s = 0.2
    await world.apply(pcs("wl", clique("w"), replicas=replicas))
    await world.available("wl")
    await world.quiet()
    before = world.writes()

    await change(world, "wl", "w")
    await updated(world, "wl")
    await world.quiet()

    written = world.writes() - before
    assert written["patch", "podcliques/status"] == 2 * replicas, "the pod is chosen, and the new one is ready"
    assert written["patch", "podcliquesets/status"] <= replicas + at_begin_and_end
    assert written.total() <= 7.7 * replicas


async def test_the_children_of_a_set_are_not_compared_at_every_step(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clique that gets its template is edited by the operator itself."""
    await world.apply(pcs("wl", clique("w"), replicas=10))
    await world.available("wl")
    await world.quiet()
    compared, observe = 0, SetChildren.observe

    async def counted(children: SetChildren, one: PodCliqueSet) -> Any:
        nonlocal compared
        compared += 1
        return await observe(children, one)

    monkeypatch.setattr(SetChildren, "observe", counted)
    await change(world, "wl", "w")
    await updated(world, "wl")

    assert compared <= 2


async def test_a_clique_that_waits_long_for_its_turn_counts_by_the_template_of_now(world: World) -> None:
    await world.apply(pcs("wl", clique("w"), replicas=2))
    await world.available("wl")
    world.nodes.hold = lambda pod: "version" in pod.metadata.labels
    await change(world, "wl", "w")

    await asyncio.sleep(2 * TURN_S)

    waiting = (await world.get(PodClique, "wl-1-w")).status
    assert (waiting.updated_replicas, waiting.replicas) == (0, 1)
