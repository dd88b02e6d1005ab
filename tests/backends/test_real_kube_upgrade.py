"""A cluster is upgraded from 1.35 to 1.36 while gangs run, with the same etcd: running pods stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.kube_gangs import gang_plane, gang_world, hungry, is_bound, objects, says
from tests.support.manifests import pcs

from grove.api.core import Pod
from grove.api.podgang import PodGang
from grove.backends.kube_api import V1ALPHA1, V1ALPHA2, pod_group, workload

pytestmark = [pytest.mark.real, pytest.mark.waits]


async def test_gangs_of_the_old_version_run_on_and_new_ones_use_the_new(tmp_path: Path, fresh_name: str) -> None:
    with gang_plane(tmp_path, "1.35.4") as plane:
        async with gang_world(plane, fresh_name) as world:
            await world.apply(pcs("old", hungry("a", 2), hungry("b", 2)))
            await world.available("old")
            before = {pod.metadata.uid: pod.spec.node_name for pod in await world.pods()}
            await world.stop()
            # 1.36 cannot read what 1.35 stored, so an administrator deletes it before the upgrade.
            await world.client.delete(workload(V1ALPHA1), "old-0", fresh_name)
            plane.upgrade("1.36.3")

            await world.start()
            await world.apply(pcs("new", hungry("a", 2), hungry("b", 2)))
            await world.eventually(lambda: is_bound(world, 4, "new-0-a", "new-0-b"))

            gang = await world.get(PodGang, "new-0")
            assert gang.metadata.annotations["grove.io/gang-mapping"] == "v1alpha2/Merged"
            assert set(await objects(world, workload(V1ALPHA2))) == {"new-0"}
            assert set(await objects(world, pod_group(V1ALPHA2))) == {"new-0"}
            await world.eventually(lambda: says(world, "old-0", "False", "GangsNotOffered"))
            after = await world.pods("old-0-a") + await world.pods("old-0-b")
            assert {pod.metadata.uid: pod.spec.node_name for pod in after} == before

            await world.client.delete(Pod, after[0].metadata.name, fresh_name, grace_period_s=0)
            await world.eventually(lambda: is_bound(world, 8))  # its new pod, for itself
