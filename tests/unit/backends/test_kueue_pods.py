"""What a set may ask of Kueue, the pod group of a gang, and the words for a gang that Kueue holds."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, pcs
from tests.support.observed import set_of
from tests.support.reviews import faults

from grove.admission.rules.review import Admission
from grove.api import kueue
from grove.api.meta import Json
from grove.backends import Backends
from grove.backends.grove import GroveBackend
from grove.backends.kube import KubeBackend
from grove.backends.kueue import kueue_change_faults, kueue_faults
from grove.diagnosis.kueue import KueueSeen, kueue_reason
from grove.operator.shared.kueue import kueue_group

QUOTA, KAI = "quota.scheduling.koordinator.sh/name", "kai.scheduler/queue"


def queued(*cliques: Json, queue: str = "team", **labels: str) -> Json:
    own = {kueue.QUEUE: queue, **labels} if queue else labels
    return pcs("chat", *(cliques or (clique("w"),)), metadata={"labels": own})


def asking(**requests: str) -> Json:
    container = {"name": "main", "image": "x", "resources": {"requests": requests}}
    return clique("w", containers=[container])


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(queued(), "", id="a queue of Kueue alone"),
        pytest.param(queued(queue="", **{QUOTA: "a"}), "", id="a queue of grove-scheduler alone"),
        pytest.param(queued(**{QUOTA: "a"}), "a set is in one queue", id="both"),
        pytest.param(queued(**{KAI: "a"}), "a set is in one queue", id="both, in KAI's words"),
        pytest.param(queued(clique("w", labels={QUOTA: "a"})), "a set is in one queue", id="the other one on a clique"),
        pytest.param(queued(clique("w", labels={kueue.QUEUE: "a"})), "Grove sets this key", id="named on a clique"),
        pytest.param(
            queued(clique("w", annotations={kueue.TOTAL: "3"})), "Grove sets this key", id="a group of one's own"
        ),
        pytest.param(
            queued(*(clique(f"c{n}") for n in range(9))), "at most 8 cliques", id="more roles than Kueue takes"
        ),
        pytest.param(queued(*(clique(f"c{n}") for n in range(8))), "", id="as many roles as Kueue takes"),
    ],
)
def test_a_set_is_refused_with_a_clear_sentence(obj: Json, want: str) -> None:
    said = [message for _, message in kueue_faults(set_of(obj))]
    assert len(said) == bool(want)
    assert not want or want in said[0]


def test_admission_refuses_both_queues() -> None:
    admission = Admission(backends=Backends([GroveBackend(), KubeBackend()], GroveBackend.name))
    (said,) = faults(admission, queued(**{QUOTA: "a"}))
    assert f"Kueue admits it by {kueue.QUEUE}, or its scheduler counts it by {QUOTA}, not both" in said


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param(queued(), queued(), "", id="nothing changed"),
        pytest.param(queued(), queued(queue=""), "", id="the label is removed"),
        pytest.param(queued(queue=""), queued(), "was made without Kueue", id="the label is added"),
        pytest.param(queued(), queued(queue="other"), 'was admitted in queue "team"', id="another queue"),
        pytest.param(queued(asking(cpu="1")), queued(asking(cpu="1000m")), "", id="the same amount in other words"),
        pytest.param(queued(asking(cpu="1")), queued(asking(cpu="2")), "requests of before (cpu)", id="larger pods"),
        pytest.param(queued(asking(cpu="1"), queue=""), queued(asking(cpu="2"), queue=""), "", id="without Kueue"),
        pytest.param(queued(asking(cpu="1")), queued(asking(cpu="1"), clique("v")), "", id="a clique is added"),
    ],
)
def test_what_cannot_change_in_a_queue(before: Json, after: Json, want: str) -> None:
    said = [message for _, message in kueue_change_faults(set_of(after), set_of(before))]
    assert len(said) == bool(want)
    assert not want or want in said[0]


def test_a_group_of_another_size_or_queue_has_another_name_that_fits_a_label() -> None:
    gang = "a-name-of-a-gang-" * 4
    names = set()
    for queue, size in (("team", 2), ("team", 3), ("other", 2)):
        found = kueue_group(queue, gang[:63], {"w": size, "v": 0}, ())
        assert found is not None
        assert found.sizes == {"w": size}
        names.add(found.name)
    assert len(names) == 3
    assert all(len(name) <= 63 and name.startswith("a-name") for name in names)
    assert kueue_group("", gang, {"w": 2}, ()) is None


def workload(kind: str, status: str, reason: str = "", message: str = "", **spec: object) -> Json:
    condition = {"type": kind, "status": status, "reason": reason, "message": message}
    return {"metadata": {"name": "chat-0-1"}, "spec": spec, "status": {"conditions": [condition]}}


def cluster_queue(**used: str) -> Json:
    resources = [{"name": "nvidia.com/gpu", "nominalQuota": "16"}, {"name": "cpu", "nominalQuota": "4"}]
    reserved = [{"name": name.replace("_", "."), "total": total} for name, total in used.items()]
    reserved += [{"name": "nvidia.com/gpu", "total": "8"}]
    return {
        "metadata": {"name": "gpu-a"},
        "spec": {"resourceGroups": [{"flavors": [{"name": "h100", "resources": resources}]}]},
        "status": {"flavorsReservation": [{"name": "h100", "resources": reserved}]},
    }


def lacking(resource: str, flavor: str = "h100") -> Json:
    lacks = f"insufficient unused quota for {resource} in flavor {flavor}, 4 more needed"
    message = f"couldn't assign flavors to pod set w: {lacks}"
    return workload("QuotaReserved", "False", "Pending", message)


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(None, "waits for Kueue to admit it", id="not looked up"),
        pytest.param(KueueSeen(is_served=False), "waits for Kueue, and this cluster does not have it", id="no Kueue"),
        pytest.param(KueueSeen(), "waits for Kueue, which waits for all its pods: 2 of 3 pods exist", id="few pods"),
        pytest.param(KueueSeen(unread="workloads"), "waits for Kueue to admit it", id="no rights"),
        pytest.param(
            KueueSeen(workload=lacking("nvidia.com/gpu"), queue=cluster_queue()),
            "waits for Kueue: ClusterQueue gpu-a has 8 of 16 GPUs left",
            id="too few GPUs",
        ),
        pytest.param(
            KueueSeen(workload=lacking("cpu"), queue=cluster_queue(cpu="3500m")),
            "waits for Kueue: ClusterQueue gpu-a has 500m of 4 cpu left",
            id="too few cores",
        ),
        pytest.param(
            KueueSeen(workload=lacking("nvidia.com/gpu")),
            "waits for Kueue: couldn't assign flavors",
            id="the queue cannot be read",
        ),
        pytest.param(
            KueueSeen(workload=lacking("nvidia.com/gpu", "b200"), queue=cluster_queue()),
            "waits for Kueue: couldn't assign flavors",
            id="a flavor that the queue does not have",
        ),
        pytest.param(
            KueueSeen(workload=workload("QuotaReserved", "False", "Inadmissible", "LocalQueue team doesn't exist")),
            "waits for Kueue: LocalQueue team doesn't exist",
            id="no such queue",
        ),
        pytest.param(
            KueueSeen(workload=workload("QuotaReserved", "True")),
            "waits for Kueue: quota is reserved, an admission check is not done",
            id="an admission check",
        ),
        pytest.param(
            KueueSeen(workload=workload("Admitted", "True")),
            "waits for Kueue, which has admitted it and is about to remove the scheduling gates",
            id="admitted",
        ),
        pytest.param(
            KueueSeen(workload=workload("QuotaReserved", "False", active=False)),
            "waits for Kueue: its Workload is deactivated",
            id="deactivated",
        ),
        pytest.param(KueueSeen(workload={"status": 7, "spec": []}), "waits for Kueue to admit it", id="half an object"),
    ],
)
def test_the_words_for_a_gang_that_kueue_holds(found: KueueSeen | None, want: str) -> None:
    assert kueue_reason(found, held=2, total=3).reason.startswith(want)
