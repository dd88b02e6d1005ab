"""Sets that come, change and go, while other things break. What the API server has is the truth.

A change that is refused or gets lost is counted and forgotten, as by a user who tries again later.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from tests.support.manifests import IMAGE, clique, group, pcs

from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, KubeError

NAMESPACE, FRESH = "grove-chaos", "grove-fresh"
MOST_SETS = 12
TOPOLOGY = "fake-nodes"


def _gpus(count: int) -> Json:
    amounts = {"cpu": "100m", "nvidia.com/gpu": str(count)}
    resources = {"requests": amounts, "limits": {"nvidia.com/gpu": str(count)}}
    return {"containers": [{"name": "main", "image": IMAGE, "resources": resources}]}


def drawn_set(name: str, rng: random.Random) -> Json:
    """One of the shapes people run: alone, leader and workers in order, prefill and decode close together."""
    # Preferred only: a scaled gang that must be where its base gang is may find that full, and rightly wait for ever.
    pack = {"required": "zone", "preferred": rng.choice(("block", "rack"))}
    close = {"topologyConstraint": {"topologyName": TOPOLOGY, "pack": pack}}
    shapes = [
        pcs(
            name,
            clique("web", rng.randint(1, 3), min_available=1, **_gpus(1)),
            replicas=rng.randint(1, 2),
            namespace=NAMESPACE,
        ),
        pcs(
            name,
            clique("lead", 1, **_gpus(1)),
            clique("work", 2, **_gpus(2)),
            namespace=NAMESPACE,
            groups=[group("inst", "lead", "work", replicas=rng.randint(1, 3))],
            startup="CliqueStartupTypeInOrder",
            termination_delay="20s",
        ),
        pcs(
            name,
            clique("router", 1),
            clique("prefill", 2, **_gpus(2)),
            clique("decode", 2, **_gpus(1)),
            namespace=NAMESPACE,
            groups=[group("pair", "prefill", "decode", replicas=rng.randint(1, 2))],
            **close,
        ),
    ]
    return rng.choice(shapes)


class Load:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._count = 0
        self.done, self.refused = Counter[str](), Counter[str]()

    async def change(self, action: str, dice: int) -> None:
        rng = random.Random(dice)
        try:
            if await getattr(self, f"_{action}")(rng):
                self.done[action] += 1
        except (KubeError, TimeoutError):
            self.refused[action] += 1

    async def add_last(self, count: int = 3) -> None:
        """New sets when everything is over: the system must not only stand but work."""
        for number in range(count):
            manifest = drawn_set(f"last{number}", random.Random(number))
            for _ in range(60):
                try:
                    await self._client.create(PodCliqueSet, manifest)
                    break
                except AlreadyExists:
                    break
                except KubeError:
                    await asyncio.sleep(0.5)  # admission may still be on its way back

    async def count(self) -> int:
        return len(await self._names(PodCliqueSet))

    async def _create(self, rng: random.Random) -> bool:
        if len(await self._names(PodCliqueSet)) >= MOST_SETS:
            return False
        self._count += 1
        await self._client.create(PodCliqueSet, drawn_set(f"s{self._count}", rng))
        return True

    async def _delete(self, rng: random.Random) -> bool:
        if not (names := await self._names(PodCliqueSet)):
            return False
        await self._client.delete(PodCliqueSet, rng.choice(names), NAMESPACE)
        return True

    async def _update(self, rng: random.Random) -> bool:
        if not (names := await self._names(PodCliqueSet)):
            return False
        live: Json = await self._client.get(PodCliqueSet.RESOURCE, name := rng.choice(names), NAMESPACE)
        cliques = live["spec"]["template"]["cliques"]
        rng.choice(cliques)["labels"] = {"version": str(rng.randint(1, 9))}
        await self._client.patch(PodCliqueSet, name, {"spec": {"template": {"cliques": cliques}}}, NAMESPACE)
        return True

    async def _scale_set(self, rng: random.Random) -> bool:
        return await self._scale(PodCliqueSet, rng, rng.randint(0, 3))

    async def _scale_group(self, rng: random.Random) -> bool:
        return await self._scale(PodCliqueScalingGroup, rng, rng.randint(1, 3))

    async def _scale_clique(self, rng: random.Random) -> bool:
        return await self._scale(PodClique, rng, rng.randint(1, 3), ending="-web")

    async def _scale(self, kind: type, rng: random.Random, replicas: int, ending: str = "") -> bool:
        names = [name for name in await self._names(kind) if name.endswith(ending)]
        if not names:
            return False
        patch = {"spec": {"replicas": replicas}}
        await self._client.patch(kind, rng.choice(names), patch, NAMESPACE, subresource="scale")
        return True

    async def _names(self, kind: type) -> list[str]:
        page = await self._client.list(kind, NAMESPACE)
        return sorted(obj.metadata.name for obj in page.items if not obj.metadata.is_deleting)
