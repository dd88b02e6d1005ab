"""The console in front of a real API server: every viewer sees what their own token may read, and nothing else."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import ClientSession, web
from tests.support.console_process import printed_link, started
from tests.support.manifests import clique, pcs
from tests.support.rights import await_right
from tests.support.waiting import HANGS_S

from grove.answers.tree import status_answer, tree_answer
from grove.api.core import Namespace, Node
from grove.api.podcliqueset import PodCliqueSet
from grove.cli.access import formatted
from grove.console.questions import questions
from grove.console.server import Console
from grove.console.viewers import Followings, TokenViewers
from grove.kube.config import load_config
from grove.kube.credentials import Credential, Fixed
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane

Teams = tuple[str, str]


class Door:
    """A console inside a cluster, and people who knock with their tokens."""

    def __init__(self, url: str, http: ClientSession, plane: ControlPlane, followings: Followings) -> None:
        self.url, self.http, self._plane, self.followings = url, http, plane, followings

    def kubectl(self, *args: str) -> str:
        done = subprocess.run(
            [self._plane.kubectl, "--kubeconfig", self._plane.kubeconfig, *args],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def token(self, namespace: str, name: str, *bind: str) -> str:
        """A token of a new account, with what `kubectl create` binds to it: a role that may list sets."""
        self.kubectl("create", "serviceaccount", name, "-n", namespace)
        if bind:
            self.kubectl("create", *bind, f"--serviceaccount={namespace}:{name}")
            where = namespace if bind[0] == "rolebinding" else ""
            await_right(self._plane, f"system:serviceaccount:{namespace}:{name}", "list", "podcliquesets", where)
        return self.kubectl("create", "token", name, "-n", namespace)

    async def ask(self, token: str, question: str, **asked: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.http.post(f"{self.url}/api/ask/{question}", data=json.dumps(asked), headers=headers) as answer:
            return answer.status, await answer.json()

    @asynccontextmanager
    async def stream(self, token: str, namespace: str = "") -> AsyncIterator[Seen]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.http.get(f"{self.url}/api/stream?namespace={namespace}", headers=headers) as answer:
            yield Seen(answer)


class Seen:
    """The tables that a page received."""

    def __init__(self, answer: Any) -> None:
        self.status, self._answer = answer.status, answer
        self.tables: dict[str, dict[str, Any]] = {}
        self.raw = ""

    async def until(self, holds: Callable[[dict[str, dict[str, Any]]], bool]) -> None:
        async with asyncio.timeout(HANGS_S):
            while not holds(self.tables):
                line = (await self._answer.content.readline()).decode()
                assert line, "the stream ended"
                self.raw += line
                if line.startswith("data: "):
                    change = json.loads(line.removeprefix("data: "))
                    for name, rows in change["put"].items():
                        self.tables.setdefault(name, {}).update(rows)
                    for name, keys in change["gone"].items():
                        for key in keys:
                            self.tables.get(name, {}).pop(key, None)


@pytest.fixture
async def door(control_plane: ControlPlane) -> AsyncIterator[Door]:
    # The console's own account may do nothing: it has no credentials at all.
    config = replace(load_config(control_plane.kubeconfig), credentials=Fixed(Credential()))
    followings = Followings(config)
    guests = TokenViewers(config, followings)
    runner = web.AppRunner(Console(guests, questions()).application(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ClientSession(read_bufsize=2**22) as http:
        yield Door(f"http://127.0.0.1:{runner.addresses[0][1]}", http, control_plane, followings)
    await runner.cleanup()
    await followings.close()
    await guests.close()


@pytest.fixture
async def two_teams(client: HttpClient, fresh_name: str) -> AsyncIterator[Teams]:
    """Two namespaces with a set each, of names that are found in no other place."""
    teams = (f"{fresh_name}-red", f"{fresh_name}-blue")
    for team in teams:
        await client.create(Namespace, {"metadata": {"name": team}})
        meta = {"name": f"only-{team}", "namespace": team}
        await client.create(PodCliqueSet, {**pcs(meta["name"], clique("w", 1)), "metadata": meta})
    yield teams
    for team in teams:
        await client.delete(Namespace, team)


VIEW = ("--verb=get,list,watch", "--resource=podcliquesets.grove.io,podcliques.grove.io,pods,events")


async def test_a_viewer_with_rights_in_one_namespace_sees_no_name_of_another(door: Door, two_teams: Teams) -> None:
    red, blue = two_teams
    door.kubectl("create", "role", "look", "-n", red, *VIEW)
    token = door.token(red, "viewer", "rolebinding", "look", "-n", red, "--role=look")
    async with door.stream(token, red) as seen:
        await seen.until(lambda tables: f"{red}/only-{red}" in tables.get("sets", {}) and "about" in tables)
        assert blue not in seen.raw
        assert "nodes" in seen.tables["about"]["unreadable"]
    for question in ("tree", "events", "why"):
        status, answer = await door.ask(token, question, namespace=blue, name=f"only-{blue}")
        assert (status, "uid" in json.dumps(answer)) == (403, False), answer
    status, _ = await door.ask(token, "object", namespace=blue, kind="PodCliqueSet", name=f"only-{blue}")
    assert status == 403
    async with door.stream(token) as seen:
        assert seen.status == 403
    async with door.stream(token, blue) as seen:
        assert seen.status == 403


async def test_viewers_with_the_same_rights_share_a_following_and_others_do_not(door: Door, two_teams: Teams) -> None:
    red, blue = two_teams
    role = f"look-{red}"
    door.kubectl("create", "clusterrole", role, *VIEW)
    tokens = [
        door.token(red, f"all-{number}", "clusterrolebinding", f"{role}-{number}", f"--clusterrole={role}")
        for number in (1, 2)
    ]
    narrow = door.token(blue, "one", "rolebinding", "look", "-n", blue, f"--clusterrole={role}")
    both = {f"{red}/only-{red}", f"{blue}/only-{blue}"}
    async with door.stream(tokens[0]) as first, door.stream(tokens[1]) as second, door.stream(narrow, blue) as third:
        for seen in (first, second):
            await seen.until(lambda tables: both <= set(tables.get("sets", {})))
        await third.until(lambda tables: f"{blue}/only-{blue}" in tables.get("sets", {}))
        assert set(third.tables["sets"]) == {f"{blue}/only-{blue}"}
        assert len(door.followings) == 2
        door.kubectl("delete", "clusterrolebinding", f"{role}-1")  # the other viewer still sees it
        door.kubectl("label", "podcliqueset", f"only-{red}", "-n", red, "seen=again")
        door.kubectl("scale", "podcliqueset", f"only-{red}", "-n", red, "--replicas=3")
        await second.until(lambda tables: tables["sets"][f"{red}/only-{red}"]["replicas"] == 3)
    door.kubectl("delete", "clusterrolebinding", f"{role}-2")
    door.kubectl("delete", "clusterrole", role)


@pytest.mark.parametrize("token", ["made-up", "a.b.c"])
async def test_a_token_no_one_gave_is_refused(door: Door, token: str) -> None:
    async with door.stream(token) as seen:
        assert seen.status == 401
    status, answer = await door.ask(token, "queue", namespace="")
    assert (status, answer) == (401, {"error": "the API server does not accept this token"})


async def test_what_the_page_shows_is_what_the_command_line_prints(
    door: Door, client: HttpClient, two_teams: Teams, fresh_name: str
) -> None:
    red, _ = two_teams
    token = door.token(red, "admin", "clusterrolebinding", f"admin-{fresh_name}", "--clusterrole=cluster-admin")
    async with door.stream(token) as seen:
        await seen.until(lambda tables: f"{red}/only-{red}" in tables.get("sets", {}))
        row = dict(seen.tables["sets"][f"{red}/only-{red}"])
        assert row.pop("gangs") == {}  # their states stand in the page alone
        found = await status_answer(client, red, f"only-{red}", datetime.now(UTC))
        assert [row] == json.loads(formatted(found.data, "json"))
        status, tree = await door.ask(token, "tree", namespace=red, name=f"only-{red}")
        want = json.loads(formatted((await tree_answer(client, red, f"only-{red}")).data, "json"))
        assert (status, tree) == (200, want)
        await client.create(Node, {"metadata": {"name": f"{fresh_name}-n"}, "status": {"allocatable": {"cpu": "1"}}})
        await seen.until(lambda tables: f"{fresh_name}-n" in tables.get("nodes", {}))
        await client.delete(Node, f"{fresh_name}-n")
        await seen.until(lambda tables: f"{fresh_name}-n" not in tables["nodes"])
    door.kubectl("delete", "clusterrolebinding", f"admin-{fresh_name}")


async def test_a_proxy_may_bring_the_token_in_a_header_of_its_own(
    control_plane: ControlPlane, door: Door, two_teams: Teams
) -> None:
    red, _ = two_teams
    door.kubectl("create", "role", "look", "-n", red, *VIEW)
    token = door.token(red, "viewer", "rolebinding", "look", "-n", red, "--role=look")
    config = replace(load_config(control_plane.kubeconfig), credentials=Fixed(Credential()))
    guests = TokenViewers(config, door.followings)
    app = Console(guests, questions(), token_header="X-Forwarded-Access-Token").application()
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        for headers, want in (({"X-Forwarded-Access-Token": token}, (True, 200)), ({}, (False, 401))):
            async with door.http.get(f"{url}/api/mode", headers=headers) as answer:
                knows = (await answer.json())["signedIn"]
            body = json.dumps({"namespace": red, "name": f"only-{red}"})
            async with door.http.post(f"{url}/api/ask/tree", data=body, headers=headers) as answer:
                assert (knows, answer.status) == want
    finally:
        await runner.cleanup()
        await guests.close()


async def test_grove_console_has_the_rights_of_its_kubeconfig(
    control_plane: ControlPlane, door: Door, two_teams: Teams
) -> None:
    words = ("console", "--no-open", "--kubeconfig", str(control_plane.kubeconfig))
    async with started(*words) as process:
        url, link = await printed_link(process)
        async with door.http.post(f"{url}/api/session", data=json.dumps({"link": link})) as answer:
            session = (await answer.json())["session"]
        headers = {"Authorization": f"Bearer {session}"}
        async with door.http.get(f"{url}/api/stream", headers=headers) as stream:
            both = {f"{team}/only-{team}" for team in two_teams}
            await Seen(stream).until(lambda tables: both <= set(tables.get("sets", {})))
