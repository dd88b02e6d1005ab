"""The manifests of samples/engines: each comes up whole, and every host name in it is that of a pod."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from grove.api.core import Pod
from grove.api.meta import Json
from grove.demo.scenario import load_manifests
from grove.demo.simulation import Ground, create_beside, simulate
from grove.plan.world import World, shaped
from grove.sim.loop import run

ENGINES = Path(__file__).parents[2] / "samples" / "engines"
MANIFESTS = sorted(ENGINES.glob("*/manifest.yaml"))
HOST = re.compile(r"[\w$()-]+\.\$\(GROVE_HEADLESS_SERVICE\)")


def ids(path: Path) -> str:
    return path.parent.name


@pytest.mark.parametrize("manifest", MANIFESTS, ids=ids)
def test_it_comes_up_whole(manifest: Path) -> None:
    outcome = run(simulate(Ground(tuple(shaped(16))), load_manifests(manifest), None, seed=1, patience_s=600), seed=1)
    assert outcome.failed == ""
    assert outcome.is_whole
    assert outcome.summary.ready == outcome.summary.pods > 0
    assert all(gang.phase == "Running" for gang in outcome.summary.gangs)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=ids)
def test_every_host_name_is_that_of_a_pod(manifest: Path) -> None:
    """Names stand in arguments and environment variables; the kubelet puts the values of variables into them."""
    objects = load_manifests(manifest)
    (system,) = (one for one in objects if one["kind"] == "PodCliqueSet")

    async def play() -> list[Any]:
        async with World(shaped(16), seed=1) as world:
            for one in objects:
                if one is not system:
                    await create_beside(world, one)
            await world.apply(system)
            assert await world.until(lambda: world.is_settled(system["metadata"]["name"]))
            page = await world.client.list(Pod.RESOURCE, "default")
            return list(page.items)

    pods = run(play(), seed=1)
    hosts = {f"{pod['spec']['hostname']}.{_subdomain(pod)}" for pod in pods}
    named = [name for pod in pods for container in pod["spec"]["containers"] for name in _names(pod, container)]
    assert {name for name in named if name not in hosts} == set()
    assert bool(named) == bool(HOST.search(manifest.read_text()))


def _subdomain(pod: Json) -> str:
    """The name of the replica's headless Service as pods get it."""
    (value,) = (one["value"] for one in pod["spec"]["containers"][0]["env"] if one["name"] == "GROVE_HEADLESS_SERVICE")
    assert value.startswith(f"{pod['spec']['subdomain']}.")
    return str(value)


def _names(pod: Json, container: Json) -> list[str]:
    values: dict[str, str] = {}
    for one in container["env"]:
        source = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        label = re.fullmatch(r"metadata\.labels\['(.*)'\]", source)
        found = pod["metadata"]["labels"][label[1]] if label else one.get("value", "")
        values[one["name"]] = _expanded(found, values)
    texts = [_expanded(one, values) for one in container.get("args", [])]
    service = re.escape(values["GROVE_HEADLESS_SERVICE"])
    return re.findall(rf"[\w-]+\.{service}", " ".join([*texts, *values.values()]))


def _expanded(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], found[0]), text)
