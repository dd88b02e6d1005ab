"""What the rules want to know of other objects, read from the API server. The rules themselves read nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from functools import partial
from typing import Any, TypeVar

from grove.admission.rules.lookups import LISTED, Known, Needs
from grove.api.core import SUBJECT_ACCESS_REVIEW, ResourceClaimTemplate
from grove.api.meta import Json, Key, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.kube.client import Client
from grove.kube.errors import KubeError, NotFound

FETCH_S = 8.0
"""The API server waits ten seconds for an answer. A read that takes longer than this limit is reported as failed
before that.
"""
DISCOVER_S = 2.0
"""For what is only worth a warning: a metrics API that is down must not hold up a set."""

VOLCANO_QUEUE = Resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues", namespaced=False)

METRICS_APIS = {
    "custom.metrics.k8s.io": (("v1beta2", "MetricValueList"), ("v1beta1", "MetricValueList")),
    "external.metrics.k8s.io": (("v1beta1", "ExternalMetricValueList"),),
    "metrics.k8s.io": (("v1beta1", "PodMetrics"),),
}

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class ClusterReader:
    """Asks the API server, no cache: a binding applied a moment before the set that names it must be found."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def fetch(self, needs: Needs) -> Known:
        if not needs:
            return Known()
        topologies, queues, sets, lists, metrics, templates = await asyncio.gather(
            self._all(needs.topologies, lambda name: self._get(ClusterTopologyBinding.RESOURCE, Key("", name))),
            self._all(needs.queues, lambda name: self._get(VOLCANO_QUEUE, Key("", name))),
            self._all(needs.sets, lambda key: self._get(PodCliqueSet.RESOURCE, key)),
            self._all(needs.lists, lambda kind: self._list(LISTED[kind])),
            self._all(needs.metrics, lambda asked: self._is_listed(*asked)),
            self._all(needs.templates, lambda key: self._may_read(needs.user, key)),
        )
        return Known(topologies, queues, sets, lists, metrics, templates)

    async def _may_read(self, user: Json, key: Key) -> bool | Exception:
        resource = ResourceClaimTemplate.RESOURCE
        asked = {
            "verb": "get",
            "group": resource.group,
            "resource": resource.plural,
            "namespace": key.namespace,
            "name": key.name,
        }
        who = {"user": user.get("username", ""), "groups": user.get("groups") or [], "uid": user.get("uid", "")}
        spec = {**who, "extra": user.get("extra") or {}, "resourceAttributes": asked}
        review = SUBJECT_ACCESS_REVIEW.manifest({}, spec=spec)
        answer = await self._answer(lambda: self._client.create(SUBJECT_ACCESS_REVIEW, review))
        if answer is None:
            return NotFound("the API server does not serve SubjectAccessReviews")
        return answer if isinstance(answer, Exception) else answer["status"].get("allowed") is True

    async def _is_listed(self, api: str, name: str) -> bool | Exception | None:
        for version, kind in METRICS_APIS[api]:
            resource = Resource(api, version, kind, name)
            answer = await self._answer(partial(self._client.serves, resource), DISCOVER_S)
            if answer is not False:
                return answer
        return False

    async def _all(self, keys: Iterable[K], get: Callable[[K], Any]) -> dict[K, Any]:
        ordered = list(keys)
        return dict(zip(ordered, await asyncio.gather(*(get(key) for key in ordered)), strict=True))

    async def _get(self, resource: Resource, key: Key) -> Json | Exception | None:
        return await self._answer(lambda: self._client.get(resource, key.name, key.namespace))

    async def _list(self, resource: Resource) -> list[Json] | Exception | None:
        page = await self._answer(lambda: self._client.list(resource))
        return page if page is None or isinstance(page, Exception) else list(page.items)

    async def _answer(self, ask: Callable[[], Awaitable[T]], within_s: float = FETCH_S) -> T | Exception | None:
        try:
            async with asyncio.timeout(within_s):
                return await ask()
        except NotFound:
            return None
        except TimeoutError:
            return TimeoutError(f"no answer in {within_s:g} s")
        except KubeError as error:
            return error
