"""The unit of scale: selectors of groups and sets match one pod for each unit, and no running pod is touched for it."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs, worked_example
from tests.support.observed import group_of, pod, set_of
from tests.support.operating import World
from tests.support.workloads import uids

from grove.api import labels as key
from grove.api import labelsets
from grove.api.core import Pod
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.shared.layout import group_scale_selector, set_scale_selector


async def matched(world: World, selector: str) -> list[str]:
    """Host names of the pods that an autoscaler would count."""
    page = await world.client.list(Pod, world.namespace, labels=selector)
    return sorted(pod.spec.hostname for pod in page.items)


async def group_selector(world: World, name: str) -> str:
    return (await world.get(PodCliqueScalingGroup, name)).status.selector


async def set_selector(world: World, name: str) -> str:
    return (await world.get(PodCliqueSet, name)).status.hpa_pod_selector


async def test_a_group_and_a_set_of_many_pods_match_one_pod_a_unit(world: World) -> None:
    await world.apply(worked_example(replicas=2))
    await world.available("demo")

    assert await matched(world, await group_selector(world, "demo-0-grp")) == [
        "demo-0-grp-0-lead-0",
        "demo-0-grp-1-lead-0",
        "demo-0-grp-2-lead-0",
    ]
    assert await matched(world, await set_selector(world, "demo")) == ["demo-0-router-0", "demo-1-router-0"]


async def test_the_annotation_names_another_clique_and_running_pods_follow_it_at_once(world: World) -> None:
    manifest = pcs(
        "demo", clique("lead"), clique("work", 2), groups=[group("grp", "lead", "work", replicas=2)], replicas=2
    )
    await world.apply(manifest)
    await world.available("demo")
    assert await matched(world, await set_selector(world, "demo")) == [
        "demo-0-grp-0-lead-0",
        "demo-1-grp-0-lead-0",
    ]
    before = await uids(world)

    annotated = {"metadata": {"annotations": {key.METRICS_CLIQUE: "work"}}}
    await world.client.patch(PodCliqueSet, "demo", annotated, world.namespace)
    configs = [group("grp", "lead", "work", replicas=2, annotations={key.METRICS_CLIQUE: "work"})]
    change = {"spec": {"template": {"podCliqueScalingGroups": configs}}}
    await world.client.patch(PodCliqueSet, "demo", change, world.namespace)

    async def follows() -> bool:
        of_groups = [await group_selector(world, f"demo-{replica}-grp") for replica in range(2)]
        return all("clique-name=work" in one for one in (await set_selector(world, "demo"), *of_groups))

    await world.eventually(follows)
    assert await matched(world, await set_selector(world, "demo")) == [
        "demo-0-grp-0-work-0",
        "demo-1-grp-0-work-0",
    ]
    assert await matched(world, await group_selector(world, "demo-1-grp")) == [
        "demo-1-grp-0-work-0",
        "demo-1-grp-1-work-0",
    ]
    assert await uids(world) == before


async def test_pods_of_an_older_operator_stay_and_the_selector_waits_for_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = labelsets.pod
    with monkeypatch.context() as older:
        older.setattr(labelsets, "pod", lambda *facts: {k: v for k, v in newer(*facts).items() if k != key.CLIQUE_NAME})
        await world.apply(worked_example(replicas=1))
        await world.available("demo")
    before = await uids(world)
    await world.restart()
    await world.quiet()

    assert await uids(world) == before
    assert len(await matched(world, await group_selector(world, "demo-0-grp"))) == 9, "every pod, as it was"
    assert len(await matched(world, await set_selector(world, "demo"))) == 11

    for one in await world.pods():
        await world.client.delete(Pod, one.metadata.name, world.namespace)

    async def replaced() -> bool:
        # Two statuses of two kinds: neither is written before the other for certain.
        units = await matched(world, await group_selector(world, "demo-0-grp"))
        return len(units) == 3 and await matched(world, await set_selector(world, "demo")) == ["demo-0-router-0"]

    await world.eventually(replaced)


PAIR = pcs("d", clique("lead"), clique("work", 2), groups=[group("g", "work", "lead", replicas=2)])
ROUTED = pcs("d", clique("lead"), clique("router"), groups=[group("g", "lead")])


@pytest.mark.parametrize(
    ("manifest", "annotations", "want"),
    [
        pytest.param(ROUTED, {}, "router", id="the first standalone clique stands for a replica"),
        pytest.param(ROUTED, {key.METRICS_CLIQUE: "lead"}, "lead", id="the set names another"),
        pytest.param(ROUTED, {key.METRICS_CLIQUE: "nobody"}, "router", id="a name that no clique has is not heard"),
        pytest.param(PAIR, {}, "lead", id="without standalone cliques the first group's"),
    ],
)
def test_the_clique_that_stands_for_a_replica_of_a_set(manifest: dict, annotations: dict, want: str) -> None:  # type: ignore[type-arg]
    template = set_of(manifest).spec.template
    assert template.metrics_clique(annotations) == want


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({}, "lead", id="the first in the template, whatever order the group names them in"),
        pytest.param({key.METRICS_CLIQUE: "work"}, "work", id="the one the group names"),
        pytest.param({key.METRICS_CLIQUE: "router"}, "lead", id="a clique outside the group is not heard"),
    ],
)
def test_the_clique_that_stands_for_a_replica_of_a_group(annotations: dict[str, str], want: str) -> None:
    config = group("g", "work", "lead", annotations=annotations)
    manifest = pcs("d", clique("lead"), clique("work", 2), clique("router"), groups=[config])
    template = set_of(manifest).spec.template
    assert template.metrics_clique_of(template.pod_clique_scaling_groups[0]) == want


def test_one_old_pod_that_would_stand_for_a_unit_keeps_the_old_selector() -> None:
    demo = set_of(PAIR)
    config, live = demo.spec.template.pod_clique_scaling_groups[0], group_of(demo, "d-0-g")
    every = labelsets.group_selector("d", "d-0-g")

    assert group_scale_selector(demo, live, config, lambda fqn: [pod(fqn, 0)]) == every
    assert group_scale_selector(demo, live, config, lambda fqn: [pod(fqn, 1)]) != every, "only first pods count"
    assert set_scale_selector(demo, lambda fqn: [pod(fqn, 0)]) == labelsets.set_selector("d")


def test_a_selector_once_published_is_not_taken_back() -> None:
    demo = set_of(PAIR)
    config = demo.spec.template.pod_clique_scaling_groups[0]
    wanted = labelsets.group_unit_selector("d", "d-0-g", "lead")
    live = group_of(demo, "d-0-g", selector=wanted)
    assert group_scale_selector(demo, live, config, lambda fqn: [pod(fqn, 0)]) == wanted
