"""Logs and exec by role, from a real kubelet: through the API server, as `kubectl logs` and `kubectl exec` go."""

from __future__ import annotations

import asyncio
import re

import pytest

from grove.api import labels
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.http import HttpClient
from grove.local.nodes.cluster import RealCluster
from tests.node.seeing import PATIENCE_S, Seen, Terminal, ended, eventually, pods_of, served
from tests.support.manifests import clique, group, pcs


@pytest.fixture
async def system(nodes: RealCluster, client: HttpClient, namespace: str) -> dict[str, list[Seen]]:
    """A front with two pods, and two copies of a leader in a group; the pods of each clique, all running."""
    parts = [clique("front", 2, **served()), clique("leader", 1, **served())]
    await client.create(
        PodCliqueSet, pcs("web", *parts, groups=[group("pair", "leader", replicas=2)], namespace=namespace)
    )
    found: dict[str, list[Seen]] = {}
    for name, count in (("web-0-front", 2), ("web-0-pair-0-leader", 1), ("web-0-pair-1-leader", 1)):

        async def running(name: str = name, count: int = count) -> list[Seen]:
            pods = await pods_of(client, namespace, name)
            return pods if len(pods) == count and all(one.runs for one in pods) else []

        found[name] = await eventually(running)
    return found


async def test_logs_of_several_pods_say_whose_each_line_is(system: dict[str, list[Seen]], terminal: Terminal) -> None:
    code, out, err = await terminal.run("logs web")
    assert (code, err) == (0, "")
    lines = sorted(re.sub(r" +", " ", line) for line in out.splitlines())
    assert [line.split(" \u2502 ")[0] for line in lines] == ["front-0", "front-1", "pair/0/leader-0", "pair/1/leader-0"]
    assert all(" \u2502 serving as web-0-" in line for line in lines)


async def test_logs_of_one_pod_are_its_lines_alone(system: dict[str, list[Seen]], terminal: Terminal) -> None:
    [leader] = system["web-0-pair-1-leader"]
    await leader.say("ready")
    await leader.say("unready")
    code, out, _ = await terminal.run("logs web/pair/1 leader")
    assert (code, out.splitlines()[1:]) == (0, ["told /ready", "told /unready"])
    assert (await terminal.run("logs web/pair/1 --tail 1"))[1] == "told /unready\n"
    stamped = (await terminal.run("logs web/pair/1 --tail 1 --timestamps"))[1]
    assert re.fullmatch(r"20\d\d-\S+Z told /unready\n", stamped)
    code, out, err = await terminal.run("logs web/pair/1 -c nobody")
    assert (code, out) == (2, "")
    assert "container nobody is not valid for pod" in err
    code, out, err = await terminal.run("logs web/pair/1 --previous")
    assert (code, out) == (2, "")
    assert "previous terminated container" in err


async def test_logs_go_on_as_more_is_written(system: dict[str, list[Seen]], terminal: Terminal) -> None:
    process = await terminal.start("logs web/front -f")
    assert process.stdout is not None

    async def line() -> str:
        assert process.stdout is not None
        found = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        return re.sub(r" +", " ", found.decode().rstrip())

    try:
        assert {(await line()).split(" \u2502 ")[0] for _ in range(2)} == {"front-0", "front-1"}
        for index, pod in enumerate(
            sorted(system["web-0-front"], key=lambda one: one.pod["metadata"]["labels"][labels.POD_INDEX])
        ):
            await pod.say("ready")
            assert await line() == f"front-{index} \u2502 told /ready"
    finally:
        await ended(process)


async def test_exec_runs_in_the_pod_that_plays_the_part(system: dict[str, list[Seen]], terminal: Terminal) -> None:
    code, out, _ = await terminal.run("exec web/pair/0 leader", "--", "/serve", "echo", "hello", "--there")
    assert (code, out) == (7, "hello --there\n"), "and ends as the program does"
    code, out, _ = await terminal.run("exec -i web/pair/0", "--", "/serve", "echo", "first", said="then this")
    assert (code, out) == (7, "first\nthen this")
