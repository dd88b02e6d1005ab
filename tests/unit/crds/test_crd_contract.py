"""The CRD files against the wire contract: nothing missing, nothing different; additions are optional fields only."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from tests.support.contract import CONTRACT, Schema, contract_schema

from grove import crds

KUBERNETES_FACTS = (
    "int-or-string",
    "list-type",
    "list-map-keys",
    "map-type",
    "preserve-unknown-fields",
    "embedded-resource",
)
FACTS = (
    "type",
    "format",
    "default",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "pattern",
    "nullable",
    "required",
    *(f"x-kubernetes-{fact}" for fact in KUBERNETES_FACTS),
)
RULE_FACTS = ("reason", "fieldPath", "optionalOldSelf")
ADDITIONS = {
    "podcliquesets.grove.io": {
        ".spec.updateStrategy.rollingRecreate",
        ".spec.updateStrategy.progressDeadline",
        ".spec.template.cliques[].spec.podSpec.schedulingGroup",
        ".spec.template.cliques[].spec.startsAfterCondition",
        ".spec.template.startsAfterCondition",
        ".status.lastOperation",
        ".status.adoptedHashes",
        ".status.draining",
        ".status.replicaIndexes",
        ".status.gangRestarts",
        ".status.replicaRestarts",
        ".status.updateProgress.updatedUnitsCount",
        ".status.updateProgress.lastProgressTime",
        ".spec.updateStrategy.rollingUpdate",
        ".spec.updateStrategy.inPlace",
        ".spec.template.cliques[].rollingUpdate",
        ".spec.template.cliques[].spreadConstraint",
        ".spec.template.podCliqueScalingGroups[].rollingUpdate",
        ".spec.template.podCliqueScalingGroups[].spreadConstraint",
        ".spec.template.spreadConstraint",
        ".spec.template.headlessServiceConfig.perRevision",
        ".status.revisions",
        ".status.updateProgress.updatedStandalonePodCliques",
        ".status.updateProgress.updatedPodCliqueScalingGroups",
        ".status.updateProgress.fromGenerationHash",
        ".status.updateProgress.currentlyUpdating[].wasAvailable",
        ".status.updateProgress.currentlyUpdating[].slice",
    },
    "podcliques.grove.io": {
        ".spec.podSpec.schedulingGroup",
        ".spec.startsAfterCondition",
        ".status.lastOperation",
        ".status.incarnation",
        ".status.updateProgress.readyPodsSelectedToUpdate.indexes",
        ".status.updateProgress.readyPodsSelectedToUpdate.updatedIndexes",
        ".status.updateProgress.unplaced",
        ".status.updateProgress.surge",
    },
    "podcliquescalinggroups.grove.io": {
        ".status.lastOperation",
        ".status.draining",
        ".status.replicaIndexes",
        ".status.gangRestarts",
        ".status.replicaRestarts",
        ".status.incarnation",
        ".status.updateProgress.readyReplicaIndicesSelectedToUpdate.alsoCurrent",
        ".status.updateProgress.outdatedReplicasCount",
        ".status.updateProgress.inFlightReplicasCount",
        ".status.updateProgress.partition",
        ".status.updateProgress.unplaced",
        ".status.updateProgress.surge",
    },
    "clustertopologybindings.grove.io": set(),
    "podgangs.scheduler.grove.io": {
        ".spec.headroom",
        ".spec.spreadConstraints",
        ".status.capacityHolds",
        ".spec.replacement",
        ".status.replacement",
    },
}
"""What we say beyond the contract, by the topmost path; all of it optional."""


def facts_of(schema: dict[str, Any], path: str = "") -> Schema:
    """Every path of a schema with what is said there, in the contract's notation."""
    here = {fact: schema[fact] for fact in FACTS if fact in schema}
    if "enum" in here:
        here["enum"] = sorted(here["enum"])
    if "x-kubernetes-validations" in schema:
        here["cel"] = [{k: r[k] for k in RULE_FACTS if k in r} for r in schema["x-kubernetes-validations"]]
    found = {path: here}
    for name, inner in schema.get("properties", {}).items():
        found |= facts_of(inner, f"{path}.{name}")
    if "items" in schema:
        found |= facts_of(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        found |= facts_of(schema["additionalProperties"], f"{path}{{}}")
    return found


WIDER = {".spec.updateStrategy.type": "Coherent"}
"""Words that we take beyond those of the contract."""
DEFAULTED = ".status"
"""A set that no operator has seen has a status by default. Every client that reads a status can read it."""


def differences(want: Schema, have: Schema) -> list[str]:
    have = {
        path: {**one, "enum": [word for word in one["enum"] if word != WIDER[path]]} if path in WIDER else one
        for path, one in have.items()
    }
    have[DEFAULTED] = {fact: value for fact, value in have[DEFAULTED].items() if fact != "default"}
    missing = [f"{path}: missing" for path in want if path not in have]
    return missing + [f"{p}: want {want[p]}, have {have[p]}" for p in want if p in have and want[p] != have[p]]


def additions(want: Schema, have: Schema) -> set[str]:
    new = {path for path in have if path not in want}
    return {path for path in new if not any(path != top and path.startswith(top) for top in new)}


DOCUMENTS = {document["metadata"]["name"]: document for document in crds.load()}


def version_of(name: str) -> dict[str, Any]:
    (version,) = DOCUMENTS[name]["spec"]["versions"]
    found: dict[str, Any] = version
    return found


def schema_of(name: str) -> Schema:
    return facts_of(version_of(name)["schema"]["openAPIV3Schema"])


def test_there_are_the_five_of_the_contract_and_no_other() -> None:
    assert sorted(DOCUMENTS) == sorted(CONTRACT["crds"])


@pytest.mark.parametrize("name", sorted(CONTRACT["crds"]))
def test_schema(name: str) -> None:
    assert differences(contract_schema(name), schema_of(name)) == []


@pytest.mark.parametrize("name", sorted(CONTRACT["crds"]))
def test_additions_are_the_known_ones(name: str) -> None:
    """That they are optional, `test_schema` says: `required` of their parents is as in the contract."""
    assert additions(contract_schema(name), schema_of(name)) == ADDITIONS[name]


@pytest.mark.parametrize("name", sorted(CONTRACT["crds"]))
def test_names_scope_columns_and_subresources(name: str) -> None:
    want, spec, version = CONTRACT["crds"][name], DOCUMENTS[name]["spec"], version_of(name)
    assert {key: spec[key] for key in ("group", "scope", "names")} == {
        key: want[key] for key in ("group", "scope", "names")
    }
    rest = {key: value for key, value in version.items() if key not in ("schema", "additionalPrinterColumns")}
    columns = want["version"]["columns"]
    ours = [one for one in version["additionalPrinterColumns"] if one in columns or one["name"] not in ADDED]
    assert rest | {"columns": ours} == want["version"]


ADDED = {"Reason", "Score", "Place"}
"""Columns of ours, for those who have kubectl alone."""


def test_the_comparison_can_fail() -> None:
    want, schema = (
        contract_schema("podcliques.grove.io"),
        deepcopy(version_of("podcliques.grove.io")["schema"]["openAPIV3Schema"]),
    )
    spec = schema["properties"]["spec"]
    spec["required"].append("minAvailable")
    del spec["properties"]["podSpec"]["properties"]["containers"]["items"]["properties"]["env"]["items"]["properties"][
        "name"
    ]
    found = differences(want, facts_of(schema))
    assert ".spec.podSpec.containers[].env[].name: missing" in found
    assert any(line.startswith(".spec: want") for line in found)
    assert len(found) == 2
