"""One leader among several processes: a Lease with the fields, times and rules that client-go's election uses.

A standby watches the lease. It sees a renewal or a release at once, and acts exactly when the holder's time ends.

The leader counts on its lease for `renew_s` after the last renewal that it *sent*. That is less than the `lease_s`
that others grant it. A process that was paused finds its right to write expired before it can use it: the HTTP client
asks `may_write` before every write. The gap is for a write that is already on its way.

Any caller with the right may edit or delete a lease. The leader watches it too, and stops when the lease no longer
names it. It may see that late. So standbys grant it its full time, unless the leader itself released the lease.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import structlog

from grove.api.core import Lease
from grove.api.meta import Json
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock
from grove.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from grove.kube.informer import Informer

LEASE_S, RENEW_S, RETRY_S = 15.0, 10.0, 2.0
STOP_S = 2.0
"""How long the work may take to stop, and the release to be written: together well inside a pod's last five seconds."""

_NEVER = datetime.min.replace(tzinfo=UTC)

log = structlog.get_logger(__name__)


def process_identity() -> str:
    """A name for this process in an election: where it runs, for people, and a part that no other process has.

    Host name and process id alone would not do: containers that share their node's name are all process 1.
    """
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(8)}"


class LeadershipLost(Exception):
    """The lease could not be renewed in time, or another process holds it; start over as a standby."""


class Leadership:
    """Takes part in the election for the lease `namespace/name` as `identity`, which no other process may use.

    The client must not be guarded by this same leadership: with a write guard it could never take the lease.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_s: float = LEASE_S,
        renew_s: float = RENEW_S,
        retry_s: float = RETRY_S,
        clock: Clock = SYSTEM,
        rng: random.Random | None = None,
    ) -> None:
        if not retry_s < renew_s < lease_s:
            raise ValueError(f"retry_s {retry_s} < renew_s {renew_s} < lease_s {lease_s} does not hold")
        self.identity = identity
        self._client, self._namespace, self._name = client, namespace, name
        self._lease_s, self._renew_s, self._retry_s = lease_s, renew_s, retry_s
        self._clock, self._rng = clock, rng or random.Random(random.getrandbits(64))
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._granted_until = 0.0
        self._news = asyncio.Event()
        self._leads_until = 0.0
        self._lost: asyncio.Future[str]
        self._log = log.bind(lease=f"{namespace}/{name}", identity=identity)

    def may_write(self) -> bool:
        """True if this process is certainly the leader now. The check is cheap; each write does it first."""
        return asyncio.get_running_loop().time() < self._leads_until

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Waits for the lease and runs `work` under it; returns when the work does, releasing the lease.

        Raises LeadershipLost, after the work was cancelled, when the lease cannot be kept.
        """
        followed = Cache(self._client, rng=self._rng)
        followed.add(Lease, namespace=self._namespace, fields=f"metadata.name={self._name}")
        followed.on_event(Lease, self._on_lease_event)
        async with followed:
            await self._acquire(followed.informer(Lease))
            working = asyncio.ensure_future(work())
            renewing = asyncio.ensure_future(self._keep())
            try:
                await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
                if renewing.done():
                    self._leads_until = 0.0
                    renewing.result()
                working.result()
            finally:
                for task in (working, renewing):
                    task.cancel()
                await asyncio.wait((working, renewing), timeout=STOP_S)
                self._observe_ends(working, renewing)
                await self._release()

    async def _acquire(self, watch: Informer[Lease]) -> None:
        """Returns when the lease is ours."""
        logged = None
        while not await self._try():
            holder = self._seen.spec.holder_identity if self._seen is not None else None
            if holder and holder != logged:
                logged = holder
                self._log.info("standing by", leader=holder)
            wait = self._expires_in()
            if watch.error is not None or wait <= 0:
                wait = min(max(wait, 0.0), self._retry_s) or self._retry_s * self._rng.uniform(0.5, 1.0)
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._news.wait()

    # Taking

    async def _try(self) -> bool:
        """One attempt. False if another process holds the lease or was quicker, or if the server did not answer."""
        if self._is_held_by_other():
            return False
        try:
            async with asyncio.timeout(self._renew_s):
                return await self._take()
        except (Conflict, AlreadyExists):
            return False  # another process was quicker; the watch shows which
        except (KubeError, TimeoutError) as err:
            self._log.info("lease cannot be asked for, trying again", error=str(err) or "no answer")
            return False

    async def _take(self) -> bool:
        try:
            self._observe(await self._client.get(Lease, self._name, self._namespace))
        except NotFound:
            self._observe(None)
        if self._is_held_by_other():
            return False
        began = asyncio.get_running_loop().time()
        now = _micro_time(self._clock.now())
        spec: Json = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": round(self._lease_s),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        if self._seen is None:
            meta = {"name": self._name, "namespace": self._namespace}
            taken = await self._client.create(Lease, {"metadata": meta, "spec": spec})
        else:
            before = self._seen.spec
            spec["leaseTransitions"] = (before.lease_transitions or 0) + (before.holder_identity != self.identity)
            taken = await self._patch(self._seen, spec)
        if self._seen is not None and _is_before(taken, self._seen):
            return False  # the watch has shown already what came after it
        self._lost = asyncio.get_running_loop().create_future()
        self._hold(taken, began)
        self._log.info("became leader")
        return True

    def _on_lease_event(self, old: Lease | None, new: Lease | None) -> None:
        """An event of the watch. Events older than our own last write are not news."""
        seen, last = self._seen, new or old
        if seen is not None and last is not None and _is_before(last, seen):
            return
        if asyncio.get_running_loop().time() >= self._leads_until:
            self._observe(new)
        elif new is None or new.spec.holder_identity != self.identity:
            self._leads_until = 0.0
            holder = new.spec.holder_identity or "no process" if new is not None else "no process: it was deleted"
            self._lost.set_result(f"the lease is held by {holder}")

    def _observe(self, lease: Lease | None) -> None:
        """Restarts the holder's time whenever the record changed: only our own clock is trusted, as in client-go."""
        if lease is None or self._seen is None or lease.spec != self._seen.spec:
            if not _is_handed_on(self._seen, lease):
                self._granted_until = max(self._granted_until, self._holder_until())
            self._seen_at = asyncio.get_running_loop().time()
            self._news.set()
        self._seen = lease

    def _is_held_by_other(self) -> bool:
        return self._expires_in() > 0

    def _expires_in(self) -> float:
        """How long another process may still act as the leader: the named holder, or the holder before an edit."""
        return max(self._holder_until(), self._granted_until) - asyncio.get_running_loop().time()

    def _holder_until(self) -> float:
        """Until when the lease belongs to another process by its own fields; never, if it names no holder or this
        process.
        """
        spec = self._seen.spec if self._seen is not None else None
        if spec is None or not spec.holder_identity or spec.holder_identity == self.identity:
            return 0.0
        return self._seen_at + (spec.lease_duration_seconds or self._lease_s)

    # Keeping

    async def _keep(self) -> None:
        """Renews every `retry_s`; ends with LeadershipLost when `renew_s` went by without success, or by an edit."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.wait((self._lost,), timeout=min(self._retry_s, max(0.0, self._leads_until - loop.time())))
            if self._lost.done():
                raise LeadershipLost(self._lost.result())
            try:
                async with asyncio.timeout_at(self._leads_until):
                    await self._renew()
            except (Conflict, NotFound):
                await self._see_who_wrote()
            except (KubeError, TimeoutError) as err:
                self._log.info("lease not renewed, trying again", error=str(err) or "no answer in time")
            if loop.time() >= self._leads_until and not self._lost.done():
                raise LeadershipLost(f"the lease was not renewed for {self._renew_s:g} s")

    async def _renew(self) -> None:
        assert self._seen is not None
        began = asyncio.get_running_loop().time()
        # With its duration: a duration that a person changed would decide how long standbys wait.
        spec = {"renewTime": _micro_time(self._clock.now()), "leaseDurationSeconds": round(self._lease_s)}
        renewed = await self._patch(self._seen, spec)
        if not self._lost.done():  # else the watch has shown what came after it
            self._hold(renewed, began)

    async def _see_who_wrote(self) -> None:
        """Our last renewal may have arrived without its answer; anyone else's name means that we are out."""
        with suppress(KubeError, TimeoutError):
            async with asyncio.timeout_at(self._leads_until):
                try:
                    lease = await self._client.get(Lease, self._name, self._namespace)
                except NotFound:
                    raise LeadershipLost("the lease was deleted") from None
            if lease.spec.holder_identity != self.identity:
                raise LeadershipLost(f"the lease is held by {lease.spec.holder_identity or 'nobody'}")
            self._seen = lease

    def _hold(self, lease: Lease, began: float) -> None:
        """Counts from when the request left, not from when its answer came: others may have seen it that early."""
        self._seen, self._seen_at = lease, began
        self._leads_until = began + self._renew_s

    async def _release(self) -> None:
        """Releases the lease, so that standbys do not wait. If that fails, they take over when the time is up."""
        if not self.may_write() or self._seen is None:
            return
        self._leads_until = 0.0
        now = _micro_time(self._clock.now())
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
        try:
            async with asyncio.timeout(STOP_S):
                try:
                    await self._patch(self._seen, spec)
                except Conflict:  # a renewal of ours was on its way when we were stopped
                    lease = await self._client.get(Lease, self._name, self._namespace)
                    if lease.spec.holder_identity != self.identity:
                        raise
                    await self._patch(lease, spec)
            self._log.info("lease released")
        except (KubeError, TimeoutError) as err:
            self._log.info("lease not released, it will expire", error=str(err) or "no answer in time")

    async def _patch(self, lease: Lease, spec: Json) -> Lease:
        patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        return await self._client.patch(Lease, self._name, patch, self._namespace)

    def _observe_ends(self, *tasks: asyncio.Future[Any]) -> None:
        """Reads how the tasks ended, so that Python does not log their errors as never retrieved."""
        for task in tasks:
            if not task.done():
                self._log.warning("work did not stop in time, leaving it behind")
            elif not task.cancelled():
                task.exception()


def _is_before(lease: Lease, other: Lease) -> bool:
    """True if `lease` is an older state than `other`. A deleted lease of the same name is always older."""
    if lease.metadata.uid != other.metadata.uid:
        return (lease.metadata.creation_timestamp or _NEVER) < (other.metadata.creation_timestamp or _NEVER)
    return int(lease.metadata.resource_version or 0) < int(other.metadata.resource_version or 0)


def _is_handed_on(before: Lease | None, after: Lease | None) -> bool:
    """True if the holder renewed its lease or gave it back.

    A lease without a holder and with one second to live was given back.
    """
    if before is None or not before.spec.holder_identity:
        return True
    if after is None:
        return False
    if after.spec.holder_identity == before.spec.holder_identity:
        return True
    return not after.spec.holder_identity and after.spec.lease_duration_seconds == 1


def _micro_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
