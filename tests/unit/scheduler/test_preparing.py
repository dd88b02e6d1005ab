"""Writing claims of devices: one write for all pods that share one, patience with a busy server, an end in time."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support import objects

from grove.api.core import Pod, ResourceClaim
from grove.api.meta import Json, Key, ObjectMeta
from grove.kube.errors import Conflict, Invalid, NotLeader, TooManyRequests
from grove.scheduler.sources.claim_writer import ClaimWriter
from grove.scheduler.sources.device_claims import ClaimPromise
from grove.sim.loop import run


class Server:
    """One claim. Every write takes a second, or a given time, and conflicts with others since it was read."""

    def __init__(self, *troubles: Exception, always: Exception | None = None, write_s: float = 1.0) -> None:
        self.users: list[Json] = []
        self.allocation: Json | None = {"devices": {}}
        self.version = self.writes = self.at_once = self.most_at_once = 0
        self.troubles, self.always, self.write_s = list(troubles), always, write_s

    async def get(self, kind: type, name: str, namespace: str = "") -> ResourceClaim:
        meta = ObjectMeta(name=name, namespace=namespace, uid="claim", resource_version=str(self.version))
        claim: Any = {"metadata": {}, "status": {"allocation": self.allocation, "reservedFor": self.users}}
        found = msgspec.convert(claim, ResourceClaim)
        return msgspec.structs.replace(found, metadata=meta)

    async def patch(self, kind: type, name: str, patch: Json, namespace: str = "", **_: Any) -> None:
        self.writes += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.write_s)
        finally:
            self.at_once -= 1
        if self.always is not None:
            raise self.always
        if self.troubles:
            raise self.troubles.pop(0)
        if patch["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("it changed", code=409)
        self.version += 1
        self.users = patch["status"]["reservedFor"]


class Claims:
    classes: dict[str, Any] = {}
    promise: ClaimPromise | None = None

    def find_promise(self, key: Key) -> ClaimPromise | None:
        return self.promise

    async def until_free(self, key: Key, deadline_s: float) -> None:
        """No other claim has its devices."""

    def is_free(self, key: Key) -> bool:
        return True


def claiming_pod(number: int, claim: str = "shared") -> Pod:
    spec = {"resourceClaims": [{"name": "d", "resourceClaimName": claim}]}
    return objects.pod(f"p{number}", uid=f"u{number}", spec=spec)


async def written(server: Server, pods: int = 1, deadline_s: float = 30.0) -> tuple[list[Any], float]:
    """What each pod's claims ended with, and how long it took."""
    writer = ClaimWriter(server, asyncio.Semaphore(48))  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    began = loop.time()
    writes = (writer.write(Claims(), claiming_pod(n), began + deadline_s) for n in range(pods))  # type: ignore[arg-type]
    async with asyncio.timeout(10 * deadline_s):
        results = await asyncio.gather(*writes, return_exceptions=True)
    return list(results), loop.time() - began


def test_pods_that_share_a_claim_are_written_together() -> None:
    server = Server()
    results, _ = run(written(server, pods=100))
    assert results == [""] * 100
    assert len(server.users) == 100
    assert server.writes <= 2


def test_a_claim_takes_so_many_users_and_no_more() -> None:
    server = Server()
    results, _ = run(written(server, pods=260))
    assert len(server.users) == 256
    assert results.count("") == 256
    assert results[-1] == 'resourceclaim "shared" has 256 users already'


def test_who_writes_in_between_is_waited_for() -> None:
    server = Server(Conflict("it changed", code=409), TooManyRequests("busy", code=429))
    results, took_s = run(written(server))
    assert results == [""]
    assert server.writes == 3
    assert took_s > 3


def test_a_claim_that_is_never_still_ends_with_the_deadline() -> None:
    server = Server(always=Conflict("it changed", code=409))
    results, took_s = run(written(server, deadline_s=20.0))
    assert "could not be given to the pod" in results[0]
    assert 10 < took_s < 30
    assert server.writes < 20


def test_there_is_a_pause_between_tries_that_grows() -> None:
    server = Server(always=Conflict("it changed", code=409), write_s=0.001)
    results, _ = run(written(server, pods=50, deadline_s=20.0))
    assert all("could not be given to the pod" in one for one in results)
    assert server.writes < 20 * 50


def test_a_refusal_is_an_answer() -> None:
    results, _ = run(written(Server(always=Invalid("no", code=422))))
    assert "could not be given to the pod: no" in results[0]


def test_the_loss_of_leadership_is_not_a_pods_trouble() -> None:
    results, _ = run(written(Server(always=NotLeader("held back")), pods=3))
    assert [type(one) for one in results] == [NotLeader] * 3


@pytest.mark.parametrize("turns", [1, 3])
def test_writes_of_claims_take_turns_like_binds(turns: int) -> None:
    async def story() -> int:
        server = Server()
        writer = ClaimWriter(server, asyncio.Semaphore(turns))  # type: ignore[arg-type]
        own = [claiming_pod(n, f"own-{n}") for n in range(10)]
        await asyncio.gather(*(writer.write(Claims(), one, 100.0) for one in own))  # type: ignore[arg-type]
        return server.most_at_once

    assert run(story()) <= turns


def test_a_claim_that_was_made_again_does_not_get_what_the_old_one_was_promised() -> None:
    """It may ask for something else, and the cache may not know it yet."""
    server, claims = Server(), Claims()
    server.allocation, claims.promise = None, ClaimPromise([], "an older claim")

    async def written() -> str:
        writer = ClaimWriter(server, asyncio.Semaphore(48))  # type: ignore[arg-type]
        return await writer.write(claims, claiming_pod(0), 30.0)  # type: ignore[arg-type]

    assert run(written()) == 'resourceclaim "shared" lost its devices before the pod was bound'
    assert server.users == []
