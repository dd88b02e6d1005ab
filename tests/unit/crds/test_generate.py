"""The committed files are what the generator makes, and small enough to live with."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
import yaml
from tools.crds.definitions import DEFINITIONS
from tools.crds.generate import rendered
from tools.crds.schema import embedded

from grove import crds

FILES = rendered()


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_committed_file_is_up_to_date(name: str) -> None:
    assert files("grove.crds").joinpath(name).read_text() == FILES[name], "run make crds"


def test_there_is_no_other_file() -> None:
    there = sorted(f.name for f in files("grove.crds").iterdir() if f.name.endswith((".yaml", ".json")))
    assert there == sorted(FILES)


def test_the_text_for_people_holds_the_same_documents() -> None:
    assert list(yaml.load_all(crds.load_text(), Loader=yaml.CSafeLoader)) == crds.load()


def test_every_load_is_a_fresh_copy() -> None:
    crds.load()[0]["spec"].clear()
    assert crds.load()[0]["spec"]


def described(schema: dict[str, Any], path: str = "") -> list[str]:
    """Paths that lack a description, down to where Kubernetes' own schemas begin."""
    missing = []
    for name, inner in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        if "description" not in inner and here != ".metadata":
            missing.append(here)
        if name not in ("podSpec", "metrics", "templateSpec"):
            missing += described(inner.get("items", inner), here)
    return missing


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda d: d.kind.__name__)
def test_kubectl_explain_says_something_about_every_field_of_ours(definition: Any) -> None:
    document = yaml.load(
        FILES[f"{definition.kind.RESOURCE.group}_{definition.kind.RESOURCE.plural}.yaml"], yaml.CSafeLoader
    )
    assert described(document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]) == []


@pytest.mark.parametrize(
    ("field", "want"),
    [
        pytest.param("workloadRef", {"name", "podGroup", "podGroupReplicaKey"}, id="of Kubernetes 1.35"),
        pytest.param("schedulingGroup", {"podGroupName"}, id="of Kubernetes 1.36"),
    ],
)
def test_a_pod_spec_may_name_its_gang_in_either_way(field: str, want: set[str]) -> None:
    assert set(embedded("podSpec")["properties"][field]["properties"]) == want
    assert embedded("podSpec")["required"] == ["containers"]
