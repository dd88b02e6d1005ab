"""Laws of coherent updates: hypothesis makes up whole sets, and every change of a pod is looked at.

Each part always has `replicas` - `maxUnavailable` available units. Old and new capacity of all parts keep their ratio
within one slice. No unit is taken twice for one edit. The operator may be restarted and the update paused meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World, operating
from tests.support.running import without_logs
from tests.support.workloads import change, updated
from tests.walk import simulated

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.cache import Cache
from grove.operator.shared.layout import pod_index
from grove.sim.loop import run

NEW = "two"


@dataclass(frozen=True)
class Sized:
    """One part: a standalone clique, or a scaling group whose replicas have one pod of each of its cliques."""

    replicas: int
    minimum: int
    most_down: int | None = None
    surge: int = 0
    cliques: tuple[str, ...] = ()

    @property
    def max_unavailable(self) -> int:
        return self.minimum if self.most_down is None else self.most_down

    @property
    def rolling(self) -> Json:
        own = {"maxSurge": self.surge}
        return own if self.most_down is None else {**own, "maxUnavailable": self.most_down}


@dataclass(frozen=True)
class Case:
    parts: dict[str, Sized]
    changed: frozenset[str]
    disturbed_s: tuple[float, ...] = ()
    """When the operator is restarted, or the update paused and resumed, after the edit."""
    seed: int = 0

    def manifest(self) -> Json:
        front = clique("front", self.parts["front"].replicas, min_available=self.parts["front"].minimum)
        front["rollingUpdate"] = self.parts["front"].rolling
        groups = {name: part for name, part in self.parts.items() if part.cliques}
        return pcs(
            "wl",
            front,
            *(clique(name) for part in groups.values() for name in part.cliques),
            groups=[
                group(name, *one.cliques, replicas=one.replicas, min_available=one.minimum, rollingUpdate=one.rolling)
                for name, one in groups.items()
            ],
            strategy={"type": "Coherent"},
        )

    def slice_of(self, part: str) -> int:
        """Units of a part in one slice, by the rule of the documentation."""
        slices = min(self.parts[one].replicas // self.parts[one].minimum for one in self.changed)
        return max(1, self.parts[part].replicas // slices)


@dataclass
class Witness:
    """Sees every change of a pod, and keeps the first breach of a law."""

    case: Case
    pods: dict[str, Pod] = field(default_factory=dict)
    taken: Counter[tuple[str, int]] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        self.pods.pop(pod.metadata.uid, None)
        if new is not None and not new.metadata.is_deleting:
            self.pods[pod.metadata.uid] = new
        elif old is not None and not old.metadata.is_deleting and not _is_new(pod):
            self.taken[_unit(pod)] += 1
        begun, done = [], []
        for name, part in self.case.parts.items():
            units = self._units(name, part)
            up = sum(_is_up(pods, part) for pods in units.values())
            if up < part.replicas - part.max_unavailable:
                self.breaches.append(f"{name}: {up} of {part.replicas} are up, {part.max_unavailable} may be down")
            if name in self.case.changed:
                size = self.case.slice_of(name)
                old_units = sum(any(not _is_new(one) for one in pods) for pods in units.values())
                new_units = sum(_is_up(pods, part) and all(map(_is_new, pods)) for pods in units.values())
                begun.append(math.ceil((part.replicas - old_units) / size))
                done.append(math.inf if new_units >= part.replicas else new_units // size)
        if begun and max(begun) - min(done) > 1:
            self.breaches.append(f"slice {max(begun)} begins while slice {min(done)} is done: {begun}, {done}")

    def _units(self, name: str, part: Sized) -> dict[int, list[Pod]]:
        found: dict[int, list[Pod]] = {}
        for pod in self.pods.values():
            if pod.metadata.labels[key.CLIQUE_NAME] in (part.cliques or (name,)):
                found.setdefault(_unit(pod)[1], []).append(pod)
        return found


def _unit(pod: Pod) -> tuple[str, int]:
    """The role of a pod and the index of its unit: of the replica of its group, or of the pod."""
    own = pod.metadata.labels
    index = own.get(key.SCALING_GROUP_REPLICA_INDEX)
    return own[key.CLIQUE_NAME], int(index) if index is not None else pod_index(pod) or 0


def _is_new(pod: Pod) -> bool:
    return pod.metadata.labels.get("version") == NEW


def _is_up(pods: list[Pod], part: Sized) -> bool:
    return sum(pod.is_ready for pod in pods) >= max(1, len(part.cliques))


async def _disturb(world: World, case: Case) -> None:
    rng, passed_s = random.Random(case.seed), 0.0
    for at_s in sorted(case.disturbed_s):
        await asyncio.sleep(at_s - passed_s)
        passed_s = at_s
        if rng.random() < 0.5:
            await world.restart()
            continue
        for value in ("true", None):
            patch = {"metadata": {"annotations": {key.ROLLOUT_PAUSED: value}}}
            await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)
            await asyncio.sleep(rng.choice((0.0, 1.0, 20.0)))


async def _updated(case: Case) -> Witness:
    witness, rng = Witness(case), random.Random(case.seed)
    async with simulated() as cluster, operating(cluster) as world:
        world.nodes.start_s = lambda pod: rng.choice((0.1, 1.0, 3.0))
        await world.apply(case.manifest())
        await world.available("wl")
        await world.ready(sum(part.replicas * max(1, len(part.cliques)) for part in case.parts.values()))
        cache = Cache(world.client)
        cache.add(Pod, namespace=world.namespace)
        async with cache:
            await cache.wait_synced()
            witness.pods = {pod.metadata.uid: pod for pod in cache.list(Pod)}
            changed = [one for name in sorted(case.changed) for one in case.parts[name].cliques or (name,)]
            cache.on_event(Pod, witness.on_pod)
            await change(world, "wl", *changed, to=NEW)
            await _disturb(world, case)
            await updated(world, "wl", timeout_s=3600.0)
    return witness


def check(case: Case) -> None:
    with without_logs():
        witness = run(_updated(case), seed=case.seed)
    assert witness.breaches == []
    twice = {unit: count for unit, count in witness.taken.items() if count > 1}
    assert twice == {}, "a unit is taken once"
    roles = {one for name in case.changed for one in case.parts[name].cliques or (name,)}
    assert {role for role, _ in witness.taken} == roles, "parts that did not change are not touched"
    untouched = [pod for pod in witness.pods.values() if _unit(pod)[0] in roles and not _is_new(pod)]
    assert untouched == []


@st.composite
def sized(draw: st.DrawFn, *cliques: str, most: int = 6) -> Sized:
    replicas = draw(st.integers(1, most))
    minimum = draw(st.integers(1, replicas))
    most_down = draw(st.none() | st.integers(minimum, replicas))
    return Sized(replicas, minimum, most_down, draw(st.sampled_from((0, 0, 1))), cliques)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    parts = {"front": draw(sized()), "prefill": draw(sized("p", most=4)), "decode": draw(sized("d", "e", most=4))}
    changed = draw(st.sets(st.sampled_from(sorted(parts)), min_size=1))
    disturbed = draw(st.lists(st.floats(0.1, 20.0), max_size=3))
    return Case(parts, frozenset(changed), tuple(disturbed), draw(st.integers(0, 1000)))


@settings(max_examples=12, derandomize=True)
@given(case=cases())
def test_laws_of_a_coherent_update(case: Case) -> None:
    check(case)


@pytest.mark.soak
@settings(max_examples=400)
@given(case=cases())
def test_laws_of_many_coherent_updates(case: Case) -> None:
    check(case)
