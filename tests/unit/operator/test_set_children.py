"""What becomes of a set's children is decided from values: which replicas go, what waits for pods, what is compared."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import objects
from tests.support.manifests import clique, pcs
from tests.support.observed import set_of

from grove.api.core import HorizontalPodAutoscaler, Pod, Secret, Service
from grove.api.meta import Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.podcliqueset.plan import ChildrenPlan, ObservedChildren, plan_set_children

TOKEN, OLD_TOKEN = "d-ic-sat", "d-initc-sa-token-secret"


def a_set(*, ordered: bool = False, replicas: int = 1) -> PodCliqueSet:
    order = {"cliqueStartupType": "CliqueStartupTypeInOrder"} if ordered else {}
    return set_of(pcs("d", clique("a"), clique("b"), replicas=replicas, **order))


def part(kind: type[Object], name: str, *, deleting: bool = False) -> Object:
    meta: dict[str, Any] = {"name": name, "namespace": "default"}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.convert({"metadata": meta}, kind)


def pod_with_secrets(replica: int, *secrets: str) -> Pod:
    volumes = [{"name": name, "secret": {"secretName": name}} for name in secrets]
    spec = {"volumes": [{"name": "scratch"}, *volumes]}
    return objects.pod(f"d-{replica}-a-x", spec=spec, labels={"grove.io/podcliqueset-replica-index": str(replica)})


def planned(
    pcs_: PodCliqueSet, *parts: Object, secrets: tuple[str, ...] = (), pods: tuple[Pod, ...] = (), domains: bool = False
) -> ChildrenPlan:
    return plan_set_children(pcs_, ObservedChildren(parts, secrets, lambda: pods, domains))


@pytest.mark.parametrize(
    ("parts", "surplus"),
    [
        pytest.param([part(PodClique, "d-0-a"), part(Service, "d-0")], set(), id="what is wanted stays"),
        pytest.param([part(PodClique, "d-1-a")], {1}, id="a clique that is left of a replica"),
        pytest.param([part(Service, "d-2")], {2}, id="a Service that is left of a replica"),
        pytest.param([part(PodCliqueScalingGroup, "d-10-g")], {10}, id="a group that is left of a replica"),
        pytest.param([part(PodClique, "d-1-a", deleting=True)], set(), id="what is going is not deleted again"),
        pytest.param([part(Service, "d-front")], set(), id="what is of all replicas"),
    ],
)
def test_replicas_beyond_those_wanted_go_while_something_of_them_stands(parts: list[Object], surplus: set[int]) -> None:
    assert planned(a_set(), *parts).surplus == surplus


@pytest.mark.parametrize(
    ("ordered", "secrets", "mounted", "in_use", "kept"),
    [
        pytest.param(True, (TOKEN,), (TOKEN,), False, (), id="with a start order access is compared"),
        pytest.param(False, (TOKEN,), (TOKEN,), True, (), id="without one it waits for the last pod that reads it"),
        pytest.param(False, (TOKEN,), (OLD_TOKEN,), True, (), id="under whichever name it reads it"),
        pytest.param(False, (TOKEN,), ("own",), False, (), id="and for no other pod"),
        pytest.param(False, (), (TOKEN,), False, (), id="a token that is gone is waited for by nobody"),
        pytest.param(
            True, (TOKEN, OLD_TOKEN), (OLD_TOKEN,), False, (OLD_TOKEN,), id="the old token stays while mounted"
        ),
        pytest.param(True, (TOKEN, OLD_TOKEN), (TOKEN,), False, (), id="and goes when it is not"),
    ],
)
def test_access_stays_while_a_pod_needs_it(
    ordered: bool, secrets: tuple[str, ...], mounted: tuple[str, ...], in_use: bool, kept: tuple[str, ...]
) -> None:
    plan = planned(a_set(ordered=ordered), secrets=secrets, pods=(pod_with_secrets(0), pod_with_secrets(0, *mounted)))
    assert (plan.access_in_use, plan.kept_secrets) == (in_use, kept)
    assert (Secret in plan.kinds) is not in_use
    assert {PodClique, PodCliqueScalingGroup, Service, HorizontalPodAutoscaler} <= plan.kinds.keys()


def test_replicas_with_pods_are_those_of_pods_that_are_still_there_and_count_only_for_domains() -> None:
    pods = (pod_with_secrets(0), pod_with_secrets(3), pod_with_secrets(3), pod_with_secrets(1))
    assert planned(a_set(), pods=pods, domains=True).replicas_with_pods == {0, 1, 3}
    assert planned(a_set(), pods=pods).replicas_with_pods == frozenset()


@pytest.mark.parametrize("ordered", [pytest.param(True, id="ordered"), pytest.param(False, id="not ordered")])
def test_the_pods_of_a_plain_set_are_not_asked_for(ordered: bool) -> None:
    def never() -> list[Pod]:
        raise AssertionError("a set may have thousands of them")

    secrets = (TOKEN,) if ordered else ()
    assert plan_set_children(a_set(ordered=ordered), ObservedChildren((), secrets, never)) == ChildrenPlan()
