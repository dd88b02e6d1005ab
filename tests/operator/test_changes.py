"""Changes of a set that reach its children in place: no pod is touched, and what live objects own stays theirs."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World

from grove.api.core import HorizontalPodAutoscaler, Service
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = [pytest.mark.older_too, pytest.mark.real_in("soak")]

BOUNDS: Json = {"minReplicas": 1, "maxReplicas": 4}


def demo(*, scale: Json | None = None, group_scale: Json | None = None, replicas: int = 1, **more: object) -> Json:
    members = group("g", "m", replicas=replicas, scale=group_scale)
    return pcs("demo", clique("w", replicas, min_available=1, scale=scale), clique("m"), groups=[members], **more)


async def change(world: World, manifest: Json) -> None:
    """Replaces the set's template, as `kubectl apply` of another file would."""
    patch = {"spec": {"template": manifest["spec"]["template"]}}
    await world.client.patch(PodCliqueSet, "demo", patch, world.namespace)


@pytest.mark.real_in("test")
async def test_autoscalers_come_change_and_go_with_their_scale_config(world: World) -> None:
    await world.apply(demo(scale=BOUNDS))
    await world.available("demo")
    pods = {pod.metadata.uid for pod in await world.pods()}

    async def bounds() -> dict[str, tuple[int, int]]:
        found = await world.list(HorizontalPodAutoscaler)
        return {one.metadata.name: (one.spec.min_replicas, one.spec.max_replicas) for one in found}

    async def are(wanted: dict[str, tuple[int, int]]) -> bool:
        return await bounds() == wanted

    assert await bounds() == {"demo-0-w": (1, 4)}
    await change(world, demo(scale={**BOUNDS, "maxReplicas": 9}, group_scale=BOUNDS))
    await world.eventually(lambda: are({"demo-0-w": (1, 9), "demo-0-g": (1, 4)}))
    # A merge patch removes only what it names.
    gone = demo(group_scale=BOUNDS)
    gone["spec"]["template"]["cliques"][0]["spec"]["autoScalingConfig"] = None
    await change(world, gone)
    await world.eventually(lambda: are({"demo-0-g": (1, 4)}))

    await world.available("demo")
    assert {pod.metadata.uid for pod in await world.pods()} == pods


async def test_labels_and_annotations_of_the_set_are_mirrored_on_its_gangs(world: World) -> None:
    await world.apply(demo(metadata={"labels": {"team": "a", "grove.io/mine": "x"}, "annotations": {"note": "1"}}))
    await world.available("demo")
    gang = await world.get(PodGang, "demo-0")
    assert (gang.metadata.labels["team"], gang.metadata.annotations["note"]) == ("a", "1")
    assert "grove.io/mine" not in gang.metadata.labels

    meta = {"labels": {"team": None, "tier": "b"}, "annotations": {"note": "2"}}
    await world.client.patch(PodCliqueSet, "demo", {"metadata": meta}, world.namespace)

    async def mirrored() -> bool:
        now = (await world.get(PodGang, "demo-0")).metadata
        return (now.labels.get("team"), now.labels.get("tier"), now.annotations.get("note")) == (None, "b", "2")

    await world.eventually(mirrored)
    assert (await world.get(PodGang, "demo-0")).metadata.labels["app.kubernetes.io/component"] == "podgang"


@pytest.mark.real_in("test")
async def test_services_follow_their_config(world: World) -> None:
    await world.apply(demo())
    await world.available("demo")

    await change(world, demo(headlessServiceConfig={"publishNotReadyAddresses": False}))

    async def followed() -> bool:
        return (await world.get(Service, "demo-0")).spec.publish_not_ready_addresses is False

    await world.eventually(followed)


async def test_replicas_of_a_template_count_for_new_objects_only(world: World) -> None:
    await world.apply(demo())
    await world.available("demo")

    await change(world, demo(replicas=2))
    await world.available("demo")
    assert await world.hostnames() == ["demo-0-g-0-m-0", "demo-0-w-0"]
    await world.scale(PodCliqueSet, "demo", 2)
    await world.available("demo", 2)

    sizes = [(await world.get(PodClique, f"demo-{replica}-w")).spec.replicas for replica in (0, 1)]
    replicas = [(await world.get(PodCliqueScalingGroup, f"demo-{replica}-g")).spec.replicas for replica in (0, 1)]
    assert (sizes, replicas) == ([1, 2], [1, 2])
