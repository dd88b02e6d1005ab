"""What an older schema or older rules let in does not stand in the way of an edit that leaves it alone.

The API server does the same with the schema of a CRD: it does not report again a fault in a value that is stored so.
"""

from __future__ import annotations

import pytest
from tests.support.reviews import VALIDATE_BINDING, binding, changed, faults, plain, schedulers

from grove.admission.rules.review import Admission

ADMISSION = Admission()
T = "spec.template"
SPEC = f"{T}.cliques.0.spec"
METRICS = f"{SPEC}.autoScalingConfig.metrics"
SOMETIMES = changed(plain(), ("spec.updateStrategy", {"type": "Sometimes"}))
NONE_DOWN = changed(plain(), ("spec.updateStrategy", {"type": "RollingRecreate", "rollingRecreate": {}}))
NONE_DOWN["spec"]["updateStrategy"]["rollingRecreate"]["maxUnavailable"] = 0
SHARES_A_WORD = changed(plain(), (f"{T}.cliques.0.resourceSharing", "all"))


def metric(target: str) -> dict:
    measured = {"metric": {"name": "waiting"}, "target": {"type": "AverageValue", "averageValue": target}}
    return {"type": "Pods", "pods": measured}


def scaled(*targets: str) -> dict:
    config = {"minReplicas": 2, "maxReplicas": 4, "metrics": [metric(one) for one in targets]}
    return changed(plain(), (f"{SPEC}.autoScalingConfig", config))


def backwards(obj: dict) -> dict:
    return changed(obj, (f"{T}.cliques", obj["spec"]["template"]["cliques"][::-1]))


@pytest.mark.parametrize(
    ("stored", "new"),
    [
        pytest.param(SOMETIMES, changed(SOMETIMES, ("spec.replicas", 3)), id="a word that is no longer known"),
        pytest.param(NONE_DOWN, changed(NONE_DOWN, ("spec.replicas", 3)), id="a number below the least"),
        pytest.param(
            NONE_DOWN, changed(NONE_DOWN, ("spec.updateStrategy.type", "OnDelete")), id="the field beside it changes"
        ),
        pytest.param(
            SHARES_A_WORD, changed(SHARES_A_WORD, (f"{SPEC}.replicas", 3)), id="a type, in a clique that changes"
        ),
        pytest.param(SHARES_A_WORD, backwards(SHARES_A_WORD), id="a clique that moves is known by its name"),
        pytest.param(
            scaled("5", "many"), scaled("6", "many"), id="an item of a list without names is known by its place"
        ),
    ],
)
def test_what_the_schema_says_of_a_stored_value_is_not_reported_again(stored: dict, new: dict) -> None:
    assert faults(ADMISSION, new, stored) == []


@pytest.mark.parametrize(
    ("stored", "new", "path"),
    [
        pytest.param(
            SOMETIMES,
            changed(SOMETIMES, ("spec.updateStrategy.type", "Never")),
            "spec.updateStrategy.type",
            id="one wrong word for another",
        ),
        pytest.param(plain(), SOMETIMES, "spec.updateStrategy.type", id="a wrong word for a right one"),
        pytest.param(
            plain(),
            changed(plain(), ("spec.replicas", True), (f"{SPEC}.replicas", 3)),
            "spec.replicas",
            id="true is not 1",
        ),
        pytest.param(
            changed(SHARES_A_WORD, ("spec.replicas", 3)),
            changed(SHARES_A_WORD, (f"{T}.cliques.1.resourceSharing", 7)),
            f"{T}.cliques[1].resourceSharing",
            id="the same fault in another clique",
        ),
        pytest.param(
            scaled("many", "5"),
            scaled("5", "many"),
            f"{T}.cliques[0].spec.autoScalingConfig.metrics[1].pods.target.averageValue",
            id="a wrong item that moves in a list without names",
        ),
    ],
)
def test_what_an_edit_brings_is_reported(stored: dict, new: dict, path: str) -> None:
    assert [one.partition(": ")[0] for one in faults(ADMISSION, new, stored)] == [path]


def test_a_missing_field_is_reported_when_the_object_around_it_changes() -> None:
    """As on an API server, which does not ask whether the field was there before."""
    stored = changed(plain(), (f"{SPEC}.podSpec.readinessGates", [{}]))
    gate = f"{SPEC}.podSpec.readinessGates.0"
    assert faults(ADMISSION, changed(stored, (f"{SPEC}.podSpec.hostname", "a")), stored) == []
    assert faults(ADMISSION, changed(stored, (f"{gate}.note", "a")), stored) == [
        f"{T}.cliques[0].spec.podSpec.readinessGates[0].conditionType: Required value"
    ]


LABELLED = ("metadata.labels", {"team": "search"})
BROKEN_RULE = changed(plain(), (f"{SPEC}.minAvailable", 9))
RESTARTS = ("metadata.annotations", {"grove.io/max-gang-restarts": "many"})


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(SOMETIMES, id="the schema refuses its spec"),
        pytest.param(BROKEN_RULE, id="a rule refuses its spec"),
        pytest.param(changed(plain(), RESTARTS), id="a rule refuses another annotation of it"),
        pytest.param(changed(plain(), (f"{SPEC}.podSpec.schedulerName", "gone")), id="its scheduler is switched off"),
    ],
)
@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(LABELLED, id="a label is put on"),
        pytest.param(("metadata.finalizers", []), id="a finalizer comes off"),
        pytest.param(("metadata.ownerReferences", [{"name": "a"}]), id="an owner is written"),
    ],
)
def test_a_set_whose_spec_is_left_alone_takes_new_metadata(stored: dict, edit: tuple[str, object]) -> None:
    assert faults(ADMISSION, changed(stored, edit), stored) == []


def test_metadata_that_is_wrong_itself_is_reported_beside_an_old_fault() -> None:
    wrong = changed(BROKEN_RULE, RESTARTS)
    assert faults(ADMISSION, wrong, BROKEN_RULE) == [
        'metadata.annotations.grove.io/max-gang-restarts: Invalid value: "many": must be a whole number, 0 or more'
    ]


def test_a_disruption_that_is_neither_allowed_nor_refused_is_a_fault() -> None:
    said = changed(plain(), ("metadata.annotations", {"grove.io/disruption": "sometimes"}))
    assert faults(ADMISSION, said, plain()) == [
        'metadata.annotations.grove.io/disruption: Invalid value: "sometimes": must be allow or never'
    ]


@pytest.mark.parametrize("said", ["Atomic", "", "a class"])
def test_a_provisioning_class_that_no_request_can_have_is_a_fault(said: str) -> None:
    path = "metadata.annotations.grove.io/provisioning-request"
    wrong = changed(plain(), ("metadata.annotations", {"grove.io/provisioning-request": said}))
    (fault,) = faults(ADMISSION, wrong, plain())
    assert fault.startswith(f'{path}: Invalid value: "{said}": must be "true", "false" or a provisioning class: ')


@pytest.mark.parametrize("said", ["true", "false", "best-effort-atomic-scale-up.autoscaling.x-k8s.io"])
def test_a_provisioning_class_is_admitted(said: str) -> None:
    right = changed(plain(), ("metadata.annotations", {"grove.io/provisioning-request": said}))
    assert faults(ADMISSION, right, plain()) == []


def test_a_broken_rule_is_reported_when_the_spec_changes() -> None:
    """The whole new spec is judged, as upstream does: only the schema asks what was stored."""
    assert faults(ADMISSION, changed(BROKEN_RULE, ("spec.replicas", 3)), BROKEN_RULE) == [
        f"{T}.cliques[0].spec.minAvailable: Invalid value: 9: must not be greater than replicas (2)"
    ]


def bound_to(scheduler: str) -> dict:
    return changed(binding(), ("spec.schedulerTopologyBindings", [{"schedulerName": scheduler}]))


@pytest.mark.parametrize(
    ("stored", "edit"),
    [
        pytest.param(bound_to("gone"), LABELLED, id="its scheduler is switched off"),
        pytest.param(binding(Zone="zone"), LABELLED, id="its level has a name of old"),
        pytest.param(bound_to("gone"), ("metadata.finalizers", []), id="a finalizer comes off"),
        pytest.param(
            binding(Zone="zone"),
            ("spec.levels.1", {"domain": "host", "key": "kubernetes.io/hostname"}),
            id="a level is added beside one that has a name of old",
        ),
    ],
)
def test_a_binding_takes_an_edit_that_leaves_its_fault_alone(stored: dict, edit: tuple[str, object]) -> None:
    admission = Admission(backends=schedulers("default-scheduler"))
    assert faults(admission, changed(stored, edit), stored, path=VALIDATE_BINDING) == []
