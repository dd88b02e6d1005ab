"""Whole manifests: what others wrote and what we show is admitted, and what was admitted once stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.support.reviews import binding, faults
from tests.support.sample_admission import ADMISSION, WELL_KNOWN

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.admission.rules.lookups import Known
from grove.admission.rules.sharing import foreign_templates
from grove.admission.rules.view import SetView

ROOT = Path(__file__).parents[3]
GOLDEN = sorted((ROOT / "tests" / "data" / "golden").glob("*.json"))
SAMPLES = sorted([*(ROOT / "samples").rglob("*.yaml"), *(ROOT / "tests" / "data" / "samples").glob("*.yaml")])


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_a_set_that_runs_elsewhere_is_admitted_and_left_alone(file: Path) -> None:
    obj = json.loads(file.read_text())["set"]
    assert missing_defaults(obj) == []
    assert faults(ADMISSION, obj) == []


def test_there_are_sets_from_elsewhere() -> None:
    assert len(GOLDEN) == 11


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: file.stem)
def test_our_own_samples_are_admitted(file: Path) -> None:
    # Shapes of clusters and scenarios are samples too, but nothing an API server is ever shown.
    documents = [one for one in yaml.safe_load_all(file.read_text()) if one and "kind" in one]
    bindings = {one["metadata"]["name"]: one for one in documents if one["kind"] == "ClusterTopologyBinding"}
    for name in _topologies(documents):
        bindings.setdefault(name, binding(name, **{domain: f"example.com/{domain}" for domain in WELL_KNOWN}))
    for obj in documents:
        if obj["kind"] == "PodCliqueSet" and obj["apiVersion"] == "grove.io/v1alpha1":
            obj["metadata"].setdefault("namespace", "default")
            full = with_additions(obj, missing_defaults(obj))
            may_read = dict.fromkeys(foreign_templates(SetView(full), "default").values(), True)
            known = Known(topologies=bindings, queues={"default": {"status": {"state": "Open"}}}, templates=may_read)
            assert faults(ADMISSION, full, lookups=known) == []


def _topologies(value: object) -> set[str]:
    """Every topologyName in a document."""
    if isinstance(value, dict):
        own = {value["topologyName"]} if isinstance(value.get("topologyName"), str) else set()
        return own.union(*(_topologies(one) for one in value.values()))
    return set().union(*(_topologies(one) for one in value)) if isinstance(value, list) else set()
