"""`plan -f` takes every object of a file as if it were applied: volumes, Secrets, priority classes, quotas."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.asking import World, planned, server, text_of

from grove.answers.answer import Answer
from grove.api.core import Secret, StorageClass
from grove.api.meta import Json
from grove.plan.copying import copy_cluster
from grove.plan.given import given_in, read_known

pytestmark = pytest.mark.simulated


def claim(name: str = "models", **spec: Any) -> Json:
    asked = {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "10Gi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": asked}


def storage(name: str, provisioner: str = "nfs.example.com", mode: str = "Immediate", **meta: Any) -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, **meta},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def volume(name: str, size: str = "20Gi", **spec: Any) -> Json:
    own = {"capacity": {"storage": size}, "accessModes": ["ReadOnlyMany", "ReadWriteMany"], **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": own}


def secret(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def chat(world: World, *, mounts: str = "", env: tuple[str, str] = ("", ""), **template: Any) -> Json:
    """A set whose pods mount a claim and read a key of a Secret."""
    made = world.system("chat", cliques=[server("worker", 2, 8)], **template)
    spec = made["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
    if mounts:
        spec["volumes"] = [{"name": "models", "persistentVolumeClaim": {"claimName": mounts}}]
    if env[0]:
        ref = {"secretKeyRef": {"name": env[0], "key": env[1]}}
        spec["containers"][0]["env"] = [{"name": "TOKEN", "valueFrom": ref}]
    del made["metadata"]["namespace"]
    return {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", **made}


async def plan_of(world: World, *objects: Json) -> Answer:
    given = given_in(objects, world.namespace)
    referred = await read_known(world.client, given.sets, world.namespace)
    copy = await copy_cluster(world.client, None)
    return await planned(world, copy, world.namespace, given.sets, now=world.now, beside=given, referred=referred)


@pytest.mark.parametrize(
    ("objects", "code", "says"),
    [
        pytest.param([], 4, "PersistentVolumeClaim models does not exist", id="no claim"),
        pytest.param(
            [claim(storageClassName="shared-nfs")], 4, "StorageClass shared-nfs does not exist", id="no storage class"
        ),
        pytest.param([claim(storageClassName="nfs"), storage("nfs")], 0, "", id="provisioned at once"),
        pytest.param(
            [claim(storageClassName="nfs"), storage("nfs", mode="WaitForFirstConsumer")], 0, "", id="provisioned later"
        ),
        pytest.param(
            [claim(), storage("any", annotations={"storageclass.kubernetes.io/is-default-class": "true"})],
            0,
            "",
            id="the default class",
        ),
        pytest.param(
            [claim(storageClassName=""), volume("v0", "5Gi"), volume("v1", storageClassName="")],
            0,
            "",
            id="a volume of the file that is large enough",
        ),
        pytest.param(
            [claim(storageClassName=""), volume("v0", "5Gi")],
            4,
            "no free PersistentVolume has the 10Gi",
            id="a volume that is too small",
        ),
    ],
)
async def test_a_claim_of_the_file_is_bound_as_on_a_cluster(
    world: World, objects: list[Json], code: int, says: str
) -> None:
    answer = await plan_of(world, chat(world, mounts="models"), *objects)
    text = " ".join(text_of(answer, 300, world).split())
    assert answer.code == code, text
    assert says in text
    assert ("would not start" in text) == bool(says)


@pytest.mark.parametrize(
    ("in_file", "in_cluster", "code", "says"),
    [
        pytest.param([], [], 3, "Secret hf-token does not exist: create the Secret hf-token", id="nowhere"),
        pytest.param([secret("hf-token", token="x")], [], 0, "", id="in the file"),
        pytest.param([], [secret("hf-token", token="x")], 0, "", id="in the cluster"),
        pytest.param([secret("hf-token", other="x")], [], 3, "Secret hf-token has no key token", id="without the key"),
    ],
)
async def test_a_secret_may_be_in_the_file_or_in_the_cluster(
    world: World, in_file: list[Json], in_cluster: list[Json], code: int, says: str
) -> None:
    for one in in_cluster:
        data = dict.fromkeys(one["stringData"], "eA==")
        await world.client.create(Secret, {"metadata": {**one["metadata"], "namespace": world.namespace}, "data": data})
    answer = await plan_of(world, *in_file, chat(world, env=("hf-token", "token")))
    text = " ".join(text_of(answer, 300, world).split())
    assert (answer.code, says in text) == (code, True), text


async def test_priority_classes_and_quotas_of_the_file_count(world: World) -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    fits = await plan_of(world, high, chat(world, priorityClassName="high"))
    assert fits.code == 0
    refused = await plan_of(world, high, quota, chat(world, priorityClassName="high"))
    assert refused.code != 0


async def test_an_object_that_exists_is_changed_and_other_kinds_are_named(world: World) -> None:
    await world.client.create(StorageClass, storage("nfs", provisioner="kubernetes.io/no-provisioner"))
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    objects = [claim(storageClassName="nfs"), chat(world, mounts="models"), other]
    assert (await plan_of(world, *objects)).code == 4
    answer = await plan_of(world, storage("nfs"), *objects)
    assert answer.code == 0
    assert "not part of the plan: Deployment" in text_of(answer, 200, world)
    found = await world.client.get(StorageClass, "nfs")
    assert found.provisioner == "kubernetes.io/no-provisioner", "the cluster itself stays as it is"


async def test_a_priority_class_that_does_not_exist_is_named(world: World) -> None:
    """The API server refuses the pods, so the gang has none."""
    answer = await plan_of(world, chat(world, priorityClassName="urgent"))
    assert answer.code == 3
    [gang] = answer.data.gangs
    assert (gang.answer, gang.pods) == ("waits", ())
    assert gang.why == (
        "pods of chat-0-worker cannot be created: there is no PriorityClass urgent; "
        "create it, or correct priorityClassName"
    )
