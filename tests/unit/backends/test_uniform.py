"""One QoS class, one sub-priority and one queue for a whole gang, by Koordinator's table of what goes with what."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, pcs
from tests.support.observed import set_of
from tests.support.reviews import faults

from grove.admission.rules.review import Admission
from grove.api.meta import Json
from grove.backends import Backends
from grove.backends.grove import GroveBackend
from grove.backends.kube import KubeBackend
from grove.backends.uniform import qos_faults, queue_faults

QOS, PRIORITY = "koordinator.sh/qosClass", "koordinator.sh/priority"
QUOTA, KAI = "quota.scheduling.koordinator.sh/name", "kai.scheduler/queue"


def cpus(amount: str, **more: str) -> list[Json]:
    return [{"name": "main", "image": "x", "resources": {"requests": {"cpu": amount, **more}}}]


def a_set(qos: str = "", priority_class: str = "", sub: str = "", cpu: str = "2", **more: str) -> Json:
    labels = {key: value for key, value in ((QOS, qos), (PRIORITY, sub)) if value}
    found = pcs("d", clique("a", containers=cpus(cpu, **more)), metadata={"labels": labels})
    if priority_class:
        found["spec"]["template"]["priorityClassName"] = priority_class
    return found


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(a_set(), "", id="nothing said"),
        pytest.param(a_set("LS"), "", id="LS goes with anything"),
        pytest.param(a_set("LS", "koord-prod"), "", id="LS in production"),
        pytest.param(a_set("LSR", "koord-prod"), "", id="LSR in production"),
        pytest.param(a_set("LSR", "mine"), "", id="a class of one's own is not judged"),
        pytest.param(a_set("BE", "koord-batch"), "", id="best effort in batch"),
        pytest.param(a_set("GOLD"), f"{QOS} must be one of LSE, LSR, LS, BE, SYSTEM", id="no such class"),
        pytest.param(a_set("BE", "koord-prod"), f"{QOS} BE does not go with koord-prod", id="BE in production"),
        pytest.param(a_set("BE"), f"{QOS} BE does not go with no priority class", id="best effort without priority"),
        pytest.param(a_set("LSR", "koord-mid"), f"{QOS} LSR does not go with koord-mid", id="LSR in mid"),
        pytest.param(a_set("LSE"), f"{QOS} LSE does not go with no priority class", id="LSE without priority"),
        pytest.param(a_set("LSR", "koord-prod", cpu="1500m"), f"{QOS} LSR needs whole CPUs", id="half a CPU"),
        pytest.param(
            a_set("LS", "koord-prod", **{"kubernetes.io/batch-cpu": "1"}),
            f"batch resources need {QOS} BE, not LS",
            id="batch resources in LS",
        ),
        pytest.param(a_set("LS", "koord-prod", "9500"), "", id="a sub-priority in its range"),
        pytest.param(
            a_set("LS", "koord-prod", "5500"),
            f"{PRIORITY} 5500 is not of koord-prod, whose range is 9000 to 9999",
            id="a sub-priority of another class",
        ),
        pytest.param(a_set("LS", "", "high"), f"{PRIORITY} must be a whole number, not high", id="a word"),
        pytest.param(a_set("LS", "koord-prod", "--5"), f"{PRIORITY} must be a whole number, not --5", id="two signs"),
        pytest.param(a_set("LS", "koord-prod", "²"), f"{PRIORITY} must be a whole number, not ²", id="a raised digit"),
    ],
)
def test_koordinators_table(obj: Json, want: str) -> None:
    assert [message for _, message in qos_faults(set_of(obj))] == ([want] if want else [])


def test_a_gang_of_two_classes_is_refused_for_any_scheduler() -> None:
    mixed = pcs("d", clique("a", labels={QOS: "LS"}), clique("b", labels={QOS: "BE"}, priorityClassName="koord-batch"))
    for backend in (GroveBackend(), KubeBackend()):
        mixed["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["schedulerName"] = backend.name
        mixed["spec"]["template"]["cliques"][1]["spec"]["podSpec"]["schedulerName"] = backend.name
        admission = Admission(backends=Backends([backend], backend.name))
        assert any(f"{QOS} must be the same in a whole gang, not BE, LS" in one for one in faults(admission, mixed))


@pytest.mark.parametrize(
    ("labels", "wrong"),
    [
        pytest.param({QUOTA: "a"}, False, id="Koordinator's"),
        pytest.param({KAI: "a"}, False, id="KAI's"),
        pytest.param({QUOTA: "a", KAI: "a"}, True, id="both"),
        pytest.param({}, False, id="neither"),
    ],
)
def test_a_set_is_in_one_queue_of_one_dialect(labels: dict[str, str], wrong: bool) -> None:
    found = set_of(pcs("d", clique("a"), metadata={"labels": labels}))
    assert bool(list(queue_faults(found))) is wrong
    assert bool(GroveBackend().validate(found)) is wrong
