"""Queues and quotas: whole gangs within limits at every level, leftovers lent and called back, smaller before gone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from tests.support.cluster import BUSY_S
from tests.support.fleet import GPU, KAI_QUEUE, QUOTA, device, elastic, install, kai_queue
from tests.support.gangs import Bench, Gang, gang, group, member_json, priorities, scheduling

from grove.api import kai
from grove.api.core import CustomResourceDefinition, Pod
from grove.api.koordinator import Device, ElasticQuota
from grove.api.meta import Object, Resource
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.scheduler.loop.diagnosis import LiveDiagnosis
from grove.scheduler.loop.following import optional_kinds
from grove.scheduler.loop.following.quota_follower import watch_queues
from grove.scheduler.loop.turn.placing import UnitPlacer
from grove.scheduler.model.reasons import MAY_CALL_BACK
from grove.scheduler.policy.waiting_queue import Order
from grove.sim.loop import run
from grove.sim.topology import HOST, Topology

pytestmark = pytest.mark.real_in("soak")


@pytest.fixture
async def quotas(cluster: Any) -> AsyncIterator[Any]:
    """Makes ElasticQuotas and Queues by short names of this test's own; takes them away at its end."""
    await install(cluster, "ElasticQuota", "Queue")
    made: list[tuple[Any, str, str]] = []

    async def make(body: dict, kind: Any = ElasticQuota) -> str:
        created = await cluster.client.create(kind, body)
        made.append((kind, created.metadata.name, created.metadata.namespace))
        return str(created.metadata.name)

    yield make
    for kind, name, namespace in made:
        await cluster.client.delete(kind, name, namespace)


def own(bench: Bench, name: str) -> str:
    return f"{bench.namespace}-{name}"


def team(bench: Bench, name: str) -> dict[str, str]:
    return {QUOTA: own(bench, name)}


@pytest.mark.real_in("test")
async def test_a_gang_over_its_limit_waits_whole_and_runs_when_it_is_raised(cluster: Any, quotas: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(6)
        await bench.seen(ElasticQuota, await quotas(elastic(own(bench, "a"), bench.namespace, 2, 3)), bench.namespace)
        await bench.apply(gang("big", group("w", 4), labels=team(bench, "a")))
        told = await bench.condition("big", status="False", reason="QuotaExceeded")
        assert f"queue {own(bench, 'a')} is limited to 3 {GPU}, uses 0, and 4 more are wanted" in told.message
        await bench.expect({})
        patch = {"spec": {"max": {GPU: 4}}}
        await bench.client.patch(ElasticQuota, own(bench, "a"), patch, bench.namespace)
        await bench.expect({"big/w": 4})


async def test_a_limit_above_holds_for_the_queues_below_together(cluster: Any, quotas: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(8)
        top = await quotas(elastic(own(bench, "top"), bench.namespace, 4, 4))
        await quotas(elastic(own(bench, "a"), bench.namespace, 4, 4, parent=top))
        await quotas(elastic(own(bench, "b"), bench.namespace, 0, 4, parent=top))
        await bench.apply(gang("one", group("w", 3), labels=team(bench, "a")))
        await bench.expect({"one/w": 3})
        await bench.apply(gang("two", group("w", 2), labels=team(bench, "b")))
        told = await bench.condition("two", status="False", reason="QuotaExceeded")
        assert f"queue {top} is limited to 4" in told.message
        assert f"by queue {own(bench, 'b')} below it" in told.message
        await bench.expect({"one/w": 3})
        for pod in await bench.pods():
            if pod.metadata.name.startswith("one"):
                await bench.client.delete(type(pod), pod.metadata.name, bench.namespace, grace_period_s=0)
        await bench.expect({"two/w": 2})


async def test_surplus_stays_out_where_the_limit_is_and_the_minimum_runs(cluster: Any, quotas: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(6)
        await bench.seen(ElasticQuota, await quotas(elastic(own(bench, "a"), bench.namespace, 2, 3)), bench.namespace)
        await bench.apply(gang("soft", group("w", 5, 2), labels=team(bench, "a")))
        await bench.expect({"soft/w": 3})
        await bench.condition("soft", status="True")


async def test_lent_capacity_is_called_back_and_the_borrower_gets_smaller_before_it_goes(
    cluster: Any, quotas: Any
) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(8)
        root = await quotas(elastic(own(bench, "root"), bench.namespace, 8, 8, total=8))
        await quotas(elastic(own(bench, "a"), bench.namespace, 4, 8, parent=root))
        await quotas(elastic(own(bench, "b"), bench.namespace, 4, 8, parent=root))
        a, b = team(bench, "a"), team(bench, "b")
        await bench.apply(gang("base", group("w", 3, 2), labels=a))
        await bench.expect({"base/w": 3})
        await bench.apply(gang("scaled", group("w", 3), labels=a, base="base"))
        await bench.expect({"base/w": 3, "scaled/w": 3})
        await bench.apply(gang("first", group("w", 3), labels=b))
        await bench.expect({"base/w": 2, "scaled/w": 3, "first/w": 3})
        await bench.apply(gang("second", group("w", 1), labels=b))
        await bench.expect({"base/w": 2, "first/w": 3, "second/w": 1})
        told = await bench.condition("scaled", "DisruptionTarget", status="True")
        assert "whose queue takes back its share" in told.message
        await bench.condition("base", status="True")


async def test_nothing_is_taken_from_a_queue_within_its_share(cluster: Any, quotas: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        root = await quotas(elastic(own(bench, "root"), bench.namespace, 4, 4, total=4))
        await quotas(elastic(own(bench, "a"), bench.namespace, 2, 4, parent=root))
        await quotas(elastic(own(bench, "b"), bench.namespace, 2, 4, parent=root))
        await bench.apply(gang("a1", group("w", 2), labels=team(bench, "a")))
        await bench.apply(gang("b1", group("w", 2), labels=team(bench, "b")))
        await bench.expect({"a1/w": 2, "b1/w": 2})
        await bench.apply(gang("b2", group("w", 1), labels=team(bench, "b")))
        await bench.expect({"a1/w": 2, "b1/w": 2})
        await bench.condition("b2", status="False")


@pytest.mark.simulated
async def test_what_is_left_alone_while_it_is_young_is_called_back_when_it_is_not(cluster: Any, quotas: Any) -> None:
    """Nothing happens in the cluster at that moment: only time has passed."""
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await quotas(kai_queue(own(bench, "root"), 2, 2), kai.Queue)
        for name, least in (("a", "1m"), ("b", "")):
            body = kai_queue(own(bench, name), 1, -1, parent=own(bench, "root"))
            body["spec"] |= {"preemptMinRuntime": least} if least else {}
            await quotas(body, kai.Queue)
        await bench.apply(gang("guest", group("w", 2, 1), labels={KAI_QUEUE: own(bench, "a")}))
        await bench.expect({"guest/w": 2})
        await bench.apply(gang("owner", group("w", 1), labels={KAI_QUEUE: own(bench, "b")}))
        await bench.expect({"guest/w": 2})
        await bench.condition("owner", status="False")
        await cluster.settle(50)
        await bench.expect({"guest/w": 1, "owner/w": 1})


@pytest.mark.simulated
async def test_who_waits_for_capacity_is_not_tried_again_because_a_person_asks_for_less(
    cluster: Any, quotas: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares change with every gang that stops waiting; that helps gangs that a quota excluded."""
    tried: Counter[str] = Counter()
    decide = UnitPlacer.decide

    async def noted(self: UnitPlacer, name: str, order: Order) -> Any:
        tried[name.rpartition("/")[2]] += 1
        return await decide(self, name, order)

    monkeypatch.setattr(UnitPlacer, "decide", noted)
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await quotas(elastic(own(bench, "a"), bench.namespace, 2, 3))
        labels = team(bench, "a")
        await bench.apply(
            gang("large", group("w", 1, gpus=2), labels=labels), gang("over", group("w", 4), labels=labels)
        )
        await bench.apply(gang("gone", group("w", 1, gpus=3), labels=labels))
        await bench.condition("over", status="False", reason="QuotaExceeded")
        await cluster.settle(10)
        tried.clear()
        await bench.client.delete(PodGang, "gone", bench.namespace)
        await bench.client.delete(Pod, "gone-w-0", bench.namespace)
        await cluster.settle(10)
        assert tried == {"over": 1}


@pytest.mark.simulated
async def test_who_borrows_while_an_owner_waits_has_to_give_back(cluster: Any, quotas: Any) -> None:
    """No capacity becomes free: pods are bound, and because of that their queue has more than its share."""
    async with priorities(cluster, dear=100), scheduling(cluster) as bench:
        first, second = await bench.add_nodes(2, gpus=2)
        root = await quotas(elastic(own(bench, "root"), bench.namespace, 4, 4, total=4))
        await quotas(elastic(own(bench, "a"), bench.namespace, 2, 4, parent=root))
        await quotas(elastic(own(bench, "b"), bench.namespace, 2, 4, parent=root))

        def guest(name: str, node: str, **fields: str) -> Gang:
            spec = {"nodeSelector": {HOST: node}}
            return gang(name, group("w", 1, spec=spec), labels=team(bench, "a"), **fields)

        await bench.apply(guest("cheap", first), guest("dear", second, priority_class="dear"))
        await bench.expect({"cheap/w": 1, "dear/w": 1})
        await bench.apply(gang("owner", group("w", 1, gpus=2), labels=team(bench, "b")))
        await bench.condition("owner", status="False")
        await bench.apply(guest("more", second, priority_class="dear"))
        await bench.expect({"dear/w": 1, "more/w": 1, "owner/w": 1})


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("running", "fixed", "wanted", "words"),
    [
        pytest.param(
            "b", False, 1, "it would have more than its share, so nothing is called back", id="it has its share"
        ),
        pytest.param("", True, 1, "have above theirs may be called back for it", id="others have more than theirs"),
        pytest.param("b", False, 5, "it would have more than its share", id="it asks for more than its share"),
    ],
)
async def test_explain_says_whether_calling_back_would_help(
    cluster: Any, quotas: Any, running: str, fixed: bool, wanted: int, words: str
) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        root = await quotas(elastic(own(bench, "root"), bench.namespace, 4, 4, total=4))
        await quotas(elastic(own(bench, "a"), bench.namespace, 2, 4, parent=root))
        await quotas(elastic(own(bench, "b"), bench.namespace, 2, 8, parent=root))
        kept = {"scheduling.koordinator.sh/disable-preemptible": "true"} if fixed else {}
        first = 2 if running else 4
        await bench.apply(gang("a1", group("w", first), labels={**team(bench, "a"), **kept}))
        if running:
            await bench.apply(gang("b1", group("w", 2), labels=team(bench, running)))
        await cluster.settle(2)
        await bench.apply(gang("b2", group("w", wanted), labels=team(bench, "b")))
        await bench.condition("b2", status="False")
        view = bench.scheduler.view
        found = LiveDiagnosis(view).diagnose(view.units.gangs[f"{bench.namespace}/b2"], most=0).explanation
        assert found is not None
        (said,) = [sentence(one) for one in found.findings if one.kind == MAY_CALL_BACK]
        assert said.startswith(f"queue {own(bench, 'b')} uses {2 if running else 0} of its share of ")
        assert words in said


@pytest.mark.simulated
async def test_a_guest_that_must_not_be_put_out_stays_and_the_owner_waits(cluster: Any, quotas: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        root = await quotas(elastic(own(bench, "root"), bench.namespace, 4, 4, total=4))
        await quotas(elastic(own(bench, "a"), bench.namespace, 4, 4, parent=root))
        await quotas(elastic(own(bench, "b"), bench.namespace, 0, 4, parent=root))
        fixed = {"scheduling.koordinator.sh/disable-preemptible": "true"}
        await bench.apply(gang("guest", group("w", 4), labels={**team(bench, "b"), **fixed}))
        await bench.expect({"guest/w": 4})
        await bench.apply(gang("owner", group("w", 2), labels=team(bench, "a")))
        await bench.condition("owner", status="False")
        await bench.expect({"guest/w": 4})


@pytest.mark.simulated
@pytest.mark.parametrize(
    "half",
    [
        pytest.param({"gpu-core": "50", "gpu-memory-ratio": "50"}, id="by core and memory"),
        pytest.param({"gpu.shared": "1", "gpu-memory-ratio": "50"}, id="by memory alone"),
        pytest.param({"gpu.shared": "1", "gpu-memory": "40Gi"}, id="by memory alone, in bytes"),
        pytest.param({"gpu-core": "30", "gpu-memory-ratio": "50"}, id="by whichever is more"),
    ],
)
async def test_parts_of_gpus_are_counted_as_parts_in_kais_queues(
    cluster: Any, quotas: Any, half: dict[str, str]
) -> None:
    await install(cluster, "Device")
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1, gpus=4)
        await cluster.client.create(Device, device(node, 4))
        await quotas(kai_queue(own(bench, "team"), 0.5, 1.5), kai.Queue)
        for number in range(4):
            made = gang(f"half{number}", group("w", 1, gpus=0), labels={KAI_QUEUE: own(bench, "team")})
            await bench.apply(made, pods=False)
            pod = member_json(made, made.groups[0], 0, bench.namespace)
            resources = {f"koordinator.sh/{name}": amount for name, amount in half.items()}
            pod["spec"]["containers"][0]["resources"] = {"requests": resources, "limits": resources}
            await bench.create_pod(pod)
        await bench.expect({f"half{number}/w": 1 for number in range(3)})
        told = await bench.condition("half3", status="False", reason="QuotaExceeded")
        assert f"queue {own(bench, 'team')} is limited to 1.5 gpu, uses 1.5" in told.message
        assert f"{own(bench, 'team')} holds 1.5 with 0.5 guaranteed" in told.message
        policy = bench.scheduler.quotas.policy
        assert policy is not None
        assert policy.total(bench.scheduler.view.snapshot)["gpu"] == 4000, "a card of several names is one"
        await cluster.client.delete(Device, node)


@pytest.mark.simulated
async def test_a_pod_that_asks_for_a_part_in_kais_words_gets_our_words(cluster: Any, quotas: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        made = gang("half", group("w", 1, gpus=0))
        await bench.apply(made, pods=False)
        pod = member_json(made, made.groups[0], 0, bench.namespace)
        pod["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
        await bench.create_pod(pod)
        told = await bench.condition("half", status="False")
        assert "annotation gpu-fraction is KAI's: grove-scheduler gives parts of GPUs as" in told.message


@pytest.mark.parametrize(
    "label",
    [
        pytest.param({"quota.scheduling.koordinator.sh/preemptible": "false"}, id="Koordinator's label"),
        pytest.param({"kai.scheduler/preemptibility": "non-preemptible"}, id="KAI's label"),
    ],
)
@pytest.mark.simulated
async def test_what_cannot_be_called_back_may_use_only_what_is_guaranteed(
    cluster: Any, quotas: Any, label: dict[str, str]
) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        await quotas(elastic(own(bench, "a"), bench.namespace, 2, 4))
        await bench.apply(gang("fits", group("w", 2), labels={**team(bench, "a"), **label}))
        await bench.expect({"fits/w": 2})
        await bench.apply(gang("more", group("w", 1), labels={**team(bench, "a"), **label}))
        told = await bench.condition("more", status="False", reason="QuotaExceeded")
        assert f"is guaranteed 2 {GPU}, uses 2, and 1 more are wanted" in told.message


@pytest.mark.simulated
async def test_a_queue_that_does_not_lend_keeps_its_capacity(cluster: Any, quotas: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        root = await quotas(elastic(own(bench, "root"), bench.namespace, 4, 4, total=4))
        keeps = {"quota.scheduling.koordinator.sh/allow-lent-resource": "false"}
        await quotas(elastic(own(bench, "a"), bench.namespace, 2, 4, parent=root, labels=keeps))
        await quotas(elastic(own(bench, "b"), bench.namespace, 1, 4, parent=root))
        await bench.apply(gang("guest", group("w", 3), labels=team(bench, "b")))
        told = await bench.condition("guest", status="False", reason="QuotaExceeded")
        assert "which does not lend" in told.message
        await bench.apply(gang("small", group("w", 2), labels=team(bench, "b")))
        await bench.expect({"small/w": 2})


@pytest.mark.simulated
async def test_what_a_queue_does_not_lend_is_kept_beside_what_its_siblings_may_have(cluster: Any, quotas: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(5)
        root = await quotas(elastic(own(bench, "root"), bench.namespace, 5, 5))
        keeps = {"quota.scheduling.koordinator.sh/allow-lent-resource": "false"}
        await quotas(elastic(own(bench, "a"), bench.namespace, 2, 5, parent=root, labels=keeps))
        await quotas(elastic(own(bench, "b"), bench.namespace, 0, 5, parent=root))
        await bench.apply(gang("alone", group("w", 3), labels=team(bench, "b")))
        await bench.expect({"alone/w": 3})


async def test_kais_queues_are_the_same_in_other_words(cluster: Any, quotas: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        await bench.seen(kai.Queue, await quotas(kai_queue(own(bench, "dept"), 2, 3), kai.Queue))
        await quotas(kai_queue(own(bench, "team"), 2, -1, parent=own(bench, "dept")), kai.Queue)
        label = {KAI_QUEUE: own(bench, "team")}
        await bench.apply(gang("big", group("w", 4), labels=label))
        told = await bench.condition("big", status="False", reason="QuotaExceeded")
        assert f"queue {own(bench, 'dept')} is limited to 3 gpu" in told.message
        await bench.apply(gang("fits", group("w", 3), labels=label))
        await bench.expect({"fits/w": 3})
        await bench.apply(gang("inner", group("w", 1), labels={KAI_QUEUE: own(bench, "dept")}))
        told = await bench.condition("inner", status="False", reason="QueueInvalid")
        assert "has queues below it" in told.message


@pytest.mark.parametrize(
    ("bodies", "words"),
    [
        pytest.param([("a", {"parent": "b"}), ("b", {"parent": "a"})], "cycle", id="a cycle"),
        pytest.param([("a", {"parent": "gone"})], "does not exist", id="a missing parent"),
        pytest.param([("a", {"own": 4, "most": 2})], "than its limit allows", id="min above max"),
        pytest.param([("a", {"own": -1})], "is negative", id="a negative amount"),
        pytest.param([("a", {"own": "lots"})], "is not a quantity", id="an unknown unit"),
        pytest.param(
            [("a", {"annotations": {"quota.scheduling.koordinator.sh/shared-weight": "much"}})],
            "not a JSON object",
            id="a weight that is none",
        ),
    ],
)
@pytest.mark.simulated
async def test_a_quota_that_is_wrong_is_reported_on_it_and_on_its_gangs_and_nothing_else_stops(
    cluster: Any, quotas: Any, bodies: list[tuple[str, dict]], words: str
) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        for name, fields in bodies:
            given = dict(fields)
            if "parent" in given:
                given["parent"] = own(bench, given["parent"])
            await quotas(elastic(own(bench, name), bench.namespace, **given))
        await quotas(elastic(own(bench, "fine"), bench.namespace, 2, 2))
        await bench.apply(gang("stuck", group("w", 1), labels=team(bench, "a")))
        await bench.apply(gang("runs", group("w", 2), labels=team(bench, "fine")))
        await bench.expect({"runs/w": 2})
        told = await bench.condition("stuck", status="False", reason="QueueInvalid")
        assert words in told.message
        event = await bench.event("InvalidQueue", words)  # half of a cycle has no parent yet
        assert event.involved_object.kind == "ElasticQuota"


async def test_a_queue_deleted_under_running_gangs_disturbs_no_other_and_new_ones_wait(
    cluster: Any, quotas: Any
) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        await cluster.client.create(ElasticQuota, elastic(own(bench, "a"), bench.namespace, 2, 4))
        await quotas(elastic(own(bench, "b"), bench.namespace, 2, 4))
        await bench.apply(gang("runs", group("w", 2), labels=team(bench, "a")))
        await bench.expect({"runs/w": 2})
        await cluster.client.delete(ElasticQuota, own(bench, "a"), bench.namespace)
        await bench.apply(gang("late", group("w", 1), labels=team(bench, "a")))
        told = await bench.condition("late", status="False", reason="QueueDoesNotExist")
        assert f"there is no ElasticQuota {own(bench, 'a')}" in told.message
        await bench.expect({"runs/w": 2})


@pytest.mark.simulated
async def test_equal_queues_that_ask_at_once_get_equal_shares(cluster: Any, quotas: Any) -> None:
    async with scheduling(cluster) as bench:
        root = await quotas(elastic(own(bench, "root"), bench.namespace, 0, 12, total=12))
        await quotas(elastic(own(bench, "a"), bench.namespace, 0, 12, parent=root))
        await quotas(elastic(own(bench, "b"), bench.namespace, 0, 12, parent=root))
        for number in range(6):
            await bench.apply(gang(f"a{number}", group("w", 2), labels=team(bench, "a")))
        for number in range(6):
            await bench.apply(gang(f"b{number}", group("w", 2), labels=team(bench, "b")))
        await bench.add_nodes(12)
        await bench.cluster.settle(20)
        bound = await bench.bound()
        assert sum(count for name, count in bound.items() if name.startswith("a")) == 6
        assert sum(count for name, count in bound.items() if name.startswith("b")) == 6


@pytest.mark.real_in("test")
async def test_used_is_written_only_to_trees_that_name_this_scheduler(cluster: Any, quotas: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        ours = {"grove.io/scheduler-name": "grove-scheduler"}
        await quotas(elastic(own(bench, "a"), bench.namespace, 2, 4, labels=ours))
        await quotas(elastic(own(bench, "b"), bench.namespace, 2, 4))
        await bench.apply(gang("one", group("w", 2), labels=team(bench, "a")))
        await bench.apply(gang("two", group("w", 2), labels=team(bench, "b")))
        await bench.expect({"one/w": 2, "two/w": 2})

        async def written() -> bool:
            found = await bench.client.get(ElasticQuota, own(bench, "a"), bench.namespace)
            return found.status.used == {GPU: "2"} and '"2"' in found.metadata.annotations.get(
                "quota.scheduling.koordinator.sh/runtime", ""
            )

        await cluster.eventually(written)
        other = await bench.client.get(ElasticQuota, own(bench, "b"), bench.namespace)
        assert other.status.used == {}


@pytest.mark.simulated
async def test_figures_by_queue_are_those_of_the_tree(cluster: Any, quotas: Any) -> None:
    before = REGISTRY.get_sample_value("grove_quota_rejections_total") or 0
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await quotas(elastic(own(bench, "a"), bench.namespace, 1, 2))
        await bench.apply(gang("runs", group("w", 2), labels=team(bench, "a")))
        await bench.apply(gang("waits", group("w", 1), labels=team(bench, "a")))
        await bench.expect({"runs/w": 2})
        await bench.condition("waits", status="False", reason="QuotaExceeded")
        assert (REGISTRY.get_sample_value("grove_quota_rejections_total") or 0) > before
        registry = CollectorRegistry()
        watch_queues(bench.scheduler.quotas, bench.scheduler.view, registry)

        def figure(name: str) -> float | None:
            return registry.get_sample_value(f"grove_queue_{name}", {"queue": own(bench, "a"), "resource": GPU})

        found = {name: figure(name) for name in ("guaranteed", "used", "fair_share", "limit", "waiting")}
        assert found == {"guaranteed": 1, "used": 2, "fair_share": 2, "limit": 2, "waiting": 1}


@pytest.mark.simulated
async def test_quotas_that_are_installed_later_hold_without_a_restart(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        await bench.apply(gang("free", group("w", 1), labels=team(bench, "a")))
        await bench.expect({"free/w": 1})
        await install(cluster, "ElasticQuota")
        await cluster.client.create(ElasticQuota, elastic(own(bench, "a"), bench.namespace, 0, 2))
        await cluster.settle(optional_kinds.RETRY_S + 1)  # its definition tells
        await bench.apply(gang("late", group("w", 2), labels=team(bench, "a")))
        await bench.condition("late", status="False", reason="QuotaExceeded")


@pytest.mark.simulated
async def test_a_limit_holds_while_pods_of_the_queue_are_still_on_their_way_out(cluster: Any, quotas: Any) -> None:
    async with scheduling(cluster) as bench:
        nodes = await bench.add_topology(Topology(nodes=2, gpus=2), stop_s=5)
        here, there = ({"nodeSelector": {HOST: name}} for name in sorted(nodes.names))
        await quotas(elastic(own(bench, "a"), bench.namespace, 2, 2))
        await bench.apply(gang("first", group("w", 2, spec=here), labels=team(bench, "a")))
        await bench.expect({"first/w": 2})
        await bench.client.delete(PodGang, "first", bench.namespace)
        for pod in await bench.nodes_of("first"):
            await bench.client.delete(Pod, pod, bench.namespace)
        await bench.apply(gang("next", group("w", 1, spec=there), labels=team(bench, "a")))
        await cluster.settle(1)
        await bench.add_nodes(1)  # something happens, and the scheduler looks around
        await cluster.settle(2)
        placed = {pod.metadata.name for pod in await bench.pods() if pod.spec.node_name}
        assert placed == {"first-w-0", "first-w-1"}, "they still use what they have"
        await bench.expect({"next/w": 1})


@pytest.mark.real_in("test")
async def test_a_kind_that_is_installed_later_is_reported_by_its_definition(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optional_kinds, "LOOK_S", 600.0)

    class Late(Object):
        RESOURCE: ClassVar[Resource] = Resource("late.example.com", "v1", "Late", "lates", namespaced=False)

    there = asyncio.Event()
    kinds = optional_kinds.OptionalKinds(cluster.client, {Late: there.set})
    looking = asyncio.get_running_loop().create_task(kinds.follow_installed())
    await cluster.settle(0.5)
    assert not there.is_set()
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    body = {
        "metadata": {"name": str(Late.RESOURCE)},
        "spec": {
            "group": "late.example.com",
            "scope": "Cluster",
            "names": {"kind": "Late", "plural": "lates", "singular": "late", "listKind": "LateList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    await cluster.client.create(CustomResourceDefinition.RESOURCE, body)
    async with asyncio.timeout(BUSY_S):  # sooner than by asking now and then
        await there.wait()
        await looking
    await cluster.client.delete(CustomResourceDefinition, str(Late.RESOURCE))


class Curt:
    """A server whose watches end before they have said a word."""

    asked = 0

    async def serves(self, kind: type[Object]) -> bool:
        return False

    async def watch(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        self.asked += 1
        for event in ():
            yield event


def test_a_server_that_ends_its_watches_at_once_is_not_asked_without_a_pause() -> None:
    async def story() -> int:
        server = Curt()
        kinds = optional_kinds.OptionalKinds(server, {ElasticQuota: lambda: None})  # type: ignore[arg-type]
        looking = asyncio.get_running_loop().create_task(kinds.follow_installed())
        await asyncio.sleep(10 * optional_kinds.LOOK_S)
        looking.cancel()
        return server.asked

    assert run(story()) <= 11
