"""What the operator costs and how quick it is: on a real API server, with grove-scheduler and fake nodes.

Everything runs in processes of its own, as it would in a cluster. Times are wall time from the user's write to what the
user sees, so they are longer on a busy machine. CPU seconds and API calls are not. Each figure has its baseline beside
it: what a bare client needs for the unavoidable writes of the same system there. There are
`GROVE_BENCH_ROUNDS` rounds, and the table has the median. The API server counts the calls, so the count has those of
all programs.

`GROVE_BENCH_REPLICAS`, `GROVE_BENCH_SETS` (0 leaves the many sets out) and `GROVE_BENCH_NODES` make it smaller.
`GROVE_BENCH_CALLS=1` lists every kind of call. `GROVE_BENCH_BEFORE` names the folder of an earlier checkout, whose
operator and scheduler make and delete the same set on the same control plane in every round.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from tests.support.manifests import clique, group, many_pairs, pcs

from bench.baseline import NUMBER, unavoidable
from bench.figures import Figure, cpu_s, medians
from bench.planes import StockPlane, stock_plane
from bench.processes import Process, bare_process
from grove.api.core import Node, Pod, ServiceAccount
from grove.api.meta import Json, Object, Resource
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.crds.install import install
from grove.kube.cache import Cache
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane

REPLICAS = int(os.environ.get("GROVE_BENCH_REPLICAS", "500"))
NODES = int(os.environ.get("GROVE_BENCH_NODES", "1000"))
ROUNDS = int(os.environ.get("GROVE_BENCH_ROUNDS", "3"))
SETS = int(os.environ.get("GROVE_BENCH_SETS", "1000"))
BEFORE = os.environ.get("GROVE_BENCH_BEFORE", "")
IDLE_S = 20.0
AIM, BARE = "<= 1.25 x baseline", "beside a baseline without what is promised of cliques and gangs"
SETTLE_S = 5.0
"""What is still on its way when all is there, or gone, belongs to it."""
CLUSTER_ROLE_BINDING = Resource(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
READS = ("get", "list", "watch", "discover")


class Bench:
    """The cluster, its processes, and what a user sees of it."""

    operator: Process

    def __init__(self, plane: ControlPlane, client: HttpClient) -> None:
        self.plane, self.client, self.processes = plane, client, list[Process]()
        self.cache = Cache(client)
        for kind in (Pod, Node, PodCliqueSet, PodClique):
            self.cache.add(kind)
        self._changed = asyncio.Event()
        for kind in (Pod, Node, PodCliqueSet, PodClique):
            self.cache.on_event(kind, lambda old, new: self._changed.set())

    async def until(self, holds: Callable[[], bool], timeout_s: float = 600.0) -> float:
        """Seconds until it holds, seen by a watch as a user's would."""
        began = time.perf_counter()
        async with asyncio.timeout(timeout_s):
            while not holds():
                self._changed.clear()
                await self._changed.wait()
        return time.perf_counter() - began

    async def calm(self, kind: type[Object], for_s: float = 10.0) -> None:
        """Waits until no program writes this kind any more: the controllers write to every new node after a while."""
        changes = 0

        def count(old: Any, new: Any) -> None:
            nonlocal changes
            changes += 1

        self.cache.on_event(kind, count)
        while changes:
            changes = 0
            await asyncio.sleep(for_s)

    async def events_end(self) -> None:
        """Waits until no Event is written any more: the node controller writes one for every node, at a slow rate."""
        before, now = -1, 0
        while before != now:
            before, now = now, (await served(self))["post", "events"]
            await asyncio.sleep(SETTLE_S)

    def pods(self, *, ready: bool = False, ungated: bool = False) -> int:
        pods = self.cache.list(Pod)
        return sum((pod.is_ready or not ready) and not (ungated and pod.is_gated) for pod in pods)

    def available(self) -> int:
        return sum(live_set.status.available_replicas for live_set in self.cache.list(PodCliqueSet))

    def spent_since(self, before: Mapping[str, float]) -> dict[str, float]:
        """CPU seconds of each process of the system since `cpu_s` was asked; not of this one, which only looks."""
        return {name: now - before.get(name, 0.0) for name, now in self.cpu_s().items()}

    def cpu_s(self) -> dict[str, float]:
        pids = {child.name: child.pid for child in self.plane.children}
        pids |= {process.name: process.child.pid for process in self.processes}
        return {name: cpu_s(pid) for name, pid in pids.items()}


async def token_kubeconfig(client: HttpClient, directory: Path) -> Path:
    """A kubeconfig as a pod has its credentials: by token.

    Not the administrator's certificate, whose signature the API server checks again at every request.
    """
    name = "bench"
    await client.create(ServiceAccount, {"metadata": {"name": name, "namespace": "default"}})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    await client.create(CLUSTER_ROLE_BINDING, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    asked: Json = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"expirationSeconds": 86400},
    }
    answer = await client.create(ServiceAccount.RESOURCE, asked, subresource="token")
    authority = base64.b64encode(client.config.ca).decode()
    cluster = {"server": client.config.server, "certificate-authority-data": authority}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": answer["status"]["token"]}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path = directory / "token.kubeconfig"
    path.write_text(json.dumps(config))
    return path


@contextmanager
def running(bench: Bench, *processes: Process) -> Iterator[None]:
    """These processes belong to the system while the block runs."""
    bench.processes += processes
    try:
        yield
    finally:
        for process in processes:
            process.stop()
            bench.processes.remove(process)


def fake_nodes(kubeconfig: Path, count: int) -> Process:
    shape = ["--count", str(count), "--start-delay", "0"]
    return Process("fake nodes", "-m", "grove", "nodes", "--kubeconfig", str(kubeconfig), *shape)


@contextmanager
def operating(bench: Bench, kubeconfig: Path, checkout: str = "") -> Iterator[None]:
    """With the operator and grove-scheduler, those of another checkout if one is named."""
    where = ["--kubeconfig", str(kubeconfig), "--no-leader-elect", "--port", "0"]
    process = ["-m", "bench.operator_process", str(kubeconfig)]
    bench.operator = Process("operator", *process, piped=True, checkout=checkout)
    bench.operator.expect("ready")
    scheduler = Process("scheduler", "-m", "grove", "scheduler", *where, checkout=checkout)
    with running(bench, bench.operator, scheduler):
        yield


class Baseline(NamedTuple):
    """What the unavoidable writes of a system take: wall seconds, and CPU seconds by process."""

    created_s: float
    ready_s: float
    reported_s: float
    """All of it, statuses too."""
    reported_cpu_s: Mapping[str, float]
    gone_s: float
    """All pods."""
    all_gone_s: float
    """The sets and all their objects."""
    gone_cpu_s: Mapping[str, float]


class Baselines(NamedTuple):
    """`bare` is that of the big set without what the API promises its users of cliques and gangs (see `baseline`)."""

    small: Baseline
    big: Baseline
    bare: Baseline


async def baseline_of(
    bench: Bench, bare: Process, manifest: Json, count: int, rename: str, to: str, *, promised: bool = True
) -> Baseline:
    """Makes `count` systems like this one with a bare client, and deletes them."""
    order = {"do": "make", "set": manifest, "count": count, "rename": rename, "to": to, "promised": promised}
    bare.say(json.dumps(order))
    await asyncio.to_thread(bare.expect, "planned")
    pods = sum(obj["kind"] == "Pod" for obj in unavoidable(manifest)) * count
    calls_before, cpu, began = await served(bench), bench.cpu_s(), time.perf_counter()
    bare.say("")
    await bench.until(lambda: bench.pods() == pods)
    created_s = time.perf_counter() - began
    await bench.until(lambda: bench.pods(ready=True) == pods)
    ready_s = time.perf_counter() - began
    await asyncio.to_thread(bare.expect, "done")
    reported_s = time.perf_counter() - began
    await asyncio.sleep(SETTLE_S)
    reported_cpu_s = bench.spent_since(cpu)
    print_calls(f"baseline, {pods} pods made", await served(bench) - calls_before)

    calls_before, cpu, began = await served(bench), bench.cpu_s(), time.perf_counter()
    bare.say(json.dumps({"do": "remove"}))
    await bench.until(lambda: not bench.cache.list(Pod))
    gone_s = time.perf_counter() - began
    await asyncio.to_thread(bare.expect, "done")
    await bench.until(lambda: not bench.cache.list(PodClique))
    all_gone_s = time.perf_counter() - began
    await asyncio.sleep(SETTLE_S)
    print_calls(f"baseline, {pods} pods deleted", await served(bench) - calls_before)
    return Baseline(created_s, ready_s, reported_s, reported_cpu_s, gone_s, all_gone_s, bench.spent_since(cpu))


@contextmanager
def bare_client(bench: Bench, kubeconfig: Path) -> Iterator[Process]:
    with bare_process(kubeconfig) as bare:
        bench.processes.append(bare)
        yield bare
        bench.processes.remove(bare)


async def baselines(bench: Bench, kubeconfig: Path) -> Baselines:
    with bare_client(bench, kubeconfig) as bare:
        several = [await baseline_of(bench, bare, nine_pods(f"f{n}"), 1, f"f{n}", f"f{n}") for n in range(3)]
        small_ = sorted(several, key=lambda baseline: baseline.reported_s)[1]
        pair, names = many_pairs("big", 1), ("big-0", f"big-{NUMBER}")
        least = await baseline_of(bench, bare, pair, REPLICAS, *names, promised=False)
        return Baselines(small_, await baseline_of(bench, bare, pair, REPLICAS, *names), least)


def writes(after: dict[str, Any], before: dict[str, Any], what: str = "") -> int:
    """What the operator wrote between two answers, all of it or to one resource."""
    spent = {call: n - before["calls"].get(call, 0) for call, n in after["calls"].items()}
    return sum(n for call, n in spent.items() if call.split()[0] not in READS and what in ("", call.split()[1]))


async def served(bench: Bench) -> Counter[tuple[str, str]]:
    """Requests the API server has answered so far, by its own count: verb and resource."""
    config = bench.client.config
    headers = {"Authorization": f"Bearer {(await config.credentials.current()).token}"}
    counts: Counter[tuple[str, str]] = Counter()
    url, tls = f"{config.server}/metrics", config.ssl_context() or True
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=tls) as got:
        lines = (await got.text()).splitlines()
    for line in lines:
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            resource = labels["resource"] + (f"/{labels['subresource']}" if labels["subresource"] else "")
            counts[labels["verb"].lower(), resource] += int(float(line.rsplit(" ", 1)[1]))
    return counts


def calls(spent: Counter[tuple[str, str]], pods: int, results: dict[str, Figure]) -> None:
    """Calls a pod by verb, everybody's."""
    verbs: Counter[str] = Counter()
    for (verb, resource), count in spent.items():
        if resource not in ("leases", ""):
            verbs[verb] += count
    for verb in ("post", "patch", "apply", "put", "delete", "deletecollection", "get", "list", "watch"):
        if verbs[verb]:
            results[f"operator: API calls a pod of all processes, {verb}"] = Figure(verbs[verb] / pods, "")


async def made(bench: Bench, least: Baselines, results: dict[str, Figure]) -> None:
    """One set of many replicas of two pods."""
    pods, shape, baseline = 2 * REPLICAS, f"{REPLICAS} x 2 pods", least.big
    cpu, used, before_all = bench.cpu_s(), bench.operator.ask(), await served(bench)
    began = time.perf_counter()
    await bench.client.create(PodCliqueSet, many_pairs("big", REPLICAS))
    for step, holds, aim, least_s in (
        ("created", lambda: bench.pods() == pods, "", baseline.created_s),
        ("without gates", lambda: bench.pods(ungated=True) == pods, "", baseline.created_s),
        ("Ready", lambda: bench.pods(ready=True) == pods, "", baseline.ready_s),
        ("available", lambda: bench.available() == REPLICAS, AIM, baseline.reported_s),
    ):
        await bench.until(holds)
        results[f"operator: {shape} {step}"] = Figure(time.perf_counter() - began, "s", aim, least_s)
    available_s = results[f"operator: {shape} available"].value
    results[f"operator: {shape} available, {BARE}"] = Figure(available_s, "s", "", least.bare.reported_s)
    await asyncio.sleep(SETTLE_S)
    spent, now, after_all = bench.spent_since(cpu), bench.operator.ask(), await served(bench)
    for beside, aim, cpu_of in (("", AIM, baseline.reported_cpu_s), (f", {BARE}", "", least.bare.reported_cpu_s)):
        results[f"operator: {shape} available, CPU of all processes{beside}"] = Figure(
            sum(spent.values()), "s", aim, sum(cpu_of.values())
        )
    results["operator: CPU a pod"] = Figure((now["cpu_s"] - used["cpu_s"]) / pods * 1000, "ms", "<= 10 ms")
    everybodys = after_all - before_all
    ours = writes(now, used)
    ours += everybodys["post", "pods/binding"]  # the scheduler's, and what others than the operator wrote beside it:
    ours += everybodys["patch", "podgangs/status"] - writes(now, used, "podgangs/status")
    ours += sum(everybodys[verb, "events"] for verb in ("post", "patch")) - writes(now, used, "events")
    a_gang = everybodys["patch", "podgangs/status"] / REPLICAS
    results["operator: PodGang status writes a gang, everybody's"] = Figure(a_gang, "", "<= 2")
    results["operator: API writes a pod, operator's"] = Figure(writes(now, used) / pods, "")
    results["operator: API writes a pod, with the scheduler's"] = Figure(ours / pods, "", "<= 6; 17 upstream")
    calls(everybodys, pods, results)
    a_pod = {name: seconds / pods * 1000 for name, seconds in baseline.reported_cpu_s.items()}
    for name, seconds in spent.items():
        results[f"operator: CPU a pod, {name}"] = Figure(seconds / pods * 1000, "ms", "", a_pod.get(name))
    both = (spent["operator"] + spent["scheduler"]) / pods * 1000
    results["operator: CPU a pod, operator and scheduler; baseline: the bare client"] = Figure(
        both, "ms", "", a_pod["bare client"]
    )
    results["operator: memory at its highest"] = Figure(now["peak_mb"], "MB", "< 141 MB")
    print_calls("operator, made", everybodys)
    if os.environ.get("GROVE_BENCH_CALLS"):
        for call in sorted(now["calls"]):
            print(f"operator {call}: {now['calls'][call] - used['calls'].get(call, 0)}", file=sys.stderr)


async def idle_and_scaled(bench: Bench, baseline: Baseline, results: dict[str, Figure]) -> None:
    """The big set left alone; then halved, doubled, emptied, filled again."""
    pods, before = 2 * REPLICAS, bench.operator.ask()
    await asyncio.sleep(IDLE_S)
    after = bench.operator.ask()
    idle = (after["cpu_s"] - before["cpu_s"]) / IDLE_S * 100
    results[f"operator: idle CPU with {pods} pods"] = Figure(idle, "% of a core", "<= 0.2 %")
    results["operator: writes while idle"] = Figure(writes(after, before), "", "0")

    half = REPLICAS // 2
    for was, replicas in ((REPLICAS, half), (half, REPLICAS), (REPLICAS, 0), (0, REPLICAS)):
        share = abs(was - replicas) / REPLICAS
        least_s, least_cpu_s = (
            (baseline.gone_s, baseline.gone_cpu_s) if replicas < was else (baseline.reported_s, baseline.reported_cpu_s)
        )
        cpu = bench.cpu_s()
        await _scale(bench, replicas)
        seconds = await bench.until(
            lambda replicas=replicas: bench.available() == replicas and bench.pods() == 2 * replicas  # type: ignore[misc]
        )
        await asyncio.sleep(SETTLE_S)
        step, spent_s = f"operator: x 2 pods, {was} -> {replicas} replicas", sum(bench.spent_since(cpu).values())
        results[step] = Figure(seconds, "s", "", least_s * share)
        results[f"{step}, CPU of all processes"] = Figure(spent_s, "s", "", sum(least_cpu_s.values()) * share)


async def deleted(bench: Bench, baseline: Baseline, results: dict[str, Figure], who: str) -> None:
    """The big set is deleted, and everything it had made is gone."""
    shape = f"{REPLICAS} x 2 pods"
    cpu, before_all, began = bench.cpu_s(), await served(bench), time.perf_counter()
    await bench.client.delete(PodCliqueSet, "big", "default")
    await bench.until(lambda: not bench.cache.list(Pod))
    results[f"{who}: {shape} deleted, pods gone"] = Figure(time.perf_counter() - began, "s", AIM, baseline.gone_s)
    await bench.until(lambda: not bench.cache.list(PodCliqueSet))
    results[f"{who}: {shape} deleted, set gone"] = Figure(time.perf_counter() - began, "s", "", baseline.gone_s)
    await bench.until(lambda: not bench.cache.list(PodClique))
    results[f"{who}: {shape} deleted, cliques gone"] = Figure(time.perf_counter() - began, "s", "", baseline.gone_s)
    await asyncio.sleep(SETTLE_S)
    results[f"{who}: {shape} deleted, CPU of all processes"] = Figure(
        sum(bench.spent_since(cpu).values()), "s", AIM, sum(baseline.gone_cpu_s.values())
    )
    spent = await served(bench) - before_all
    results[f"{who}: PodGang status writes while it is deleted"] = Figure(spent["patch", "podgangs/status"], "", "0")
    print_calls(f"{who}, deleted", spent)


def print_calls(what: str, spent: Counter[tuple[str, str]]) -> None:
    """On request: every kind of call, most frequent first."""
    if os.environ.get("GROVE_BENCH_CALLS"):
        frequent = sorted(spent.items(), key=lambda entry: -entry[1])
        print(f"{what}: {', '.join(f'{verb} {kind} {n}' for (verb, kind), n in frequent)}", file=sys.stderr)


async def before(bench: Bench, baseline: Baseline, results: dict[str, Figure]) -> None:
    """The same big set by an earlier checkout: made and deleted."""
    pods, shape = 2 * REPLICAS, f"{REPLICAS} x 2 pods"
    cpu, used, before_all, began = bench.cpu_s(), bench.operator.ask(), await served(bench), time.perf_counter()
    await bench.client.create(PodCliqueSet, many_pairs("big", REPLICAS))
    await bench.until(lambda: bench.available() == REPLICAS)
    results[f"before: {shape} available"] = Figure(time.perf_counter() - began, "s", "", baseline.reported_s)
    await asyncio.sleep(SETTLE_S)
    spent, now, everybodys = bench.spent_since(cpu), bench.operator.ask(), await served(bench) - before_all
    least = sum(baseline.reported_cpu_s.values())
    results[f"before: {shape} available, CPU of all processes"] = Figure(sum(spent.values()), "s", "", least)
    results["before: CPU a pod, operator"] = Figure((now["cpu_s"] - used["cpu_s"]) / pods * 1000, "ms")
    results["before: CPU a pod, scheduler"] = Figure(spent["scheduler"] / pods * 1000, "ms")
    a_gang = everybodys["patch", "podgangs/status"] / REPLICAS
    results["before: PodGang status writes a gang, everybody's"] = Figure(a_gang, "")
    results["before: API writes a pod, operator's"] = Figure(writes(now, used) / pods, "")
    await deleted(bench, baseline, results, "before")


async def _scale(bench: Bench, replicas: int) -> None:
    patch = {"spec": {"replicas": replicas}}
    await bench.client.patch(PodCliqueSet, "big", patch, "default", subresource="scale")


def nine_pods(name: str) -> Json:
    return pcs(name, clique("r", 3), clique("l"), clique("w", 2), groups=[group("g", "l", "w", replicas=2)])


async def small(bench: Bench, baseline: Baseline, results: dict[str, Figure]) -> None:
    """A set of nine pods, five times: the median."""
    times: list[float] = []
    for number in range(5):
        await asyncio.sleep(1.0)
        began = time.perf_counter()
        await bench.client.create(PodCliqueSet, nine_pods(f"s{number}"))
        await bench.until(lambda wanted=number + 1: bench.available() == wanted)  # type: ignore[misc]
        times.append(time.perf_counter() - began)
    results["operator: a set of 9 pods available"] = Figure(sorted(times)[2], "s", "< 1 s", baseline.reported_s)
    await clear(bench)


async def many_sets(bench: Bench, baseline: Baseline, results: dict[str, Figure]) -> None:
    """Many small sets at once."""
    before, began = bench.operator.ask(), time.perf_counter()
    async with asyncio.TaskGroup() as group_:
        for number in range(SETS):
            group_.create_task(bench.client.create(PodCliqueSet, pcs(f"m{number}", clique("w", 3))))
    await bench.until(lambda: bench.available() == SETS)
    results[f"operator: {SETS} sets x 3 pods available"] = Figure(
        time.perf_counter() - began, "s", "", baseline.reported_s
    )
    after = bench.operator.ask()
    results["operator: API writes a pod, many sets"] = Figure(writes(after, before) / (3 * SETS), "")
    await bench.events_end()  # and revisions: what is still on its way belongs to the creation
    cpu, calls_before, began = bench.cpu_s(), await served(bench), time.perf_counter()
    await bench.client.delete_collection(PodCliqueSet, "default")
    step = f"operator: {SETS} sets x 3 pods deleted"
    await bench.until(lambda: not bench.cache.list(Pod))
    results[f"{step}, pods gone"] = Figure(time.perf_counter() - began, "s", "", baseline.gone_s)
    await bench.until(lambda: not bench.cache.list(PodCliqueSet))
    results[f"{step}, sets gone; baseline: pods gone"] = Figure(time.perf_counter() - began, "s", AIM, baseline.gone_s)
    await bench.until(lambda: not bench.cache.list(PodClique))
    results[f"{step}, everything gone"] = Figure(time.perf_counter() - began, "s", AIM, baseline.all_gone_s)
    await asyncio.sleep(SETTLE_S)
    results[f"{step}, CPU of all processes"] = Figure(
        sum(bench.spent_since(cpu).values()), "s", AIM, sum(baseline.gone_cpu_s.values())
    )
    print_calls(f"{SETS} sets deleted", await served(bench) - calls_before)


async def clear(bench: Bench) -> None:
    await bench.client.delete_collection(PodCliqueSet, "default")
    await bench.until(lambda: not bench.cache.list(PodCliqueSet) and not bench.cache.list(Pod))


@asynccontextmanager
async def with_nodes(plane: StockPlane, nodes: int) -> AsyncIterator[tuple[Bench, Path]]:
    """A plane with Grove's kinds and `nodes` fake nodes that all controllers have seen; and a kubeconfig for it."""
    async with HttpClient(load_config(plane.kubeconfig)) as admin:
        await install(admin, lambda message: None)
        kubeconfig = await token_kubeconfig(admin, plane.directory)
    async with HttpClient(load_config(kubeconfig)) as client:
        bench = Bench(plane, client)
        async with bench.cache:
            with running(bench, fake_nodes(kubeconfig, nodes)):
                await bench.cache.wait_synced()
                await bench.until(lambda: len(bench.cache.list(Node)) == nodes)
                await bench.calm(Node)
                await asyncio.to_thread(plane.settle)
                yield bench, kubeconfig


async def measure(plane: StockPlane, results: dict[str, Figure]) -> None:
    rounds: list[dict[str, Figure]] = [{} for _ in range(ROUNDS)]
    async with with_nodes(plane, NODES) as (bench, kubeconfig):
        await asyncio.sleep(SETTLE_S)
        await bench.events_end()
        for figures in rounds:
            least = await baselines(bench, kubeconfig)
            if BEFORE:
                with operating(bench, kubeconfig, BEFORE):
                    await before(bench, least.big, figures)
            with operating(bench, kubeconfig):
                await small(bench, least.small, figures)
                await made(bench, least, figures)
                if figures is rounds[-1]:
                    await idle_and_scaled(bench, least.big, figures)
                await deleted(bench, least.big, figures, "operator")
        results.update(medians(rounds))
        if SETS:
            with bare_client(bench, kubeconfig) as bare:
                baseline = await baseline_of(bench, bare, pcs("m0", clique("w", 3)), SETS, "m0", f"m{NUMBER}")
            with operating(bench, kubeconfig):
                await many_sets(bench, baseline, results)


def run(results: dict[str, Figure]) -> None:
    with tempfile.TemporaryDirectory() as folder, stock_plane(folder, hurried=True) as plane:
        asyncio.run(measure(plane, results))
