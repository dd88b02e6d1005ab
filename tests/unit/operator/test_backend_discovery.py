"""Discovery of what schedulers take: every follower receives every change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from grove.api.core import Node, Pod
from grove.api.meta import Json, Resource
from grove.backends import Backends
from grove.backends.base import Answers, Backend, Question
from grove.backends.kai import KaiBackend, KaiFacts
from grove.backends.kube import KubeBackend
from grove.backends.kube_api import Capability
from grove.kube.errors import (
    ConnectionLost,
    Forbidden,
    Invalid,
    KubeError,
    NotLeader,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from grove.operator.shared.cluster import backend_discovery
from grove.operator.shared.cluster.backend_discovery import BackendDiscovery, SchedulerAnswers


class Asking(Backend):
    """A scheduler that asks whether one kind is served."""

    def __init__(self, name: str, resource: Resource) -> None:
        self.name, self._resource = name, resource
        self.learned: list[bool] = []

    @property
    def questions(self) -> Sequence[Question]:
        return (Question("served", "served", self._resource),)

    def learn(self, answers: Answers) -> None:
        self.learned.append(answers["served"])


class Server:
    """Serves these kinds; what is asked about `lost` finds no server."""

    def __init__(self) -> None:
        self.served: set[Resource] = set()
        self.lost: Resource | None = None
        self.trouble: KubeError | None = None

    async def serves(self, resource: Resource) -> bool:
        if resource == self.lost:
            raise ConnectionLost("gone")
        if self.trouble is not None:
            raise self.trouble
        return resource in self.served


async def test_news_of_one_scheduler_is_reported_also_when_another_answers_for_the_first_time() -> None:
    server, told = Server(), list[str]()
    backends = Backends([Asking("a", Node.RESOURCE), Asking("b", Pod.RESOURCE)], "a")
    discovery = BackendDiscovery(server, backends, lambda: told.append("changed"))  # type: ignore[arg-type]
    server.lost = Pod.RESOURCE
    with pytest.raises(ConnectionLost):
        await discovery.look()  # a is known, b is not
    server.lost, server.served = None, {Node.RESOURCE}
    await discovery.look()
    assert told == ["changed"]
    await discovery.look()
    assert told == ["changed"]


async def test_a_kind_that_is_uninstalled_and_comes_back_is_reported_each_time() -> None:
    server, told, asking = Server(), list[str](), Asking("a", Node.RESOURCE)
    discovery = BackendDiscovery(server, Backends([asking], "a"), lambda: told.append("changed"))  # type: ignore[arg-type]
    for served in ({Node.RESOURCE}, {Node.RESOURCE}, set[Resource](), {Node.RESOURCE}):
        server.served = served
        await discovery.look()
    assert asking.learned == [True, False, True]
    assert told == ["changed", "changed"]  # what is known_answers first is no change


class Troubled:
    """Takes everything that KAI and Kubernetes 1.36 have; `trouble` is raised by those calls."""

    def __init__(self) -> None:
        self.trouble: dict[str, KubeError] = {}
        self.asked = 0

    async def serves(self, resource: Resource) -> bool:
        self._raise("serves")
        return resource.group != "scheduling.k8s.io" or resource.version == "v1alpha2"

    async def create(self, resource: Resource, body: Json, *, dry_run: bool) -> Json:
        self.asked += 1
        self._raise("create")
        return body

    def _raise(self, call: str) -> None:
        if call in self.trouble:
            raise self.trouble[call]


KAI = KaiFacts(installed=True, subgroups=True, staleness=True)
KUBE = Capability("v1alpha2", topology=True, preemption=True)
NO_ANSWER = [
    pytest.param(Unavailable("failed calling webhook", code=500), id="a webhook is down"),
    pytest.param(TooManyRequests("slow down", code=429), id="the server is under load"),
    pytest.param(Unauthorized("token", code=401), id="the token is not taken"),
    pytest.param(Forbidden("rights", code=403), id="a right is missing"),
    pytest.param(NotLeader("lease"), id="the lease is in doubt"),
]


def asking(
    server: Troubled, *schedulers: Backend, told: list[str] | None = None, known_answers: SchedulerAnswers | None = None
) -> BackendDiscovery:
    changed = (told if told is not None else []).append
    backends = Backends(schedulers, schedulers[0].name)
    return BackendDiscovery(server, backends, lambda: changed("changed"), known_answers)  # type: ignore[arg-type]


@pytest.mark.parametrize("call", ["serves", "create"])
@pytest.mark.parametrize("error", NO_ANSWER)
async def test_what_cannot_be_asked_now_keeps_its_last_answer(error: KubeError, call: str) -> None:
    server, told, kai, kube = Troubled(), list[str](), KaiBackend(), KubeBackend()
    discovery = asking(server, kai, kube, told=told)
    await discovery.look()
    server.trouble = {call: error}
    await discovery.look()
    assert (kai.facts, kube.offered, told) == (KAI, KUBE, [])


async def test_a_refusal_is_an_answer() -> None:
    server, told, kai = Troubled(), list[str](), KaiBackend()
    discovery = asking(server, kai, told=told)
    await discovery.look()
    server.trouble = {"create": Invalid("spec.subGroups", code=422)}
    await discovery.look()
    assert (kai.facts, told) == (KaiFacts(installed=True), ["changed"])


@pytest.mark.parametrize("error", NO_ANSWER)
async def test_a_new_leader_keeps_what_it_received_as_a_standby(error: KubeError) -> None:
    server, kai, known_answers = Troubled(), KaiBackend(), SchedulerAnswers()
    await asking(server, kai, known_answers=known_answers).look()
    server.trouble = {"create": error}
    await asking(server, kai, known_answers=known_answers).look()
    assert kai.facts == KAI


async def test_who_takes_over_in_trouble_is_reported_when_it_passes_and_something_is_new() -> None:
    server, told, asking_for, known_answers = (
        Server(),
        list[str](),
        Asking("a", Node.RESOURCE),
        SchedulerAnswers({"a": {}}),
    )
    leading = BackendDiscovery(server, Backends([asking_for], "a"), lambda: told.append("changed"), known_answers)  # type: ignore[arg-type]
    server.trouble = Unavailable("etcd", code=503)
    await leading.look()
    server.trouble = None
    await leading.look()
    assert (asking_for.learned, told) == ([False], ["changed"])


async def test_at_a_first_look_trouble_that_passes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server, kai, pauses = Troubled(), KaiBackend(), list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        server.trouble = {}

    monkeypatch.setattr(backend_discovery.asyncio, "sleep", pause)
    server.trouble = {"create": Unavailable("failed calling webhook", code=500)}
    await asking(server, kai).look()
    assert (kai.facts, pauses) == (KAI, [backend_discovery.SOON_S])


async def test_trouble_that_stays_stops_no_start_and_is_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server, told, kai = Troubled(), list[str](), KaiBackend()
    monkeypatch.setattr(backend_discovery, "SOON_S", 0.0)
    server.trouble = {"create": Unavailable("failed calling webhook", code=500)}
    discovery = asking(server, kai, told=told)
    await discovery.look()
    await discovery.look()
    assert (kai.facts, told) == (KaiFacts(installed=True), [])
    server.trouble = {}
    await discovery.look()
    assert (kai.facts, told) == (KAI, ["changed"])


async def test_a_right_that_is_missing_from_the_start_is_asked_for_once_a_look() -> None:
    server, kai = Troubled(), KaiBackend()
    server.trouble = {"create": Forbidden("rights", code=403)}
    await asking(server, kai).look()
    assert (kai.facts, server.asked) == (KaiFacts(installed=True), 1)
