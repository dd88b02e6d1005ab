"""Laws of coherent updates: hypothesis makes up whole sets, and every change of a pod is looked at.

Each part always has `replicas` - `maxUnavailable` available units, without those that the test itself removed. Old and
new capacity of all parts keep their ratio within one slice, until the test edits the set again or scales a part. No
unit is taken twice for one edit. Meanwhile the operator is restarted, the update is paused, pods are lost, parts are
scaled, and the templates are edited again or taken back. Pods are recreated or updated in place.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World, operating
from tests.support.running import without_logs
from tests.support.workloads import updated
from tests.walk import simulated

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
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


RESTART, PAUSE, LOSE, SCALE, EDIT, UNDO = "restart", "pause", "lose", "scale", "edit", "undo"


@dataclass(frozen=True)
class Disturbance:
    """What happens this many seconds after the edit. `size` are the replicas that a part is scaled to."""

    at_s: float
    kind: str
    part: str = ""
    size: int = 1


@dataclass(frozen=True)
class Case:
    parts: dict[str, Sized]
    changed: frozenset[str]
    disturbed: tuple[Disturbance, ...] = ()
    in_place: bool = False
    seed: int = 0

    @property
    def roles(self) -> set[str]:
        """The cliques that the edit changes."""
        return {role for name in self.changed for role in self.parts[name].cliques or (name,)}

    def manifest(self, version: str = "") -> Json:
        """The set; the templates in `changed` in this version, empty for the first."""
        front = self._template("front", version, self.parts["front"].replicas, self.parts["front"].minimum)
        front["rollingUpdate"] = self.parts["front"].rolling
        groups = {name: part for name, part in self.parts.items() if part.cliques}
        return pcs(
            "wl",
            front,
            *(self._template(name, version) for part in groups.values() for name in part.cliques),
            groups=[
                group(name, *one.cliques, replicas=one.replicas, min_available=one.minimum, rollingUpdate=one.rolling)
                for name, one in groups.items()
            ],
            strategy={"type": "Coherent", **({"inPlace": "IfPossible"} if self.in_place else {})},
        )

    def _template(self, name: str, version: str, replicas: int = 1, minimum: int | None = None) -> Json:
        template = clique(name, replicas, min_available=minimum)
        if version and name in self.roles:
            template["labels"] = {"version": version}
            container = template["spec"]["podSpec"]["containers"][0]
            if self.in_place:
                container["image"] = f"registry.k8s.io/pause:{version}"
            else:
                container["env"] = [{"name": "VERSION", "value": version}]
        return template

    def slice_of(self, part: str) -> int:
        """Units of a part in one slice, by the rule of the documentation."""
        slices = min(self.parts[one].replicas // self.parts[one].minimum for one in self.changed)
        return max(1, self.parts[part].replicas // slices)


UnitName = tuple[str, int]
"""A part, or a role of it, and the index of the unit: of the replica of its group, or of the pod."""


@dataclass
class Witness:
    """Sees every change of a pod, and keeps the first breach of a law.

    - `lost`: units that the test removed or asked for, with the UID of the pod that it deleted, until they are up.
    - `exempt`: units that the test removed. They may be of either version, and count in favour of the update.
    - `edits`: edits so far. `in_slices`: the update is still that of the first edit, at the first sizes.
    """

    case: Case
    version: str = NEW
    edits: int = 1
    in_slices: bool = True
    pods: dict[str, Pod] = field(default_factory=dict)
    replicas: dict[str, int] = field(default_factory=dict)
    lost: dict[UnitName, str] = field(default_factory=dict)
    exempt: set[UnitName] = field(default_factory=set)
    removed: Counter[UnitName] = field(default_factory=Counter)
    taken: Counter[UnitName] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        self.pods.pop(pod.metadata.uid, None)
        stays = new is not None and not new.metadata.is_deleting
        if new is not None and stays:
            self.pods[pod.metadata.uid] = new
        if (
            old is not None
            and not old.metadata.is_deleting
            and not self.is_new(old)
            and (not stays or self.is_new(pod))
        ):
            self.taken[_role_unit(old)] += 1
        begun, done = [], []
        for name, part in self.case.parts.items():
            units = self._units(name, part)
            for unit, uid in list(self.lost.items()):
                pods = units.get(unit[1], []) if unit[0] == name else []
                if _is_up(pods, part) and uid not in {one.metadata.uid for one in pods}:
                    del self.lost[unit]
            up, lost = sum(_is_up(pods, part) for pods in units.values()), sum(unit[0] == name for unit in self.lost)
            if up + lost < self.replicas[name] - part.max_unavailable:
                self.breaches.append(
                    f"{name}: {up} of {self.replicas[name]} are up, {part.max_unavailable} may be down, {lost} are lost"
                )
            if name in self.case.changed:
                size = self.case.slice_of(name)
                exempt = {unit[1] for unit in self.exempt if unit[0] == name}
                counted = {index: pods for index, pods in units.items() if index not in exempt}
                is_old = sum(not all(map(self.is_new, pods)) for pods in counted.values())
                is_new = sum(_is_up(pods, part) and all(map(self.is_new, pods)) for pods in counted.values())
                begun.append(math.ceil((part.replicas - is_old - len(exempt)) / size))
                is_done = is_new + len(exempt) >= part.replicas
                done.append(math.inf if is_done else (is_new + len(exempt)) // size)
        if self.in_slices and begun and max(begun) - min(done) > 1:
            self.breaches.append(f"slice {max(begun)} begins while slice {min(done)} is done: {begun}, {done}")

    def is_new(self, pod: Pod) -> bool:
        return pod.metadata.labels.get("version", "") == self.version

    def lose(self, pod: Pod) -> None:
        """The test is about to delete this pod."""
        unit = _unit(self.case, pod)
        self.lost[unit] = pod.metadata.uid
        self.exempt.add(unit)
        self.removed[_role_unit(pod)] += 1

    def scale(self, name: str, replicas: int) -> None:
        """The test is about to scale this part."""
        before, self.replicas[name], self.in_slices = self.replicas[name], replicas, False
        self.lost.update({(name, index): "" for index in range(before, replicas)})
        for role in self.case.parts[name].cliques or (name,) if replicas < before else ():
            self.removed.update((role, index) for index in range(before + self.case.parts[name].surge))

    def edit(self, version: str) -> None:
        """The test is about to make the templates of this version."""
        self.version, self.edits, self.in_slices = version, self.edits + 1, False

    def _units(self, name: str, part: Sized) -> dict[int, list[Pod]]:
        found: dict[int, list[Pod]] = {}
        for pod in self.pods.values():
            if pod.metadata.labels[key.CLIQUE_NAME] in (part.cliques or (name,)):
                found.setdefault(_role_unit(pod)[1], []).append(pod)
        return found


def _role_unit(pod: Pod) -> UnitName:
    own = pod.metadata.labels
    index = own.get(key.SCALING_GROUP_REPLICA_INDEX)
    return own[key.CLIQUE_NAME], int(index) if index is not None else pod_index(pod) or 0


def _unit(case: Case, pod: Pod) -> UnitName:
    role, index = _role_unit(pod)
    return next((name for name, part in case.parts.items() if role in part.cliques), role), index


def _is_up(pods: list[Pod], part: Sized) -> bool:
    return sum(pod.is_ready for pod in pods) >= max(1, len(part.cliques))


async def _disturb(world: World, case: Case, witness: Witness) -> None:
    rng, passed_s = random.Random(case.seed), 0.0
    for number, disturbance in enumerate(sorted(case.disturbed, key=lambda one: one.at_s)):
        await asyncio.sleep(max(0.0, disturbance.at_s - passed_s))
        passed_s = disturbance.at_s
        match disturbance.kind:
            case "restart":
                await world.restart()
            case "pause":
                for value in ("true", None):
                    patch = {"metadata": {"annotations": {key.ROLLOUT_PAUSED: value}}}
                    await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)
                    await asyncio.sleep(rng.choice((0.0, 1.0, 20.0)))
            case "lose":
                pod = rng.choice(sorted(witness.pods.values(), key=lambda one: one.spec.hostname))
                witness.lose(pod)
                await world.delete(Pod, pod.metadata.name, grace_period_s=0)
            case "scale":
                witness.scale(disturbance.part, disturbance.size)
                kind = PodCliqueScalingGroup if case.parts[disturbance.part].cliques else PodClique
                await world.scale(kind, f"wl-0-{disturbance.part}", disturbance.size)
            case kind:
                await _edit(world, case, witness, f"edit-{number}" if kind == EDIT else "")


async def _edit(world: World, case: Case, witness: Witness, version: str) -> None:
    """Makes the templates of this version, or those of before the first edit."""
    if version != witness.version:
        witness.edit(version)
        patch = {"spec": {"template": {"cliques": case.manifest(version)["spec"]["template"]["cliques"]}}}
        await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)


async def _updated(case: Case) -> Witness:
    witness, rng = Witness(case, version=""), random.Random(case.seed)
    async with simulated() as cluster, operating(cluster) as world:
        world.nodes.start_s = lambda pod: rng.choice((0.1, 1.0, 3.0))
        await world.apply(case.manifest())
        await world.available("wl")
        witness.replicas = {name: part.replicas for name, part in case.parts.items()}
        await world.ready(_pods_of(witness))
        cache = Cache(world.client)
        cache.add(Pod, namespace=world.namespace)
        async with cache:
            await cache.wait_synced()
            witness.pods = {pod.metadata.uid: pod for pod in cache.list(Pod)}
            cache.on_event(Pod, witness.on_pod)
            await _edit(world, case, witness, NEW)
            witness.edits, witness.in_slices = 1, True
            await _disturb(world, case, witness)
            await updated(world, "wl", timeout_s=3600.0)
            await world.ready(_pods_of(witness))
            await world.quiet()
    return witness


def _pods_of(witness: Witness) -> int:
    return sum(witness.replicas[name] * max(1, len(part.cliques)) for name, part in witness.case.parts.items())


def check(case: Case) -> None:
    with without_logs():
        witness = run(_updated(case), seed=case.seed)
    assert witness.breaches == []
    twice = {unit: count for unit, count in witness.taken.items() if count > witness.edits + witness.removed[unit]}
    assert twice == {}, "a unit is taken once for each edit"
    roles = {role for role, _ in witness.taken}
    unchanged = {role for role, _ in witness.taken - witness.removed} - case.roles
    assert not unchanged, "parts that did not change are not touched"
    assert case.roles <= roles or witness.edits > 1, "all parts that changed are updated"
    found = [pod for pod in witness.pods.values() if _role_unit(pod)[0] in case.roles and not witness.is_new(pod)]
    assert found == []
    assert len(witness.pods) == _pods_of(witness), "in the end the set has the pods of a fresh apply"


@st.composite
def sized(draw: st.DrawFn, *cliques: str, most: int = 6) -> Sized:
    replicas = draw(st.integers(1, most))
    minimum = draw(st.integers(1, replicas))
    most_down = draw(st.none() | st.integers(minimum, replicas))
    return Sized(replicas, minimum, most_down, draw(st.sampled_from((0, 0, 1))), cliques)


@st.composite
def disturbances(draw: st.DrawFn, *kinds: str) -> tuple[Disturbance, ...]:
    """At most three; a part is scaled once, because the test counts which of its units are new by their index."""
    found: list[Disturbance] = []
    for at_s in draw(st.lists(st.floats(0.1, 20.0), max_size=3)):
        kind, part = draw(st.sampled_from(kinds)), draw(st.sampled_from(("front", "prefill", "decode")))
        if kind != SCALE or all(one.part != part for one in found if one.kind == SCALE):
            found.append(Disturbance(at_s, kind, part, draw(st.integers(1, 6))))
    return tuple(found)


@st.composite
def cases(draw: st.DrawFn, *kinds: str) -> Case:
    parts = {"front": draw(sized()), "prefill": draw(sized("p", most=4)), "decode": draw(sized("d", "e", most=4))}
    changed = draw(st.sets(st.sampled_from(sorted(parts)), min_size=1))
    disturbed = draw(disturbances(*kinds))
    return Case(parts, frozenset(changed), disturbed, draw(st.booleans()), draw(st.integers(0, 1000)))


@settings(max_examples=12, derandomize=True)
@given(case=cases(RESTART, PAUSE))
def test_laws_of_a_coherent_update(case: Case) -> None:
    check(case)


@settings(max_examples=12, derandomize=True)
@given(case=cases(RESTART, PAUSE, LOSE, SCALE, EDIT, UNDO))
@example(
    Case(
        {"front": Sized(5, 4), "prefill": Sized(4, 2, None, 0, ("p",)), "decode": Sized(3, 3, None, 0, ("d", "e"))},
        frozenset({"front", "prefill", "decode"}),
        (Disturbance(11.07262005982082, UNDO), Disturbance(11.07262005982082, LOSE)),
        in_place=True,
        seed=173,
    )
)
def test_laws_of_a_coherent_update_that_is_disturbed(case: Case) -> None:
    check(case)


@pytest.mark.soak
@settings(max_examples=400)
@given(case=cases(RESTART, PAUSE, LOSE, SCALE, EDIT, UNDO))
def test_laws_of_many_coherent_updates(case: Case) -> None:
    check(case)
