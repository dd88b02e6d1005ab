"""MNNVL groups, and what the chosen scheduler backend can honour."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import changed, faults, plain, schedulers

from grove.admission.rules.lookups import Known
from grove.admission.rules.review import Admission
from grove.api.labels import SCHEDULER_ANNOTATION
from grove.api.podcliqueset import PodCliqueSet
from grove.backends import Backends
from grove.backends.base import Backend, Refusal

T = "spec.template"
KEY = "grove.io/mnnvl-group"
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)

ON, OFF = Admission(mnnvl_enabled=True), Admission(mnnvl_enabled=False)


@pytest.mark.parametrize(
    ("at", "path"),
    [
        ("metadata.annotations", f"metadata.annotations.{KEY}"),
        (f"{T}.cliques.0.annotations", f"{T}.cliques[0].annotations.{KEY}"),
        (f"{T}.podCliqueScalingGroups.0.annotations", f"{T}.podCliqueScalingGroups[0].annotations.{KEY}"),
    ],
    ids=["set", "clique", "group"],
)
@pytest.mark.parametrize(
    ("admission", "value", "want"),
    [
        pytest.param(ON, "pool-1", "", id="a group"),
        pytest.param(ON, "none", "", id="no group"),
        pytest.param(OFF, "none", "", id="no group, feature off"),
        pytest.param(ON, "", 'Invalid value: "": must be a group name or "none"', id="an empty value"),
        pytest.param(ON, "Pool 1", f'Invalid value: "Pool 1": {LABEL_RULE}', id="not a label"),
        pytest.param(
            OFF,
            "pool-1",
            'Invalid value: "pool-1": multi-node NVLink is switched off: an administrator sets '
            'network.autoMNNVLEnabled in the operator configuration; until then only "none" is '
            "allowed",
            id="a group, feature off",
        ),
    ],
)
def test_an_nvlink_group(admission: Admission, at: str, path: str, value: str, want: str) -> None:
    obj = changed(plain(), (at, {KEY: value}))
    assert faults(admission, obj) == ([f"{path}: {want}"] if want else [])


QUEUE = "kai.scheduler/queue"
VOLCANO = "scheduling.grove.io/volcano-queue"
ENABLED = Admission(
    topology_enabled=True,
    backends=schedulers("default-scheduler", "kai-scheduler", "volcano"),
)
QUEUES = Known(
    topologies={"cluster": {"spec": {"levels": [{"domain": "rack", "key": "example.com/rack"}]}}},
    queues={
        "default": {"status": {"state": "Open"}},
        "open": {"status": {"state": "Open"}},
        "closed": {"status": {"state": "Closed"}},
        "broken": ConnectionError("connection refused"),
    },
)


def on(scheduler: str, own: dict | None = None, **per_clique: dict) -> dict:
    """A set on a scheduler; `own` and the cliques' keywords are metadata (labels, annotations)."""
    cliques = [clique(name, **fields) for name, fields in (per_clique or {"a": {}}).items()]
    return pcs("demo", *cliques, scheduler=scheduler, metadata=own)


RACK = {"topologyName": "cluster", "pack": {"required": "rack"}}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(on("default-scheduler"), [], id="kube-scheduler asks for nothing"),
        pytest.param(on("kai-scheduler", {"labels": {QUEUE: "q"}}), [], id="KAI: a queue on the set"),
        pytest.param(on("kai-scheduler", {"annotations": {QUEUE: "q"}}), [], id="KAI: a queue as annotation"),
        pytest.param(
            on("kai-scheduler", {"labels": {QUEUE: "q"}, "annotations": {QUEUE: "x"}}, a={"labels": {QUEUE: "q"}}),
            [],
            id="KAI: the label wins over the annotation",
        ),
        pytest.param(
            on("kai-scheduler", a={"labels": {QUEUE: "q"}}, b={}), [], id="KAI: one queue among the cliques is enough"
        ),
        pytest.param(
            on("kai-scheduler"),
            [
                'spec: Invalid value: "": scheduler kai-scheduler needs a queue: set the label kai.scheduler/queue on '
                "the PodCliqueSet"
            ],
            id="KAI: no queue",
        ),
        pytest.param(
            on("kai-scheduler", {"labels": {QUEUE: "q"}}, a={"labels": {QUEUE: "r"}}),
            ['spec: Invalid value: "r": kai.scheduler/queue of clique "a" differs from that of the set, "q"'],
            id="KAI: a clique disagrees with the set",
        ),
        pytest.param(
            on("kai-scheduler", a={"labels": {QUEUE: "q"}}, b={"labels": {QUEUE: "r"}}),
            [
                'spec: Invalid value: ["q","r"]: kai.scheduler/queue must be the same for all cliques: a gang runs in '
                "one queue"
            ],
            id="KAI: cliques disagree",
        ),
        pytest.param(on("volcano"), [], id="Volcano: the default queue"),
        pytest.param(on("volcano", {"annotations": {VOLCANO: "open"}}), [], id="Volcano: an open queue"),
        pytest.param(
            on("volcano", {"annotations": {VOLCANO: "closed"}}),
            ['spec: Invalid value: "closed": Volcano queue is not open (its state is "Closed")'],
            id="Volcano: a closed queue",
        ),
        pytest.param(
            on("volcano", {"annotations": {VOLCANO: "nowhere"}}),
            ['spec: Invalid value: "nowhere": no such Volcano queue'],
            id="Volcano: no such queue",
        ),
        pytest.param(
            on("volcano", {"annotations": {VOLCANO: "broken"}}),
            ['spec: Internal error: Volcano queue "broken" could not be read: connection refused'],
            id="Volcano: a queue that cannot be read",
        ),
        pytest.param(
            on("volcano", {"annotations": {VOLCANO: "open"}}, a={"annotations": {VOLCANO: "default"}}),
            [
                'spec: Invalid value: "default": scheduling.grove.io/volcano-queue of clique "a" differs from that of '
                'the set, "open"'
            ],
            id="Volcano: a clique disagrees with the set",
        ),
        pytest.param(
            on("volcano", a={"annotations": {VOLCANO: "open"}}, b={}),
            [
                'spec: Invalid value: ["default","open"]: scheduling.grove.io/volcano-queue must be the same for all '
                "cliques: a gang runs in one queue"
            ],
            id="Volcano: cliques disagree, the default included",
        ),
    ],
)
def test_what_a_backend_takes(obj: dict, want: list[str]) -> None:
    assert faults(ENABLED, obj, lookups=QUEUES) == want


def test_a_queue_name_of_volcano_is_a_subdomain() -> None:
    found = faults(ENABLED, on("volcano", {"annotations": {VOLCANO: "My Queue"}}), lookups=QUEUES)
    assert [fault.partition(": a lowercase")[0] for fault in found] == [
        'spec: Invalid value: "My Queue": scheduling.grove.io/volcano-queue'
    ]


def test_a_closed_queue_does_not_block_what_runs_in_it() -> None:
    stored = on("volcano", {"annotations": {VOLCANO: "closed"}})
    assert faults(ENABLED, changed(stored, ("spec.replicas", 4)), stored, lookups=QUEUES) == []


NEW_IMAGE = f"{T}.cliques.0.spec.podSpec.containers.0.image", "new:2"
ANNOTATION = f"metadata.annotations.{SCHEDULER_ANNOTATION.replace('.', '|')}"
NO_QUEUE = [
    'spec: Invalid value: "": scheduler kai-scheduler needs a queue: '
    "set the label kai.scheduler/queue on the PodCliqueSet"
]


@pytest.mark.parametrize(
    ("default", "stored"),
    [
        pytest.param("kai-scheduler", on(""), id="KAI, and the set has no queue"),
        pytest.param(
            "kai-scheduler", on("", a={"labels": {QUEUE: "x"}}, b={"labels": {QUEUE: "y"}}), id="KAI, two queues"
        ),
        pytest.param("volcano", on("", {"annotations": {VOLCANO: "My Queue"}}), id="Volcano, a queue that is no name"),
    ],
)
def test_another_default_scheduler_does_not_block_what_runs_on_the_former(default: str, stored: dict) -> None:
    admission = Admission(backends=schedulers(default, "default-scheduler"))
    assert faults(admission, changed(stored, NEW_IMAGE), stored, lookups=QUEUES) == []
    assert faults(admission, stored, lookups=QUEUES) != []


def test_who_moves_to_a_scheduler_needs_its_queue() -> None:
    stored = on("", {"annotations": {SCHEDULER_ANNOTATION: "default-scheduler"}})
    assert faults(ENABLED, changed(stored, (ANNOTATION, "kai-scheduler"), NEW_IMAGE), stored) == NO_QUEUE


def test_a_queue_cannot_be_taken_away() -> None:
    stored = on("kai-scheduler", {"labels": {QUEUE: "x"}})
    assert faults(ENABLED, changed(stored, ("metadata.labels", {})), stored) == NO_QUEUE


class Picky(Backend):
    """A backend that takes no groups."""

    name = "picky"

    def validate(self, pcs: PodCliqueSet) -> list[Refusal]:
        groups = pcs.spec.template.pod_clique_scaling_groups
        return [Refusal(f"{T}.podCliqueScalingGroups", "picky takes no groups")] if groups else []


def test_a_backend_brings_its_own_rule() -> None:
    admission = Admission(backends=Backends([Picky()], default="picky"))
    assert faults(admission, pcs("demo", clique("a"))) == []
    assert faults(admission, pcs("demo", clique("a"), groups=[group("g", "a")])) == [
        f"{T}.podCliqueScalingGroups: Forbidden: picky takes no groups"
    ]
