"""The cluster lacks a kind: the feature is off, the set says so, and the operator notices a later installation."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import condition, operating

from grove.api.core import HorizontalPodAutoscaler, ResourceClaim, ResourceClaimTemplate
from grove.api.meta import Json, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.errors import Forbidden, TooManyRequests

# A real API server is asked in test_real_optional: which APIs it serves is settled when it starts.
pytestmark = pytest.mark.simulated

DEVICES: Json = {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "fake.example.com"}}]}}
TEMPLATES = [{"name": "gpu", "templateSpec": {"spec": DEVICES}}]
SHARED: Json = {"name": "gpu", "scope": "AllReplicas"}


@pytest.mark.parametrize(
    ("kind", "manifest", "made"),
    [
        pytest.param(
            HorizontalPodAutoscaler,
            lambda: pcs("s", clique("w", scale={"minReplicas": 1, "maxReplicas": 2})),
            ["s-0-w"],
            id="autoscalers",
        ),
        pytest.param(
            ResourceClaim,
            lambda: pcs("s", clique("w"), resourceClaimTemplates=TEMPLATES, resourceSharing=[SHARED]),
            ["s-all-gpu"],
            id="claims of the set",
        ),
        pytest.param(
            ResourceClaim,
            lambda: pcs(
                "s", clique("w"), groups=[group("g", "w", resourceSharing=[SHARED])], resourceClaimTemplates=TEMPLATES
            ),
            ["s-0-g-all-gpu"],
            id="claims of a group",
        ),
        pytest.param(
            ResourceClaim,
            lambda: pcs("s", clique("w", sharing=[SHARED]), resourceClaimTemplates=TEMPLATES),
            ["s-0-w-all-gpu"],
            id="claims of a clique",
        ),
    ],
)
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


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(lambda one: pcs("s", clique("w"), resourceSharing=[one]), id="of the set"),
        pytest.param(
            lambda one: pcs("s", clique("w"), groups=[group("g", "w", resourceSharing=[one])]), id="of a group"
        ),
        pytest.param(lambda one: pcs("s", clique("w", sharing=[one])), id="of a clique"),
    ],
)
@pytest.mark.parametrize(
    "refusal", [pytest.param(Forbidden("no rights"), id="forbidden"), pytest.param(TooManyRequests("busy"), id="busy")]
)
async def test_a_template_that_cannot_be_read_holds_up_nothing_else(
    cluster: object, manifest: object, refusal: Exception
) -> None:
    """Its claims are missing and the set says why; its other children, its status and its updates go on."""
    async with operating(cluster) as world:
        may = world.operator_client.get

        async def refuse(kind: object, *args: object, **options: object) -> object:
            if kind is ResourceClaimTemplate.RESOURCE:
                raise refusal
            return await may(kind, *args, **options)

        world.operator_client.get = refuse
        await world.apply(manifest({**SHARED, "namespace": "elsewhere"}))  # type: ignore[operator]

        async def told() -> bool:
            found = await world.get(PodCliqueSet, "s")
            return any(str(refusal) in one.description for one in found.status.last_errors)

        await world.eventually(told)
        assert len(await world.names(PodClique)) == 1
        before = (await world.get(PodCliqueSet, "s")).status.current_generation_hash
        image = [{"op": "replace", "path": "/spec/template/cliques/0/spec/podSpec/containers/0/image", "value": "b:2"}]
        await world.client.patch(PodCliqueSet, "s", image, world.namespace)

        async def update_begun() -> bool:
            return (await world.get(PodCliqueSet, "s")).status.current_generation_hash != before

        await world.eventually(update_begun)
