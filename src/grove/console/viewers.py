"""The viewers, what they may see, and the followings they share.

The API server answers what a viewer may see, with the viewer's own credentials. Viewers with the same rights share one
following, which reads with the credentials of one of them. A viewer never gets rows of a kind or namespace that its
own rights do not cover. Rights are checked again every minute, because they can be taken away.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog

from grove.api.meta import Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.console.follow import COMPLAINTS, OF_CLUSTER, OF_NAMESPACE, OPTIONAL, REFERRED, EngineFigures, Following
from grove.console.ledger import Ledger
from grove.kube.client import Client
from grove.kube.connection import ClusterConfig
from grove.kube.credentials import Credential, CredentialSource, Fixed
from grove.kube.errors import Forbidden, Unauthorized
from grove.kube.http import HttpClient
from grove.show.engine_figures import METRICS
from grove.show.figures import ENGINE_FIGURES
from grove.show.past import Past

LINGER_S = 30.0
"""A following outlives its last viewer this long: pages are loaded again more often than they are left."""
RIGHTS_S = 60.0
"""How often a viewer's rights are checked again."""
MOST_SESSIONS = 1000

_REVIEW = Resource(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)

log = structlog.get_logger(__name__)


async def visible_kinds(client: Client, namespace: str) -> tuple[type[Any], ...]:
    """The kinds a client may both list and watch, in a namespace or (empty) in all of them.

    Kinds that say why pods do not start are there if the client may read them.
    """

    async def may(kind: type[Any], verb: str) -> bool:
        res, where = kind.RESOURCE, namespace if kind.RESOURCE.namespaced else ""
        return await _allowed(client, {"verb": verb, "group": res.group, "resource": res.plural, "namespace": where})

    served = [kind for kind in OPTIONAL if await client.serves(kind)]
    kinds = (*OF_NAMESPACE, *OF_CLUSTER, *served)
    asked = [(kind, verb) for kind in kinds for verb in ("list", "watch")]
    asked += [*((kind, "get") for kind in REFERRED), *((kind, "list") for kind in COMPLAINTS)]
    answers = await asyncio.gather(*(may(*question) for question in asked), _may_read_engines(client, namespace))
    refused = {kind for (kind, _), allowed in zip(asked, answers, strict=False) if not allowed}
    allowed_kinds = tuple(kind for kind in (*kinds, *REFERRED, *COMPLAINTS) if kind not in refused)
    return (*allowed_kinds, EngineFigures) if answers[-1] else allowed_kinds


async def _may_read_engines(client: Client, namespace: str) -> bool:
    resource, _, name = METRICS.plural.partition("/")
    asked = {"verb": "get", "group": METRICS.group, "resource": resource, "name": name, "namespace": namespace}
    return await _allowed(client, asked | {"subresource": ENGINE_FIGURES[0].name})


async def _allowed(client: Client, asked: Mapping[str, str]) -> bool:
    """True if the API server allows a request with these attributes."""
    answer = await client.create(_REVIEW, {"spec": {"resourceAttributes": {k: v for k, v in asked.items() if v}}})
    return bool((answer.get("status") or {}).get("allowed"))


class _AnyMember:
    """Credentials of one of several who are allowed the same; the next one's turn when the server refuses."""

    def __init__(self) -> None:
        self.members: dict[object, CredentialSource] = {}

    async def current(self) -> Credential:
        source = next(iter(self.members.values()), None)
        return await source.current() if source is not None else Credential()

    def reject(self) -> bool:
        if not self.members:
            return False
        who, source = next(iter(self.members.items()))
        if source.reject():
            return True
        del self.members[who]
        return bool(self.members)


@dataclass(eq=False)
class _Shared:
    following: Following
    credentials: _AnyMember
    ready: asyncio.Future[None]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    viewers: int = 0


class Followings:
    """Followings by what they may see, started for their first viewer and ended after their last."""

    def __init__(self, config: ClusterConfig, *, linger_s: float = LINGER_S) -> None:
        self._config, self._linger_s = config, linger_s
        self._shared: dict[tuple[str, frozenset[str]], _Shared] = {}

    def __len__(self) -> int:
        return len(self._shared)

    @asynccontextmanager
    async def shared(
        self, kinds: Iterable[type[Any]], namespace: str, credentials: CredentialSource
    ) -> AsyncIterator[Following]:
        """The following of these rights; the caller has been found to have them."""
        wanted = tuple(kinds)
        key = (namespace, frozenset(kind.__name__ for kind in wanted))
        shared = self._shared.get(key)
        if shared is None or shared.stop.is_set():
            shared = self._shared[key] = self._start(key, wanted, namespace, credentials)
        me = object()
        shared.credentials.members[me] = credentials
        shared.viewers += 1
        try:
            await asyncio.shield(shared.ready)
            yield shared.following
        finally:
            shared.credentials.members.pop(me, None)
            shared.viewers -= 1
            if not shared.viewers:
                asyncio.get_running_loop().call_later(self._linger_s, self._end_unless_used, key, shared)

    def _start(
        self, key: tuple[str, frozenset[str]], kinds: tuple[type[Any], ...], namespace: str, first: CredentialSource
    ) -> _Shared:
        loop = asyncio.get_running_loop()
        credentials = _AnyMember()
        credentials.members[self] = first  # until the first viewer counts itself
        client = HttpClient(replace(self._config, credentials=credentials), user_agent="grove-console")
        shared = _Shared(Following(client, kinds, namespace), credentials, loop.create_future())
        credentials.members.pop(self)
        shared.task = loop.create_task(self._run(shared, client), name=f"follow-{namespace or 'all'}")
        shared.task.add_done_callback(
            lambda _: self._shared.pop(key, None) if self._shared.get(key) is shared else None
        )
        return shared

    async def _run(self, shared: _Shared, client: HttpClient) -> None:
        try:
            async with client, shared.following.following():
                shared.ready.set_result(None)
                await shared.stop.wait()
        except BaseException as error:
            cause = _first(error)
            if not shared.ready.done():
                shared.ready.set_exception(cause)
                shared.ready.exception()  # seen, even if every viewer has left
            elif not isinstance(cause, asyncio.CancelledError):
                log.warning("following ended", error=str(cause))
            if isinstance(cause, asyncio.CancelledError):
                raise
        finally:
            shared.stop.set()

    def _end_unless_used(self, key: tuple[str, frozenset[str]], shared: _Shared) -> None:
        if not shared.viewers:
            shared.stop.set()
            if self._shared.get(key) is shared:
                del self._shared[key]

    async def close(self) -> None:
        tasks = [shared.task for shared in self._shared.values() if shared.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


Question = Callable[[Client, str, Mapping[str, Any]], Coroutine[Any, Any, Any]]
"""Answers with values: the client has the viewer's rights, then the namespace, then what was asked."""


class Unanswerable(Exception):
    """A question that has no answer, for a reason the viewer can do something about."""


@dataclass(frozen=True, slots=True)
class Later:
    """The rest of an answer, which is only computing: it is done in a thread of its own."""

    work: Callable[[], Any]


class Watched(Protocol):
    @property
    def ledger(self) -> Ledger: ...

    @property
    def past(self) -> Past: ...

    @property
    def is_everything(self) -> bool: ...


class Viewer(Protocol):
    """A person with an open page."""

    def watching(self, namespace: str) -> AbstractAsyncContextManager[Watched]:
        """The objects that a viewer may see of a namespace, or of all.

        Raises Forbidden without the right to read PodCliqueSets.
        """
        ...

    async def still_may(self, watched: Watched) -> bool:
        """True if the viewer's rights still cover what is watched."""
        ...

    async def answer(self, question: Question, namespace: str, asked: Mapping[str, Any]) -> Any:
        """A question answered with their rights and no more."""
        ...


class ClusterViewer:
    """A viewer of a real cluster, by their own credentials."""

    def __init__(self, config: ClusterConfig, followings: Followings) -> None:
        self.client: HttpClient = HttpClient(config, user_agent="grove-console", attempts=2)
        self._credentials, self._followings = config.credentials, followings
        self._rights: dict[str, tuple[float, tuple[type[Any], ...]]] = {}

    @asynccontextmanager
    async def watching(self, namespace: str) -> AsyncIterator[Following]:
        kinds = await self._kinds(namespace)
        if PodCliqueSet not in kinds:
            where = f"namespace {namespace}" if namespace else "all namespaces; name the one you work in"
            raise Forbidden(f"you may not list and watch PodCliqueSets in {where}", code=403)
        async with self._followings.shared(kinds, namespace, self._credentials) as following:
            yield following

    async def still_may(self, watched: Watched) -> bool:
        assert isinstance(watched, Following)
        try:
            return set(watched.kinds) <= set(await self._kinds(watched.namespace))
        except (Unauthorized, Forbidden):
            return False

    async def answer(self, question: Question, namespace: str, asked: Mapping[str, Any]) -> Any:
        everywhere = PodCliqueSet in await self._kinds("")
        try:
            async with self.watching("" if everywhere else namespace) as following:
                answer = await question(following.reader(self.client), namespace, asked)
        except Forbidden:
            answer = await question(self.client, namespace, asked)  # what is left is for the API server to refuse
        return await asyncio.to_thread(answer.work) if isinstance(answer, Later) else answer

    async def _kinds(self, namespace: str) -> tuple[type[Any], ...]:
        now_s = asyncio.get_running_loop().time()
        asked_s, kinds = self._rights.get(namespace, (-RIGHTS_S, ()))
        if now_s - asked_s >= RIGHTS_S:
            kinds = await visible_kinds(self.client, namespace)
            self._rights[namespace] = (now_s, kinds)
        return kinds

    async def close(self) -> None:
        await self.client.close()


class TokenViewers:
    """Viewers of a console inside a cluster: everyone brings a bearer token of their own, with every request."""

    mode = "cluster"

    def __init__(self, config: ClusterConfig, followings: Followings) -> None:
        self._config, self._followings = config, followings
        self._known: dict[bytes, ClusterViewer] = {}

    async def find(self, token: str) -> ClusterViewer | None:
        """The viewer of a token; whether it is a good one, the API server says at the first question."""
        if not token:
            return None
        name = hashlib.sha256(token.encode()).digest()
        viewer = self._known.get(name)
        if viewer is None:
            if len(self._known) >= MOST_SESSIONS:
                await self._known.pop(next(iter(self._known))).close()
            config = replace(self._config, credentials=Fixed(Credential(token=token)))
            viewer = self._known[name] = ClusterViewer(config, self._followings)
        return viewer

    async def close(self) -> None:
        for viewer in self._known.values():
            await viewer.close()


class Owner:
    """The one viewer of a console on their own machine: a link that opens once, then a session of that tab."""

    def __init__(self, viewer: Viewer, mode: str) -> None:
        self.mode, self._viewer = mode, viewer
        self.said: Callable[[str], None] = lambda link: None
        """Called with every new link."""
        self._links: set[str] = set()
        self._sessions: set[bytes] = set()

    def new_link(self) -> str:
        """A token that opens one session."""
        token = secrets.token_urlsafe(24)
        self._links = {token}
        return token

    def open(self, link: str) -> str | None:
        """A session for a link that was not used before; a new link is made and said for the next tab."""
        if not any(secrets.compare_digest(link.encode(), other.encode()) for other in self._links):
            return None
        session = secrets.token_urlsafe(24)
        if len(self._sessions) < MOST_SESSIONS:
            self._sessions.add(hashlib.sha256(session.encode()).digest())
        self.said(self.new_link())
        return session

    async def find(self, token: str) -> Viewer | None:
        return self._viewer if hashlib.sha256(token.encode()).digest() in self._sessions else None
