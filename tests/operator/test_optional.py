"""Kinds the cluster lacks: the feature is off and the set says so, and is found when somebody installs it."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import condition, operating

from grove.api.core import HorizontalPodAutoscaler, ResourceClaim
from grove.api.meta import Json, Object
from grove.api.podcliqueset import PodCliqueSet

# A real API server is asked in test_real_optional: which APIs it serves is settled when it starts.
pytestmark = pytest.mark.simulated

DEVICES: Json = {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "fake.example.com"}}]}}
TEMPLATES = [{"name": "gpu", "templateSpec": {"spec": DEVICES}}]
SHARED: Json = {"name": "gpu", "scope": "AllReplicas"}


@pytest.mark.parametrize(
    ("kind", "manifest", "made"),
    [
        pytest.param(
            HorizontalPodAutoscaler, lambda: pcs("s", clique("w", scale={"minReplicas": 1, "maxReplicas": 2})),
            ["s-0-w"], id="autoscalers",
        ),
        pytest.param(
            ResourceClaim,
            lambda: pcs("s", clique("w"), resourceClaimTemplates=TEMPLATES, resourceSharing=[SHARED]),
            ["s-all-gpu"], id="claims of the set",
        ),
        pytest.param(
            ResourceClaim,
            lambda: pcs(
                "s", clique("w"), groups=[group("g", "w", resourceSharing=[SHARED])], resourceClaimTemplates=TEMPLATES
            ),
            ["s-0-g-all-gpu"], id="claims of a group",
        ),
        pytest.param(
            ResourceClaim, lambda: pcs("s", clique("w", sharing=[SHARED]), resourceClaimTemplates=TEMPLATES),
            ["s-0-w-all-gpu"], id="claims of a clique",
        ),
    ],
)  # fmt: skip
async def test_a_missing_kind_is_said_and_found_later(
    cluster: object, kind: type[Object], manifest: object, made: list[str]
) -> None:
    kinds = cluster.sim.server.kinds  # type: ignore[attr-defined]
    missing = kinds.pop((kind.RESOURCE.group, kind.RESOURCE.plural))
    async with operating(cluster) as world:
        await world.apply(manifest())  # type: ignore[operator]
        await world.apply(pcs("plain", clique("w")))

        async def told() -> bool:
            found = await world.get(PodCliqueSet, "s")
            return condition(found.status.conditions, "FeaturesUnavailable") == ("True", "APINotServed")

        await world.eventually(told)
        plain = await world.available("plain")
        assert condition(plain.status.conditions, "FeaturesUnavailable") is None

        kinds[(kind.RESOURCE.group, kind.RESOURCE.plural)] = missing

        async def healed() -> bool:
            found = await world.get(PodCliqueSet, "s")
            said = condition(found.status.conditions, "FeaturesUnavailable")
            return said is None and found.status.last_errors == () and await world.names(kind) == made

        await world.eventually(healed, 180)
