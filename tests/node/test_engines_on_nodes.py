"""Real engines on two real nodes answer: samples/engines as they are, with requests, faults, scaling and an update."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tools.engines import llama, models
from tools.engines.__main__ import default_cache

from grove import __version__
from grove.api.labels import DRAIN_SECONDS, DRAINING
from grove.cli.local_ready import NAMESPACE, expose_metrics
from grove.local.nodes.cluster import RealCluster
from grove.local.ports import free_ports
from tests.node.conftest import Kept, grove
from tests.node.engines import SAMPLES, Stage, clique_spec, manifest, restarts

ARCHIVES = Path(os.environ.get("GROVE_IMAGES", "dist")) / "engines"
TOKENS = 24


@pytest.fixture
def stage(nodes: RealCluster, fresh_name: str) -> Iterator[Stage]:
    nodes.kubectl("create", "namespace", fresh_name)
    yield Stage(nodes, fresh_name)
    nodes.kubectl("delete", "namespace", fresh_name, "--wait=false")


@pytest.fixture(scope="module")
def llama_image(nodes: RealCluster) -> None:
    nodes.import_image(ARCHIVES / "llama-cpp-rpc.tar")


def instances(stage: Stage, count: int) -> str:
    """The address of the llama Service, once this number of instances is ready, each with two workers."""
    stage.until(f"{count} leaders are ready", lambda: len(stage.ready("leader")) == count)
    assert len(stage.ready("worker")) == 2 * count
    return stage.url("llama")


@pytest.fixture(scope="module")
def one_process(nodes: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a llama-server that computes the same model alone, on this machine."""
    folder = tmp_path_factory.mktemp("llama")
    program, model = folder / "llama-server", folder / "tiny-a.gguf"
    program.write_bytes(llama.programs(default_cache())["usr/bin/llama-server"])
    program.chmod(0o755)
    model.write_bytes(models.files("tiny-a.gguf", default_cache())["tiny-a.gguf"])
    (port,) = free_ports(1)
    command = [
        *nodes.inside,
        str(program),
        "-m",
        str(model),
        "--alias",
        "tiny-a",
        "--port",
        str(port),
        "-t",
        "1",
        "-c",
        "1024",
        "-np",
        "2",
        "--no-warmup",
    ]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield f"http://127.0.0.1:{port}"
    running.kill()
    running.wait()


def test_a_wrong_model_path_is_shown_in_the_words_of_llama_server(llama_image: None, stage: Stage) -> None:
    def without_its_model(system: dict[str, Any]) -> None:
        words = clique_spec(system, "leader")["podSpec"]["containers"][0]["args"]
        words[words.index("--model") + 1] = "/models/none.gguf"

    stage.apply(manifest("llama-cpp-rpc", without_its_model))
    where = ("-n", stage.namespace, "--kubeconfig", str(stage.cluster.kubeconfig))

    def shown(name: str, *words: str) -> str:
        """The output of a command, once all the words are in it."""
        command = [*stage.cluster.inside, sys.executable, "-m", "grove", name, *where, "llama"]
        said = " ".join(subprocess.run(command, capture_output=True, text=True, check=False).stdout.split())
        return said if all(word in said for word in words) else ""

    words = ("failed to open", "/models/none.gguf")
    for name in ("tree", "explain"):
        print(stage.until(f"{name} names the file", lambda name=name: shown(name, *words)))


def test_three_pods_compute_what_one_process_computes(llama_image: None, stage: Stage, one_process: str) -> None:
    began = time.monotonic()
    stage.apply(manifest("llama-cpp-rpc"))
    url = instances(stage, 1)
    together = stage.answers(url, "tiny-a", "--tokens", str(TOKENS))
    print(f"\nfrom the manifest to the first answer: {time.monotonic() - began:.1f} s")
    alone = stage.answers(one_process, "tiny-a", "--tokens", str(TOKENS))
    print(f"asked three pods: {together}\nasked one process: {alone}")
    assert together == alone
    stage.check("llama-cpp-rpc", url)
    (leader,) = stage.ready("leader")
    assert restarts(leader) == 0
    for worker in stage.ready("worker"):
        said = stage.kubectl("logs", worker["metadata"]["name"])
        connected = said.count("Accepted client connection") - said.count("Client connection closed")
        assert connected == 1, f"the leader computes with every worker\n{said}"


def slow_workers(system: dict[str, Any]) -> None:
    """Workers whose containers start ten seconds late, as after a slow pull."""
    wait = {
        "name": "late",
        "image": f"grove-initc:{__version__}",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/bin/python3.11", "-c", "import time; time.sleep(10)"],
    }
    clique_spec(system, "worker")["podSpec"]["initContainers"] = [wait]


def without_order(system: dict[str, Any]) -> None:
    slow_workers(system)
    system["spec"]["template"]["cliqueStartupType"] = "CliqueStartupTypeAnyOrder"
    clique_spec(system, "leader").pop("startsAfter")


def test_without_start_order_the_leader_dies_and_with_it_the_leader_comes_up(llama_image: None, stage: Stage) -> None:
    stage.apply(manifest("llama-cpp-rpc", without_order))
    (dead,) = stage.until("the leader ended", lambda: [one for one in stage.pods("leader") if restarts(one)])
    ended = dead["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert ended["exitCode"] != 0
    print(f"\nwithout start order the leader ended with {ended['exitCode']}")
    stage.kubectl("delete", "podcliqueset", "llama", "--wait=true", "--timeout=120s")
    stage.until("the pods are gone", lambda: not json.loads(stage.kubectl("get", "pods", "-o", "json"))["items"])

    stage.apply(manifest("llama-cpp-rpc", slow_workers))
    stage.answers(instances(stage, 1), "tiny-a")
    (leader,) = stage.ready("leader")
    assert restarts(leader) == 0


def test_a_worker_that_is_killed_comes_back_and_its_gang_answers_again(llama_image: None, stage: Stage) -> None:
    stage.apply(manifest("llama-cpp-rpc"))
    url = instances(stage, 1)
    before = stage.answers(url, "tiny-a")
    killed = stage.ready("worker")[0]["metadata"]["name"]
    with stage.load(url, "--model", "tiny-a", "--clients", "2") as counts:
        stage.until("requests are answered", lambda: stage.ask(url, "tiny-a")[0])
        stage.kubectl("delete", "pod", killed, "--grace-period=0", "--force")
        stage.until("the leader ended at its next request", lambda: any(restarts(one) for one in stage.pods("leader")))
        instances(stage, 1)
        assert stage.answers(url, "tiny-a") == before
    print(f"\na worker was killed: {counts}")
    assert killed not in {pod["metadata"]["name"] for pod in stage.pods("worker")}
    assert counts.failed > 0, "nothing was lost, so nothing was killed"
    assert counts.sent == counts.answered + counts.failed


def test_three_instances_answer_behind_one_service(llama_image: None, stage: Stage) -> None:
    stage.apply(manifest("llama-cpp-rpc"))
    instances(stage, 1)
    stage.kubectl("scale", "podcliquescalinggroup/llama-0-instance", "--replicas=3")
    url = instances(stage, 3)
    with stage.load(url, "--model", "tiny-a", "--clients", "3") as counts:
        stage.until("every leader has computed", lambda: all(computed(one) > 0 for one in stage.ready("leader")))
    leaders = {pod["metadata"]["name"]: computed(pod) for pod in stage.ready("leader")}
    print(f"\ntokens by leader: {leaders}; {counts}")
    assert len(leaders) == 3
    assert counts.failed == 0


def test_a_scale_in_with_draining_loses_no_request(llama_image: None, stage: Stage) -> None:
    """Without hooks in the pods: only the draining keeps requests away from an instance that goes."""

    def bare(system: dict[str, Any]) -> None:
        system["metadata"]["annotations"] = {DRAIN_SECONDS: "20"}
        for name in ("leader", "worker"):
            del clique_spec(system, name)["podSpec"]["containers"][0]["lifecycle"]

    stage.apply(manifest("llama-cpp-rpc", bare))
    instances(stage, 1)
    stage.kubectl("scale", "podcliquescalinggroup/llama-0-instance", "--replicas=3")
    url = instances(stage, 3)
    with stage.load(url, "--model", "tiny-a", "--clients", "6") as counts:
        stage.until("every leader has computed", lambda: all(computed(one) > 0 for one in stage.ready("leader")))
        stage.kubectl("scale", "podcliquescalinggroup/llama-0-instance", "--replicas=1")
        stage.until("two instances drain", lambda: len(stage.ready("leader")) == 1 and len(stage.pods()) == 9)
        assert sum(DRAINING in pod["metadata"].get("annotations", {}) for pod in stage.pods()) == 6
        stage.until("one instance is left", lambda: len(stage.pods()) == 3)
        stage.answers(url, "tiny-a")
    print(f"\nscale-in with draining: {counts}")
    assert counts.sent == counts.answered + counts.failed
    assert counts.answered > 0
    assert counts.failed == 0


def computed(leader: dict[str, Any]) -> float:
    """Tokens that a leader has written, from its metrics page."""
    with urlopen(f"http://{leader['status']['podIP']}:8080/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("llamacpp:tokens_predicted_total "))


@pytest.mark.parametrize("strategy", ["RollingRecreate", "Coherent"])
@pytest.mark.parametrize("surge", [0, 1])
def test_an_update_of_the_model_reaches_every_pod_and_a_surge_loses_no_request(
    llama_image: None, stage: Stage, surge: int, strategy: str
) -> None:
    def surging(system: dict[str, Any]) -> None:
        system["spec"]["updateStrategy"] = {"type": strategy}
        (group,) = system["spec"]["template"]["podCliqueScalingGroups"]
        group |= {"rollingUpdate": {"maxSurge": surge}} if surge else {}

    def other(system: dict[str, Any]) -> None:
        surging(system)
        other_model(system)

    stage.apply(manifest("llama-cpp-rpc", surging))
    url = instances(stage, 1)
    stage.answers(url, "tiny-a")
    old = {pod["metadata"]["uid"] for pod in stage.pods()}

    def is_updated() -> bool:
        pods = stage.ready()
        return len(pods) == len(stage.pods()) == 3 and not old & {one["metadata"]["uid"] for one in pods}

    def is_settled() -> bool:
        """No pod of before is left, not even one that is being deleted."""
        return is_updated() and len(json.loads(stage.kubectl("get", "pods", "-o", "json"))["items"]) == 3

    with stage.load(url, "--model", "tiny-a", "--model", "tiny-b", "--clients", "2") as counts:
        stage.apply(manifest("llama-cpp-rpc", other))
        stage.until("every pod is new and ready", is_updated)
        stage.until("the old pods are gone", is_settled)
        stage.answers(url, "tiny-b")
    print(f"\n{strategy} update with maxSurge {surge}: {counts}")
    (leader,) = stage.ready("leader")
    assert restarts(leader) == 0, "it computes with the new workers, not with old ones of the same names"
    assert not stage.ask(url, "tiny-a")[0], "the old model is gone"
    assert counts.answered > 0
    assert counts.sent == counts.answered + counts.failed
    assert (counts.failed == 0) is (surge == 1)


def other_model(system: dict[str, Any]) -> None:
    container = clique_spec(system, "leader")["podSpec"]["containers"][0]
    container["args"] = [argument.replace("tiny-a", "tiny-b") for argument in container["args"]]


def test_processes_of_two_workers_sum_up(nodes: RealCluster, stage: Stage, tmp_path: Path) -> None:
    nodes.import_image(ARCHIVES / "mpi.tar")
    key = tmp_path / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "mpi", "-f", str(key)], check=True)
    (tmp_path / "known_hosts").write_text(f"* {key.with_suffix('.pub').read_text()}")
    files = [f"--from-file={tmp_path / name}" for name in ("id_ed25519", "id_ed25519.pub", "known_hosts")]
    stage.kubectl("create", "secret", "generic", "mpi-ssh", *files)
    stage.apply(manifest("mpi"))
    (leader,) = stage.until("the leader is ready", lambda: stage.ready("leader"))
    assert restarts(leader) == 0
    path = f"{nodes.kubectl_program.parent}:{os.environ['PATH']}"
    access = ["--kubeconfig", str(nodes.kubeconfig), "-n", stage.namespace]
    command = [str(SAMPLES / "mpi/check.sh"), *access]
    done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    print(f"\n{done.stdout}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def metrics(nodes: RealCluster) -> Iterator[None]:
    """`grove metrics`, registered with the API server."""
    port, probe = free_ports(2)
    nodes.kubectl("create", "namespace", NAMESPACE, check=False)
    asyncio.run(expose_metrics(nodes.kubeconfig, port))
    arguments = (
        "--namespace",
        NAMESPACE,
        "--bind-address",
        "127.0.0.1",
        "--port",
        str(port),
        "--service-port",
        str(port),
        "--probe-port",
        str(probe),
        "--interval",
        "5",
        "--dcgm-namespace",
        "",
    )
    with Kept(partial(grove, nodes, "metrics", "--kubeconfig", str(nodes.kubeconfig), *arguments)):
        yield


def replicas(stage: Stage, group: str) -> int:
    found = json.loads(stage.kubectl("get", "podcliquescalinggroup", f"dynamo-0-{group}", "-o", "json"))
    count: int = found["spec"]["replicas"]
    return count


def test_dynamo_grows_prefill_on_its_queue_and_decode_on_its_cache_and_prefill_goes_to_zero_and_back(
    nodes: RealCluster, metrics: None, stage: Stage
) -> None:
    nodes.import_image(ARCHIVES / "dynamo.tar")
    nodes.kubectl("apply", "-f", str(SAMPLES / "dynamo" / "crd.yaml"))
    stage.apply(manifest("dynamo"))
    stage.until("all parts are ready", lambda: len(stage.ready()) == 3)
    url = stage.url("dynamo")
    print(f"\nthe mock engine wrote: {stage.answers(url, 'tiny', '--chat')}")
    stage.check("dynamo", url)

    load = ("--model", "tiny", "--chat", "--clients", "24", "--words", "80", "--tokens", "96")
    with stage.load(url, *load) as counts:
        for part in ("prefill", "decode"):
            stage.until(f"{part} grows", lambda part=part: replicas(stage, part) > 1)
            stage.until(f"a new {part} worker is ready", lambda part=part: len(stage.ready(part)) > 1)
    print(f"under load: {counts}; prefill {replicas(stage, 'prefill')}, decode {replicas(stage, 'decode')}")
    assert counts.answered > 0

    stage.kubectl("scale", "podcliquescalinggroup/dynamo-0-prefill", "--replicas=0")
    stage.until("no prefill worker is left", lambda: not stage.pods("prefill"))
    assert replicas(stage, "prefill") == 0, "an HPA leaves a group at 0 alone"
    stage.kubectl("scale", "podcliquescalinggroup/dynamo-0-prefill", "--replicas=1")
    stage.until("a prefill worker is ready", lambda: stage.ready("prefill"))
    print(f"after zero the mock engine wrote: {stage.answers(url, 'tiny', '--chat')}")
