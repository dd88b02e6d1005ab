"""Answers the questions of scheduler backends about the cluster.

It asks the API server at the start, when something is missing, and from time to time. A person may switch an API on or
off while the operator runs. While gangs wait for another answer, it watches the objects of the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from grove.api.meta import Json, Resource
from grove.backends import Backends
from grove.backends.base import Backend, Question
from grove.kube.client import Client
from grove.kube.errors import (
    ApiError,
    ConnectionLost,
    Forbidden,
    KubeError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)

AGAIN_S = 300.0
SOON_S = 5.0
"""Pause before looking again for what was found missing, so that many gangs ask once."""
FIRST_TRIES = 3
"""How often a first look asks an unknown scheduler: the way a gang's objects are made is recorded for good."""

SchedulerAnswers = dict[str, dict[str, Any]]
"""The last answers of each scheduler, by question."""

log = structlog.get_logger(__name__)


class BackendDiscovery:
    """Gives the backends the cluster's answers. Calls `changed` when one of them got a new answer.

    `known_answers` has the answers to others who asked for the same backends.
    """

    def __init__(
        self,
        client: Client,
        backends: Backends,
        changed: Callable[[], None],
        known_answers: SchedulerAnswers | None = None,
    ) -> None:
        self._client, self._changed = client, changed
        self._backends = [backend for backend in backends.all if backend.questions]
        self._known_answers = known_answers if known_answers is not None else {}
        self._looked: set[str] = set()
        self._wanted = asyncio.Event()
        self._watches: dict[Question, asyncio.Task[None]] = {}

    def again(self) -> None:
        """Asks for another look, soon."""
        self._wanted.set()

    async def look(self) -> None:
        """Asks everything once. What cannot be answered now keeps its last value; a lost server is raised."""
        news = False
        for backend in self._backends:
            answers, is_complete = await self._patient_answers(backend)
            is_first = backend.name not in self._looked
            self._looked.add(backend.name)
            if not is_complete:
                self.again()
                if backend.name in self._known_answers:
                    continue
            if answers != self._known_answers.get(backend.name):
                news = news or not is_first
                self._known_answers[backend.name] = answers
                backend.learn(answers)
                served = sorted(name for name, answer in answers.items() if answer is True)
                log.info("asked the cluster what its scheduler takes", scheduler=backend.name, served=served)
        if news:
            self._changed()

    async def run(self) -> None:
        """Looks again from time to time until cancelled."""
        try:
            while self._backends:
                self._watch_awaited()
                try:
                    await asyncio.wait_for(self._wanted.wait(), AGAIN_S)
                    self._wanted.clear()
                    await asyncio.sleep(SOON_S)
                except TimeoutError:
                    pass
                try:
                    await self.look()
                except KubeError as error:
                    log.warning("the cluster could not be asked what its schedulers take", error=str(error))
            await asyncio.Event().wait()
        finally:
            for watch in self._watches.values():
                watch.cancel()
            await asyncio.gather(*self._watches.values(), return_exceptions=True)

    def _watch_awaited(self) -> None:
        """Watches what backends wait for now, and ends the other watches."""
        awaited = {question for backend in self._backends for question in backend.awaited}
        for question in self._watches.keys() - awaited:
            self._watches.pop(question).cancel()
        for question in awaited - self._watches.keys():
            self._watches[question] = asyncio.get_running_loop().create_task(self._watch(question), name="awaited")

    async def _watch(self, question: Question) -> None:
        """Asks for another look whenever an object that the question is about appears, changes or goes."""
        resource, namespace = question.resource, question.namespace
        fields = f"metadata.name={question.object_name}" if question.object_name else ""
        while True:
            try:
                page = await self._client.list(resource, namespace, fields=fields)
                self.again()  # it may have changed before the watch begins
                known = {item["metadata"]["name"]: _lasting(item) for item in page.items}
                version = page.resource_version
                async for event in self._client.watch(resource, namespace, fields=fields, resource_version=version):
                    if event.object is None:
                        continue
                    name, now = event.object["metadata"]["name"], _lasting(event.object)
                    if event.type == "DELETED" or known.get(name) != now:  # not for every change of a status
                        self.again()
                    known[name] = now
            except Forbidden:
                return  # then the look from time to time has to do
            except KubeError as error:
                log.debug("a watch ended", question=question.name, error=str(error))
            await asyncio.sleep(SOON_S)

    async def _patient_answers(self, backend: Backend) -> tuple[dict[str, Any], bool]:
        """The answers, and whether there is one to every question; asked more than once where nothing is known yet."""
        for _ in range(FIRST_TRIES - 1):
            answers, is_complete = await self._answers(backend)
            if is_complete or backend.name in self._known_answers:
                return answers, is_complete
            await asyncio.sleep(SOON_S)
        return await self._answers(backend)

    async def _answers(self, backend: Backend) -> tuple[dict[str, Any], bool]:
        before = self._known_answers.get(backend.name, {})
        answers: dict[str, Any] = {}
        is_complete = True
        for question in backend.questions:
            if question.only_if and not answers.get(question.only_if):
                continue
            try:
                answers[question.name] = await self._answer(question)
            except ConnectionLost:
                raise
            except KubeError as error:
                if _is_refusal(error):
                    answers[question.name] = None
                elif question.name in before:
                    answers[question.name] = before[question.name]
                elif isinstance(error, Forbidden):
                    answers[question.name] = None  # a right that is missing is not waited for
                else:
                    is_complete = False
                say = log.debug if _is_refusal(error) else log.info
                say("no answer", scheduler=backend.name, question=question.name, error=str(error))
        return answers, is_complete

    async def _answer(self, question: Question) -> Any:
        match question.ask:
            case "served":
                return await self._client.serves(question.resource)
            case "get":
                try:
                    return _lasting(await self._client.get(question.resource, question.object_name, question.namespace))
                except NotFound:
                    return None
            case "list":
                page = await self._client.list(question.resource)
                return [_lasting(item) for item in page.items]
            case "dry_run":
                return await self._tried(question.resource, question.body or {})

    async def _tried(self, resource: Resource, body: Json) -> Json:
        """Of what the server would make of an object, the fields that were asked for."""
        spec = (await self._client.create(resource, body, dry_run=True)).get("spec") or {}
        # Containers come back with mounts of random names.
        return {"spec": {name: spec[name] for name in body.get("spec", {}) if name in spec and name != "containers"}}


def _is_refusal(error: KubeError) -> bool:
    """True if the server refuses the object itself. A webhook that is down, a missing right or a server
    under load says nothing about it.
    """
    silent = (Unauthorized, Forbidden, TooManyRequests, Unavailable)
    return isinstance(error, ApiError) and not isinstance(error, silent)


def _lasting(obj: dict[str, Any]) -> dict[str, Any]:
    """An object without what changes at every look, so that two answers can be compared."""
    meta = obj.get("metadata") or {}
    kept = {name: meta[name] for name in ("name", "labels") if name in meta}
    lasting = {"metadata": kept, "spec": obj.get("spec") or {}}
    return lasting | ({"data": obj["data"]} if "data" in obj else {})
