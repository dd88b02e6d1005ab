"""Answers the questions of scheduler backends about the cluster: at the start, when something is missing, and now and
then, because an API may be switched on or off under a running operator.
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
from grove.kube.errors import ConnectionLost, KubeError, NotFound

AGAIN_S = 300.0
SOON_S = 5.0
"""Pause before looking again for what was found missing, so that many gangs ask once."""

log = structlog.get_logger(__name__)


class BackendDiscovery:
    """Lets the backends know what the cluster offers. `changed` is called when one of them heard something new."""

    def __init__(self, client: Client, backends: Backends, changed: Callable[[], None]) -> None:
        self._client, self._changed = client, changed
        self._backends = [one for one in backends.all if one.questions]
        self._heard: dict[str, dict[str, Any]] = {}
        self._wanted = asyncio.Event()

    def again(self) -> None:
        """Asks for another look, soon."""
        self._wanted.set()

    async def look(self) -> None:
        """Asks everything once. An answer that cannot be had now is no answer, except that a lost server is raised."""
        news = False
        for backend in self._backends:
            answers = await self._answers(backend)
            if answers != self._heard.get(backend.name):
                news = news or backend.name in self._heard
                self._heard[backend.name] = answers
                backend.learn(answers)
                served = sorted(name for name, answer in answers.items() if answer is True)
                log.info("asked the cluster what its scheduler takes", scheduler=backend.name, served=served)
        if news:
            self._changed()

    async def run(self) -> None:
        """Looks again from time to time until cancelled."""
        while self._backends:
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

    async def _answers(self, backend: Backend) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for question in backend.questions:
            if question.only_if and not answers.get(question.only_if):
                continue
            try:
                answers[question.name] = await self._answer(question)
            except ConnectionLost:
                raise
            except KubeError as error:
                answers[question.name] = None
                log.debug("no answer", scheduler=backend.name, question=question.name, error=str(error))
        return answers

    async def _answer(self, question: Question) -> Any:
        match question.ask:
            case "served":
                return await self._client.serves(question.resource)
            case "get":
                try:
                    return _lasting(await self._client.get(question.resource, question.object_name))
                except NotFound:
                    return None
            case "list":
                page = await self._client.list(question.resource)
                return [_lasting(one) for one in page.items]
            case "dry_run":
                return await self._tried(question.resource, question.body or {})

    async def _tried(self, resource: Resource, body: Json) -> Json:
        """Of what the server would make of an object, the fields that were asked for."""
        spec = (await self._client.create(resource, body, dry_run=True)).get("spec") or {}
        # Containers come back with mounts of random names.
        return {"spec": {name: spec[name] for name in body.get("spec", {}) if name in spec and name != "containers"}}


def _lasting(obj: dict[str, Any]) -> dict[str, Any]:
    """An object without what changes at every look, so that two answers can be compared."""
    meta = obj.get("metadata") or {}
    kept = {name: meta[name] for name in ("name", "labels") if name in meta}
    return {"metadata": kept, "spec": obj.get("spec") or {}}
