"""ElasticQuotas and Queues as they are found: which is meant, whose pods it takes, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from grove.api import kai
from grove.api.koordinator import QUOTA_NAMESPACES, QUOTA_TOTAL, ROOT_QUOTA, ElasticQuota
from grove.scheduler.policy.quota_objects import ELASTIC, read_queues


def quota(name: str, namespace: str = "teams", age: int = 1, **annotations: str) -> ElasticQuota:
    meta = {
        "name": name,
        "namespace": namespace,
        "creationTimestamp": f"2026-01-0{age}T00:00:00Z",
        "annotations": {
            {"namespaces": QUOTA_NAMESPACES, "total": QUOTA_TOTAL}[key]: value for key, value in annotations.items()
        },
    }
    return msgspec.convert({"metadata": meta, "spec": {"max": {"cpu": "1"}}}, ElasticQuota)


def queue(**spec: Any) -> kai.Queue:
    return msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, kai.Queue)


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(
            quota("a", namespaces="x, y"), "namespaces: 'x, y' is not a JSON list", id="names that are no list"
        ),
        pytest.param(
            quota("a", total="much"), "'much' is not a JSON object of resources", id="a total that is no object"
        ),
        pytest.param(queue(preemptMinRuntime="soon"), "preemptMinRuntime: 'soon' is not a duration", id="a runtime"),
        pytest.param(
            queue(resources={"gpu": {"quota": -2}}),
            "resources.gpu.quota: -2 is negative",
            id="less than none",
        ),
        pytest.param(queue(resources={"gpu": {"quota": -1, "limit": -1}}), "", id="-1 is no limit"),
        pytest.param(queue(preemptMinRuntime="5m"), "", id="a runtime that can be read"),
    ],
)
def test_what_is_wrong_with_a_queue_is_reported(found: ElasticQuota | kai.Queue, want: str) -> None:
    read = read_queues(*(([found], []) if isinstance(found, ElasticQuota) else ([], [found])))
    assert list(read.tree.faults.values()) == ([want] if want else [])


@pytest.mark.parametrize(
    ("quotas", "want"),
    [
        pytest.param([quota("a", namespaces='["prod"]')], f"{ELASTIC}/a", id="a quota that lists it"),
        pytest.param(
            [quota("a", namespaces='["prod"]'), quota("prod", "prod", 2)], f"{ELASTIC}/prod", id="its own wins"
        ),
        pytest.param([quota("prod", "elsewhere")], "", id="the same name in another namespace is not its own"),
        pytest.param([quota(ROOT_QUOTA, namespaces='["prod"]')], "", id="the root takes nobody's pods"),
    ],
)
def test_a_namespace_belongs_to_a_quota(quotas: list[ElasticQuota], want: str) -> None:
    assert read_queues(quotas, []).queue_of("prod", {}) == want


def test_of_two_quotas_of_one_name_the_elder_is_taken_and_the_other_reported() -> None:
    read = read_queues([quota("a", "young", 2), quota("a", "old", 1)], [])
    assert len(read.tree.queues) == 1
    assert list(read.tree.faults.values()) == ["there is another ElasticQuota a, in namespace young"]
