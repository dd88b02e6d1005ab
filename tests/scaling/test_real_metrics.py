"""Autoscaling on what engines say, for real: API server, aggregator and HPA controller of Kubernetes, engines faked.

See `tests.support.metered` for what is real and what is not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
import yaml
from tests.support.manifests import clique, group, pcs
from tests.support.metered import NAMESPACE, QUICK, Metered, another, metered, object_metric
from tests.support.pages import cumulative, gauge, vllm
from tests.support.rights import await_right
from tests.support.waiting import HANGS_S, nothing_missing

from grove.api import labels as key
from grove.api.core import Event, HorizontalPodAutoscaler, Namespace, Service
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.config import load_config
from grove.kube.errors import AlreadyExists, KubeError, NotFound
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.local.pki import Authority
from grove.local.ports import free_ports
from grove.metrics.apiservices import API_SERVICE, CLUSTER_ROLE, OWNER
from grove.metrics.readings import SET, Subject
from grove.metrics.wire import VERSIONS


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("metrics"), **QUICK) as plane:
        yield plane


@pytest.mark.waits
async def test_the_autoscaler_follows_the_engines_by_whole_units(plane: ControlPlane) -> None:
    async with metered(plane) as world:
        await _foreign_api_service(world)
        await _queue_of_forty(world)
        await _pods_metric_counts_units(world)
        await _external_and_latency(world)
        await _to_zero_and_back(world)
        await _security(world)
        await _bad_pages(world)
        await _two_replicas(world)


async def _foreign_api_service(world: Metered) -> None:
    """The external metrics API belongs to another server when ours starts, until that server gives it up."""
    name = "v1beta1.external.metrics.k8s.io"
    await nothing_missing(lambda: world.unregistered(name))
    await world.client.delete(API_SERVICE, name)
    theirs = {
        "metadata": {"name": name},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": "keda-operator-metrics-apiserver", "namespace": "keda", "port": 443},
        },
    }
    try:
        await world.client.create(API_SERVICE, theirs)
    except KubeError:  # ours was back first
        patch: Json = {"metadata": {"labels": None}, "spec": theirs["spec"] | {"caBundle": None}}
        await world.client.patch(API_SERVICE, name, patch)

    async def left() -> str:
        return "" if name in world.metrics.registration.foreign else "not seen as somebody else's"

    await nothing_missing(left)
    stored = await world.client.get(API_SERVICE, name)
    assert stored["spec"]["service"]["name"] == "keda-operator-metrics-apiserver"
    await world.client.delete(API_SERVICE, name)
    await nothing_missing(lambda: world.unregistered(name))


async def _queue_of_forty(world: Metered) -> None:
    waiting = 4

    def page(pod: str) -> bytes | None:
        # One leader has the whole queue; workers show nothing at all.
        if "-lead-" not in pod:
            return None
        return vllm(waiting=waiting if "-grp-0-" in pod else 0, running=1)

    world.engines.default = page
    metric = object_metric("grove_requests_waiting", "PodCliqueScalingGroup", type="AverageValue", averageValue="4")
    scale = {"minReplicas": 1, "maxReplicas": 12, "metrics": [metric]}
    annotations = {"prometheus.io/port": "8000"}
    await world.client.create(
        PodCliqueSet,
        pcs(
            "queue",
            clique("lead", annotations=annotations),
            clique("work", 2),
            groups=[group("grp", "lead", "work", scale=scale)],
            namespace=NAMESPACE,
        ),
    )

    async def missing(units: int) -> str:
        grp = await world.client.get(PodCliqueScalingGroup, "queue-0-grp", NAMESPACE)
        seen = (grp.spec.replicas, grp.status.available_replicas, len(await world.pods("queue")))
        return "" if seen == (units, units, 3 * units) else f"{seen}, not {units} units; {await world.complaints()}"

    await nothing_missing(lambda: missing(1))
    waiting = 40
    await nothing_missing(lambda: missing(10))
    await world.all_whole("queue")
    gangs = await world.client.list(PodGang, NAMESPACE, labels=f"{key.PART_OF}=queue")
    assert len(gangs.items) == 10
    scaler = await world.client.get(HorizontalPodAutoscaler, "queue-0-grp", NAMESPACE)
    assert scaler.spec.metrics[0]["object"]["describedObject"]["name"] == "queue-0-grp"

    async def untold() -> str:
        """Nothing said yet: a task of its own writes Events, behind all the others that ten replicas bring."""
        events = (await world.client.list(Event, NAMESPACE)).items
        told = [one.message for one in events if one.reason == "ScaledByAutoscaler"]
        wanted = "by autoscaler queue-0-grp: metric grove_requests_waiting at "
        return "" if any(wanted in one for one in told) else f"told are {told}"

    await nothing_missing(untold)
    waiting = 4
    await nothing_missing(lambda: missing(1))
    await world.client.delete(PodCliqueSet, "queue", NAMESPACE)


async def _pods_metric_counts_units(world: Metered) -> None:
    """Two replicas of three pods, each leader 20 where 10 is wanted: four replicas, not twelve."""
    world.engines.default = lambda pod: vllm(running=20) if "-lead-" in pod else None
    pods = {"metric": {"name": "vllm:num_requests_running"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    scale = {"minReplicas": 2, "maxReplicas": 20, "metrics": [{"type": "Pods", "pods": pods}]}
    annotations = {"prometheus.io/port": "8000"}
    manifest = pcs(
        "units",
        clique("lead", annotations=annotations),
        clique("work", 2),
        groups=[group("grp", "lead", "work", replicas=2, scale=scale)],
        namespace=NAMESPACE,
    )
    highest = 0
    loads = {"units-0-grp-0": 20, "units-0-grp-1": 20}

    def page(pod: str) -> bytes | None:
        """The load stays the same and is spread over what is there: only the first two have any."""
        unit = pod.split("-lead-")[0]
        return vllm(running=loads.get(unit, 0)) if "-lead-" in pod else None

    world.engines.default = page
    await world.client.create(PodCliqueSet, manifest)

    async def missing(units: int) -> str:
        nonlocal highest
        grp = await world.client.get(PodCliqueScalingGroup, "units-0-grp", NAMESPACE)
        highest = max(highest, grp.spec.replicas)
        seen = (grp.spec.replicas, grp.status.available_replicas)
        return "" if seen == (units, units) else f"{seen} instead of {units}; {await world.complaints()}"

    await nothing_missing(lambda: missing(4))
    assert highest == 4, "never by pods"
    loads |= {"units-0-grp-0": 1, "units-0-grp-1": 1}
    await nothing_missing(lambda: missing(2))
    await world.client.delete(PodCliqueSet, "units", NAMESPACE)


async def _external_and_latency(world: Metered) -> None:
    """A clique by an external metric over labels, and by the latency of its pods."""
    served: list[float] = []
    slow = True

    def page(pod: str) -> bytes | None:
        served.extend([3.0 if slow else 0.05] * 20)
        return vllm(running=1, latency=cumulative(served))

    world.engines.default = page
    latency = object_metric("grove_e2e_p95_seconds", "PodClique", type="Value", value="1")
    chosen = {"matchLabels": {key.PART_OF: "slow", key.CLIQUE_NAME: "web"}}
    external = {
        "type": "External",
        "external": {
            "metric": {"name": "grove_requests_running", "selector": chosen},
            "target": {"type": "AverageValue", "averageValue": "1"},
        },
    }
    scale = {"minReplicas": 1, "maxReplicas": 3, "metrics": [latency, external]}
    manifest = pcs(
        "slow",
        clique("web", 1, scale=scale, annotations={"prometheus.io/port": "8000"}),
        namespace=NAMESPACE,
    )
    await world.client.create(PodCliqueSet, manifest)

    async def missing(pods: int) -> str:
        found = len(await world.pods("slow"))
        return "" if found == pods else f"{found} pods instead of {pods}; {await world.complaints()}"

    await nothing_missing(lambda: missing(3))
    about = f"namespaces/{NAMESPACE}/podcliques.grove.io/slow-0-web"
    body = await world.answered(f"/apis/custom.metrics.k8s.io/v1beta1/{about}/grove_e2e_p95_seconds")
    assert body["items"][0]["metricName"] == "grove_e2e_p95_seconds"
    assert body["items"][0]["window"] == 60

    async def unused() -> str:
        scaler = await world.client.get(HorizontalPodAutoscaler.RESOURCE, "slow-0-web", NAMESPACE)
        seen = {one["type"] for one in scaler["status"].get("currentMetrics") or ()}
        return "" if seen == {"Object", "External"} else f"{seen}; {await world.complaints()}"

    await nothing_missing(unused)
    await world.client.delete(PodCliqueSet, "slow", NAMESPACE)


async def _to_zero_and_back(world: Metered) -> None:
    """A group without pods has no numbers of its own: the router's queue, a number of the set, brings it back."""
    queued = 8

    def page(pod: str) -> bytes | None:
        return gauge("dynamo_frontend_queued_requests", ("", queued)).encode() if "-router-" in pod else None

    world.engines.default = page
    metric = object_metric("grove_requests_waiting", "PodCliqueSet", type="AverageValue", averageValue="4")
    scale = {"minReplicas": 0, "maxReplicas": 4, "metrics": [metric]}
    manifest = pcs(
        "idle",
        clique("router", annotations={"prometheus.io/port": "8000"}),
        clique("lead"),
        clique("work", 2),
        groups=[group("grp", "lead", "work", scale=scale)],
        namespace=NAMESPACE,
    )
    await world.client.create(PodCliqueSet, manifest)

    async def missing(units: int) -> str:
        idle = await world.client.get(PodCliqueSet, "idle", NAMESPACE)
        gangs = await world.client.list(PodGang, NAMESPACE, labels=f"{key.PART_OF}=idle")
        seen = (len(await world.pods("idle")), len(gangs.items), idle.status.available_replicas)
        wanted = (1 + 3 * units, max(1, units), 1)
        return "" if seen == wanted else f"{seen} instead of {wanted}; {await world.complaints()}"

    await nothing_missing(lambda: missing(2))
    queued = 0
    await nothing_missing(lambda: missing(0))
    queued = 16
    await nothing_missing(lambda: missing(4))
    await world.all_whole("idle")
    await world.client.delete(PodCliqueSet, "idle", NAMESPACE)


async def _security(world: Metered) -> None:
    """Only the aggregator is believed, and only those with rights are answered."""
    path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}/pods/*/grove_requests_waiting"
    await world.answered(path)
    nobody = world.plane.client_kubeconfig("nobody-in-particular")
    assert (await world.get_raw(path, nobody))[0] == 403

    pki = world.plane._blueprint._pki
    header = {"X-Remote-User": "system:admin", "X-Remote-Group": "system:masters"}
    front, stranger = pki / "front-proxy", Authority("somebody").client("front-proxy-client")
    own = Path(world.plane.directory) / "stranger"
    own.mkdir()
    stranger_files = stranger.write(own, "stranger")

    async def direct(pair: tuple[Path, Path] | None, headers: dict[str, str]) -> int:
        context = ssl.create_default_context(cafile=None)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if pair is not None:
            context.load_cert_chain(*pair)
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{world.metrics.port}{path}"
            try:
                async with session.get(url, ssl=context, headers=headers) as answer:
                    return answer.status
            except aiohttp.ClientError:
                return 0

    aggregator = (front.with_suffix(".crt"), front.with_suffix(".key"))
    assert await direct(aggregator, header) == 200, "the aggregator's certificate and a user with rights"
    assert await direct(aggregator, {"X-Remote-User": "nobody-in-particular"}) == 403
    assert await direct(aggregator, {}) == 401, "for nobody at all"
    assert await direct(None, header) == 401, "a forged header without a certificate"
    assert await direct((pki / "admin.crt", pki / "admin.key"), header) == 0, "a certificate of the wrong authority"
    assert await direct(stranger_files, header) == 0, "the right name under a stranger's authority"
    other = world.plane._blueprint._front_proxy_authority.client("somebody-else").write(own, "other")
    assert await direct(other, header) == 401, "the right authority, a name that is not the aggregator's"


async def _bad_pages(world: Metered) -> None:
    """A pod whose page is binary and one whose numbers are none get one event each; their neighbour has its numbers."""
    pages = {"evil": b"\x00" * 99, "odd": vllm(waiting=float("nan")), "good": vllm(waiting=2)}
    world.engines.default = lambda pod: pages[pod.split("-")[2]]
    cliques = [clique(name, annotations={"prometheus.io/port": "8000"}) for name in pages]
    await world.client.create(PodCliqueSet, pcs("bad", *cliques, namespace=NAMESPACE))

    async def missing() -> str:
        events = (await world.client.list(Event, NAMESPACE)).items
        told = Counter(
            (one.involved_object.name.split("-")[2], one.reason, one.count)
            for one in events
            if one.involved_object.name.startswith("bad-0-") and one.reason.startswith("Metrics")
        )
        wanted = Counter({("evil", "MetricsUnreadable", 1): 1, ("odd", "MetricsStrange", 1): 1})
        return "" if told == wanted else f"{told}"

    await nothing_missing(missing)
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/grove_requests_waiting"

    async def unread() -> str:
        status, body = await world.get_raw(f"{path}?labelSelector={key.PART_OF}%3Dbad")
        return "" if status == 200 and body["items"][0]["value"] == "2" else f"{status} {body}"

    await nothing_missing(unread)
    await asyncio.sleep(3.0)
    assert await missing() == "", "not once more with every page"
    await world.client.delete(PodCliqueSet, "bad", NAMESPACE)


async def _two_replicas(world: Metered) -> None:
    """Each reads every page, both are asked, and when one ends the other goes on."""
    waiting = 12
    world.engines.default = lambda pod: vllm(waiting=waiting)
    metric = object_metric("grove_requests_waiting", "PodCliqueScalingGroup", type="Value", value="4")
    scale = {"minReplicas": 1, "maxReplicas": 3, "metrics": [metric]}
    manifest = pcs(
        "twice",
        clique("lead", annotations={"prometheus.io/port": "8000"}),
        groups=[group("grp", "lead", scale=scale)],
        namespace=NAMESPACE,
    )
    about = f"namespaces/{NAMESPACE}/podcliquesets.grove.io/twice"
    path = f"/apis/custom.metrics.k8s.io/v1beta2/{about}/grove_requests_waiting"

    async def missing(units: int) -> str:
        found = len(await world.pods("twice"))
        return "" if found == units else f"{found} instead of {units}; {await world.complaints()}"

    async with another(world) as second:
        first = world.metrics
        assert first.secret.served is not second.secret.served
        await world.client.create(PodCliqueSet, manifest)
        await nothing_missing(lambda: missing(3))
        subject = Subject(NAMESPACE, SET, "twice")

        async def unread() -> str:
            now = asyncio.get_running_loop().time()
            seen = [one.readings.find(subject, "grove_requests_waiting", now) for one in world.services]
            return "" if [one and one.number for one in seen] == [36, 36] else f"{seen}"

        await nothing_missing(unread)
        assert first.reader.process is not None
        assert second.reader.process is not None
        assert first.reader.process.pid != second.reader.process.pid
        for _ in range(4):
            await world.answered(path)

        async def unasked() -> str:
            asked = [world.balancer.served[one.port] for one in world.services]
            await world.get_raw(path)
            return "" if all(asked) else f"connections: {asked}"

        await nothing_missing(unasked)
    assert len(world.services) == 1

    await world.answered(path)
    waiting = 0
    await nothing_missing(lambda: missing(1))
    await world.client.delete(PodCliqueSet, "twice", NAMESPACE)


async def test_the_process_needs_the_rights_of_the_chart_and_no_more(plane: ControlPlane) -> None:
    """`grove metrics` as a user with the chart's roles: it registers, serves, ends at a signal, and leaves nothing."""
    names = [f"{version}.{group}" for group, versions in VERSIONS.items() for version in versions]
    user, namespace, (port, probes) = "grove-metrics-process", "grove-system", free_ports(2)
    async with HttpClient(load_config(plane.kubeconfig)) as client:
        with suppress(AlreadyExists):  # by `make audit-rbac`, with the chart's roles
            await client.create(Namespace, {"metadata": {"name": namespace}})
        spec: Json = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        await client.create(Service, {"metadata": {"name": "grove-metrics", "namespace": namespace}, "spec": spec})
        for one in chart_rights():
            kind = Resource(
                "rbac.authorization.k8s.io",
                "v1",
                one["kind"],
                f"{one['kind'].lower()}s",
                one["kind"] in ("Role", "RoleBinding"),
            )
            if "subjects" in one:
                one["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
            with suppress(NotFound):
                await client.delete(kind, one["metadata"]["name"], one["metadata"].get("namespace", ""))
            await client.create(kind, one)
        await_right(plane, user, "create", "apiservices")
        await_right(plane, user, "create", "secrets", namespace)
        for name in names:
            with suppress(NotFound):
                await client.delete(API_SERVICE, name)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "grove",
            "metrics",
            "--kubeconfig",
            str(plane.client_kubeconfig(user)),
            "--namespace",
            namespace,
            "--bind-address",
            "127.0.0.1",
            "--port",
            str(port),
            "--service-port",
            str(port),
            "--probe-port",
            str(probes),
            "--dcgm-namespace",
            "gpu-operator",
            "--log-format",
            "text",
            env=os.environ | {"KUBERNETES_SERVICE_HOST": "127.0.0.1"},  # as in a pod, behind a Service
            stderr=asyncio.subprocess.PIPE,
        )

        async def available() -> str:
            assert process.returncode is None, (await process.communicate())[1].decode()
            for name in names:
                stored = await client.get(API_SERVICE, name)
                conditions = (stored.get("status") or {}).get("conditions") or ()
                if not any(one["status"] == "True" for one in conditions):
                    return f"{name}: {conditions}"
            return ""

        try:
            await nothing_missing(available)
            assert (await client.get(API_SERVICE, names[0]))["metadata"]["ownerReferences"][0]["name"] == OWNER
            assert await connection_after_answer(port) == ""
            process.send_signal(signal.SIGTERM)

            async def leaving() -> str:
                return "" if await connection_after_answer(port) == "close" else "an answer that closes its connection"

            await nothing_missing(leaving)
            assert process.returncode is None, "requests still come through the Service, and are answered"
            _, said = await asyncio.wait_for(process.communicate(), HANGS_S)
            assert process.returncode == 0, said.decode()
            assert "forbidden" not in said.decode().lower(), said.decode()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        await client.delete(CLUSTER_ROLE, OWNER)

        async def gone() -> str:
            page = await client.list(API_SERVICE)
            left = [one["metadata"]["name"] for one in page.items if one["metadata"]["name"] in names]
            return ", ".join(left)

        await nothing_missing(gone)


async def connection_after_answer(port: int) -> str:
    """The header `Connection` of an answer of `grove metrics`. Raises if the connection is refused."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(f"https://127.0.0.1:{port}/apis") as answer,
    ):
        await answer.read()
        return answer.headers.get("Connection", "")


def chart_rights() -> list[Json]:
    """The roles and bindings of grove-metrics as the chart renders them."""
    rendered = Path(__file__).parents[1] / "unit/charts/every-option.rendered.yaml"
    found = [one for one in yaml.safe_load_all(rendered.read_text()) if one]
    kinds = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    mine = [one for one in found if one["kind"] in kinds and one["metadata"]["name"].startswith(OWNER)]
    assert len(mine) == 5
    return mine
