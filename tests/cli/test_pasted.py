"""What advice tells a person to paste, pasted: a shell with kubectl runs it against a real API server, and it helps."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.support.asking import World, server
from tests.support.shell import Shell

from grove.answers.explain import explain_answer
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.diagnosis.advice import Advice
from grove.scheduler.model import answers as kinds


async def advised(world: World) -> dict[str, Advice]:
    """By kind, what is advised for a gang of five whole nodes that shall be in one rack of four."""
    await world.apply(world.system("wide", cliques=[server("worker", 5, 8)]))
    await world.refused("wide-0")
    found = await explain_answer(world.client, world.namespace, "wide", now=world.now)
    [gang] = found.data["gangs"]
    return {one.kind: one for one in gang.advice}


@pytest.mark.parametrize(
    ("kind", "in_place"),
    [
        pytest.param(kinds.RELAX, False, id="another level: deleted and applied again"),
        pytest.param(kinds.FEWER_PODS, False, id="a lower minimum: deleted and applied again"),
        pytest.param(kinds.SMALLER_PODS, True, id="smaller pods: in place"),
    ],
)
async def test_the_command_of_an_advice_makes_the_gang_run(
    world: World, shell: Shell | None, kind: str, in_place: bool
) -> None:
    if shell is None:
        pytest.skip("kubectl needs a server that answers over HTTP")
    advice = (await advised(world))[kind]
    assert advice.in_place == in_place
    before: Json = await world.client.get(PodCliqueSet.RESOURCE, "wide", world.namespace)
    await shell.run(advice.command)

    async def changed() -> Any:
        raw: Json = await world.client.get(PodCliqueSet.RESOURCE, "wide", world.namespace)
        return raw if raw["spec"] != before["spec"] else None

    after = await world.cluster.eventually(changed, 60)
    await scheduled(world)
    assert (after["metadata"]["uid"] == before["metadata"]["uid"]) == in_place
    for part in ("name", "namespace"):
        assert after["metadata"][part] == before["metadata"][part]
    assert without(after["spec"]) == without(before["spec"]), "nothing else changes"


async def scheduled(world: World) -> None:
    async def placed() -> bool:
        found = await explain_answer(world.client, world.namespace, "wide", now=world.now)
        return bool(found.data["gangs"]) and all(one.state != "waiting" for one in found.data["gangs"])

    await world.cluster.eventually(placed, 60)


def without(spec: Json) -> str:
    """A spec as text without the lines that advice is about."""

    gone = ("required:", "preferred:", "minAvailable:", "nvidia.com/gpu:")
    return "\n".join(line for line in yaml.safe_dump(spec).splitlines() if not line.strip().startswith(gone))
