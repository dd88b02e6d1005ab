"""The two metrics APIs, request by request: what the HPA controller gets, and what is refused."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.support.pages import vllm

from grove.api import labels as key
from grove.api.meta import Json, Resource
from grove.kube.errors import NotFound, Unavailable
from grove.metrics import wire
from grove.metrics.access import Aggregator, Ask, User
from grove.metrics.apiservices import OWNER, Registration, ServiceAddress, healing_patch, is_ours, wanted_services
from grove.metrics.numbers import numbers_of, wanted_names
from grove.metrics.page import scan
from grove.metrics.readings import Readings
from grove.metrics.server import MetricsApi
from grove.metrics.service import MOST_RAW_NAMES, RawNames


class Believing(Aggregator):
    """An aggregator's proof without TLS: the user header alone."""

    def find_user(self, certificate: Any, headers: Any) -> User | None:
        name = dict(headers).get("X-Remote-User")
        return User(name) if name else None


class Rights:
    def __init__(self) -> None:
        self.asked: list[Ask] = []
        self.fails = False

    async def may(self, user: User, ask: Ask) -> bool:
        self.asked.append(ask)
        if self.fails:
            raise Unavailable("down", code=503, reason="", details={})
        return user.name == "hpa"


class Served:
    def __init__(self) -> None:
        self.looked_for: tuple[str, ...] = ()
        self.readings, self.names, self.rights = Readings(10.0), RawNames((), self._look_for), Rights()
        api = MetricsApi(self.readings, self.names, Believing, self.rights)
        self.client = TestClient(TestServer(api.application()))
        self.user = "hpa"

    def _look_for(self, names: tuple[str, ...]) -> None:
        self.looked_for = names

    def pod(self, name: str, page: bytes | None, **labels: str) -> None:
        mine = {key.PART_OF: "d", key.SCALING_GROUP: "d-0-g", key.POD_CLIQUE: f"d-0-g-0-{name}", **labels}
        self.readings.add_pod("n", name, mine)
        if page is not None:
            found = scan(page, wanted_names(self.looked_for))
            self.readings.observe("n", name, numbers_of(found), asyncio.get_running_loop().time())

    async def get(self, path: str, accept: str = "application/json", **query: str) -> tuple[int, Any]:
        headers = {"Accept": accept} | ({"X-Remote-User": self.user} if self.user else {})
        async with self.client.get(path, params=query, headers=headers) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    async with served.client:
        yield served


CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/n"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n"


async def test_a_group_by_name(served: Served) -> None:
    served.pod("a", vllm(waiting=3))
    served.pod("b", vllm(waiting=4))
    status, body = await served.get(f"{CUSTOM}/podcliquescalinggroups.grove.io/d-0-g/grove_requests_waiting")
    assert status == 200
    (item,) = body["items"]
    assert item.pop("timestamp").endswith("Z")
    assert item == {
        "describedObject": {
            "kind": "PodCliqueScalingGroup",
            "namespace": "n",
            "name": "d-0-g",
            "apiVersion": "grove.io/v1alpha1",
        },
        "metric": {"name": "grove_requests_waiting", "selector": None},
        "value": "7",
    }


async def test_pods_by_labels_and_those_without_numbers_are_left_out(served: Served) -> None:
    served.pod("a", vllm(kv=0.25), tier="x")
    served.pod("b", vllm(kv=0.5), tier="y")
    served.pod("c", None, tier="x")
    status, body = await served.get(f"{CUSTOM}/pods/*/grove_kv_cache_usage", labelSelector="tier=x")
    assert status == 200
    assert [(one["describedObject"]["name"], one["value"]) for one in body["items"]] == [("a", "250m")]


async def test_a_selection_has_one_value(served: Served) -> None:
    served.pod("a", vllm(waiting=3), tier="x")
    served.pod("b", vllm(waiting=4), tier="x")
    served.pod("c", vllm(waiting=9), tier="y")
    status, body = await served.get(f"{EXTERNAL}/grove_requests_waiting", labelSelector="tier in (x)")
    assert (status, [one["value"] for one in body["items"]]) == (200, ["7"])


async def test_a_number_that_no_pod_reported_is_not_found_and_not_zero(served: Served) -> None:
    served.pod("a", b"x 1\n")
    for path in (f"{CUSTOM}/podcliquesets.grove.io/d/grove_requests_waiting", f"{EXTERNAL}/grove_requests_waiting"):
        status, body = await served.get(path)
        assert (status, body["kind"], body["reason"]) == (404, "Status", "NotFound")


async def test_a_raw_name_is_looked_for_once_it_was_asked_for(served: Served) -> None:
    page = b"# TYPE my:batches gauge\nmy:batches 5\n"
    served.pod("a", page)
    path = f"{CUSTOM}/pods/a/my:batches"
    assert (await served.get(path))[0] == 404
    served.pod("a", page)
    status, body = await served.get(path)
    assert (status, body["items"][0]["value"]) == (200, "5")
    listed = (await served.get("/apis/external.metrics.k8s.io/v1beta1"))[1]["resources"]
    assert "my:batches" in [one["name"] for one in listed]


async def test_raw_names_are_bounded() -> None:
    names = RawNames()
    for number in range(MOST_RAW_NAMES + 50):
        names.asked(f"raw_{number}")
    assert len(names.listed()) == 13 + MOST_RAW_NAMES
    assert "raw_0" not in names.listed()


async def test_discovery(served: Served) -> None:
    status, groups = await served.get("/apis")
    assert status == 200
    assert [one["name"] for one in groups["groups"]] == ["custom.metrics.k8s.io", "external.metrics.k8s.io"]
    assert (await served.get("/apis/custom.metrics.k8s.io"))[1]["preferredVersion"]["version"] == "v1beta2"
    assert (await served.get("/openapi/v2"))[1]["paths"] == {}
    whole = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert (await served.get("/apis", accept=whole))[0] == 406, "the aggregator then asks version by version"
    names = {one["name"] for one in (await served.get("/apis/custom.metrics.k8s.io/v1beta1"))[1]["resources"]}
    assert "podcliquescalinggroups.grove.io/grove_requests_waiting" in names
    assert "pods/grove_e2e_p95_seconds" in names


@pytest.mark.parametrize(
    ("user", "path", "code"),
    [
        pytest.param("", f"{CUSTOM}/pods/*/x", 401, id="not by the aggregator"),
        pytest.param("", "/nowhere", 401, id="not even what is not there"),
        pytest.param("jo", f"{CUSTOM}/pods/*/x", 403, id="without rights"),
        pytest.param("jo", "/apis", 403, id="without rights to discovery"),
        pytest.param("hpa", "/openapi/v9", 404, id="what is not there"),
        pytest.param("hpa", f"{CUSTOM}/nodes/x/y", 404, id="metrics of nodes"),
        pytest.param("hpa", f"{CUSTOM}/pods/*/x?labelSelector=a%3D%3D%3Db", 400, id="a selector that is none"),
    ],
)
async def test_what_is_refused(served: Served, user: str, path: str, code: int) -> None:
    served.user = user
    status, body = await served.get(path)
    assert (status, body["code"], body["status"]) == (code, code, "Failure")


async def test_an_api_server_that_does_not_say_is_not_a_yes(served: Served) -> None:
    served.rights.fails = True
    assert (await served.get("/apis"))[0] == 503


async def test_rights_are_asked_for_by_resource_and_name(served: Served) -> None:
    await served.get(f"{CUSTOM}/podcliques.grove.io/c/m")
    await served.get(f"{EXTERNAL}/m")
    assert served.rights.asked == [
        Ask("", "custom.metrics.k8s.io", "v1beta2", "n", "podcliques.grove.io", "c", "m"),
        Ask("", "external.metrics.k8s.io", "v1beta1", "n", "m"),
    ]


@pytest.mark.parametrize(
    ("number", "want"),
    [
        pytest.param(7.0, "7", id="whole"),
        pytest.param(0.0, "0", id="nothing"),
        pytest.param(1.25, "1250m", id="thousandths"),
        pytest.param(0.0004, "400u", id="a time per token in millionths"),
        pytest.param(123456.7891, "123456789m", id="large ones lose what nobody needs"),
        pytest.param(1.7e308, "9223372036854775807", id="more than a quantity holds"),
        pytest.param(-1.7e308, "-9223372036854775807", id="less than a quantity holds"),
    ],
)
def test_a_number_as_a_quantity(number: float, want: str) -> None:
    assert wire.quantity(number) == want
    assert math.isfinite(number)


def test_an_api_service_of_another_client_is_not_ours() -> None:
    mine = wanted_services(ServiceAddress("grove-system"), b"ca", "uid-1")[0]
    assert is_ours(mine)
    assert not is_ours({"metadata": {"name": mine["metadata"]["name"]}})
    assert mine["metadata"]["ownerReferences"][0]["kind"] == "ClusterRole"


def test_our_own_api_service_is_healed_where_it_was_changed() -> None:
    mine = wanted_services(ServiceAddress("grove-system"), b"ca")[0]
    stored = {
        **mine,
        "metadata": {**mine["metadata"], "resourceVersion": "7"},
        "spec": {**mine["spec"], "caBundle": "x"},
    }
    assert healing_patch(mine, stored) == {"metadata": {"resourceVersion": "7"}, "spec": {"caBundle": "Y2E="}}
    assert healing_patch(mine, mine) is None


class Api:
    """An API server with cluster roles and API services, enough for a registration."""

    def __init__(self, *stored: Json) -> None:
        self.stored = {one["metadata"]["name"]: one for one in stored}
        self.created: list[str] = []

    async def get(self, kind: Resource, name: str, namespace: str = "") -> Json:
        if name not in self.stored:
            raise NotFound(name, code=404, reason="NotFound", details={})
        return self.stored[name]

    async def create(self, kind: Resource, obj: Json) -> Json:
        self.created.append(obj["metadata"]["name"])
        self.stored[obj["metadata"]["name"]] = obj
        return obj

    async def patch(self, kind: Resource, name: str, patch: Json) -> Json:
        self.stored[name] = {**self.stored[name], "spec": {**self.stored[name]["spec"], **patch["spec"]}}
        return self.stored[name]


ROLE: Json = {"metadata": {"name": OWNER, "uid": "role-1"}}
NAMES = ["v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"]


async def test_what_is_missing_is_made_and_what_is_another_owners_stays() -> None:
    theirs: Json = {"metadata": {"name": NAMES[2]}, "spec": {"service": {"name": "keda"}}}
    api = Api(ROLE, theirs)
    registration = Registration(api, ServiceAddress("grove-system"), b"ca")  # type: ignore[arg-type]
    await registration.ensure()
    assert api.created == NAMES[:2]
    assert api.stored[NAMES[2]] is theirs
    assert registration.foreign == {NAMES[2]}
    del api.stored[NAMES[2]]
    await registration.ensure()
    assert api.created == NAMES
    assert registration.foreign == set()


async def test_a_new_authority_is_published() -> None:
    api = Api(ROLE)
    registration = Registration(api, ServiceAddress("grove-system"), b"ca")  # type: ignore[arg-type]
    await registration.ensure()
    registration.trust(b"new")
    await registration.ensure()
    assert {one["spec"]["caBundle"] for name, one in api.stored.items() if name != OWNER} == {"bmV3"}


async def test_while_it_is_uninstalled_nothing_is_made_again() -> None:
    api = Api(ROLE)
    registration = Registration(api, ServiceAddress("grove-system"), b"ca")  # type: ignore[arg-type]
    await registration.ensure()
    api.stored.clear()
    await registration.ensure()
    assert api.stored == {}
