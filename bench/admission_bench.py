"""What a review costs: CPU of defaulting plus validation, and latency with sixteen in flight over TLS.

A typical set has five cliques; the largest has two hundred and a mebibyte of JSON. The server runs in a process of
its own; the clients of this one keep sixteen requests in flight. The baseline is a webhook that allows everything. It
decodes the review, because an answer needs its uid. The bench asks both in turns.
"""

from __future__ import annotations

import asyncio
import copy
import json
import ssl
import statistics
import subprocess
import sys
import time
from typing import Any

import aiohttp
import msgspec
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import review_of

from bench.figures import Figure
from grove.admission.certs.authority import renewed
from grove.admission.certs.serving import ServedCertificate
from grove.admission.rules.feasibility import NodeFacts, NodeSummary
from grove.admission.rules.lookups import Known, Needs
from grove.admission.rules.request import Answer, Request, envelope
from grove.admission.rules.review import DEFAULT_SET, VALIDATE_SET, Admission
from grove.admission.serving.server import WebhookServer
from grove.api.meta import Json
from grove.kube.clock import SYSTEM

IN_FLIGHT, ROUNDS = 16, 3
NODES = NodeSummary([NodeFacts({"kubernetes.io/hostname": f"n{i}"}, {"cpu": 64_000, "pods": 110}) for i in range(1000)])


def cliques(count: int, padding: int) -> list[Json]:
    """Cliques with a few variables, ports, volumes and probes each, and `padding` more bytes of variables."""
    container = {
        "name": "main",
        "image": "registry.example/serving:1",
        "args": ["--model", "/models/x", "--port", "8000"],
        "env": [{"name": f"SETTING_{i}", "value": "some value"} for i in range(12)],
        "ports": [{"containerPort": 8000, "name": "http"}, {"containerPort": 9000, "name": "metrics"}],
        "resources": {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": "8"}},
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
    }
    container["env"] += [{"name": f"MORE_{i}", "value": "x" * 40} for i in range(padding // 70)]
    fields = {"containers": [container], "volumes": [{"name": "models", "emptyDir": {}}]}
    return [clique(f"role-{i}", 2, **copy.deepcopy(fields)) for i in range(count)]


def typical() -> Json:
    roles = cliques(5, 0)
    return pcs("demo", *roles, groups=[group("prefill", "role-1", "role-2"), group("decode", "role-3", "role-4")])


def largest() -> Json:
    return pcs("demo", *cliques(200, 3400))


class NothingToFetch:
    async def fetch(self, needs: Needs) -> Known:
        return Known()


class Unlooking(Admission):
    """Says yes to everything: the baseline."""

    def needs(self, path: str, review: Any) -> Needs:
        return Needs()

    def review(self, path: str, review: Any, lookups: Known) -> Json:
        return envelope(Request.of(review).uid, Answer())


def cpu_per_review(admission: Admission, obj: Json, rounds: int) -> float:
    """Seconds of CPU to decode, default and validate one set."""
    body = msgspec.json.encode(review_of(obj))
    spent = []
    for _ in range(rounds):
        started = time.process_time()
        for path in (DEFAULT_SET, VALIDATE_SET):
            msgspec.json.encode(admission.review(path, msgspec.json.decode(body), Known()))
        spent.append(time.process_time() - started)
    return statistics.median(spent)


async def serve(kind: type[Admission]) -> None:
    """The server, in a process of its own: writes its port and authority, then serves until its input ends."""
    bundle = renewed(None, ("127.0.0.1",), SYSTEM.now())
    assert bundle is not None
    certificate = ServedCertificate()
    certificate.load(bundle.chain, bundle.key)
    admission = kind(nodes=lambda: NODES)
    server = WebhookServer(admission, NothingToFetch(), certificate, host="127.0.0.1", port=0)
    await server.start()
    print(json.dumps({"port": server.port, "ca": bundle.authorities.decode()}), flush=True)
    await asyncio.to_thread(sys.stdin.read)


def latencies(kind: type[Admission], obj: Json, requests: int) -> list[float]:
    """Seconds each validation took, sixteen in flight."""
    command = [sys.executable, "-m", "bench.admission_bench", kind.__name__]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        address: Json = {}
        while "port" not in address:  # log lines come first
            line = child.stdout.readline()
            address = json.loads(line) if line.startswith("{") else {}
        return asyncio.run(_ask_all(address, json.dumps(review_of(obj)).encode(), requests))
    finally:
        child.stdin.close()
        child.wait(timeout=10)
        child.stdout.close()


async def _ask_all(address: Json, body: bytes, requests: int) -> list[float]:
    taken: list[float] = []
    trusted = ssl.create_default_context(cadata=address["ca"])
    async with aiohttp.ClientSession(
        f"https://127.0.0.1:{address['port']}", connector=aiohttp.TCPConnector(ssl=trusted, limit=IN_FLIGHT)
    ) as http:

        async def ask(count: int) -> None:
            for _ in range(count):
                started = time.perf_counter()
                async with http.post(VALIDATE_SET, data=body) as answer:
                    assert b'"allowed":true' in await answer.read()
                taken.append(time.perf_counter() - started)

        await asyncio.gather(*(ask(2) for _ in range(IN_FLIGHT)))
        taken.clear()
        await asyncio.gather(*(ask(requests // IN_FLIGHT) for _ in range(IN_FLIGHT)))
    return sorted(taken)


def run(results: dict[str, Any]) -> None:
    for name, obj, rounds, requests, aim in (
        ("5 cliques", typical(), 300, 1600, ("≤ 1 ms", "≤ 20 ms")),
        ("200 cliques, 1 MiB", largest(), 10, 96, ("", "")),
    ):
        size = len(json.dumps(obj)) / 2**20
        results[f"review of {name}: size"] = Figure(size * 1024, "KiB")
        cpu, least_cpu = (
            cpu_per_review(kind(nodes=lambda: NODES), obj, rounds) * 1e3 for kind in (Admission, Unlooking)
        )
        results[f"review of {name}: CPU"] = Figure(cpu, "ms", aim[0], least_cpu)
        taken: dict[type[Admission], list[float]] = {Admission: [], Unlooking: []}
        for kind in (Unlooking, Admission) * ROUNDS:
            taken[kind] += latencies(kind, obj, requests // ROUNDS)
        for words, rank, wanted in (("p50", 0.5, ""), ("p99", 0.99, aim[1])):
            ours, least = (sorted(times)[int(len(times) * rank)] * 1e3 for times in taken.values())
            results[f"review of {name}: {words}, 16 in flight"] = Figure(ours, "ms", wanted, least)


if __name__ == "__main__":
    asyncio.run(serve(Unlooking if sys.argv[1:] == [Unlooking.__name__] else Admission))
