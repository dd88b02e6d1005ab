"""Grove installed as docs/install.md says, on real nodes, and everything an administrator does to it afterwards.

The tests are one story, in order, on one cluster. It begins with Helm and the previous version, goes on without Helm,
and ends with the removal. Systems run in a namespace that enforces the restricted Pod Security Standard, and so does
Grove. Nothing touches their pods until they are deleted.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from grove.local.nodes.cluster import RealCluster
from tests.node.images import SERVE
from tests.node.installation import (
    CONFINED,
    LEVELS,
    PREVIOUS_REGISTRY,
    REGISTRY,
    RESTRICTED,
    ROOT,
    SYSTEM,
    TEAM,
    Installation,
    checked_out,
    everything,
    prepare,
    previous_commit,
    touched,
    workload,
)
from tests.node.questions import asked_all_the_time

RESTRICTED_LABEL = "pod-security.kubernetes.io/enforce=restricted"
SETS = {"small.yaml": ("small", 2), "mpi.yaml": ("mpi", 4), "disaggregated.yaml": ("chat", 9)}
"""Samples by file: the set's name and its pods."""
EVERYTHING_ON = (
    "--set",
    "console.enabled=true",
    "--set",
    "engineMetrics.enabled=true",
    "--set",
    "dialects.enabled=true",
)


def images(registry: str) -> list[str]:
    return ["--set", f"image.repository={registry}/grove", "--set", f"initImage.repository={registry}/grove-initc"]


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    commit = previous_commit()
    print(f"\nthe previous version is commit {commit[:12]}")
    return checked_out(commit, tmp_path_factory.mktemp("previous"))


@pytest.fixture(scope="module")
def on(bare_nodes: RealCluster, tmp_path_factory: pytest.TempPathFactory, previous: Path) -> Installation:
    found = prepare(bare_nodes, tmp_path_factory.mktemp("cluster"), previous, Path(os.environ["GROVE_IMAGES"]))
    for name in (SYSTEM, TEAM):
        found.kubectl("create", "namespace", name)
        found.kubectl("label", "namespace", name, RESTRICTED_LABEL)
    return found


@pytest.fixture(scope="module")
def bare(on: Installation) -> set[str]:
    """Every object of the cluster before Grove came."""
    return everything(on)


@pytest.fixture(autouse=True)
def _timed(request: pytest.FixtureRequest) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"  {request.node.name}: {time.monotonic() - began:.0f} s")


def available(on: Installation) -> bool:
    status = [one.get("status", {}) for one in on.found("podcliquesets", "-n", TEAM)]
    return len(status) == len(SETS) and all(
        one.get("availableReplicas") == one.get("updatedReplicas") == 1 for one in status
    )


def is_content(on: Installation) -> None:
    """`kubectl grove doctor` finds nothing to warn of, once leases and certificates have settled."""

    def nothing_but_ok() -> bool:
        found = json.loads(on.kubectl("grove", "doctor", "-n", TEAM, "-o", "json", fails=None))
        return all(one["state"] == "ok" for one in found)

    on.until("doctor is content", nothing_but_ok)


def is_refused_and_defaulted(on: Installation) -> None:
    """Admission answers through the Service: a bad set is refused with its field, a good one is filled up."""
    bad = workload("mpi.yaml") | {"metadata": {"name": "bad"}}
    bad["spec"]["template"]["cliques"][1]["spec"]["startsAfter"] = ["nobody"]
    said = on.kubectl("apply", "-n", TEAM, "--dry-run=server", "-f-", stdin=yaml.safe_dump(bad), fails=True)
    assert "startsAfter" in said, said  # which no schema can know
    assert "no such clique" in said
    good = workload("small.yaml") | {"metadata": {"name": "trial"}}
    out = on.kubectl("apply", "-n", TEAM, "--dry-run=server", "-o", "json", "-f-", stdin=yaml.safe_dump(good))
    assert json.loads(out)["spec"]["template"]["cliques"][0]["spec"]["minAvailable"] == 2


def test_helm_installs_the_previous_version(on: Installation, previous: Path, bare: set[str]) -> None:
    assert [one for one in bare if "grove" in one.rpartition("/")[2]] == [f"Namespace /{SYSTEM}"]
    on.helm("install", "grove", str(previous / "charts/grove"), "--namespace", SYSTEM, *images(PREVIOUS_REGISTRY))
    on.rolled_out("grove-operator", "grove-scheduler")
    accounts = {pod["spec"]["serviceAccountName"] for pod in on.found("pods", "-n", SYSTEM)}
    assert accounts == {"grove-operator", "grove-scheduler"}


def test_systems_run_as_real_containers_in_their_start_order(on: Installation) -> None:
    levels = [{"domain": domain, "key": key} for domain, key in LEVELS.items()]
    topology = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "ClusterTopologyBinding",
        "metadata": {"name": "fake-nodes"},
        "spec": {"levels": levels},
    }
    # The rollout of the previous version may be complete before every node routes to its pods.
    on.until("admission answers", lambda: _answers(on))
    on.kubectl("apply", "-f-", stdin=yaml.safe_dump(topology))
    began = time.monotonic()
    on.kubectl("apply", "-n", TEAM, "-f-", stdin=yaml.safe_dump_all([workload(file) for file in SETS]))
    on.until("every set is available", lambda: available(on))
    print(f"\n  15 pods of three sets, from apply to available: {time.monotonic() - began:.1f} s")
    counts: dict[str, int] = {}
    started: dict[str, list[datetime]] = {}
    ready: dict[str, list[datetime]] = {}
    for pod in on.found("pods", "-n", TEAM):
        labels = pod["metadata"]["labels"]
        counts[labels["app.kubernetes.io/part-of"]] = counts.get(labels["app.kubernetes.io/part-of"], 0) + 1
        clique = labels["grove.io/podclique"]
        running = pod["status"]["containerStatuses"][0]["state"]["running"]
        started.setdefault(clique, []).append(datetime.fromisoformat(running["startedAt"]))
        (condition,) = (one for one in pod["status"]["conditions"] if one["type"] == "Ready")
        ready.setdefault(clique, []).append(datetime.fromisoformat(condition["lastTransitionTime"]))
    assert counts == dict(SETS.values())
    after = {
        "mpi-0-leader": ready["mpi-0-worker"],
        "chat-0-prefill-0-prefill-leader": sorted(ready["chat-0-router"])[:1],  # one of two is enough (minAvailable)
        "chat-0-decode-0-decode-leader": sorted(ready["chat-0-router"])[:1],
        # Workers have startsAfterCondition: Started.
        "chat-0-prefill-0-prefill-worker": started["chat-0-prefill-0-prefill-leader"],
        "chat-0-decode-0-decode-worker": started["chat-0-decode-0-decode-leader"],
    }
    for child, parents in after.items():
        assert max(parents) <= min(started[child]), f"{child} started before its parents"


def test_admission_answers_through_the_service_and_doctor_is_content(on: Installation) -> None:
    is_refused_and_defaulted(on)
    is_content(on)


def test_an_upgrade_touches_no_pod(on: Installation) -> None:
    before = touched(on)
    on.helm(
        "upgrade", "grove", str(ROOT / "charts/grove"), "-n", SYSTEM, "--reset-then-reuse-values", *images(REGISTRY)
    )
    on.rolled_out("grove-operator", "grove-scheduler")
    is_content(on)
    # The version that ended here may be one that stops answering at SIGTERM, before its Service has other endpoints.
    on.until("admission answers", lambda: _answers(on))
    assert touched(on) == before


def test_a_downgrade_touches_no_pod_and_neither_does_the_way_back(on: Installation) -> None:
    before = touched(on)
    with asked_all_the_time(on.nodes, workload("small.yaml"), TEAM) as questions:
        on.helm("rollback", "grove", "1", "-n", SYSTEM)
        on.rolled_out("grove-operator", "grove-scheduler")
        is_refused_and_defaulted(on)
        gone_from(on, REGISTRY)
    print(f"\n  {questions}")
    assert questions.failed == []
    assert touched(on) == before
    on.helm("rollback", "grove", "2", "-n", SYSTEM)
    on.rolled_out("grove-operator", "grove-scheduler")
    is_content(on)
    assert touched(on) == before


def test_with_everything_on_and_two_of_each_all_of_it_runs(on: Installation) -> None:
    before = touched(on)
    two = ["--set", "replicaCount=2", "--set", "scheduler.replicaCount=2", "--set", "config.authorizer.enabled=true"]
    values = [*images(REGISTRY), *EVERYTHING_ON, *two]
    with asked_all_the_time(on.nodes, workload("small.yaml"), TEAM) as questions:
        on.helm("upgrade", "grove", str(ROOT / "charts/grove"), "-n", SYSTEM, "--reset-then-reuse-values", *values)
        on.rolled_out("grove-operator", "grove-scheduler", "grove-metrics", "grove-console")
        on.until("the old pods have ended", lambda: len(on.found("pods", "-n", SYSTEM)) == 6)
    print(f"\n  {questions}")
    assert questions.failed == []
    accounts = {pod["spec"]["serviceAccountName"] for pod in on.found("pods", "-n", SYSTEM)}
    assert {"grove-operator", "grove-scheduler", "grove-metrics", "grove-console"} <= accounts
    budgets = {one["metadata"]["name"]: one["status"]["currentHealthy"] for one in on.found("pdb", "-n", SYSTEM)}
    assert budgets == {"grove-operator": 2, "grove-scheduler": 2}
    # The aggregator reaches `grove metrics` through its Service, and the console answers through its own.
    on.until("metrics are served", lambda: "custom.metrics.k8s.io/v1beta2" in on.kubectl("api-versions"))
    on.kubectl("get", "--raw", "/apis/custom.metrics.k8s.io/v1beta2")
    page = on.kubectl("get", "--raw", f"/api/v1/namespaces/{SYSTEM}/services/grove-console:80/proxy/")
    assert "<html" in page
    is_content(on)
    is_refused_and_defaulted(on)
    assert touched(on) == before


def test_a_manifest_of_another_dialect_becomes_a_set_that_runs(on: Installation) -> None:
    before = touched(on)
    manifest = yaml.safe_load((ROOT / "samples/seeds/podgangset.yaml").read_text())
    manifest["metadata"]["namespace"] = TEAM
    spec = manifest["spec"]
    spec |= {"replicas": 2, "minAvailable": 2, "scheduling": {}}
    for container in spec["template"]["spec"]["containers"]:
        container |= {"image": SERVE, "securityContext": CONFINED, "resources": {"requests": {"nvidia.com/gpu": 1}}}
    spec["template"]["spec"]["securityContext"] = RESTRICTED
    on.kubectl("apply", "-f-", stdin=yaml.safe_dump(manifest))

    def pods() -> list[str]:
        added = [one for one in on.found("pods", "-n", TEAM) if one["metadata"]["name"] not in before]
        return [one["metadata"]["name"] for one in added if one["status"]["phase"] == "Running"]

    on.until("its pods run", lambda: len(pods()) == 2)
    on.kubectl("delete", "dynamopodgangsets", "--all", "-n", TEAM, "--timeout=120s")
    on.until("they are gone with it", lambda: touched(on).keys() == before.keys())
    assert touched(on) == before


def test_a_new_certificate_is_trusted_and_touches_no_pod(on: Installation) -> None:
    before = touched(on)

    def bundle() -> str:
        (one,) = on.found("mutatingwebhookconfigurations")
        return str(one["webhooks"][0]["clientConfig"]["caBundle"])

    old = bundle()
    on.kubectl("delete", "secret", "grove-webhook-server-cert", "-n", SYSTEM)
    on.until("the webhooks trust another authority", lambda: bundle() != old)
    on.until("admission answers with it", lambda: _answers(on))
    is_content(on)
    assert touched(on) == before


def gone_from(on: Installation, registry: str) -> None:
    """Waits until the last operator of these images has ended: its requests go elsewhere before."""

    def images_of_pods() -> set[str]:
        pods = on.found("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/name=grove-operator")
        assert pods, "no operator has this label"
        return {one["image"] for pod in pods for one in pod["spec"]["containers"]}

    on.until(f"no operator is from {registry}", lambda: not any(one.startswith(registry) for one in images_of_pods()))


def _answers(on: Installation) -> bool:
    try:
        is_refused_and_defaulted(on)
    except AssertionError:
        return False
    return True


def test_an_uninstall_leaves_the_systems_and_nothing_of_its_own(on: Installation, bare: set[str]) -> None:
    before = touched(on)
    on.helm("uninstall", "grove", "-n", SYSTEM, "--wait")
    on.until("Grove's pods are gone", lambda: not on.found("pods", "-n", SYSTEM))
    left = {one for one in everything(on) - bare if not is_of_a_set(one)}
    assert left == set()
    assert touched(on) == before


def is_of_a_set(one: str) -> bool:
    """Whether an object is a system or made for one, or belongs to the definition of such a kind."""
    kind, _, name = one.partition(" ")
    of_a_kind = kind in ("CustomResourceDefinition", "APIService") and name.endswith(
        ("grove.io", "grove.dynamo.ai", "grove.ai")
    )
    return name.startswith(f"{TEAM}/") or kind == "ClusterTopologyBinding" or of_a_kind


def test_without_helm_it_takes_the_systems_over_again(on: Installation) -> None:
    before = touched(on)
    manifest = (ROOT / "charts/install.yaml").read_text()
    manifest = manifest.replace("image: grove:", f"image: {REGISTRY}/grove:")
    manifest = manifest.replace('"grove-initc"', f'"{REGISTRY}/grove-initc"')
    on.kubectl("apply", "--server-side", "-f-", stdin=manifest)
    on.rolled_out("grove-operator", "grove-scheduler")
    is_content(on)
    is_refused_and_defaulted(on)
    assert touched(on) == before


def test_without_helm_it_goes_too_and_the_cluster_is_as_it_was(on: Installation, bare: set[str]) -> None:
    on.kubectl("delete", "podcliquesets", "--all", "--all-namespaces", "--timeout=120s")
    on.until("every pod of a set is gone", lambda: not on.found("pods", "-n", TEAM))
    on.kubectl("delete", "-f", str(ROOT / "charts/install.yaml"), "--timeout=120s")
    on.grove("webhooks", "--remove")
    on.kubectl("delete", "clustertopologybindings", "--all")
    on.kubectl("delete", "crd", *definitions(on))
    mine = {one for one in bare if one.startswith(f"Namespace /{SYSTEM}") or f" {SYSTEM}/" in one}
    on.until("nothing of Grove is left", lambda: everything(on) == bare - mine)


def definitions(on: Installation) -> list[str]:
    """The kinds of Grove that are served, dialects included: they were on before."""
    names = [one["metadata"]["name"] for one in on.found("crd")]
    return [one for one in names if one.endswith(("grove.io", "grove.dynamo.ai", "grove.ai"))]
