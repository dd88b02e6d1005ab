"""What people have today becomes a set that is admitted as it is; what was chosen or has no place is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tests.support.dialects import SEEDS, pod_template
from tests.support.reviews import faults, schedulers

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.admission.rules.review import Admission
from grove.api.meta import Json
from grove.cli.convert import convert
from grove.dialects.moving.converting import Document, converted

ADMISSION = Admission(backends=schedulers("grove-scheduler", "koord-scheduler", "default-scheduler"))


def leader_worker_set(**spec: object) -> Json:
    group = {"size": 4, "workerTemplate": pod_template(), **(spec.pop("group", {}))}  # type: ignore[dict-item]
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "vllm", "namespace": "default"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": group, **spec},
    }


def workload(kind: str, called: str, replicas: int, scheduler: str = "", **annotations: str) -> Json:
    template = pod_template(**({"schedulerName": scheduler} if scheduler else {}))
    template["metadata"] = {"labels": {"app": called, "pod-group.scheduling.sigs.k8s.io": "pair"}}
    if annotations:
        keys = {f"gang.scheduling.koordinator.sh/{key.replace('_', '-')}": one for key, one in annotations.items()}
        template["metadata"] = {"labels": {"app": called}, "annotations": keys}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": called}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": called, "namespace": "default"}, "spec": spec}


def pod_group(minimum: int, **spec: object) -> Json:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "pair", "namespace": "default"},
        "spec": {"minMember": minimum, **spec},
    }


def volcano_job(*tasks: Json, **spec: object) -> Json:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "mpi", "namespace": "default"},
        "spec": {"tasks": list(tasks), **spec},
    }


def task(name: str, replicas: int, **fields: object) -> Json:
    return {"name": name, "replicas": replicas, "template": pod_template(restartPolicy="OnFailure"), **fields}


def the_one(*documents: Json) -> Document:
    [found] = converted(documents)
    full = with_additions(found.obj, missing_defaults(found.obj))
    assert faults(ADMISSION, full) == []
    return found


def cliques(found: Document) -> list[tuple[str, int, int, list[str]]]:
    listed = [(one["name"], one["spec"]) for one in found.obj["spec"]["template"]["cliques"]]
    return [(name, one["replicas"], one["minAvailable"], one.get("startsAfter", [])) for name, one in listed]


def variables(found: Document, clique: int) -> dict[str, str]:
    containers = found.obj["spec"]["template"]["cliques"][clique]["spec"]["podSpec"]["containers"]
    return {one["name"]: one["value"] for one in containers[0]["env"]}


def test_a_leader_worker_set_is_a_gang_of_leader_and_workers_for_each_group() -> None:
    found = the_one(leader_worker_set())
    assert found.obj["spec"]["replicas"] == 2
    assert cliques(found) == [("leader", 1, 1, []), ("worker", 3, 3, [])]
    address = "$(GROVE_PCS_NAME)-$(GROVE_PCS_INDEX)-leader-0.$(GROVE_HEADLESS_SERVICE)"
    assert variables(found, 0) == {"LWS_LEADER_ADDRESS": address, "LWS_GROUP_SIZE": "4", "LWS_WORKER_INDEX": "0"}
    assert variables(found, 1) == {"LWS_LEADER_ADDRESS": address, "LWS_GROUP_SIZE": "4"}
    assert any("RecreateGroupOnPodRestart" in one for one in found.lost)


def test_workers_that_wait_for_their_leader_still_do() -> None:
    assert cliques(the_one(leader_worker_set(startupPolicy="LeaderReady")))[1] == ("worker", 3, 3, ["leader"])


def test_a_group_of_one_has_no_workers() -> None:
    assert cliques(the_one(leader_worker_set(group={"size": 1}))) == [("leader", 1, 1, [])]


def test_what_a_leader_worker_set_says_beyond_is_reported() -> None:
    obj = leader_worker_set(
        networkConfig={"subdomainPolicy": "Shared"},
        group={"subGroupPolicy": {"subGroupSize": 2}, "restartPolicy": "None"},
        rolloutStrategy={"rollingUpdateConfiguration": {"maxUnavailable": 2, "maxSurge": 1}},
    )
    obj["metadata"]["annotations"] = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    found = the_one(obj)
    assert found.obj["spec"]["updateStrategy"]["rollingRecreate"] == {"maxUnavailable": 2}
    assert [one.partition(":")[0].split(" ")[0] for one in found.lost] == [
        "spec.networkConfig",
        "spec.leaderWorkerTemplate.subGroupPolicy",
        "spec.rolloutStrategy.rollingUpdateConfiguration.maxSurge",
        "leaderworkerset.sigs.k8s.io/exclusive-topology",
    ]


def test_workloads_of_one_pod_group_are_one_gang() -> None:
    documents = [workload("Deployment", "a", 2, "scheduler-plugins"), pod_group(5), workload("StatefulSet", "b", 3)]
    found = the_one(*documents)
    assert found.obj["metadata"]["name"] == "pair"
    assert cliques(found) == [("a", 2, 2, []), ("b", 3, 3, [])]
    first = found.obj["spec"]["template"]["cliques"][0]
    assert first["labels"] == {"app": "a"}
    assert "schedulerName" not in first["spec"]["podSpec"]
    assert not any("minimum" in one for one in found.chosen)


def test_the_minimum_and_the_patience_of_a_pod_group_are_kept_where_they_can_be() -> None:
    found = the_one(workload("Deployment", "a", 4), pod_group(3, scheduleTimeoutSeconds=90, minResources={"cpu": 1}))
    assert cliques(found) == [("a", 4, 3, [])]
    assert found.obj["metadata"]["annotations"] == {"scheduling.koordinator.sh/gang-timeout": "90s"}
    assert found.lost == ("PodGroup pair spec.minResources",)
    split = the_one(workload("Deployment", "a", 2), workload("Deployment", "b", 2), pod_group(3))
    assert any("its minimum of 3 of 4 pods is of no one clique" in one for one in split.chosen)


def test_koordinators_annotations_name_a_gang_too() -> None:
    found = the_one(workload("Deployment", "a", 4, "koord-scheduler", name="solo", min_available="2", mode="Strict"))
    assert found.obj["metadata"]["name"] == "solo"
    assert cliques(found) == [("a", 4, 2, [])]
    clique = found.obj["spec"]["template"]["cliques"][0]
    assert clique["spec"]["podSpec"]["schedulerName"] == "koord-scheduler"
    assert "annotations" not in clique
    assert found.lost == ("annotation gang.scheduling.koordinator.sh/mode",)


def test_a_workload_without_a_pod_group_stays_as_it_is() -> None:
    plain = workload("Deployment", "a", 1)
    plain["spec"]["template"]["metadata"] = {"labels": {"app": "a"}}
    [found] = converted([plain])
    assert not found.known
    assert found.obj is plain


def test_a_volcano_job_is_one_gang_in_the_order_of_its_tasks() -> None:
    found = the_one(
        volcano_job(
            task("worker", 4),
            task("master", 1, dependsOn={"name": ["worker"]}),
            minAvailable=5,
            priorityClassName="high",
            plugins={"svc": [], "ssh": []},
            ttlSecondsAfterFinished=5,
        )
    )
    assert cliques(found) == [("worker", 4, 4, []), ("master", 1, 1, ["worker"])]
    assert found.obj["spec"]["template"]["cliqueStartupType"] == "CliqueStartupTypeExplicit"
    assert found.obj["spec"]["template"]["priorityClassName"] == "high"
    assert any(one.startswith("plugin svc") for one in found.chosen)
    assert "plugin ssh" in found.lost
    assert any(one.startswith("spec.ttlSecondsAfterFinished") for one in found.lost)


@pytest.mark.parametrize(
    ("job", "want"),
    [
        pytest.param(volcano_job(task("w", 4), minAvailable=2), [("w", 4, 2, [])], id="the job's, of a single task"),
        pytest.param(volcano_job(task("w", 4, minAvailable=3)), [("w", 4, 3, [])], id="the task's own"),
        pytest.param(
            volcano_job(task("a", 2), task("b", 2), minAvailable=3),
            [("a", 2, 2, []), ("b", 2, 2, [])],
            id="all, where it is of no one task",
        ),
    ],
)
def test_the_minimum_of_a_volcano_job(job: Json, want: list[tuple[str, int, int, list[str]]]) -> None:
    assert cliques(the_one(job)) == want


def test_volcano_keeps_its_queue_where_it_goes_on_placing() -> None:
    [found] = converted([volcano_job(task("w", 1), schedulerName="volcano", queue="team")])
    assert found.obj["metadata"]["annotations"] == {"scheduling.grove.io/volcano-queue": "team"}
    assert found.obj["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["schedulerName"] == "volcano"


# The command


def run(*arguments: str | Path, given: str = "") -> tuple[int, str, str]:
    found = CliRunner().invoke(convert, list(map(str, arguments)), input=given, standalone_mode=True)
    return int(found.exit_code), found.stdout, found.stderr


def test_the_command_comments_what_was_chosen_and_what_has_no_counterpart(tmp_path: Path) -> None:
    file = tmp_path / "lws.yaml"
    file.write_text(yaml.safe_dump(leader_worker_set()))
    code, out, err = run(file)
    assert code == 0
    assert out.startswith("# From LeaderWorkerSet vllm.\n# Chosen: every group is a replica of the set")
    assert "# No counterpart: restartPolicy RecreateGroupOnPodRestart" in out
    assert yaml.safe_load(out)["kind"] == "PodCliqueSet"
    assert "LeaderWorkerSet vllm: No counterpart: restartPolicy" in err


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("podgangset", "grove.dynamo.ai"),
        ("multinode-serving", "grove.dynamo.ai"),
        ("mpi", "grove.ai"),
        ("disaggregated-inference", "grove.ai"),
    ],
)
def test_a_seed_there_and_back_is_translated_the_same(file: str, group: str) -> None:
    _, there, _ = run(SEEDS / f"{file}.yaml")
    assert yaml.safe_load(there)["apiVersion"] == "grove.io/v1alpha1"
    code, back, _ = run("--to", group, given=there)
    assert code == 0
    assert yaml.safe_load(run(given=back)[1]) == yaml.safe_load(there)


def test_what_would_be_lost_on_the_way_back_is_reported_and_nothing_is_printed() -> None:
    _, there, _ = run(SEEDS / "mpi.yaml")
    code, out, err = run("--to", "grove.dynamo.ai", given=there)
    assert (code != 0, out) == (True, "")
    assert 'clique "leader": a PodGangSet has one kind of pods' in err
    assert 'scaling group "mpi-job": a PodGangSet has none' in err


def test_rules_alone_become_nothing_and_faults_are_reported() -> None:
    assert "rules alone become nothing" in run(SEEDS / "podclique.yaml")[2]
    wrong = (SEEDS / "mpi.yaml").read_text().replace("startOrder: 1", "startOrder: -1")
    code, _, err = run(given=wrong)
    assert code != 0
    assert "podCliques[1].startOrder" in err
