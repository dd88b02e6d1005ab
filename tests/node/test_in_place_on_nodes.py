"""Updates in place on real nodes: a kubelet stops the container and starts the new image, in the same pod."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from grove.api.conditions import IN_PLACE
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.http import HttpClient
from grove.local.nodes.cluster import RealCluster
from tests.node.images import program_image
from tests.node.seeing import Seen, eventually, pods_of, served
from tests.support.manifests import clique, pcs

NEXT = "docker.io/library/grove-serve:next"
MISSING = "docker.io/library/grove-serve:missing"

Pods = Callable[[], Awaitable[list[Seen]]]


@pytest.fixture
def pods(client: HttpClient, namespace: str) -> Pods:
    return lambda: pods_of(client, namespace, "web-0-engine")


@pytest.fixture
def next_image(nodes: RealCluster, tmp_path: Path) -> None:
    nodes.import_image(program_image("serve.go", NEXT, tmp_path))


def web(namespace: str) -> Json:
    """Two engines that become ready by themselves, of which one is enough."""
    spec = served()
    spec["containers"][0]["env"] = [{"name": "READY_AFTER", "value": "500ms"}]
    found = pcs("web", clique("engine", 2, min_available=1, **spec), namespace=namespace)
    found["spec"]["updateStrategy"] = {"inPlace": "IfPossible"}
    return found


async def with_image(client: HttpClient, namespace: str, image: str) -> None:
    cliques = web(namespace)["spec"]["template"]["cliques"]
    cliques[0]["spec"]["podSpec"]["containers"][0]["image"] = image
    await client.patch(PodCliqueSet, "web", {"spec": {"template": {"cliques": cliques}}}, namespace)


def places(pods: list[Seen]) -> dict[str, str]:
    return {one.pod["metadata"]["uid"]: one.node for one in pods}


def containers(pods: list[Seen]) -> dict[str, str]:
    return {one.name: one.pod["status"]["containerStatuses"][0]["containerID"] for one in pods}


async def all_ready(pods: Pods, image: str) -> list[Seen]:
    """The pods, once both are ready with this image."""

    async def ready() -> list[Seen]:
        found = await pods()
        images = {one.pod["spec"]["containers"][0]["image"] for one in found}
        return found if len(found) == 2 and all(one.is_ready for one in found) and images == {image} else []

    found: list[Seen] = await eventually(ready, 180.0)
    return found


async def test_a_container_restarts_with_the_new_image_in_the_same_pod(
    client: HttpClient, namespace: str, pods: Pods, next_image: None
) -> None:
    made = await client.create(PodCliqueSet, web(namespace))
    old = made.spec.template.cliques[0].spec.pod_spec["containers"][0]["image"]
    before = await all_ready(pods, old)
    began = {one.name: await one.began() for one in before}

    await with_image(client, namespace, NEXT)
    after = await all_ready(pods, NEXT)

    assert places(after) == places(before)
    assert not set(containers(after).values()) & set(containers(before).values())
    assert [(one.condition(IN_PLACE) or ("",))[0] for one in after] == ["True", "True"]
    assert [one.pod["status"]["containerStatuses"][0]["restartCount"] for one in after] == [1, 1]
    for one in after:
        assert await one.began() > began[one.name], "another process serves"


async def test_an_image_that_does_not_exist_takes_one_pod_and_can_be_undone(
    client: HttpClient, namespace: str, pods: Pods
) -> None:
    made = await client.create(PodCliqueSet, web(namespace))
    old = made.spec.template.cliques[0].spec.pod_spec["containers"][0]["image"]
    before = await all_ready(pods, old)

    await with_image(client, namespace, MISSING)

    async def one_waits() -> bool:
        found = await pods()
        waiting = [one for one in found if "waiting" in one.state("main")]
        return len(waiting) == 1 and sum(one.is_ready for one in found) == 1

    await eventually(one_waits, 180.0)
    await with_image(client, namespace, old)
    assert places(await all_ready(pods, old)) == places(before)


async def test_requests_that_an_autoscaler_changes_in_place_stay(
    client: HttpClient, namespace: str, pods: Pods
) -> None:
    """As VPA asks with `InPlaceOrRecreate`. The kubelet changes the container, and the operator keeps the pod."""
    made = await client.create(PodCliqueSet, web(namespace))
    image = made.spec.template.cliques[0].spec.pod_spec["containers"][0]["image"]
    before = await all_ready(pods, image)
    resized = before[0]
    change = {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "70m"}
    await client.patch(Pod, resized.name, [change], namespace, subresource="resize")

    async def is_resized() -> bool:
        statuses = [pod.pod["status"]["containerStatuses"][0] for pod in await pods() if pod.name == resized.name]
        return [status["resources"]["requests"]["cpu"] for status in statuses] == ["70m"]

    await eventually(is_resized, 180.0)
    await client.patch(PodClique, "web-0-engine", {"spec": {"replicas": 3}}, namespace)

    async def three_ready() -> list[Seen]:
        found = await pods()
        return found if len(found) == 3 and all(pod.is_ready for pod in found) else []

    after = {pod.name: pod for pod in await eventually(three_ready, 180.0)}
    assert places(before).items() <= places(list(after.values())).items()
    assert containers(before).items() <= containers(list(after.values())).items(), "no container was restarted"
    requests = {name: pod.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for name, pod in after.items()}
    assert requests.pop(resized.name) == "70m"
    assert set(requests.values()) == {"50m"}
