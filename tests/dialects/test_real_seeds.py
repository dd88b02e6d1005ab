"""The manifests of samples/seeds on a real API server, as people apply them: unchanged, with kubectl, to Ready."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.dialects import SEEDS
from tests.support.waiting import wait_until

from grove.api.meta import Json
from grove.local.binaries import find_or_build

pytestmark = pytest.mark.real
RACK = "topology.kubernetes.io/rack"
WAIT_S = 300.0


def grove(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grove", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)


class Cluster:
    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._kubectl = [str(find_or_build("1.36.3") / "kubectl"), "--kubeconfig", str(kubeconfig)]

    def kubectl(self, *words: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [*self._kubectl, *map(str, words)]
        limit_s = WAIT_S + 60
        return subprocess.run(command, capture_output=True, text=True, check=False, input=given, timeout=limit_s)

    def done(self, *words: str | Path, given: str | None = None) -> str:
        found = self.kubectl(*words, given=given)
        assert found.returncode == 0, found.stderr
        return found.stdout

    def get(self, *words: str) -> Json:
        found: Json = json.loads(self.done("get", *words, "-o", "json"))
        return found

    def pods(self, **labels: str) -> list[Json]:
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        found = self.get("pods", "-l", selector)["items"] if selector else self.get("pods")["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def ready(self, what: str, condition: str = "Ready") -> None:
        self.done("wait", what, f"--for=condition={condition}", f"--timeout={WAIT_S:.0f}s")

    def racks(self, pods: list[Json]) -> set[str]:
        labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in self.get("nodes")["items"]}
        return {labels[pod["spec"]["nodeName"]][RACK] for pod in pods}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("dialects") / "local"
    up = grove("up", "--dialects", "--nodes", "32", "--dir", directory)
    try:
        assert up.returncode == 0, up.stderr
        yield Cluster(Path(up.stdout.strip()))
    finally:
        grove("down", "--dir", directory)


def ready_at(pod: Json) -> str:
    return next(one["lastTransitionTime"] for one in pod["status"]["conditions"] if one["type"] == "Ready")


def test_a_gang_waits_whole_for_the_nodes_it_asks_for_and_then_runs_whole(cluster: Cluster) -> None:
    applied = cluster.kubectl("apply", "-f", SEEDS / "podgangset.yaml")
    assert applied.returncode == 0, applied.stderr
    assert "Warning: spec.template.spec.schedulerName: not given, so grove-scheduler places the gang" in applied.stderr
    wait_until(lambda: len(cluster.pods(**{"grove.io/podclique": "llm-inference-gang-0-gang"})) == 8, WAIT_S)
    told = wait_until(lambda: cluster.get("dynamopodgangsets", "llm-inference-gang")["status"].get("message"), WAIT_S)
    assert told
    pods = cluster.pods(**{"grove.io/podclique": "llm-inference-gang-0-gang"})
    assert [one for one in pods if one["spec"].get("nodeName")] == []

    cluster.done("label", "nodes", "-l", f"{RACK} in (z0-b0-r0, z0-b0-r1)", "node-type=gpu-compute")
    cluster.ready("dynamopodgangsets/llm-inference-gang")
    pods = cluster.pods(**{"grove.io/podclique": "llm-inference-gang-0-gang"})
    assert len(pods) == 8
    assert cluster.racks(pods) <= {"z0-b0-r0", "z0-b0-r1"}
    status = cluster.get("dynamopodgangsets", "llm-inference-gang")["status"]
    assert (status["phase"], status["readyReplicas"], status["scheduledReplicas"]) == ("Running", 8, 8)


def test_the_rule_pulls_workers_to_the_rack_of_the_prefill_pods(cluster: Cluster) -> None:
    prefill = {
        "apiVersion": "grove.dynamo.ai/v1",
        "kind": "PodGangSet",
        "metadata": {"name": "prefill"},
        "spec": {
            "replicas": 2,
            "scheduling": {"nodeSelector": {RACK: "z0-b0-r1"}},
            "template": {
                "metadata": {"labels": {"component": "prefill"}},
                "spec": {"schedulerName": "grove-scheduler", "containers": [{"name": "p", "image": "p"}]},
            },
        },
    }
    cluster.done("label", "nodes", "--all", "network-tier=high-bandwidth")
    cluster.done("apply", "-f", "-", given=json.dumps(prefill))
    cluster.ready("dynamopodgangsets/prefill")

    cluster.done("apply", "-f", SEEDS / "podclique.yaml", "-f", SEEDS / "multinode-serving.yaml")
    cluster.ready("dynamopodgangsets/dynamo-multinode-serving")
    workers = cluster.pods(app="dynamo-worker")
    assert len(workers) == 16
    assert cluster.racks(workers) == {"z0-b0-r1"}
    cluster.ready("dynamopodcliques/prefill-decode-clique", "Applied")
    rule = "dynamopodcliques", "prefill-decode-clique"
    wait_until(lambda: cluster.get(*rule)["status"].get("satisfiedPods") == 16, WAIT_S)
    assert cluster.get(*rule)["status"]["matchedPodGangSets"] == [
        {"name": "dynamo-multinode-serving", "appliedAs": "PodAffinity"}
    ]


def test_two_systems_are_two_gangs_of_twelve_and_prefill_is_ready_before_decode(cluster: Cluster) -> None:
    cluster.done("apply", "-f", SEEDS / "disaggregated-inference.yaml")
    cluster.ready("koordpodcliquesets/llama-inference")
    for index in (0, 1):
        gang = cluster.get("podgang", f"llama-inference-{index}")
        assert sum(group["minReplicas"] for group in gang["spec"]["podgroups"]) == 12
        pods = cluster.pods(**{"grove.io/podgang": f"llama-inference-{index}"})
        assert len(pods) == 12
        roles: dict[str, list[str]] = {"prefill": [], "decode": []}
        for pod in pods:
            roles[pod["spec"]["containers"][0]["name"]].append(ready_at(pod))
        assert (len(roles["prefill"]), len(roles["decode"])) == (4, 8)
        assert max(roles["prefill"]) <= min(roles["decode"])
    decode = cluster.get("podclique", "llama-inference-0-inference-pipeline-0-decode")
    assert decode["spec"]["startsAfter"] == ["llama-inference-0-inference-pipeline-0-prefill"]


def test_mpi_is_a_gang_of_nine_with_workers_first(cluster: Cluster) -> None:
    cluster.done("apply", "-f", SEEDS / "mpi.yaml")
    cluster.ready("koordpodcliquesets/mpi-inference")
    pods = cluster.pods(**{"grove.io/podgang": "mpi-inference-0"})
    assert len(pods) == 9
    [leader] = [ready_at(one) for one in pods if one["spec"]["containers"][0]["name"] == "mpi-leader"]
    assert max(ready_at(one) for one in pods if one["spec"]["containers"][0]["name"] == "mpi-worker") <= leader
    assert cluster.done("diff", "-f", SEEDS / "mpi.yaml") == ""


@pytest.mark.parametrize("word", ["podcliqueset", "podcliquesets", "pcs", "podclique", "pclq", "PodClique"])
def test_the_words_people_type_still_mean_grove_io(cluster: Cluster, word: str) -> None:
    found = cluster.get(word)["items"]
    assert found
    assert {one["apiVersion"] for one in found} == {"grove.io/v1alpha1"}


def test_faults_are_refused_in_the_words_of_the_manifest(cluster: Cluster) -> None:
    wrong = (
        (SEEDS / "mpi.yaml")
        .read_text()
        .replace("name: mpi-inference", "name: wrong")
        .replace("startOrder: 1", "startsAfter: [worker]\n        minAvailable: 2")
    )
    told = cluster.kubectl("apply", "-f", "-", given=wrong).stderr
    assert "podCliques[1].startsAfter: Forbidden: no such field; use startOrder" in told
    assert "podCliques[1].minAvailable: Invalid value: 2: must not be greater than replicas (1)" in told

    ordered = (SEEDS / "mpi.yaml").read_text().replace("startOrder: 1", "startOrder: 0")
    told = cluster.kubectl("apply", "-f", "-", given=ordered).stderr
    assert "podCliques.startOrder: Invalid value" in told
    assert "field is immutable" in told


def test_scaling_reaches_the_pods_and_stops_at_the_minimum(cluster: Cluster) -> None:
    assert "minAvailable" in cluster.kubectl("scale", "dynamopodgangsets/llm-inference-gang", "--replicas=4").stderr
    cluster.done("scale", "dynamopodgangsets/llm-inference-gang", "--replicas=10")
    wait_until(lambda: cluster.get("dynamopodgangsets", "llm-inference-gang")["status"]["readyReplicas"] == 10, WAIT_S)
    cluster.done("scale", "koordpodcliquesets/mpi-inference", "--replicas=2")
    wait_until(lambda: cluster.get("koordpodcliquesets", "mpi-inference")["status"]["availableReplicas"] == 2, WAIT_S)


def test_a_kind_that_is_removed_and_comes_back_costs_no_pod(cluster: Cluster) -> None:
    def uids() -> set[str]:
        return {one["metadata"]["uid"] for one in cluster.pods(**{"app.kubernetes.io/part-of": "llama-inference"})}

    before = uids()
    assert len(before) == 24
    cluster.done("delete", "crd", "koordpodcliquesets.grove.ai", f"--timeout={WAIT_S:.0f}s")
    wait_until(lambda: cluster.get("events", "--field-selector=reason=TranslationEnded")["items"], WAIT_S)
    assert uids() == before

    applied = grove("crds", "--apply", "--dialects", "--kubeconfig", cluster.kubeconfig)
    assert applied.returncode == 0, applied.stderr
    # It is accepted a moment before it is served.
    wait_until(lambda: cluster.kubectl("apply", "-f", SEEDS / "disaggregated-inference.yaml").returncode == 0, WAIT_S)
    cluster.ready("koordpodcliquesets/llama-inference")
    assert uids() == before
    cluster.done("delete", "koordpodcliquesets/llama-inference", f"--timeout={WAIT_S:.0f}s")
    assert "llama-inference" not in cluster.done("get", "pcs")
