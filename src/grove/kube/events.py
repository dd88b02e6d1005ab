"""Records what happened to objects: Events that `kubectl describe` shows. A reconcile never waits for them.

If the same thing happens again, the recorder raises the count of the Event. If an object has many different messages
with one reason, they become one combined Event. Good news of many siblings (500 gangs of one set are placed) become a
few Events of their own, and then one summary on their owner. A separate task writes the Events. When it cannot keep up,
it drops the oldest ones.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import structlog

from grove.api.core import Event
from grove.api.meta import Json, Object, rfc3339
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock
from grove.kube.errors import Forbidden, KubeError, NotFound, NotLeader
from grove.kube.tracing import TRACE_ID

EventKind = Literal["Normal", "Warning"]

WINDOW_S = 600.0
"""The same words within this time are one Event."""
SIMILAR = 10
"""This number of different messages of one object and reason stay separate; the rest is combined."""
SIBLINGS, SIBLINGS_S, SUM_S = 20, 60.0, 5.0
"""This number of siblings may record the same normal event in a minute; the others are summed up on their owner."""
UNSAID = 1000
REMEMBERED = 4096
MESSAGE_BYTES = 1024
"""The API server refuses longer ones."""

log = structlog.get_logger(__name__)


class _Subject(NamedTuple):
    """The object an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    trace_id: str = ""


class _Topic(NamedTuple):
    subject: _Subject
    type: EventKind
    reason: str
    message: str


@dataclass(slots=True)
class _RecordedEvent:
    """One Event, written or about to be."""

    name: str
    first: str
    last: str
    began: float
    count: int = 0
    written: int = 0
    message: str = ""


@dataclass(slots=True)
class _Variety:
    """The different messages an object gave for one reason in the current window."""

    began: float
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Siblings:
    """Objects of one owner with an Event of the same reason: the first time, the count, and the last one that is not
    written.
    """

    owner: _Subject
    began: float
    reported: int = 0
    unwritten: int = 0
    last: str = ""


class Recorder:
    """Takes Events from anywhere on the loop; `run` writes them until it is cancelled."""

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        clock: Clock = SYSTEM,
        rng: random.Random | None = None,
    ) -> None:
        self._client, self._component = client, component
        self._clock, self._rng = clock, rng or random.Random(random.getrandbits(64))
        self._recorded: OrderedDict[_Topic, _RecordedEvent] = OrderedDict()
        self._variety: OrderedDict[tuple[_Subject, EventKind, str], _Variety] = OrderedDict()
        self._siblings: OrderedDict[tuple[str, str], _Siblings] = OrderedDict()
        self._unsaid: OrderedDict[_Topic, None] = OrderedDict()
        self._news = asyncio.Event()
        self.dropped = 0
        self.trace_id_of: Callable[[Object], str] | None = None
        """Gives the trace of an object, for an annotation of its Events; None while this process exports no traces."""

    def normal(self, about: Object, reason: str, message: str) -> None:
        if not self._is_summed_up(about, reason, message):
            self._record(self._subject_of(about), "Normal", reason, message)

    def warn(self, about: Object, reason: str, message: str) -> None:
        self._record(self._subject_of(about), "Warning", reason, message)

    async def run(self) -> None:
        while True:
            while self._unsaid:
                await self._write_next()
            self._news.clear()
            await self._news.wait()

    async def flush(self) -> None:
        """Writes what is unsaid now; for the end of a process."""
        for key in list(self._siblings):
            self._sum_up(key)
        while self._unsaid:
            await self._write_next()

    def _is_summed_up(self, about: Object, reason: str, message: str) -> bool:
        owner, loop = about.metadata.controller, asyncio.get_running_loop()
        if owner is None:
            return False
        key = (owner.uid, reason)
        siblings = self._siblings.get(key)
        if siblings is None or (loop.time() - siblings.began >= SIBLINGS_S and not siblings.unwritten):
            subject = _Subject(
                owner.api_version,
                owner.kind,
                about.metadata.namespace,
                owner.name,
                owner.uid,
                self._trace_id_of(about),
            )
            siblings = self._siblings[key] = _Siblings(subject, loop.time())
            _trim(self._siblings, REMEMBERED)
        siblings.reported += 1
        if siblings.reported <= SIBLINGS:
            return False
        if not siblings.unwritten:
            loop.call_later(SUM_S, self._sum_up, key)
        siblings.unwritten += 1
        siblings.last = f"{about.RESOURCE.kind} {about.metadata.name}: {message}"
        return True

    def _sum_up(self, key: tuple[str, str]) -> None:
        siblings = self._siblings.get(key)
        if siblings is None or not siblings.unwritten:
            return
        more = f" (and {siblings.unwritten - 1} more)" if siblings.unwritten > 1 else ""
        siblings.unwritten = 0
        self._record(siblings.owner, "Normal", key[1], f"{siblings.last}{more}")

    def _record(self, subject: _Subject, kind: EventKind, reason: str, message: str) -> None:
        now, when = asyncio.get_running_loop().time(), rfc3339(self._clock.now())
        topic = _Topic(subject, kind, reason, message)
        event = self._recorded.get(topic)
        if event is None or now - event.began >= WINDOW_S:
            topic = self._combined(topic, now)
            event = self._recorded.get(topic)
        if event is None or now - event.began >= WINDOW_S:
            name = f"{subject.name[:200]}.{self._rng.getrandbits(64):016x}"
            event = self._recorded[topic] = _RecordedEvent(name, when, when, now)
            _trim(self._recorded, REMEMBERED)
        event.count += 1
        event.last = when
        event.message = message if topic.message else f"(combined from similar events): {message}"
        self._unsaid[topic] = None
        if len(self._unsaid) > UNSAID:
            self._unsaid.popitem(last=False)
            self.dropped += 1
        self._news.set()

    def _combined(self, topic: _Topic, now: float) -> _Topic:
        """The topic itself, or the one without words when its object has said too much for this reason already."""
        key = (topic.subject, topic.type, topic.reason)
        variety = self._variety.get(key)
        if variety is None or now - variety.began >= WINDOW_S:
            variety = self._variety[key] = _Variety(now)
            _trim(self._variety, REMEMBERED)
        if topic.message not in variety.messages and len(variety.messages) >= SIMILAR:
            return topic._replace(message="")
        variety.messages.add(topic.message)
        return topic

    async def _write_next(self) -> None:
        topic, _ = self._unsaid.popitem(last=False)
        event = self._recorded.get(topic)
        if event is None:
            return
        count = event.count
        namespace = topic.subject.namespace or "default"
        try:
            if event.written:
                patch: Json = {"count": count, "lastTimestamp": event.last, "message": _cut(event.message)}
                try:
                    await self._client.patch(Event, event.name, patch, namespace)
                except NotFound:  # the API server forgets Events after an hour
                    await self._create(topic, event, namespace)
            else:
                await self._create(topic, event, namespace)
            event.written = count
        except (Forbidden, NotLeader) as err:  # a namespace that is going away takes no Events, and that is fine
            log.debug("event refused", reason=topic.reason, error=str(err))
        except KubeError as err:
            log.warning("event lost", reason=topic.reason, object=topic.subject.name, error=str(err))

    def _subject_of(self, about: Object) -> _Subject:
        meta, res = about.metadata, about.RESOURCE
        return _Subject(res.api_version, res.kind, meta.namespace, meta.name, meta.uid, self._trace_id_of(about))

    def _trace_id_of(self, about: Object) -> str:
        return self.trace_id_of(about) if self.trace_id_of is not None else ""

    async def _create(self, topic: _Topic, event: _RecordedEvent, namespace: str) -> None:
        about = topic.subject
        involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
        if about.namespace:
            involved["namespace"] = about.namespace
        await self._client.create(
            Event,
            {
                "metadata": {
                    "name": event.name,
                    "namespace": namespace,
                    **({"annotations": {TRACE_ID: about.trace_id}} if about.trace_id else {}),
                },
                "involvedObject": involved,
                "type": topic.type,
                "reason": topic.reason,
                "message": _cut(event.message),
                "count": event.count,
                "firstTimestamp": event.first,
                "lastTimestamp": event.last,
                "source": {"component": self._component},
                "reportingComponent": self._component,
                "reportingInstance": self._component,
            },
        )


def _trim(entries: OrderedDict[Any, Any], most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)


def _cut(message: str) -> str:
    raw = message.encode()
    return message if len(raw) <= MESSAGE_BYTES else raw[: MESSAGE_BYTES - 3].decode(errors="ignore") + "…"
