"""A look at a set reads only replicas with a part that changed, and finds what reading all of them would find."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.observed import clique_of, group_of, set_of, set_seen

from grove.api.meta import Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.podcliqueset.status import ReplicaMemory, SetReplica

REPLICAS = 4
GENERATION = "gen"
FACTS = (
    "index",
    "scheduled_pods",
    "in_breach",
    "is_available",
    "is_reached",
    "is_carried_out",
    "is_updated",
    "cliques_updated",
    "groups_updated",
    "groups_held",
)


class Parts:
    """A set with its parts, as a cache shows them."""

    def __init__(self) -> None:
        manifest = pcs("d", clique("r", 2), clique("w"), groups=[group("g", "w", replicas=2)], replicas=REPLICAS)
        self.whole: PodCliqueSet = set_of(manifest)
        self.pcs = self.whole
        self.cliques = {name: clique_of(self.pcs, name) for name in (f"d-{index}-r" for index in range(REPLICAS))}
        self.groups = {name: group_of(self.pcs, name) for name in (f"d-{index}-g" for index in range(REPLICAS))}
        self.generation, self.hashes = GENERATION, dict(set_seen(self.pcs).hashes)

    def read(self, memory: ReplicaMemory) -> list[SetReplica]:
        cliques, groups = self.cliques.values(), self.groups.values()
        return memory.replicas(self.pcs, cliques, groups, dict(self.hashes), self.generation)

    def says(self, part: Any, **status: Any) -> None:
        known: dict[str, Any] = self.cliques if isinstance(part, PodClique) else self.groups
        known[part.metadata.name] = msgspec.structs.replace(part, status=msgspec.structs.replace(part.status, **status))


def facts(replicas: list[SetReplica]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(replica, name) for name in FACTS) for replica in replicas]


def _ready(parts: Parts, rng: Random) -> None:
    parts.says(rng.choice([*parts.cliques.values()]), ready_replicas=rng.randrange(3), updated_replicas=2)


def _whole(parts: Parts, rng: Random) -> None:
    part = rng.choice([*parts.groups.values()])
    parts.says(part, available_replicas=rng.randrange(3), current_pod_clique_set_generation_hash=parts.generation)


def _scheduled(parts: Parts, rng: Random) -> None:
    every: list[PodClique | PodCliqueScalingGroup] = [*parts.cliques.values(), *parts.groups.values()]
    parts.says(rng.choice(every), scheduled_replicas=rng.randrange(3))


def _new_template(parts: Parts, rng: Random) -> None:
    part = rng.choice([*parts.cliques.values()])
    hashes = {"current_pod_template_hash": parts.hashes["r"], "updated_replicas": 2}
    parts.says(part, **hashes, current_pod_clique_set_generation_hash=parts.generation)


def _gone(parts: Parts, rng: Random) -> None:
    known = rng.choice([parts.cliques, parts.groups])
    if len(known) > 1:
        known.pop(rng.choice(sorted(known)))


def _made_again(parts: Parts, rng: Random) -> None:
    index = rng.randrange(REPLICAS)
    parts.cliques[f"d-{index}-r"] = clique_of(parts.whole, f"d-{index}-r")
    parts.groups[f"d-{index}-g"] = group_of(parts.whole, f"d-{index}-g")


def _scaled(parts: Parts, rng: Random) -> None:
    spec = msgspec.structs.replace(parts.pcs.spec, replicas=rng.randrange(1, REPLICAS + 1))
    parts.pcs = _edited(parts.pcs, spec)


def _edited(pcs_: PodCliqueSet, spec: Any) -> PodCliqueSet:
    meta: Any = pcs_.metadata
    meta = msgspec.structs.replace(meta, generation=meta.generation + 1)
    return msgspec.structs.replace(pcs_, metadata=meta, spec=spec)


def _other_target(parts: Parts, rng: Random) -> None:
    parts.generation = rng.choice([GENERATION, "other"])


def _other_hash(parts: Parts, rng: Random) -> None:
    parts.hashes["r"] = rng.choice(["one", "two"])


CHANGES = [_ready, _whole, _scheduled, _new_template, _gone, _made_again, _scaled, _other_target, _other_hash]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_remembered_is_what_would_be_read(seed: int) -> None:
    rng, parts, memory = Random(seed), Parts(), ReplicaMemory()
    for _ in range(100):
        rng.choice(CHANGES)(parts, rng)
        assert facts(parts.read(memory)) == facts(parts.read(ReplicaMemory()))


@pytest.mark.parametrize("part", ["d-2-r", "d-2-g"])
def test_only_the_replica_of_the_part_that_changed_is_read_again(part: str) -> None:
    parts, memory = Parts(), ReplicaMemory()
    before = parts.read(memory)
    found: Object = {**parts.cliques, **parts.groups}[part]
    parts.says(found, scheduled_replicas=1)

    after = parts.read(memory)

    assert [new is old for old, new in zip(before, after, strict=True)] == [True, True, False, True]
    assert [new is old for old, new in zip(after, parts.read(memory), strict=True)] == [True] * REPLICAS
