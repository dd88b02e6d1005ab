"""Who uses a Reservation, read off the pods, and the status that says so."""

from __future__ import annotations

import asyncio
import json

import structlog

from grove.api.core import Pod
from grove.api.koordinator import RESERVATION_ALLOCATED, Reservation
from grove.api.meta import Json
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.errors import KubeError, NotFound, NotLeader
from grove.scheduler.reserve.status import owners_status

USED = "reservation"
"""Index of pods by the reservation that is written on them."""
RETRY_S = 1.0

log = structlog.get_logger(__name__)


class ReservationStatus:
    def __init__(self, cache: Cache, client: Client, clock: Clock) -> None:
        self._cache, self._client, self._clock = cache, client, clock
        self._untrue: set[str] = set()
        self._news = asyncio.Event()

    def follow(self) -> None:
        self._cache.add_index(Pod, USED, lambda pod: [name] if (name := reservation_of(pod)) else [])

    def users(self, name: str) -> list[Pod]:
        """Pods on nodes that use a reservation."""
        return [pod for pod in self._cache.by_index(Pod, USED, name) if is_there(pod)]

    def touch(self, name: str) -> None:
        """Has the status of a reservation looked at."""
        self._untrue.add(name)
        self._news.set()

    async def write(self) -> None:
        """Keeps the status of reservations that our pods use true; until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            names, self._untrue = self._untrue, set()
            for one in self._cache.list(Reservation):
                if one.metadata.name in names:
                    patch = owners_status(one, self.users(one.metadata.name), self._clock.now())
                    if patch is not None and not await self._patch(one, patch):
                        self._untrue.add(one.metadata.name)
            if self._untrue:
                await asyncio.sleep(RETRY_S)
                self._news.set()

    async def _patch(self, one: Reservation, status: Json) -> bool:
        try:
            await self._client.patch(Reservation, one.metadata.name, {"status": status}, subresource="status")
        except (NotFound, NotLeader):
            return True
        except KubeError as error:
            log.info("status of a reservation not written", reservation=one.metadata.name, error=str(error))
            return False
        return True


def is_there(pod: Pod) -> bool:
    return pod.is_bound and not pod.is_finished


def reservation_of(pod: Pod) -> str:
    """Name of the reservation that is written on a pod."""
    text = pod.metadata.annotations.get(RESERVATION_ALLOCATED)
    if not text:
        return ""
    try:
        found = json.loads(text)
    except ValueError:
        return ""
    return str(found.get("name", "")) if isinstance(found, dict) else ""
