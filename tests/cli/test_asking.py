"""`kubectl grove` on a cluster where operator and scheduler run: what people ask, and that the answers are true.

The commands' answers are compared as text, with the test's own prefix and the random ends of pod names taken out.
"""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest
from tests.support.asking import World, planned, server, text_of

from grove.answers.answer import Unanswered
from grove.answers.doctor import doctor_answer
from grove.answers.errors import explained
from grove.answers.events import events_answer, events_picture
from grove.answers.explain import explain_answer, queue_answer
from grove.answers.following import following
from grove.answers.scale import fit_lines, scale_answer, scaleref_answer
from grove.answers.subjects import subject
from grove.answers.topology import topology_answer
from grove.answers.tree import status_answer, tree_answer
from grove.api.core import Event, Pod
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.cli.access import formatted, show
from grove.cli.following import drawing
from grove.kube.errors import Forbidden
from grove.plan.copying import copy_cluster

pytestmark = pytest.mark.real_in("soak")


@pytest.mark.real_in("test")
async def test_a_running_set_is_a_tree_on_one_screen(world: World) -> None:
    await world.apply(world.system("chat"))
    await world.available("chat")
    answer = await tree_answer(world.client, world.namespace, "chat", pods=False)
    assert answer.code == 0
    assert text_of(answer, 80, world) == (
        "NAME          READY  GANG         WHERE\n"
        "chat            3/3\n"
        "└─ replica 0    3/3  chat-0 1.00  z0-b0-r0\n"
        "   ├─ leader    1/1               z0-b0-r0\n"
        "   └─ worker    2/2               z0-b0-r0"
    )
    assert text_of(answer, 160, world) == (
        "NAME          READY  SCHED  UPD  GATED  GANG         WHERE\n"
        "chat            3/3    3/3  3/3      0\n"
        "└─ replica 0    3/3    3/3  3/3      0  chat-0 1.00  z0-b0-r0\n"
        "   ├─ leader    1/1    1/1  1/1      0               z0-b0-r0\n"
        "   └─ worker    2/2    2/2  2/2      0               z0-b0-r0"
    )


async def test_the_tree_as_json_names_every_pod_and_its_node(world: World) -> None:
    await world.apply(world.system("chat"))
    await world.available("chat")
    data = (await tree_answer(world.client, world.namespace, "chat")).data
    pods = {pod.metadata.name: pod.spec.node_name for pod in (await world.client.list(Pod, world.namespace)).items}
    leaves = [pod for clique in data["children"][0]["children"] for pod in clique["children"]]
    assert {leaf["name"]: leaf["node"] for leaf in leaves} == pods
    assert {leaf["state"] for leaf in leaves} == {"ready"}
    assert formatted(data, "yaml").startswith("kind: PodCliqueSet\nname: chat\nstate: ready\n")


@pytest.mark.real_in("test")
async def test_a_gang_that_cannot_fit_is_explained_with_changes_that_were_tried(world: World) -> None:
    await world.apply(world.system("wide", cliques=[server("worker", 5, 8)]))
    await world.refused("wide-0")
    answer = await explain_answer(world.client, world.namespace, "wide")
    assert answer.code == 4
    text = text_of(answer, 100, world)
    assert text.splitlines()[0].startswith("wide-0: waiting · domain: no rack has capacity for NS/wide-0 (5 pods)")
    assert "    next: add 1 node like z0-b0-r0-n0 in" in text
    assert "      - delete it and apply it again with minAvailable: 4 (now 5) for worker" in text
    assert "        at spec.template.cliques[0].spec.minAvailable" in text
    by_gang = await explain_answer(world.client, world.namespace, "wide-0")
    assert formatted(by_gang.data["gangs"], "json") == formatted(answer.data["gangs"], "json")


async def test_what_explain_says_would_help_does_help(world: World) -> None:
    await world.apply(world.system("wide", cliques=[server("worker", 5, 8)]))
    await world.refused("wide-0")
    [verdict] = (await explain_answer(world.client, world.namespace, "wide")).data["gangs"]
    assert "required: block instead of required: rack for wide-0" in [one.text for one in verdict.advice]
    await world.client.delete(PodCliqueSet, "wide", world.namespace)

    async def is_gone() -> bool:
        return not (await world.client.list(PodCliqueSet, world.namespace)).items

    await world.cluster.eventually(is_gone)
    await world.apply(world.system("wide", required="block", cliques=[server("worker", 5, 8)]))
    await world.available("wide")


async def test_a_running_gang_is_explained_in_one_line_with_exit_code_0(world: World) -> None:
    await world.apply(world.system("chat"))
    await world.available("chat")
    answer = await explain_answer(world.client, world.namespace, "chat")
    assert (answer.code, text_of(answer, 80, world)) == (0, "chat: running · 3 of 3 pods ready")


async def test_a_pod_that_waits_for_its_leader_is_a_dependency(world: World) -> None:
    world.nodes.hold = lambda pod: "leader" in pod.metadata.name
    await world.apply(world.system("chat"))

    async def waits() -> bool:
        answer = await explain_answer(world.client, world.namespace, "chat")
        return bool(answer.data["gangs"]) and answer.data["gangs"][0].level == "dependency"

    await world.cluster.eventually(waits)
    answer = await explain_answer(world.client, world.namespace, "chat")
    assert answer.code == 3
    assert answer.data["gangs"][0].reason == "chat-0-worker starts after chat-0-leader"


async def test_status_puts_the_worst_set_first(world: World) -> None:
    await world.apply(world.system("fine", cliques=[server("one", 1, 1)]))
    await world.available("fine")
    await world.apply(world.system("wide", cliques=[server("worker", 5, 8)]))
    await world.refused("wide-0")
    answer = await status_answer(world.client, world.namespace, "", world.now)
    assert answer.code == 4
    assert [(one.name, one.state, one.ready) for one in answer.data] == [
        ("wide", "waiting", 0),
        ("fine", "running", 1),
    ]
    assert re.match(r"NAMESPACE +NAME +STATE +AVAILABLE +PODS +GPUS +AGE +WHY", text_of(answer, 160, world))


async def test_the_queue_has_what_waits_in_order(world: World) -> None:
    await world.apply(world.system("wide-b", cliques=[server("worker", 5, 8)]))
    await world.refused("wide-b-0")
    await world.apply(world.system("wide-a", cliques=[server("worker", 6, 8)]))
    await world.refused("wide-a-0")
    answer = await queue_answer(world.client, world.namespace, world.now)
    assert {line.name for line in answer.data} == {"wide-a-0", "wide-b-0"}
    assert all("no rack has capacity" in line.waits_for for line in answer.data)
    assert answer.code == 4


async def test_topology_counts_what_the_gangs_use(world: World) -> None:
    await world.apply(world.system("chat"))
    await world.available("chat")
    found = await topology_answer(world.client, world.namespace)
    layout = found.data
    lines = [" ".join(line.split()) for line in text_of(found, 100, world).splitlines()]
    assert any(line.endswith("z0-b0-r0 ████████████░░░░ 24/32 4 nodes, 1 unused") for line in lines)
    assert "LEVEL DOMAINS LARGEST FREE WHOLE NODES IN FRAGMENTED UNLABELLED" in lines
    zone = next(one for one in layout.root.domains if one.name == f"{world.cluster.prefix}z0")
    racks = [(rack.name.removeprefix(world.cluster.prefix), rack.used, rack.total) for rack in zone.domains[0].domains]
    assert racks == [("z0-b0-r0", 24, 32), ("z0-b0-r1", 0, 32)]
    # With its namespace, if pods of a test before are on their way out.
    taken = [
        [(gang.rpartition("/")[2], gpus) for gang, gpus in spot.taken] for spot in zone.domains[0].domains[0].spots
    ]
    assert taken[:3] == [[("chat-0", 8)]] * 3


async def test_scale_speaks_of_groups_by_their_own_names(world: World) -> None:
    groups = [{"name": "pair", "cliqueNames": ["leader", "worker"], "replicas": 1, "minAvailable": 1}]
    await world.apply(world.system("chat", required="block", podCliqueScalingGroups=groups))
    await world.available("chat")
    answer = await scale_answer(world.client, world.namespace, "chat/pair", 2)
    assert text_of(answer, 80, world) == (
        "PodCliqueScalingGroup chat-0-pair: 1 → 2\n  creates 1 gang: chat-0-pair-0\n  3 pods more"
    )
    await world.available("chat")
    group = await world.client.get(PodCliqueScalingGroup, "chat-0-pair", world.namespace)
    assert group.spec.replicas == 2
    ref = await scaleref_answer(world.client, world.namespace, "chat/pair")
    assert text_of(ref, 80, world) == (
        "# A metric of pods measures pod 0 of clique leader of each unit.\n"
        "scaleTargetRef:\n  apiVersion: grove.io/v1alpha1\n  kind: PodCliqueScalingGroup\n  name: chat-0-pair"
    )
    with pytest.raises(Unanswered, match="clique worker belongs to scaling group pair"):
        await scale_answer(world.client, world.namespace, "chat/worker", 2)
    with pytest.raises(Unanswered, match=r"no group or clique nobody to scale \(it has pair\)"):
        await scale_answer(world.client, world.namespace, "chat/nobody", 2)


@pytest.mark.real_in("test")
async def test_a_dry_run_of_scale_changes_nothing(world: World) -> None:
    await world.apply(world.system("chat"))
    await world.available("chat")
    await scale_answer(world.client, world.namespace, "chat", 2, dry_run=True)
    assert (await world.client.get(PodCliqueSet, "chat", world.namespace)).spec.replicas == 1


class MayScale:
    """A client of a user who may scale and change nothing else, as under the authorizer."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def patch(self, kind: Any, *args: Any, subresource: str = "", **kw: Any) -> Any:
        if subresource != "scale":
            raise Forbidden("you may only scale", code=403, reason="Forbidden")
        return await self._inner.patch(kind, *args, subresource=subresource, **kw)


@pytest.mark.real_in("test")
@pytest.mark.parametrize("target", ["chat", "chat/pair", "chat/front"])
async def test_a_dry_run_needs_no_other_right_than_scaling_does(world: World, target: str) -> None:
    groups = [{"name": "pair", "cliqueNames": ["leader"], "replicas": 1, "minAvailable": 1}]
    parts = [server("front", 1, 1), server("leader", 1, 1)]
    await world.apply(world.system("chat", cliques=parts, podCliqueScalingGroups=groups))
    await world.available("chat")
    answer = await scale_answer(MayScale(world.client), world.namespace, target, 2, dry_run=True)
    assert text_of(answer, 80, world).splitlines()[0].endswith(": 1 → 2 (dry run)")
    assert (await scale_answer(world.client, world.namespace, target, 2)).data["changes"][0].before == 1


async def test_events_are_one_timeline_of_the_gang_and_its_pods(world: World) -> None:
    await world.apply(world.system("chat"))
    await world.available("chat")

    async def told() -> bool:
        moments = (await events_answer(world.client, world.namespace, "chat-0")).data
        return any(one.reason == "GangScheduled" for one in moments)

    await world.cluster.eventually(told)
    moments = (await events_answer(world.client, world.namespace, "chat-0")).data
    assert [one.at for one in moments] == sorted(one.at for one in moments)
    kinds = {one.kind for one in moments}
    assert {"PodGang", "PodClique", "Pod"} <= kinds


@pytest.mark.real_in("test")
async def test_plan_says_where_a_new_set_would_go_and_writes_nothing(world: World) -> None:
    await world.apply(world.system("chat"))
    await world.available("chat")
    before = [pod.metadata for pod in (await world.client.list(Pod, world.namespace)).items]
    copy = await copy_cluster(world.client, None)
    answer = await planned(world, copy, world.namespace, [world.system("next")])
    assert answer.code == 0
    [gang] = answer.data.gangs
    assert (gang.name, gang.answer, len(gang.pods), gang.score) == ("next-0", "fits", 3, 1.0)
    assert gang.where.removeprefix(world.cluster.prefix) == "z0-b0-r1"
    assert answer.data.preempted == ()
    assert answer.data.more == 0
    assert {one.metadata.name for one in (await world.client.list(PodCliqueSet, world.namespace)).items} == {"chat"}
    assert [pod.metadata for pod in (await world.client.list(Pod, world.namespace)).items] == before
    await world.apply(world.system("next"))
    await world.available("next")
    pods = (await world.client.list(Pod, world.namespace)).items
    racks = {
        pod.spec.node_name.rpartition("-")[0] for pod in pods if pod.metadata.labels["grove.io/podgang"] == "next-0"
    }
    assert racks == {gang.where}


@pytest.mark.simulated  # on the shared real cluster another test's nodes may still be there, and then it would fit
async def test_plan_refuses_what_cannot_fit_and_says_what_would_help(world: World) -> None:
    copy = await copy_cluster(world.client, None)
    answer = await planned(world, copy, world.namespace, [world.system("wide", cliques=[server("worker", 5, 8)])])
    assert answer.code == 4
    text = text_of(answer, 120, world)
    assert "wide-0 cannot fit: no rack has capacity for NS/wide-0 (5 pods)" in text
    assert "  any one of these would make it fit:" in text
    assert (
        "  - required: block instead of required: rack for wide-0 (spec.template.topologyConstraint.pack.required)"
        in text
    )


@pytest.mark.simulated  # as above
async def test_plan_names_a_trouble_that_several_gangs_share_once_and_sees_which_sets_live(world: World) -> None:
    wide = world.system("wide", cliques=[server("worker", 5, 8)])
    wide["spec"]["replicas"] = 6
    again = "delete it and apply it again with required: block"
    new = text_of(await planned(world, await copy_cluster(world.client, None), world.namespace, [wide]), 120, world)
    assert "wide-0, wide-1, wide-2, wide-3 and 2 more cannot fit: no rack has capacity" in new
    assert new.count("any one of these") == 1
    assert again not in new
    await world.apply(wide)
    await world.refused("wide-0")
    lives = text_of(await planned(world, await copy_cluster(world.client, None), world.namespace, [wide]), 120, world)
    assert f"- {again} instead of required: rack for wide-0" in lives


async def test_gangs_that_run_are_reported_together_only_if_they_say_the_same(world: World) -> None:
    groups = [{"name": "pair", "cliqueNames": ["leader"], "replicas": 3, "minAvailable": 1}]
    parts = [server("front", 2, 1), server("leader", 1, 1)]
    await world.apply(world.system("chat", required="block", cliques=parts, podCliqueScalingGroups=groups))
    await world.available("chat")
    answer = await explain_answer(world.client, world.namespace, "chat-0-pair", now=world.now)
    assert text_of(answer, 200, world).splitlines() == [
        "chat-0: running · 3 pods ready",
        "chat-0-pair-0, chat-0-pair-1: running · 1 pod ready",
    ]


async def test_a_tree_has_whole_names_of_pods_and_says_which_instance_a_gang_is(world: World) -> None:
    groups = [{"name": "pair", "cliqueNames": ["leader"], "replicas": 3, "minAvailable": 1}]
    parts = [server("front", 1, 1), server("leader", 1, 1)]
    await world.apply(world.system("chat", required="block", cliques=parts, podCliqueScalingGroups=groups))
    await world.available("chat")
    tree = await tree_answer(world.client, world.namespace, "chat", now=world.now)
    wide, narrow = text_of(tree, 300, world), text_of(tree, 80, world)
    pods = [pod.metadata.name for pod in (await world.client.list(Pod, world.namespace)).items]
    assert len(pods) == 4
    for name in pods:
        assert name in wide
        assert name in narrow
    assert "chat-0-pair-0 (instance 1)" in wide
    assert "chat-0-pair-1 (instance 2)" in wide


async def test_what_is_reported_speaks_of_levels_not_of_labels_and_is_whole_in_a_pipe(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.apply(world.system("wide", cliques=[server("worker", 5, 8)]))
    await world.refused("wide-0")
    client, namespace = world.client, world.namespace
    answers = {
        "status": await status_answer(client, namespace, "", world.now),
        "tree": await tree_answer(client, namespace, "wide", now=world.now),
        "explain": await explain_answer(client, namespace, "wide", now=world.now),
        "queue": await queue_answer(client, namespace, world.now),
        "events": await events_answer(client, namespace, "wide"),
    }
    for name, answer in answers.items():
        capsys.readouterr()
        show(answer)
        said = capsys.readouterr().out
        if name in ("explain", "events"):
            assert "comes closest, with capacity for wide-0-worker 4/5 pods" in said, name
        assert "\u2026" not in said, f"{name} is cut"
        assert "no rack has capacity" in said, name
        assert "topology.kubernetes.io/" not in said, f"{name} speaks of a label"


@pytest.mark.real_in("test")
@pytest.mark.simulated
async def test_events_of_an_earlier_set_of_the_same_name_are_left_out(world: World) -> None:
    await world.apply(world.system("chat"))
    await world.available("chat")
    await world.client.delete(PodCliqueSet, "chat", world.namespace)

    async def gone() -> bool:
        return not (await world.client.list(PodGang, world.namespace)).items

    await world.cluster.eventually(gone)
    await asyncio.sleep(60)
    await world.apply(world.system("chat"))
    await world.available("chat")
    moments = (await events_answer(world.client, world.namespace, "chat")).data
    assert (moments[0].kind, moments[0].reason) == ("PodCliqueSet", "Created")
    assert [one.until for one in moments if one.reason == "GangScheduled"] == [None]


async def test_watched_events_go_on_line_by_line(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    await world.apply(world.system("chat", cliques=[server("one", 1, 1)]))
    await world.available("chat")
    asked = await subject(world.client, world.namespace, "chat")
    printed: list[str] = []

    async def told(words: str) -> bool:
        lines = capsys.readouterr().out.splitlines()
        printed.extend(line for line in lines if not re.match(r"\d{4}-", line))  # the operator's own log is there too
        return any(words in line for line in printed)

    async with following(world.client, world.namespace, events=True) as source:
        watching = asyncio.get_running_loop().create_task(drawing(source, events_picture(asked), in_place=False))
        try:
            await world.cluster.eventually(lambda: told("Ready=True"))
            assert printed[0].split() == ["TIME", "OBJECT", "WHAT", "MESSAGE"]
            before = len(printed)
            for number in (1, 2):
                about = {"kind": "PodCliqueSet", "name": "chat", "namespace": world.namespace}
                event = {
                    "metadata": {"name": f"e{number}", "namespace": world.namespace},
                    "involvedObject": about,
                    "reason": "Something",
                    "message": f"happened the {number}. time",
                    "type": "Normal",
                    "lastTimestamp": f"2026-01-01T00:00:0{number}Z",
                }
                await world.client.create(Event, event)
                await world.cluster.eventually(lambda number=number: told(f"happened the {number}. time"))  # type: ignore[misc]
            fresh = printed[before:]
            assert sum("Something" in line for line in fresh) == 2, "each once"
            assert not any("Created" in line for line in fresh), "what was told is not told again"
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.real_in("test")
async def test_a_right_that_is_missing_later_is_reported_as_that(world: World) -> None:
    with pytest.raises(Forbidden, match="you may not"):
        async with following(world.client, world.namespace):
            raise Forbidden("you may not", code=403)


async def test_a_wrong_topology_is_reported_with_those_there_are(world: World) -> None:
    with pytest.raises(Unanswered, match=rf"there is no ClusterTopologyBinding nope .*{world.cluster.namespace}"):
        await topology_answer(world.client, "nope")


async def test_status_can_be_sorted_and_widened(world: World) -> None:
    await world.apply(world.system("a-small", cliques=[server("one", 1, 1)]))
    await world.available("a-small")
    await world.apply(world.system("b-large", cliques=[server("one", 2, 8)]))
    await world.available("b-large")

    async def names(order: str) -> list[str]:
        found = await status_answer(world.client, world.namespace, "", world.now, order=order)
        return [row.name for row in found.data]

    assert await names("name") == await names("state") == ["a-small", "b-large"]
    assert await names("gpus") == await names("pods") == ["b-large", "a-small"]
    assert set(await names("age")) == set(await names("restarts")) == {"a-small", "b-large"}
    wide = text_of(await status_answer(world.client, world.namespace, "", world.now, wide=True), 200, world)
    assert wide.splitlines()[0].split() == [
        "NAMESPACE",
        "NAME",
        "STATE",
        "AVAILABLE",
        "PODS",
        "GPUS",
        "AGE",
        "UPDATED",
        "RESTARTS",
        "AUTOSCALED",
        "WHY",
    ]


async def test_plan_lists_what_there_is_when_a_name_is_wrong(world: World) -> None:
    await world.apply(world.system("chat"))
    copy = await copy_cluster(world.client, None)
    with pytest.raises(Unanswered, match=r"there is no PodCliqueSet talk in .*; of PodCliqueSets there are chat$"):
        await planned(world, copy, world.namespace, scales=["talk=2"])
    with pytest.raises(Unanswered, match=r"there is no node nowhere; of Nodes there are .*-n0, .*"):
        await planned(world, copy, world.namespace, drains=["nowhere"])


async def test_plan_of_a_broken_manifest_tells_what_admission_says(world: World) -> None:
    copy = await copy_cluster(world.client, None)
    broken = world.system("chat")
    broken["spec"]["template"]["cliques"][1]["spec"]["startsAfter"] = ["nobody"]
    with pytest.raises(Unanswered, match=r"PodCliqueSet chat would be refused") as refused:
        await planned(world, copy, world.namespace, [broken])
    assert any("nobody" in fault for fault in refused.value.faults)


async def test_plan_of_a_scale_out_counts_the_new_gang(world: World) -> None:
    groups = [{"name": "pair", "cliqueNames": ["leader", "worker"], "replicas": 1, "minAvailable": 1}]
    await world.apply(world.system("chat", required="block", podCliqueScalingGroups=groups))
    await world.available("chat")
    copy = await copy_cluster(world.client, None)
    fits = await planned(world, copy, world.namespace, scales=["chat/pair=2"])
    assert [(gang.name, gang.answer) for gang in fits.data.gangs] == [("chat-0", "fits"), ("chat-0-pair-0", "fits")]
    too_many = await planned(world, copy, world.namespace, scales=["chat/pair=4"])
    assert too_many.code == 4
    assert [gang.answer for gang in too_many.data.gangs].count("cannot fit") == 2


@pytest.mark.parametrize(
    ("target", "replicas", "want"),
    [
        pytest.param("chat/pair", 2, [r"the new pods fit now in \S+"], id="a unit more"),
        pytest.param(
            "chat/pair",
            4,
            [r"2 of 3 gangs do not fit now: chat-0-pair-1: .*capacity.*"],
            id="more units than fit",
        ),
        pytest.param("chat/front", 2, [r"the new pods fit now in \S+"], id="a pod above the minimum"),
        pytest.param("chat/front", 9, [r"chat-0: 4 pods above its minimum have no place: .+"], id="more pods than fit"),
        pytest.param("chat", 3, [r"1 of 2 gangs do not fit now: chat-2: .*"], id="more replicas than fit"),
        pytest.param("chat/pair", 1, [], id="nothing comes"),
    ],
)
async def test_scale_says_whether_what_comes_would_fit(
    world: World, target: str, replicas: int, want: list[str]
) -> None:
    """Two racks of four nodes: a replica of the set takes one pod for the front and a rack's rest for each unit."""
    front = server("front", 1, 8)
    groups = [{"name": "pair", "cliqueNames": ["leader", "worker"], "replicas": 1, "minAvailable": 1}]
    parts = [front, server("leader", 1, 8), server("worker", 2, 8)]
    await world.apply(world.system("chat", required="block", cliques=parts, podCliqueScalingGroups=groups))
    await world.available("chat")
    copy = await copy_cluster(world.client, None)
    answer = await planned(world, copy, world.namespace, scales=[f"{target}={replicas}"], now=world.now)
    told = fit_lines(answer.data)
    assert answer.code == (4 if any("do not fit" in line for line in told) else 3 if "above" in str(told) else 0)
    assert len(told) == len(want), told
    for line, pattern in zip(told, want, strict=True):
        assert re.fullmatch(pattern, line), line


async def test_plan_of_a_drained_node_finds_the_gang_a_place_or_says_it_has_none(world: World) -> None:
    await world.apply(world.system("chat"))
    await world.available("chat")
    node = next(pod.spec.node_name for pod in (await world.client.list(Pod, world.namespace)).items)
    copy = await copy_cluster(world.client, None)
    answer = await planned(world, copy, world.namespace, drains=[node])
    assert answer.code == 0
    assert all(pod.node != node for gang in answer.data.gangs for pod in gang.pods)
    assert (await world.client.list(Pod, world.namespace)).items


async def test_a_missing_set_is_one_clear_line(world: World) -> None:
    await world.apply(world.system("chat"))
    for ask in (tree_answer, explain_answer, events_answer):
        with pytest.raises(Unanswered, match=r"there is no PodCliqueSet.* nothing in namespace .*; .* there are chat$"):
            await explained(world.client, ask(world.client, world.namespace, "nothing"))


@pytest.mark.real_in("test")
async def test_the_doctor_finds_no_fault_with_kinds_and_labels_and_misses_admission(world: World) -> None:
    await world.apply(world.system("chat"))
    await world.available("chat")
    answer = await doctor_answer(world.client, world.namespace, world.now)
    found = {one.check: one for one in answer.data}
    assert found["kinds"].state == "ok"
    assert found["admission"].state == "warning"
    assert found["admission"].fix


async def test_the_doctor_says_when_no_operator_looks_after_sets(cluster: Any) -> None:
    """No operator runs here: a set that was made two minutes ago has not been looked at."""
    manifest = World(cluster).system("chat", cliques=[server("one", 1, 1)])
    del manifest["spec"]["template"]["topologyConstraint"]
    await cluster.client.create(PodCliqueSet, manifest)
    now = (await cluster.client.get(PodCliqueSet, "chat", cluster.namespace)).metadata.creation_timestamp
    answer = await doctor_answer(cluster.client, cluster.namespace, now + timedelta(minutes=2))
    found = {one.check: one for one in answer.data}
    assert found["operator"].state == "failed"
    assert "1 set waits to be looked at" in found["operator"].text
    assert answer.code == 1
    await cluster.client.delete(PodCliqueSet, "chat", cluster.namespace)
