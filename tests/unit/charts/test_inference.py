"""The chart for workloads: every pattern renders a set that is admitted and comes up whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from tests.support.reviews import binding, faults
from tests.unit.admission.test_samples import ADMISSION, WELL_KNOWN

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.admission.rules.lookups import Known
from grove.demo.scenario import load_manifests
from grove.demo.simulation import Ground, simulate
from grove.plan.world import shaped
from grove.sim.loop import run

CHART = Path(__file__).parents[3] / "charts" / "inference"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
GANGS = {"aggregated": 1, "aggregated-multi-node": 2, "agentic": 1, "disaggregated": 2, "mpi": 1}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_admitted_and_comes_up_whole(file: Path) -> None:
    [obj] = load_manifests(file)
    known = Known(topologies={"fake-nodes": binding("fake-nodes", **{one: f"example.com/{one}" for one in WELL_KNOWN})})
    full = with_additions(obj, missing_defaults(obj))
    assert faults(ADMISSION, full, lookups=known) == []
    outcome = run(simulate(Ground(tuple(shaped(32))), [obj], None, seed=1, patience_s=600), seed=1)
    assert outcome.is_whole
    assert len(outcome.summary.gangs) == GANGS[file.stem]


def test_there_is_an_example_of_every_pattern() -> None:
    assert {file.stem for file in EXAMPLES} == set(GANGS)
    patterns = re.findall(r'"enum": \[("aggregated".*?)\]', (CHART / "values.schema.json").read_text())[0]
    assert len(patterns.split(",")) == len(GANGS)


def test_every_value_is_in_the_schema_and_none_else_is_taken() -> None:
    import json

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["additionalProperties"] is False
    assert set(values) <= set(schema["properties"])
