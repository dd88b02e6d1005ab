"""Writes the status of Reservations: which pods use one, where it was placed, or why it was not."""

from __future__ import annotations

from grove.api.core import Pod
from grove.api.koordinator import Reservation
from grove.api.meta import Json, Key
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.controller import DONE, Controller, Result
from grove.kube.errors import NotFound
from grove.kube.events import Recorder
from grove.scheduler.reserve.reservation_status import (
    is_used_by,
    owners_status,
    reservation_of,
)

USED = "reservation"
"""Index of pods by the name of the reservation that is written on them."""


class ReservationWriter:
    """Who uses a Reservation, read off the pods, and the status that says so; what is wrong with one is an event."""

    def __init__(self, cache: Cache, client: Client, events: Recorder, clock: Clock) -> None:
        self._cache, self._client, self._events, self._clock = cache, client, events, clock
        self._writes = Controller[str]("scheduler-reservation-status", self._write, workers=4)
        self._said: dict[str, Json] = {}
        """Statuses of waiting reservations that are still to be written, by uid; the newer replaces the older."""
        self._reported: dict[str, str] = {}

    def follow(self) -> None:
        self._cache.add_index(Pod, USED, lambda pod: [name] if (name := reservation_of(pod).name) else [])

    async def run(self) -> None:
        """Keeps the status of reservations true; until cancelled."""
        await self._writes.run()

    def users(self, reservation: Reservation) -> list[Pod]:
        """Pods on nodes that use a reservation."""
        return [
            pod for pod in self._cache.by_index(Pod, USED, reservation.metadata.name) if is_used_by(reservation, pod)
        ]

    def touch(self, name: str) -> None:
        """Has the status of a reservation looked at."""
        self._writes.add(name)

    def say(self, about: Reservation, status: Json) -> None:
        """Has this written."""
        self._said[about.metadata.uid] = status
        self.touch(about.metadata.name)

    def unwritten(self, about: Reservation) -> Json:
        """The part of a reservation's status that is not written yet; empty if there is none."""
        return self._said.get(about.metadata.uid, {})

    def tell(self, about: Reservation, reason: str, message: str) -> None:
        """Says once what is wrong with a reservation."""
        if self._reported.get(about.metadata.uid) != message:
            self._reported[about.metadata.uid] = message
            self._events.warn(about, reason, message)

    def forget(self, reservation: Reservation) -> None:
        self._reported.pop(reservation.metadata.uid, None)
        self._said.pop(reservation.metadata.uid, None)

    async def _write(self, name: str) -> Result:
        reservation = self._cache.get(Reservation, Key("", name))
        if reservation is None:
            return DONE
        unwritten = self._said.get(reservation.metadata.uid)
        status = (
            owners_status(reservation, self.users(reservation), self._clock.now()) if unwritten is None else unwritten
        )
        if status is None:
            return DONE
        # By its version: the place of one that is gone must not be written to another of its name.
        patch = {"metadata": {"resourceVersion": reservation.metadata.resource_version}, "status": status}
        try:
            answer = await self._client.patch(Reservation, name, patch, subresource="status")
        except NotFound:
            return DONE
        self._cache.wrote(answer)  # else one that got its place would be seen to wait, and be placed again
        if self._said.get(reservation.metadata.uid) is unwritten:
            self._said.pop(reservation.metadata.uid, None)
            return DONE
        return Result(after_s=0)
