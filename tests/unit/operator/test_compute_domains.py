"""ComputeDomains that cannot be read or made: reported where it is news, kept for the back-off, and never raised."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, pcs
from tests.support.observed import set_of

from grove.api.core import COMPUTE_DOMAIN
from grove.api.meta import Json, Resource
from grove.kube.client import Page
from grove.kube.errors import Forbidden, KubeError, NotLeader, TooManyRequests
from grove.operator.podcliqueset.compute_domain_writer import ComputeDomain, ComputeDomains

ENDS = Forbidden("it ends", details={"causes": [{"reason": "NamespaceTerminating"}]})


class Server:
    """Serves ComputeDomains and has none; `refusals` are what it answers instead, by verb."""

    def __init__(self, **refusals: KubeError) -> None:
        self.refusals, self.made = refusals, list[str]()

    async def follow(self, kind: type[ComputeDomain]) -> bool:
        return True

    async def list(self, resource: Resource, namespace: str, *, labels: str) -> Page[Json]:
        if (refusal := self.refusals.get("list")) is not None:
            raise refusal
        return Page([], "1")

    async def create(self, resource: Resource, domain: Json) -> Json:
        assert resource is COMPUTE_DOMAIN
        if (refusal := self.refusals.get("create")) is not None:
            raise refusal
        self.made.append(domain["metadata"]["name"])
        return domain


@pytest.mark.parametrize(
    ("verb", "refusal", "said"),
    [
        pytest.param("list", Forbidden("no rights"), True, id="no rights to list them"),
        pytest.param("list", TooManyRequests("busy", retry_after_s=7), True, id="a busy server, which names a time"),
        pytest.param("create", Forbidden("no rights"), True, id="no rights to make one"),
        pytest.param("create", NotLeader("lost"), False, id="a lost lease is no news"),
        pytest.param("create", ENDS, False, id="a namespace that ends is no news"),
    ],
)
async def test_a_refusal_is_kept_for_the_back_off(verb: str, refusal: KubeError, said: bool) -> None:
    gpu = clique("w")
    gpu["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    fast = set_of(pcs("mn", gpu, metadata={"annotations": {"grove.io/mnnvl-group": "fast"}}))
    server = Server(**{verb: refusal})
    domains = ComputeDomains(server, server, enabled=True)  # type: ignore[arg-type]
    changes = await domains.sync(fast, ())
    assert changes.error is refusal
    assert changes.errors == ([("ERR_SYNC_COMPUTEDOMAIN", f"sync ComputeDomains: {refusal}")] if said else [])
    server.refusals.clear()
    healed = await domains.sync(fast, ())
    assert (healed.error, healed.created, server.made) == (None, ["mn-0-fast"], ["mn-0-fast"])
