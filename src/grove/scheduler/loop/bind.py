"""Binds the pods of a placement in parallel and says what became of each; nothing here decides what that means.

A bind that may have happened is never guessed at: after a lost answer or a conflict the pod is read again. Trouble that
passes (no answer, busy server) is waited out until the deadline; a refusal and a vanished pod are answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from grove.api.core import Pod
from grove.kube.client import Client
from grove.kube.errors import ApiError, Conflict, ConnectionLost, NotFound, TooManyRequests, Unavailable
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.policy.gangs import GangState

RETRY_S, MAX_RETRY_S = 0.05, 2.0
GIVEN_UP = "another pod of the gang was refused, or the gang is gone"


class Fate(Enum):
    """What became of one pod of an attempt."""

    BOUND = "bound where we wanted it"
    ELSEWHERE = "somebody else bound it to another node"
    GONE = "deleted, or replaced by another pod of its name"
    STALE = "its node changed since it was chosen; it needs another place"
    REFUSED = "the server will not have it"
    LATE = "the deadline came first"


@dataclass(frozen=True, slots=True)
class Bound:
    pod: PodFacts
    fate: Fate
    message: str = ""


@dataclass(slots=True)
class Attempt:
    """One placement on its way to the cluster. `after` must succeed first: a scaled gang waits for its base."""

    unit: str
    gang: GangState | None
    """The gang itself, if it is for one: by the time it ends another may have its name."""
    pods: tuple[PodFacts, ...]
    deadline_s: float
    is_floor: bool = False
    """Whether it is for the gang's minimum."""
    decision: str = ""
    after: Attempt | None = None
    given_up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to stop asking: a pod was refused and the rest would have to be taken back, or the gang is gone."""
    done: asyncio.Event = field(default_factory=asyncio.Event)
    succeeded: bool = False
    """Set together with `done`: whether what depends on it may go ahead."""


class Binder:
    """All attempts share the `turns` there are for requests, first come, first served.

    `fits` is asked right before each request whether the chosen node still has the room that was reserved on it, and
    `prepare` does what must come before a binding: telling a volume's claim its node, giving a device's claim away.
    """

    def __init__(
        self, client: Client, *, turns: asyncio.Semaphore, fits: Callable[[PodFacts], bool],
        prepare: Sequence[Callable[[PodFacts, float], Awaitable[str] | None]],
    ) -> None:  # fmt: skip
        self._client, self._turns, self._fits, self._prepare = client, turns, fits, prepare

    async def bind(self, attempt: Attempt, seen: Callable[[Bound], None]) -> list[Bound]:
        """Binds all pods of the attempt; `seen` hears of each as it is known, the list has them all."""
        found: list[Bound] = []

        async def one(pod: PodFacts) -> None:
            result = await self._bind(pod, attempt)
            found.append(result)
            seen(result)

        async with asyncio.TaskGroup() as group:
            for pod in attempt.pods:
                group.create_task(one(pod))
        return found

    async def _bind(self, pod: PodFacts, attempt: Attempt) -> Bound:
        loop, deadline_s = asyncio.get_running_loop(), attempt.deadline_s
        pause_s = RETRY_S
        for prepare in self._prepare:
            preparing = prepare(pod, deadline_s)
            if preparing is not None and (trouble := await _unless(attempt.given_up, preparing)):
                return Bound(pod, Fate.STALE, trouble)
        while True:
            async with self._turns:
                if attempt.given_up.is_set():
                    return Bound(pod, Fate.LATE, GIVEN_UP)
                if not self._fits(pod):
                    return Bound(pod, Fate.STALE, f"node {pod.node} is gone or was filled by others")
                try:
                    await self._client.bind(pod.namespace, pod.name, pod.node, uid=pod.uid)
                    return Bound(pod, Fate.BOUND)
                except NotFound:
                    return Bound(pod, Fate.GONE)
                except (Conflict, ConnectionLost, Unavailable, TooManyRequests) as err:
                    trouble = str(err)
                    if not isinstance(err, TooManyRequests):
                        known = await self._look(pod)
                        if known is not None:
                            return known
                    pause_s = max(pause_s, getattr(err, "retry_after_s", None) or 0.0)
                except ApiError as err:
                    return Bound(pod, Fate.REFUSED, str(err))
            if loop.time() + pause_s > deadline_s:
                return Bound(pod, Fate.LATE, trouble)
            await asyncio.sleep(pause_s)
            pause_s = min(MAX_RETRY_S, pause_s * 2)

    async def _look(self, pod: PodFacts) -> Bound | None:
        """The truth about a pod whose bind was not simply answered; None when it is still to be bound."""
        try:
            now = await self._client.get(Pod, pod.name, pod.namespace)
        except NotFound:
            return Bound(pod, Fate.GONE)
        except (ConnectionLost, Unavailable, TooManyRequests):
            return None
        if now.metadata.uid != pod.uid:
            return Bound(pod, Fate.GONE)
        if now.spec.node_name:
            return Bound(pod, Fate.BOUND if now.spec.node_name == pod.node else Fate.ELSEWHERE)
        if now.metadata.is_deleting:
            return Bound(pod, Fate.GONE)
        if now.is_gated:
            return Bound(pod, Fate.REFUSED, "it is held by a scheduling gate")
        return None


async def _unless(given_up: asyncio.Event, preparing: Awaitable[str]) -> str:
    """What a preparation ended with; it may wait for others for hours, and is left when the attempt is given up."""
    work, stop = asyncio.ensure_future(preparing), asyncio.ensure_future(given_up.wait())
    try:
        await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else GIVEN_UP
    finally:
        for task in (work, stop):
            task.cancel()
        await asyncio.gather(work, stop, return_exceptions=True)
